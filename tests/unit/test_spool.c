/* spool: what was written is there again, whenever its process dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/workspace/spool.h"

#define TAG "11111111-2222-3333-4444-555555555555"

struct fixture {
	char *dir;
	int dirfd;
};

static int fixture_setup(void **state)
{
	struct fixture *fix = g_new0(struct fixture, 1);

	fix->dir = g_dir_make_tmp("sbxfs-spool-XXXXXX", NULL);
	fix->dirfd = open(fix->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = fix;
	return fix->dir && fix->dirfd >= 0 ? 0 : -1;
}

static int fixture_teardown(void **state)
{
	struct fixture *fix = *state;
	DIR *dir = fdopendir(fix->dirfd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(fix->dirfd, entry->d_name, 0);
	g_rmdir(fix->dir);
	if (dir)
		closedir(dir);
	g_free(fix->dir);
	g_free(fix);
	return 0;
}

/* The name of the only spool; NULL: there is none. More than one is a failure. */
static char *only_name(struct fixture *fix)
{
	GDir *dir = g_dir_open(fix->dir, 0, NULL);
	const char *name = g_dir_read_name(dir);
	char *copy = g_strdup(name);

	assert_null(name ? g_dir_read_name(dir) : NULL);
	g_dir_close(dir);
	if (copy)
		assert_true(sbx_spool_is_name(copy));
	return copy;
}

static const struct sbx_spool_meta whole = {
	.kind = SBX_SPOOL_WHOLE,
	.flags = SBX_SPOOL_NEW | SBX_SPOOL_MTIME,
	.mode = 0640,
	.mtime_ns = INT64_C(1700000000123456789),
};
static const struct sbx_spool_meta patch = {
	.kind = SBX_SPOOL_PATCH,
	.base = { .dev = 1, .ino = 2, .size_bytes = 20, .mtime_ns = 3, .ctime_ns = 4 },
};

/* The content as text: '.' a byte of the base, '0' a zero. g_free(). */
static char *content(const struct sbx_spool *spool)
{
	const struct sbx_layout *layout = sbx_spool_layout(spool);
	GString *text = g_string_new(NULL);
	struct sbx_extent found;

	while (sbx_layout_extent(layout, text->len, UINT64_MAX, &found)) {
		size_t at = text->len;

		g_string_set_size(text, at + found.len_bytes);
		if (found.kind == SBX_EXTENT_LOG)
			assert_int_equal(sbx_spool_read(spool, text->str + at, found.len_bytes,
							found.log_pos),
					 0);
		else
			memset(text->str + at, found.kind == SBX_EXTENT_BASE ? '.' : '0',
			       found.len_bytes);
	}
	return g_string_free(text, FALSE);
}

#define assert_content(spool, expected)                         \
	do {                                                    \
		g_autofree char *content_text = content(spool); \
		assert_string_equal(content_text, expected);    \
	} while (0)

static void test_write_and_adopt(void **state)
{
	struct fixture *fix = *state;
	g_autofree char *name = NULL;
	struct sbx_spool *spool;
	struct stat st;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "a/\xff\n b", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "hello", 5, 0), 0);
	assert_int_equal(sbx_spool_write(spool, "world", 5, 7), 0);
	assert_int_equal(sbx_spool_append(spool, "!!", 2), 0);
	assert_content(spool, "hello00world!!");
	name = only_name(fix);
	assert_int_equal(fstatat(fix->dirfd, name, &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	sbx_spool_close(spool);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
	assert_content(spool, "hello00world!!");
	assert_string_equal(sbx_spool_path(spool), "a/\xff\n b");
	assert_int_equal(sbx_spool_meta(spool)->kind, SBX_SPOOL_WHOLE);
	assert_int_equal(sbx_spool_meta(spool)->flags, whole.flags);
	assert_int_equal(sbx_spool_meta(spool)->mode, 0640);
	assert_true(sbx_spool_meta(spool)->mtime_ns == whole.mtime_ns);
	assert_int_equal(sbx_spool_layout(spool)->append_start, 12);
	sbx_spool_remove(spool);
	assert_null(only_name(fix));
}

static void test_patch_and_headers(void **state)
{
	struct fixture *fix = *state;
	g_autofree char *name = NULL;
	struct sbx_spool_meta meta = patch;
	struct sbx_spool *spool;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &patch, &spool), 0);
	assert_content(spool, "....................");
	assert_int_equal(sbx_spool_write(spool, "XY", 2, 4), 0);
	assert_int_equal(sbx_spool_truncate(spool, 8), 0);
	assert_int_equal(sbx_spool_truncate(spool, 10), 0);
	assert_int_equal(sbx_spool_append(spool, "end", 3), 0);
	assert_content(spool, "....XY..00end");
	for (int i = 0; i < 5; i++) {
		g_autofree char *path = g_strdup_printf("dir/f%d", i);

		meta.mode = (mode_t)(0600 + i);
		assert_int_equal(sbx_spool_set_path(spool, path), 0);
		assert_int_equal(sbx_spool_set_meta(spool, &meta), 0);
	}
	name = only_name(fix);
	sbx_spool_close(spool);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
	assert_string_equal(sbx_spool_path(spool), "dir/f4");
	assert_int_equal(sbx_spool_meta(spool)->mode, 0604);
	assert_true(sbx_version_equal(&sbx_spool_meta(spool)->base, &patch.base));
	assert_content(spool, "....XY..00end");
	sbx_spool_close(spool);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, "other", name, &spool), -EXDEV);
}

