#include "tests/provider/client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/endpoint.h"
#include "client/token.h"

void client_open(struct client *client, const char *url, const char *token_file,
		 const struct sbx_http_options *options)
{
	static const struct sbx_http_options defaults;
	const char *reason = NULL;

	memset(client, 0, sizeof(*client));
	client->call.failure = &client->failure;
	assert_int_equal(sbx_endpoint_parse(url, &client->endpoint, &reason), 0);
	assert_int_equal(sbx_token_new(token_file, &client->token), 0);
	assert_int_equal(sbx_provider_wire_new(client->endpoint, client->token,
					       options != NULL ? options : &defaults,
					       &client->provider, &reason),
			 0);
}

void client_open_port(struct client *client, int port, const struct sbx_http_options *options)
{
	char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", port);
	client_open(client, url, NULL, options);
}

void client_close(struct client *client)
{
	client->provider->ops->free(client->provider);
	sbx_token_free(client->token);
	sbx_endpoint_free(client->endpoint);
}

static int counter_begin(void *arg, int64_t offset, int64_t len_bytes)
{
	struct counter *counter = arg;

	assert_int_equal(offset, 0);
	counter->announced = len_bytes;
	counter->len_bytes = 0;
	counter->sum = 0;
	counter->begins++;
	return 0;
}

static uint64_t add_byte(uint64_t sum, unsigned char byte)
{
	return sum * 31 + byte;
}

static int counter_write(void *arg, const void *data, size_t len)
{
	const unsigned char *bytes = data;
	struct counter *counter = arg;

	if (counter->stop_with < 0)
		return counter->stop_with;
	for (size_t i = 0; i < len; i++)
		counter->sum = add_byte(counter->sum, bytes[i]);
	counter->len_bytes += (int64_t)len;
	return 0;
}

struct sbx_sink counter_sink(struct counter *counter)
{
	return (struct sbx_sink){ .begin = counter_begin, .write = counter_write, .arg = counter };
}

static unsigned char pattern_at(int64_t offset)
{
	return (unsigned char)(offset * 7 + offset / 251);
}

static ssize_t pattern_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	unsigned char *bytes = buf;

	(void)arg;
	for (size_t i = 0; i < len; i++)
		bytes[i] = pattern_at(offset + (int64_t)i);
	return (ssize_t)len;
}

struct sbx_source pattern_source(int64_t len_bytes)
{
	return (struct sbx_source){ .len_bytes = len_bytes, .read_at = pattern_read_at };
}

uint64_t pattern_sum(int64_t len_bytes)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < len_bytes; i++)
		sum = add_byte(sum, pattern_at(i));
	return sum;
}

static ssize_t text_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	memcpy(buf, (const char *)arg + offset, len);
	return (ssize_t)len;
}

struct sbx_source text_source(const char *text)
{
	return (struct sbx_source){
		.len_bytes = (int64_t)strlen(text),
		.read_at = text_read_at,
		.arg = (void *)(uintptr_t)text,
	};
}

int64_t slack_ms(int64_t ms)
{
	const char *slack = getenv("SBX_SLACK");
	double factor = slack != NULL ? strtod(slack, NULL) : 1;

	return (int64_t)((double)ms * (factor >= 1 ? factor : 1));
}

void client_clean_environment(void)
{
	static const char *const names[] = {
		"http_proxy",  "https_proxy", "all_proxy", "ALL_PROXY",
		"HTTPS_PROXY", "no_proxy",    "NO_PROXY",  "SBX_TOKEN",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

const char *const true_argv[] = { "true", NULL };

int client_stat(struct client *client)
{
	struct sbx_stat stat;

	return client->provider->ops->stat(client->provider, &client->call, ID, "f", &stat);
}

int client_get(struct client *client, struct counter *counter)
{
	struct sbx_sink sink = counter_sink(counter);

	return client->provider->ops->get(client->provider, &client->call, ID, "f", 0, -1, &sink);
}

int client_exec(struct client *client, bool repeatable)
{
	struct sbx_exec_spec spec = { .argv = true_argv, .repeatable = repeatable };
	struct sbx_exec_result result;
	int r;

	r = client->provider->ops->exec(client->provider, &client->call, ID, &spec, &result);
	if (r == 0)
		sbx_exec_result_clear(&result);
	return r;
}

int client_put(struct client *client, int64_t len)
{
	struct sbx_source source = pattern_source(len);

	return client->provider->ops->put(client->provider, &client->call, ID, "f", &source);
}
