/* Names, freshness and mutations against sbxd, with its requests counted. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <glib.h>

#include "client/call.h"
#include "client/errlog.h"
#include "client/provider.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "tests/workspace/rig.h"

struct fixture {
	struct rig rig;
	struct sbx_names *names;
};

static void open_with(struct fixture *f, const char *const *args, int64_t ttl_ms)
{
	struct sbx_workspace_options options = rig_options(ttl_ms);

	rig_open(&f->rig, args);
	assert_int_equal(sbx_names_new(f->rig.session, &options, &f->names), 0);
}

static void close_all(struct fixture *f)
{
	sbx_names_free(f->names);
	rig_close(&f->rig);
}

static const char *const *tools_args(void **state)
{
	static const char *const busybox[] = { "--tools", "busybox", NULL };

	return *state && strcmp(*state, "busybox") == 0 ? busybox : NULL;
}

static int stat_path(struct fixture *f, const char *path, struct sbx_attr *ret_attr)
{
	struct sbx_attr attr;

	return sbx_names_stat(f->names, &f->rig.call, path, SBX_STAT_TTL,
			      ret_attr ? ret_attr : &attr, NULL, NULL);
}

static char *list_path(struct fixture *f, const char *path)
{
	struct sbx_listing *listing = NULL;
	GString *text = g_string_new(NULL);

	assert_int_equal(sbx_names_list(f->names, &f->rig.call, path, &listing), 0);
	for (size_t i = 0; i < listing->n_entries; i++)
		g_string_append_printf(text, "%s%s", i > 0 ? " " : "", listing->entries[i].name);
	sbx_listing_unref(listing);
	return g_string_free(text, FALSE);
}

#define assert_lists(f, path, expected)                        \
	do {                                                   \
		g_autofree char *listed_ = list_path(f, path); \
		assert_string_equal(listed_, expected);        \
	} while (0)

static int apply(struct fixture *f, struct sbx_op op)
{
	struct sbx_op_result result = { 0 };
	int r = sbx_names_apply(f->names, &f->rig.call, 10000, &op, 1, &result);

	if (r == 0)
		r = result.error;
	sbx_op_results_clear(&result, 1);
	return r;
}

#define APPLY(f, ...) apply(f, (struct sbx_op){ __VA_ARGS__ })

static void test_tree(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct stat st;
	g_autofree char *path = NULL;
	g_autofree char *link = NULL;
	int64_t valid_ms = -1;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig,
	       "mkdir -p d/e && echo hello > d/e/f && chmod 751 d && ln -s d/e/f l && "
	       "touch -d '2001-02-03 04:05:06.789' d/e/f && printf x > \"$(printf 'n\\nl\\377')\"");
	before = rig_requests(&f.rig, NULL);
	assert_lists(&f, "", "d l n\nl\xff");
	assert_lists(&f, "d/e", "f");
	assert_int_equal(stat_path(&f, "d/e/f", &attr), 0);
	path = g_strconcat(f.rig.files, "/d/e/f", NULL);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(attr.ino, st.st_ino);
	assert_int_equal(attr.size, 6);
	assert_int_equal(attr.mode, st.st_mode);
	assert_int_equal(attr.mtime_ns / 1000000000, st.st_mtim.tv_sec);
	if (attr.has_ns)
		assert_int_equal(attr.mtime_ns % 1000000000, 789000000);
	assert_int_equal(
		sbx_names_stat(f.names, &f.rig.call, "l", SBX_STAT_TTL, &attr, &link, &valid_ms),
		0);
	assert_true(S_ISLNK(attr.mode));
	assert_string_equal(link, "d/e/f");
	assert_true(valid_ms > 50000 && valid_ms <= 60000);
	assert_int_equal(stat_path(&f, "", &attr), 0);
	assert_true(S_ISDIR(attr.mode));
	assert_int_equal(stat_path(&f, "d", &attr), 0);
	assert_int_equal(attr.mode, S_IFDIR | 0751);
	assert_int_equal(stat_path(&f, "nothing", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "d/nothing/more", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "d/e/f/more", NULL), -ENOTDIR);
	assert_int_equal(stat_path(&f, ".sbxfs", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, ".sbxfs/ops", NULL), -ENOENT);
	/* The probe has brought the first scan. */
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 1);
	close_all(&f);
}

