/* What is kept on this machine (client/statedir.h). */
#include <errno.h>
#include <fcntl.h>
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

#include "client/statedir.h"

struct fixture {
	char *base;
	char *state;
	char *cache;
	struct sbx_statedir *dir;
};

static int setup(void **state)
{
	struct fixture *f = g_new0(struct fixture, 1);
	char *message = NULL;

	umask(022);
	f->base = g_dir_make_tmp("statedir-XXXXXX", NULL);
	f->state = g_build_filename(f->base, "state", NULL);
	f->cache = g_build_filename(f->base, "cache", NULL);
	*state = f;
	return sbx_statedir_open(f->state, f->cache, "http-host-80", &f->dir, &message);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	const char *argv[] = { "rm", "-rf", "--", f->base, NULL };

	sbx_statedir_close(f->dir);
	g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
		     NULL);
	g_free(f->base);
	g_free(f->state);
	g_free(f->cache);
	g_free(f);
	return 0;
}

static void test_directories_are_private(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	assert_int_equal(stat(sbx_statedir_path(f->dir), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(sbx_statedir_cache_path(f->dir), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_directory_of_others_is_refused(void **state)
{
	struct fixture *f = *state;
	struct sbx_statedir *other = NULL;
	char *message = NULL;

	assert_int_equal(chmod(f->state, 0777), 0);
	assert_int_equal(sbx_statedir_open(f->state, f->cache, "x", &other, &message), -EPERM);
	assert_null(other);
	assert_non_null(strstr(message, f->state));
	g_free(message);
}

static void test_link_in_the_way_is_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(symlinkat("/", sbx_statedir_fd(f->dir), "evil"), 0);
	assert_true(sbx_statedir_opendir(f->dir, "evil/tmp") < 0);
	assert_int_equal(sbx_statedir_opendir(f->dir, "a/../b"), -EINVAL);
}

static void test_replace_and_read(void **state)
{
	struct fixture *f = *state;
	int fd = sbx_statedir_opendir(f->dir, "sessions/dev1");
	char *data = NULL;
	size_t len;
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(sbx_statedir_replace(fd, "f", "one", 3), 0);
	assert_int_equal(sbx_statedir_replace(fd, "f", "two\0x", 5), 0);
	assert_int_equal(sbx_statedir_read(fd, "f", 5, &data, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "two\0x", 6);
	g_free(data);
	assert_int_equal(sbx_statedir_read(fd, "f", 4, &data, &len), -EFBIG);
	assert_int_equal(sbx_statedir_read(fd, "missing", 4, &data, &len), -ENOENT);
	assert_int_equal(fstatat(fd, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(symlinkat("f", fd, "link"), 0);
	assert_true(sbx_statedir_read(fd, "link", 10, &data, &len) < 0);
	close(fd);
}

static void test_lock_has_one_holder(void **state)
{
	struct fixture *f = *state;
	int dirfd = sbx_statedir_opendir(f->dir, "sessions/dev1");
	int first = -1, second = -1;

	assert_int_equal(sbx_statedir_lock(dirfd, &first), 0);
	assert_int_equal(sbx_statedir_lock(dirfd, &second), -EWOULDBLOCK);
	assert_int_equal(second, -1);
	close(first);
	assert_int_equal(sbx_statedir_lock(dirfd, &second), 0);
	close(second);
	close(dirfd);
}

static void test_remove_tree_does_not_follow(void **state)
{
	struct fixture *f = *state;
	g_autofree char *kept = g_build_filename(f->base, "kept", NULL);
	int fd = sbx_statedir_opendir(f->dir, "sessions/dev1/spool");
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(mkdir(kept, 0700), 0);
	assert_int_equal(symlinkat(kept, fd, "link"), 0);
	assert_int_equal(sbx_statedir_replace(fd, "f", "x", 1), 0);
	close(fd);
	assert_int_equal(sbx_statedir_remove_tree(f->dir, "sessions/dev1"), 0);
	assert_int_equal(stat(kept, &st), 0);
	assert_int_equal(fstatat(sbx_statedir_fd(f->dir), "sessions/dev1", &st, 0), -1);
	assert_int_equal(sbx_statedir_remove_tree(f->dir, "sessions/dev1"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_directories_are_private, setup, teardown),
		cmocka_unit_test_setup_teardown(test_directory_of_others_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_link_in_the_way_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replace_and_read, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_has_one_holder, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove_tree_does_not_follow, setup, teardown),
	};

	return cmocka_run_group_tests_name("statedir", tests, NULL, NULL);
}
