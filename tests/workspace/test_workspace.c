/* The operations of a workspace against sbxd: what they do, refuse, and cost. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>

#include "client/errlog.h"
#include "client/workspace/files.h"
#include "client/workspace/links.h"
#include "client/workspace/workspace.h"
#include "tests/workspace/files_rig.h"

static const struct sbx_link_view view = {
	.depth = 2,
	.subtree = "",
	.sandbox_root = "../.sbxfs-root",
};

static int stat_path(struct fixture *f, const char *path, struct sbx_attr *ret_attr)
{
	struct sbx_attr attr;

	return sbx_ws_stat(f->ws, &f->rig.call, path, SBX_STAT_TTL, ret_attr ? ret_attr : &attr,
			   NULL);
}

static void test_names(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig, "echo 1 > f && mkdir full && echo 1 > full/f");
	assert_int_equal(stat_path(&f, "f", &attr), 0);
	before = rig_requests(&f.rig, NULL);
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "d", 0750, &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0750);
	assert_int_equal(sbx_ws_link(f.ws, &f.rig.call, "f", "d/hard", &attr), 0);
	assert_int_equal(attr.nlink, 2);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "f", "d/g", 0), 0);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "d/hard"), 0);
	assert_int_equal(stat_path(&f, "d/g", &attr), 0);
	assert_int_equal(attr.nlink, 1);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 4);
	/* Only a tool with renameat2 can keep a directory from replacing another. */
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "d", "e", RENAME_NOREPLACE),
			 strcmp(*state, "gnu") == 0 ? 0 : -EINVAL);
	if (strcmp(*state, "gnu") != 0)
		assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "d", "e", 0), 0);
	assert_int_equal(stat_path(&f, "e/g", &attr), 0);
	assert_int_equal(attr.nlink, 1);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "e/g", "full/f", RENAME_NOREPLACE),
			 -EEXIST);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "e", "full", 0), -ENOTEMPTY);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "e", "e/sub", 0), -EINVAL);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "e", "x", RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "e/g", "e/g", 0), 0);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "no", "no", 0), -ENOENT);
	assert_int_equal(sbx_ws_rmdir(f.ws, &f.rig.call, "full"), -ENOTEMPTY);
	assert_int_equal(sbx_ws_rmdir(f.ws, &f.rig.call, "full/f"), -ENOTDIR);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "full"), -EISDIR);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "full/f"), 0);
	assert_int_equal(sbx_ws_rmdir(f.ws, &f.rig.call, "full"), 0);
	assert_int_equal(sbx_ws_rmdir(f.ws, &f.rig.call, ""), -EBUSY);
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "no/such", 0755, &attr), -ENOENT);
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "e/g/x", 0755, &attr), -ENOTDIR);
	rig_sh(&f.rig, "[ \"$(ls)\" = e ] && [ \"$(ls e)\" = g ]");
	close_all(&f);
}

static void test_refused(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_setattr change = { .set = SBX_SET_MODE, .mode = 04755 };

	(void)state;
	open_with(&f, NULL, 60000);
	rig_sh(&f.rig, "echo 1 > f");
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "/etc/x", 0755, &attr), -EROFS);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "f", "/tmp/f", 0), -EROFS);
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, ".sbxfs", 0755, &attr), -EPERM);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "f", ".sbxfs/ops/f", 0), -EPERM);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "a/../f"), -EINVAL);
	assert_int_equal(stat_path(&f, "./f", NULL), -EINVAL);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "f", NULL, &change, &attr), -EPERM);
	/* Nothing of this was worth a request. */
	assert_int_equal(rig_requests(&f.rig, "exec"), 0);
	close_all(&f);
}