/* Changes made in the sandbox show when ttl has passed, by one request for all that is used. */
static void test_revalidation(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 300);
	rig_sh(&f.rig, "mkdir -p a b c/d && echo 1 > a/f && echo 1 > b/g && echo 1 > c/d/h");
	assert_lists(&f, "a", "f");
	assert_lists(&f, "b", "g");
	assert_lists(&f, "c/d", "h");
	/* Older than the overlap with which it is asked for what changed. */
	g_usleep(2200000);
	assert_lists(&f, "c/d", "h");
	rig_sh(&f.rig, "rm a/f && echo 12345 > b/g && mkdir c/d/new && echo 1 > c/d/new/i && "
		       "rm -r c/d/h && mkdir c/d/h");
	g_usleep(350000);
	before = rig_requests(&f.rig, NULL);
	assert_int_equal(stat_path(&f, "a/f", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "b/g", &attr), 0);
	assert_int_equal(attr.size, 6);
	assert_lists(&f, "c/d", "h new");
	assert_int_equal(stat_path(&f, "c/d/h", &attr), 0);
	assert_true(S_ISDIR(attr.mode));
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 1);
	assert_lists(&f, "c/d/new", "i");
	rig_sh(&f.rig, "rm -r c && ln -s a c");
	g_usleep(350000);
	assert_int_equal(stat_path(&f, "c/d/new/i", NULL), -ENOTDIR);
	assert_int_equal(stat_path(&f, "c", &attr), 0);
	assert_true(S_ISLNK(attr.mode));
	assert_int_equal(stat_path(&f, "c/f", NULL), -ENOTDIR);
	close_all(&f);
}

static void test_ttl_zero_asks(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	size_t before;

	open_with(&f, tools_args(state), 0);
	rig_sh(&f.rig, "echo 1 > f");
	assert_int_equal(stat_path(&f, "f", &attr), 0);
	before = rig_requests(&f.rig, NULL);
	for (int i = 0; i < 5; i++) {
		g_autofree char *text = g_strdup_printf("printf %%%ds x > f", i + 3);

		rig_sh(&f.rig, text);
		assert_int_equal(stat_path(&f, "f", &attr), 0);
		assert_int_equal(attr.size, i + 3);
	}
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 5);
	assert_int_equal(
		sbx_names_stat(f.names, &f.rig.call, "f", SBX_STAT_CACHED, &attr, NULL, NULL), 0);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 5);
	close_all(&f);
}

/* What other requests have shown on their way counts, but for what has no name here. */
static void test_seen(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_attr seen;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig, "mkdir d; echo 1 > d/f");
	assert_int_equal(stat_path(&f, "d/f", &seen), 0);
	before = rig_requests(&f.rig, NULL);
	seen.size = 77;
	sbx_names_saw(f.names, "d/f", &seen, sbx_clock_ms());
	assert_int_equal(stat_path(&f, "d/f", &attr), 0);
	assert_int_equal(attr.size, 77);
	/* Held open by who looked, while the name was given to another. */
	seen.size = 99;
	seen.nlink = 0;
	sbx_names_saw(f.names, "d/f", &seen, sbx_clock_ms());
	assert_int_equal(stat_path(&f, "d/f", &attr), 0);
	assert_int_equal(attr.size, 77);
	seen.nlink = 1;
	sbx_names_saw(f.names, ".sbxfs/held/x", &seen, sbx_clock_ms());
	assert_lists(&f, "", "d");
	assert_lists(&f, "d", "f");
	sbx_names_saw(f.names, "d/f", NULL, sbx_clock_ms());
	assert_int_equal(stat_path(&f, "d/f", NULL), -ENOENT);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 0);
	close_all(&f);
}

