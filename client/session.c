#include "client/session.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/errlog.h"
#include "client/json.h"
#include "client/session_impl.h"
#include "client/statedir.h"
#include "client/task.h"

/* A session that is gone is asked for again after this time. */
#define GONE_RECHECK_MS 3000
/* A new probe is begun this long after one that failed. */
#define PROBE_PAUSE_MS 1000
/* Callers wait for a probe only in its first second. */
#define PROBE_WAIT_MS 1000
/* What hangs with the first may not hang the next; one that has much to do is slow, and not away:
 * so each has twice as long as the one before it. */
#define PROBE_FIRST_MS 1000
#define PROBE_MOST_MS  5000
/* A call that failed after less than this did not stand still: it was short of time. */
#define DOWN_AFTER_MS(timeout_ms) ((timeout_ms)*9 / 10)

const char *sbx_session_state_name(enum sbx_session_state state)
{
	static const char *const names[] = {
		[SBX_SESSION_UNKNOWN] = "unknown", [SBX_SESSION_LIVE] = "live",
		[SBX_SESSION_ASLEEP] = "asleep",   [SBX_SESSION_GONE] = "gone",
		[SBX_SESSION_DENIED] = "denied",   [SBX_SESSION_UNREACHABLE] = "unreachable",
	};

	return names[state];
}

struct sbx_session *sbx_session_new(struct sbx_sessions *sessions, const char *name, const char *id,
				    const char *root, const char *body, const char *tag,
				    int *ret_err)
{
	g_autofree char *relative = g_strdup_printf("sessions/%s", name);
	g_autofree char *spool = g_strdup_printf("%s/spool", relative);
	struct sbx_session *session;
	int dirfd, spool_dirfd;

	dirfd = sbx_statedir_opendir(sessions->dir, relative);
	spool_dirfd = dirfd < 0 ? dirfd : sbx_statedir_opendir(sessions->dir, spool);
	if (spool_dirfd < 0) {
		if (dirfd >= 0)
			close(dirfd);
		*ret_err = spool_dirfd;
		return NULL;
	}
	session = g_new0(struct sbx_session, 1);
	atomic_init(&session->refs, 1);
	session->sessions = sessions;
	session->name = g_strdup(name);
	session->id = g_strdup(id);
	session->root = g_strdup(root);
	session->body = g_strdup(body);
	session->tag = g_strdup(tag ? tag : id);
	session->errors = sbx_errlog_new();
	session->dirfd = dirfd;
	session->spool_dirfd = spool_dirfd;
	session->lock_fd = -1;
	session->epoch = 1;
	pthread_mutex_init(&session->lock, NULL);
	sbx_cond_init(&session->changed);
	return session;
}

struct sbx_session *sbx_session_ref(struct sbx_session *session)
{
	atomic_fetch_add(&session->refs, 1);
	return session;
}

void sbx_session_unref(struct sbx_session *session)
{
	if (!session || atomic_fetch_sub(&session->refs, 1) != 1)
		return;
	if (session->lock_fd >= 0)
		close(session->lock_fd);
	close(session->dirfd);
	close(session->spool_dirfd);
	sbx_errlog_free(session->errors);
	pthread_cond_destroy(&session->changed);
	pthread_mutex_destroy(&session->lock);
	g_free(session->name);
	g_free(session->id);
	g_free(session->root);
	g_free(session->body);
	g_free(session->tag);
	g_free(session->snapshot);
	g_free(session->snapshot_created);
	g_free(session->old_id);
	g_free(session->old_root);
	g_free(session->note);
	g_free(session);
}

