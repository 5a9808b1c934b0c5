#include "client/session.h"

#include <errno.h>
#include <string.h>

#include "client/errlog.h"
#include "client/json.h"
#include "client/session_impl.h"
#include "client/task.h"

/* A thaw takes as long as the server takes to unpack an archive. */
#define THAW_MS 600000
/* One that takes long is looked at: its answer may have been lost without a word. */
#define LOOK_EVERY_MS	5000
#define LOOK_TIMEOUT_MS 5000
/* How long to wait before a session is looked at again that an earlier thaw may bring. */
#define PAUSE_FIRST_MS 50
#define PAUSE_MOST_MS  1000
#define REATTACH_TRIES 3

/* Is the session awake? Wakes nothing. -EINTR: all requests were ended. */
static int session_is_awake(struct sbx_provider *provider, const char *id, bool *ret_is_awake)
{
	struct sbx_failure failure = { 0 };
	struct sbx_call call = { .stall_timeout_ms = LOOK_TIMEOUT_MS,
				 .deadline_ms = sbx_clock_ms() + LOOK_TIMEOUT_MS,
				 .failure = &failure,
				 .background = true };
	struct sbx_stat st;
	int r = provider->ops->stat(provider, &call, id, ".", &st);

	if (r == -EINTR)
		return r;
	*ret_is_awake = r == 0;
	return 0;
}

/* One request to wake a session, on its way. */
struct reattaching {
	struct sbx_provider *provider;
	const char *id;
	struct sbx_cancel *cancel;
	struct sbx_failure failure;
	struct sbx_session_ref ref;
	bool alive;
	int result;
};

static int reattach_run(void *arg)
{
	struct reattaching *reattaching = arg;
	struct sbx_provider *provider = reattaching->provider;
	struct sbx_call call = { .cancel = reattaching->cancel,
				 .stall_timeout_ms = THAW_MS,
				 .failure = &reattaching->failure,
				 .background = true };

	reattaching->result = provider->ops->reattach(provider, &call, reattaching->id,
						      &reattaching->alive, &reattaching->ref);
	return 0;
}

/* Send it and wait for its end, or until the session is awake without it. Seen awake once its
 * answer may be on the way. */
static int reattach_once(struct sbx_task_pool *pool, struct reattaching *reattaching)
{
	struct sbx_task *task;
	bool is_awake = false, was_awake;
	int r;

	r = sbx_task_start_now(pool, reattach_run, reattaching, NULL, &task);
	if (r < 0)
		return r;
	while (sbx_task_wait(task, NULL, LOOK_EVERY_MS) == -ETIMEDOUT) {
		was_awake = is_awake;
		if (session_is_awake(reattaching->provider, reattaching->id, &is_awake) == 0 &&
		    is_awake && was_awake)
			sbx_cancel_fire(reattaching->cancel);
	}
	sbx_task_unref(task);
	return reattaching->result;
}

/* Wait until the session is awake or @until_ms has come. -EINTR: all requests were ended. */
static int await_earlier(struct sbx_provider *provider, const char *id, int64_t until_ms)
{
	struct sbx_call call = { .deadline_ms = until_ms };
	int64_t pause_ms = PAUSE_FIRST_MS;
	bool is_awake = false;
	int r = 0;

	while (r == 0 && !is_awake && sbx_clock_ms() < until_ms) {
		r = session_is_awake(provider, id, &is_awake);
		if (r == 0 && !is_awake)
			(void)sbx_call_sleep(&call, MIN(pause_ms, until_ms - sbx_clock_ms()));
		pause_ms = MIN(2 * pause_ms, PAUSE_MOST_MS);
	}
	return r;
}

/* Of a request that may have been done: the server itself has said how it ended. */
static bool was_answered(const struct sbx_failure *failure)
{
	return failure->kind == SBX_FAIL_FOREIGN ||
	       (failure->http_status == 500 && failure->code[0] != '\0');
}

int session_reattach(struct sbx_provider *provider, struct sbx_task_pool *pool, const char *id,
		     int64_t *unsure_until_ms, struct sbx_session_ref *ret_ref,
		     struct sbx_failure *ret_failure)
{
	struct reattaching *reattaching = g_new0(struct reattaching, 1);
	int r = 0;

	for (int tries = 0; tries < REATTACH_TRIES; tries++) {
		int64_t begun_ms;

		r = await_earlier(provider, id, *unsure_until_ms);
		if (r < 0)
			break;
		begun_ms = sbx_clock_ms();
		*reattaching = (struct reattaching){ .provider = provider,
						     .id = id,
						     .cancel = sbx_cancel_new(NULL) };
		r = reattach_once(pool, reattaching);
		sbx_cancel_unref(reattaching->cancel);
		if (r == 0) {
			*unsure_until_ms = 0;
			break;
		}
		if (!reattaching->failure.maybe_done)
			break;
		*unsure_until_ms = begun_ms + (was_answered(&reattaching->failure) ? 1 : THAW_MS);
		if (sbx_clock_ms() >= *unsure_until_ms)
			break;
	}
	if (r == 0 && reattaching->alive)
		*ret_ref = reattaching->ref;
	else if (r == 0)
		r = -ESTALE;
	else
		*ret_failure = reattaching->failure;
	g_free(reattaching);
	return r;
}

