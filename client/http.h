/*
 * HTTP requests to one endpoint, over a pool of connections. The only module that knows libcurl.
 *
 * Each connection is a libcurl easy handle with a private multi handle, checked out for one
 * request, most recently used first. A waiting call is woken through its multi handle, so it
 * stops within a millisecond of its token firing. Connections that failed are dropped; those that
 * were idle for more than 4 s are not used again, since a server closes them after 5 to 6 s.
 *
 * Connections in use are bounded per lane (a lane is a session), so that a session which never
 * answers can't take the connections of another. Who waits for one can be cancelled, and gives up
 * when its lane as a whole has made no progress for the call's stall limit.
 *
 * Rules kept here, whatever is asked (design.md, promise 8): redirects are not followed; only
 * http and https; the token goes to the endpoint alone, never over plain http unless that is
 * loopback or insecure_http was given, and never to a plain-http proxy; loopback is never asked
 * through a proxy. What is sent twice and when: client/retry.h.
 *
 * Locks: the pool's (connections, lanes, counters), never held across a request; libcurl's shared
 * DNS and TLS session caches and the detached requests have their own. None is taken under another.
 */
#ifndef SBX_CLIENT_HTTP_H
#define SBX_CLIENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/call.h"
#include "client/stats.h"

struct sbx_endpoint;
struct sbx_token;
struct sbx_http;

struct sbx_http_options {
	const char *proxy; /* NULL: from the environment, as curl does; "": none */
	const char *noproxy; /* NULL: from the environment */
	const char *cert; /* client certificate, PEM */
	const char *key;
	const char *cacert; /* NULL: the system's */
	bool insecure_http; /* the token may cross plain http */
	unsigned int max_conn; /* a lane's requests in flight; 0: 16 */
	int64_t connect_timeout_ms; /* 0: 10,000 */
};

/*
 * Where an answer's body goes. Only the body of a 2xx answer does.
 * begin: once, before the first byte; @offset is 0 but for a 206; @len_bytes -1 when unknown.
 *	It runs again from the start when a request is sent again. May be NULL.
 * write: takes all bytes; they are valid during the call.
 * Both return 0 or negative errno, which ends the request and is its result. They may block on
 * local things; they run in the caller's thread, without locks.
 */
struct sbx_sink {
	int (*begin)(void *arg, int64_t offset, int64_t len_bytes);
	int (*write)(void *arg, const void *data, size_t len);
	void *arg;
};

/*
 * Where a request's body comes from: exactly len_bytes, readable at any offset as often as
 * needed. len_bytes -1: as much as there is, sent in chunks; read_at may then wait a second or so
 * for more, and returns 0 at the end. read_at returns 1..len bytes, or negative errno, which is the
 * request's result; 0 before the end is -EIO.
 */
struct sbx_source {
	int64_t len_bytes;
	ssize_t (*read_at)(void *arg, void *buf, size_t len, int64_t offset);
	void *arg;
};

/* How often a request may reach the server. */
enum sbx_http_repeat {
	SBX_HTTP_ONCE, /* sent again only when provably unsent; needs a body */
	SBX_HTTP_IDEMPOTENT, /* may be sent again after a stale connection */
	SBX_HTTP_FRESH, /* as ONCE, and never on a kept connection: for requests without body */
};

struct sbx_http_request {
	enum sbx_wire_op op;
	const char *method;
	const char *path; /* after the endpoint's base path, begins with "/", encoded */
	const char *lane; /* session id, NULL: the lane of what has no session */
	const struct sbx_source *body; /* NULL: none */
	const char *content_type; /* of the body */
	const char *range; /* "0-99", NULL: none */
	const struct sbx_sink *sink; /* NULL: the body is kept in the reply */
	size_t max_reply_bytes; /* of a kept body; more is -EFBIG */
	int64_t patience_ms; /* added to the stall limit: how long the server works */
	enum sbx_http_repeat repeat;
};

/* An answer, of whatever status. */
struct sbx_http_reply {
	int status;
	char *body; /* NUL after its end; of a non-2xx answer the first 64 KiB */
	size_t body_len;
};

void sbx_http_reply_clear(struct sbx_http_reply *reply);

/*
 * sbx_http_new() - 0; -EACCES when the rules above forbid to send the token there, -EINVAL for a
 * proxy or noproxy that can't be used, -EIO when libcurl fails, with a sentence for the user in
 * *ret_reason (a constant, may be NULL); -ENOMEM. Sends nothing. Not before the process has
 * forked. endpoint and token must live longer.
 */
int sbx_http_new(const struct sbx_endpoint *endpoint, struct sbx_token *token,
		 const struct sbx_http_options *options, struct sbx_http **ret_http,
		 const char **ret_reason);

/* All calls must have returned. Detached requests are let go of: what they started runs on. */
void sbx_http_free(struct sbx_http *http);

/*
 * sbx_http_perform() - send, wait for the whole answer. Blocks within the call's limits.
 *
 * 0 when there is an answer of any status. Else, with call->failure filled in: -EINTR,
 * -EHOSTUNREACH (no address, no connection), -EPROTO (TLS), -ETIMEDOUT (stalled, deadline),
 * -EIO (broken connection, short body, not HTTP), -EFBIG (kept body over its bound), -ENOMEM, or
 * what sink or source returned.
 * *ret_reply is set on 0 only and is then the caller's to clear.
 *
 * 429, and 503 that says Retry-After or answers a repeatable request, are waited for and sent
 * again while stall_timeout_ms lasts; then the answer is handed back. A 401 is tried once more if
 * the token file has another token.
 */
int sbx_http_perform(struct sbx_http *http, const struct sbx_call *call,
		     const struct sbx_http_request *request, struct sbx_http_reply *ret_reply);

/* Called once, in a thread of this module, when a detached request is over: 0 or its errno. */
typedef void (*sbx_http_done_fn)(void *arg, int error, const struct sbx_http_reply *reply);

/*
 * sbx_http_detach() - send the request and return as soon as it was handed whole to the
 * connection; its answer is waited for in the background, without limit of time. The request's
 * texts and body are copied (up to 16 MiB; more is -EFBIG), sink must be NULL.
 *
 * 0 when it was sent whole; then @done (may be NULL) is called exactly once, also when the http is
 * freed before the answer (-ECANCELED). On any error @done is never called, and
 * call->failure->maybe_done tells whether it may have been sent: after -EINTR and -ETIMEDOUT too,
 * where the request is given up. -EAGAIN: too many detached requests (256).
 */
int sbx_http_detach(struct sbx_http *http, const struct sbx_call *call,
		    const struct sbx_http_request *request, sbx_http_done_fn done, void *arg);

/* End all requests, whoever waits for them, and refuse later ones: -EINTR. Never blocks. */
void sbx_http_end(struct sbx_http *http);

/* Close connections that were idle too long. Call every few seconds, from one thread. */
void sbx_http_maintain(struct sbx_http *http);

void sbx_http_stats(struct sbx_http *http, struct sbx_wire_stats *ret_stats);

#endif
