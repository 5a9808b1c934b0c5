#include "fusefs/hush.h"

#include <fcntl.h>
#include <glib.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT_MAX 1000

void hush_begin(struct hush *hush)
{
	hush->stderr_fd = -1;
	hush->kept_fd = memfd_create("stderr", MFD_CLOEXEC);
	if (hush->kept_fd < 0)
		return;
	hush->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (hush->stderr_fd >= 0)
		(void)dup2(hush->kept_fd, STDERR_FILENO);
}

char *hush_end(struct hush *hush)
{
	char said[KEPT_MAX + 1];
	ssize_t len = 0;
	GString *text = g_string_new(NULL);

	if (hush->stderr_fd >= 0) {
		(void)dup2(hush->stderr_fd, STDERR_FILENO);
		close(hush->stderr_fd);
		len = pread(hush->kept_fd, said, KEPT_MAX, 0);
	}
	if (hush->kept_fd >= 0)
		close(hush->kept_fd);
	said[len > 0 ? len : 0] = '\0';
	g_strchomp(said);
	for (const char *c = said; *c; c++) {
		if (*c == '\n')
			g_string_append(text, "; ");
		else
			g_string_append_c(text, *c);
	}
	return g_string_free(text, FALSE);
}
