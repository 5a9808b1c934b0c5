/*
 * workspace - POSIX operations over the tree of one session.
 *
 * This is what fusefs asks; it knows no FUSE. Files are named by their path relative to the
 * workspace's root: bytes, components separated by '/', "" the root itself, no '.', '..', empty
 * component, NUL, or component over 255 bytes (-EINVAL; callers check names first). A path that
 * begins with '/' means the sandbox's own root (`.sbxfs-root`) and is read-only: -EROFS.
 *
 * Parts, each with its own header: names.h (the one metadata store, its freshness, and the queue of
 * mutations), files.h (open files: content, spools, publishing), content.h (bytes fetched and
 * cached), links.h (what a symbolic link may show). The programs that run in the sandbox are
 * encoded and decoded by client/scan.h, apply.h, pack.h, probe.h. Where there is no exec the plain
 * routes serve what they can (plain.h); what they can't is -EOPNOTSUPP.
 *
 * Freshness: an answer is never older than ttl_ms, and always shows what this mount did. Times,
 * sizes and inode numbers are the sandbox's own; only files with unsent bytes show local ones.
 *
 * Errors common to all: -EINTR (cancelled), -ETIMEDOUT, -EHOSTUNREACH (fail fast), -ESTALE (session
 * gone), -EACCES (token refused), -EIO (an answer that is short, foreign or unparsable).
 *
 * Locking: none visible to callers. Every function is thread safe and may block on the network
 * within the call's timeout unless it says "never asks".
 */
#ifndef SBX_CLIENT_WORKSPACE_WORKSPACE_H
#define SBX_CLIENT_WORKSPACE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "client/attr.h"

struct sbx_call;
struct sbx_file;
struct sbx_names;
struct sbx_files;
struct sbx_link_view; /* links.h */
struct sbx_session;
struct sbx_workspace;

struct sbx_workspace_options {
	int64_t ttl_ms;
	bool use_exec; /* false: -o exec=no */
	bool read_only; /* -o ro: nothing is recovered or sent either */
	bool cache_on_disk; /* keep content across mounts */
	uint64_t cache_size_bytes;
};

/* Sends nothing. Unsent bytes found in the session's spool directory are adopted: they show in
 * status and are sent at the next use. @session gets an own reference. */
int sbx_workspace_new(struct sbx_session *session, const struct sbx_workspace_options *options,
		      struct sbx_workspace **ret_ws);
/* Unsent bytes stay in their spools. */
void sbx_workspace_free(struct sbx_workspace *ws);

struct sbx_session *sbx_workspace_session(struct sbx_workspace *ws);
struct sbx_names *sbx_workspace_names(struct sbx_workspace *ws);
struct sbx_files *sbx_workspace_files(struct sbx_workspace *ws);

/* Attributes ------------------------------------------------------------------------------ */

enum sbx_stat_how {
	SBX_STAT_TTL, /* as old as ttl_ms at most */
	SBX_STAT_CACHED, /* never asks: whatever is known, -ENOENT known absent, -EAGAIN unknown */
	SBX_STAT_NOW, /* asks */
};

/*
 * lstat. *ret_valid_ms (may be NULL): for how long the answer, a -ENOENT too, may be believed from
 * now (0 with unsent bytes).
 */
int sbx_ws_stat(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		enum sbx_stat_how how, struct sbx_attr *ret_attr, int64_t *ret_valid_ms);

/*
 * Whether what *attr describes, at @path (NULL: nowhere by now), may be had as @mask (R_OK, W_OK,
 * X_OK) says: 0; -EROFS; -EACCES for what an open would refuse, or the sandbox where its commands
 * are not root's. X_OK of what is no directory is the caller's to judge. Never asks.
 */
int sbx_ws_access(struct sbx_workspace *ws, const char *path, const struct sbx_attr *attr,
		  int mask);

/* A directory as it was at one moment, entries in a fixed order. Immutable, reference counted. */
struct sbx_dirent {
	char *name;
	struct sbx_attr attr; /* attr.mode 0: not known (a server without exec) */
};
struct sbx_listing {
	int refs; /* atomic */
	int64_t valid_ms; /* for how long it may be believed, from when it was returned */
	size_t n_entries;
	struct sbx_dirent *entries;
};
int sbx_ws_list(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		struct sbx_listing **ret_listing);
void sbx_listing_unref(struct sbx_listing *listing);

