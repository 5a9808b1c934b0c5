/* The table of sessions: what goes is what was meant, whatever is renamed or written meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>
#include <glib/gstdio.h>

#include "client/call.h"
#include "client/errlog.h"
#include "client/session.h"
#include "client/statedir.h"
#include "client/task.h"

/* A service that is always there; `on_destroy` runs while it deletes a session. */
struct fixture {
	struct sbx_provider provider;
	char *root;
	struct sbx_statedir *dir;
	struct sbx_errlog *errors;
	struct sbx_task_pool *pool;
	struct sbx_sessions *sessions;
	_Atomic int made;
	void (*on_destroy)(struct fixture *fixture);
};

static int fake_create(struct sbx_provider *provider, const struct sbx_call *call, const char *body,
		       struct sbx_session_ref *ret_ref)
{
	struct fixture *fixture = (struct fixture *)provider;

	(void)call;
	(void)body;
	g_snprintf(ret_ref->id, sizeof(ret_ref->id), "id-%d", atomic_fetch_add(&fixture->made, 1));
	g_strlcpy(ret_ref->root, "/root", sizeof(ret_ref->root));
	return 0;
}

static int fake_destroy(struct sbx_provider *provider, const struct sbx_call *call, const char *id)
{
	struct fixture *fixture = (struct fixture *)provider;

	(void)call;
	(void)id;
	if (fixture->on_destroy)
		fixture->on_destroy(fixture);
	return 0;
}

static const struct sbx_provider_ops fake_ops = {
	.create = fake_create,
	.destroy = fake_destroy,
};

static const struct sbx_call nobody = { 0 };

static void start(struct fixture *fixture)
{
	const struct sbx_sessions_options options = { .timeout_ms = 5000,
						      .mutation_timeout_ms = 5000 };
	g_autofree char *cache = g_build_filename(fixture->root, "cache", NULL);
	char *message = NULL;

	assert_int_equal(
		sbx_statedir_open(fixture->root, cache, "http_x_1", &fixture->dir, &message), 0);
	assert_int_equal(sbx_sessions_new(&fixture->provider, fixture->dir, fixture->errors,
					  fixture->pool, &options, &fixture->sessions),
			 0);
}

static void stop(struct fixture *fixture)
{
	sbx_sessions_free(fixture->sessions);
	sbx_statedir_close(fixture->dir);
}

static int setup(void **state)
{
	struct fixture *fixture = g_new0(struct fixture, 1);

	fixture->provider.ops = &fake_ops;
	fixture->root = g_dir_make_tmp("sbx-sessions-test-XXXXXX", NULL);
	fixture->errors = sbx_errlog_new();
	fixture->pool = sbx_task_pool_new(4);
	start(fixture);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	const char *argv[] = { "rm", "-rf", "--", fixture->root, NULL };

	stop(fixture);
	sbx_task_pool_free(fixture->pool);
	sbx_errlog_free(fixture->errors);
	g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
		     NULL);
	g_free(fixture->root);
	g_free(fixture);
	return 0;
}

static struct sbx_session *make(struct fixture *fixture, const char *name)
{
	struct sbx_session *session = NULL;

	assert_int_equal(sbx_sessions_create(fixture->sessions, &nobody, name, NULL, &session), 0);
	return session;
}