static void test_read_only(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_file *file = NULL;
	struct sbx_setattr change = { .set = SBX_SET_MODE, .mode = 0600 };
	char byte;

	(void)state;
	open_with(&f, NULL, 60000);
	sbx_workspace_free(f.ws);
	f.options.read_only = true;
	assert_int_equal(sbx_workspace_new(f.rig.session, &f.options, &f.ws), 0);
	rig_sh(&f.rig, "echo 1 > f");
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "d", 0755, &attr), -EROFS);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "f", NULL, &change, &attr), -EROFS);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "f", O_RDWR, 0, getpid(), &file, &attr),
			 -EROFS);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "g", O_RDONLY | O_CREAT, 0644, getpid(),
				     &file, &attr),
			 -EROFS);
	assert_int_equal(sbx_ws_open(f.ws, &f.rig.call, "f", O_RDONLY | O_CREAT, 0644, getpid(),
				     &file, &attr),
			 0);
	assert_int_equal(sbx_file_read(file, &f.rig.call, &byte, 1, 0), 1);
	assert_int_equal(byte, '1');
	assert_int_equal(sbx_file_release(file, &f.rig.call), 0);
	rig_sh(&f.rig, "[ \"$(ls -A)\" = f ]");
	close_all(&f);
}

static void test_setattr(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_setattr change = {
		.set = SBX_SET_MODE | SBX_SET_SIZE | SBX_SET_MTIME | SBX_SET_ATIME_NOW,
		.mode = 0640,
		.size_bytes = 3,
		.mtime_ns = INT64_C(981173106789000000),
	};
	size_t before;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig, "echo 12345 > f && mkdir d && ln -s f l");
	assert_int_equal(stat_path(&f, "f", &attr), 0);
	before = rig_requests(&f.rig, NULL);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "f", NULL, &change, &attr), 0);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 1);
	assert_int_equal(attr.mode, S_IFREG | 0640);
	assert_int_equal(attr.size, 3);
	assert_int_equal(attr.mtime_ns / 1000000000, 981173106);
	rig_sh(&f.rig, "[ \"$(cat f)\" = 123 ] && [ \"$(stat -c '%a %Y' f)\" = '640 981173106' ]");
	change.set = SBX_SET_SIZE;
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "d", NULL, &change, &attr), -EISDIR);
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "no", NULL, &change, &attr), -ENOENT);
	change.set = SBX_SET_MTIME;
	assert_int_equal(sbx_ws_setattr(f.ws, &f.rig.call, "l", NULL, &change, &attr), 0);
	assert_true(S_ISLNK(attr.mode));
	assert_int_equal(attr.mtime_ns / 1000000000, 981173106);
	rig_sh(&f.rig, "[ \"$(stat -c %Y l)\" = 981173106 ]");
	close_all(&f);
}

static char *readlink_path(struct fixture *f, const char *path, int expected)
{
	char *text = NULL;

	assert_int_equal(sbx_ws_readlink(f->ws, &f->rig.call, path, &view, &text), expected);
	return text;
}

#define assert_shown(f, path, expected)                              \
	do {                                                         \
		g_autofree char *shown_ = readlink_path(f, path, 0); \
		assert_string_equal(shown_, expected);               \
	} while (0)

static void test_links(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	g_autofree char *root = NULL;
	g_autofree char *inside = NULL;
	g_autofree char *errors = NULL;

	open_with(&f, tools_args(state), 60000);
	root = realpath(f.rig.files, NULL);
	inside = g_strdup_printf("ln -s '%s/d/f' abs && ln -s '%s' self", root, root);
	rig_sh(&f.rig,
	       "mkdir -p d/e && echo 1 > d/f && ln -s d/f plain && ln -s ../d/f d/up && "
	       "ln -s d/../d/f tangled && ln -s d/e/../../../../../../../../etc/passwd out && "
	       "ln -s /etc/passwd etc && ln -s plain/../x odd && ln -s no/../x lost");
	rig_sh(&f.rig, inside);
	assert_shown(&f, "plain", "d/f");
	assert_shown(&f, "d/up", "../d/f");
	assert_shown(&f, "abs", "d/f");
	assert_shown(&f, "self", ".");
	assert_shown(&f, "etc", "../.sbxfs-root/etc/passwd");
	assert_shown(&f, "out", "../.sbxfs-root/etc/passwd");
	assert_shown(&f, "tangled", "d/f");
	assert_null(readlink_path(&f, "odd", -EPERM));
	assert_null(readlink_path(&f, "lost", -EPERM));
	assert_null(readlink_path(&f, "d/f", -EINVAL));
	assert_null(readlink_path(&f, "no", -ENOENT));
	errors = sbx_errlog_render(sbx_session_errors(f.rig.session), NULL);
	assert_non_null(strstr(errors, "readlink"));

	assert_int_equal(sbx_ws_symlink(f.ws, &f.rig.call, "../../.sbxfs-root/etc/passwd", "d/made",
					&view, &attr),
			 0);
	assert_true(S_ISLNK(attr.mode));
	assert_int_equal(attr.size, strlen("/etc/passwd"));
	assert_shown(&f, "d/made", "../../.sbxfs-root/etc/passwd");
	assert_int_equal(sbx_ws_symlink(f.ws, &f.rig.call, "x", "d/made", &view, &attr), -EEXIST);
	assert_int_equal(sbx_ws_symlink(f.ws, &f.rig.call, "", "empty", &view, &attr), -ENOENT);
	rig_sh(&f.rig, "[ \"$(readlink d/made)\" = /etc/passwd ]");
	close_all(&f);
}