static char *session_state_json_locked(const struct sbx_session *session)
{
	struct sbx_json *object = sbx_json_new_object();
	char *printed, *text;

	sbx_json_set_string(object, "backend", "remote");
	sbx_json_set_string(object, "ref", session->id);
	if (session->snapshot) {
		struct sbx_json *snapshot = sbx_json_new_object();
		struct sbx_json *metadata = sbx_json_new_object();

		sbx_json_set_string(snapshot, "id", session->id);
		sbx_json_set_string(snapshot, "backend", "remote-tar");
		sbx_json_set_string(snapshot, "ref", session->snapshot);
		sbx_json_set_string(snapshot, "createdAt", session->snapshot_created);
		sbx_json_set_string(metadata, "remoteSessionId", session->id);
		sbx_json_set_node(snapshot, "metadata", metadata);
		sbx_json_set_node(object, "snapshot", snapshot);
	}
	printed = sbx_json_print(object, false);
	text = g_strdup_printf("%s\n", printed ? printed : "{}");
	free(printed);
	sbx_json_free(object);
	return text;
}

char *sbx_session_state_json(struct sbx_session *session)
{
	char *text;

	pthread_mutex_lock(&session->lock);
	text = session_state_json_locked(session);
	pthread_mutex_unlock(&session->lock);
	return text;
}

int sbx_session_save(struct sbx_session *session)
{
	struct sbx_json *object = sbx_json_new_object();
	g_autofree char *state = NULL;
	char *text;
	int r;

	/* Its holder writes what is known of it. */
	if (session_is_held(session)) {
		sbx_json_free(object);
		return 0;
	}
	pthread_mutex_lock(&session->lock);
	sbx_json_set_int(object, "version", 1);
	sbx_json_set_string(object, "id", session->id);
	sbx_json_set_string(object, "root", session->root);
	sbx_json_set_string(object, "tag", session->tag);
	if (session->body)
		sbx_json_set_string(object, "body", session->body);
	if (session->snapshot) {
		sbx_json_set_string(object, "snapshot", session->snapshot);
		sbx_json_set_string(object, "snapshotCreated", session->snapshot_created);
	}
	state = session_state_json_locked(session);
	pthread_mutex_unlock(&session->lock);

	text = sbx_json_print(object, true);
	sbx_json_free(object);
	if (!text)
		return -ENOMEM;
	r = sbx_statedir_replace(session->dirfd, "session.json", text, strlen(text));
	if (r == 0)
		r = sbx_statedir_replace(session->dirfd, "state.json", state, strlen(state));
	free(text);
	return r;
}

/* What is seen -------------------------------------------------------------------------------- */

void session_saw_locked(struct sbx_session *session, enum sbx_session_state state)
{
	session->state = state;
	if (state == SBX_SESSION_LIVE) {
		session->seen_ms = g_get_real_time() / 1000;
		session->down = session->down_exec = false;
	}
}

void session_saw(struct sbx_session *session, enum sbx_session_state state)
{
	pthread_mutex_lock(&session->lock);
	session_saw_locked(session, state);
	pthread_mutex_unlock(&session->lock);
}

/* Admission ----------------------------------------------------------------------------------- */

/* The least that there is of what has timed out. */
static int probe_ask(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     bool exec)
{
	static const char *const argv[] = { "true", NULL };
	const struct sbx_exec_spec spec = { .argv = argv, .repeatable = true };
	struct sbx_exec_result result = { 0 };
	struct sbx_stat st;
	int r;

	if (!exec)
		return provider->ops->stat(provider, call, id, ".", &st);
	r = provider->ops->exec(provider, call, id, &spec, &result);
	sbx_exec_result_clear(&result);
	return r;
}

static int session_probe_run(void *arg)
{
	struct sbx_session *session = arg;
	g_autofree char *id = sbx_session_id(session);
	struct sbx_failure failure = { 0 };
	struct sbx_call call = { .failure = &failure, .background = true };
	int64_t most_ms = MAX(PROBE_MOST_MS, session->sessions->options.mutation_timeout_ms);
	bool exec;
	int r;

	pthread_mutex_lock(&session->lock);
	exec = session->down_exec;
	call.stall_timeout_ms = session->probe_ms;
	session->probe_ms = MIN(2 * session->probe_ms, most_ms);
	pthread_mutex_unlock(&session->lock);
	call.deadline_ms = sbx_clock_ms() + call.stall_timeout_ms;
	r = probe_ask(session->sessions->provider, &call, id, exec);

	pthread_mutex_lock(&session->lock);
	session->probing = false;
	session->probe_ended_ms = sbx_clock_ms();
	/* Any answer proves that the server is there again, but that it has no time; unless
	 * something else has timed out meanwhile. */
	if ((r == 0 || (failure.kind == SBX_FAIL_REPLY && failure.http_status != 503)) &&
	    (exec || !session->down_exec))
		session->down = session->down_exec = false;
	pthread_cond_broadcast(&session->changed);
	pthread_mutex_unlock(&session->lock);
	return 0;
}

