/*
 * session - remote sessions known to this mount, and every request to them.
 *
 * A session is known because it was made here, attached, resumed or remembered (statedir.h). All
 * requests of the layers above go through sbx_session_*(), which add to the provider's call:
 *
 *  - admission: after the first time-out calls fail fast with -EHOSTUNREACH until one probe finds
 *    the server again (a caller waits for a probe in the first second after it was begun);
 *  - quiet revival: `session_not_found` means archived or gone. One task reattaches (a second try
 *    before `alive: false` is believed), for as long as a thaw may take (ten minutes), and all
 *    callers wait for it, each for its own time, then repeat their requests; -ETIMEDOUT: it goes
 *    on. Two thaws at once lose writes: where an answer was lost the server is asked again only
 *    when the session is seen awake, or the ten minutes are over, and no request goes out before it
 *    is known whether the tree was laid anew. A session that is gone gives -ESTALE;
 *  - the token: a 401 is tried once more with a token read anew, then the state is denied, -EACCES;
 *  - what went wrong, into the errors of the session.
 *
 * The state shown by `status` is what was last seen; reading it never asks.
 *
 * epoch: grows whenever what was known of the remote tree may be void: a thaw that changed `root`,
 * resume, refresh. Caches above compare it.
 *
 * Locking: sessions->lock protects the table (names, ids); session->lock the fields of one session.
 * Order: sessions->lock, session->lock. Neither is held across a request.
 */
#ifndef SBX_CLIENT_SESSION_H
#define SBX_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/provider.h"

struct sbx_call;
struct sbx_errlog;
struct sbx_session;
struct sbx_sessions;
struct sbx_statedir;
struct sbx_task_pool;

enum sbx_session_state {
	SBX_SESSION_UNKNOWN, /* remembered, not asked yet */
	SBX_SESSION_LIVE,
	SBX_SESSION_ASLEEP, /* archived by the server; its next use wakes it */
	SBX_SESSION_GONE,
	SBX_SESSION_DENIED, /* the token was refused */
	SBX_SESSION_UNREACHABLE,
};

const char *sbx_session_state_name(enum sbx_session_state state);

/* What status shows. Strings are copies, freed by sbx_session_info_done(). */
struct sbx_session_info {
	char *name;
	char *id;
	char *root;
	enum sbx_session_state state;
	int64_t seen_ms; /* wall clock, milliseconds since 1970; 0: never */
	char *note; /* one line: what is wrong and what mends it; NULL: nothing */
};

struct sbx_sessions_options {
	int64_t timeout_ms; /* without progress */
	int64_t mutation_timeout_ms; /* min(timeout_ms, 10000) */
	bool probe_unknown; /* ask for UUID-shaped unknown names */
};

/*
 * The table of sessions, with what was remembered in @dir (no request is sent). @provider, @dir,
 * @errors, @pool are borrowed and must outlive it.
 */
int sbx_sessions_new(struct sbx_provider *provider, struct sbx_statedir *dir,
		     struct sbx_errlog *errors, struct sbx_task_pool *pool,
		     const struct sbx_sessions_options *options,
		     struct sbx_sessions **ret_sessions);
void sbx_sessions_free(struct sbx_sessions *sessions);

/* [A-Za-z0-9][A-Za-z0-9._-]{0,63} and not one of ours (control, status, errors, stats, snapshots,
 * README.md). */
bool sbx_session_name_is_valid(const char *name);
/* The form of a UUID. */
bool sbx_session_name_is_uuid(const char *name);

/* Names, sorted, NULL-terminated; g_strfreev(). */
char **sbx_sessions_list(struct sbx_sessions *sessions);

/* sbx_session_unsent() of all. */
size_t sbx_sessions_unsent(struct sbx_sessions *sessions);

/* A new reference or NULL. Never sends a request. */
struct sbx_session *sbx_sessions_find(struct sbx_sessions *sessions, const char *name);
struct sbx_session *sbx_session_ref(struct sbx_session *session);
void sbx_session_unref(struct sbx_session *session);

/*
 * As sbx_sessions_find(), and where @name is a UUID that is not known under another name: ask by a
 * reattach, at most once in 10 s a name and 8 a minute in all. -ENOENT: not known, or not asked.
 */
int sbx_sessions_lookup(struct sbx_sessions *sessions, const struct sbx_call *call,
			const char *name, struct sbx_session **ret_session);

/*
 * POST /sessions with @body (JSON text or NULL). Never repeated: a lost answer is -EIO and an entry
 * in errors that a session may be left to expire. -EEXIST, -EINVAL (name, or body is no JSON
 * object).
 */
int sbx_sessions_create(struct sbx_sessions *sessions, const struct sbx_call *call,
			const char *name, const char *body, struct sbx_session **ret_session);

/*
 * Take the living (or sleeping) session @id as @name (NULL: the id). -ENOENT: the server has none;
 * -EEXIST: the name is taken, or the id known under another one. A caller that leaves, or waits
 * longer than its stall timeout (-ETIMEDOUT), lets it go on: the session is known when it ends, and
 * who asks for the same meanwhile waits for the same.
 */
int sbx_sessions_attach(struct sbx_sessions *sessions, const struct sbx_call *call, const char *id,
			const char *name);

/* Local only. -EEXIST, -EINVAL, -ENOENT. Snapshots stay with the old name. */
int sbx_sessions_rename(struct sbx_sessions *sessions, const char *from, const char *to);