/* Something that is not sent yet. */
static int spool(struct sbx_session *session, const char *name)
{
	int fd = openat(sbx_session_spool_dirfd(session), name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the state directory's sessions/, sorted, with blanks between. */
static char *kept(struct fixture *fixture)
{
	g_autofree char *path = g_build_filename(fixture->root, "http_x_1", "sessions", NULL);
	GDir *dir = g_dir_open(path, 0, NULL);
	GPtrArray *names = g_ptr_array_new();
	const char *name;
	char *joined;

	assert_non_null(dir);
	while ((name = g_dir_read_name(dir)))
		g_ptr_array_add(names, g_strdup(name));
	g_dir_close(dir);
	g_ptr_array_sort(names, name_compare);
	g_ptr_array_add(names, NULL);
	joined = g_strjoinv(" ", (char **)names->pdata);
	g_strfreev((char **)g_ptr_array_free(names, FALSE));
	return joined;
}

static void assert_kept(struct fixture *fixture, const char *expected)
{
	g_autofree char *names = kept(fixture);

	assert_string_equal(names, expected);
}

static void swap_names(struct fixture *fixture)
{
	struct sbx_session *other;

	fixture->on_destroy = NULL;
	assert_int_equal(sbx_sessions_rename(fixture->sessions, "a", "b"), 0);
	other = make(fixture, "a");
	assert_int_equal(spool(other, "1.spool"), 0);
	sbx_session_unref(other);
}

static void test_the_one_that_was_meant_is_deleted(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_session *session = make(fixture, "a");
	g_autofree char *id = NULL;

	fixture->on_destroy = swap_names;
	assert_int_equal(sbx_session_delete(session, &nobody), 0);
	sbx_session_unref(session);
	assert_kept(fixture, "a");
	assert_null(sbx_sessions_find(fixture->sessions, "b"));
	session = sbx_sessions_find(fixture->sessions, "a");
	assert_non_null(session);
	id = sbx_session_id(session);
	assert_string_equal(id, "id-1");
	assert_int_equal(sbx_session_unsent(session), 1);
	sbx_session_unref(session);
}

/* Who still holds it writes nothing any more, under its name or another. */
static void test_what_is_saved_late_makes_nothing_anew(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_session *session = make(fixture, "a");

	assert_int_equal(sbx_sessions_rename(fixture->sessions, "a", "b"), 0);
	assert_int_equal(sbx_session_set_snapshot(session, "/x.tar", "then"), 0);
	assert_true(sbx_session_is_holder(session));
	assert_kept(fixture, "b");
	assert_int_equal(sbx_session_detach(session), 0);
	assert_kept(fixture, "");
	assert_int_equal(sbx_session_set_snapshot(session, "/x.tar", "then"), -ENOENT);
	(void)sbx_session_is_holder(session);
	assert_int_equal(spool(session, "1.spool"), -ENOENT);
	assert_kept(fixture, "");
	sbx_session_unref(session);
}

static void test_unsent_bytes_keep_it(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_session *session = make(fixture, "a");

	/* What else lies there is no bytes. */
	assert_int_equal(spool(session, "0123456789abcdef.client"), 0);
	assert_int_equal(sbx_session_unsent(session), 0);
	assert_int_equal(spool(session, "1.spool"), 0);
	assert_int_equal(sbx_session_unsent(session), 1);
	assert_int_equal(sbx_session_detach(session), -EBUSY);
	assert_int_equal(spool(session, "2.spool"), 0);
	assert_kept(fixture, "a");
	assert_int_equal(unlinkat(sbx_session_spool_dirfd(session), "1.spool", 0), 0);
	assert_int_equal(unlinkat(sbx_session_spool_dirfd(session), "2.spool", 0), 0);
	assert_int_equal(sbx_session_detach(session), 0);
	assert_kept(fixture, "");
	sbx_session_unref(session);
}

struct writer {
	struct sbx_session *session;
	_Atomic bool go;
	int delay_us;
	int result;
};

static void *write_once(void *arg)
{
	struct writer *writer = arg;

	while (!atomic_load(&writer->go))
		;
	g_usleep((gulong)writer->delay_us);
	writer->result = spool(writer->session, "1.spool");
	return NULL;
}

/* Bytes that come while it is detached keep it, or are refused. */
static void test_detach_beside_a_writer(void **state)
{
	struct fixture *fixture = *state;

	for (int i = 0; i < 300; i++) {
		struct writer writer = { .session = make(fixture, "a"), .delay_us = i % 60 };
		pthread_t thread;
		int r;

		assert_int_equal(pthread_create(&thread, NULL, write_once, &writer), 0);
		atomic_store(&writer.go, true);
		r = sbx_session_detach(writer.session);
		pthread_join(thread, NULL);
		if (r < 0) {
			assert_int_equal(r, -EBUSY);
			assert_int_equal(writer.result, 0);
			assert_int_equal(sbx_session_unsent(writer.session), 1);
			assert_int_equal(sbx_session_delete(writer.session, &nobody), 0);
		} else {
			assert_int_equal(writer.result, -ENOENT);
		}
		assert_kept(fixture, "");
		sbx_session_unref(writer.session);
	}
}

/* A process that died on the way has left it half removed. */
static void test_what_was_half_removed_goes(void **state)
{
	struct fixture *fixture = *state;
	g_autofree char *from = g_build_filename(fixture->root, "http_x_1", "sessions", "a", NULL);
	g_autofree char *to =
		g_build_filename(fixture->root, "http_x_1", "sessions", ".gone-0123", NULL);

	sbx_session_unref(make(fixture, "a"));
	sbx_session_unref(make(fixture, "b"));
	stop(fixture);
	assert_int_equal(g_rename(from, to), 0);
	start(fixture);
	assert_kept(fixture, "b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_one_that_was_meant_is_deleted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_what_is_saved_late_makes_nothing_anew, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_unsent_bytes_keep_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_detach_beside_a_writer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_was_half_removed_goes, setup, teardown),
	};

	return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
