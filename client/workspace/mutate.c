#include "client/workspace/mutate.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/apply.h"
#include "client/errlog.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/workspace/claims.h"
#include "client/workspace/doubt.h"
#include "client/workspace/freshen.h"
#include "client/workspace/late.h"
#include "client/workspace/names_impl.h"
#include "client/workspace/op.h"
#include "client/workspace/path.h"
#include "client/workspace/runner.h"

/* So that no caller waits long for others: an operation takes the sandbox some milliseconds. */
#define BATCH_OPS_MAX 128
/* More requests under way gain little: what waits goes together in the next. */
#define SENDERS_MAX 4
/* A request that is over sooner than this is not worth another beside it: one of many operations
 * costs the sandbox less than many of one. */
#define BESIDE_AFTER_US (8 * INT64_C(1000))
/* Of a command, beside the operations: the program's text, its name, nonce, tools. */
#define COMMAND_BASE_BYTES (24 * 1024)
#define RETRY_FIRST_MS	   50
#define RETRY_MOST_MS	   1000

enum mutation_state {
	MUTATION_WAITING,
	MUTATION_SENT,
	MUTATION_DONE,
};

struct mutation {
	unsigned int refs;
	enum mutation_state state;
	struct sbx_op *ops;
	struct sbx_op_result *results;
	size_t n_ops;
	size_t command_bytes;
	int64_t timeout_ms;
	bool claims; /* while it is sent: in names->claims */
	int error; /* of the request */
};

static struct mutation *mutation_new(const struct sbx_op *ops, size_t n_ops, int64_t timeout_ms)
{
	struct mutation *mutation = g_new0(struct mutation, 1);

	mutation->refs = 1;
	mutation->ops = sbx_ops_copy(ops, n_ops);
	mutation->results = g_new0(struct sbx_op_result, n_ops);
	mutation->n_ops = n_ops;
	mutation->timeout_ms = timeout_ms;
	/* What stands before the first belongs to another caller. */
	mutation->ops[0].flags &= ~SBX_APPLY_AND;
	for (size_t i = 0; i < n_ops; i++)
		mutation->command_bytes += sbx_op_command_bytes(&ops[i]);
	return mutation;
}

/* The count is protected by names->lock. */
static void mutation_unref_locked(struct mutation *mutation)
{
	if (--mutation->refs > 0)
		return;
	sbx_ops_free(mutation->ops, mutation->n_ops);
	sbx_op_results_clear(mutation->results, mutation->n_ops);
	g_free(mutation->results);
	g_free(mutation);
}

/* Names under way -------------------------------------------------------------------------- */

/* The paths that @op is about: how many. */
static size_t op_paths(const struct sbx_op *op, const char *ret_paths[2])
{
	size_t n = 0;

	if (op->kind == SBX_DO_SWEEP)
		return 0;
	if (op->path)
		ret_paths[n++] = op->path;
	/* A link's text names nothing here. */
	if (op->from && op->kind != SBX_DO_SYMLINK)
		ret_paths[n++] = op->from;
	return n;
}

static void mutation_each_path(const struct mutation *mutation, struct sbx_claims *claims,
			       void (*fn)(struct sbx_claims *claims, const char *path))
{
	for (size_t i = 0; i < mutation->n_ops; i++) {
		const char *paths[2];
		size_t n = op_paths(&mutation->ops[i], paths);

		for (size_t j = 0; j < n; j++)
			fn(claims, paths[j]);
	}
}

static bool mutation_meets(const struct mutation *mutation, const struct sbx_claims *claims)
{
	for (size_t i = 0; i < mutation->n_ops; i++) {
		const char *paths[2];
		size_t n = op_paths(&mutation->ops[i], paths);

		for (size_t j = 0; j < n; j++)
			if (sbx_claims_meet(claims, paths[j]))
				return true;
	}
	return false;
}

static void mutation_claim_locked(struct sbx_names *names, struct mutation *mutation)
{
	mutation_each_path(mutation, names->claims, sbx_claims_add);
	mutation->claims = true;
}

static void mutation_unclaim_locked(struct sbx_names *names, struct mutation *mutation)
{
	if (mutation->claims)
		mutation_each_path(mutation, names->claims, sbx_claims_remove);
	mutation->claims = false;
}

/* What was done ---------------------------------------------------------------------------- */

static bool path_is_ours(const char *path)
{
	return path[0] != '/' && names_path_is_hidden(path);
}