/* Forget, under whatever name it has by then; the remote session stays. -EBUSY with unsent bytes;
 * -ENOENT: it has been forgotten. From its success on no spool can be begun: -ENOENT. */
int sbx_session_detach(struct sbx_session *session);

/* DELETE /sessions/:id, then forget. */
int sbx_session_delete(struct sbx_session *session, const struct sbx_call *call);

/* The session's own view ------------------------------------------------------------------- */

const char *sbx_session_tag(const struct sbx_session *session); /* stable, unique on this mount:
		the first remote id; names caches and inode tags; survives rename and resume */
void sbx_session_info(struct sbx_session *session, struct sbx_session_info *ret_info);
void sbx_session_info_done(struct sbx_session_info *info);
char *sbx_session_name(struct sbx_session *session); /* copy */
char *sbx_session_id(struct sbx_session *session); /* copy */
uint64_t sbx_session_epoch(struct sbx_session *session);
struct sbx_errlog *sbx_session_errors(struct sbx_session *session);
struct sbx_task_pool *sbx_session_pool(struct sbx_session *session);
const struct sbx_sessions_options *sbx_session_options(const struct sbx_session *session);
struct sbx_statedir *sbx_session_statedir(struct sbx_session *session);
/* Wall clock (ms) of the last request that some program's use caused; background work asks it. */
int64_t sbx_session_last_use_ms(struct sbx_session *session);
/* This mount holds the session's lock (tried again at each call when not yet held). */
bool sbx_session_is_holder(struct sbx_session *session);
/* Unsent files in its spool, those of other mounts too. Looks at the local disk. */
size_t sbx_session_unsent(struct sbx_session *session);
/* Directory descriptor of sessions/NAME/spool, owned by the session. */
int sbx_session_spool_dirfd(struct sbx_session *session);

/* The session as SandboxSessionState (wire.md D): one JSON object and a newline; g_free(). */
char *sbx_session_state_json(struct sbx_session *session);

/* The newest archive of the session, for its state; kept and remembered. */
int sbx_session_set_snapshot(struct sbx_session *session, const char *path, const char *created);

/*
 * A session that is gone gets a new one in its place: POST /sessions with the same body, under the
 * same name; epoch grows. sbx_session_has_root_dir(): it is made from a rootDir, which needs no
 * snapshot.
 * From its success on requests of others wait, those with call->mending go on, until one of
 * sbx_session_renew_done(): the new one is as it should be;
 * sbx_session_renew_undo(): delete the new one and be what it was.
 */
int sbx_session_renew(struct sbx_session *session, const struct sbx_call *call);
bool sbx_session_has_root_dir(struct sbx_session *session);
void sbx_session_renew_done(struct sbx_session *session);
void sbx_session_renew_undo(struct sbx_session *session, const struct sbx_call *call);

/*
 * The session was made by sbx_sessions_create() in this mount, and nothing was changed in it since:
 * a session stops being new with its first request that may change it, and by
 * sbx_session_changes(), for changes whose requests don't tell that they are some.
 */
bool sbx_session_is_new(struct sbx_session *session);
void sbx_session_changes(struct sbx_session *session);

/* What status says while nothing worse is the matter; NULL: nothing. */
void sbx_session_set_note(struct sbx_session *session, const char *note);

/* Verbs. reattach: alive → 0 and epoch grows; not alive → -ESTALE. refresh: epoch grows. */
int sbx_session_reattach(struct sbx_session *session, const struct sbx_call *call);
void sbx_session_refresh(struct sbx_session *session);

/*
 * Called (without a lock held, from the thread that revived) after a thaw or resume whenever the
 * epoch grew because the remote tree was laid anew; the workspace puts back there what the thaw
 * lost. Requests of others wait meanwhile; those of the hook carry call->mending. One per session;
 * NULL removes it, and waits until it has returned.
 */
typedef void (*sbx_session_thawed_fn)(void *arg, const struct sbx_call *call);
void sbx_session_on_thaw(struct sbx_session *session, sbx_session_thawed_fn fn, void *arg);

/*
 * Requests: the provider's operations (provider.h tells each one's contract) with the additions
 * described above. All block, return 0 or a negative errno, and fill @call's failure when it fails;
 * @path is as a route wants it ("." for the root). What a local disk would not have said goes to
 * the session's errors as well.
 */
int sbx_session_get(struct sbx_session *session, const struct sbx_call *call, const char *path,
		    int64_t offset, int64_t len, const struct sbx_sink *sink);
int sbx_session_put(struct sbx_session *session, const struct sbx_call *call, const char *path,
		    const struct sbx_source *source);
int sbx_session_stat(struct sbx_session *session, const struct sbx_call *call, const char *path,
		     struct sbx_stat *ret_stat);
int sbx_session_readdir(struct sbx_session *session, const struct sbx_call *call, const char *path,
			const struct sbx_dir_sink *sink);
int sbx_session_exec(struct sbx_session *session, const struct sbx_call *call,
		     const struct sbx_exec_spec *spec, struct sbx_exec_result *ret_result);
int sbx_session_exec_detached(struct sbx_session *session, const struct sbx_call *call,
			      const struct sbx_exec_spec *spec, sbx_exec_done_fn done, void *arg);
int sbx_session_persist(struct sbx_session *session, const struct sbx_call *call,
			const struct sbx_sink *sink);
int sbx_session_hydrate(struct sbx_session *session, const struct sbx_call *call,
			const struct sbx_source *source);

#endif