/* Ask for the session; on 0 *ret_relaid tells whether its tree was laid anew. */
static int session_reattach_known(struct sbx_session *session, bool *ret_relaid)
{
	g_autofree char *id = sbx_session_id(session);
	struct sbx_session_ref *ref = g_new0(struct sbx_session_ref, 1);
	struct sbx_failure failure = { 0 };
	int64_t unsure_until_ms;
	bool saved = false;
	int r;

	pthread_mutex_lock(&session->lock);
	unsure_until_ms = session->unsure_until_ms;
	pthread_mutex_unlock(&session->lock);
	r = session_reattach(session->sessions->provider, session->sessions->pool, id,
			     &unsure_until_ms, ref, &failure);
	if (r < 0 && r != -ESTALE)
		sbx_errlog_failure(session->errors, "reattach", NULL, r, &failure);
	pthread_mutex_lock(&session->lock);
	session->unsure_until_ms = unsure_until_ms;
	if (r == 0) {
		*ret_relaid = strcmp(session->root, ref->root) != 0;
		if (*ret_relaid) {
			g_free(session->root);
			session->root = g_strdup(ref->root);
			session->epoch++;
			saved = true;
		}
		session_saw_locked(session, SBX_SESSION_LIVE);
	} else if (failure.token_refused) {
		session_saw_locked(session, SBX_SESSION_DENIED);
	}
	pthread_mutex_unlock(&session->lock);
	if (saved)
		(void)sbx_session_save(session);
	g_free(ref);
	return r;
}

/* Let those who waited go on. */
static void session_revived_locked(struct sbx_session *session, int result)
{
	session->reviving = false;
	session->revivals++;
	session->revival_result = result;
	pthread_cond_broadcast(&session->changed);
}

static int session_revive_run(void *arg)
{
	struct sbx_session *session = arg;
	struct sbx_call mend = { .stall_timeout_ms = session->sessions->options.timeout_ms,
				 .background = true,
				 .mending = true };
	sbx_session_thawed_fn thawed;
	void *thawed_arg;
	bool relaid = false;
	int r;

	r = session_reattach_known(session, &relaid);
	/* A server that is busy archiving says "not alive" for a moment. */
	if (r == -ESTALE && sbx_call_sleep(&mend, 200) == 0)
		r = session_reattach_known(session, &relaid);

	pthread_mutex_lock(&session->lock);
	thawed = relaid ? session->thawed : NULL;
	thawed_arg = session->thawed_arg;
	session->in_thawed = r == 0 && thawed;
	pthread_mutex_unlock(&session->lock);
	if (r == 0 && thawed)
		thawed(thawed_arg, &mend);
	if (r == -ESTALE)
		sbx_errlog_note(session->errors, "reattach", NULL, r,
				"the server has no such session any more");

	pthread_mutex_lock(&session->lock);
	if (r == -ESTALE) {
		session_saw_locked(session, SBX_SESSION_GONE);
		session->gone_at_ms = sbx_clock_ms();
	}
	session->in_thawed = false;
	session_revived_locked(session, r);
	pthread_mutex_unlock(&session->lock);
	return 0;
}

int session_revive(struct sbx_session *session, const struct sbx_call *call, uint64_t seen)
{
	struct sbx_wait wait;
	int r;

	r = sbx_wait_begin(&wait, call, &session->changed, &session->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&session->lock);
	if (session->revivals == seen && !session->reviving) {
		session->reviving = true;
		session_saw_locked(session, SBX_SESSION_ASLEEP);
		r = sbx_task_start_now(session->sessions->pool, session_revive_run,
				       sbx_session_ref(session), session_put_arg, NULL);
		if (r < 0) {
			session->reviving = false;
			atomic_fetch_sub(&session->refs, 1);
		}
	}
	while (r == 0 && session->revivals == seen)
		r = sbx_wait_for(&wait);
	if (r == 0)
		r = session->revival_result;
	else if (r == -ETIMEDOUT)
		r = session_revival_lasts(call);
	pthread_mutex_unlock(&session->lock);
	sbx_wait_end(&wait);
	return r;
}

int session_revival_lasts(const struct sbx_call *call)
{
	return sbx_call_fail(call, "reattach", -ETIMEDOUT,
			     "the server is still waking the session");
}

