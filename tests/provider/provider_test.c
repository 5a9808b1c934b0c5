/*
 * The wire provider against a living server (client/provider.h). SBX_ENDPOINT names it; each test
 * makes a session of its own and ends it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <glib.h>

#include "tests/provider/client.h"

struct fixture {
	struct client client;
	struct sbx_session_ref ref;
};

static const struct sbx_provider_ops *ops;

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	client_open(&fixture->client, getenv("SBX_ENDPOINT"), getenv("SBX_TOKEN_FILE"), NULL);
	fixture->client.call.stall_timeout_ms = 30000;
	ops = fixture->client.provider->ops;
	assert_int_equal(
		ops->create(fixture->client.provider, &fixture->client.call, NULL, &fixture->ref),
		0);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(
		ops->destroy(fixture->client.provider, &fixture->client.call, fixture->ref.id), 0);
	client_close(&fixture->client);
	free(fixture);
	return 0;
}

/* Short forms of the slots, for the fixture's session. */

static int put(struct fixture *fixture, const char *path, struct sbx_source source)
{
	return ops->put(fixture->client.provider, &fixture->client.call, fixture->ref.id, path,
			&source);
}

static int get(struct fixture *fixture, const char *path, struct counter *counter)
{
	struct sbx_sink sink = counter_sink(counter);

	return ops->get(fixture->client.provider, &fixture->client.call, fixture->ref.id, path, 0,
			-1, &sink);
}

static int get_stat(struct fixture *fixture, const char *path, struct sbx_stat *ret_stat)
{
	return ops->stat(fixture->client.provider, &fixture->client.call, fixture->ref.id, path,
			 ret_stat);
}

static int run_spec(struct fixture *fixture, const struct sbx_exec_spec *spec,
		    struct sbx_exec_result *ret_result)
{
	return ops->exec(fixture->client.provider, &fixture->client.call, fixture->ref.id, spec,
			 ret_result);
}

/* A shell text that must succeed; its stdout, freed with free(3). */
static char *shell(struct fixture *fixture, const char *text)
{
	const char *const argv[] = { "sh", "-c", text, NULL };
	struct sbx_exec_spec spec = { .argv = argv };
	struct sbx_exec_result result = { 0 };
	char *out;

	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	if (!result.has_exit || result.exit_code != 0)
		print_error("%s: %s\n", text, result.err);
	assert_true(result.has_exit);
	assert_int_equal(result.exit_code, 0);
	out = g_steal_pointer(&result.out);
	sbx_exec_result_clear(&result);
	return out;
}

static void check_shell(struct fixture *fixture, const char *text, const char *want)
{
	char *out = shell(fixture, text);

	assert_string_equal(out, want);
	free(out);
}

/* --- sessions --- */

static void test_sessions(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_provider *provider = fixture->client.provider;
	struct sbx_call *call = &fixture->client.call;
	struct sbx_session_ref other = { 0 };
	struct sbx_session_ref again = { 0 };
	struct sbx_stat stat;
	bool alive = false;

	assert_int_equal(ops->probe(provider, call), 0);
	assert_int_equal(ops->create(provider, call, "{\"runId\":\"r1\"}", &other), 0);
	assert_string_not_equal(other.id, fixture->ref.id);
	assert_int_equal(ops->reattach(provider, call, other.id, &alive, &again), 0);
	assert_true(alive);
	assert_string_equal(again.id, other.id);
	assert_string_equal(again.root, other.root);
	assert_int_equal(ops->destroy(provider, call, other.id), 0);
	assert_int_equal(ops->destroy(provider, call, other.id), 0);
	assert_int_equal(ops->reattach(provider, call, other.id, &alive, &again), 0);
	assert_false(alive);
	assert_int_equal(ops->stat(provider, call, other.id, ".", &stat), -ESTALE);
	assert_true(fixture->client.failure.session_not_found);
	assert_false(fixture->client.failure.maybe_done);
	assert_int_equal(fixture->client.failure.http_status, 404);
	assert_int_equal(ops->create(provider, call, "{\"rootDir\":\"/nowhere\"}", &other),
			 -EACCES);
	assert_string_equal(fixture->client.failure.code, "root_denied");
}