/* Cut the file at every length: what is adopted is the state after some whole record. */
static void test_torn_log(void **state)
{
	static const char *const states[] = { "", "one", "one", "onetwo", "ontwo2", NULL };
	struct fixture *fix = *state;
	g_autofree char *name = NULL;
	g_autofree char *bytes = NULL;
	g_autofree char *file = NULL;
	struct sbx_spool *spool;
	unsigned int seen = 0;
	gsize len;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "one", 3, 0), 0);
	assert_int_equal(sbx_spool_append(spool, "two", 3), 0);
	assert_int_equal(sbx_spool_write(spool, "two2", 4, 2), 0);
	name = only_name(fix);
	sbx_spool_close(spool);
	file = g_build_filename(fix->dir, name, NULL);
	assert_true(g_file_get_contents(file, &bytes, &len, NULL));
	for (gsize cut = SBX_SPOOL_SLOT * 2; cut <= len; cut++) {
		g_autofree char *text = NULL;
		bool known = false;

		assert_true(g_file_set_contents(file, bytes, (gssize)cut, NULL));
		assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
		text = content(spool);
		for (unsigned int i = 0; states[i]; i++) {
			if (strcmp(states[i], text) == 0) {
				known = true;
				seen |= 1u << i;
			}
		}
		assert_true(known);
		/* It goes on behind the cut. */
		assert_int_equal(sbx_spool_write(spool, "Z", 1, 0), 0);
		sbx_spool_close(spool);
		assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
		g_free(text);
		text = content(spool);
		assert_int_equal(text[0], 'Z');
		sbx_spool_close(spool);
	}
	assert_int_equal(seen & 0x1b, 0x1b);
}

static void test_damaged_headers(void **state)
{
	struct fixture *fix = *state;
	g_autofree char *name = NULL;
	g_autofree char *bytes = NULL;
	g_autofree char *file = NULL;
	struct sbx_spool *spool;
	gsize len;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "old", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "data", 4, 0), 0);
	assert_int_equal(sbx_spool_set_path(spool, "new"), 0);
	name = only_name(fix);
	sbx_spool_close(spool);
	file = g_build_filename(fix->dir, name, NULL);
	assert_true(g_file_get_contents(file, &bytes, &len, NULL));
	/* The newer slot (the second header written) is the even one. */
	bytes[100] ^= 1;
	assert_true(g_file_set_contents(file, bytes, (gssize)len, NULL));
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
	assert_string_equal(sbx_spool_path(spool), "old");
	assert_content(spool, "data");
	sbx_spool_close(spool);
	bytes[SBX_SPOOL_SLOT + 100] ^= 1;
	assert_true(g_file_set_contents(file, bytes, (gssize)len, NULL));
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), -EBADMSG);
	assert_true(g_file_test(file, G_FILE_TEST_EXISTS));
	/* One that was never begun goes. */
	assert_true(g_file_set_contents(file, "", 0, NULL));
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), -EBADMSG);
	assert_false(g_file_test(file, G_FILE_TEST_EXISTS));
}