/* Files that are not sent yet are there for every operation. */
static void test_unsent(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_file *file;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	assert_int_equal(stat_path(&f, "", &attr), 0);
	assert_int_equal(sbx_ws_mkdir(f.ws, &f.rig.call, "d", 0755, &attr), 0);
	before = rig_requests(&f.rig, NULL);
	file = open_file(&f, "d/new", O_WRONLY | O_CREAT);
	assert_int_equal(sbx_file_write(file, &f.rig.call, "hello", 5, 0), 5);
	assert_int_equal(stat_path(&f, "d/new", &attr), 0);
	assert_int_equal(attr.size, 5);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 0);
	assert_int_equal(sbx_ws_rmdir(f.ws, &f.rig.call, "d"), -ENOTEMPTY);
	assert_int_equal(sbx_file_write(file, &f.rig.call, " world", 6, 5), 6);
	assert_int_equal(sbx_ws_rename(f.ws, &f.rig.call, "d/new", "moved", 0), 0);
	assert_int_equal(sbx_file_write(file, &f.rig.call, "!", 1, 11), 1);
	assert_int_equal(sbx_file_release(file, &f.rig.call), 0);
	rig_sh(&f.rig, "[ \"$(cat moved)\" = 'hello world!' ] && [ -z \"$(ls d)\" ]");

	/* Made, never sent, removed: as if it had not been. */
	file = open_file(&f, "gone", O_WRONLY | O_CREAT);
	assert_int_equal(sbx_file_write(file, &f.rig.call, "x", 1, 0), 1);
	assert_int_equal(sbx_ws_unlink(f.ws, &f.rig.call, "gone"), 0);
	assert_int_equal(stat_path(&f, "gone", &attr), -ENOENT);
	(void)sbx_file_release(file, &f.rig.call);
	assert_int_equal(stat_path(&f, "gone", &attr), -ENOENT);
	rig_sh(&f.rig, "[ \"$(ls | tr '\\n' ' ')\" = 'd moved ' ]");
	close_all(&f);
}

static void test_capabilities(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	g_autofree char *have = NULL;
	g_autofree char *missing = NULL;

	open_with(&f, tools_args(state), 60000);
	sbx_ws_capabilities(f.ws, &have, &missing);
	assert_string_equal(have, "unknown");
	g_clear_pointer(&have, g_free);
	g_clear_pointer(&missing, g_free);
	assert_int_equal(stat_path(&f, "", &attr), 0);
	sbx_ws_capabilities(f.ws, &have, &missing);
	assert_non_null(strstr(have, strcmp(*state, "gnu") == 0 ? "GNU tools" : "BusyBox tools"));
	assert_non_null(strstr(have, "gzip"));
	if (strcmp(*state, "gnu") == 0)
		assert_non_null(strstr(have, "find -printf"));
	close_all(&f);
}

#define BOTH_TOOLS(test)                                                \
	{ #test " (gnu)", test, NULL, NULL, (void *)"gnu" },            \
	{                                                               \
#test " (busybox)", test, NULL, NULL, (void *)"busybox" \
	}

/* An argument is a pattern of the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH_TOOLS(test_names),		  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_read_only), BOTH_TOOLS(test_setattr),
		BOTH_TOOLS(test_links),		  BOTH_TOOLS(test_unsent),
		BOTH_TOOLS(test_capabilities),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
