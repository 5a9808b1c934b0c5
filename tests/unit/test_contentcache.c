/* contentcache: what was put in is found again, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/statedir.h"
#include "client/task.h"
#include "client/workspace/blob.h"
#include "client/workspace/contentcache.h"

struct fixture {
	char *dir;
	char *content; /* the directory of the cache's files */
	struct sbx_statedir *statedir;
	struct sbx_task_pool *pool;
};

static int fixture_setup(void **state)
{
	struct fixture *fix = g_new0(struct fixture, 1);
	g_autofree char *message = NULL;
	g_autofree char *a = NULL;
	g_autofree char *b = NULL;

	fix->dir = g_dir_make_tmp("sbxfs-cache-XXXXXX", NULL);
	a = g_build_filename(fix->dir, "state", NULL);
	b = g_build_filename(fix->dir, "cache", NULL);
	fix->content = g_build_filename(b, "endpoint", "content", NULL);
	fix->pool = sbx_task_pool_new(2);
	*state = fix;
	return sbx_statedir_open(a, b, "endpoint", &fix->statedir, &message);
}

static int fixture_teardown(void **state)
{
	struct fixture *fix = *state;
	const char *argv[] = { "rm", "-rf", "--", fix->dir, NULL };
	int r = g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL,
			     NULL, NULL)
			? 0
			: -1;

	sbx_task_pool_free(fix->pool);
	sbx_statedir_close(fix->statedir);
	g_free(fix->dir);
	g_free(fix->content);
	g_free(fix);
	return r;
}

static struct sbx_cache *cache_new(struct fixture *fix, bool on_disk, uint64_t limit)
{
	struct sbx_cache *cache = NULL;

	assert_int_equal(sbx_cache_new(fix->statedir, fix->pool, "tag", on_disk, limit, &cache), 0);
	return cache;
}

static struct sbx_version version_of(uint64_t ino, uint64_t size)
{
	return (struct sbx_version){
		.dev = 1, .ino = ino, .size_bytes = size, .mtime_ns = 5, .ctime_ns = 6
	};
}

static void put(struct sbx_cache *cache, uint64_t ino, const char *text)
{
	struct sbx_version version = version_of(ino, strlen(text));
	struct sbx_blob *blob = sbx_blob_copy(text, strlen(text));

	sbx_cache_put(cache, &version, blob);
	sbx_blob_unref(blob);
}

static bool holds(struct sbx_cache *cache, uint64_t ino, const char *text)
{
	struct sbx_version version = version_of(ino, strlen(text));
	struct sbx_blob *blob = sbx_cache_get(cache, &version);
	bool same = blob && blob->len_bytes == strlen(text) &&
		    memcmp(blob->data, text, blob->len_bytes) == 0;

	assert_true(!blob || same);
	sbx_blob_unref(blob);
	return same;
}

static size_t count_files(struct fixture *fix, const char **ret_last)
{
	static char last[64];
	GDir *dir = g_dir_open(fix->content, 0, NULL);
	const char *name;
	size_t n = 0;

	while ((name = g_dir_read_name(dir))) {
		g_strlcpy(last, name, sizeof(last));
		n++;
	}
	g_dir_close(dir);
	if (ret_last)
		*ret_last = last;
	return n;
}