void session_put_arg(void *arg)
{
	sbx_session_unref(arg);
}

/* Begin a probe where one is due. */
static void session_probe_locked(struct sbx_session *session)
{
	int64_t now_ms = sbx_clock_ms();

	if (session->probing || now_ms < session->probe_ended_ms + PROBE_PAUSE_MS)
		return;
	session->probing = true;
	session->probe_begun_ms = now_ms;
	if (sbx_task_start_now(session->sessions->pool, session_probe_run, sbx_session_ref(session),
			       session_put_arg, NULL) < 0) {
		session->probing = false;
		atomic_fetch_sub(&session->refs, 1);
	}
}

/* May a request go out now? Waits for a revival that is being mended and briefly for a probe. */
static int session_admit(struct sbx_session *session, const struct sbx_call *call)
{
	struct sbx_call bounded = *call;
	struct sbx_wait wait;
	int r;

	if (!call->background)
		atomic_store(&session->last_use_ms, g_get_real_time() / 1000);
	if (call->mending)
		return sbx_call_check(call);
	r = sbx_wait_begin(&wait, &bounded, &session->changed, &session->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&session->lock);
	while (session->reviving && r == 0)
		r = sbx_wait_for(&wait);
	if (r == -ETIMEDOUT)
		r = session_revival_lasts(call);
	if (r == 0 && session->state == SBX_SESSION_GONE &&
	    sbx_clock_ms() < session->gone_at_ms + GONE_RECHECK_MS)
		r = -ESTALE;
	if (r == 0 && session->down) {
		session_probe_locked(session);
		while (r == 0 && session->down && session->probing) {
			int64_t until_ms = session->probe_begun_ms + PROBE_WAIT_MS;

			if (sbx_clock_ms() >= until_ms)
				break;
			if (!wait.until_ms || until_ms < wait.until_ms)
				wait.until_ms = until_ms;
			r = sbx_wait_for(&wait);
			if (r == -ETIMEDOUT)
				r = 0;
		}
		if (r == 0 && session->down)
			r = -EHOSTUNREACH;
	}
	pthread_mutex_unlock(&session->lock);
	sbx_wait_end(&wait);
	if (r == -EHOSTUNREACH)
		sbx_call_fail(call, "admit", r, "the server did not answer the last call");
	return r;
}

int sbx_session_set_snapshot(struct sbx_session *session, const char *path, const char *created)
{
	pthread_mutex_lock(&session->lock);
	g_free(session->snapshot);
	g_free(session->snapshot_created);
	session->snapshot = g_strdup(path);
	session->snapshot_created = g_strdup(created);
	pthread_mutex_unlock(&session->lock);
	return sbx_session_save(session);
}

void sbx_session_refresh(struct sbx_session *session)
{
	pthread_mutex_lock(&session->lock);
	session->epoch++;
	pthread_mutex_unlock(&session->lock);
}

void sbx_session_set_note(struct sbx_session *session, const char *note)
{
	pthread_mutex_lock(&session->lock);
	g_free(session->note);
	session->note = g_strdup(note);
	pthread_mutex_unlock(&session->lock);
}

/* Requests ------------------------------------------------------------------------------------ */

/* One request as the provider's slot takes it. */
struct session_request {
	const char *op;
	const char *path;
	int (*send)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    void *arg);
	void *arg;
};

