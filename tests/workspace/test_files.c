/* Open files against sbxd: what is sent, when, in how many requests, and what is read. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>

#include "client/errlog.h"
#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
#include "tests/workspace/rig.h"

struct fixture {
	struct rig rig;
	struct sbx_workspace *ws;
	struct sbx_workspace_options options;
};

static const char *const *tools_args(void **state)
{
	static const char *const busybox[] = { "--tools", "busybox", NULL };

	return *state && strcmp(*state, "busybox") == 0 ? busybox : NULL;
}

static void mount_ws(struct fixture *f)
{
	assert_int_equal(sbx_workspace_new(f->rig.session, &f->options, &f->ws), 0);
}

static void open_with(struct fixture *f, const char *const *args, int64_t ttl_ms)
{
	f->options = rig_options(ttl_ms);
	f->options.cache_on_disk = true;
	rig_open(&f->rig, args);
	mount_ws(f);
}

static void close_all(struct fixture *f)
{
	if (getenv("SHOW_ERRORS")) {
		g_autofree char *text = sbx_errlog_render(sbx_session_errors(f->rig.session), NULL);

		print_message("%s", text);
	}
	sbx_workspace_free(f->ws);
	rig_close(&f->rig);
}

/* Have the session asked once, so that first use is not counted. */
static void warm(struct fixture *f)
{
	struct sbx_attr attr;

	(void)sbx_ws_stat(f->ws, &f->rig.call, "no-such-file", SBX_STAT_NOW, &attr, NULL);
}

/* Answered so far. The server logs a request when it has answered it. */
static size_t requests(struct fixture *f)
{
	g_usleep(30000);
	return rig_requests(&f->rig, NULL);
}

static struct sbx_file *open_file(struct fixture *f, const char *path, int flags)
{
	struct sbx_file *file = NULL;
	struct sbx_attr attr;

	assert_int_equal(
		sbx_ws_open(f->ws, &f->rig.call, path, flags, 0644, getpid(), &file, &attr), 0);
	return file;
}

static void write_at(struct fixture *f, struct sbx_file *file, const char *text, uint64_t offset)
{
	assert_int_equal(sbx_file_write(file, &f->rig.call, text, strlen(text), offset),
			 strlen(text));
}

static void close_file(struct fixture *f, struct sbx_file *file)
{
	assert_int_equal(sbx_file_flush(file, &f->rig.call, getpid()), 0);
	assert_int_equal(sbx_file_release(file, &f->rig.call), 0);
}

static void save(struct fixture *f, const char *path, const char *text)
{
	struct sbx_file *file = open_file(f, path, O_WRONLY | O_CREAT | O_TRUNC);

	write_at(f, file, text, 0);
	close_file(f, file);
}

static char *read_all(struct fixture *f, const char *path, gsize *ret_len)
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

#define assert_reads(f, path, expected)                           \
	do {                                                      \
		g_autofree char *read_ = read_all(f, path, NULL); \
		assert_string_equal(read_, expected);             \
	} while (0)

/* The file as it is on the server's disk. */
static char *remote(struct fixture *f, const char *path, gsize *ret_len)
{
	g_autofree char *full = g_build_filename(f->rig.files, path, NULL);
	char *text = NULL;
	gsize len;

	assert_true(g_file_get_contents(full, &text, ret_len ? ret_len : &len, NULL));
	return text;
}

#define assert_remote(f, path, expected)                          \
	do {                                                      \
		g_autofree char *remote_ = remote(f, path, NULL); \
		assert_string_equal(remote_, expected);           \
	} while (0)

static struct stat remote_stat(struct fixture *f, const char *path)
{
	g_autofree char *full = g_build_filename(f->rig.files, path, NULL);
	struct stat st;

	assert_int_equal(lstat(full, &st), 0);
	return st;
}

static size_t pending(struct fixture *f)
{
	uint64_t bytes;
	size_t files;

	sbx_ws_pending(f->ws, &files, &bytes);
	return files;
}

static char *pattern(size_t len, unsigned int seed)
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

static void test_create_and_save(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	warm(&f);
	save(&f, "warm", "x");
	before = requests(&f);
	save(&f, "new file", "hello\n");
	assert_int_equal(requests(&f) - before, 1);
	assert_remote(&f, "new file", "hello\n");
	assert_int_equal(remote_stat(&f, "new file").st_mode, S_IFREG | 0644);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "new file", SBX_STAT_CACHED, &attr, NULL),
			 0);
	assert_true(attr.ino == remote_stat(&f, "new file").st_ino);
	assert_int_equal(attr.size, 6);
	/* Saving over it keeps its mode; own bytes are read without asking. */
	rig_sh(&f.rig, "chmod 600 'new file'");
	before = requests(&f);
	save(&f, "new file", "other\n");
	assert_int_equal(requests(&f) - before, 1);
	assert_remote(&f, "new file", "other\n");
	assert_int_equal(remote_stat(&f, "new file").st_mode, S_IFREG | 0600);
	assert_reads(&f, "new file", "other\n");
	assert_int_equal(requests(&f) - before, 1);
	assert_int_equal(pending(&f), 0);
	close_all(&f);
}