static void test_small(void **state)
{
	struct fixture *fix = *state;
	struct sbx_cache *cache = cache_new(fix, true, 1 << 30);
	struct sbx_version other = version_of(1, 5);
	struct stat st;
	g_autofree char *path = NULL;
	const char *name;

	put(cache, 1, "hello");
	assert_true(holds(cache, 1, "hello"));
	other.ctime_ns++;
	assert_null(sbx_cache_get(cache, &other));
	assert_false(sbx_cache_has(cache, &other));
	sbx_cache_free(cache);
	/* After a remount, from the disk. */
	cache = cache_new(fix, true, 1 << 30);
	assert_true(holds(cache, 1, "hello"));
	sbx_cache_free(cache);
	assert_int_equal(count_files(fix, &name), 1);
	path = g_build_filename(fix->content, name, NULL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
}

static void test_damage(void **state)
{
	struct fixture *fix = *state;
	struct sbx_cache *cache = cache_new(fix, true, 1 << 30);
	g_autofree char *path = NULL;
	g_autofree char *bytes = NULL;
	const char *name;
	gsize len;

	put(cache, 1, "hello");
	sbx_cache_free(cache);
	assert_int_equal(count_files(fix, &name), 1);
	path = g_build_filename(fix->content, name, NULL);
	assert_true(g_file_get_contents(path, &bytes, &len, NULL));
	for (gsize i = 0; i < len; i += i < 600 ? 7 : 1) {
		if (i > 600 && i < SBX_CACHE_DATA)
			i = SBX_CACHE_DATA;
		bytes[i] ^= 1;
		assert_true(g_file_set_contents(path, bytes, (gssize)len, NULL));
		bytes[i] ^= 1;
		cache = cache_new(fix, true, 1 << 30);
		/* Either it is not believed, or the damaged byte says nothing. */
		(void)holds(cache, 1, "hello");
		if (i >= SBX_CACHE_DATA)
			assert_false(holds(cache, 1, "hello"));
		sbx_cache_free(cache);
	}
	/* Cut, and longer than it was. */
	for (int longer = 0; longer < 2; longer++) {
		assert_true(g_file_set_contents(path, bytes, (gssize)(len - 1), NULL));
		if (longer)
			assert_int_equal(truncate(path, (off_t)len + 1), 0);
		cache = cache_new(fix, true, 1 << 30);
		assert_false(holds(cache, 1, "hello"));
		sbx_cache_free(cache);
	}
}

static void test_part(void **state)
{
	struct fixture *fix = *state;
	struct sbx_cache *cache = cache_new(fix, true, 1 << 30);
	struct sbx_version version = version_of(9, 300000);
	struct sbx_cache_part part;
	char byte = 'x';
	int fd;

	assert_int_equal(sbx_cache_part_new(cache, &part), 0);
	assert_int_equal(pwrite(part.fd, &byte, 1, SBX_CACHE_DATA + 7), 1);
	assert_int_equal(sbx_cache_open(cache, &version, &fd), -ENOENT);
	sbx_cache_part_commit(cache, &part, &version);
	assert_int_equal(sbx_cache_open(cache, &version, &fd), 0);
	assert_int_equal(pread(fd, &byte, 1, SBX_CACHE_DATA + 7), 1);
	assert_int_equal(byte, 'x');
	close(fd);
	sbx_cache_part_done(cache, &part);
	assert_int_equal(count_files(fix, NULL), 1);
	/* One that is given up leaves nothing. */
	assert_int_equal(sbx_cache_part_new(cache, &part), 0);
	assert_int_equal(count_files(fix, NULL), 2);
	sbx_cache_part_done(cache, &part);
	assert_int_equal(count_files(fix, NULL), 1);
	sbx_cache_free(cache);
	/* Without a cache on disk nothing has a name. */
	cache = cache_new(fix, false, 1 << 30);
	assert_int_equal(sbx_cache_open(cache, &version, &fd), -ENOENT);
	assert_int_equal(sbx_cache_part_new(cache, &part), 0);
	assert_int_equal(count_files(fix, NULL), 1);
	sbx_cache_part_done(cache, &part);
	sbx_cache_free(cache);
}

static void test_bound(void **state)
{
	struct fixture *fix = *state;
	struct sbx_cache *cache = cache_new(fix, true, 1 << 20);
	g_autofree char *text = g_strnfill(60000, 'a');
	g_autofree char *left = g_build_filename(fix->content, "part-left", NULL);

	assert_true(g_file_set_contents(left, text, -1, NULL));
	for (uint64_t i = 0; i < 60; i++) {
		put(cache, i, text);
		g_usleep(2000);
	}
	/* 60 of 64 KiB in a mebibyte: some, the newest among them, and no left-over part. */
	assert_true(count_files(fix, NULL) >= 8);
	assert_true(count_files(fix, NULL) <= 18);
	assert_false(g_file_test(left, G_FILE_TEST_EXISTS));
	sbx_cache_free(cache);
	cache = cache_new(fix, true, 1 << 20);
	assert_true(holds(cache, 59, text));
	assert_false(holds(cache, 0, text));
	sbx_cache_free(cache);
}

/* Parts that are in use can't go: when they are whole, and nothing grows any more, they do. */
static void test_bound_of_parts(void **state)
{
	struct fixture *fix = *state;
	struct sbx_cache *cache = cache_new(fix, true, 1 << 20);
	g_autofree char *text = g_strnfill(256 << 10, 'x');
	struct sbx_cache_part parts[8];

	for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
		assert_int_equal(sbx_cache_part_new(cache, &parts[i]), 0);
		assert_int_equal(pwrite(parts[i].fd, text, 256 << 10, SBX_CACHE_DATA), 256 << 10);
		sbx_cache_grew(cache, 256 << 10);
	}
	assert_int_equal(count_files(fix, NULL), 8);
	for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
		const struct sbx_version version = version_of(i, 256 << 10);

		sbx_cache_part_commit(cache, &parts[i], &version);
		sbx_cache_part_done(cache, &parts[i]);
	}
	assert_true(count_files(fix, NULL) >= 2);
	assert_true(count_files(fix, NULL) <= 3);
	sbx_cache_free(cache);
}

int main(void)
{
#define CACHE_TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		CACHE_TEST(test_small), CACHE_TEST(test_damage),	 CACHE_TEST(test_part),
		CACHE_TEST(test_bound), CACHE_TEST(test_bound_of_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