/*
 * The text that readlink shows for the link @path, contained (links.h). @depth: how many
 * directories lie between the mount's own root and the workspace's root (2 for MNT/dev1/fs; 0 when
 * the mount's root is the workspace's, `subtree`). @raw: the text as it stands in the sandbox.
 */
int sbx_ws_readlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		    const struct sbx_link_view *view, char **ret_target);

/* Mutations: done in the sandbox when they return 0, in the order in which they were asked; at most
 * mutation_timeout_ms. Cancelled while queued: not done; while sent: -EINTR, may be done. Those
 * that answer with attributes give the sandbox's own. -EROFS, -EOPNOTSUPP without exec. ------- */

int sbx_ws_mkdir(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		 mode_t mode, struct sbx_attr *ret_attr);
int sbx_ws_rmdir(struct sbx_workspace *ws, const struct sbx_call *call, const char *path);
/* An open file is set aside in .sbxfs/held in the same request, so that its readers go on. */
int sbx_ws_unlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *path);
/* @flags: 0 or RENAME_NOREPLACE; others -EINVAL. */
int sbx_ws_rename(struct sbx_workspace *ws, const struct sbx_call *call, const char *from,
		  const char *to, unsigned int flags);
int sbx_ws_link(struct sbx_workspace *ws, const struct sbx_call *call, const char *from,
		const char *to, struct sbx_attr *ret_attr);
/* @target as the local program gave it; mapped back to what it means in the sandbox (links.h). */
int sbx_ws_symlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *target,
		   const char *path, const struct sbx_link_view *view, struct sbx_attr *ret_attr);

enum {
	SBX_SET_MODE = 1 << 0,
	SBX_SET_SIZE = 1 << 1,
	SBX_SET_ATIME = 1 << 2,
	SBX_SET_MTIME = 1 << 3,
	SBX_SET_ATIME_NOW = 1 << 4,
	SBX_SET_MTIME_NOW = 1 << 5,
};
struct sbx_setattr {
	unsigned int set; /* SBX_SET_… */
	bool of_directory;
	mode_t mode; /* 07777; bits of 07000 of anything but a directory: -EPERM */
	uint64_t size_bytes;
	int64_t atime_ns;
	int64_t mtime_ns;
};
/* @file (may be NULL): the open file that the caller holds; a change of a file with unsent bytes
 * rides along with them. @path NULL: that file has no name any more, @file is needed; what it has
 * here is changed, and -ESTALE where only the sandbox could. */
int sbx_ws_setattr(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		   struct sbx_file *file, const struct sbx_setattr *change,
		   struct sbx_attr *ret_attr);

/* From a value up to 30 s old; waits at most a second for a new one, never wakes a session. */
int sbx_ws_statfs(struct sbx_workspace *ws, const struct sbx_call *call, struct statvfs *ret_st);

/* Open files: see files.h for what each promises ------------------------------------------- */

/*
 * Open or create @path. @flags: O_ACCMODE, O_CREAT, O_EXCL, O_TRUNC count. @opener: the thread that
 * opens; a FLUSH by its process publishes (kernel.md). A FIFO, socket or device: -ENXIO; a
 * directory: -EISDIR; a symbolic link: -ELOOP.
 */
int sbx_ws_open(struct sbx_workspace *ws, const struct sbx_call *call, const char *path, int flags,
		mode_t mode, pid_t opener, struct sbx_file **ret_file, struct sbx_attr *ret_attr);

/* Unsent bytes of the session: number of files and bytes, never asks. */
void sbx_ws_pending(struct sbx_workspace *ws, size_t *ret_files, uint64_t *ret_bytes);
/* Publish all unsent bytes; 0 only when nothing is left. */
int sbx_ws_sync(struct sbx_workspace *ws, const struct sbx_call *call);
/* The same, but a file that could not be sent before, and can't be now, is no error: errors names
 * it, as something that @operation goes on without. */
int sbx_ws_sync_most(struct sbx_workspace *ws, const struct sbx_call *call, const char *operation);
/* Wait until the spools of what has been sent are gone; what is unsent stays so. Never asks. Errnos
 * of the call's end. */
int sbx_ws_settle(struct sbx_workspace *ws, const struct sbx_call *call);
/* Drop caches: the next answers are asked for. Unsent bytes stay. */
void sbx_ws_refresh(struct sbx_workspace *ws);

/* What the sandbox's tools can, for status: "find -printf, gzip, …", and what is missing and what
 * that costs. From memory; "unknown" before the first use. g_free() both. */
void sbx_ws_capabilities(struct sbx_workspace *ws, char **ret_have, char **ret_missing);

#endif