static void test_exclusive(void **state)
{
	struct fixture f;
	struct sbx_file *file;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	warm(&f);
	save(&f, "warm", "x");
	before = requests(&f);
	file = open_file(&f, "lock", O_WRONLY | O_CREAT | O_EXCL);
	assert_int_equal(remote_stat(&f, "lock").st_size, 0);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "lock", O_WRONLY | O_CREAT | O_EXCL, 0644,
				     getpid(), &file, &attr),
			 -EEXIST);
	before++;
	write_at(&f, file, "content", 0);
	close_file(&f, file);
	assert_int_equal(requests(&f) - before, 2);
	assert_remote(&f, "lock", "content");
	rig_sh(&f.rig, "echo made >there");
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "there", O_WRONLY | O_CREAT | O_EXCL, 0644,
				     getpid(), &file, &attr),
			 -EEXIST);
	close_all(&f);
}

static void test_attributes_ride_along(void **state)
{
	struct fixture f;
	struct sbx_setattr change = {
		.set = SBX_SET_MODE | SBX_SET_MTIME,
		.mode = 0751,
		.mtime_ns = INT64_C(1500000000) * 1000000000,
	};
	struct sbx_file *file;
	struct sbx_attr attr;
	struct stat st;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	warm(&f);
	save(&f, "warm", "x");
	before = requests(&f);
	file = open_file(&f, "f", O_WRONLY | O_CREAT);
	write_at(&f, file, "12345", 0);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "f", file, &change, &attr), 0);
	assert_int_equal(attr.mode, S_IFREG | 0751);
	close_file(&f, file);
	assert_int_equal(requests(&f) - before, 1);
	st = remote_stat(&f, "f");
	assert_int_equal(st.st_mode, S_IFREG | 0751);
	assert_int_equal(st.st_mtim.tv_sec, 1500000000);
	/* fstat between write and close sends it, close then nothing. */
	before = requests(&f);
	file = open_file(&f, "g", O_WRONLY | O_CREAT);
	write_at(&f, file, "12345", 0);
	assert_int_equal(sbx_file_getattr(file, &f.rig.call, getpid(), &attr), 0);
	st = remote_stat(&f, "g");
	assert_true(attr.ino == st.st_ino);
	assert_true(attr.mtime_ns == st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
	close_file(&f, file);
	assert_int_equal(requests(&f) - before, 1);
	close_all(&f);
}

/* kernel.md: FLUSH is not close. */
static void test_flushes(void **state)
{
	struct fixture f;
	struct sbx_file *file;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	save(&f, "out", "A");
	before = requests(&f);
	file = open_file(&f, "out", O_WRONLY | O_TRUNC);
	assert_int_equal(sbx_file_flush(file, &f.rig.call, getpid()), 0);
	assert_remote(&f, "out", "A");
	write_at(&f, file, "B", 0);
	/* From another process while the opener lives. */
	assert_int_equal(sbx_file_flush(file, &f.rig.call, getppid()), 0);
	assert_remote(&f, "out", "A");
	assert_int_equal(requests(&f) - before, 0);
	close_file(&f, file);
	assert_remote(&f, "out", "B");
	assert_int_equal(requests(&f) - before, 1);
	/* A truncation alone goes at release. */
	file = open_file(&f, "out", O_WRONLY | O_TRUNC);
	assert_int_equal(sbx_file_flush(file, &f.rig.call, getpid()), 0);
	assert_remote(&f, "out", "B");
	assert_int_equal(sbx_file_release(file, &f.rig.call), 0);
	assert_remote(&f, "out", "");
	assert_int_equal(requests(&f) - before, 2);
	close_all(&f);
}

