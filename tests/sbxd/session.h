/*
 * Sessions: which are live, who uses them, and what becomes of them when nobody does.
 *
 * A session is live (in the table) or not. What is not live may be archived: host sessions as a
 * tar file in the archive directory, overlay sessions as their own directory. A request pins the
 * session it works on; a session without pins for as long as the idle time is archived.
 *
 * One lock guards the table and every session's counters. It is never held across file work: an
 * id being archived stands in a set of its own meanwhile. Two thaws of one id may run at once, as
 * they do in the reference server: the last one registers its directory, and what was written to
 * the other is lost.
 */
#ifndef SBX_SBXD_SESSION_H
#define SBX_SBXD_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sbxd/jail.h"
#include "tests/sbxd/options.h"

struct session {
	char *id;
	char *told_root; /* what the client hears */
	char *dir; /* the workspace on this machine, a physical path */
	char *home; /* overlay: the directory that holds the workspace and its state; else NULL */
	struct jail *jail; /* overlay: locks itself; else NULL */
	enum profile profile;
	bool given_root; /* the client named the directory: never archived, never removed */
	/* Guarded by the table's lock. */
	unsigned int refs;
	unsigned int pins;
	int64_t last_used_ms;
};

struct session_table;

struct session_table *session_table_new(const struct options *opt);
void session_table_free(struct session_table *table);

/*
 * Make a session, live and pinned; the caller releases it. @root_dir: a directory of the client's
 * choice, or NULL. 0 or negative errno. File work.
 */
int session_create(struct session_table *table, const char *root_dir, struct session **ret_session);

/* The live session, pinned, or NULL. Does not block. */
struct session *session_acquire(struct session_table *table, const char *id);
/* Unpin; the idle time starts anew. */
void session_release(struct session_table *table, struct session *session);

/* Forget it in every form, and its files. File work. */
void session_delete(struct session_table *table, const char *id);

/* Make it live if it can be; *ret_root is then its root (the caller frees it). File work. */
bool session_reattach(struct session_table *table, const char *id, char **ret_root);

/* Archive what nobody uses and has been idle for so long, drop archives too old. File work. */
void session_sweep(struct session_table *table, int64_t idle_ms);

/* Archive all; each pinned one is waited for, up to @patience_ms. File work. */
void session_archive_all(struct session_table *table, int64_t patience_ms);

#endif
