#include "client/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <glib.h>

#include "client/endpoint.h"
#include "client/errmap.h"
#include "client/http_proxy.h"
#include "client/token.h"

#define DEFAULT_MAX_CONN 16

/* How long 429 and 503 are waited for, where the call has no stall limit. */
#define DEFAULT_BUSY_MS 30000

/* What was done for one request so far. */
struct run {
	int64_t waited_ms; /* for 429 and 503 */
	unsigned int busy_answers;
	bool resent; /* after a stale connection */
	bool token_retried; /* after a 401 */
	bool maybe_done; /* of any attempt */
};

void sbx_http_reply_clear(struct sbx_http_reply *reply)
{
	free(reply->body);
	memset(reply, 0, sizeof(*reply));
}

int64_t http_range_offset(const char *content_range)
{
	int64_t offset;
	char *end;

	if (content_range == NULL || g_ascii_strncasecmp(content_range, "bytes ", 6) != 0 ||
	    !g_ascii_isdigit(content_range[6]))
		return -1;
	offset = g_ascii_strtoll(content_range + 6, &end, 10);
	return *end == '-' ? offset : -1;
}

void http_attempt_fail(struct http_attempt *attempt, enum sbx_fail_kind kind, int error,
		       const char *message)
{
	if (attempt->kind != SBX_FAIL_NONE)
		return;
	attempt->kind = kind;
	attempt->error = error;
	g_strlcpy(attempt->message, message, sizeof(attempt->message));
}

int64_t http_attempt_patience(struct http_attempt *attempt, const struct sbx_call *call,
			      int64_t now_ms, int64_t wait_ms)
{
	if (call->stall_timeout_ms > 0) {
		int64_t left_ms = attempt->since_ms + call->stall_timeout_ms +
				  attempt->request->patience_ms - now_ms;

		if (left_ms <= 0) {
			http_attempt_fail(attempt, SBX_FAIL_STALL, -ETIMEDOUT,
					  "the server made no progress");
			return 0;
		}
		wait_ms = MIN(wait_ms, left_ms);
	}
	if (call->deadline_ms != 0) {
		if (now_ms >= call->deadline_ms) {
			http_attempt_fail(attempt, SBX_FAIL_STALL, -ETIMEDOUT,
					  "the deadline has passed");
			return 0;
		}
		wait_ms = MIN(wait_ms, call->deadline_ms - now_ms);
	}
	return wait_ms;
}

int sbx_http_new(const struct sbx_endpoint *endpoint, struct sbx_token *token,
		 const struct sbx_http_options *options, struct sbx_http **ret_http,
		 const char **ret_reason)
{
	bool have_token = sbx_token_present(token);
	g_autofree char *proxy = NULL;
	const char *reason = NULL;
	struct sbx_http *http = NULL;
	int r = 0;

	if (have_token && !endpoint->https && !endpoint->loopback && !options->insecure_http) {
		reason = "the token must not cross plain http; use https, or insecure_http";
		r = -EACCES;
		goto out;
	}
	r = http_proxy_choose(endpoint, options, have_token, &proxy, &reason);
	if (r < 0)
		goto out;

	http = g_new0(struct sbx_http, 1);
	pthread_mutex_init(&http->stats_lock, NULL);
	http->endpoint = endpoint;
	http->token = token;
	http->lanes = http_lanes_new(options->max_conn > 0 ? options->max_conn : DEFAULT_MAX_CONN);
	http->ending = sbx_cancel_new(NULL);
	http->detacher = http_detacher_new(http);
	http->pool = http_pool_new(options, proxy);
	if (http->pool == NULL || http->detacher == NULL || http->lanes == NULL ||
	    http->ending == NULL) {
		reason = "libcurl could not be started";
		r = -EIO;
		goto out;
	}
	*ret_http = g_steal_pointer(&http);
out:
	if (ret_reason != NULL && r < 0)
		*ret_reason = reason;
	sbx_http_free(http);
	return r;
}

void sbx_http_free(struct sbx_http *http)
{
	if (http == NULL)
		return;
	http_detacher_free(http->detacher);
	http_pool_free(http->pool);
	http_lanes_free(http->lanes);
	sbx_cancel_unref(http->ending);
	pthread_mutex_destroy(&http->stats_lock);
	g_free(http);
}