/* --- files --- */

static void check_content(struct fixture *fixture, const char *path, int64_t len)
{
	struct counter counter = { 0 };

	assert_int_equal(put(fixture, path, pattern_source(len)), 0);
	assert_int_equal(get(fixture, path, &counter), 0);
	assert_int_equal(counter.announced, len);
	assert_int_equal(counter.len_bytes, len);
	assert_int_equal(counter.begins, 1);
	assert_true(counter.sum == pattern_sum(len));
}

static void test_contents(void **state)
{
	static const int64_t lengths[] = {
		0, 1, 4096, 65536, 65537, 5 * 1024 * 1024 + 3, 50000000
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++)
		check_content(fixture, "d/e/f", lengths[i]);
	check_shell(fixture, "cd d/e && ls && wc -c <f | tr -d ' '", "f\n50000000\n");
}

static void test_awkward_names(void **state)
{
	static const char *const names[] = {
		"a b",	     "a+b",
		"a%20b",     "a&b=c",
		"a#b?c",     "-n",
		" lead",     "trail ",
		"a\nb",	     "a\r\nX: y",
		"a\tb",	     "\xc3\xa4",
		"a\xcc\x88", "\xf0\x9f\x98\x80",
		"*?[",	     "a\\b",
		"'\"`$(x)",  "~",
		"%",	     "%zz",
		"\x7f\x01",  "a..",
		".hidden",   "a;b",
	};
	struct fixture *fixture = *state;
	g_autofree char *want = NULL;
	size_t total = strlen("..dots");

	for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
		g_autofree char *deep = g_strconcat("dir/", names[i], NULL);
		struct counter counter = { 0 };
		struct sbx_stat stat;

		assert_int_equal(put(fixture, names[i], text_source("top")), 0);
		assert_int_equal(put(fixture, deep, text_source(names[i])), 0);
		assert_int_equal(get_stat(fixture, deep, &stat), 0);
		assert_int_equal(stat.size, strlen(names[i]));
		assert_int_equal(get(fixture, deep, &counter), 0);
		assert_int_equal(counter.len_bytes, strlen(names[i]));
		for (const char *c = names[i]; *c != '\0'; c++)
			total += *c != '\n';
	}
	assert_int_equal(put(fixture, "dir/..dots", text_source("")), 0);
	/* Each is there under its own bytes: none was changed, none made twice. */
	want = g_strdup_printf("%zu\n", total);
	check_shell(fixture, "ls -A dir | tr -d '\\n' | wc -c | tr -d ' '", want);
	check_shell(fixture, "ls -A dir/..dots", "dir/..dots\n");
}

