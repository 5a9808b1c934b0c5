/*
 * spool - unsent bytes of one file, in a named file of the state directory.
 *
 * From the first write on the bytes are in a file of the session's spool directory (statedir.h),
 * 0600, flock'ed by the process that holds them; they survive kill -9 of that process, and the
 * next mount adopts what has no living owner. The file is removed only when the sandbox has the
 * bytes, or a program of this machine has removed the file that they belong to.
 *
 * Form: two header slots, then a log.
 *
 *   0                  slot A   the newer of the two with a sound checksum counts, so that a header
 *   SBX_SPOOL_SLOT     slot B   is replaced without a moment in which there is none
 *   2 * SBX_SPOOL_SLOT records  {magic, type, sequence, offset, length, checksum} data
 *
 * Records say what a program did (write, append, truncate), in order. Each is written by one call
 * at the end of the log; what it replaces stays as garbage until a compaction writes the log anew
 * beside and renames it over. So the bytes at a position never change, and a publish reads a fixed
 * state (struct sbx_spool_view) while writes go on. Adoption plays the log and cuts off a torn last
 * record. Record checksums cover the header and are seeded with a random number of the file: file
 * content can't pass for a record.
 *
 * No fsync: the process may die at any moment, the machine's death may cost the last seconds.
 *
 * Locking: none; the owner of a spool serialises its calls. A view is read without any lock.
 * Every function blocks on the local disk only. Errors besides those named: -ENOSPC, -EDQUOT, -EIO
 * of the local disk; the spool then holds what it held before.
 */
#ifndef SBX_CLIENT_WORKSPACE_SPOOL_H
#define SBX_CLIENT_WORKSPACE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/workspace/layout.h"
#include "client/workspace/version.h"

#define SBX_SPOOL_SLOT	     8192
#define SBX_ATTEMPT_ID_CHARS 32

struct sbx_spool;

enum sbx_spool_kind {
	SBX_SPOOL_WHOLE = 1, /* all content is here; replaces the file */
	SBX_SPOOL_PATCH, /* changes of the base; applied in place */
};

enum {
	SBX_SPOOL_NEW = 1 << 0, /* the sandbox had no such file */
	SBX_SPOOL_MODE = 1 << 1, /* mode is to be set */
	SBX_SPOOL_ATIME = 1 << 2,
	SBX_SPOOL_MTIME = 1 << 3,
	SBX_SPOOL_ORPHAN = 1 << 4, /* its file was removed while it was open: no adoption */
	/* Of a whole one: nothing was cut. What the sandbox's file has got meanwhile, believed
	 * missing or empty when this began, stays, and what is here is written to it. */
	SBX_SPOOL_ADDS = 1 << 5,
	/* What is to be set beside the content. */
	SBX_SPOOL_SET = SBX_SPOOL_MODE | SBX_SPOOL_ATIME | SBX_SPOOL_MTIME,
};

/* What the header says beside path and tag. */
struct sbx_spool_meta {
	enum sbx_spool_kind kind;
	unsigned int flags; /* SBX_SPOOL_… */
	mode_t mode; /* 0777: of a new file, to be set (SBX_SPOOL_MODE), or the base's */
	int64_t atime_ns; /* to be set: SBX_TIME_NOW (apply.h) is the moment at which it is */
	int64_t mtime_ns;
	struct sbx_version base; /* what the changes began with; zeros with SBX_SPOOL_NEW */
	int64_t begun_ns; /* sbx_spool_now_ns() when the first of them was made */
	/* An attempt to send the records before attempt_end under this id, whose outcome is not
	 * known; "": there is none. */
	char attempt_id[SBX_ATTEMPT_ID_CHARS + 1];
	uint64_t attempt_end;
	int64_t attempt_ns; /* sbx_spool_now_ns() when it was made first */
	uint64_t attempt_size_bytes; /* of the sandbox's file before it, as it was known here */
};

/* This machine's own time, which all its mounts share and which goes on while it sleeps. */
int64_t sbx_spool_now_ns(void);

