#include "client/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/errlog.h"
#include "client/json.h"
#include "client/localfile.h"
#include "client/name.h"
#include "client/random.h"
#include "client/session_impl.h"
#include "client/statedir.h"
#include "client/task.h"

#define SESSION_FILE_MAX    (1 << 20)
#define SPOOL_SUFFIX	    ".spool"
#define GONE_PREFIX	    ".gone-"
#define GONE_CHARS	    16
#define PROBE_NAME_PAUSE_MS 10000
#define SPOOL_CLOSE_TRIES   3
#define PROBE_MINUTE_MS	    60000

bool sbx_session_name_is_valid(const char *name)
{
	static const char *const ours[] = { "control", "status",    "errors",
					    "stats",   "snapshots", "README.md" };

	if (!sbx_name_valid(name))
		return false;
	for (size_t i = 0; i < G_N_ELEMENTS(ours); i++)
		if (!strcmp(name, ours[i]))
			return false;
	return true;
}

bool sbx_session_name_is_uuid(const char *name)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (strlen(name) != sizeof(form) - 1)
		return false;
	for (size_t i = 0; form[i]; i++)
		if (form[i] == '-' ? name[i] != '-' : !g_ascii_isxdigit(name[i]))
			return false;
	return true;
}

static void session_unref_void(void *session)
{
	sbx_session_unref(session);
}

/* Remembered sessions ------------------------------------------------------------------------- */

/* Called with the lock held, or before anybody else knows of @sessions. */
static int sessions_load_one(struct sbx_sessions *sessions, int sessions_fd, const char *name)
{
	struct sbx_json *object = NULL;
	const char *id, *root, *body = NULL, *tag, *snapshot, *created;
	g_autofree char *text = NULL;
	struct sbx_session *session;
	size_t len;
	int dirfd, r;

	dirfd = openat(sessions_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	r = sbx_statedir_read(dirfd, "session.json", SESSION_FILE_MAX, &text, &len);
	close(dirfd);
	if (r < 0)
		return r;
	r = sbx_json_parse(text, len, SBX_JSON_VALUES_DEFAULT, &object);
	if (r < 0)
		return r;
	r = sbx_json_get_id(object, "id", &id);
	if (r == 0)
		r = sbx_json_get_string(object, "root", SBX_ROOT_MAX - 1, &root);
	if (r == 0)
		r = sbx_json_get_id(object, "tag", &tag);
	if (r == 0 && sbx_json_get_string(object, "body", SESSION_FILE_MAX, &body) < 0)
		body = NULL;
	if (r == 0) {
		session = sbx_session_new(sessions, name, id, root, body, tag, &r);
		if (session)
			g_hash_table_insert(sessions->by_name, g_strdup(name), session);
		if (session && sbx_json_get_string(object, "snapshot", 4096, &snapshot) == 0 &&
		    sbx_json_get_string(object, "snapshotCreated", 64, &created) == 0) {
			session->snapshot = g_strdup(snapshot);
			session->snapshot_created = g_strdup(created);
		}
	}
	sbx_json_free(object);
	return r;
}

static int sessions_load(struct sbx_sessions *sessions)
{
	int fd = sbx_statedir_opendir(sessions->dir, "sessions");
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		int r = -errno;

		close(fd);
		return r;
	}
	while ((e = readdir(d))) {
		int r;

		if (g_str_has_prefix(e->d_name, GONE_PREFIX)) {
			g_autofree char *gone = g_strdup_printf("sessions/%s", e->d_name);

			(void)sbx_statedir_remove_tree(sessions->dir, gone);
		}
		if (!sbx_session_name_is_valid(e->d_name))
			continue;
		r = sessions_load_one(sessions, fd, e->d_name);
		/* Without session.json: left by a create that was ended half way. */
		if (r < 0 && r != -ENOENT)
			sbx_errlog_note(sessions->errors, "remember", e->d_name, r,
					"session.json can't be read; the session is not shown");
	}
	closedir(d);
	return 0;
}

