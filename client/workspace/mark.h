/*
 * mark - by which files of one client in the sandbox's .sbxfs/ are told from another's.
 *
 * What is staged or set aside there bears the mark of its client: random digits, made with the
 * first such name. A file MARK.client of the spool directory, flock'ed by the client's process,
 * says that the client lives. It is removed at the end, unless something may be left in the
 * sandbox; of a client that was killed it stays. Who holds the session's lock has the sandbox swept
 * of what bears the mark of a dead client.
 *
 * Locking: a lock of its own, innermost. Blocks on the local disk only.
 */
#ifndef SBX_CLIENT_WORKSPACE_MARK_H
#define SBX_CLIENT_WORKSPACE_MARK_H

#include <glib.h>

struct sbx_mark;

/* @dirfd: the spool directory; borrowed, must outlive the mark. */
struct sbx_mark *sbx_mark_new(int dirfd);
void sbx_mark_free(struct sbx_mark *mark);

/* A new path in @dir (SBX_STAGE_DIR, SBX_HELD_DIR), as the workspace names it. g_free(). */
char *sbx_mark_path(struct sbx_mark *mark, const char *dir);

/* Something that bears the mark could not be removed. */
void sbx_mark_leave(struct sbx_mark *mark);

/* Marks of dead clients, as strings; g_ptr_array_unref(). */
GPtrArray *sbx_mark_dead(int dirfd);
/* The sandbox has nothing more of @dead. */
void sbx_mark_forget(int dirfd, const char *dead);

#endif
