#include "client/http_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#define DETACHED_MAX	  256
#define DETACHED_BODY_MAX (16 * 1024 * 1024)
#define DETACHED_STACK	  (1024 * 1024)

struct http_detacher {
	struct sbx_http *http;
	pthread_mutex_t lock; /* everything in this file */
	pthread_cond_t changed;
	GPtrArray *running; /* struct detached */
};

enum detached_state {
	DETACHED_STARTING,
	DETACHED_SENT,
	DETACHED_FAILED,
};

struct detached {
	struct http_detacher *detacher;
	struct sbx_cancel *cancel;
	struct sbx_call call;
	struct sbx_failure failure;
	struct sbx_http_request request;
	struct sbx_source body;
	char *bytes;
	sbx_http_done_fn done;
	void *done_arg;
	enum detached_state state;
	int error;
	bool waited_for; /* the starter still looks at it, and frees it */
};

static ssize_t detached_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	const struct detached *detached = arg;
	int64_t left = detached->body.len_bytes - offset;

	if (left < (int64_t)len)
		len = (size_t)left;
	memcpy(buf, detached->bytes + offset, len);
	return (ssize_t)len;
}

static void detached_free(struct detached *detached)
{
	if (detached == NULL)
		return;
	g_free((char *)detached->request.path);
	g_free((char *)detached->request.method);
	g_free((char *)detached->request.content_type);
	g_free(detached->bytes);
	sbx_cancel_unref(detached->cancel);
	g_free(detached);
}

static int copy_body(struct detached *detached, const struct sbx_source *body)
{
	int64_t have = 0;

	if (body == NULL)
		return 0;
	if (body->len_bytes > DETACHED_BODY_MAX)
		return -EFBIG;
	detached->bytes = g_try_malloc((gsize)body->len_bytes + 1);
	if (detached->bytes == NULL)
		return -ENOMEM;
	while (have < body->len_bytes) {
		ssize_t n = body->read_at(body->arg, detached->bytes + have,
					  (size_t)(body->len_bytes - have), have);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		have += n;
	}
	detached->body.len_bytes = body->len_bytes;
	detached->body.read_at = detached_read_at;
	detached->body.arg = detached;
	detached->request.body = &detached->body;
	return 0;
}

static void detached_sent(void *arg)
{
	struct detached *detached = arg;
	struct http_detacher *detacher = detached->detacher;

	pthread_mutex_lock(&detacher->lock);
	detached->state = DETACHED_SENT;
	pthread_cond_broadcast(&detacher->changed);
	pthread_mutex_unlock(&detacher->lock);
}

static void *detached_main(void *arg)
{
	struct detached *detached = arg;
	struct http_detacher *detacher = detached->detacher;
	struct sbx_http_reply reply = { 0 };
	bool was_sent;
	bool owned;
	int r;

	r = http_run(detacher->http, &detached->call, &detached->request, detached_sent, detached,
		     &reply);
	pthread_mutex_lock(&detacher->lock);
	/* A request that was answered is one that was sent, whatever the counters say. */
	was_sent = detached->state == DETACHED_SENT || r == 0;
	pthread_mutex_unlock(&detacher->lock);

	if (was_sent && detached->done != NULL)
		detached->done(detached->done_arg, r == -EINTR ? -ECANCELED : r, &reply);
	sbx_http_reply_clear(&reply);

	pthread_mutex_lock(&detacher->lock);
	detached->state = was_sent ? DETACHED_SENT : DETACHED_FAILED;
	detached->error = r;
	owned = !detached->waited_for;
	g_ptr_array_remove_fast(detacher->running, detached);
	pthread_cond_broadcast(&detacher->changed);
	pthread_mutex_unlock(&detacher->lock);
	if (owned)
		detached_free(detached);
	return NULL;
}

static int start_thread(struct detached *detached)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	r = pthread_attr_init(&attr);
	if (r != 0)
		return -r;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, DETACHED_STACK);
	r = pthread_create(&thread, &attr, detached_main, detached);
	pthread_attr_destroy(&attr);
	return -r;
}

/* Registers and starts; on failure nothing is registered. */
static int detached_launch(struct http_detacher *detacher, struct detached *detached)
{
	int r;

	pthread_mutex_lock(&detacher->lock);
	if (detacher->running->len >= DETACHED_MAX) {
		r = -EAGAIN;
	} else {
		g_ptr_array_add(detacher->running, detached);
		detached->waited_for = true;
		r = start_thread(detached);
		if (r < 0)
			g_ptr_array_remove_fast(detacher->running, detached);
	}
	pthread_mutex_unlock(&detacher->lock);
	return r;
}

