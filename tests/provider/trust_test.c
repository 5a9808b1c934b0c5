/* What is sent to whom, and what is believed of an answer (design.md, promises 7 and 8). */
#include <errno.h>
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

#include "client/endpoint.h"
#include "client/token.h"
#include "tests/provider/check.h"
#include "tests/provider/client.h"
#include "tests/provider/server.h"

/* --- the token --- */

static char *token_path;

static void write_token(const char *text)
{
	g_autofree char *fresh = g_strconcat(token_path, ".new", NULL);

	CHECK(g_file_set_contents_full(fresh, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
	CHECK(rename(fresh, token_path) == 0);
}

/* Takes only "new"; on refusing it echoes what it got, and has the file replaced if told so. */
static void script_token(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	while (server_read(server, fd, &request)) {
		if (strstr(request.head, "Authorization: Bearer new-s3cret\r\n") != NULL) {
			if (!server_answer(fd, 200, STAT_JSON))
				return;
			continue;
		}
		CHECK(strstr(request.head, "Authorization: Bearer old-s3cret\r\n") != NULL);
		if (server->arg != NULL)
			write_token("new-s3cret\n");
		if (!server_answer(fd, 401,
				   "{\"code\":\"unauthorized\",\"message\":\"not: Bearer "
				   "old-s3cret\\u001b[1m\",\"retryable\":false}"))
			return;
	}
}

static void test_a_401_reads_the_token_again(void **state)
{
	struct server server;
	struct client client;
	char url[64];

	(void)state;
	write_token("old-s3cret\n");
	server_start(&server, script_token, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", server.port);
	client_open(&client, url, token_path, NULL);
	assert_int_equal(client_stat(&client), -EACCES);
	assert_int_equal(atomic_load(&server.requests), 1);
	assert_true(client.failure.token_refused);
	assert_false(client.failure.maybe_done);
	assert_string_equal(client.failure.code, "unauthorized");
	assert_string_equal(client.failure.message, "not: [token]\\x1b[1m");
	/* Replaced while the request is on its way: the caller sees no error. */
	server.arg = &server;
	assert_int_equal(client_exec(&client, false), -EIO); /* the script answers with a stat */
	assert_int_equal(atomic_load(&server.requests), 3);
	assert_int_equal(client_stat(&client), 0);
	assert_int_equal(atomic_load(&server.requests), 4);
	client_close(&client);
	server_stop(&server);
}

/* Says no before it has read the body, and closes. */
static void script_early_refusal(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (!server_read_head(server, fd, &request))
		return;
	server_answer(fd, 401,
		      "{\"code\":\"unauthorized\",\"message\":\"no\",\"retryable\":false}");
	server_hang(fd);
}

static void test_an_early_refusal_is_heard(void **state)
{
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_early_refusal, NULL);
	client_open_port(&client, server.port, NULL);
	assert_int_equal(client_put(&client, 64 * 1024 * 1024), -EACCES);
	assert_true(client.failure.token_refused);
	client_close(&client);
	server_stop(&server);
}

static int try_http(const char *url, const struct sbx_http_options *options, const char **reason)
{
	struct sbx_provider *provider = NULL;
	struct sbx_endpoint *endpoint = NULL;
	struct sbx_token *token = NULL;
	int r;

	assert_int_equal(sbx_endpoint_parse(url, &endpoint, NULL), 0);
	assert_int_equal(sbx_token_new(token_path, &token), 0);
	r = sbx_provider_wire_new(endpoint, token, options, &provider, reason);
	if (r == 0)
		provider->ops->free(provider);
	sbx_token_free(token);
	sbx_endpoint_free(endpoint);
	return r;
}

static void test_where_the_token_may_not_go(void **state)
{
	struct sbx_http_options options = { 0 };
	const char *reason = NULL;

	(void)state;
	write_token("s3cret");
	assert_int_equal(try_http("http://sbx.example.com", &options, &reason), -EACCES);
	assert_non_null(reason);
	assert_int_equal(try_http("https://sbx.example.com", &options, &reason), 0);
	assert_int_equal(try_http("http://127.0.0.1:1", &options, &reason), 0);
	options.insecure_http = true;
	assert_int_equal(try_http("http://sbx.example.com", &options, &reason), 0);
	options.proxy = "http://proxy:1";
	assert_int_equal(try_http("http://sbx.example.com", &options, &reason), -EACCES);
	assert_int_equal(try_http("https://sbx.example.com", &options, &reason), 0);
	options.proxy = "http://user:password@proxy:1";
	assert_int_equal(try_http("https://sbx.example.com", &options, &reason), -EINVAL);
	assert_null(strstr(reason, "password@"));
}

static void test_loopback_goes_past_the_proxy(void **state)
{
	struct server server, proxy;
	struct client client;
	char url[64];

	(void)state;
	server_start(&server, script_serve, NULL);
	server_start(&proxy, script_hang, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", proxy.port);
	setenv("http_proxy", url, 1);
	setenv("all_proxy", url, 1);
	client_open_port(&client, server.port, NULL);
	client.call.stall_timeout_ms = slack_ms(2000);
	assert_int_equal(client_stat(&client), 0);
	client_close(&client);
	client_open_port(&client, server.port, &(struct sbx_http_options){ .proxy = url });
	client.call.stall_timeout_ms = slack_ms(2000);
	assert_int_equal(client_stat(&client), 0);
	client_close(&client);
	unsetenv("http_proxy");
	unsetenv("all_proxy");
	assert_int_equal(atomic_load(&server.requests), 2);
	assert_int_equal(atomic_load(&proxy.connections), 0);
	server_stop(&server);
	server_stop(&proxy);
}

static void script_proxy(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (!server_read(server, fd, &request))
		return;
	CHECK(g_str_has_prefix(request.head, "CONNECT sbx.example.com:443 HTTP/1.1\r\n"));
	CHECK(strstr(request.head, "s3cret") == NULL);
	CHECK(strstr(request.head, "Authorization") == NULL);
	server_send(fd, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
	server_hang(fd);
}

static void test_a_proxy_sees_only_connect(void **state)
{
	struct server proxy;
	struct client client;
	char url[64];

	(void)state;
	write_token("s3cret");
	server_start(&proxy, script_proxy, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", proxy.port);
	client_open(&client, "https://sbx.example.com", token_path,
		    &(struct sbx_http_options){ .proxy = url });
	assert_int_equal(client_stat(&client), -EHOSTUNREACH);
	assert_int_equal(client.failure.kind, SBX_FAIL_CONNECT);
	assert_false(client.failure.maybe_done);
	assert_int_equal(atomic_load(&proxy.requests), 1);
	client_close(&client);
	server_stop(&proxy);
}

static void script_redirect(struct server *server, int fd, int conn)
{
	const struct server *other = server->arg;
	struct request request;
	char head[256];

	(void)conn;
	snprintf(head, sizeof(head),
		 "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n",
		 other->port);
	if (server_read(server, fd, &request))
		server_send(fd, head);
	server_hang(fd);
}

static void test_redirects_are_not_followed(void **state)
{
	struct server server, other;
	struct client client;

	(void)state;
	server_start(&other, script_serve, NULL);
	server_start(&server, script_redirect, &other);
	client_open_port(&client, server.port, NULL);
	assert_int_equal(client_stat(&client), -EIO);
	assert_int_equal(client.failure.http_status, 307);
	assert_int_equal(atomic_load(&other.connections), 0);
	client_close(&client);
	server_stop(&server);
	server_stop(&other);
}

/* --- answers that are not the protocol's --- */

static void script_raw(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (server_read(server, fd, &request))
		server_send(fd, server->arg);
}

static void test_broken_answers(void **state)
{
	static const struct {
		const char *answer;
		int error;
		enum sbx_fail_kind kind;
	} broken[] = {
		{ "", -EIO, SBX_FAIL_LOST },
		{ "garbage\r\n\r\n", -EIO, SBX_FAIL_FOREIGN },
		{ "SSH-2.0-OpenSSH_9\r\n", -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\n", -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"size\":5", -EIO,
		  SBX_FAIL_LOST },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"siz", -EIO,
		  SBX_FAIL_LOST },
		{ "HTTP/1.1 200 OK\r\n\r\n" STAT_JSON, -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"size\":\"x\"}", -EIO,
		  SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", -EFBIG,
		  SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 206 OK\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\n{}",
		  -EIO, SBX_FAIL_FOREIGN },
		{ "HTTP/1.1 502 Bad\r\nContent-Length: 9\r\n\r\n<html>oh\n", -EIO, SBX_FAIL_REPLY },
		{ "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", -ETIMEDOUT,
		  SBX_FAIL_REPLY },
		{ "HTTP/1.1 431 X\r\nConnection: close\r\n\r\n", -ENAMETOOLONG, SBX_FAIL_REPLY },
		{ "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", -EIO, SBX_FAIL_REPLY },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(broken); i++) {
		struct server server;
		struct client client;
		int r;

		server_start(&server, script_raw, (void *)(uintptr_t)broken[i].answer);
		client_open_port(&client, server.port, NULL);
		r = client_stat(&client);
		if (r != broken[i].error || client.failure.kind != broken[i].kind)
			print_error("row %zu: %s\n", i, client.failure.message);
		assert_int_equal(r, broken[i].error);
		assert_int_equal(client.failure.error, r);
		assert_int_equal(client.failure.kind, broken[i].kind);
		assert_true(client.failure.message[0] != '\0');
		client_close(&client);
		server_stop(&server);
	}
}

/* arg: what to repeat without end after the answer's beginning. */
static void script_endless(struct server *server, int fd, int conn)
{
	const char *const *parts = server->arg;
	struct request request;

	(void)conn;
	if (!server_read(server, fd, &request) || !server_send(fd, parts[0]))
		return;
	while (server_send(fd, parts[1]))
		;
}

static void test_endless_answers_are_bounded(void **state)
{
	static char block[65537];
	const char *const headers[] = { "HTTP/1.1 200 OK\r\n", "X-More: and more and more\r\n" };
	const char *const body[] = { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
				     "8\r\n{      \n\r\n" };
	const char *const error[] = { "HTTP/1.1 500 X\r\n\r\n", block };
	const struct {
		const char *const *parts;
		int error;
	} endless[] = { { headers, -EIO }, { body, -EFBIG }, { error, -EIO } };

	(void)state;
	memset(block, 'x', sizeof(block) - 1);
	for (size_t i = 0; i < G_N_ELEMENTS(endless); i++) {
		struct server server;
		struct client client;

		server_start(&server, script_endless, (void *)(uintptr_t)endless[i].parts);
		client_open_port(&client, server.port, NULL);
		assert_int_equal(client_stat(&client), endless[i].error);
		client_close(&client);
		server_stop(&server);
	}
}

static void test_nobody_there(void **state)
{
	struct server server;
	struct client client;

	(void)state;
	server_start(&server, script_serve, NULL);
	client_open_port(&client, server.port, NULL);
	server_stop(&server);
	assert_int_equal(client_exec(&client, false), -EHOSTUNREACH);
	assert_int_equal(client.failure.kind, SBX_FAIL_CONNECT);
	assert_false(client.failure.maybe_done);
	client_close(&client);

	client_open(&client, "https://does-not-exist.invalid", NULL, NULL);
	assert_int_equal(client_stat(&client), -EHOSTUNREACH);
	assert_int_equal(client.failure.kind, SBX_FAIL_RESOLVE);
	client_close(&client);

	/* Not TLS at all. */
	server_start(&server, script_hang, NULL);
	{
		char url[64];

		snprintf(url, sizeof(url), "https://127.0.0.1:%d", server.port);
		client_open(&client, url, NULL,
			    &(struct sbx_http_options){ .cacert = "/nonexistent" });
		client.call.stall_timeout_ms = 1000;
		assert_int_equal(client_stat(&client), -EPROTO);
		assert_int_equal(client.failure.kind, SBX_FAIL_TLS);
		client_close(&client);
	}
	server_stop(&server);
}

/* --- what is refused before it is sent --- */

static void test_refused_here(void **state)
{
	static const struct {
		const char *path;
		int error;
	} bad[] = {
		{ "", -EILSEQ },
		{ "/etc", -EILSEQ },
		{ "a//b", -EILSEQ },
		{ "a/", -EILSEQ },
		{ "./a", -EILSEQ },
		{ "a/./b", -EILSEQ },
		{ "a/../b", -EILSEQ },
		{ "..", -EILSEQ },
		{ "..foo", -EILSEQ },
		{ "...", -EILSEQ },
		{ "..foo/bar", -EILSEQ },
		{ "a\xff", -EILSEQ },
		{ "\xed\xa0\x80", -EILSEQ },
	};
	const char *const not_utf8[] = { "a\xff", NULL };
	const char *const nothing[] = { NULL };
	const char *const no_value[] = { "NAME", NULL };
	struct sbx_exec_spec spec = { .argv = not_utf8 };
	struct sbx_exec_result result;
	struct sbx_session_ref ref;
	struct sbx_stat stat;
	struct server server;
	struct client client;
	char *big = g_strnfill(131072, 'a');
	const char *const big_argv[] = { "sh", big, NULL };
	const struct sbx_provider_ops *ops;
	bool alive;

	(void)state;
	server_start(&server, script_serve, NULL);
	client_open_port(&client, server.port, NULL);
	ops = client.provider->ops;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		assert_int_equal(ops->stat(client.provider, &client.call, ID, bad[i].path, &stat),
				 bad[i].error);
	big[256] = '\0';
	assert_int_equal(ops->stat(client.provider, &client.call, ID, big, &stat), -ENAMETOOLONG);
	big[256] = 'a';
	assert_int_equal(ops->stat(client.provider, &client.call, "../../x", "f", &stat), -EINVAL);
	assert_int_equal(ops->destroy(client.provider, &client.call, ""), -EINVAL);
	assert_int_equal(ops->reattach(client.provider, &client.call, "a/b", &alive, &ref),
			 -EINVAL);
	assert_int_equal(ops->create(client.provider, &client.call, "[]", &ref), -EINVAL);
	assert_int_equal(ops->create(client.provider, &client.call, "{", &ref), -EINVAL);
	assert_int_equal(ops->exec(client.provider, &client.call, ID, &spec, &result), -EILSEQ);
	spec.argv = nothing;
	assert_int_equal(ops->exec(client.provider, &client.call, ID, &spec, &result), -EINVAL);
	spec.argv = big_argv;
	assert_int_equal(ops->exec(client.provider, &client.call, ID, &spec, &result), -E2BIG);
	spec.argv = true_argv;
	spec.env = no_value;
	assert_int_equal(ops->exec(client.provider, &client.call, ID, &spec, &result), -EINVAL);
	spec.env = NULL;
	spec.timeout_ms = 5;
	assert_int_equal(ops->exec(client.provider, &client.call, ID, &spec, &result), -EINVAL);
	assert_int_equal(client.failure.kind, SBX_FAIL_LOCAL);
	assert_int_equal(atomic_load(&server.connections), 0);

	/* And what is not: it arrives as one name, encoded. */
	assert_int_equal(
		ops->stat(client.provider, &client.call, ID, "d/..a \n+%&#?\xc3\xa4'\\", &stat), 0);
	assert_int_equal(stat.kind, SBX_KIND_FILE);
	assert_int_equal(stat.size, 5);
	assert_int_equal(stat.mode, 0644);
	assert_int_equal(stat.mtime.tv_sec, 1);
	assert_int_equal(stat.mtime.tv_nsec, 500250000);
	client_close(&client);
	server_stop(&server);
	g_free(big);
}

struct names {
	GPtrArray *taken;
	GPtrArray *refused;
};

static int take_name(void *arg, const char *name, bool is_directory)
{
	(void)is_directory;
	g_ptr_array_add(((struct names *)arg)->taken, g_strdup(name));
	return 0;
}

static void refuse_name(void *arg, const char *escaped)
{
	g_ptr_array_add(((struct names *)arg)->refused, g_strdup(escaped));
}

static void script_listing(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	while (server_read(server, fd, &request))
		server_answer(fd, 200, server->arg);
}

static int do_readdir(const char *json, struct names *names)
{
	struct sbx_dir_sink sink = { take_name, refuse_name, names };
	struct server server;
	struct client client;
	int r;

	g_ptr_array_set_size(names->taken, 0);
	g_ptr_array_set_size(names->refused, 0);
	server_start(&server, script_listing, (void *)(uintptr_t)json);
	client_open_port(&client, server.port, NULL);
	r = client.provider->ops->readdir(client.provider, &client.call, ID, ".", &sink);
	client_close(&client);
	server_stop(&server);
	return r;
}

static void test_hostile_listings(void **state)
{
	struct names names = { g_ptr_array_new_with_free_func(g_free),
			       g_ptr_array_new_with_free_func(g_free) };
	g_autofree char *long_name = g_strnfill(256, 'n');
	g_autofree char *long_json = g_strdup_printf("[{\"name\":\"%s\",\"isDirectory\":false},"
						     "{\"name\":\"%.255s\",\"isDirectory\":false}]",
						     long_name, long_name);

	(void)state;
	assert_int_equal(do_readdir("[{\"name\":\"ok\",\"isDirectory\":true},"
				    "{\"name\":\"a/b\",\"isDirectory\":false},"
				    "{\"name\":\"..\",\"isDirectory\":true},"
				    "{\"name\":\".\",\"isDirectory\":true},"
				    "{\"name\":\"\",\"isDirectory\":true},"
				    "{\"name\":\"n\\u0000x\",\"isDirectory\":true},"
				    "{\"name\":\"new\\nline\",\"isDirectory\":false}]",
				    &names),
			 0);
	assert_int_equal(names.taken->len, 2);
	assert_string_equal(names.taken->pdata[0], "ok");
	assert_string_equal(names.taken->pdata[1], "new\nline");
	assert_int_equal(names.refused->len, 5);
	assert_string_equal(names.refused->pdata[0], "a/b");
	assert_string_equal(names.refused->pdata[4], "n\\x00x");
	assert_int_equal(do_readdir(long_json, &names), 0);
	assert_int_equal(names.taken->len, 1);
	assert_int_equal(names.refused->len, 1);
	assert_int_equal(do_readdir("[{\"name\":\"a\"}]", &names), -EIO);
	assert_int_equal(do_readdir("[{\"name\":5,\"isDirectory\":false}]", &names), -EIO);
	assert_int_equal(do_readdir("[{\"name\":\"a\",\"isDirectory\":1}]", &names), -EIO);
	assert_int_equal(do_readdir("{}", &names), -EIO);
	assert_int_equal(do_readdir("[5]", &names), -EIO);
	assert_int_equal(do_readdir("[{\"name\":\"\xff\",\"isDirectory\":false}]", &names), -EIO);
	g_ptr_array_unref(names.taken);
	g_ptr_array_unref(names.refused);
}

static int do_create(const char *json, struct sbx_session_ref *ref, bool *maybe_done)
{
	struct server server;
	struct client client;
	int r;

	server_start(&server, script_listing, (void *)(uintptr_t)json);
	client_open_port(&client, server.port, NULL);
	r = client.provider->ops->create(client.provider, &client.call, NULL, ref);
	*maybe_done = client.failure.maybe_done;
	client_close(&client);
	server_stop(&server);
	return r;
}

static void test_hostile_sessions(void **state)
{
	static const char *const bad[] = {
		"{\"sessionId\":\"../../x\",\"root\":\"/r\"}",
		"{\"sessionId\":\"\",\"root\":\"/r\"}",
		"{\"sessionId\":\"a\\u0000\",\"root\":\"/r\"}",
		"{\"sessionId\":5,\"root\":\"/r\"}",
		"{\"sessionId\":\"a\",\"root\":\"r\"}",
		"{\"sessionId\":\"a\"}",
		"{\"root\":\"/r\"}",
		"[]",
	};
	struct sbx_session_ref ref = { .id = "before" };
	bool maybe_done;

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		assert_int_equal(do_create(bad[i], &ref, &maybe_done), -EIO);
		assert_string_equal(ref.id, "before");
		assert_true(maybe_done);
	}
	assert_int_equal(
		do_create("{\"sessionId\":\"a-1\",\"root\":\"/r\",\"new\":1}", &ref, &maybe_done),
		0);
	assert_string_equal(ref.id, "a-1");
	assert_string_equal(ref.root, "/r");
}

static int setup(void **state)
{
	g_autofree char *dir = g_dir_make_tmp("sbx-http-XXXXXX", NULL);

	(void)state;
	client_clean_environment();
	token_path = g_build_filename(dir, "token", NULL);
	return dir == NULL;
}

static int teardown(void **state)
{
	g_autofree char *dir = g_path_get_dirname(token_path);

	(void)state;
	unlink(token_path);
	g_free(token_path);
	return rmdir(dir);
}

/* One argument: the name of a test, to run that alone. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_401_reads_the_token_again),
		cmocka_unit_test(test_an_early_refusal_is_heard),
		cmocka_unit_test(test_where_the_token_may_not_go),
		cmocka_unit_test(test_loopback_goes_past_the_proxy),
		cmocka_unit_test(test_a_proxy_sees_only_connect),
		cmocka_unit_test(test_redirects_are_not_followed),
		cmocka_unit_test(test_broken_answers),
		cmocka_unit_test(test_endless_answers_are_bounded),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_refused_here),
		cmocka_unit_test(test_hostile_listings),
		cmocka_unit_test(test_hostile_sessions),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