/* Fills call->failure; returns the error. */
static int tell_failure(struct sbx_http *http, const struct sbx_call *call,
			const struct sbx_http_request *request, const struct run *run,
			enum sbx_fail_kind kind, int error, const char *message)
{
	struct sbx_failure *failure = call->failure;
	g_autofree char *stripped = NULL;

	if (failure == NULL)
		return error;
	stripped = sbx_token_strip(http->token, message);
	memset(failure, 0, sizeof(*failure));
	failure->error = error;
	failure->kind = kind;
	failure->maybe_done = run->maybe_done;
	failure->operation = sbx_wire_op_name(request->op);
	sbx_text_escape(failure->message, sizeof(failure->message), stripped, strlen(stripped));
	return error;
}

static void count_attempt(struct sbx_http *http, const struct http_attempt *attempt)
{
	pthread_mutex_lock(&http->stats_lock);
	http->stats.bytes_in += attempt->bytes_in;
	http->stats.bytes_out += attempt->bytes_out;
	http->stats.connects += attempt->connects;
	if (attempt->kind == SBX_FAIL_CANCEL)
		http->stats.cancelled++;
	if (attempt->kind == SBX_FAIL_STALL)
		http->stats.timeouts++;
	pthread_mutex_unlock(&http->stats_lock);
}

static void count_request(struct sbx_http *http, enum sbx_wire_op op, gint64 began_us, bool ok)
{
	int64_t latency_us = g_get_monotonic_time() - began_us;
	struct sbx_op_stats *stats = &http->stats.op[op];

	pthread_mutex_lock(&http->stats_lock);
	stats->requests++;
	if (!ok)
		stats->failures++;
	stats->latency_us_sum += (uint64_t)latency_us;
	stats->latency_bucket[sbx_stats_bucket(latency_us)]++;
	pthread_mutex_unlock(&http->stats_lock);
}

static void count_one(struct sbx_http *http, uint64_t *counter)
{
	pthread_mutex_lock(&http->stats_lock);
	(*counter)++;
	pthread_mutex_unlock(&http->stats_lock);
}

/* Another token than the one that was refused? */
static bool token_changed(struct sbx_http *http, uint64_t generation)
{
	(void)sbx_token_refresh(http->token, true);
	return sbx_token_generation(http->token) != generation;
}

/*
 * After an answer: 1 to send it again, 0 to hand it back, or negative errno when the wait was
 * ended.
 */
static int again_after_answer(struct sbx_http *http, const struct sbx_call *call,
			      const struct sbx_http_request *request,
			      const struct http_attempt *attempt, struct run *run,
			      uint64_t generation)
{
	int64_t limit_ms = call->stall_timeout_ms > 0 ? call->stall_timeout_ms : DEFAULT_BUSY_MS;
	int64_t wait_ms;
	int r;

	/* A refused token stops a request before anything is done. */
	if (attempt->reply.status == 401) {
		if (run->token_retried || !token_changed(http, generation))
			return 0;
		run->token_retried = true;
		count_one(http, &http->stats.resends);
		return 1;
	}
	wait_ms = sbx_retry_wait_ms(attempt->reply.status, attempt->retry_after, time(NULL),
				    request->repeat, ++run->busy_answers);
	if (wait_ms < 0 || run->waited_ms + wait_ms > limit_ms)
		return 0;
	count_one(http, &http->stats.waits);
	r = sbx_call_sleep(call, wait_ms);
	if (r == -ETIMEDOUT)
		return 0;
	run->waited_ms += wait_ms;
	return r < 0 ? r : 1;
}

/* One place in the lane, one attempt. Returns 0, or why there was no place. */
static int run_attempt(struct sbx_http *http, const struct sbx_call *call,
		       struct http_attempt *attempt)
{
	struct http_lane *lane = NULL;
	int r;

	attempt->since_ms = sbx_clock_ms();
	if (attempt->sent == NULL) {
		r = http_lane_enter(http->lanes, call, attempt->request->lane, &attempt->since_ms,
				    &lane);
		if (r < 0)
			return r;
		attempt->progress_ms = &lane->progress_ms;
	}
	http_attempt_run(http, call, attempt);
	if (lane != NULL)
		http_lane_leave(http->lanes, lane);
	count_attempt(http, attempt);
	return 0;
}