static bool still_running_locked(struct http_detacher *detacher, struct detached *detached)
{
	return g_ptr_array_find(detacher->running, detached, NULL);
}

int sbx_http_detach(struct sbx_http *http, const struct sbx_call *call,
		    const struct sbx_http_request *request, sbx_http_done_fn done, void *arg)
{
	const char *operation = sbx_wire_op_name(request->op);
	struct http_detacher *detacher = http->detacher;
	struct sbx_call until_cancel = { .cancel = call->cancel };
	struct detached *detached = g_new0(struct detached, 1);
	struct sbx_wait wait;
	bool given_up = false;
	bool owned;
	int r;

	detached->detacher = detacher;
	detached->request = *request;
	detached->request.path = g_strdup(request->path);
	detached->request.method = g_strdup(request->method);
	detached->request.content_type = g_strdup(request->content_type);
	detached->request.lane = NULL;
	detached->request.body = NULL;
	detached->request.range = NULL;
	detached->request.sink = NULL;
	detached->done = done;
	detached->done_arg = arg;
	detached->cancel = sbx_cancel_new(NULL);
	detached->call.cancel = detached->cancel;
	detached->call.stall_timeout_ms = call->stall_timeout_ms;
	detached->call.deadline_ms = call->deadline_ms;
	detached->call.failure = &detached->failure;
	r = detached->cancel == NULL ? -ENOMEM : copy_body(detached, request->body);
	if (r < 0) {
		detached_free(detached);
		return sbx_call_fail(call, operation, r, "the request could not be copied");
	}

	r = sbx_wait_begin(&wait, &until_cancel, &detacher->changed, &detacher->lock);
	if (r == 0)
		r = detached_launch(detacher, detached);
	if (r < 0) {
		sbx_wait_end(&wait);
		detached_free(detached);
		return sbx_call_fail(call, operation, r, "the request was not started");
	}

	pthread_mutex_lock(&detacher->lock);
	while (detached->state == DETACHED_STARTING) {
		if (!given_up && sbx_wait_for(&wait) == -EINTR) {
			/* Its thread ends now, and knows whether it was sent. */
			given_up = true;
			pthread_mutex_unlock(&detacher->lock);
			sbx_cancel_fire(detached->cancel);
			pthread_mutex_lock(&detacher->lock);
		} else if (given_up) {
			pthread_cond_wait(&detacher->changed, &detacher->lock);
		}
	}
	r = detached->state == DETACHED_SENT ? 0 : detached->error;
	if (r < 0 && call->failure != NULL)
		*call->failure = detached->failure;
	detached->waited_for = false;
	owned = !still_running_locked(detacher, detached);
	pthread_mutex_unlock(&detacher->lock);
	sbx_wait_end(&wait);
	if (owned)
		detached_free(detached);
	return r;
}

struct http_detacher *http_detacher_new(struct sbx_http *http)
{
	struct http_detacher *detacher = g_new0(struct http_detacher, 1);

	detacher->http = http;
	pthread_mutex_init(&detacher->lock, NULL);
	if (sbx_cond_init(&detacher->changed) < 0) {
		pthread_mutex_destroy(&detacher->lock);
		g_free(detacher);
		return NULL;
	}
	detacher->running = g_ptr_array_new();
	return detacher;
}

void http_detacher_free(struct http_detacher *detacher)
{
	if (detacher == NULL)
		return;
	pthread_mutex_lock(&detacher->lock);
	for (guint i = 0; i < detacher->running->len; i++) {
		struct detached *detached = g_ptr_array_index(detacher->running, i);

		/* Its wake function takes no lock of ours: it only wakes libcurl. */
		sbx_cancel_fire(detached->cancel);
	}
	while (detacher->running->len > 0)
		pthread_cond_wait(&detacher->changed, &detacher->lock);
	pthread_mutex_unlock(&detacher->lock);
	g_ptr_array_unref(detacher->running);
	pthread_cond_destroy(&detacher->changed);
	pthread_mutex_destroy(&detacher->lock);
	g_free(detacher);
}

uint32_t http_detacher_count(struct http_detacher *detacher)
{
	uint32_t count;

	pthread_mutex_lock(&detacher->lock);
	count = detacher->running->len;
	pthread_mutex_unlock(&detacher->lock);
	return count;
}
