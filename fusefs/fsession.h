/*
 * fsession - what the mount keeps of one session: its workspace, the threads that it holds, its
 * running verb, and the scratch files beside its `control`.
 *
 * Made when a session is first named on the mount, dropped when it is deleted or detached. Nodes,
 * open files and running verbs hold references, so what they use stays until they let go.
 *
 * Locking: fsessions->lock, innermost, protects the table; an fsession is made and ended without
 * it. Counters are atomic.
 */
#ifndef SBX_FUSEFS_FSESSION_H
#define SBX_FUSEFS_FSESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fusefs/verb.h"

struct fs;
struct fsessions;
struct sbx_session;
struct sbx_thaw_watch;
struct sbx_workspace;
struct scratch_set;
struct session_jobs;

struct fsession {
	unsigned int refs; /* atomic */
	unsigned int index; /* 1, 2, …: numbers its own files (ino.h); never used again */
	unsigned int busy; /* atomic; threads of the loop that serve it now */
	struct fs *fs;
	struct sbx_session *session;
	struct sbx_workspace *ws;
	struct session_jobs *jobs;
	struct scratch_set *scratch;
	struct sbx_thaw_watch *thaw;
	struct verb_slot verb;
	int64_t kept_use_ms; /* of the keeper alone: the last use whose outcome is persisted */
	int64_t persisted_ms; /* the same: when it looked at that last */
};

struct fsessions *fsessions_new(struct fs *fs);
void fsessions_free(struct fsessions *table);

/* The fsession of @session, made when it is new. A new reference. Blocks on the local disk only,
 * where what dead mounts left unsent may be much; others wait for that of this session alone. */
int fsessions_get(struct fsessions *table, struct sbx_session *session,
		  struct fsession **ret_fsession);
/* The one of that name: -ENOENT without asking the server. */
int fsessions_find(struct fsessions *table, const char *name, struct fsession **ret_fsession);
/* The session is known no more: nobody finds its fsession again. */
void fsessions_drop(struct fsessions *table, struct sbx_session *session);
/* All of them, each a reference; *ret_n of them. g_free() the array after the last unref. */
struct fsession **fsessions_all(struct fsessions *table, size_t *ret_n);

struct fsession *fsession_ref(struct fsession *fsession); /* NULL is allowed */
void fsession_unref(
	struct fsession *fsession); /* NULL is allowed; the last may block on the disk */

unsigned int fsession_index(const struct fsession *fsession); /* NULL: 0 */
uint32_t fsession_epoch(const struct fsession *fsession); /* NULL: 0 */

/*
 * Count a thread of the loop that begins to serve @fsession. False: it holds its share of them
 * already (FS_MAX_THREADS_SESSION), so another session's programs would wait for it.
 */
bool fsession_admit(struct fsession *fsession);
void fsession_leave(struct fsession *fsession);

#endif
