/*
 * What the files of the http module have of each other; for nobody else. client/http.c makes one
 * attempt at a request with libcurl, client/http_run.c decides how many and tells what went wrong,
 * client/http_lane.c shares out the places, client/http_body.c keeps or hands on what comes,
 * client/http_detach.c runs what nobody waits for.
 */
#ifndef SBX_CLIENT_HTTP_INTERNAL_H
#define SBX_CLIENT_HTTP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/http.h"
#include "client/retry.h"

struct http_detacher;
struct http_lanes;
struct http_pool;

struct sbx_http {
	const struct sbx_endpoint *endpoint;
	struct sbx_token *token;
	struct http_pool *pool;
	struct http_lanes *lanes;
	struct http_detacher *detacher;
	struct sbx_cancel *ending; /* sbx_http_end() */
	pthread_mutex_t stats_lock; /* stats */
	struct sbx_wire_stats stats;
};

/* --- client/http.c --- */

/* Runs in the thread of the request, once, when it was handed whole to its connection. */
typedef void (*http_sent_fn)(void *arg);

/* One attempt, and how it went. */
struct http_attempt {
	const struct sbx_http_request *request;
	bool fresh; /* on a new connection */
	int64_t since_ms; /* from when on it may stand still */
	_Atomic int64_t *progress_ms; /* told of progress; may be NULL */
	http_sent_fn sent; /* given this, only the token ends it after it was sent */
	void *sent_arg;

	/* Filled in. kind NONE: there is an answer, and the reply is the caller's to clear. */
	enum sbx_fail_kind kind;
	int error;
	char message[256];
	struct sbx_attempt facts;
	struct sbx_http_reply reply;
	char *retry_after; /* g_free; NULL: no such header */
	uint64_t bytes_in;
	uint64_t bytes_out;
	unsigned int connects;
};

void http_attempt_run(struct sbx_http *http, const struct sbx_call *call,
		      struct http_attempt *attempt);

/* The proxy is chosen, "" for none. NULL: libcurl failed. */
struct http_pool *http_pool_new(const struct sbx_http_options *options, const char *proxy);
void http_pool_free(struct http_pool *pool); /* NULL is allowed */
void http_pool_expire(struct http_pool *pool);
uint32_t http_pool_idle(struct http_pool *pool);

/* --- client/http_body.c --- */

/*
 * An answer's body as it comes: kept in the attempt's reply, or on its way to the sink. libcurl
 * hands on 16 KiB at a time; a sink is given together what has come at once. {0} to begin with.
 *
 * What returns -1 has noted in the attempt why it failed, or has enough of an error's body.
 */
struct http_body {
	size_t room; /* in the reply's buffer */
	bool enough; /* of an error's body: what follows is not wanted */
	char *piece; /* NULL: nothing came yet */
	size_t piece_len;
};

/* Before the first byte of a success; @offset, @length (-1: not known): of what comes. */
int http_body_begin(struct http_body *body, struct http_attempt *attempt, int64_t offset,
		    int64_t length);
int http_body_take(struct http_body *body, struct http_attempt *attempt, const char *data,
		   size_t len);
/* Hands on what waits. */
int http_body_flush(struct http_body *body, struct http_attempt *attempt);
void http_body_clear(struct http_body *body);

/* --- client/http_run.c --- */

static inline bool http_attempt_succeeded(const struct http_attempt *attempt)
{
	return attempt->reply.status / 100 == 2;
}

/* Notes why it failed. The first reason counts: what follows is its consequence. */
void http_attempt_fail(struct http_attempt *attempt, enum sbx_fail_kind kind, int error,
		       const char *message);

/* How long it may wait now, at most @wait_ms; 0: no longer, and it was noted as failed. */
int64_t http_attempt_patience(struct http_attempt *attempt, const struct sbx_call *call,
			      int64_t now_ms, int64_t wait_ms);

/* Where the bytes of a Content-Range begin; -1: it says no such thing, or is NULL. */
int64_t http_range_offset(const char *content_range);

/* sbx_http_perform(); given @sent the request is in no lane. */
int http_run(struct sbx_http *http, const struct sbx_call *call,
	     const struct sbx_http_request *request, http_sent_fn sent, void *sent_arg,
	     struct sbx_http_reply *ret_reply);

/* --- client/http_lane.c --- */

/* The requests of one session, or of none. Lives while something runs or waits in it. */
struct http_lane {
	char *name;
	unsigned int busy;
	unsigned int users; /* busy and waiting ones */
	pthread_cond_t freed;
	_Atomic int64_t progress_ms; /* the last of any of its requests */
};

/* NULL: no memory. @max: requests in flight a lane. */
struct http_lanes *http_lanes_new(unsigned int max);
void http_lanes_free(struct http_lanes *lanes); /* NULL is allowed */

/*
 * http_lane_enter() - wait for a place. 0; -EINTR; -ETIMEDOUT: past the deadline, or nothing in
 * the lane got on for the call's stall limit; -ENOMEM. *since_ms is moved on to the lane's last
 * progress, from when on the request itself may stand still: so in a lane that is stuck all end
 * together, however many wait.
 */
int http_lane_enter(struct http_lanes *lanes, const struct sbx_call *call, const char *name,
		    int64_t *since_ms, struct http_lane **ret_lane);
void http_lane_leave(struct http_lanes *lanes, struct http_lane *lane);
uint32_t http_lanes_busy(struct http_lanes *lanes);

/* --- client/http_detach.c --- */

/* NULL: no memory. */
struct http_detacher *http_detacher_new(struct sbx_http *http);

/* Ends all detached requests and waits for their threads; NULL is allowed. */
void http_detacher_free(struct http_detacher *detacher);
uint32_t http_detacher_count(struct http_detacher *detacher);

#endif
