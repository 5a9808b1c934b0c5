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
#include "tests/workspace/files_rig.h"
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

#define SET_S INT64_C(1500000000)

/* What open file @file, or @path where that is NULL, is set to. */
static void set_attributes(struct fixture *f, const char *path, struct sbx_file *file,
			   unsigned int set)
{
	struct sbx_setattr change = { .set = set, .mode = 0751, .mtime_ns = SET_S * 1000000000 };
	struct sbx_attr attr;

	assert_int_equal(sbx_ws_setattr(f->ws, &f->rig.call, path, file, &change, &attr), 0);
}

/* Close @file; a request of 300 ms is on its way when this returns. */
static void leave_sending(struct fixture *f, struct sbx_file *file)
{
	rig_fault(&f->rig, "exec:*:delay=300\n");
	assert_int_equal(sbx_file_release(file, NULL), 0);
	g_usleep(100000);
	assert_true(pending(f) > 0);
}

/* Until all is sent, with nobody asking for it. */
static void wait_sent(struct fixture *f)
{
	for (int i = 0; i < 50 && pending(f) > 0; i++)
		g_usleep(100000);
	assert_int_equal(pending(f), 0);
	rig_fault(&f->rig, "");
}

/* Mode and times that are set while what was written before is on its way are not what is sent. */
static void test_attributes_while_sending(void **state)
{
	struct fixture f;
	struct sbx_file *other;
	struct sbx_file *file;
	struct stat st;

	open_with(&f, tools_args(state), 1000);
	save(&f, "f", "x");
	leave_sending(&f, open_file(&f, "f", O_WRONLY | O_TRUNC));
	set_attributes(&f, "f", NULL, SBX_SET_MODE | SBX_SET_MTIME);
	wait_sent(&f);
	st = remote_stat(&f, "f");
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode, S_IFREG | 0751);
	assert_int_equal(st.st_mtim.tv_sec, SET_S);
	/* Later bytes in between, which are sent in a second request. */
	file = open_file(&f, "f", O_WRONLY);
	other = open_file(&f, "f", O_WRONLY);
	write_at(&f, other, "first", 0);
	leave_sending(&f, other);
	write_at(&f, file, "second", 5);
	set_attributes(&f, "f", file, SBX_SET_MTIME);
	close_file(&f, file);
	wait_sent(&f);
	assert_remote(&f, "f", "firstsecond");
	assert_int_equal(remote_stat(&f, "f").st_mtim.tv_sec, SET_S);
	/* The time that is on its way is an old one when it comes. */
	file = open_file(&f, "f", O_WRONLY | O_TRUNC);
	write_at(&f, file, "third", 0);
	set_attributes(&f, "f", file, SBX_SET_MTIME);
	leave_sending(&f, file);
	set_attributes(&f, "f", NULL, SBX_SET_MTIME_NOW);
	wait_sent(&f);
	assert_remote(&f, "f", "third");
	assert_true(remote_stat(&f, "f").st_mtim.tv_sec > SET_S);
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

static void append(struct fixture *f, struct sbx_file *file, const char *text, uint64_t offset)
{
	assert_int_equal(sbx_file_append(file, &f->rig.call, text, strlen(text), offset),
			 strlen(text));
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
	file = open_file(&f, "log", O_WRONLY);
	append(&f, file, "mine\n", 16 << 20);
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
	file = open_file(&f, "log", O_WRONLY);
	append(&f, file, "later\n", 0);
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
	int64_t begun_ms;
	size_t before;

	open_with(&f, tools_args(state), 1000);
	rig_sh(&f.rig, "mkdir d; for d in a b c d e f g h i j; do mkdir d/$d; "
		       "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do "
		       "echo \"$d $i $j\" >d/$d/$i$j; done; done; done");
	warm(&f);
	/* Content is kept once its times are old enough to prove it: whole seconds for BusyBox. */
	g_usleep(tools_args(state) ? 2100000 : 50000);
	warm(&f);
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
	begun_ms = sbx_clock_ms();
	for (int i = 0; i < 1000; i += 7) {
		g_autofree char *path =
			g_strdup_printf("d/%c/%d%d", 'a' + i / 100, i / 10 % 10, i % 10);
		g_autofree char *want =
			g_strdup_printf("%c %d %d\n", 'a' + i / 100, i / 10 % 10, i % 10);

		assert_reads(&f, path, want);
	}
	print_message("again: %zu requests\n", requests(&f) - before);
	/* A look a second keeps what is shown fresh, however slow this machine is. */
	assert_true(requests(&f) - before <= 3 + (size_t)(sbx_clock_ms() - begun_ms) / 1000);
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
	file = open_file(&f, "log", O_WRONLY);
	append(&f, file, "two\n", 4);
	rig_fault(&f.rig, "exec:*:drop\n");
	assert_true(sbx_file_flush(file, &f.rig.call, getpid()) < 0);
	assert_remote(&f, "log", "one\ntwo\n");
	append(&f, file, "three\n", 8);
	set_attributes(&f, "log", file, SBX_SET_MODE | SBX_SET_MTIME);
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
	assert_int_equal(remote_stat(&f, "log").st_mode, S_IFREG | 0751);
	assert_int_equal(remote_stat(&f, "log").st_mtim.tv_sec, SET_S);
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
	file = open_file(&f, "f", O_WRONLY);
	append(&f, file, "+more", 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		GNU(test_create_and_save),
		BUSYBOX(test_create_and_save),
		GNU(test_exclusive),
		BUSYBOX(test_exclusive),
		GNU(test_attributes_ride_along),
		BUSYBOX(test_attributes_ride_along),
		GNU(test_attributes_while_sending),
		BUSYBOX(test_attributes_while_sending),
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
		GNU(test_no_exec),
	};
	const char *only = getenv("ONLY");

	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