static const struct sbx_apply_path *reply_path(const struct sbx_apply_reply *reply,
					       const char *path)
{
	const struct sbx_apply_path *found =
		path ? sbx_apply_reply_path(reply, names_wire_path(path)) : NULL;

	return found && found->present ? found : NULL;
}

/* Changes of names, in their order. */
static void store_op_locked(struct sbx_names *names, const struct sbx_op *op,
			    const struct sbx_apply_reply *reply, int64_t asked_us, int64_t done_us)
{
	const struct sbx_apply_path *after = reply_path(reply, op->path);

	if (path_is_ours(op->path))
		return;
	switch (op->kind) {
	case SBX_DO_MKDIR:
		if (after && S_ISDIR(after->attr.mode))
			sbx_meta_did_make_dir(names->meta, op->path, &after->attr,
					      names_clock_at_locked(names, asked_us), asked_us,
					      done_us);
		break;
	case SBX_DO_RMDIR:
	case SBX_DO_UNLINK:
		sbx_meta_did_remove(names->meta, op->path, done_us);
		break;
	case SBX_DO_RENAME:
		if (!path_is_ours(op->from))
			sbx_meta_did_rename(names->meta, op->from, op->path, done_us);
		break;
	default:
		break;
	}
}

/* Attributes, as they were when the request was over. */
static void store_paths_locked(struct sbx_names *names, const struct sbx_apply_reply *reply,
			       int64_t asked_us, int64_t done_us)
{
	for (guint i = 0; i < reply->paths->len; i++) {
		const struct sbx_apply_path *found = g_ptr_array_index(reply->paths, i);
		const char *path = strcmp(found->path, ".") == 0 ? "" : found->path;

		if (path[0] == '/' || path_is_ours(path))
			continue;
		if (found->present)
			sbx_meta_did_set(names->meta, path, &found->attr, found->link, asked_us,
					 done_us);
		else
			sbx_meta_did_remove(names->meta, path, done_us);
	}
}

/* The results of @mutation, whose operations begin at @first in @reply. */
static void mutation_take_locked(struct sbx_names *names, struct mutation *mutation, guint first,
				 const struct sbx_apply_reply *reply, int64_t asked_us,
				 int64_t done_us)
{
	for (size_t i = 0; i < mutation->n_ops; i++) {
		const struct sbx_op *op = &mutation->ops[i];
		struct sbx_op_result *result = &mutation->results[i];
		const struct sbx_apply_result *done =
			&g_array_index(reply->results, struct sbx_apply_result, first + i);
		const struct sbx_apply_path *after = reply_path(reply, op->path);

		result->error = -done->error;
		result->in_place = done->in_place;
		result->set_aside = done->set_aside;
		result->proven = done->proven;
		if (after) {
			result->has_attr = true;
			result->attr = after->attr;
			result->link = g_strdup(after->link);
		}
		if (done->error == 0)
			store_op_locked(names, op, reply, asked_us, done_us);
		else if (done->error == EIO && done->text)
			sbx_errlog_note(sbx_session_errors(names->session), "apply", op->path, -EIO,
					done->text);
	}
}

/* It is not known what was done. */
static void mutation_doubt_locked(struct sbx_names *names, const struct mutation *mutation)
{
	for (size_t i = 0; i < mutation->n_ops; i++) {
		const char *paths[2];
		size_t n = op_paths(&mutation->ops[i], paths);

		for (size_t j = 0; j < n; j++)
			sbx_meta_doubt(names->meta, paths[j]);
	}
}

/* Sending ---------------------------------------------------------------------------------- */

/* The directories whose listings @batch changes. */
static GPtrArray *batch_dirs(const GPtrArray *batch)
{
	GPtrArray *dirs = g_ptr_array_new_with_free_func(g_free);

	for (guint i = 0; i < batch->len; i++) {
		const struct mutation *mutation = g_ptr_array_index(batch, i);

		for (size_t j = 0; j < mutation->n_ops; j++) {
			const char *path = mutation->ops[j].path;
			char *dir;

			if (mutation->ops[j].kind == SBX_DO_SWEEP || !path || path_is_ours(path))
				continue;
			dir = sbx_path_parent(path);
			if (dir)
				g_ptr_array_add(dirs, dir);
		}
	}
	return dirs;
}