static void test_patch(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(300000, 1);
	g_autofree char *after = NULL;
	struct sbx_file *file;
	struct stat st;
	gsize len;
	char buf[16] = "";

	open_with(&f, tools_args(state), 1000);
	save(&f, "big", data);
	st = remote_stat(&f, "big");
	/* Written in place, in the middle, over the end, with a hole, and appended. */
	file = open_file(&f, "big", O_RDWR);
	write_at(&f, file, "<middle>", 150000);
	write_at(&f, file, "<end>", 299998);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 10, 149999), 10);
	assert_int_equal(buf[0], data[149999]);
	assert_memory_equal(buf + 1, "<middle>", 8);
	assert_int_equal(buf[9], data[150008]);
	close_file(&f, file);
	after = remote(&f, "big", &len);
	assert_int_equal(len, 300003);
	assert_memory_equal(after, data, 150000);
	assert_memory_equal(after + 150000, "<middle>", 8);
	assert_memory_equal(after + 150008, data + 150008, 299998 - 150008);
	assert_memory_equal(after + 299998, "<end>", 5);
	assert_true(remote_stat(&f, "big").st_ino == st.st_ino);
	g_free(after);
	/* Truncated by its descriptor, then written behind the new end. */
	file = open_file(&f, "big", O_RDWR);
	{
		struct sbx_setattr change = { .set = SBX_SET_SIZE, .size_bytes = 10 };
		struct sbx_attr attr;

		assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "big", file, &change, &attr), 0);
		assert_int_equal(attr.size, 10);
	}
	write_at(&f, file, "Z", 20);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 16, 8), 13);
	close_file(&f, file);
	after = remote(&f, "big", &len);
	assert_int_equal(len, 21);
	assert_memory_equal(after, data, 10);
	assert_memory_equal(after + 10, "\0\0\0\0\0\0\0\0\0\0Z", 11);
	assert_true(remote_stat(&f, "big").st_ino == st.st_ino);
	close_all(&f);
}

static void test_append(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(16 << 20, 2);
	g_autofree char *after = NULL;
	struct sbx_file *file;
	struct sbx_attr attr;
	size_t before;
	gsize len;

	open_with(&f, tools_args(state), 1000);
	save(&f, "log", data);
	before = requests(&f);
	file = open_file(&f, "log", O_WRONLY | O_APPEND);
	write_at(&f, file, "mine\n", 16 << 20);
	/* The sandbox's program is faster. */
	rig_sh(&f.rig, "echo theirs >>log");
	assert_int_equal(sbx_file_getattr(file, &f.rig.call, 1, &attr), 0);
	assert_int_equal(attr.size, (16 << 20) + 5);
	close_file(&f, file);
	assert_true(requests(&f) - before <= 2);
	after = remote(&f, "log", &len);
	assert_int_equal(len, (16 << 20) + 12);
	assert_string_equal(after + (16 << 20), "theirs\nmine\n");
	/* One that stays open is sent by itself. */
	file = open_file(&f, "log", O_WRONLY | O_APPEND);
	write_at(&f, file, "later\n", 0);
	for (int i = 0; i < 60 && pending(&f) > 0; i++)
		g_usleep(100000);
	assert_int_equal(pending(&f), 0);
	g_free(after);
	after = remote(&f, "log", &len);
	assert_string_equal(after + (16 << 20), "theirs\nmine\nlater\n");
	close_file(&f, file);
	close_all(&f);
}

static void test_small_reads(void **state)
{
	struct fixture f;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	rig_sh(&f.rig, "mkdir d; for d in a b c d e f g h i j; do mkdir d/$d; "
		       "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do "
		       "echo \"$d $i $j\" >d/$d/$i$j; done; done; done");
	warm(&f);
	g_usleep(50000);
	before = requests(&f);
	for (int i = 0; i < 1000; i++) {
		g_autofree char *path =
			g_strdup_printf("d/%c/%d%d", 'a' + i / 100, i / 10 % 10, i % 10);
		g_autofree char *want =
			g_strdup_printf("%c %d %d\n", 'a' + i / 100, i / 10 % 10, i % 10);

		assert_reads(&f, path, want);
	}
	print_message("1000 small files: %zu requests\n", requests(&f) - before);
	assert_true(requests(&f) - before <= 30);
	/* Again: nothing but freshness is asked for, also after a remount. */
	sbx_workspace_free(f.ws);
	mount_ws(&f);
	warm(&f);
	before = requests(&f);
	for (int i = 0; i < 1000; i += 7) {
		g_autofree char *path =
			g_strdup_printf("d/%c/%d%d", 'a' + i / 100, i / 10 % 10, i % 10);
		g_autofree char *want =
			g_strdup_printf("%c %d %d\n", 'a' + i / 100, i / 10 % 10, i % 10);

		assert_reads(&f, path, want);
	}
	print_message("again: %zu requests\n", requests(&f) - before);
	assert_true(requests(&f) - before <= 3);
	/* What the sandbox changes is seen. */
	rig_sh(&f.rig, "echo changed >d/a/00");
	g_usleep(1100000);
	assert_reads(&f, "d/a/00", "changed\n");
	close_all(&f);
}

