/*
 * What is sent twice, and when: the rules of client/http.c as pure functions (wire.md A5, A6).
 */
#ifndef SBX_CLIENT_RETRY_H
#define SBX_CLIENT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/http.h"

/* What is known of one attempt that brought no answer. */
struct sbx_attempt {
	bool reused_connection;
	bool reply_started; /* at least one byte came back */
	bool body_whole; /* all of the body was handed to the connection, or there is none */
	bool connected; /* there was a connection at all */
};

/*
 * May the server have done what was asked? Without its whole body a request is not acted on, and
 * a request without a body may be done once there was a connection.
 */
bool sbx_retry_maybe_done(const struct sbx_attempt *attempt);

/* A stale connection: may the request be sent again on a new one? */
bool sbx_retry_stale(const struct sbx_attempt *attempt, enum sbx_http_repeat repeat);

/*
 * sbx_retry_wait_ms() - how long to wait before a 429 or 503 is asked again.
 * @retry_after: the header's value, NULL: none. A date is reckoned from @now (seconds since 1970).
 * @tries: how often it was asked so far, from 1.
 * -1: not to be asked again (another status, or a 503 without the header of a request that must
 * not be repeated).
 */
int64_t sbx_retry_wait_ms(int status, const char *retry_after, int64_t now,
			  enum sbx_http_repeat repeat, unsigned int tries);

#endif
