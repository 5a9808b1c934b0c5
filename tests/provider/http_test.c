/* http: limits, connections, retries, lanes, detached requests (client/http.h). */
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>

#include "tests/provider/check.h"
#include "tests/provider/client.h"
#include "tests/provider/server.h"

/* --- cancelling and limits --- */

struct firing {
	struct sbx_cancel *cancel;
	int64_t after_ms;
	_Atomic int64_t fired_ms;
};

static void *firing_main(void *arg)
{
	struct firing *firing = arg;
	struct sbx_call nap = { 0 };

	CHECK(sbx_call_sleep(&nap, firing->after_ms) == 0);
	atomic_store(&firing->fired_ms, sbx_clock_ms());
	sbx_cancel_fire(firing->cancel);
	return NULL;
}

static void test_cancel_is_at_once(void **state)
{
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_hang, NULL);
	client_open_port(&client, server.port, NULL);
	for (int i = 0; i < 5; i++) {
		struct firing firing = { .cancel = sbx_cancel_new(NULL), .after_ms = 60 };
		struct counter counter = { 0 };
		pthread_t thread;

		client.call.cancel = firing.cancel;
		assert_int_equal(pthread_create(&thread, NULL, firing_main, &firing), 0);
		assert_int_equal(client_get(&client, &counter), -EINTR);
		pthread_join(thread, NULL);
		assert_true(sbx_clock_ms() - atomic_load(&firing.fired_ms) < slack_ms(50));
		assert_int_equal(client.failure.kind, SBX_FAIL_CANCEL);
		assert_string_equal(client.failure.operation, "get");
		assert_int_equal(counter.begins, 0);
		/* A token that has fired lets nothing be sent. */
		assert_int_equal(client_get(&client, &counter), -EINTR);
		sbx_cancel_unref(firing.cancel);
	}
	assert_int_equal(atomic_load(&server.requests), 5);
	client_close(&client);
	server_stop(&server);
}

static void test_stall_and_deadline(void **state)
{
	struct counter counter = { 0 };
	struct server server;
	struct client client;
	int64_t began_ms;

	(void)state;
	server_start(&server, script_hang, NULL);
	client_open_port(&client, server.port, NULL);
	began_ms = sbx_clock_ms();
	client.call.stall_timeout_ms = 200;
	assert_int_equal(client_get(&client, &counter), -ETIMEDOUT);
	assert_in_range(sbx_clock_ms() - began_ms, 200, 200 + slack_ms(200));
	assert_int_equal(client.failure.kind, SBX_FAIL_STALL);
	assert_true(client.failure.maybe_done);

	began_ms = sbx_clock_ms();
	client.call.stall_timeout_ms = 0;
	client.call.deadline_ms = began_ms + 200;
	assert_int_equal(client_get(&client, &counter), -ETIMEDOUT);
	assert_in_range(sbx_clock_ms() - began_ms, 200, 200 + slack_ms(200));
	client_close(&client);
	server_stop(&server);
}

/* A name server that does not answer: this takes the place of the C library's function. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **result)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	if (node != NULL && strcmp(node, "slow.invalid") == 0) {
		sleep(3);
		return EAI_AGAIN;
	}
	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, result);
}

static void test_cancel_while_a_name_is_looked_up(void **state)
{
	struct firing firing = { .cancel = sbx_cancel_new(NULL), .after_ms = 60 };
	struct client client;
	pthread_t thread;
	int64_t began_ms;

	(void)state;
	client_open(&client, "https://slow.invalid", NULL, NULL);
	client.call.cancel = firing.cancel;
	assert_int_equal(pthread_create(&thread, NULL, firing_main, &firing), 0);
	assert_int_equal(client_stat(&client), -EINTR);
	pthread_join(thread, NULL);
	assert_true(sbx_clock_ms() - atomic_load(&firing.fired_ms) < slack_ms(50));
	assert_false(client.failure.maybe_done);

	client.call.cancel = NULL;
	client.call.stall_timeout_ms = 300;
	began_ms = sbx_clock_ms();
	assert_true(client_stat(&client) < 0);
	assert_true(sbx_clock_ms() - began_ms < 300 + slack_ms(300));
	client_close(&client);
	sbx_cancel_unref(firing.cancel);
	/* The threads that still wait use libcurl's memory. */
	sleep(4);
}