static void test_big_reads(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(20 << 20, 3);
	g_autofree char *path = NULL;
	g_autofree char *got = NULL;
	struct sbx_file *file;
	char buf[4096];
	size_t before;
	gsize len;

	open_with(&f, tools_args(state), 1000);
	path = g_build_filename(f.rig.files, "big", NULL);
	assert_true(g_file_set_contents(path, data, 20 << 20, NULL));
	warm(&f);
	/* At random: a window each. */
	file = open_file(&f, "big", O_RDONLY);
	before = requests(&f);
	for (int i = 0; i < 5; i++) {
		uint64_t offset = (uint64_t)(i * 3 + 1) * 1234567 % (20 << 20);

		assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, offset), 4096);
		assert_memory_equal(buf, data + offset, 4096);
	}
	assert_int_equal(requests(&f) - before, 5);
	assert_int_equal(rig_requests(&f.rig, "get"), 0);
	close_file(&f, file);
	/* In sequence. */
	before = requests(&f);
	got = read_all(&f, "big", &len);
	assert_int_equal(len, 20 << 20);
	assert_memory_equal(got, data, len);
	print_message("20 MiB in sequence: %zu requests\n", requests(&f) - before);
	assert_true(requests(&f) - before <= 4);
	g_usleep(1100000);
	/* It was settled by now, so the next time it is here. */
	g_free(got);
	got = read_all(&f, "big", &len);
	assert_memory_equal(got, data, len);
	before = requests(&f);
	g_free(got);
	got = read_all(&f, "big", &len);
	assert_memory_equal(got, data, len);
	assert_true(requests(&f) - before <= 1);
	close_all(&f);
}

/* Unsent changes lie over a base that streams. */
static void test_stream_below_changes(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(8 << 20, 9);
	g_autofree char *path = NULL;
	g_autofree char *buf = g_malloc(1 << 17);
	struct sbx_file *file;

	open_with(&f, tools_args(state), 1000);
	path = g_build_filename(f.rig.files, "big", NULL);
	assert_true(g_file_set_contents(path, data, 8 << 20, NULL));
	file = open_file(&f, "big", O_RDWR);
	write_at(&f, file, "changed", 3 << 20);
	memcpy(data + (3 << 20), "changed", 7);
	for (size_t offset = 0; offset < 8 << 20; offset += 1 << 17) {
		assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 1 << 17, offset), 1 << 17);
		assert_memory_equal(buf, data + offset, 1 << 17);
	}
	close_file(&f, file);
	close_all(&f);
}

static void test_replaced(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(20 << 20, 4);
	g_autofree char *path = NULL;
	struct sbx_file *file;
	char buf[4096];

	open_with(&f, tools_args(state), 1000);
	path = g_build_filename(f.rig.files, "big", NULL);
	assert_true(g_file_set_contents(path, data, 20 << 20, NULL));
	file = open_file(&f, "big", O_RDONLY);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 8 << 20), 4096);
	rig_sh(&f.rig, "tr 'a-z' 'A-Z' <big >new && mv new big");
	/* What is here is read, the rest never comes from another version. */
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 8 << 20), 4096);
	assert_memory_equal(buf, data + (8 << 20), 4096);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 16 << 20), -ESTALE);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 0), -ESTALE);
	close_file(&f, file);
	close_all(&f);
}

static void test_unlinked_while_open(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(20 << 20, 5);
	g_autofree char *path = NULL;
	struct sbx_file *file;
	char buf[4096];

	open_with(&f, tools_args(state), 1000);
	path = g_build_filename(f.rig.files, "big", NULL);
	assert_true(g_file_set_contents(path, data, 20 << 20, NULL));
	file = open_file(&f, "big", O_RDWR);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "big"), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 12 << 20), 4096);
	assert_memory_equal(buf, data + (12 << 20), 4096);
	write_at(&f, file, "gone", 0);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 8, 0), 8);
	assert_memory_equal(buf, "gone", 4);
	assert_memory_equal(buf + 4, data + 4, 4);
	save(&f, "big", "another");
	close_file(&f, file);
	assert_remote(&f, "big", "another");
	/* The one that was set aside goes. */
	for (int i = 0; i < 50; i++) {
		g_autofree char *held = g_build_filename(f.rig.files, ".sbxfs/held", NULL);
		GDir *dir = g_dir_open(held, 0, NULL);
		bool empty = dir && !g_dir_read_name(dir);

		if (dir)
			g_dir_close(dir);
		if (empty)
			break;
		assert_true(i < 49);
		g_usleep(50000);
	}
	close_all(&f);
}