/*
 * Encode @batch; those at its end that do not fit are left out. *ret_n is how many are in.
 * @survey goes along where there is room; may be NULL. *ret_late: what is voided first (late.h).
 * -E2BIG: not even the first; or what is wrong with the first, -EINVAL, -EOPNOTSUPP, …
 */
static int batch_encode(struct sbx_names *names, const GPtrArray *batch,
			const struct sbx_tools *tools, struct names_flight *survey,
			struct sbx_apply_request **ret_request, GPtrArray **ret_late, guint *ret_n)
{
	struct sbx_program_limits limits;
	const struct mutation *head = g_ptr_array_index(batch, 0);
	guint n = batch->len;

	sbx_names_limits(names, &limits);
	for (;;) {
		struct sbx_apply_request *request =
			sbx_apply_new(tools, &limits, head->ops[0].opid);
		const struct sbx_scan_request *scan;
		g_autoptr(GPtrArray) late = names_late_encode(names->late, request);
		guint i;
		int r = 0;

		if (head->ops[0].opid && head->ops[0].asked_before)
			sbx_apply_asked_before(request);
		for (i = 0; r >= 0 && i < n; i++) {
			const struct mutation *mutation = g_ptr_array_index(batch, i);

			for (size_t j = 0; r >= 0 && j < mutation->n_ops; j++)
				r = sbx_op_add(request, &mutation->ops[j]);
		}
		scan = r >= 0 && survey ? names_survey_encode(survey, tools) : NULL;
		if (scan)
			(void)sbx_apply_survey(request, scan);
		/* What it takes beside the operations shows only when it is sealed. */
		if (r >= 0 && !sbx_apply_argv(request, &r)) {
			r = -E2BIG;
			i = n;
		}
		if (r >= 0) {
			*ret_request = request;
			*ret_late = g_steal_pointer(&late);
			*ret_n = n;
			return 0;
		}
		sbx_apply_free(request);
		/* i - 1 is the one that failed: alone it is its error, else it goes next. */
		if (i <= 1)
			return r;
		n = i - 1;
	}
}

/* Something may have been done of which no answer tells. A server's own error is an answer, that of
 * a gateway before it is none. */
static bool is_lost(const struct sbx_failure *failure)
{
	if (failure->kind == SBX_FAIL_REPLY)
		return failure->maybe_done &&
		       (failure->http_status == 502 || failure->http_status == 504);
	return failure->kind == SBX_FAIL_LOST ||
	       (failure->kind == SBX_FAIL_STALL && failure->maybe_done);
}

int names_mutate_send(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		      struct sbx_apply_request *request, struct sbx_apply_reply **ret_reply,
		      int64_t *ret_asked_us, bool *ret_lost)
{
	int64_t until_us = names_now_us() + timeout_ms * 1000;
	int64_t begun_ms = names_awake_ms();
	int64_t pause_ms = 0;
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	int error = 0;
	int r;

	own.failure = &failure;
	*ret_asked_us = names_now_us();
	*ret_lost = false;
	for (;;) {
		const char *const *argv = sbx_apply_argv(request, &error);
		struct sbx_exec_result result = { 0 };
		int64_t left_ms = (until_us - names_now_us()) / 1000;

		if (!argv)
			return error;
		if (left_ms <= 0)
			return -ETIMEDOUT;
		failure.kind = SBX_FAIL_NONE;
		/* What is sent again has to say so: not by the layers below. */
		r = sbx_names_run(names, &own, left_ms, argv, false, &result);
		if (r == 0) {
			r = sbx_apply_decode(request, result.out, result.out_len, ret_reply);
			if (r < 0 && r != -EINPROGRESS && r != -EUCLEAN)
				r = sbx_names_bad_answer(names, "apply", r, &result);
			sbx_exec_result_clear(&result);
			/* A cut answer would be cut again: the outcome is stored as it is. */
			if (r == -EAGAIN)
				r = -EIO;
			if (r != -EINPROGRESS)
				return r;
		} else if (!is_lost(&failure)) {
			return r;
		}
		*ret_lost = true;
		/* Past that the sandbox may have forgotten the outcome: to ask would be to do. */
		if (names_awake_ms() - begun_ms > SBX_OUTCOME_MS)
			return r == -EINPROGRESS ? -ETIMEDOUT : r;
		if (left_ms <= pause_ms)
			return r == -EINPROGRESS ? -ETIMEDOUT : r;
		if (sbx_call_sleep(call, pause_ms) < 0)
			return -EINTR;
		pause_ms = pause_ms ? MIN(2 * pause_ms, RETRY_MOST_MS) : RETRY_FIRST_MS;
		sbx_apply_asked_before(request);
	}
}