static void test_living_owner(void **state)
{
	struct fixture *fix = *state;
	g_autofree char *name = NULL;
	struct sbx_spool *other;
	struct sbx_spool *spool;
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		if (sbx_spool_create(fix->dirfd, TAG, "f", &whole, &spool) < 0 ||
		    sbx_spool_write(spool, "kept", 4, 0) < 0)
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	name = only_name(fix);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &other), -EWOULDBLOCK);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &other), 0);
	assert_content(other, "kept");
	sbx_spool_remove(other);
}

static void test_view_and_rebase(void **state)
{
	struct fixture *fix = *state;
	struct sbx_spool_meta after = patch;
	struct sbx_spool_view view;
	g_autofree char *name = NULL;
	struct sbx_spool *spool;
	struct sbx_extent found;
	char buf[8] = "";

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "before", 6, 0), 0);
	assert_int_equal(sbx_spool_view(spool, &view), 0);
	assert_false(sbx_spool_is_newer(spool, &view));
	assert_int_equal(sbx_spool_write(spool, "AF", 2, 1), 0);
	assert_int_equal(sbx_spool_append(spool, "ter", 3), 0);
	assert_true(sbx_spool_is_newer(spool, &view));
	assert_content(spool, "bAForeter");
	assert_true(sbx_layout_extent(&view.layout, 0, 8, &found));
	assert_int_equal(found.len_bytes, 6);
	assert_int_equal(sbx_spool_view_read(&view, buf, 6, found.log_pos), 0);
	assert_string_equal(buf, "before");
	after.base.size_bytes = 6;
	assert_int_equal(sbx_spool_rebase(spool, &view, &after), 0);
	sbx_spool_unpin(spool);
	/* The view outlives the log that it was taken of. */
	assert_int_equal(sbx_spool_view_read(&view, buf, 6, found.log_pos), 0);
	assert_string_equal(buf, "before");
	sbx_spool_view_done(&view);
	assert_content(spool, ".AF...ter");
	assert_int_equal(sbx_spool_layout(spool)->append_start, 6);
	name = only_name(fix);
	sbx_spool_close(spool);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
	assert_content(spool, ".AF...ter");
	assert_int_equal(sbx_spool_meta(spool)->kind, SBX_SPOOL_PATCH);
	sbx_spool_close(spool);
}

static void test_restart_during_view(void **state)
{
	struct fixture *fix = *state;
	struct sbx_spool_meta restarted = { .kind = SBX_SPOOL_WHOLE, .base = patch.base };
	struct sbx_spool_meta after = patch;
	struct sbx_spool_view view;
	struct sbx_spool *spool;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &patch, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "x", 1, 3), 0);
	assert_int_equal(sbx_spool_view(spool, &view), 0);
	assert_int_equal(sbx_spool_restart(spool, &restarted), 0);
	assert_content(spool, "");
	assert_int_equal(sbx_spool_write(spool, "new", 3, 0), 0);
	assert_true(sbx_spool_is_newer(spool, &view));
	after.base.ino = 77;
	assert_int_equal(sbx_spool_rebase(spool, &view, &after), 0);
	sbx_spool_view_done(&view);
	assert_content(spool, "new");
	assert_int_equal(sbx_spool_meta(spool)->kind, SBX_SPOOL_WHOLE);
	assert_int_equal(sbx_spool_meta(spool)->base.ino, 77);
	sbx_spool_remove(spool);
}