/* A body that comes slowly, but comes: longer than the stall limit as a whole. */
static void script_drip(struct server *server, int fd, int conn)
{
	struct sbx_call nap = { 0 };
	struct request request;

	(void)conn;
	if (!server_read(server, fd, &request) ||
	    !server_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"))
		return;
	for (int i = 0; i < 10; i++) {
		CHECK(sbx_call_sleep(&nap, 60) == 0);
		if (!server_send(fd, "x"))
			return;
	}
	server_hang(fd);
}

static void test_progress_is_no_stall(void **state)
{
	struct counter counter = { 0 };
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_drip, NULL);
	client_open_port(&client, server.port, NULL);
	client.call.stall_timeout_ms = 60 + slack_ms(300);
	assert_int_equal(client_get(&client, &counter), 0);
	assert_int_equal(counter.len_bytes, 10);
	client_close(&client);
	server_stop(&server);
}

/* --- big bodies --- */

#define BIG (INT64_C(512) * 1024 * 1024)

static void script_big(struct server *server, int fd, int conn)
{
	static const char block[65536];
	struct request request;
	char head[100];

	(void)conn;
	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %lld\r\n\r\n",
		 (long long)BIG);
	if (!server_read(server, fd, &request) || !server_send(fd, head))
		return;
	for (int64_t left = BIG; left > 0; left -= (int64_t)sizeof(block)) {
		if (!server_send_bytes(fd, block, sizeof(block)))
			return;
	}
	server_hang(fd);
}

static int count_only(void *arg, const void *data, size_t len)
{
	(void)data;
	*(int64_t *)arg += (int64_t)len;
	return 0;
}

static int64_t peak_memory(void)
{
	char text[8192] = "";
	FILE *file = fopen("/proc/self/status", "re");
	const char *line;
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	assert_true(n > 0);
	line = strstr(text, "VmHWM:");
	assert_non_null(line);
	return strtoll(line + 6, NULL, 10) * 1024;
}

static void test_a_big_get_is_streamed(void **state)
{
	int64_t got = 0;
	struct sbx_sink sink = { .write = count_only, .arg = &got };
	struct server server;
	struct client client;
	int64_t before;

	(void)state;
	server_start(&server, script_big, NULL);
	client_open_port(&client, server.port, NULL);
	before = peak_memory();
	assert_int_equal(
		client.provider->ops->get(client.provider, &client.call, ID, "f", 0, -1, &sink), 0);
	assert_int_equal(got, BIG);
	assert_true(peak_memory() - before < 32 * 1024 * 1024);
	client_close(&client);
	server_stop(&server);
}

static void test_a_sink_that_refuses(void **state)
{
	struct counter counter = { .stop_with = -ENOSPC };
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_big, NULL);
	client_open_port(&client, server.port, NULL);
	assert_int_equal(client_get(&client, &counter), -ENOSPC);
	assert_int_equal(counter.announced, BIG);
	assert_int_equal(client.failure.kind, SBX_FAIL_LOCAL);
	client_close(&client);
	server_stop(&server);
}

/* --- stale connections (wire.md A6) --- */

/* The second request on the first connection is read, and the connection then closed. */
static void script_stale(struct server *server, int fd, int conn)
{
	struct request request;
	int count = 0;

	while (server_read(server, fd, &request)) {
		const char *json = strstr(request.head, "/exec") != NULL ? EXEC_JSON : STAT_JSON;

		if (conn == 0 && ++count == 2)
			return;
		if (!server_answer(fd, 200, json))
			return;
	}
}

static void check_stale(bool exec, bool repeatable, int want, int want_requests)
{
	struct sbx_wire_stats stats;
	struct server server;
	struct client client;
	int r;

	server_start(&server, script_stale, NULL);
	client_open_port(&client, server.port, NULL);
	assert_int_equal(client_stat(&client), 0);
	r = exec ? client_exec(&client, repeatable) : client_stat(&client);
	assert_int_equal(r, want);
	assert_int_equal(atomic_load(&server.requests), want_requests);
	if (want < 0) {
		assert_int_equal(client.failure.kind, SBX_FAIL_LOST);
		assert_true(client.failure.maybe_done);
	}
	client.provider->ops->stats(client.provider, &stats);
	assert_int_equal(stats.op[SBX_OP_STAT].requests + stats.op[SBX_OP_EXEC].requests, 2);
	client_close(&client);
	server_stop(&server);
}