/* The request of the first mutations of @batch is over with @r. @late: sent before them; NULL with
 * an error. */
static void batch_done(struct sbx_names *names, GPtrArray *batch, guint n, int r,
		       const struct sbx_apply_reply *reply, const GPtrArray *late,
		       struct names_flight *survey, int64_t asked_us)
{
	int64_t done_us = names_now_us();
	/* cppcheck-suppress nullPointer ; 0 comes with a reply */
	const struct sbx_scan_reply *seen = r == 0 ? reply->survey : NULL;
	bool steady = true;
	/* cppcheck-suppress nullPointer ; 0 comes with it */
	guint first = r == 0 ? late->len : 0;

	if (r == 0)
		names_late_done(names->late, late, reply);
	if (seen)
		steady = names_saw_clock(names, seen->clock_ns, seen->clock_has_ns, asked_us,
					 done_us);

	pthread_mutex_lock(&names->lock);
	for (guint i = 0; i < n; i++) {
		struct mutation *mutation = g_ptr_array_index(batch, i);

		/* cppcheck-suppress nullPointer ; 0 comes with a reply */
		if (r == 0 && first + mutation->n_ops > reply->results->len)
			r = -EIO;
		if (r == 0)
			mutation_take_locked(names, mutation, first, reply, asked_us, done_us);
		else
			mutation_doubt_locked(names, mutation);
		first += mutation->n_ops;
		/* Who has an id of his own may look for himself what became of it. */
		mutation->error = r == -EUCLEAN && !mutation->ops[0].opid ? -EIO : r;
		mutation->state = MUTATION_DONE;
		mutation_unclaim_locked(names, mutation);
	}
	if (r == 0)
		store_paths_locked(names, reply, asked_us, done_us);
	if (seen)
		names_survey_land_locked(survey, seen, asked_us, done_us, steady);
	for (guint i = 0; i < n; i++)
		mutation_unref_locked(g_ptr_array_index(batch, i));
	g_ptr_array_remove_range(batch, 0, n);
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
}

/* The mutations that go next, marked as sent: the first that wait, less those that meet what is
 * under way or what has to wait before them. */
static void batch_take_locked(struct sbx_names *names, GPtrArray *batch)
{
	size_t room = names->limits.command_bytes -
		      MIN(names->limits.command_bytes / 2, COMMAND_BASE_BYTES);
	struct sbx_claims *passed = sbx_claims_new();
	size_t n_ops = 0;
	GList *next;

	for (GList *link = names->waiting.head; link; link = next) {
		struct mutation *mutation = link->data;

		next = link->next;
		if (mutation_meets(mutation, names->claims) || mutation_meets(mutation, passed)) {
			mutation_each_path(mutation, passed, sbx_claims_add);
			continue;
		}
		if (batch->len > 0 && (mutation->ops[0].opid || mutation->command_bytes > room ||
				       n_ops + mutation->n_ops > BATCH_OPS_MAX))
			break;
		g_queue_delete_link(&names->waiting, link);
		mutation->state = MUTATION_SENT;
		g_ptr_array_add(batch, mutation);
		n_ops += mutation->n_ops;
		room -= MIN(room, mutation->command_bytes);
		/* One with an id of its own goes alone. */
		if (mutation->ops[0].opid)
			break;
	}
	/* Those of one batch may meet: they are done in order. */
	for (guint i = 0; i < batch->len; i++)
		mutation_claim_locked(names, g_ptr_array_index(batch, i));
	sbx_claims_free(passed);
}

/* What was taken and not sent waits again, before all others. */
static void batch_put_back(struct sbx_names *names, GPtrArray *batch)
{
	pthread_mutex_lock(&names->lock);
	for (guint i = batch->len; i > 0; i--) {
		struct mutation *mutation = g_ptr_array_index(batch, i - 1);

		mutation_unclaim_locked(names, mutation);
		/* Nobody else holds it: its caller has left. */
		if (mutation->refs == 1) {
			mutation_unref_locked(mutation);
			continue;
		}
		mutation->state = MUTATION_WAITING;
		g_queue_push_head(&names->waiting, mutation);
	}
	g_ptr_array_set_size(batch, 0);
	pthread_mutex_unlock(&names->lock);
}