/* What is to be set beside the content is as good as bytes. */
static void test_set_during_view(void **state)
{
	struct fixture *fix = *state;
	struct sbx_spool_meta meta = whole;
	struct sbx_spool_view view;
	struct sbx_spool *spool;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "before", 6, 0), 0);
	assert_int_equal(sbx_spool_view(spool, &view), 0);
	meta.flags |= SBX_SPOOL_MODE | SBX_SPOOL_ORPHAN;
	meta.mode = 0600;
	assert_int_equal(sbx_spool_set_meta(spool, &meta), 0);
	assert_true(sbx_spool_is_newer(spool, &view));
	assert_int_equal(sbx_spool_rebase(spool, &view, &patch), 0);
	sbx_spool_view_done(&view);
	meta = *sbx_spool_meta(spool);
	assert_int_equal(meta.kind, SBX_SPOOL_PATCH);
	/* The view had the time. */
	assert_int_equal(meta.flags, SBX_SPOOL_MODE | SBX_SPOOL_ORPHAN);
	assert_int_equal(meta.mode, 0600);
	assert_true(sbx_layout_is_base(sbx_spool_layout(spool)));
	assert_int_equal(sbx_spool_view(spool, &view), 0);
	assert_false(sbx_spool_is_newer(spool, &view));
	/* The same time again, after bytes. */
	meta.flags |= SBX_SPOOL_MTIME;
	meta.mtime_ns = 5;
	assert_int_equal(sbx_spool_set_meta(spool, &meta), 0);
	sbx_spool_view_done(&view);
	assert_int_equal(sbx_spool_view(spool, &view), 0);
	assert_false(sbx_spool_is_newer(spool, &view));
	assert_int_equal(sbx_spool_write(spool, "x", 1, 0), 0);
	assert_int_equal(sbx_spool_rebase(spool, &view, &patch), 0);
	sbx_spool_view_done(&view);
	assert_int_equal(sbx_spool_meta(spool)->flags, SBX_SPOOL_MTIME | SBX_SPOOL_ORPHAN);
	assert_int_equal(sbx_spool_meta(spool)->mtime_ns, 5);
	assert_int_equal(sbx_spool_meta(spool)->mode, patch.mode);
	sbx_spool_remove(spool);
}

/* Rewriting the same megabyte does not let the file grow without bound. */
static void test_compaction(void **state)
{
	struct fixture *fix = *state;
	g_autofree char *block = g_malloc(1 << 20);
	g_autofree char *name = NULL;
	struct sbx_spool *spool;
	struct stat st;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &patch, &spool), 0);
	assert_int_equal(sbx_spool_append(spool, "tail", 4), 0);
	for (int i = 0; i < 100; i++) {
		memset(block, 'a' + i % 26, 1 << 20);
		assert_int_equal(sbx_spool_write(spool, block, 1 << 20, 21), 0);
	}
	name = only_name(fix);
	assert_int_equal(fstatat(fix->dirfd, name, &st, 0), 0);
	assert_true(st.st_size < 40 << 20);
	sbx_spool_close(spool);
	assert_int_equal(sbx_spool_adopt(fix->dirfd, TAG, name, &spool), 0);
	assert_int_equal(sbx_spool_layout(spool)->size_bytes, 21 + (1 << 20));
	assert_int_equal(sbx_spool_layout(spool)->append_start, 20);
	assert_int_equal(sbx_spool_read(spool, block, 1, SBX_SPOOL_SLOT * 2), 0);
	sbx_spool_remove(spool);
}

static void test_limits(void **state)
{
	struct fixture *fix = *state;
	struct sbx_spool *spool;

	assert_int_equal(sbx_spool_create(fix->dirfd, TAG, "f", &whole, &spool), 0);
	assert_int_equal(sbx_spool_write(spool, "xx", 2, INT64_MAX - 1), -EFBIG);
	assert_int_equal(sbx_spool_truncate(spool, UINT64_MAX), -EFBIG);
	assert_int_equal(sbx_spool_truncate(spool, UINT64_C(5) << 30), 0);
	assert_int_equal(sbx_spool_write(spool, "end", 3, UINT64_C(5) << 30), 0);
	assert_int_equal(sbx_spool_layout(spool)->size_bytes, (UINT64_C(5) << 30) + 3);
	sbx_spool_remove(spool);
	assert_false(sbx_spool_is_name(".x.spool"));
	assert_false(sbx_spool_is_name("x.tmp"));
}

int main(void)
{
#define SPOOL_TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		SPOOL_TEST(test_write_and_adopt),
		SPOOL_TEST(test_patch_and_headers),
		SPOOL_TEST(test_torn_log),
		SPOOL_TEST(test_damaged_headers),
		SPOOL_TEST(test_living_owner),
		SPOOL_TEST(test_view_and_rebase),
		SPOOL_TEST(test_restart_during_view),
		SPOOL_TEST(test_set_during_view),
		SPOOL_TEST(test_compaction),
		SPOOL_TEST(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