/* The server was waited for, as long as a call may wait, and nothing came of it. */
static bool session_waited_in_vain(const struct sbx_session *session,
				   const struct sbx_failure *failure, int64_t took_ms)
{
	int64_t timeout_ms = session->sessions->options.mutation_timeout_ms;

	switch (failure->kind) {
	case SBX_FAIL_STALL:
	case SBX_FAIL_CONNECT:
	case SBX_FAIL_RESOLVE:
	case SBX_FAIL_TLS:
		return took_ms >= DOWN_AFTER_MS(timeout_ms);
	case SBX_FAIL_REPLY:
		/* Asked again after waits that double, none of which goes beyond the time-out. */
		return failure->http_status == 503 && took_ms >= timeout_ms / 3;
	default:
		return false;
	}
}

static void session_learn(struct sbx_session *session, bool exec, int result,
			  const struct sbx_failure *failure, int64_t took_ms)
{
	bool in_vain = result < 0 && session_waited_in_vain(session, failure, took_ms);
	bool answered = result == 0 || (failure->kind == SBX_FAIL_REPLY &&
					!failure->session_not_found && !failure->token_refused);

	pthread_mutex_lock(&session->lock);
	if (in_vain) {
		/* Asked at once: a server that is only slow is found again before anybody is
		 * refused. */
		session_saw_locked(session, SBX_SESSION_UNREACHABLE);
		if (!session->down)
			session->probe_ms = PROBE_FIRST_MS;
		session->down = true;
		session->down_exec |= exec;
		session->probe_ended_ms = 0;
		session_probe_locked(session);
	} else if (answered) {
		if (exec || !session->down_exec)
			session_saw_locked(session, SBX_SESSION_LIVE);
	} else if (failure->token_refused) {
		session_saw_locked(session, SBX_SESSION_DENIED);
	} else if (failure->kind == SBX_FAIL_CONNECT || failure->kind == SBX_FAIL_RESOLVE ||
		   failure->kind == SBX_FAIL_TLS) {
		session_saw_locked(session, SBX_SESSION_UNREACHABLE);
	}
	pthread_mutex_unlock(&session->lock);
}

static int send_exec(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     void *arg);

static int session_perform(struct sbx_session *session, const struct sbx_call *call,
			   const struct session_request *request)
{
	struct sbx_provider *provider = session->sessions->provider;
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	int r;

	own.failure = &failure;
	for (int attempt = 0;; attempt++) {
		g_autofree char *id = NULL;
		int64_t begun_ms;
		uint64_t seen;

		r = session_admit(session, &own);
		if (r == 0)
			r = session_make_sure(session, &own);
		if (r < 0)
			break;
		pthread_mutex_lock(&session->lock);
		id = g_strdup(session->id);
		seen = session->revivals;
		pthread_mutex_unlock(&session->lock);

		memset(&failure, 0, sizeof(failure));
		begun_ms = sbx_clock_ms();
		r = request->send(provider, &own, id, request->arg);
		session_learn(session, request->send == send_exec, r, &failure,
			      sbx_clock_ms() - begun_ms);
		if (r == 0 || !failure.session_not_found || attempt == 2)
			break;
		if (call->no_wake) {
			session_saw(session, SBX_SESSION_ASLEEP);
			r = -ESTALE;
			break;
		}
		/* Archived, or gone. What asked while it was being mended can't wait for itself. */
		r = call->mending ? -ESTALE : session_revive(session, &own, seen);
		if (r < 0)
			break;
	}
	if (r < 0) {
		if (call->failure)
			*call->failure = failure;
		if (!sbx_errno_is_ordinary(r) && !(call->no_wake && failure.session_not_found))
			sbx_errlog_failure(
				session->errors, call->operation ? call->operation : request->op,
				call->operation ? call->path : request->path, r, &failure);
	}
	return r;
}

struct get_arg {
	const char *path;
	int64_t offset;
	int64_t len;
	const struct sbx_sink *sink;
};

static int send_get(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    void *arg)
{
	const struct get_arg *a = arg;

	return provider->ops->get(provider, call, id, a->path, a->offset, a->len, a->sink);
}