static void test_mutations(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	g_autofree char *link = NULL;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig, "mkdir old && echo 1 > old/f");
	assert_lists(&f, "", "old");
	before = rig_requests(&f.rig, NULL);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_MKDIR, .path = "new", .mode = 0750), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_MKDIR, .path = "new", .mode = 0750), -EEXIST);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_CREATE, .path = "new/file", .mode = 0640), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_SYMLINK, .from = "file", .path = "new/link"), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_TRUNCATE, .path = "new/file", .size = 4711), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_CHMOD, .path = "new/file", .mode = 0444), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UTIMENS, .path = "new/file",
			       .atime_ns = SBX_TIME_OMIT, .mtime_ns = 1000000000000000000),
			 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_LINK, .from = "new/file", .path = "old/hard"), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UNLINK, .path = "new"), -EISDIR);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_RMDIR, .path = "new"), -ENOTEMPTY);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_RENAME, .from = "new", .path = "old/moved"), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UNLINK, .path = "old/f"), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UNLINK, .path = "old/f"), -ENOENT);
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 13);

	/* All that is known without asking again. */
	before = rig_requests(&f.rig, NULL);
	assert_lists(&f, "", "old");
	assert_lists(&f, "old", "hard moved");
	assert_lists(&f, "old/moved", "file link");
	assert_int_equal(stat_path(&f, "old/f", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "new/file", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "old/moved/file", &attr), 0);
	assert_int_equal(attr.size, 4711);
	assert_int_equal(attr.mode, S_IFREG | 0444);
	assert_int_equal(attr.mtime_ns, 1000000000000000000);
	assert_int_equal(stat_path(&f, "old/hard", &attr), 0);
	assert_int_equal(attr.nlink, 2);
	assert_int_equal(sbx_names_stat(f.names, &f.rig.call, "old/moved/link", SBX_STAT_TTL, &attr,
					&link, NULL),
			 0);
	assert_string_equal(link, "file");
	assert_int_equal(rig_requests(&f.rig, NULL) - before, 0);

	/* … and it is so. */
	rig_sh(&f.rig, "[ \"$(ls -A old/moved | tr '\\n' ' ')\" = 'file link ' ] && "
		       "[ \"$(stat -c '%a %s %h' old/hard)\" = '444 4711 2' ] && ! [ -e new ]");
	close_all(&f);
}

struct worker {
	struct fixture *f;
	unsigned int number;
	int result;
};

static void *make_dirs(void *arg)
{
	struct worker *worker = arg;

	for (int i = 0; i < 10 && worker->result == 0; i++) {
		g_autofree char *path = g_strdup_printf("w%u-%d", worker->number, i);

		worker->result = APPLY(worker->f, .kind = SBX_DO_MKDIR, .path = path, .mode = 0755);
	}
	return NULL;
}

/* Those who wait while a request is under way go together in the next. */
static void test_callers_share_requests(void **state)
{
	static const char *const slow[] = { "--latency-ms", "30", NULL };
	struct worker workers[8];
	pthread_t threads[8];
	struct fixture f;
	size_t before;

	(void)state;
	open_with(&f, slow, 60000);
	assert_lists(&f, "", "");
	before = rig_requests(&f.rig, "exec");
	for (unsigned int i = 0; i < 8; i++) {
		workers[i] = (struct worker){ .f = &f, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, make_dirs, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].result, 0);
	}
	/* 80 operations; ten rounds, and four requests under way at most. */
	assert_in_range(rig_requests(&f.rig, "exec") - before, 10, 42);
	rig_sh(&f.rig, "[ \"$(ls -d w* | wc -l)\" -eq 80 ]");
	close_all(&f);
}

struct asker {
	struct fixture *f;
	struct sbx_op op;
	GString *order; /* the paths of operations that are done */
	pthread_mutex_t *lock;
	int result;
};

static void *ask(void *arg)
{
	struct asker *asker = arg;

	asker->result = apply(asker->f, asker->op);
	pthread_mutex_lock(asker->lock);
	g_string_append_printf(asker->order, "%s ", asker->op.path);
	pthread_mutex_unlock(asker->lock);
	return NULL;
}