/* Failures of a request are told as the first mutation's. */
static void call_is_about(struct sbx_call *call, const struct mutation *mutation)
{
	call->operation = sbx_op_word(mutation->ops[0].kind);
	call->path = mutation->ops[0].path;
}

/* @batch's request was sent, and nobody will ask for its outcome, who has not an id of his own. */
static void batch_is_late(struct sbx_names *names, const GPtrArray *batch,
			  const struct sbx_apply_request *request)
{
	const struct mutation *head = g_ptr_array_index(batch, 0);

	if (!head->ops[0].opid)
		sbx_names_give_up(names, sbx_apply_opid(request));
}

/* Send what is in @batch, as far as it fits one request. */
static void batch_send(struct sbx_names *names, GPtrArray *batch)
{
	int64_t timeout_ms = 0;
	struct sbx_call call = names_own_call(names, 0);
	const struct sbx_probe_reply *probe = NULL;
	struct sbx_apply_request *request = NULL;
	struct sbx_apply_reply *reply = NULL;
	g_autoptr(GPtrArray) dirs = batch_dirs(batch);
	g_autoptr(GPtrArray) late = NULL;
	struct names_flight *survey = NULL;
	int64_t asked_us = names_now_us();
	bool lost = false;
	guint n = 1;
	int r;

	for (guint i = 0; i < batch->len; i++) {
		const struct mutation *mutation = g_ptr_array_index(batch, i);

		timeout_ms = MAX(timeout_ms, mutation->timeout_ms);
	}
	call.stall_timeout_ms = timeout_ms;
	call_is_about(&call, g_ptr_array_index(batch, 0));
	r = sbx_names_probe(names, &call, &probe);
	if (r < 0)
		n = batch->len;
	if (r == 0) {
		survey = names_survey_plan(names, dirs);
		r = batch_encode(names, batch, &probe->tools, survey, &request, &late, &n);
	}
	if (r == 0) {
		r = names_mutate_send(names, &call, timeout_ms, request, &reply, &asked_us, &lost);
		if (r < 0 && lost)
			batch_is_late(names, batch, request);
		/* Too long for this sandbox, as has been learnt: nothing was done. One that does
		 * not fit by itself is found out when it is encoded again. */
		if (r == -E2BIG)
			n = 0;
	}
	if (n > 0)
		batch_done(names, batch, n, r, reply, late, survey, asked_us);
	batch_put_back(names, batch);
	sbx_apply_reply_free(reply);
	sbx_apply_free(request);
	names_survey_free(survey);
}

static int mutate_run(void *arg);

/* Have the queue looked at: by a task more, unless one is about to, or so many are at work that the
 * next of them to be done will. Caller holds names->lock. */
static int sender_start_locked(struct sbx_names *names)
{
	int r;

	if (names->n_holding > 0 || names->n_senders >= SENDERS_MAX)
		return 0;
	r = names_task_start_locked(names, mutate_run, names);
	if (r == 0) {
		names->n_senders++;
		names->n_holding++;
	}
	return names->n_senders > 0 ? 0 : r;
}

/* The next batch, when it is time for it; empty: there is nothing that could go now. The caller is
 * counted in n_holding, and is not afterwards. */
static void batch_wait_locked(struct sbx_names *names, GPtrArray *batch)
{
	while (names->n_sent > 0 && names_now_us() < names->sent_us + BESIDE_AFTER_US) {
		int64_t until_us = names->sent_us + BESIDE_AFTER_US;
		struct timespec until = {
			.tv_sec = until_us / 1000000,
			.tv_nsec = until_us % 1000000 * 1000,
		};

		(void)pthread_cond_timedwait(&names->changed, &names->lock, &until);
	}
	names->n_holding--;
	batch_take_locked(names, batch);
	if (batch->len == 0)
		return;
	names->n_sent++;
	names->sent_us = names_now_us();
	if (names->waiting.length > 0)
		(void)sender_start_locked(names);
}

static int mutate_run(void *arg)
{
	struct sbx_names *names = arg;
	GPtrArray *batch = g_ptr_array_new();

	pthread_mutex_lock(&names->lock);
	for (;;) {
		batch_wait_locked(names, batch);
		if (batch->len == 0)
			break;
		pthread_mutex_unlock(&names->lock);
		batch_send(names, batch);
		pthread_mutex_lock(&names->lock);
		names->n_sent--;
		names->n_holding++;
	}
	names->n_senders--;
	pthread_mutex_unlock(&names->lock);
	g_ptr_array_unref(batch);
	names_task_end(names);
	return 0;
}