static void test_stale_connections(void **state)
{
	(void)state;
	check_stale(false, true, 0, 3);
	check_stale(true, true, 0, 3);
	/* Its body was sent whole: it may have been done, and is not sent again. */
	check_stale(true, false, -EIO, 2);
}

/* Answers once a connection and closes, as after an idle time: every reuse is a stale one. */
static void script_close_after(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (server_read(server, fd, &request))
		server_answer(fd, 200, EXEC_JSON);
}

static void test_a_closed_connection_is_not_used(void **state)
{
	struct sbx_call nap = { 0 };
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_close_after, NULL);
	client_open_port(&client, server.port, NULL);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(client_exec(&client, false), 0);
		assert_int_equal(sbx_call_sleep(&nap, 20), 0);
	}
	assert_int_equal(atomic_load(&server.requests), 5);
	assert_int_equal(atomic_load(&server.connections), 5);
	client_close(&client);
	server_stop(&server);
}

static void test_idle_connections(void **state)
{
	struct sbx_wire_stats stats;
	struct sbx_call nap = { 0 };
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_serve, NULL);
	client_open_port(&client, server.port, NULL);
	for (int i = 0; i < 20; i++)
		assert_int_equal(client_stat(&client), 0);
	assert_int_equal(atomic_load(&server.connections), 1);
	client.provider->ops->maintain(client.provider);
	client.provider->ops->stats(client.provider, &stats);
	assert_int_equal(stats.idle, 1);
	assert_int_equal(stats.connects, 1);
	assert_int_equal(stats.op[SBX_OP_STAT].requests, 20);
	/* The server would close it soon: too risky to be used again. */
	assert_int_equal(sbx_call_sleep(&nap, 4100), 0);
	client.provider->ops->maintain(client.provider);
	client.provider->ops->stats(client.provider, &stats);
	assert_int_equal(stats.idle, 0);
	assert_int_equal(client_stat(&client), 0);
	assert_int_equal(atomic_load(&server.connections), 2);
	client_close(&client);
	server_stop(&server);
}

/* --- answers that are waited for, or retried --- */

struct canned {
	const char *head; /* extra header lines of the first answer */
	int status;
	int times;
	const char *json; /* of the later answers */
};

static void script_busy(struct server *server, int fd, int conn)
{
	const struct canned *canned = server->arg;
	struct request request;
	char head[512];

	(void)conn;
	while (server_read(server, fd, &request)) {
		if (atomic_load(&server->requests) > canned->times) {
			if (!server_answer(fd, 200, canned->json))
				return;
			continue;
		}
		snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\n%sContent-Length: 0\r\n\r\n",
			 canned->status, canned->head);
		if (!server_send(fd, head))
			return;
	}
}

static void test_retry_after(void **state)
{
	struct canned one = { "Retry-After: 1\r\n", 429, 1, STAT_JSON };
	struct canned never = { "Retry-After: 3600\r\n", 503, 1000, STAT_JSON };
	struct canned bare = { "", 503, 2, STAT_JSON };
	struct sbx_wire_stats stats;
	struct server server;
	struct client client;
	int64_t began_ms;

	(void)state;
	server_start(&server, script_busy, &one);
	client_open_port(&client, server.port, NULL);
	client.call.stall_timeout_ms = 20000;
	began_ms = sbx_clock_ms();
	assert_int_equal(client_stat(&client), 0);
	assert_true(sbx_clock_ms() - began_ms >= 1000);
	client.provider->ops->stats(client.provider, &stats);
	assert_int_equal(stats.waits, 1);
	assert_int_equal(stats.op[SBX_OP_STAT].requests, 1);
	client_close(&client);
	server_stop(&server);

	/* Longer than the call may stand still: not waited for at all. */
	server_start(&server, script_busy, &never);
	client_open_port(&client, server.port, NULL);
	client.call.stall_timeout_ms = 20000;
	began_ms = sbx_clock_ms();
	assert_int_equal(client_stat(&client), -EBUSY);
	assert_true(sbx_clock_ms() - began_ms < 1000 + slack_ms(1000));
	assert_int_equal(client.failure.http_status, 503);
	assert_false(client.failure.maybe_done);
	assert_int_equal(atomic_load(&server.requests), 1);
	client_close(&client);
	server_stop(&server);

	/* Without the header only what is repeatable is asked again. */
	server_start(&server, script_busy, &bare);
	client_open_port(&client, server.port, NULL);
	assert_int_equal(client_exec(&client, false), -EBUSY);
	assert_int_equal(atomic_load(&server.requests), 1);
	assert_int_equal(client_stat(&client), 0);
	assert_int_equal(atomic_load(&server.requests), 3);
	client_close(&client);
	server_stop(&server);
}