/* What another mount has come to know by that name since this one began. */
static void sessions_load_later(struct sbx_sessions *sessions, const char *name)
{
	int fd = sbx_session_name_is_valid(name) ? sbx_statedir_opendir(sessions->dir, "sessions")
						 : -1;

	if (fd < 0)
		return;
	pthread_mutex_lock(&sessions->lock);
	if (!g_hash_table_contains(sessions->by_name, name) &&
	    !g_hash_table_contains(sessions->reserved, name))
		(void)sessions_load_one(sessions, fd, name);
	pthread_mutex_unlock(&sessions->lock);
	close(fd);
}

int sbx_sessions_new(struct sbx_provider *provider, struct sbx_statedir *dir,
		     struct sbx_errlog *errors, struct sbx_task_pool *pool,
		     const struct sbx_sessions_options *options, struct sbx_sessions **ret_sessions)
{
	struct sbx_sessions *sessions = g_new0(struct sbx_sessions, 1);
	int r;

	sessions->provider = provider;
	sessions->dir = dir;
	sessions->errors = errors;
	sessions->pool = pool;
	sessions->options = *options;
	pthread_mutex_init(&sessions->lock, NULL);
	sessions->by_name =
		g_hash_table_new_full(g_str_hash, g_str_equal, g_free, session_unref_void);
	sessions->reserved = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	sessions->probed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	for (size_t i = 0; i < G_N_ELEMENTS(sessions->probes_ms); i++)
		sessions->probes_ms[i] = -PROBE_MINUTE_MS;
	r = sessions_load(sessions);
	if (r < 0) {
		sbx_sessions_free(sessions);
		return r;
	}
	*ret_sessions = sessions;
	return 0;
}

void sbx_sessions_free(struct sbx_sessions *sessions)
{
	if (!sessions)
		return;
	g_hash_table_destroy(sessions->by_name);
	g_hash_table_destroy(sessions->reserved);
	g_hash_table_destroy(sessions->probed);
	pthread_mutex_destroy(&sessions->lock);
	g_free(sessions);
}

/* The table ----------------------------------------------------------------------------------- */

char **sbx_sessions_list(struct sbx_sessions *sessions)
{
	GPtrArray *names = g_ptr_array_new();
	GHashTableIter iter;
	void *name;

	pthread_mutex_lock(&sessions->lock);
	g_hash_table_iter_init(&iter, sessions->by_name);
	while (g_hash_table_iter_next(&iter, &name, NULL))
		g_ptr_array_add(names, g_strdup(name));
	pthread_mutex_unlock(&sessions->lock);
	g_ptr_array_sort(names, sbx_name_compare);
	g_ptr_array_add(names, NULL);
	return (char **)g_ptr_array_free(names, FALSE);
}

struct sbx_session *sbx_sessions_find(struct sbx_sessions *sessions, const char *name)
{
	struct sbx_session *session;

	pthread_mutex_lock(&sessions->lock);
	session = g_hash_table_lookup(sessions->by_name, name);
	if (session)
		sbx_session_ref(session);
	pthread_mutex_unlock(&sessions->lock);
	return session;
}

static bool sessions_knows_id_locked(struct sbx_sessions *sessions, const char *id)
{
	GHashTableIter iter;
	bool found = false;
	void *value;

	g_hash_table_iter_init(&iter, sessions->by_name);
	while (!found && g_hash_table_iter_next(&iter, NULL, &value)) {
		g_autofree char *known = sbx_session_id(value);

		found = !g_ascii_strcasecmp(known, id);
	}
	return found;
}

/* An attach under way, in sessions->reserved under its name until it ends. */
struct attach_job {
	struct sbx_sessions *sessions;
	struct sbx_task *task;
	char *id;
	char *name;
	struct sbx_failure failure;
};

static bool sessions_attaches_id_locked(struct sbx_sessions *sessions, const char *id)
{
	GHashTableIter iter;
	bool found = false;
	void *value;

	g_hash_table_iter_init(&iter, sessions->reserved);
	while (!found && g_hash_table_iter_next(&iter, NULL, &value)) {
		const struct attach_job *job = value;

		found = job && !g_ascii_strcasecmp(job->id, id);
	}
	return found;
}