static void test_renamed_over_while_open(void **state)
{
	struct fixture f;
	g_autofree char *data = pattern(20 << 20, 6);
	g_autofree char *path = NULL;
	struct sbx_file *file;
	struct sbx_file *writer;
	char buf[4096];

	open_with(&f, tools_args(state), 1000);
	path = g_build_filename(f.rig.files, "big", NULL);
	assert_true(g_file_set_contents(path, data, 20 << 20, NULL));
	file = open_file(&f, "big", O_RDONLY);
	writer = open_file(&f, "tmp", O_WRONLY | O_CREAT);
	write_at(&f, writer, "new content", 0);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "tmp", "big", 0), 0);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 4096, 5 << 20), 4096);
	assert_memory_equal(buf, data + (5 << 20), 4096);
	assert_reads(&f, "big", "new content");
	/* The writer's file has moved with it. */
	write_at(&f, writer, "NEW", 0);
	close_file(&f, writer);
	assert_remote(&f, "big", "NEW content");
	close_file(&f, file);
	close_all(&f);
}

static void test_failing_publish(void **state)
{
	struct fixture f;
	struct sbx_file *file;

	open_with(&f, tools_args(state), 1000);
	save(&f, "warm", "x");
	rig_fault(&f.rig, "exec:*:status=500\n");
	file = open_file(&f, "kept", O_WRONLY | O_CREAT);
	write_at(&f, file, "precious", 0);
	assert_true(sbx_file_flush(file, &f.rig.call, getpid()) < 0);
	(void)sbx_file_release(file, &f.rig.call);
	assert_int_equal(pending(&f), 1);
	assert_reads(&f, "kept", "precious");
	/* As after kill -9: another client finds the spool. */
	sbx_workspace_free(f.ws);
	mount_ws(&f);
	assert_int_equal(pending(&f), 1);
	rig_fault(&f.rig, "");
	assert_reads(&f, "kept", "precious");
	for (int i = 0; i < 50 && pending(&f) > 0; i++)
		g_usleep(100000);
	assert_int_equal(pending(&f), 0);
	assert_remote(&f, "kept", "precious");
	close_all(&f);
}

/* The answer to an append is lost for longer than anybody waits: it is done once all the same. */
static void test_append_in_doubt(void **state)
{
	struct fixture f;
	struct sbx_file *file;

	open_with(&f, tools_args(state), 1000);
	save(&f, "log", "one\n");
	file = open_file(&f, "log", O_WRONLY | O_APPEND);
	write_at(&f, file, "two\n", 4);
	rig_fault(&f.rig, "exec:*:drop\n");
	assert_true(sbx_file_flush(file, &f.rig.call, getpid()) < 0);
	assert_remote(&f, "log", "one\ntwo\n");
	write_at(&f, file, "three\n", 8);
	rig_fault(&f.rig, "exec:*:status=500\n");
	(void)sbx_file_release(file, &f.rig.call);
	assert_int_equal(pending(&f), 1);
	/* As after kill -9: only the spool knows of the attempt. */
	sbx_workspace_free(f.ws);
	mount_ws(&f);
	rig_fault(&f.rig, "");
	assert_int_equal(sbx_ws_sync(f.ws, &f.rig.call), 0);
	assert_int_equal(pending(&f), 0);
	assert_remote(&f, "log", "one\ntwo\nthree\n");
	close_all(&f);
}

static void test_local_only(void **state)
{
	struct fixture f;
	struct sbx_file *file;
	struct sbx_attr attr;

	open_with(&f, tools_args(state), 1000);
	warm(&f);
	file = open_file(&f, "new", O_RDWR | O_CREAT);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "new", SBX_STAT_TTL, &attr, NULL), 0);
	write_at(&f, file, "abc", 0);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "new", SBX_STAT_TTL, &attr, NULL), 0);
	assert_int_equal(attr.size, 3);
	assert_reads(&f, "new", "abc");
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "new"), 0);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "new", SBX_STAT_TTL, &attr, NULL), -ENOENT);
	close_file(&f, file);
	assert_int_equal(pending(&f), 0);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "new", SBX_STAT_NOW, &attr, NULL), -ENOENT);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "no/dir/f", O_WRONLY | O_CREAT, 0644,
				     getpid(), &file, &attr),
			 -ENOENT);
	assert_int_equal(
		sbx_ws_open(f.ws, &f.rig.call, "none", O_RDONLY, 0, getpid(), &file, &attr),
		-ENOENT);
	rig_sh(&f.rig, "mkfifo pipe; mkdir dir; ln -s x link");
	g_usleep(1100000);
	assert_int_equal(
		sbx_ws_open(f.ws, &f.rig.call, "pipe", O_RDONLY, 0, getpid(), &file, &attr),
		-ENXIO);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "dir", O_RDONLY, 0, getpid(), &file, &attr),
			 -EISDIR);
	assert_int_equal(
		sbx_ws_open(f.ws, &f.rig.call, "link", O_RDONLY, 0, getpid(), &file, &attr),
		-ELOOP);
	close_all(&f);
}

