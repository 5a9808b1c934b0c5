/*
 * session_impl - what session.c (one session and its requests), session_revive.c (how it comes
 * back) and sessions.c (the table) share.
 * Nobody else includes it. The locks are described in session.h.
 */
#ifndef SBX_CLIENT_SESSION_IMPL_H
#define SBX_CLIENT_SESSION_IMPL_H

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session.h"

struct sbx_sessions {
	struct sbx_provider *provider;
	struct sbx_statedir *dir;
	struct sbx_errlog *errors;
	struct sbx_task_pool *pool;
	struct sbx_sessions_options options;

	pthread_mutex_t lock;
	GHashTable *by_name; /* name -> struct sbx_session, one reference each */
	GHashTable
		*reserved; /* name -> what is under way for it: struct attach_job, NULL: create */
	GHashTable *probed; /* unknown name -> monotonic ms of its probe, boxed */
	int64_t probes_ms[8]; /* when the last probes were sent, a ring */
	unsigned int probes_next;
};

struct sbx_session {
	_Atomic int refs;
	struct sbx_sessions *sessions;
	char *tag;
	struct sbx_errlog *errors;
	_Atomic int64_t last_use_ms;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a revival or a probe has ended */
	char *name;
	char *id;
	char *root;
	char *body; /* create body, JSON text; NULL: none, or not known (attached) */
	char *snapshot; /* path of the newest archive on this machine; NULL: none */
	char *snapshot_created; /* ISO 8601 */
	char *old_id; /* while it is being renewed */
	char *old_root;
	enum sbx_session_state state;
	int64_t seen_ms;
	uint64_t epoch;
	/* What is kept of it is reached by these, never by its name, which may be another's by
	 * then; once it is forgotten nothing can be written there. */
	int dirfd;
	int spool_dirfd;
	int lock_fd; /* -1: another mount holds it, or not tried yet */

	bool reviving;
	uint64_t revivals; /* counts those that ended */
	int revival_result;
	int64_t gone_at_ms; /* monotonic, when `alive: false` was believed */
	int64_t unsure_until_ms; /* monotonic: a reattach of which it is not known what became of it
				    has ended by then; 0: there is none */
	sbx_session_thawed_fn thawed;
	void *thawed_arg;
	bool in_thawed; /* it is being called */
	char *note; /* NULL: nothing to say */
	_Atomic bool is_new;

	bool down; /* a call has timed out: fail fast */
	bool down_exec; /* it was an exec, of which no other answer tells that it is up */
	bool probing;
	int64_t probe_ms; /* how long the next one has */
	int64_t probe_begun_ms;
	int64_t probe_ended_ms;
};

/* A session with one reference, not in the table; opens its directory. NULL with errno in
 * *ret_err. */
struct sbx_session *sbx_session_new(struct sbx_sessions *sessions, const char *name, const char *id,
				    const char *root, const char *body, const char *tag,
				    int *ret_err);

/* The state that was seen; _locked: under session->lock. */
void session_saw(struct sbx_session *session, enum sbx_session_state state);
void session_saw_locked(struct sbx_session *session, enum sbx_session_state state);

/* Have the session revived, by one caller at a time. @seen: session->revivals when the request
 * that found no session was sent; a revival since then is not repeated. Takes session->lock. */
int session_revive(struct sbx_session *session, const struct sbx_call *call, uint64_t seen);
/* The same where an earlier reattach may have laid the tree anew unseen; else 0 at once. */
int session_make_sure(struct sbx_session *session, const struct sbx_call *call);
/* What a call is told that waited in vain for a revival: -ETIMEDOUT. */
int session_revival_lasts(const struct sbx_call *call);

/*
 * Have the server wake @id, for which nobody else does so at the time; for tasks of @pool, because
 * it lasts as long as a thaw does, whoever waits. Two thaws at once lose writes (wire.md B.2). So
 * where the answer is lost, or *unsure_until_ms (session->unsure_until_ms) tells of an earlier one
 * whose answer was, another is sent only when the session was seen awake, or that time is over.
 * 0 with *ret_ref; -ESTALE: there is no such session; else *ret_failure is filled.
 */
int session_reattach(struct sbx_provider *provider, struct sbx_task_pool *pool, const char *id,
		     int64_t *unsure_until_ms, struct sbx_session_ref *ret_ref,
		     struct sbx_failure *ret_failure);

/*
 * A POST /sessions for @name (NULL: of the session whose log @errors is) has failed with @err: goes
 * to @errors, and where the answer was lost also that a session may be left to expire. Returns what
 * the caller is told: -EIO then, else @err.
 */
int session_create_failed(struct sbx_errlog *errors, const char *name, int err,
			  const struct sbx_failure *failure);

/* Another mount is its holder. Takes session->lock. */
bool session_is_held(struct sbx_session *session);
/* May this mount do what changes what the session is: 0; -EBUSY, noted: another mount is its
 * holder. Takes session->lock. */
int session_check_holder(struct sbx_session *session, const char *operation);

/* sbx_session_unref() for tasks. */
void session_put_arg(void *session);

/* Write session.json and state.json, unless another mount is its holder. Takes session->lock.
 * -ENOENT: it has been forgotten. */
int sbx_session_save(struct sbx_session *session);

#endif
