/*
 * files - open files of a workspace: reading, writing, and when bytes become the sandbox's.
 *
 * One `struct sbx_node_file` a path that is open or has unsent bytes, shared by all its open files:
 * content version that is read (content.h), spool of unsent bytes (spool.h), who opened it for
 * writing. `struct sbx_file` is one open file.
 *
 * Kinds of unsent bytes:
 *   whole   the file is new or the save began with a truncation: all content is here. Published by
 *           staging and renaming into place (apply save/place), so no program in the sandbox sees
 *           half of it. Small ones in one request; big ones by PUT to a staging name.
 *   patch   writes at an offset, appends, truncations of a file that was there: only what changed
 *           is here. Published in place by one apply request that has all its bytes before it
 *           starts; appended bytes go to the sandbox's own end of file.
 *
 * When (kernel.md "FLUSH is not close"): sbx_file_flush() publishes when it comes from the opener,
 * or the opener is dead, and something was written since the last publish; else it returns 0 at
 * once. What is owed is published by the next counting flush, by fsync, or by release. A creation
 * or truncation without a write is published at release. A getattr by the process that holds unsent
 * bytes publishes first (git), after three such in a row on one file it is estimated instead.
 * Mode and times that are set meanwhile ride along, also those of a file just made and not written
 * yet.
 * Appends of a file that stays open are sent every 2 s. Nothing else by a timer.
 *
 * A publish runs on the pool: a caller that is interrupted leaves, the bytes go on. When it fails
 * the spool stays, is listed by sbx_ws_pending(), and is sent at the next use of the session, by a
 * retry timer, by sync, and after a remount.
 *
 * Locking: files->lock (the table) before node_file->lock (content, spool, state); neither held
 * across a request. names.h's lock is inside both.
 */
#ifndef SBX_CLIENT_WORKSPACE_FILES_H
#define SBX_CLIENT_WORKSPACE_FILES_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/attr.h"
#include "client/workspace/workspace.h"

struct sbx_call;
struct sbx_file;
struct sbx_files;
struct sbx_names;
struct sbx_session;

/* Adopts the left-over spools of the session's spool directory (those whose owner is dead), now and
 * later: at the next use and every few seconds. */
int sbx_files_new(struct sbx_session *session, struct sbx_names *names,
		  const struct sbx_workspace_options *options, struct sbx_files **ret_files);
void sbx_files_free(struct sbx_files *files);

/* sbx_ws_open(). */
int sbx_files_open(struct sbx_files *files, const struct sbx_call *call, const char *path,
		   int flags, mode_t mode, pid_t opener, struct sbx_file **ret_file,
		   struct sbx_attr *ret_attr);

/* May what *attr describes be read, written or (a directory) entered, as @mask says? Where the
 * sandbox's commands are not root's, -EACCES for what nobody may. Never asks. */
int sbx_files_access(struct sbx_files *files, const struct sbx_attr *attr, int mask);

/* Another open file of the one that @file is of, also when that has lost its name. @flags:
 * O_ACCMODE and O_TRUNC. Never asks. */
int sbx_file_open_again(struct sbx_file *file, int flags, pid_t opener, struct sbx_file **ret_file);

/* Identity of the content that the open file reads; equal values mean equal bytes, so the kernel's
 * pages may be kept. 0: never keep. */
uint64_t sbx_file_version(struct sbx_file *file);

/* It reads another version than an open of its path now would: the file was replaced since. */
bool sbx_file_is_old(struct sbx_file *file);

/* Up to @size bytes at @offset into @buf; short only at the end of the file. Number of bytes or a
 * negative errno: -ESTALE when the file was replaced in the sandbox and these bytes were not
 * fetched yet. */
ssize_t sbx_file_read(struct sbx_file *file, const struct sbx_call *call, void *buf, size_t size,
		      uint64_t offset);
/* Into the spool; never asks. -ENOSPC, -EFBIG from the local disk. All bytes or none. */
ssize_t sbx_file_write(struct sbx_file *file, const struct sbx_call *call, const void *buf,
		       size_t size, uint64_t offset);
/* The same, to the end that the file has in the sandbox; here it shows at the end that it has here.
 * @offset: where the caller believes that. Whether a file is appended to is said by each write: a
 * program may change its mind (F_SETFL), and pages of a mapping are never appended. */
ssize_t sbx_file_append(struct sbx_file *file, const struct sbx_call *call, const void *buf,
			size_t size, uint64_t offset);