/* 5 GiB with a few bytes in it: right size, no holes on the wire. */
static void test_sparse(void **state)
{
	struct fixture f;
	const uint64_t end = UINT64_C(5) << 30;
	struct sbx_setattr change = { .set = SBX_SET_SIZE, .size_bytes = end };
	struct sbx_file *file;
	struct sbx_attr attr;
	char buf[8] = "";

	open_with(&f, tools_args(state), 1000);
	file = open_file(&f, "sparse", O_RDWR | O_CREAT);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "sparse", file, &change, &attr), 0);
	write_at(&f, file, "here", end - 1000000000);
	close_file(&f, file);
	assert_int_equal(remote_stat(&f, "sparse").st_size, end);
	assert_true(remote_stat(&f, "sparse").st_blocks < 10000);
	file = open_file(&f, "sparse", O_RDWR);
	assert_int_equal(sbx_file_read(file, &f.rig.call, buf, 6, end - 1000000001), 6);
	assert_memory_equal(buf, "\0here", 6);
	write_at(&f, file, "more", end);
	close_file(&f, file);
	assert_int_equal(remote_stat(&f, "sparse").st_size, end + 4);
	close_all(&f);
}

static void test_no_exec(void **state)
{
	static const char *const args[] = { "--no-exec", NULL };
	g_autofree char *data = pattern(3 << 20, 7);
	g_autofree char *got = NULL;
	struct sbx_file *file;
	struct fixture f;
	gsize len;

	(void)state;
	open_with(&f, args, 1000);
	save(&f, "f", "plain");
	assert_remote(&f, "f", "plain");
	assert_reads(&f, "f", "plain");
	save(&f, "big", data);
	got = read_all(&f, "big", &len);
	assert_int_equal(len, 3 << 20);
	assert_memory_equal(got, data, len);
	file = open_file(&f, "f", O_WRONLY | O_APPEND);
	write_at(&f, file, "+more", 0);
	close_file(&f, file);
	assert_remote(&f, "f", "plain+more");
	file = open_file(&f, "big", O_RDWR);
	write_at(&f, file, "##", 1 << 20);
	close_file(&f, file);
	g_free(got);
	got = remote(&f, "big", &len);
	assert_int_equal(len, 3 << 20);
	memcpy(data + (1 << 20), "##", 2);
	assert_memory_equal(got, data, len);
	close_all(&f);
}

/* tail -f: who has a file open sees what is appended to it, and what is changed in place. */
static void test_follow(void **state)
{
	struct fixture f;
	struct sbx_file *small;
	struct sbx_file *big;
	struct sbx_attr attr;
	char buf[64] = "";

	open_with(&f, tools_args(state), 100);
	rig_sh(&f.rig, "echo one >small; head -c 1000000 /dev/zero >big");
	small = open_file(&f, "small", O_RDONLY);
	big = open_file(&f, "big", O_RDONLY);
	assert_int_equal(sbx_file_read(small, &f.rig.call, buf, 64, 0), 4);
	assert_int_equal(sbx_file_read(big, &f.rig.call, buf, 64, 999990), 10);
	g_usleep(50000);
	rig_sh(&f.rig, "echo two >>small; echo tail >>big");
	g_usleep(150000);
	assert_int_equal(sbx_ws_stat(f.ws, &f.rig.call, "small", SBX_STAT_TTL, &attr, NULL), 0);
	assert_int_equal(attr.size, 8);
	assert_int_equal(sbx_file_read(small, &f.rig.call, buf, 64, 4), 4);
	assert_memory_equal(buf, "two\n", 4);
	assert_int_equal(sbx_file_read(big, &f.rig.call, buf, 64, 1000000), 5);
	assert_memory_equal(buf, "tail\n", 5);
	/* Replaced, it is another file. */
	rig_sh(&f.rig, "echo other >new; mv new small");
	g_usleep(150000);
	assert_reads(&f, "small", "other\n");
	assert_int_equal(sbx_file_read(small, &f.rig.call, buf, 64, 0), 8);
	assert_memory_equal(buf, "one\ntwo\n", 8);
	close_file(&f, small);
	close_file(&f, big);
	close_all(&f);
}

static void write_block(struct fixture *f, struct sbx_file *file, const char *data, size_t len,
			uint64_t offset)
{
	assert_int_equal(sbx_file_write(file, &f->rig.call, data, len, offset), len);
}

