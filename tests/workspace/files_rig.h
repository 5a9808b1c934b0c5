/*
 * files_rig - what the tests of open files share: a workspace over a running sbxd, and short ways
 * to write, save and read a file of it, here and in the server's directory.
 */
#ifndef SBX_TESTS_FILES_RIG_H
#define SBX_TESTS_FILES_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <glib.h>

#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
#include "tests/workspace/rig.h"

struct fixture {
	struct rig rig;
	struct sbx_workspace *ws;
	struct sbx_workspace_options options;
};

const char *const *tools_args(void **state);
void mount_ws(struct fixture *f);
void open_with(struct fixture *f, const char *const *args, int64_t ttl_ms);
void close_all(struct fixture *f);
void warm(struct fixture *f);
size_t requests(struct fixture *f);
struct sbx_file *open_file(struct fixture *f, const char *path, int flags);
void write_at(struct fixture *f, struct sbx_file *file, const char *text, uint64_t offset);
void close_file(struct fixture *f, struct sbx_file *file);
void save(struct fixture *f, const char *path, const char *text);
char *read_all(struct fixture *f, const char *path, gsize *ret_len);
char *remote(struct fixture *f, const char *path, gsize *ret_len);
struct stat remote_stat(struct fixture *f, const char *path);
size_t pending(struct fixture *f);
char *pattern(size_t len, unsigned int seed);

#define assert_reads(f, path, expected)                           \
	do {                                                      \
		g_autofree char *read_ = read_all(f, path, NULL); \
		assert_string_equal(read_, expected);             \
	} while (0)

#define assert_remote(f, path, expected)                          \
	do {                                                      \
		g_autofree char *remote_ = remote(f, path, NULL); \
		assert_string_equal(remote_, expected);           \
	} while (0)

/* Each test runs with GNU or with BusyBox tools in the sandbox. */
#define GNU(test)                                         \
	{                                                 \
		.name = #test " gnu", .test_func = (test) \
	}
#define BUSYBOX(test)                                                                             \
	{                                                                                         \
		.name = #test " busybox", .test_func = (test), .initial_state = (void *)"busybox" \
	}

#endif
