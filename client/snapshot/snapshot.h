/*
 * snapshot - a workspace kept on this machine, and brought back: persist, hydrate, resume.
 *
 * A snapshot is STATE/snapshots/NAME/SNAPSHOT.tar with its receipt SNAPSHOT.json (receipt.h), both
 * 0600. It belongs to the session's name and outlives the session. Both are written under temporary
 * names, read through, synced, and renamed into place, receipt first; a receipt without an archive
 * is nothing. Names: [A-Za-z0-9][A-Za-z0-9._-]{0,63}; the default is UTC, 20261130T083000Z.
 *
 * persist:  publish; look; POST /persist (or an archive made by exec where the route can't); look
 *           again; read the archive; write both.
 * hydrate:  read and check the archive; look for what stands in the way; POST /hydrate with names
 *           that the route understands; put back through exec what route and archive lose; compare.
 *
 * All functions that take a call block in the caller's thread, for minutes where the workspace is
 * big; the call's token stops them. They hold no lock. One at a time a session is the caller's
 * business. *ret_message (g_free; may be set on success too): one line for status.
 */
#ifndef SBX_CLIENT_SNAPSHOT_SNAPSHOT_H
#define SBX_CLIENT_SNAPSHOT_SNAPSHOT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_call;
struct sbx_receipt;
struct sbx_statedir;
struct sbx_workspace;

bool sbx_snapshot_name_is_valid(const char *name);

/* Told what is being done, often enough for a status that moves each second. */
struct sbx_snapshot_progress {
	void (*say)(void *arg, const char *text);
	void *arg;
};
/* Tell @progress (NULL: nobody asked). */
void sbx_snapshot_say(const struct sbx_snapshot_progress *progress, const char *format, ...)
	G_GNUC_PRINTF(2, 3);

/* -EEXIST; -EINVAL (name); -EIO: the answer was cut or does not hold what is there. */
int sbx_snapshot_persist(struct sbx_workspace *ws, const struct sbx_call *call, const char *name,
			 const struct sbx_snapshot_progress *progress, char **ret_message);

/* Does the workspace differ from its newest snapshot? Asks once; unsent bytes do not count. */
int sbx_snapshot_is_due(struct sbx_workspace *ws, const struct sbx_call *call, bool *ret_is_due);

/*
 * @name NULL: the newest verified; -ENODATA: there is none. -ENOENT, -EEXIST (the workspace holds
 * changes newer than the snapshot, without @over), -ENOTDIR/-EISDIR (kinds conflict: nothing was
 * sent), -EINVAL (the archive is refused), -EIO: it is not as it was, @ret_message says what.
 */
int sbx_snapshot_hydrate(struct sbx_workspace *ws, const struct sbx_call *call, const char *name,
			 bool over, const struct sbx_snapshot_progress *progress,
			 char **ret_message);

/*
 * Reattach. A session that lives is left as it is, but for one that was made just now under a name
 * that has a verified snapshot, and is empty: it gets that one. Where it is gone, make a new one
 * from the same body under the same name and hydrate it from the newest verified snapshot (not
 * where it has a rootDir). -ENODATA: there is none that can be used and @empty is not set; nothing
 * was made then. When hydrate fails the new session is deleted again.
 */
int sbx_snapshot_resume(struct sbx_workspace *ws, const struct sbx_call *call, bool empty,
			const struct sbx_snapshot_progress *progress, char **ret_message);

/* Put back what a thaw of the server's archive lost (mtimes, modes of directories, absolute links),
 * as far as the store of names knew it. What was not known is in *ret_message. */
int sbx_snapshot_mend_thaw(struct sbx_workspace *ws, const struct sbx_call *call,
			   char **ret_message);

/* The directory ------------------------------------------------------------------------------ */

struct sbx_snapshot_info {
	char *name;
	uint64_t archive_bytes;
	uint64_t receipt_bytes; /* 0: there is no receipt */
	int64_t mtime_ns; /* of the archive, this machine's */
	bool verified;
};

/* struct sbx_snapshot_info *, newest first; g_ptr_array_unref(). Blocks on the local disk. */
int sbx_snapshots_list(struct sbx_statedir *dir, const char *session_name, GPtrArray **ret_infos);
/* Names of sessions that have snapshots, sorted; g_strfreev(). */
char **sbx_snapshots_sessions(struct sbx_statedir *dir);
/* The directory of a session's snapshots, made and taken away. -EEXIST is no error of the first;
 * -ENOTEMPTY, -ENOENT of the second. */
int sbx_snapshots_make(struct sbx_statedir *dir, const char *session_name);
int sbx_snapshots_unmake(struct sbx_statedir *dir, const char *session_name);
/* Archives and receipts of a session by file name, sorted; g_strfreev(). No directory: none. */
int sbx_snapshots_files(struct sbx_statedir *dir, const char *session_name, char ***ret_files);
/* A descriptor for reading @file ("x.tar" or "x.json"). -ENOENT. */
int sbx_snapshots_open(struct sbx_statedir *dir, const char *session_name, const char *file);
/* Remove @file; with the archive goes its receipt. */
int sbx_snapshots_remove(struct sbx_statedir *dir, const char *session_name, const char *file);

/*
 * A file that is being copied in: written by the caller through the descriptor, then finished under
 * its name. An archive is read as hostile input and compared with its receipt; without one it gets
 * one of the archive alone. A receipt is checked for its form and compared with its archive, where
 * that is there; it may replace another. -EINVAL, -E2BIG, -EIO (archive and receipt do not match)
 * with a message: refused, nothing is left. -EEXIST: there is such an archive, or the same is being
 * copied in.
 */
int sbx_snapshots_import_begin(struct sbx_statedir *dir, const char *session_name, const char *file,
			       int *ret_fd);
int sbx_snapshots_import_end(struct sbx_statedir *dir, const char *session_name, const char *file,
			     const struct sbx_call *call, char **ret_message);
void sbx_snapshots_import_drop(struct sbx_statedir *dir, const char *session_name,
			       const char *file);

/* Open the archive and its receipt (made from the archive where there is none), both checked
 * against each other. *ret_fd, *ret_receipt, *ret_archive are the caller's. -EINVAL, -EIO. */
struct sbx_tar_list;
int sbx_snapshots_load(struct sbx_statedir *dir, const char *session_name, const char *name,
		       const struct sbx_call *call, int *ret_fd, struct sbx_receipt **ret_receipt,
		       struct sbx_tar_list **ret_archive, char **ret_message);
/* The receipt of @name. -ENOENT; -EINVAL with a message: it is none. */
int sbx_snapshots_receipt(struct sbx_statedir *dir, const char *session_name, const char *name,
			  struct sbx_receipt **ret_receipt, char **ret_message);
/* -ENODATA: none is verified. */
int sbx_snapshots_newest_verified(struct sbx_statedir *dir, const char *session_name,
				  char **ret_name);
/* Write the receipt of @name. */
int sbx_snapshots_save_receipt(struct sbx_statedir *dir, const char *session_name,
			       const struct sbx_receipt *receipt);

#endif
