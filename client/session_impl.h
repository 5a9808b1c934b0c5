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
	GHashTable *reserved; /* names that a create or attach is under way for */
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
	int spool_dirfd;
	int lock_fd; /* -1: another mount holds it, or not tried yet */

	bool reviving;
	uint64_t revivals; /* counts those that ended */
	int revival_result;
	int64_t gone_at_ms; /* monotonic, when `alive: false` was believed */
	sbx_session_thawed_fn thawed;
	void *thawed_arg;
	bool in_thawed; /* it is being called */
	char *note; /* NULL: nothing to say */
	_Atomic bool is_new;

	bool down; /* a call has timed out: fail fast */
	bool probing;
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

/* sbx_session_unref() for tasks. */
void session_put_arg(void *session);

/* Write session.json and state.json. Takes session->lock. */
int sbx_session_save(struct sbx_session *session);

#endif
