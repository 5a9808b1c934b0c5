#include "client/session.h"

#include <errno.h>
#include <string.h>

#include "client/errlog.h"
#include "client/json.h"
#include "client/session_impl.h"
#include "client/task.h"

/* Ask for the session; on 0 *ret_relaid tells whether its tree was laid anew. */
static int session_reattach_once(struct sbx_session *session, bool *ret_relaid)
{
	struct sbx_provider *provider = session->sessions->provider;
	g_autofree char *id = sbx_session_id(session);
	struct sbx_failure failure = { 0 };
	struct sbx_call call = { .stall_timeout_ms = session->sessions->options.timeout_ms,
				 .failure = &failure,
				 .background = true };
	struct sbx_session_ref *ref = g_new0(struct sbx_session_ref, 1);
	bool alive = false, saved = false;
	int r;

	r = provider->ops->reattach(provider, &call, id, &alive, ref);
	if (r == 0 && !alive)
		r = -ESTALE;
	if (r < 0 && r != -ESTALE)
		sbx_errlog_failure(session->errors, "reattach", NULL, r, &failure);
	if (r == 0) {
		pthread_mutex_lock(&session->lock);
		*ret_relaid = strcmp(session->root, ref->root) != 0;
		if (*ret_relaid) {
			g_free(session->root);
			session->root = g_strdup(ref->root);
			session->epoch++;
			saved = true;
		}
		session_saw_locked(session, SBX_SESSION_LIVE);
		pthread_mutex_unlock(&session->lock);
	} else if (failure.token_refused) {
		session_saw(session, SBX_SESSION_DENIED);
	}
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

	r = session_reattach_once(session, &relaid);
	/* A server that is busy archiving says "not alive" for a moment. */
	if (r == -ESTALE && sbx_call_sleep(&mend, 200) == 0)
		r = session_reattach_once(session, &relaid);

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
		r = sbx_task_start(session->sessions->pool, session_revive_run,
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
	pthread_mutex_unlock(&session->lock);
	sbx_wait_end(&wait);
	return r;
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
		sbx_errlog_failure(session->errors, "create", NULL, r, &failure);
		if (failure.maybe_done)
			sbx_errlog_note(session->errors, "create", NULL, r,
					"the answer was lost: a session may be left on the server "
					"to expire");
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