int sbx_session_get(struct sbx_session *session, const struct sbx_call *call, const char *path,
		    int64_t offset, int64_t len, const struct sbx_sink *sink)
{
	struct get_arg arg = { path, offset, len, sink };

	return session_perform(session, call,
			       &(struct session_request){ "get", path, send_get, &arg });
}

struct put_arg {
	const char *path;
	const struct sbx_source *source;
};

static int send_put(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    void *arg)
{
	const struct put_arg *a = arg;

	return provider->ops->put(provider, call, id, a->path, a->source);
}

int sbx_session_put(struct sbx_session *session, const struct sbx_call *call, const char *path,
		    const struct sbx_source *source)
{
	struct put_arg arg = { path, source };

	sbx_session_changes(session);
	return session_perform(session, call,
			       &(struct session_request){ "put", path, send_put, &arg });
}

struct stat_arg {
	const char *path;
	struct sbx_stat *ret_stat;
};

static int send_stat(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     void *arg)
{
	const struct stat_arg *a = arg;

	return provider->ops->stat(provider, call, id, a->path, a->ret_stat);
}

int sbx_session_stat(struct sbx_session *session, const struct sbx_call *call, const char *path,
		     struct sbx_stat *ret_stat)
{
	struct stat_arg arg = { path, ret_stat };

	return session_perform(session, call,
			       &(struct session_request){ "stat", path, send_stat, &arg });
}

struct readdir_arg {
	const char *path;
	const struct sbx_dir_sink *sink;
};

static int send_readdir(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			void *arg)
{
	const struct readdir_arg *a = arg;

	return provider->ops->readdir(provider, call, id, a->path, a->sink);
}

int sbx_session_readdir(struct sbx_session *session, const struct sbx_call *call, const char *path,
			const struct sbx_dir_sink *sink)
{
	struct readdir_arg arg = { path, sink };

	return session_perform(session, call,
			       &(struct session_request){ "readdir", path, send_readdir, &arg });
}

struct exec_arg {
	const struct sbx_exec_spec *spec;
	struct sbx_exec_result *ret_result;
	sbx_exec_done_fn done;
	void *done_arg;
};

static int send_exec(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     void *arg)
{
	const struct exec_arg *a = arg;

	return provider->ops->exec(provider, call, id, a->spec, a->ret_result);
}

int sbx_session_exec(struct sbx_session *session, const struct sbx_call *call,
		     const struct sbx_exec_spec *spec, struct sbx_exec_result *ret_result)
{
	struct exec_arg arg = { .spec = spec, .ret_result = ret_result };

	return session_perform(session, call,
			       &(struct session_request){ "exec", NULL, send_exec, &arg });
}

static int send_exec_detached(struct sbx_provider *provider, const struct sbx_call *call,
			      const char *id, void *arg)
{
	const struct exec_arg *a = arg;

	return provider->ops->exec_detached(provider, call, id, a->spec, a->done, a->done_arg);
}

int sbx_session_exec_detached(struct sbx_session *session, const struct sbx_call *call,
			      const struct sbx_exec_spec *spec, sbx_exec_done_fn done, void *arg)
{
	struct exec_arg exec = { .spec = spec, .done = done, .done_arg = arg };

	sbx_session_changes(session);
	return session_perform(
		session, call,
		&(struct session_request){ "exec", NULL, send_exec_detached, &exec });
}

static int send_persist(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			void *arg)
{
	return provider->ops->persist(provider, call, id, arg);
}

int sbx_session_persist(struct sbx_session *session, const struct sbx_call *call,
			const struct sbx_sink *sink)
{
	sbx_session_changes(session);
	return session_perform(
		session, call,
		&(struct session_request){ "persist", NULL, send_persist, (void *)sink });
}

static int send_hydrate(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			void *arg)
{
	return provider->ops->hydrate(provider, call, id, arg);
}

