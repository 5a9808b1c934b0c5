#include "tests/workspace/files_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <glib.h>

#include "client/errlog.h"

const char *const *tools_args(void **state)
{
	static const char *const busybox[] = { "--tools", "busybox", NULL };

	return *state && strcmp(*state, "busybox") == 0 ? busybox : NULL;
}

void mount_ws(struct fixture *f)
{
	assert_int_equal(sbx_workspace_new(f->rig.session, &f->options, &f->ws), 0);
}

void open_with(struct fixture *f, const char *const *args, int64_t ttl_ms)
{
	f->options = rig_options(ttl_ms);
	f->options.cache_on_disk = true;
	rig_open(&f->rig, args);
	mount_ws(f);
}

void close_all(struct fixture *f)
{
	if (getenv("SHOW_ERRORS")) {
		g_autofree char *text = sbx_errlog_render(sbx_session_errors(f->rig.session), NULL);

		print_message("%s", text);
	}
	sbx_workspace_free(f->ws);
	rig_close(&f->rig);
}

/* Have the session asked once, so that first use is not counted. */
void warm(struct fixture *f)
{
	struct sbx_attr attr;

	(void)sbx_ws_stat(f->ws, &f->rig.call, "no-such-file", SBX_STAT_NOW, &attr, NULL);
}

/* Answered so far. */
size_t requests(struct fixture *f)
{
	return rig_requests(&f->rig, NULL);
}

struct sbx_file *open_file(struct fixture *f, const char *path, int flags)
{
	struct sbx_file *file = NULL;
	struct sbx_attr attr;

	assert_int_equal(
		sbx_ws_open(f->ws, &f->rig.call, path, flags, 0644, getpid(), &file, &attr), 0);
	return file;
}

void write_at(struct fixture *f, struct sbx_file *file, const char *text, uint64_t offset)
{
	assert_int_equal(sbx_file_write(file, &f->rig.call, text, strlen(text), offset),
			 strlen(text));
}

void close_file(struct fixture *f, struct sbx_file *file)
{
	assert_int_equal(sbx_file_flush(file, &f->rig.call, getpid()), 0);
	assert_int_equal(sbx_file_release(file, &f->rig.call), 0);
}

void save(struct fixture *f, const char *path, const char *text)
{
	struct sbx_file *file = open_file(f, path, O_WRONLY | O_CREAT | O_TRUNC);

	write_at(f, file, text, 0);
	close_file(f, file);
}

char *read_all(struct fixture *f, const char *path, gsize *ret_len)
{
	struct sbx_file *file = open_file(f, path, O_RDONLY);
	GString *text = g_string_new(NULL);
	g_autofree char *buf = g_malloc(131072);
	ssize_t n;

	while ((n = sbx_file_read(file, &f->rig.call, buf, 131072, text->len)) > 0)
		g_string_append_len(text, buf, n);
	assert_int_equal(n, 0);
	close_file(f, file);
	if (ret_len)
		*ret_len = text->len;
	return g_string_free(text, FALSE);
}

/* The file as it is on the server's disk. */
char *remote(struct fixture *f, const char *path, gsize *ret_len)
{
	g_autofree char *full = g_build_filename(f->rig.files, path, NULL);
	char *text = NULL;
	gsize len;

	assert_true(g_file_get_contents(full, &text, ret_len ? ret_len : &len, NULL));
	return text;
}

struct stat remote_stat(struct fixture *f, const char *path)
{
	g_autofree char *full = g_build_filename(f->rig.files, path, NULL);
	struct stat st;

	assert_int_equal(lstat(full, &st), 0);
	return st;
}

size_t pending(struct fixture *f)
{
	uint64_t bytes;
	size_t files;

	sbx_ws_pending(f->ws, &files, &bytes);
	return files;
}

char *pattern(size_t len, unsigned int seed)
{
	char *data = g_malloc(len + 1);
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (char)('!' + x % 90);
	}
	data[len] = '\0';
	return data;
}

/* Tests ---------------------------------------------------------------------------------------- */