/* A big content is on its way while it is written; what is done to it meanwhile is not lost. */
static void test_early_upload(void **state)
{
	const size_t block = 1 << 20;
	struct fixture f;
	g_autofree char *data = pattern(12 * block, 8);
	struct sbx_file *file;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	save(&f, "warm", "x");
	for (int kind = 0; kind < 5; kind++) {
		struct sbx_setattr change = { .set = SBX_SET_SIZE, .size_bytes = 11 * block };
		g_autofree char *expected = g_memdup2(data, 12 * block);
		g_autofree char *got = NULL;
		gsize size = 12 * block;
		gsize len;

		before = requests(&f);
		file = open_file(&f, "big", O_RDWR | O_CREAT | O_TRUNC);
		for (size_t i = 0; i < 12; i++)
			write_block(&f, file, data + i * block, block, i * block);
		if (kind == 1) {
			g_usleep(200000);
			write_at(&f, file, "rewritten", 5);
			memcpy(expected + 5, "rewritten", 9);
		} else if (kind == 2) {
			g_usleep(200000);
			assert_int_equal(
				sbx_ws_setattr(f.ws, &f.rig.call, "big", file, &change, &attr), 0);
			size = 11 * block;
		} else if (kind == 3) {
			g_usleep(1500000);
			write_at(&f, file, "more", size);
			size += 4;
			expected = g_realloc(expected, size);
			memcpy(expected + size - 4, "more", 4);
		} else if (kind == 4) {
			sbx_file_release(open_file(&f, "big", O_WRONLY | O_TRUNC), &f.rig.call);
			write_at(&f, file, "short", 0);
			memcpy(expected, "short", 5);
			size = 5;
		}
		close_file(&f, file);
		if (kind == 0)
			assert_int_equal(requests(&f) - before, 2);
		got = remote(&f, "big", &len);
		assert_int_equal(len, size);
		assert_memory_equal(got, expected, size);
		g_free(got);
		got = read_all(&f, "big", &len);
		assert_int_equal(len, size);
		assert_memory_equal(got, expected, size);
	}
	close_all(&f);
}

/* Workers that each change files of their own, at random, against a model of their content. */
struct worker {
	struct fixture *f;
	unsigned int number;
	unsigned int steps;
	bool failed;
};

struct model {
	char path[32];
	GString *content; /* NULL: there is no such file */
	struct sbx_file *file; /* open for reading and writing, or NULL */
};