/* Take @name for a session that is being made, or for @job (NULL: none): 0, -EEXIST. */
static int sessions_reserve_locked(struct sbx_sessions *sessions, const char *name,
				   struct attach_job *job)
{
	if (g_hash_table_contains(sessions->by_name, name) ||
	    g_hash_table_contains(sessions->reserved, name) ||
	    (job && (sessions_knows_id_locked(sessions, job->id) ||
		     sessions_attaches_id_locked(sessions, job->id))))
		return -EEXIST;
	g_hash_table_insert(sessions->reserved, g_strdup(name), job);
	return 0;
}

/* End the reservation; @session (may be NULL) goes into the table, its reference with it. */
static void sessions_settle(struct sbx_sessions *sessions, const char *name,
			    struct sbx_session *session)
{
	pthread_mutex_lock(&sessions->lock);
	g_hash_table_remove(sessions->reserved, name);
	if (session)
		g_hash_table_insert(sessions->by_name, g_strdup(name), session);
	pthread_mutex_unlock(&sessions->lock);
}

/* A session that the server has just named becomes known and remembered. */
static int sessions_enter(struct sbx_sessions *sessions, const char *name, const char *body,
			  const struct sbx_session_ref *ref, bool is_new)
{
	struct sbx_session *session;
	int r = 0;

	session = sbx_session_new(sessions, name, ref->id, ref->root, body, NULL, &r);
	if (!session)
		return r;
	session->is_new = is_new;
	session->state = SBX_SESSION_LIVE;
	session->seen_ms = g_get_real_time() / 1000;
	/* Another mount may be about to give that name to another. */
	if (session_is_held(session) ||
	    faccessat(session->dirfd, "session.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		r = -EEXIST;
	if (r == 0)
		r = sbx_session_save(session);
	if (r < 0) {
		sbx_session_unref(session);
		return r;
	}
	sessions_settle(sessions, name, session);
	return 0;
}

/* Making, taking, forgetting ------------------------------------------------------------------ */

/* Runs on the pool, so that a caller who leaves does not leave a session behind that nobody
 * knows. */
struct create_job {
	struct sbx_sessions *sessions;
	char *name;
	char *body;
	struct sbx_failure failure;
};

static void create_job_free(void *arg)
{
	struct create_job *job = arg;

	g_free(job->name);
	g_free(job->body);
	g_free(job);
}

int session_create_failed(struct sbx_errlog *errors, const char *name, int err,
			  const struct sbx_failure *failure)
{
	sbx_errlog_failure(errors, "create", name, err, failure);
	if (!failure->maybe_done)
		return err;
	sbx_errlog_note(errors, "create", name, -EIO,
			"the answer was lost: a session may be left on the server to expire");
	return -EIO;
}

static int create_run(void *arg)
{
	struct create_job *job = arg;
	struct sbx_sessions *sessions = job->sessions;
	struct sbx_provider *provider = sessions->provider;
	struct sbx_call call = { .stall_timeout_ms = sessions->options.mutation_timeout_ms,
				 .failure = &job->failure };
	struct sbx_call undo = { .stall_timeout_ms = call.stall_timeout_ms };
	struct sbx_session_ref *ref = g_new0(struct sbx_session_ref, 1);
	int r;

	r = provider->ops->create(provider, &call, job->body, ref);
	if (r == 0) {
		r = sessions_enter(sessions, job->name, job->body, ref, true);
		/* It could not be remembered here: nobody would know of it. */
		if (r < 0)
			(void)provider->ops->destroy(provider, &undo, ref->id);
	}
	if (r < 0) {
		sessions_settle(sessions, job->name, NULL);
		r = session_create_failed(sessions->errors, job->name, r, &job->failure);
	}
	g_free(ref);
	return r;
}

int sbx_sessions_create(struct sbx_sessions *sessions, const struct sbx_call *call,
			const char *name, const char *body, struct sbx_session **ret_session)
{
	struct sbx_task *task = NULL;
	struct create_job *job;
	int r;

	if (body) {
		struct sbx_json *object = NULL;

		r = sbx_json_parse(body, strlen(body), SBX_JSON_VALUES_DEFAULT, &object);
		if (r == 0 && !sbx_json_is_object(object))
			r = -EINVAL;
		sbx_json_free(object);
		if (r < 0)
			return -EINVAL;
	}
	if (!sbx_session_name_is_valid(name))
		return -EINVAL;
	pthread_mutex_lock(&sessions->lock);
	r = sessions_reserve_locked(sessions, name, NULL);
	pthread_mutex_unlock(&sessions->lock);
	if (r < 0)
		return r;
	job = g_new0(struct create_job, 1);
	job->sessions = sessions;
	job->name = g_strdup(name);
	job->body = g_strdup(body);
	r = sbx_task_start_now(sessions->pool, create_run, job, create_job_free, &task);
	if (r < 0) {
		sessions_settle(sessions, name, NULL);
		create_job_free(job);
		return r;
	}
	r = sbx_task_wait(task, call, -1);
	sbx_task_unref(task);
	if (r < 0)
		return r;
	*ret_session = sbx_sessions_find(sessions, name);
	return *ret_session ? 0 : -ENOENT;
}

static void attach_job_free(void *arg)
{
	struct attach_job *job = arg;

	g_free(job->id);
	g_free(job->name);
	g_free(job);
}

static int attach_run(void *arg)
{
	struct attach_job *job = arg;
	struct sbx_sessions *sessions = job->sessions;
	struct sbx_session_ref *ref = g_new0(struct sbx_session_ref, 1);
	int64_t unsure_until_ms = 0;
	int r;

	r = session_reattach(sessions->provider, sessions->pool, job->id, &unsure_until_ms, ref,
			     &job->failure);
	if (r == -ESTALE)
		r = -ENOENT;
	if (r == 0)
		r = sessions_enter(sessions, job->name, NULL, ref, false);
	if (r < 0 && !sbx_errno_is_ordinary(r))
		sbx_errlog_failure(sessions->errors, "attach", job->name, r, &job->failure);
	if (r < 0)
		sessions_settle(sessions, job->name, NULL);
	g_free(ref);
	return r;
}

/* The attach of @id as @name that is under way, or a new one. */
static int attach_start_locked(struct sbx_sessions *sessions, const char *id, const char *name,
			       struct sbx_task **ret_task)
{
	struct attach_job *job = g_hash_table_lookup(sessions->reserved, name);
	int r;

	if (job && !g_ascii_strcasecmp(job->id, id)) {
		*ret_task = sbx_task_ref(job->task);
		return 0;
	}
	job = g_new0(struct attach_job, 1);
	job->sessions = sessions;
	job->id = g_strdup(id);
	job->name = g_strdup(name);
	r = sessions_reserve_locked(sessions, name, job);
	if (r == 0) {
		r = sbx_task_start_now(sessions->pool, attach_run, job, attach_job_free,
				       &job->task);
		/* It needs the lock to end. */
		if (r == 0)
			*ret_task = job->task;
		else
			g_hash_table_remove(sessions->reserved, name);
	}
	if (r < 0)
		attach_job_free(job);
	return r;
}

int sbx_sessions_attach(struct sbx_sessions *sessions, const struct sbx_call *call, const char *id,
			const char *name)
{
	int64_t timeout_ms = call->stall_timeout_ms > 0 ? call->stall_timeout_ms : -1;
	struct sbx_task *task = NULL;
	int r;

	if (!name)
		name = id;
	if (!sbx_id_valid(id) || !sbx_session_name_is_valid(name))
		return -EINVAL;
	pthread_mutex_lock(&sessions->lock);
	r = attach_start_locked(sessions, id, name, &task);
	pthread_mutex_unlock(&sessions->lock);
	if (r < 0)
		return r;
	r = sbx_task_wait(task, call, timeout_ms);
	sbx_task_unref(task);
	return r;
}

/* Has a request for the unknown @name been sent, by which it becomes known? */
static bool sessions_attaches(struct sbx_sessions *sessions, const char *name)
{
	bool attaches;

	pthread_mutex_lock(&sessions->lock);
	attaches = g_hash_table_lookup(sessions->reserved, name) != NULL;
	pthread_mutex_unlock(&sessions->lock);
	return attaches;
}

/* Is a probe of the unknown @name due? Counts it when it is. */
static bool sessions_may_probe(struct sbx_sessions *sessions, const char *name)
{
	int64_t now_ms = sbx_clock_ms();
	int64_t *last_ms;
	bool may;

	pthread_mutex_lock(&sessions->lock);
	last_ms = g_hash_table_lookup(sessions->probed, name);
	may = (!last_ms || now_ms >= *last_ms + PROBE_NAME_PAUSE_MS) &&
	      now_ms >= sessions->probes_ms[sessions->probes_next] + PROBE_MINUTE_MS &&
	      !sessions_knows_id_locked(sessions, name);
	if (may) {
		/* Names whose pause is over need no memory; a scanner of names can't fill it. */
		if (g_hash_table_size(sessions->probed) > 1000)
			g_hash_table_remove_all(sessions->probed);
		last_ms = g_new(int64_t, 1);
		*last_ms = now_ms;
		g_hash_table_insert(sessions->probed, g_strdup(name), last_ms);
		sessions->probes_ms[sessions->probes_next] = now_ms;
		sessions->probes_next =
			(sessions->probes_next + 1) % G_N_ELEMENTS(sessions->probes_ms);
	}
	pthread_mutex_unlock(&sessions->lock);
	return may;
}

int sbx_sessions_lookup(struct sbx_sessions *sessions, const struct sbx_call *call,
			const char *name, struct sbx_session **ret_session)
{
	struct sbx_session *session = sbx_sessions_find(sessions, name);
	int r;

	if (!session) {
		sessions_load_later(sessions, name);
		session = sbx_sessions_find(sessions, name);
	}
	if (!session && sessions->options.probe_unknown && sbx_session_name_is_uuid(name) &&
	    (sessions_attaches(sessions, name) || sessions_may_probe(sessions, name))) {
		r = sbx_sessions_attach(sessions, call, name, name);
		if (r < 0 && r != -EEXIST)
			return r == -EINTR ? r : -ENOENT;
		session = sbx_sessions_find(sessions, name);
	}
	if (!session)
		return -ENOENT;
	*ret_session = session;
	return 0;
}

int sbx_sessions_rename(struct sbx_sessions *sessions, const char *from, const char *to)
{
	struct sbx_session *session;
	char *old;
	int fd, r = 0;

	if (!sbx_session_name_is_valid(to))
		return -EINVAL;
	fd = sbx_statedir_opendir(sessions->dir, "sessions");
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&sessions->lock);
	session = g_hash_table_lookup(sessions->by_name, from);
	if (!session) {
		r = -ENOENT;
	} else if (!strcmp(from, to)) {
		r = 0;
	} else if (g_hash_table_contains(sessions->by_name, to) ||
		   g_hash_table_contains(sessions->reserved, to)) {
		r = -EEXIST;
	} else if ((r = session_check_holder(session, "rename")) < 0) {
		/* The other mount knows it by the name that it has. */
	} else if (renameat2(fd, from, fd, to, RENAME_NOREPLACE) < 0) {
		r = -errno;
	} else {
		sbx_session_ref(session);
		g_hash_table_remove(sessions->by_name, from);
		g_hash_table_insert(sessions->by_name, g_strdup(to), session);
		pthread_mutex_lock(&session->lock);
		old = session->name;
		session->name = g_strdup(to);
		pthread_mutex_unlock(&session->lock);
		g_free(old);
	}
	pthread_mutex_unlock(&sessions->lock);
	close(fd);
	return r;
}

/* Unsent files in the spool directory, -1 where it can't be read; with @sweep what else is there is
 * removed. */
static ssize_t spool_count(struct sbx_session *session, bool sweep)
{
	DIR *d = sbx_local_opendir(session->spool_dirfd);
	struct dirent *e;
	ssize_t n = 0;

	if (!d)
		return -1;
	while ((e = readdir(d))) {
		if (g_str_has_suffix(e->d_name, SPOOL_SUFFIX))
			n++;
		else if (sweep && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			(void)unlinkat(session->spool_dirfd, e->d_name, 0);
	}
	closedir(d);
	return n;
}

size_t sbx_session_unsent(struct sbx_session *session)
{
	ssize_t n = spool_count(session, false);

	return n < 0 ? 0 : (size_t)n;
}

size_t sbx_sessions_unsent(struct sbx_sessions *sessions)
{
	GHashTableIter iter;
	void *session;
	size_t n = 0;

	pthread_mutex_lock(&sessions->lock);
	g_hash_table_iter_init(&iter, sessions->by_name);
	while (g_hash_table_iter_next(&iter, NULL, &session))
		n += sbx_session_unsent(session);
	pthread_mutex_unlock(&sessions->lock);
	return n;
}

/* Remove the spool directory: from then on nobody can begin one there. -EBUSY: it holds some. */
static int spool_close(struct sbx_session *session)
{
	for (int tries = 0; tries < SPOOL_CLOSE_TRIES; tries++) {
		if (spool_count(session, true) != 0)
			break;
		if (unlinkat(session->dirfd, "spool", AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		/* Something has come meanwhile. */
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -errno;
	}
	return -EBUSY;
}

/* What is kept under its name is still its own: another mount may have given it to another. */
static bool session_is_kept(const struct sbx_session *session, int sessions_fd)
{
	struct stat ours, named;

	return fstat(session->dirfd, &ours) == 0 &&
	       fstatat(sessions_fd, session->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

/*
 * @session goes, whatever its name is by now; with @unless_unsent only where no bytes wait in it.
 * @operation is what a refusal is noted as.
 * -EBUSY, also where another mount is its holder; -ENOENT: it has gone already. Its name is free
 * when this returns.
 */
static int session_forget(struct sbx_session *session, const char *operation, bool unless_unsent)
{
	struct sbx_sessions *sessions = session->sessions;
	int sessions_fd = sbx_statedir_opendir(sessions->dir, "sessions");
	char random[GONE_CHARS + 1];
	g_autofree char *gone = NULL;
	g_autofree char *relative = NULL;
	bool kept;
	int r = 0;

	if (sessions_fd < 0)
		return sessions_fd;
	sbx_random_hex(random, GONE_CHARS);
	gone = g_strconcat(GONE_PREFIX, random, NULL);
	relative = g_strconcat("sessions/", gone, NULL);
	pthread_mutex_lock(&sessions->lock);
	kept = session_is_kept(session, sessions_fd);
	if (g_hash_table_lookup(sessions->by_name, session->name) != session)
		r = -ENOENT;
	else if (kept)
		r = session_check_holder(session, operation);
	if (r == 0 && kept && unless_unsent)
		r = spool_close(session);
	if (r == 0) {
		/* The name is free at once; the rest takes its time. */
		if (kept)
			(void)renameat(sessions_fd, session->name, sessions_fd, gone);
		g_hash_table_remove(sessions->by_name, session->name);
	}
	pthread_mutex_unlock(&sessions->lock);
	close(sessions_fd);
	if (r == 0)
		(void)sbx_statedir_remove_tree(sessions->dir, relative);
	return r;
}

int sbx_session_detach(struct sbx_session *session)
{
	return session_forget(session, "detach", true);
}

int sbx_session_delete(struct sbx_session *session, const struct sbx_call *call)
{
	struct sbx_provider *provider = session->sessions->provider;
	g_autofree char *name = sbx_session_name(session);
	g_autofree char *id = sbx_session_id(session);
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	int r;

	own.failure = &failure;
	r = session_check_holder(session, "delete");
	if (r < 0)
		return r;
	r = provider->ops->destroy(provider, &own, id);
	/* Who else deletes it may have been faster. */
	if (r == 0)
		(void)session_forget(session, "delete", false);
	else if (!sbx_errno_is_ordinary(r))
		sbx_errlog_failure(session->sessions->errors, "delete", name, r, &failure);
	return r;
}