static void test_a_wait_for_the_server_can_be_cancelled(void **state)
{
	struct canned busy = { "Retry-After: 15\r\n", 429, 1000, STAT_JSON };
	struct firing firing = { .cancel = sbx_cancel_new(NULL), .after_ms = 100 };
	struct server server;
	struct client client;
	pthread_t thread;

	(void)state;
	server_start(&server, script_busy, &busy);
	client_open_port(&client, server.port, NULL);
	client.call.cancel = firing.cancel;
	client.call.stall_timeout_ms = 30000;
	assert_int_equal(pthread_create(&thread, NULL, firing_main, &firing), 0);
	assert_int_equal(client_stat(&client), -EINTR);
	pthread_join(thread, NULL);
	assert_true(sbx_clock_ms() - atomic_load(&firing.fired_ms) < slack_ms(50));
	client_close(&client);
	server_stop(&server);
	sbx_cancel_unref(firing.cancel);
}

/* --- lanes --- */

#define OTHER "00000000-1111-4d7e-9c1b-1234567890ab"

static void script_one_session_hangs(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	while (server_read(server, fd, &request)) {
		if (strstr(request.head, ID) != NULL) {
			server_hang(fd);
			return;
		}
		if (!server_answer(fd, 200, STAT_JSON))
			return;
	}
}

static void *stuck_main(void *arg)
{
	struct client *shared = arg;
	struct sbx_call call = { .stall_timeout_ms = 1500 };
	int64_t began_ms = sbx_clock_ms();
	struct sbx_stat stat;

	CHECK(shared->provider->ops->stat(shared->provider, &call, ID, "f", &stat) == -ETIMEDOUT);
	CHECK(sbx_clock_ms() - began_ms < 1500 + slack_ms(700));
	return NULL;
}

static void test_a_stuck_session_leaves_room_for_others(void **state)
{
	struct firing firing = { .cancel = sbx_cancel_new(NULL), .after_ms = 100 };
	struct sbx_call waiting = { .cancel = firing.cancel };
	pthread_t threads[40];
	struct sbx_stat stat;
	struct server server;
	struct client client;
	pthread_t firer;
	int64_t began_ms;

	(void)state;
	server_start(&server, script_one_session_hangs, NULL);
	client_open_port(&client, server.port, &(struct sbx_http_options){ .max_conn = 4 });
	for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stuck_main, &client), 0);
	assert_int_equal(sbx_call_sleep(&(struct sbx_call){ 0 }, 200), 0);

	began_ms = sbx_clock_ms();
	assert_int_equal(
		client.provider->ops->stat(client.provider, &client.call, OTHER, "f", &stat), 0);
	assert_true(sbx_clock_ms() - began_ms < slack_ms(200));
	/* Who waits for a place can be cancelled. */
	assert_int_equal(pthread_create(&firer, NULL, firing_main, &firing), 0);
	assert_int_equal(client.provider->ops->stat(client.provider, &waiting, ID, "f", &stat),
			 -EINTR);
	pthread_join(firer, NULL);
	assert_true(sbx_clock_ms() - atomic_load(&firing.fired_ms) < slack_ms(50));

	for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
		pthread_join(threads[i], NULL);
	client_close(&client);
	server_stop(&server);
	sbx_cancel_unref(firing.cancel);
}

/* --- detached execs --- */

struct outcome {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int calls;
	int error;
	int exit_code;
};

static void outcome_done(void *arg, int error, const struct sbx_exec_result *result)
{
	struct outcome *outcome = arg;

	pthread_mutex_lock(&outcome->lock);
	outcome->calls++;
	outcome->error = error;
	CHECK((error == 0) == (result != NULL));
	if (result != NULL)
		outcome->exit_code = result->exit_code;
	pthread_cond_broadcast(&outcome->cond);
	pthread_mutex_unlock(&outcome->lock);
}

static void outcome_wait(struct outcome *outcome)
{
	pthread_mutex_lock(&outcome->lock);
	while (outcome->calls == 0)
		pthread_cond_wait(&outcome->cond, &outcome->lock);
	pthread_mutex_unlock(&outcome->lock);
}