/* A request that takes long holds up nothing but what is about the same names. */
static void test_beside_a_slow_request(void **state)
{
	const struct sbx_op ops[] = {
		{ .kind = SBX_DO_MKDIR, .path = "slow", .mode = 0755 },
		{ .kind = SBX_DO_MKDIR, .path = "slow/inner", .mode = 0755 },
		{ .kind = SBX_DO_RENAME, .from = "slow/inner", .path = "moved" },
		{ .kind = SBX_DO_MKDIR, .path = "moved/deep", .mode = 0755 },
		{ .kind = SBX_DO_MKDIR, .path = "other", .mode = 0755 },
		{ .kind = SBX_DO_MKDIR, .path = "other/inner", .mode = 0755 },
	};
	struct asker askers[G_N_ELEMENTS(ops)];
	pthread_t threads[G_N_ELEMENTS(ops)];
	g_autoptr(GString) order = g_string_new(NULL);
	struct fixture f;
	pthread_mutex_t lock;

	(void)state;
	pthread_mutex_init(&lock, NULL);
	open_with(&f, NULL, 60000);
	assert_lists(&f, "", "");
	rig_fault(&f.rig, "exec:1:delay=3000\n");
	for (unsigned int i = 0; i < G_N_ELEMENTS(ops); i++) {
		askers[i] = (struct asker){ .f = &f, .op = ops[i], .order = order, .lock = &lock };
		assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
		g_usleep(100000); /* so that they are asked in this order */
	}
	for (unsigned int i = 0; i < G_N_ELEMENTS(ops); i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(askers[i].result, 0);
	}
	assert_true(g_str_has_prefix(order->str, "other other/inner "));
	rig_fault(&f.rig, "");
	rig_sh(&f.rig, "[ -d moved/deep ] && [ -d other/inner ] && ! [ -e slow/inner ]");
	assert_lists(&f, "", "moved other slow");
	assert_lists(&f, "moved", "deep");
	pthread_mutex_destroy(&lock);
	close_all(&f);
}

static void *stat_loop(void *arg)
{
	struct worker *worker = arg;

	for (int i = 0; i < 40 && worker->result == 0; i++) {
		g_autofree char *path = g_strdup_printf("d%u/f", worker->number);

		worker->result = stat_path(worker->f, path, NULL);
		g_usleep(25000);
	}
	return NULL;
}

static void test_waiters_share_scans(void **state)
{
	static const char *const slow[] = { "--latency-ms", "20", NULL };
	struct worker workers[8];
	pthread_t threads[8];
	struct fixture f;
	size_t before;

	(void)state;
	open_with(&f, slow, 500);
	rig_sh(&f.rig, "for i in 0 1 2 3 4 5 6 7; do mkdir d$i; touch d$i/f; done");
	before = rig_requests(&f.rig, "exec");
	for (unsigned int i = 0; i < 8; i++) {
		workers[i] = (struct worker){ .f = &f, .number = i };
		assert_int_equal(pthread_create(&threads[i], NULL, stat_loop, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].result, 0);
	}
	/* A little over a second: the probe, the tree, and one for all each half second. A slow
	 * machine takes longer for it, so what is asserted is far below one a thread. */
	assert_in_range(rig_requests(&f.rig, "exec") - before, 3, 8);
	close_all(&f);
}

/* A lost answer is asked for again; nothing is done twice. */
static void test_lost_answer(void **state)
{
	struct fixture f;

	open_with(&f, tools_args(state), 60000);
	rig_sh(&f.rig, "echo 1 > f");
	assert_lists(&f, "", "f");
	rig_fault(&f.rig, "exec:1:drop\n");
	/* Done a second time it would fail with ENOENT. */
	assert_int_equal(APPLY(&f, .kind = SBX_DO_RENAME, .from = "f", .path = "g"), 0);
	rig_fault(&f.rig, "exec:1-2:drop\n");
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UNLINK, .path = "g"), 0);
	rig_fault(&f.rig, "");
	assert_lists(&f, "", "");
	rig_sh(&f.rig, "[ -z \"$(ls)\" ]");
	close_all(&f);
}

/* Garbage is an error that is told, never an answer. */
static void test_garbage(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	g_autofree char *errors = NULL;

	(void)state;
	open_with(&f, NULL, 100);
	rig_sh(&f.rig, "echo 1 > f");
	assert_lists(&f, "", "f");
	g_usleep(150000);
	rig_fault(&f.rig, "exec:*:reply={\"exitCode\":0,\"signal\":null,\"stdout\":\"hello\","
			  "\"stderr\":\"\"}\n");
	assert_int_equal(stat_path(&f, "f", NULL), -EIO);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_UNLINK, .path = "f"), -EIO);
	assert_int_equal(
		sbx_names_stat(f.names, &f.rig.call, "f", SBX_STAT_CACHED, &attr, NULL, NULL), 0);
	errors = sbx_errlog_render(sbx_session_errors(f.rig.session), NULL);
	assert_non_null(strstr(errors, "scan"));
	rig_fault(&f.rig, "");
	assert_int_equal(stat_path(&f, "f", NULL), 0);
	close_all(&f);
}