static void test_stat(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_stat stat;

	free(shell(fixture,
		   "mkdir d; chmod 750 d; printf hello >f; chmod 4755 f; ln -s f l; mkfifo p;"
		   "TZ=UTC touch -d '2020-01-02 03:04:05.25' f;"
		   "TZ=UTC touch -d '1960-01-01 00:00:00.5' d"));
	assert_int_equal(get_stat(fixture, "f", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_FILE);
	assert_int_equal(stat.size, 5);
	assert_int_equal(stat.mode, 04755);
	assert_int_equal(stat.mtime.tv_sec, 1577934245);
	assert_int_equal(stat.mtime.tv_nsec, 250000000);
	assert_int_equal(get_stat(fixture, "d", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_DIRECTORY);
	assert_int_equal(stat.mode, 0750);
	assert_int_equal(stat.mtime.tv_sec, -315619200);
	assert_int_equal(stat.mtime.tv_nsec, 500000000);
	assert_int_equal(get_stat(fixture, "l", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_OTHER);
	assert_int_equal(stat.size, 1);
	assert_int_equal(get_stat(fixture, "p", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_OTHER);
	assert_int_equal(get_stat(fixture, ".", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_DIRECTORY);
}

static int add_name(void *arg, const char *name, bool is_directory)
{
	GString *list = arg;

	g_string_append_printf(list, "%s%s,", name, is_directory ? "/" : "");
	return 0;
}

static int count_name(void *arg, const char *name, bool is_directory)
{
	int *count = arg;

	(void)name;
	(void)is_directory;
	return ++*count == 50 ? -ECANCELED : 0;
}

static int list(struct fixture *fixture, const char *path, const struct sbx_dir_sink *sink)
{
	return ops->readdir(fixture->client.provider, &fixture->client.call, fixture->ref.id, path,
			    sink);
}

static void test_readdir(void **state)
{
	GString *names = g_string_new(NULL);
	struct sbx_dir_sink sink = { .entry = add_name, .arg = names };
	struct fixture *fixture = *state;
	int count = 0;
	struct sbx_dir_sink stopping = { .entry = count_name, .arg = &count };

	assert_int_equal(list(fixture, ".", &sink), 0);
	assert_int_equal(names->len, 0);
	free(shell(fixture, "mkdir b; : >a; ln -s b c; mkdir many; cd many;"
			    "i=0; while [ $i -lt 200 ]; do : >n$i; i=$((i+1)); done"));
	assert_int_equal(list(fixture, ".", &sink), 0);
	assert_string_equal(names->str, "a,b/,c,many/,");
	assert_int_equal(list(fixture, "many", &stopping), -ECANCELED);
	assert_int_equal(count, 50);
	assert_int_equal(list(fixture, "many", &stopping), 0);
	assert_int_equal(count, 250);
	g_string_free(names, TRUE);
}

static void test_errnos(void **state)
{
	struct sbx_dir_sink sink = { .entry = add_name };
	struct fixture *fixture = *state;
	struct sbx_failure *failure = &fixture->client.failure;
	struct counter counter = { 0 };
	struct sbx_stat stat;

	free(shell(fixture, "mkdir d; : >f; ln -s loop loop"));
	assert_int_equal(get(fixture, "nope", &counter), -ENOENT);
	assert_int_equal(counter.begins, 0);
	assert_string_equal(failure->operation, "get");
	assert_int_equal(failure->http_status, 500);
	assert_int_equal(failure->kind, SBX_FAIL_REPLY);
	assert_non_null(strstr(failure->message, "ENOENT"));
	assert_int_equal(get_stat(fixture, "nope", &stat), -ENOENT);
	assert_int_equal(list(fixture, "nope", &sink), -ENOENT);
	assert_int_equal(get(fixture, "d", &counter), -EISDIR);
	assert_int_equal(list(fixture, "f", &sink), -ENOTDIR);
	assert_int_equal(get_stat(fixture, "f/x", &stat), -ENOTDIR);
	assert_int_equal(get_stat(fixture, "f/x/y", &stat), -ENOTDIR);
	assert_int_equal(get_stat(fixture, "loop/x", &stat), -ELOOP);
	assert_int_equal(put(fixture, "d", text_source("x")), -EEXIST);
	assert_int_equal(put(fixture, "f/x", text_source("x")), -EEXIST);
}

/* --- commands --- */

static void test_exec(void **state)
{
	static const char *const print[] = { "sh",
					     "-c",
					     "printf '%s|' \"$@\"; pwd; env | sort | "
					     "grep X; echo oops >&2; exit 7",
					     "sh",
					     "a b",
					     "\xc3\xa4",
					     "",
					     "$x",
					     NULL };
	static const char *const env[] = { "PATH=/usr/bin:/bin", "X1=a=b", "X2=", NULL };
	static const char *const nul[] = { "printf", "a\\000b\\n", NULL };
	static const char *const slow[] = { "sleep", "20", NULL };
	static const char *const missing[] = { "does-not-exist", NULL };
	struct fixture *fixture = *state;
	struct sbx_exec_spec spec = { .argv = print, .env = env, .cwd = "d" };
	struct sbx_exec_result result = { 0 };

	free(shell(fixture, "mkdir d"));
	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	assert_true(result.has_exit);
	assert_int_equal(result.exit_code, 7);
	assert_non_null(strstr(result.out, "a b|\xc3\xa4||$x|"));
	assert_non_null(strstr(result.out, "/d\nX1=a=b\nX2=\n"));
	assert_string_equal(result.err, "oops\n");
	assert_false(result.timed_out);
	sbx_exec_result_clear(&result);

	spec = (struct sbx_exec_spec){ .argv = nul };
	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	assert_int_equal(result.out_len, 4);
	assert_memory_equal(result.out, "a\0b\n", 5);
	sbx_exec_result_clear(&result);

	spec = (struct sbx_exec_spec){ .argv = slow, .timeout_ms = 1000 };
	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	assert_true(result.timed_out);
	assert_false(result.has_exit && result.exit_code == 0);
	sbx_exec_result_clear(&result);

	spec = (struct sbx_exec_spec){ .argv = missing };
	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	assert_false(result.has_exit && result.exit_code == 0);
	assert_true(result.err_len > 0);
	sbx_exec_result_clear(&result);
}

static void test_exec_output(void **state)
{
	static const char *const big[] = { "sh", "-c", "head -c 6000000 /dev/zero | base64 -w 0",
					   NULL };
	struct fixture *fixture = *state;
	struct sbx_exec_spec spec = { .argv = big };
	struct sbx_exec_result result = { 0 };

	assert_int_equal(run_spec(fixture, &spec, &result), 0);
	assert_int_equal(result.out_len, 8000000);
	assert_int_equal(strspn(result.out, "A"), 8000000);
	sbx_exec_result_clear(&result);

	spec.max_reply_bytes = 1000000;
	assert_int_equal(run_spec(fixture, &spec, &result), -EFBIG);
	assert_int_equal(fixture->client.failure.kind, SBX_FAIL_FOREIGN);
	assert_true(fixture->client.failure.maybe_done);
}

struct ending {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;
	int error;
	int exit_code;
};

static void ending_done(void *arg, int error, const struct sbx_exec_result *result)
{
	struct ending *ending = arg;

	pthread_mutex_lock(&ending->lock);
	ending->over = true;
	ending->error = error;
	if (result != NULL)
		ending->exit_code = result->exit_code;
	pthread_cond_broadcast(&ending->cond);
	pthread_mutex_unlock(&ending->lock);
}

static void test_exec_detached(void **state)
{
	static const char *const argv[] = { "sh", "-c", "sleep 1; echo done >f; exit 3", NULL };
	struct ending ending = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0 };
	struct fixture *fixture = *state;
	struct sbx_exec_spec spec = { .argv = argv };
	struct sbx_stat stat;

	assert_int_equal(ops->exec_detached(fixture->client.provider, &fixture->client.call,
					    fixture->ref.id, &spec, ending_done, &ending),
			 0);
	/* It is still running: others are served meanwhile. */
	assert_int_equal(get_stat(fixture, "f", &stat), -ENOENT);
	pthread_mutex_lock(&ending.lock);
	while (!ending.over)
		pthread_cond_wait(&ending.cond, &ending.lock);
	pthread_mutex_unlock(&ending.lock);
	assert_int_equal(ending.error, 0);
	assert_int_equal(ending.exit_code, 3);
	assert_int_equal(get_stat(fixture, "f", &stat), 0);
}

/* --- archives --- */

static int append_bytes(void *arg, const void *data, size_t len)
{
	g_byte_array_append(arg, data, (guint)len);
	return 0;
}

static int restart_bytes(void *arg, int64_t offset, int64_t len_bytes)
{
	assert_int_equal(offset, 0);
	assert_true(len_bytes > 0);
	g_byte_array_set_size(arg, 0);
	return 0;
}

static ssize_t read_bytes(void *arg, void *buf, size_t len, int64_t offset)
{
	const GByteArray *bytes = arg;

	memcpy(buf, bytes->data + offset, len);
	return (ssize_t)len;
}

static void test_archives(void **state)
{
	GByteArray *tar = g_byte_array_new();
	struct sbx_sink sink = { restart_bytes, append_bytes, tar };
	struct sbx_source source = { .read_at = read_bytes, .arg = tar };
	struct sbx_source garbage = pattern_source(2048);
	struct fixture *fixture = *state;
	struct sbx_provider *provider = fixture->client.provider;
	struct sbx_call *call = &fixture->client.call;

	free(shell(fixture, "mkdir d; echo one >d/f; chmod 640 d/f; ln -s f d/l"));
	assert_int_equal(ops->persist(provider, call, fixture->ref.id, &sink), 0);
	assert_true(tar->len >= 1024);
	assert_int_equal(tar->len % 512, 0);
	free(shell(fixture, "rm -r d; echo other >g"));
	source.len_bytes = tar->len;
	assert_int_equal(ops->hydrate(provider, call, fixture->ref.id, &source), 0);
	check_shell(fixture, "cat d/f g; readlink d/l", "one\nother\nf\n");
	assert_int_equal(ops->hydrate(provider, call, fixture->ref.id, &garbage), -EINVAL);
	assert_true(fixture->client.failure.maybe_done);
	g_byte_array_unref(tar);
}

/* --- many at once --- */

static void *worker_main(void *arg)
{
	struct fixture *fixture = arg;
	struct sbx_failure failure;
	struct sbx_call call = { .stall_timeout_ms = 30000, .failure = &failure };
	g_autofree char *path = g_strdup_printf("w/%p", (void *)&failure);
	intptr_t bad = 0;

	for (int i = 0; i < 40; i++) {
		struct sbx_source source = pattern_source(1000 * i);
		struct counter counter = { 0 };
		struct sbx_sink sink = counter_sink(&counter);
		struct sbx_stat stat = { 0 };

		if (ops->put(fixture->client.provider, &call, fixture->ref.id, path, &source) < 0 ||
		    ops->stat(fixture->client.provider, &call, fixture->ref.id, path, &stat) < 0 ||
		    ops->get(fixture->client.provider, &call, fixture->ref.id, path, 0, -1, &sink) <
			    0 ||
		    stat.size != 1000 * i || counter.len_bytes != 1000 * i)
			bad++;
	}
	return (void *)bad;
}

static void test_many_threads(void **state)
{
	struct fixture *fixture = *state;
	struct sbx_wire_stats stats;
	pthread_t threads[24];

	for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker_main, fixture), 0);
	for (size_t i = 0; i < G_N_ELEMENTS(threads); i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	ops->stats(fixture->client.provider, &stats);
	assert_int_equal(stats.op[SBX_OP_PUT].requests, 24 * 40);
	assert_int_equal(stats.op[SBX_OP_PUT].failures, 0);
	assert_int_equal(stats.bytes_out >= 24 * 1000 * 780, true);
	assert_int_equal(stats.busy, 0);
	/* Never more than its share of connections. */
	assert_true(stats.idle <= 17);
}

/* One argument: the name of a test, to run that alone. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_contents, setup, teardown),
		cmocka_unit_test_setup_teardown(test_awkward_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stat, setup, teardown),
		cmocka_unit_test_setup_teardown(test_readdir, setup, teardown),
		cmocka_unit_test_setup_teardown(test_errnos, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exec, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exec_output, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exec_detached, setup, teardown),
		cmocka_unit_test_setup_teardown(test_archives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
	};

	if (getenv("SBX_ENDPOINT") == NULL) {
		fprintf(stderr, "SBX_ENDPOINT must name a server\n");
		return 2;
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