/* A state of a spool that stays as it is: what a publish sends. */
struct sbx_spool_view {
	int fd;
	uint64_t log_end; /* records behind it came later */
	uint64_t log_generation;
	struct sbx_spool_meta meta;
	struct sbx_layout layout;
};

/*
 * Make a spool in the directory @dirfd (borrowed, must outlive it) for the file @path of the
 * session @tag. A whole spool begins empty, a patch with the base's bytes.
 */
int sbx_spool_create(int dirfd, const char *tag, const char *path,
		     const struct sbx_spool_meta *meta, struct sbx_spool **ret_spool);

/*
 * Take over the file @name. -EWOULDBLOCK: its owner lives; -ENOENT: its owner has just removed or
 * replaced it; -EBADMSG: not a spool (left as it is; one that was never begun, and an orphan, is
 * removed); -EXDEV: it belongs to another session than @tag.
 */
int sbx_spool_adopt(int dirfd, const char *tag, const char *name, struct sbx_spool **ret_spool);

/* Forget it here; the file stays for a later adoption. NULL is allowed. */
void sbx_spool_close(struct sbx_spool *spool);
/* Remove the file and forget it. NULL is allowed. */
void sbx_spool_remove(struct sbx_spool *spool);

/* Names in the spool directory that may be spools: of files that end in ".spool". */
bool sbx_spool_is_name(const char *name);

const char *sbx_spool_path(const struct sbx_spool *spool);
const struct sbx_spool_meta *sbx_spool_meta(const struct sbx_spool *spool);
const struct sbx_layout *sbx_spool_layout(const struct sbx_spool *spool);
int sbx_spool_set_path(struct sbx_spool *spool, const char *path);
int sbx_spool_set_meta(struct sbx_spool *spool, const struct sbx_spool_meta *meta);

/* All bytes or none. */
int sbx_spool_write(struct sbx_spool *spool, const void *buf, size_t len_bytes, uint64_t offset);
int sbx_spool_append(struct sbx_spool *spool, const void *buf, size_t len_bytes);
int sbx_spool_truncate(struct sbx_spool *spool, uint64_t size_bytes);

/* The content is empty from here on and all of it is here: what began as a patch becomes whole. */
int sbx_spool_restart(struct sbx_spool *spool, const struct sbx_spool_meta *meta);

/* Read bytes of the log: a SBX_EXTENT_LOG of the spool's or the view's layout. */
int sbx_spool_read(const struct sbx_spool *spool, void *buf, size_t len_bytes, uint64_t log_pos);
int sbx_spool_view_read(const struct sbx_spool_view *view, void *buf, size_t len_bytes,
			uint64_t log_pos);

/*
 * The state as it is now. The view owns a descriptor of the file. Until sbx_spool_unpin() the log
 * is not compacted, so that what came after the view can be told.
 */
int sbx_spool_view(struct sbx_spool *spool, struct sbx_spool_view *ret_view);
/* The same, as it was when the log ended at @log_end: what an attempt in doubt has sent. */
int sbx_spool_view_until(struct sbx_spool *spool, uint64_t log_end,
			 struct sbx_spool_view *ret_view);
void sbx_spool_view_done(struct sbx_spool_view *view);
void sbx_spool_unpin(struct sbx_spool *spool);
/* Of one adopted with an attempt in doubt: pin it; returns whether records came after the
 * attempt. */
bool sbx_spool_pin_until_attempt(struct sbx_spool *spool);
/* Something was written since @view, or is to be set that @view does not have. */
bool sbx_spool_is_newer(const struct sbx_spool *spool, const struct sbx_spool_view *view);

/*
 * The sandbox has all of @view as the version meta->base: keep what was written since, as changes
 * of that version, and what is to be set that @view does not have. @meta->kind is SBX_SPOOL_PATCH,
 * without flags. A spool that was restarted since stays what it is.
 */
int sbx_spool_rebase(struct sbx_spool *spool, const struct sbx_spool_view *view,
		     const struct sbx_spool_meta *meta);

#endif