#define EXPECT(condition)                                                                   \
	do {                                                                                \
		if (!(condition)) {                                                         \
			print_message("worker %u: line %d: %s\n", worker->number, __LINE__, \
				      #condition);                                          \
			worker->failed = true;                                              \
			return;                                                             \
		}                                                                           \
	} while (0)

static void model_write(struct model *model, const char *data, size_t len, size_t offset)
{
	size_t old = model->content->len;

	if (offset + len > old) {
		g_string_set_size(model->content, offset + len);
		if (offset > old)
			memset(model->content->str + old, 0, offset - old);
	}
	memcpy(model->content->str + offset, data, len);
}

static void worker_step(struct worker *worker, struct model *model, GRand *rand)
{
	const struct sbx_call *call = &worker->f->rig.call;
	struct sbx_workspace *ws = worker->f->ws;
	char data[5000];
	char buf[6000];
	struct sbx_setattr change = { .set = SBX_SET_SIZE };
	struct sbx_attr attr;
	size_t offset;
	size_t len;
	ssize_t n;

	if (!model->file) {
		int flags = O_RDWR | (model->content ? 0 : O_CREAT);

		if (g_rand_int_range(rand, 0, 4) == 0)
			flags |= O_CREAT | O_TRUNC;
		else if (!model->content && g_rand_int_range(rand, 0, 3) == 0)
			flags |= O_EXCL;
		EXPECT(sbx_ws_open(ws, call, model->path, flags, 0600, getpid(), &model->file,
				   &attr) == 0);
		if (!model->content)
			model->content = g_string_new(NULL);
		if (flags & O_TRUNC)
			g_string_truncate(model->content, 0);
		return;
	}
	offset = (size_t)g_rand_int_range(rand, 0, 20000);
	len = (size_t)g_rand_int_range(rand, 1, sizeof(data));
	switch (g_rand_int_range(rand, 0, 12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		memset(data, g_rand_int_range(rand, 'a', 'z'), len);
		EXPECT(sbx_file_write(model->file, call, data, len, offset) == (ssize_t)len);
		model_write(model, data, len, offset);
		break;
	case 4:
	case 5:
	case 6:
		n = sbx_file_read(model->file, call, buf, sizeof(buf), offset);
		if (offset >= model->content->len) {
			EXPECT(n == 0);
		} else {
			EXPECT(n == (ssize_t)MIN(sizeof(buf), model->content->len - offset));
			EXPECT(memcmp(buf, model->content->str + offset, (size_t)n) == 0);
		}
		break;
	case 7:
		change.size_bytes = offset;
		EXPECT(sbx_ws_setattr(ws, call, model->path, model->file, &change, &attr) == 0);
		EXPECT(attr.size == offset);
		len = model->content->len;
		g_string_set_size(model->content, offset);
		if (offset > len)
			memset(model->content->str + len, 0, offset - len);
		break;
	case 8:
		EXPECT(sbx_file_fsync(model->file, call) == 0);
		break;
	case 9:
		EXPECT(sbx_ws_stat(ws, call, model->path, SBX_STAT_TTL, &attr, NULL) == 0);
		EXPECT(attr.size == model->content->len);
		break;
	case 10: {
		char path[32];

		g_snprintf(path, sizeof(path), "w%u.%u", worker->number,
			   g_rand_int_range(rand, 0, 1000000));
		EXPECT(sbx_ws_rename(ws, call, model->path, path, 0) == 0);
		g_strlcpy(model->path, path, sizeof(model->path));
		break;
	}
	default:
		EXPECT(sbx_file_flush(model->file, call, getpid()) == 0);
		EXPECT(sbx_file_release(model->file, call) == 0);
		model->file = NULL;
		if (g_rand_int_range(rand, 0, 4) == 0) {
			EXPECT(sbx_ws_unlink(ws, call, model->path) == 0);
			g_string_free(model->content, TRUE);
			model->content = NULL;
		} else {
			gsize remote_len;
			g_autofree char *text = remote(worker->f, model->path, &remote_len);

			EXPECT(remote_len == model->content->len);
			EXPECT(memcmp(text, model->content->str, remote_len) == 0);
		}
	}
}

static void *worker_run(void *arg)
{
	struct worker *worker = arg;
	GRand *rand = g_rand_new_with_seed(worker->number);
	struct model models[4] = { 0 };

	for (unsigned int i = 0; i < G_N_ELEMENTS(models); i++)
		g_snprintf(models[i].path, sizeof(models[i].path), "w%u.f%u", worker->number, i);
	for (unsigned int i = 0; i < worker->steps && !worker->failed; i++)
		worker_step(worker, &models[g_rand_int_range(rand, 0, G_N_ELEMENTS(models))], rand);
	for (unsigned int i = 0; i < G_N_ELEMENTS(models); i++) {
		if (models[i].file)
			(void)sbx_file_release(models[i].file, &worker->f->rig.call);
		if (models[i].content)
			g_string_free(models[i].content, TRUE);
	}
	g_rand_free(rand);
	return NULL;
}

static void test_workers(void **state)
{
	struct worker workers[4];
	pthread_t threads[G_N_ELEMENTS(workers)];
	const char *steps = getenv("STEPS");
	struct fixture f;

	open_with(&f, tools_args(state), 100);
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++) {
		workers[i] = (struct worker){ &f, i,
					      steps ? (unsigned int)strtoul(steps, NULL, 10) : 150,
					      false };
		assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < G_N_ELEMENTS(workers); i++)
		assert_false(workers[i].failed);
	assert_int_equal(pending(&f), 0);
	close_all(&f);
}

int main(void)
{
#define GNU(test)                                         \
	{                                                 \
		.name = #test " gnu", .test_func = (test) \
	}
#define BUSYBOX(test)                                                                             \
	{                                                                                         \
		.name = #test " busybox", .test_func = (test), .initial_state = (void *)"busybox" \
	}
	const struct CMUnitTest tests[] = {
		GNU(test_create_and_save),
		BUSYBOX(test_create_and_save),
		GNU(test_exclusive),
		BUSYBOX(test_exclusive),
		GNU(test_attributes_ride_along),
		BUSYBOX(test_attributes_ride_along),
		GNU(test_flushes),
		GNU(test_patch),
		BUSYBOX(test_patch),
		GNU(test_append),
		BUSYBOX(test_append),
		GNU(test_small_reads),
		BUSYBOX(test_small_reads),
		GNU(test_big_reads),
		BUSYBOX(test_big_reads),
		GNU(test_stream_below_changes),
		GNU(test_replaced),
		GNU(test_unlinked_while_open),
		BUSYBOX(test_unlinked_while_open),
		GNU(test_renamed_over_while_open),
		GNU(test_failing_publish),
		GNU(test_append_in_doubt),
		GNU(test_local_only),
		GNU(test_sparse),
		BUSYBOX(test_sparse),
		GNU(test_follow),
		GNU(test_early_upload),
		GNU(test_workers),
		BUSYBOX(test_workers),
		GNU(test_no_exec),
	};
	const char *only = getenv("ONLY");

	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