int sbx_session_hydrate(struct sbx_session *session, const struct sbx_call *call,
			const struct sbx_source *source)
{
	sbx_session_changes(session);
	return session_perform(
		session, call,
		&(struct session_request){ "hydrate", NULL, send_hydrate, (void *)source });
}

/* The session's own view ---------------------------------------------------------------------- */

const char *sbx_session_tag(const struct sbx_session *session)
{
	return session->tag;
}

static const char *session_note_locked(const struct sbx_session *session)
{
	switch (session->state) {
	case SBX_SESSION_GONE:
		return "the server has no such session any more; a snapshot is brought back by: "
		       "echo resume > control";
	case SBX_SESSION_DENIED:
		return "the server refuses the token; put a good one into token_file, no remount "
		       "is needed";
	case SBX_SESSION_UNREACHABLE:
		return "the server does not answer; what is written is kept and sent when it does";
	default:
		return session->note;
	}
}

void sbx_session_info(struct sbx_session *session, struct sbx_session_info *ret_info)
{
	pthread_mutex_lock(&session->lock);
	ret_info->name = g_strdup(session->name);
	ret_info->id = g_strdup(session->id);
	ret_info->root = g_strdup(session->root);
	ret_info->state = session->state;
	ret_info->seen_ms = session->seen_ms;
	ret_info->note = g_strdup(session_note_locked(session));
	pthread_mutex_unlock(&session->lock);
}

void sbx_session_info_done(struct sbx_session_info *info)
{
	g_free(info->name);
	g_free(info->id);
	g_free(info->root);
	g_free(info->note);
	memset(info, 0, sizeof(*info));
}

char *sbx_session_name(struct sbx_session *session)
{
	char *name;

	pthread_mutex_lock(&session->lock);
	name = g_strdup(session->name);
	pthread_mutex_unlock(&session->lock);
	return name;
}

char *sbx_session_id(struct sbx_session *session)
{
	char *id;

	pthread_mutex_lock(&session->lock);
	id = g_strdup(session->id);
	pthread_mutex_unlock(&session->lock);
	return id;
}

uint64_t sbx_session_epoch(struct sbx_session *session)
{
	uint64_t epoch;

	pthread_mutex_lock(&session->lock);
	epoch = session->epoch;
	pthread_mutex_unlock(&session->lock);
	return epoch;
}

struct sbx_errlog *sbx_session_errors(struct sbx_session *session)
{
	return session->errors;
}

struct sbx_task_pool *sbx_session_pool(struct sbx_session *session)
{
	return session->sessions->pool;
}

const struct sbx_sessions_options *sbx_session_options(const struct sbx_session *session)
{
	return &session->sessions->options;
}

struct sbx_statedir *sbx_session_statedir(struct sbx_session *session)
{
	return session->sessions->dir;
}

bool sbx_session_is_new(struct sbx_session *session)
{
	return atomic_load(&session->is_new);
}

void sbx_session_changes(struct sbx_session *session)
{
	atomic_store(&session->is_new, false);
}

int64_t sbx_session_last_use_ms(struct sbx_session *session)
{
	return atomic_load(&session->last_use_ms);
}

/* 0: this mount is the holder; -EWOULDBLOCK: another is; else it can't be told. */
static int session_hold(struct sbx_session *session)
{
	int r = 0;

	pthread_mutex_lock(&session->lock);
	if (session->lock_fd < 0)
		r = sbx_statedir_lock(session->dirfd, &session->lock_fd);
	pthread_mutex_unlock(&session->lock);
	return r;
}

bool sbx_session_is_holder(struct sbx_session *session)
{
	return session_hold(session) == 0;
}

bool session_is_held(struct sbx_session *session)
{
	return session_hold(session) == -EWOULDBLOCK;
}

int session_check_holder(struct sbx_session *session, const char *operation)
{
	if (!session_is_held(session))
		return 0;
	sbx_errlog_note(session->errors, operation, NULL, -EBUSY,
			"another mount of this endpoint holds the session");
	return -EBUSY;
}

int sbx_session_spool_dirfd(struct sbx_session *session)
{
	return session->spool_dirfd;
}