int session_make_sure(struct sbx_session *session, const struct sbx_call *call)
{
	bool is_unsure;
	uint64_t seen;

	if (call->mending || call->no_wake)
		return 0;
	pthread_mutex_lock(&session->lock);
	is_unsure = session->unsure_until_ms != 0;
	seen = session->revivals;
	pthread_mutex_unlock(&session->lock);
	return is_unsure ? session_revive(session, call, seen) : 0;
}

int sbx_session_reattach(struct sbx_session *session, const struct sbx_call *call)
{
	uint64_t seen;
	int r;

	pthread_mutex_lock(&session->lock);
	seen = session->revivals;
	pthread_mutex_unlock(&session->lock);
	r = session_revive(session, call, seen);
	if (r == 0)
		sbx_session_refresh(session);
	return r;
}

static bool body_has_root_dir(const char *body)
{
	struct sbx_json *object = NULL;
	const char *root_dir;
	bool has = false;

	if (!body || sbx_json_parse(body, strlen(body), SBX_JSON_VALUES_DEFAULT, &object) < 0)
		return false;
	has = sbx_json_get_string(object, "rootDir", SBX_ROOT_MAX, &root_dir) == 0 && root_dir[0];
	sbx_json_free(object);
	return has;
}

bool sbx_session_has_root_dir(struct sbx_session *session)
{
	bool has;

	pthread_mutex_lock(&session->lock);
	has = body_has_root_dir(session->body);
	pthread_mutex_unlock(&session->lock);
	return has;
}

int sbx_session_renew(struct sbx_session *session, const struct sbx_call *call)
{
	struct sbx_provider *provider = session->sessions->provider;
	struct sbx_session_ref *ref = g_new0(struct sbx_session_ref, 1);
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	g_autofree char *body = NULL;
	struct sbx_wait wait;
	int r;

	own.failure = &failure;
	r = session_check_holder(session, "resume");
	if (r == 0)
		r = sbx_wait_begin(&wait, call, &session->changed, &session->lock);
	if (r < 0) {
		g_free(ref);
		return r;
	}
	pthread_mutex_lock(&session->lock);
	while (r == 0 && session->reviving)
		r = sbx_wait_for(&wait);
	if (r == 0)
		session->reviving = true;
	body = g_strdup(session->body);
	pthread_mutex_unlock(&session->lock);
	sbx_wait_end(&wait);
	if (r < 0) {
		g_free(ref);
		return r;
	}
	r = provider->ops->create(provider, &own, body, ref);
	if (r < 0) {
		pthread_mutex_lock(&session->lock);
		session_revived_locked(session, -ESTALE);
		pthread_mutex_unlock(&session->lock);
		r = session_create_failed(session->errors, NULL, r, &failure);
		g_free(ref);
		return r;
	}
	pthread_mutex_lock(&session->lock);
	g_free(session->old_id);
	g_free(session->old_root);
	session->old_id = session->id;
	session->old_root = session->root;
	session->id = g_strdup(ref->id);
	session->root = g_strdup(ref->root);
	session->epoch++;
	session_saw_locked(session, SBX_SESSION_LIVE);
	pthread_mutex_unlock(&session->lock);
	g_free(ref);
	r = sbx_session_save(session);
	if (r < 0)
		sbx_session_renew_undo(session, call);
	return r;
}

void sbx_session_renew_done(struct sbx_session *session)
{
	pthread_mutex_lock(&session->lock);
	g_clear_pointer(&session->old_id, g_free);
	g_clear_pointer(&session->old_root, g_free);
	session_revived_locked(session, 0);
	pthread_mutex_unlock(&session->lock);
}

void sbx_session_renew_undo(struct sbx_session *session, const struct sbx_call *call)
{
	struct sbx_provider *provider = session->sessions->provider;
	/* What is undone has to go, whoever was interrupted meanwhile. */
	struct sbx_call own = { .stall_timeout_ms = call->stall_timeout_ms };
	g_autofree char *id = NULL;

	pthread_mutex_lock(&session->lock);
	id = session->id;
	session->id = g_steal_pointer(&session->old_id);
	g_free(session->root);
	session->root = g_steal_pointer(&session->old_root);
	session->epoch++;
	session_saw_locked(session, SBX_SESSION_GONE);
	session->gone_at_ms = sbx_clock_ms();
	session_revived_locked(session, -ESTALE);
	pthread_mutex_unlock(&session->lock);
	(void)provider->ops->destroy(provider, &own, id);
	(void)sbx_session_save(session);
}

void sbx_session_on_thaw(struct sbx_session *session, sbx_session_thawed_fn fn, void *arg)
{
	pthread_mutex_lock(&session->lock);
	session->thawed = fn;
	session->thawed_arg = arg;
	while (!fn && session->in_thawed)
		pthread_cond_wait(&session->changed, &session->lock);
	pthread_mutex_unlock(&session->lock);
}
