#include "client/workspace/process.h"

#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* /proc/PID/status into @buf; false: there is no such process. */
static bool process_status(pid_t pid, char *buf, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	g_snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return true;
}

/* The value of a line of a status file; "" when it is missing. */
static const char *status_value(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? at + strlen(key) : "";
}

pid_t sbx_process_of(pid_t tid)
{
	char status[1024];
	int pid;

	if (tid <= 0 || !process_status(tid, status, sizeof(status)))
		return tid;
	pid = (int)strtol(status_value(status, "\nTgid:"), NULL, 10);
	return pid > 0 ? pid : tid;
}

bool sbx_process_is_dead(pid_t pid)
{
	char status[1024];
	const char *state;

	if (pid <= 0 || !process_status(pid, status, sizeof(status)))
		return true;
	state = status_value(status, "\nState:");
	while (*state == '\t' || *state == ' ')
		state++;
	return *state == 'Z' || *state == 'X';
}

bool sbx_process_closes(pid_t tid, pid_t opener)
{
	return tid == opener || sbx_process_of(tid) == opener || sbx_process_is_dead(opener);
}