static int detach(struct client *client, struct outcome *outcome)
{
	static const char *const env[] = { "PATH=/bin", "EMPTY=", NULL };
	struct sbx_exec_spec spec = { .argv = true_argv, .env = env };

	return client->provider->ops->exec_detached(client->provider, &client->call, ID, &spec,
						    outcome_done, outcome);
}

/* Answers 300 ms after it has the request. */
static void script_slow_exec(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (!server_read(server, fd, &request))
		return;
	CHECK(sbx_call_sleep(&(struct sbx_call){ 0 }, 300) == 0);
	server_answer(fd, server->arg != NULL ? 404 : 200,
		      server->arg != NULL ? server->arg
					  : "{\"exitCode\":7,\"signal\":null,\"stdout\":\"\","
					    "\"stderr\":\"\"}");
	server_hang(fd);
}

static void test_detached(void **state)
{
	struct outcome outcome = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0 };
	struct sbx_wire_stats stats;
	struct server server;
	struct client client;
	int64_t began_ms;

	(void)state;
	server_start(&server, script_slow_exec, NULL);
	client_open_port(&client, server.port, NULL);
	/* The limit is for sending, not for the command. */
	client.call.stall_timeout_ms = 100;
	began_ms = sbx_clock_ms();
	assert_int_equal(detach(&client, &outcome), 0);
	assert_true(sbx_clock_ms() - began_ms < slack_ms(200));
	client.provider->ops->stats(client.provider, &stats);
	assert_int_equal(stats.detached, 1);
	outcome_wait(&outcome);
	assert_int_equal(outcome.calls, 1);
	assert_int_equal(outcome.error, 0);
	assert_int_equal(outcome.exit_code, 7);
	client_close(&client);
	server_stop(&server);

	/* Refused after it was sent: the end tells. */
	outcome.calls = 0;
	server_start(&server, script_slow_exec,
		     (void *)(uintptr_t) "{\"code\":\"session_not_found\",\"message\":\"x\"}");
	client_open_port(&client, server.port, NULL);
	assert_int_equal(detach(&client, &outcome), 0);
	outcome_wait(&outcome);
	assert_int_equal(outcome.error, -ESTALE);
	client_close(&client);
	server_stop(&server);
}

static void test_detached_and_let_go_of(void **state)
{
	struct outcome outcome = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0 };
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_hang, NULL);
	client_open_port(&client, server.port, NULL);
	client.call.cancel = cancel;
	assert_int_equal(detach(&client, &outcome), 0);
	/* Too late: it was sent. */
	sbx_cancel_fire(cancel);
	assert_int_equal(sbx_call_sleep(&(struct sbx_call){ 0 }, 50), 0);
	assert_int_equal(outcome.calls, 0);
	/* And now nothing is sent at all. */
	assert_int_equal(detach(&client, &outcome), -EINTR);
	assert_false(client.failure.maybe_done);
	client_close(&client);
	assert_int_equal(outcome.calls, 1);
	assert_int_equal(outcome.error, -ECANCELED);
	server_stop(&server);

	client_open_port(&client, server.port, NULL);
	assert_int_equal(detach(&client, &outcome), -EHOSTUNREACH);
	assert_false(client.failure.maybe_done);
	client_close(&client);
	assert_int_equal(outcome.calls, 1);
	sbx_cancel_unref(cancel);
}

static int setup(void **state)
{
	(void)state;
	client_clean_environment();
	return 0;
}

/* One argument: the name of a test, to run that alone. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cancel_is_at_once),
		cmocka_unit_test(test_cancel_while_a_name_is_looked_up),
		cmocka_unit_test(test_stall_and_deadline),
		cmocka_unit_test(test_progress_is_no_stall),
		cmocka_unit_test(test_a_big_get_is_streamed),
		cmocka_unit_test(test_a_sink_that_refuses),
		cmocka_unit_test(test_stale_connections),
		cmocka_unit_test(test_a_closed_connection_is_not_used),
		cmocka_unit_test(test_idle_connections),
		cmocka_unit_test(test_retry_after),
		cmocka_unit_test(test_a_wait_for_the_server_can_be_cancelled),
		cmocka_unit_test(test_a_stuck_session_leaves_room_for_others),
		cmocka_unit_test(test_detached),
		cmocka_unit_test(test_detached_and_let_go_of),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, NULL);
}