static int run_request(struct sbx_http *http, const struct sbx_call *call,
		       const struct sbx_http_request *request, http_sent_fn sent, void *sent_arg,
		       struct sbx_http_reply *ret_reply)
{
	struct run run = { 0 };
	int r;

	for (;;) {
		struct http_attempt attempt = {
			.request = request,
			.fresh = run.resent || request->repeat == SBX_HTTP_FRESH,
			.sent = sent,
			.sent_arg = sent_arg,
		};
		uint64_t generation;

		r = sbx_call_check(call);
		if (r < 0)
			return tell_failure(http, call, request, &run,
					    r == -EINTR ? SBX_FAIL_CANCEL : SBX_FAIL_STALL, r,
					    "the call was over before it was sent");
		/* Also looks whether the token file changed; while it can't be read the token that
		 * is known is used. */
		generation = sbx_token_generation(http->token);
		r = run_attempt(http, call, &attempt);
		if (r < 0)
			return tell_failure(http, call, request, &run,
					    r == -EINTR	      ? SBX_FAIL_CANCEL
					    : r == -ETIMEDOUT ? SBX_FAIL_STALL
							      : SBX_FAIL_LOCAL,
					    r, "no connection was free");
		if (attempt.kind != SBX_FAIL_NONE) {
			bool lost = attempt.kind == SBX_FAIL_LOST;

			if (lost && !run.resent &&
			    sbx_retry_stale(&attempt.facts, request->repeat)) {
				run.maybe_done |= sbx_retry_maybe_done(&attempt.facts);
				run.resent = true;
				count_one(http, &http->stats.resends);
				continue;
			}
			run.maybe_done |= sbx_retry_maybe_done(&attempt.facts);
			return tell_failure(http, call, request, &run, attempt.kind, attempt.error,
					    attempt.message);
		}
		r = again_after_answer(http, call, request, &attempt, &run, generation);
		g_free(attempt.retry_after);
		if (r == 0) {
			*ret_reply = attempt.reply;
			return 0;
		}
		sbx_http_reply_clear(&attempt.reply);
		if (r < 0)
			return tell_failure(http, call, request, &run, SBX_FAIL_CANCEL, r,
					    "cancelled while the server was busy");
	}
}

static void fire(void *arg)
{
	sbx_cancel_fire(arg);
}

int http_run(struct sbx_http *http, const struct sbx_call *call,
	     const struct sbx_http_request *request, http_sent_fn sent, void *sent_arg,
	     struct sbx_http_reply *ret_reply)
{
	gint64 began_us = g_get_monotonic_time();
	struct sbx_http_reply reply = { 0 };
	struct sbx_call own = *call;
	struct sbx_cancel_hook hook;
	int r;

	/* Whoever is let go of first: the caller, or all. */
	own.cancel = sbx_cancel_new(call->cancel);
	if (own.cancel == NULL)
		return sbx_call_fail(call, sbx_wire_op_name(request->op), -ENOMEM, "out of memory");
	if (sbx_cancel_hook_add(http->ending, &hook, fire, own.cancel) < 0)
		sbx_cancel_fire(own.cancel);
	r = run_request(http, &own, request, sent, sent_arg, &reply);
	sbx_cancel_hook_del(http->ending, &hook);
	sbx_cancel_unref(own.cancel);
	count_request(http, request->op, began_us,
		      r == 0 && reply.status >= 200 && reply.status <= 299);
	if (r == 0)
		*ret_reply = reply;
	return r;
}

int sbx_http_perform(struct sbx_http *http, const struct sbx_call *call,
		     const struct sbx_http_request *request, struct sbx_http_reply *ret_reply)
{
	return http_run(http, call, request, NULL, NULL, ret_reply);
}

void sbx_http_end(struct sbx_http *http)
{
	sbx_cancel_fire(http->ending);
}

void sbx_http_maintain(struct sbx_http *http)
{
	http_pool_expire(http->pool);
}

void sbx_http_stats(struct sbx_http *http, struct sbx_wire_stats *ret_stats)
{
	pthread_mutex_lock(&http->stats_lock);
	*ret_stats = http->stats;
	pthread_mutex_unlock(&http->stats_lock);
	ret_stats->busy = http_lanes_busy(http->lanes);
	ret_stats->idle = http_pool_idle(http->pool);
	ret_stats->detached = http_detacher_count(http->detacher);
}
