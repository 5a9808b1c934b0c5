#include "client/workspace/late.h"

#include <errno.h>
#include <string.h>

#include "client/apply.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/mutate.h"
#include "client/workspace/names_impl.h"

/* As long as the sandbox keeps outcomes. */
#define KEEP_MS (10 * 60 * INT64_C(1000))
/* In one request. */
#define VOIDS_MAX 64
/* How long after the first a request is made for it, and at most between two that failed. */
#define SETTLE_FIRST_MS 500
#define SETTLE_MOST_MS	8000

struct late_request {
	char opid[SBX_OPID_CHARS + 1];
	int64_t since_ms; /* names_awake_ms() */
};

struct names_late {
	pthread_mutex_t lock;
	unsigned int refs; /* the names', and that of the task that waits */
	struct sbx_names *names; /* NULL: they are about to go */
	GArray *requests; /* struct late_request, the oldest first */
	bool waits; /* a task, for its time to come */
	int64_t pause_ms;
};

struct names_late *names_late_new(struct sbx_names *names)
{
	struct names_late *late = g_new0(struct names_late, 1);

	pthread_mutex_init(&late->lock, NULL);
	late->refs = 1;
	late->names = names;
	late->requests = g_array_new(FALSE, FALSE, sizeof(struct late_request));
	return late;
}

static void late_unref(struct names_late *late)
{
	bool last;

	pthread_mutex_lock(&late->lock);
	last = --late->refs == 0;
	pthread_mutex_unlock(&late->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&late->lock);
	g_array_unref(late->requests);
	g_free(late);
}

void names_late_stop(struct names_late *late)
{
	pthread_mutex_lock(&late->lock);
	late->names = NULL;
	pthread_mutex_unlock(&late->lock);
}

void names_late_free(struct names_late *late)
{
	late_unref(late);
}

/* Forgets those that are too old. */
static bool late_any_locked(struct names_late *late)
{
	int64_t now_ms = names_awake_ms();

	while (late->requests->len > 0 &&
	       g_array_index(late->requests, struct late_request, 0).since_ms + KEEP_MS < now_ms)
		g_array_remove_index(late->requests, 0);
	return late->requests->len > 0;
}

GPtrArray *names_late_encode(struct names_late *late, struct sbx_apply_request *req)
{
	GPtrArray *opids = g_ptr_array_new_with_free_func(g_free);

	pthread_mutex_lock(&late->lock);
	for (guint i = 0; late_any_locked(late) && i < MIN(late->requests->len, VOIDS_MAX); i++) {
		const char *opid = g_array_index(late->requests, struct late_request, i).opid;

		if (sbx_apply_void(req, opid, 0) < 0)
			break;
		g_ptr_array_add(opids, g_strdup(opid));
	}
	pthread_mutex_unlock(&late->lock);
	return opids;
}

static void late_forget_locked(struct names_late *late, const char *opid)
{
	for (guint i = 0; i < late->requests->len; i++) {
		if (strcmp(g_array_index(late->requests, struct late_request, i).opid, opid) == 0) {
			g_array_remove_index(late->requests, i);
			return;
		}
	}
}

void names_late_done(struct names_late *late, const GPtrArray *opids,
		     const struct sbx_apply_reply *reply)
{
	pthread_mutex_lock(&late->lock);
	for (guint i = 0; i < opids->len && i < reply->results->len; i++) {
		/* Where nothing can be kept there, nothing can be voided. */
		if (g_array_index(reply->results, struct sbx_apply_result, i).error != EBUSY)
			late_forget_locked(late, opids->pdata[i]);
	}
	pthread_mutex_unlock(&late->lock);
}

/* A request for nothing else. */
static void late_settle(struct names_late *late, struct sbx_names *names)
{
	int64_t timeout_ms = sbx_session_options(names->session)->mutation_timeout_ms;
	struct sbx_call call = names_own_call(names, timeout_ms);
	const struct sbx_probe_reply *probe = NULL;
	struct sbx_apply_request *request = NULL;
	struct sbx_apply_reply *reply = NULL;
	struct sbx_program_limits limits;
	GPtrArray *opids = NULL;
	int64_t asked_us;
	bool lost;

	/* Nobody's use of the session, and one that sleeps does nothing late. */
	call.background = true;
	call.no_wake = true;
	if (sbx_names_probe(names, &call, &probe) < 0)
		return;
	sbx_names_limits(names, &limits);
	request = sbx_apply_new(&probe->tools, &limits, NULL);
	opids = names_late_encode(late, request);
	if (opids->len > 0 &&
	    names_mutate_send(names, &call, timeout_ms, request, &reply, &asked_us, &lost) == 0)
		names_late_done(late, opids, reply);
	g_ptr_array_unref(opids);
	sbx_apply_reply_free(reply);
	sbx_apply_free(request);
}

static int late_run(void *arg);

static void late_wait_locked(struct names_late *late)
{
	if (late->waits || !late->names)
		return;
	late->waits = sbx_task_start_after(late->names->pool, late->pause_ms, late_run, late, NULL,
					   NULL) == 0;
	late->refs += late->waits;
}

static int late_run(void *arg)
{
	struct names_late *late = arg;
	struct sbx_names *names;

	pthread_mutex_lock(&late->lock);
	late->waits = false;
	names = late_any_locked(late) ? late->names : NULL;
	if (names)
		names_task_begin(names);
	pthread_mutex_unlock(&late->lock);
	if (names) {
		late_settle(late, names);
		pthread_mutex_lock(&late->lock);
		late->pause_ms = MIN(2 * late->pause_ms, SETTLE_MOST_MS);
		if (late_any_locked(late))
			late_wait_locked(late);
		pthread_mutex_unlock(&late->lock);
		names_task_end(names);
	}
	late_unref(late);
	return 0;
}

void sbx_names_give_up(struct sbx_names *names, const char *opid)
{
	struct names_late *late = names->late;
	struct late_request request = { .since_ms = names_awake_ms() };

	g_strlcpy(request.opid, opid, sizeof(request.opid));
	pthread_mutex_lock(&late->lock);
	g_array_append_val(late->requests, request);
	if (!late->waits)
		late->pause_ms = SETTLE_FIRST_MS;
	late_wait_locked(late);
	pthread_mutex_unlock(&late->lock);
}
