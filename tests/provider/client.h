/* A provider for tests, with its endpoint and token, and sinks and sources that count. */
#ifndef SBX_TESTS_PROVIDER_CLIENT_H
#define SBX_TESTS_PROVIDER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/provider.h"

struct client {
	struct sbx_endpoint *endpoint;
	struct sbx_token *token;
	struct sbx_provider *provider;
	struct sbx_failure failure;
	struct sbx_call call; /* no limits, failure filled */
};

/* @token_file NULL: none. Fails the test when the provider can't be made. */
void client_open(struct client *client, const char *url, const char *token_file,
		 const struct sbx_http_options *options);
void client_open_port(struct client *client, int port, const struct sbx_http_options *options);
void client_close(struct client *client);

/* Counts what comes, and sums it up so that two streams can be compared. */
struct counter {
	int64_t announced;
	int64_t len_bytes;
	uint64_t sum;
	int begins;
	int stop_with; /* write returns this; 0: goes on */
};

struct sbx_sink counter_sink(struct counter *counter);

/* @len_bytes of a pattern that depends on the offset. */
struct sbx_source pattern_source(int64_t len_bytes);
uint64_t pattern_sum(int64_t len_bytes);
struct sbx_source text_source(const char *text);

/* Away with what the tests' results could depend on. */
void client_clean_environment(void);

/* Each slot once, on the file f of the session ID. */
#define ID "3f1c8a52-0000-4d7e-9c1b-1234567890ab"
extern const char *const true_argv[];
int client_stat(struct client *client);
int client_get(struct client *client, struct counter *counter);
int client_exec(struct client *client, bool repeatable);
int client_put(struct client *client, int64_t len);

/* Multiplied by SBX_SLACK, for slow machines and sanitizers. */
int64_t slack_ms(int64_t ms);

#endif