/* @tid: the thread that closes a copy of it. */
int sbx_file_flush(struct sbx_file *file, const struct sbx_call *call, pid_t tid);
int sbx_file_fsync(struct sbx_file *file, const struct sbx_call *call);
/* Publishes what is owed (waits for it at most the call's timeout; @call NULL: not at all), then
 * drops the open file in any case. The result matters only to logs. */
int sbx_file_release(struct sbx_file *file, const struct sbx_call *call);
/* fallocate mode 0: grows the file where it is shorter. */
int sbx_file_allocate(struct sbx_file *file, const struct sbx_call *call, uint64_t offset,
		      uint64_t len);
/* Copied in the sandbox, no content on the wire; publishes both first. Bytes copied or -errno. */
ssize_t sbx_file_copy_range(struct sbx_file *in, uint64_t in_offset, struct sbx_file *out,
			    uint64_t out_offset, size_t len, const struct sbx_call *call);
/* Attributes for getattr of a file by the process of thread @tid, 0: for none (see "When"). */
int sbx_file_getattr(struct sbx_file *file, const struct sbx_call *call, pid_t tid,
		     struct sbx_attr *ret_attr);

/* Attributes of one that has lost its name: those of the version that it has, without a link. Never
 * asks: what has its path by now may be another file. */
void sbx_file_nameless_attr(struct sbx_file *file, struct sbx_attr *ret_attr);

/* What the name operations tell and ask. None of these waits for the network but publish. */

/* Some program has @path open, or bytes of it are unsent. */
bool sbx_files_is_open(struct sbx_files *files, const char *path);
/* Some program has a file open for writing. */
bool sbx_files_any_writer(struct sbx_files *files);
/* Where @path is to be set aside before its name goes, because an open file reads it and not all
 * its bytes are here: a new name (g_free()); NULL: it need not be. Never asks. */
char *sbx_files_held_path(struct sbx_files *files, const char *path);
/* Before a stat of @path by the process of thread @tid (0: whoever looks its name up): publish when
 * that holds unsent bytes of it; and wait for what the last writer of it, or of a file in the
 * directory @path, has left to be sent when it closed it. */
int sbx_files_before_stat(struct sbx_files *files, const struct sbx_call *call, const char *path,
			  pid_t tid);
/* Some program uses the session: have left-over bytes sent, at most once a second. Never waits. */
void sbx_files_used(struct sbx_files *files);
/* Publish what is unsent of @path and below it (before rename, link, a job, …). NULL:
 * everything. */
int sbx_files_publish(struct sbx_files *files, const struct sbx_call *call, const char *path);
/* sbx_ws_sync_most(). */
int sbx_files_publish_most(struct sbx_files *files, const struct sbx_call *call,
			   const char *operation);
/* sbx_ws_settle(). */
int sbx_files_settle(struct sbx_files *files, const struct sbx_call *call);
/*
 * fsync of the directory @path: publish what is unsent below it of files that nobody has open for
 * writing any more. What others write is theirs, and so is the error of what could not be sent: but
 * for a file made in this very directory that the sandbox does not have yet.
 */
int sbx_files_publish_closed(struct sbx_files *files, const struct sbx_call *call,
			     const char *path);
/* setattr of a file that has unsent bytes: *ret_done tells whether it rode along with them, or will
 * follow those that are on their way; else the caller applies it. @path NULL: as
 * sbx_ws_setattr(). */
int sbx_files_setattr(struct sbx_files *files, const struct sbx_call *call, const char *path,
		      struct sbx_file *file, const struct sbx_setattr *change, bool *ret_done,
		      struct sbx_attr *ret_attr);
/*
 * The name @path is about to go or to mean another file: from now until sbx_files_let() no unsent
 * bytes are put at @path or below it, and what is being put there now is waited for. What was sent
 * after such a change would bring the old file back, or take the new one's place. Added to @held,
 * which goes to sbx_files_let() in any case. 0; -EINTR, -ETIMEDOUT of the wait.
 */
int sbx_files_hold(struct sbx_files *files, const struct sbx_call *call, const char *path,
		   GPtrArray *held);
/* The change is over, and known to files: what was to be sent meanwhile goes where it belongs. */
void sbx_files_let(GPtrArray *held);
/* @path was removed here; @held (may be NULL): where the open file was set aside. Unsent bytes of a
 * file that nobody has open are dropped with it (a local disk would too). */
void sbx_files_unlinked(struct sbx_files *files, const char *path, const char *held);
/* @from (a file or a whole directory) is now @to. */
void sbx_files_renamed(struct sbx_files *files, const char *from, const char *to);

void sbx_files_pending(struct sbx_files *files, size_t *ret_files, uint64_t *ret_bytes);
void sbx_files_refresh(struct sbx_files *files);

#endif