/* Asking ----------------------------------------------------------------------------------- */

/* Waits, and passes on to who waits for the caller that something gets on. */
static int mutation_wait_locked(struct sbx_names *names, struct sbx_wait *wait,
				const struct sbx_call *call)
{
	int64_t moved_ms = names->moved_ms;
	int r = sbx_wait_moving(wait, &names->moved_ms);

	if (call->moved && names->moved_ms != moved_ms) {
		pthread_mutex_unlock(&names->lock);
		call->moved(call->moved_arg);
		pthread_mutex_lock(&names->lock);
	}
	return r;
}

int sbx_names_apply(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		    const struct sbx_op *ops, size_t n_ops, struct sbx_op_result *ret_results)
{
	struct mutation *mutation;
	struct sbx_call own = *call;
	struct sbx_wait wait;
	int r;

	if (!sbx_names_has_exec(names))
		return -EOPNOTSUPP;
	sbx_session_changes(names->session);
	own.stall_timeout_ms = NAMES_WAIT_MS(timeout_ms);
	r = sbx_wait_begin(&wait, &own, &names->changed, &names->lock);
	if (r < 0)
		return r;
	mutation = mutation_new(ops, n_ops, timeout_ms);
	pthread_mutex_lock(&names->lock);
	mutation->refs++; /* the queue's */
	g_queue_push_tail(&names->waiting, mutation);
	r = sender_start_locked(names);
	while (r == 0 && mutation->state != MUTATION_DONE)
		r = mutation_wait_locked(names, &wait, call);
	if (mutation->state == MUTATION_DONE)
		r = mutation->error;
	else if (mutation->state == MUTATION_WAITING && g_queue_remove(&names->waiting, mutation))
		mutation_unref_locked(mutation);
	if (mutation->state == MUTATION_DONE && r == 0) {
		memcpy(ret_results, mutation->results, n_ops * sizeof(*ret_results));
		memset(mutation->results, 0, n_ops * sizeof(*ret_results));
	}
	mutation_unref_locked(mutation);
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	return r;
}

int sbx_names_apply_aside(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
			  const struct sbx_op *ops, size_t n_ops, struct sbx_op_result *ret_results)
{
	const struct sbx_probe_reply *probe = NULL;
	struct sbx_apply_request *request = NULL;
	struct sbx_apply_reply *reply = NULL;
	g_autoptr(GPtrArray) batch = g_ptr_array_new();
	struct sbx_call own = *call;
	g_autoptr(GPtrArray) late = NULL;
	struct mutation *mutation;
	int64_t asked_us = 0;
	bool lost = false;
	guint n = 0;
	int r;

	r = sbx_names_probe(names, call, &probe);
	if (r < 0)
		return r;
	mutation = mutation_new(ops, n_ops, timeout_ms);
	call_is_about(&own, mutation);
	g_ptr_array_add(batch, mutation);
	do {
		g_clear_pointer(&request, sbx_apply_free);
		g_clear_pointer(&late, g_ptr_array_unref);
		r = batch_encode(names, batch, &probe->tools, NULL, &request, &late, &n);
		if (r == 0)
			r = names_mutate_send(names, &own, timeout_ms, request, &reply, &asked_us,
					      &lost);
	} while (r == -E2BIG && request);
	if (r < 0 && lost)
		batch_is_late(names, batch, request);
	pthread_mutex_lock(&names->lock);
	mutation->refs++;
	pthread_mutex_unlock(&names->lock);
	batch_done(names, batch, 1, r, reply, late, NULL, asked_us);
	if (r == 0) {
		r = mutation->error;
		memcpy(ret_results, mutation->results, n_ops * sizeof(*ret_results));
		memset(mutation->results, 0, n_ops * sizeof(*ret_results));
	}
	pthread_mutex_lock(&names->lock);
	mutation_unref_locked(mutation);
	pthread_mutex_unlock(&names->lock);
	sbx_apply_reply_free(reply);
	sbx_apply_free(request);
	return r;
}

void names_mutate_cancel_locked(struct sbx_names *names)
{
	struct mutation *mutation;

	while ((mutation = g_queue_pop_head(&names->waiting))) {
		mutation->error = -ECANCELED;
		mutation->state = MUTATION_DONE;
		mutation_unref_locked(mutation);
	}
	pthread_cond_broadcast(&names->changed);
}
