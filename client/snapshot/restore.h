/*
 * restore - many small changes to a workspace in few requests: what an archive or a thaw loses put
 * back, and the SHA-256 of files as the sandbox computes it (programs/restore.sh, digest.sh).
 *
 * Steps are collected, then run in the order in which they were added, as many a request as fit.
 * Each may be done twice, so a lost answer is asked for again. Whether they came true is for the
 * caller to compare: a step that fails is counted only.
 *
 * Blocks in the caller's thread within the call's limits. No lock.
 */
#ifndef SBX_CLIENT_SNAPSHOT_RESTORE_H
#define SBX_CLIENT_SNAPSHOT_RESTORE_H

#include <glib.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_call;
struct sbx_names;
struct sbx_restore;

struct sbx_restore *sbx_restore_new(void);
void sbx_restore_free(struct sbx_restore *restore);

/* Paths as in workspace.h. */
void sbx_restore_mkdir(struct sbx_restore *restore, const char *path);
/* @from: where the file came; it is moved to @path. */
void sbx_restore_move(struct sbx_restore *restore, const char *from, const char *path);
void sbx_restore_symlink(struct sbx_restore *restore, const char *text, const char *path);
void sbx_restore_hardlink(struct sbx_restore *restore, const char *first, const char *path);
/* The same, unless @path is no file that holds the same bytes as @first. */
void sbx_restore_same(struct sbx_restore *restore, const char *first, const char *path);
void sbx_restore_unlink(struct sbx_restore *restore, const char *path);
/* Only where it is empty. */
void sbx_restore_rmdir(struct sbx_restore *restore, const char *path);
/* Behind the steps above come all times, then all modes. Modes are set in the order of the calls,
 * so add what lies deep first: a mode may take away the way to what is below. */
void sbx_restore_mode(struct sbx_restore *restore, const char *path, mode_t mode);
void sbx_restore_mtime(struct sbx_restore *restore, const char *path, int64_t mtime_ns);

/* How many steps were added. */
size_t sbx_restore_count(const struct sbx_restore *restore);

/*
 * Run all. *ret_failed (may be NULL): steps that failed. @unlike (may be NULL) takes copies of the
 * paths of sbx_restore_same(), both of each, that were left as they are because they differ.
 */
int sbx_restore_run(struct sbx_restore *restore, struct sbx_names *names,
		    const struct sbx_call *call, unsigned int *ret_failed, GHashTable *unlike);

/*
 * SHA-256 of the regular files @paths: *ret_sums maps a path to its 32 bytes (g_free); what can't
 * be read is not in it. @progress (may be NULL): files done.
 */
int sbx_digest_files(struct sbx_names *names, const struct sbx_call *call, GPtrArray *paths,
		     void (*progress)(void *arg, uint64_t files), void *arg, GHashTable **ret_sums);

#endif