static void test_sandbox_root(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_listing *listing = NULL;
	struct stat st;

	open_with(&f, tools_args(state), 60000);
	assert_int_equal(stat_path(&f, "/etc/passwd", &attr), 0);
	assert_int_equal(lstat("/etc/passwd", &st), 0);
	assert_int_equal(attr.size, st.st_size);
	assert_int_equal(stat_path(&f, "/etc/no-such-file", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "/no-such-dir/f", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "/", &attr), 0);
	assert_true(S_ISDIR(attr.mode));
	assert_int_equal(stat_path(&f, "/proc/self", NULL), -ENOENT);
	assert_int_equal(stat_path(&f, "/dev", NULL), -ENOENT);
	assert_int_equal(sbx_names_list(f.names, &f.rig.call, "/", &listing), -EACCES);
	assert_int_equal(sbx_names_list(f.names, &f.rig.call, "/etc", &listing), 0);
	assert_true(listing->n_entries > 1);
	sbx_listing_unref(listing);
	close_all(&f);
}

/* 128 KiB a command, answers cut: learnt, and lived with. */
static void test_narrow_backend(void **state)
{
	static const char *const narrow[] = { "--exec-output-limit", "65536",
					      "--exec-command-limit", "131072", NULL };
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_listing *listing = NULL;
	g_autofree char *name = NULL;

	(void)state;
	open_with(&f, narrow, 60000);
	rig_sh(&f.rig, "mkdir d && cd d && for i in 1 2 3 4 5 6 7 8 9; do mkdir $i && (cd $i && "
		       "seq -f 'a-file-with-a-long-name-%g' 500 | xargs touch); done");
	for (int i = 1; i <= 9; i++) {
		g_autofree char *path = g_strdup_printf("d/%d/a-file-with-a-long-name-499", i);

		assert_int_equal(stat_path(&f, path, &attr), 0);
	}
	assert_int_equal(APPLY(&f, .kind = SBX_DO_MKDIR, .path = "e", .mode = 0755), 0);
	/* A directory that no answer can hold. */
	rig_sh(&f.rig,
	       "mkdir big && cd big && head -c 600000 /dev/urandom | od -An -tx1 -w120 -v | "
	       "tr -d ' ' | xargs touch");
	sbx_names_refresh(f.names);
	assert_int_equal(sbx_names_list(f.names, &f.rig.call, "big", &listing), 0);
	assert_int_equal(listing->n_entries, 5000);
	name = g_strconcat("big/", listing->entries[4321].name, NULL);
	sbx_listing_unref(listing);
	assert_int_equal(stat_path(&f, name, &attr), 0);
	assert_true(attr.ino != 0);
	assert_int_equal(stat_path(&f, "big/nothing", &attr), -ENOENT);
	close_all(&f);
}

static void test_without_exec(void **state)
{
	static const char *const no_exec[] = { "--no-exec", NULL };
	struct fixture f;
	struct sbx_attr attr;
	struct sbx_listing *listing = NULL;

	(void)state;
	open_with(&f, no_exec, 60000);
	rig_sh(&f.rig, "mkdir -p d/e && printf 12345 > d/f && ln -s d l && mkdir .sbxfs");
	assert_int_equal(stat_path(&f, "d/f", &attr), 0);
	assert_int_equal(attr.size, 5);
	assert_true(S_ISREG(attr.mode));
	assert_int_equal(attr.ino, 0);
	assert_int_equal(stat_path(&f, "d/nothing", NULL), -ENOENT);
	assert_lists(&f, "", "d l");
	assert_int_equal(sbx_names_list(f.names, &f.rig.call, "d", &listing), 0);
	assert_int_equal(listing->n_entries, 2);
	assert_string_equal(listing->entries[1].name, "f");
	assert_int_equal(listing->entries[1].attr.size, 5);
	assert_true(S_ISDIR(listing->entries[0].attr.mode));
	sbx_listing_unref(listing);
	/* A link is not followed. */
	assert_int_equal(sbx_names_list(f.names, &f.rig.call, "l", &listing), -ENOTDIR);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_MKDIR, .path = "e", .mode = 0755), -EOPNOTSUPP);
	close_all(&f);
}

/* Looking at what is known does not wake a session; using it does, and so does what is not
 * known. */
static void test_asleep(void **state)
{
	struct fixture f;
	struct sbx_attr attr;
	int64_t valid_ms = 0;

	(void)state;
	open_with(&f, NULL, 100);
	rig_sh(&f.rig, "mkdir d && echo 1 > d/f");
	assert_lists(&f, "d", "f");
	rig_sleep(&f.rig);
	for (int i = 0; i < 3; i++) {
		assert_lists(&f, "", "d");
		assert_lists(&f, "d", "f");
		assert_int_equal(sbx_names_stat(f.names, &f.rig.call, "d/f", SBX_STAT_TTL, &attr,
						NULL, &valid_ms),
				 0);
		assert_true(valid_ms <= 100);
		assert_int_equal(stat_path(&f, "d/nothing", NULL), -ENOENT);
		g_usleep(120000);
	}
	assert_int_equal(rig_requests(&f.rig, "reattach"), 0);
	assert_int_equal(APPLY(&f, .kind = SBX_DO_MKDIR, .path = "e", .mode = 0755), 0);
	assert_int_equal(rig_requests(&f.rig, "reattach"), 1);
	assert_lists(&f, "", "d e");
	rig_sleep(&f.rig);
	sbx_names_free(f.names);
	assert_int_equal(
		sbx_names_new(f.rig.session,
			      &(struct sbx_workspace_options){ .ttl_ms = 100, .use_exec = true },
			      &f.names),
		0);
	assert_lists(&f, "", "d e");
	assert_int_equal(rig_requests(&f.rig, "reattach"), 2);
	close_all(&f);
}

static void *fire_later(void *arg)
{
	g_usleep(200000);
	sbx_cancel_fire(arg);
	return NULL;
}

/* A caller that is let go leaves at once; what it had sent goes on. */
static void test_cancel(void **state)
{
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct sbx_call call = { .cancel = cancel, .stall_timeout_ms = 60000 };
	struct sbx_op op = { .kind = SBX_DO_MKDIR, .path = "made", .mode = 0755 };
	struct sbx_op_result result = { 0 };
	struct fixture f;
	pthread_t thread;
	int64_t begun_us;

	(void)state;
	open_with(&f, NULL, 0);
	assert_lists(&f, "", "");
	rig_fault(&f.rig, "exec:1:delay=2500\n");
	assert_int_equal(pthread_create(&thread, NULL, fire_later, cancel), 0);
	begun_us = g_get_monotonic_time();
	assert_int_equal(sbx_names_apply(f.names, &call, 10000, &op, 1, &result), -EINTR);
	assert_true(g_get_monotonic_time() - begun_us < 2200000);
	assert_int_equal(pthread_join(thread, NULL), 0);
	rig_sh(&f.rig, "i=0; while ! [ -d made ]; do [ $i -lt 200 ] || exit; "
		       "i=$((i + 1)); sleep 0.1; done");
	assert_lists(&f, "", "made");
	sbx_cancel_unref(cancel);
	close_all(&f);
}

static void test_statfs(void **state)
{
	struct fixture f;
	struct statvfs st;
	size_t before;

	open_with(&f, tools_args(state), 60000);
	assert_lists(&f, "", "");
	before = rig_requests(&f.rig, NULL);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sbx_names_statfs(f.names, &f.rig.call, &st), 0);
		assert_true(st.f_blocks > 0);
		assert_true(st.f_bsize > 0);
	}
	assert_true(rig_requests(&f.rig, NULL) - before <= 1);
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
		BOTH_TOOLS(test_tree),
		BOTH_TOOLS(test_revalidation),
		BOTH_TOOLS(test_ttl_zero_asks),
		BOTH_TOOLS(test_seen),
		BOTH_TOOLS(test_mutations),
		cmocka_unit_test(test_callers_share_requests),
		cmocka_unit_test(test_beside_a_slow_request),
		cmocka_unit_test(test_waiters_share_scans),
		BOTH_TOOLS(test_lost_answer),
		cmocka_unit_test(test_garbage),
		BOTH_TOOLS(test_sandbox_root),
		cmocka_unit_test(test_narrow_backend),
		cmocka_unit_test(test_without_exec),
		cmocka_unit_test(test_asleep),
		cmocka_unit_test(test_cancel),
		BOTH_TOOLS(test_statfs),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
