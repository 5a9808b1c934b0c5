/*
 * apply.h - the apply program: a list of mutations, done in order in one exec.
 *
 * Each operation is answered with its own errno; at the end the attributes of every path that was
 * named, and of the directories that hold them, are read and come with the answer. An operation
 * that fails does not stop the next, unless that one is marked SBX_APPLY_AND.
 *
 * Exactly once: a request has an id, and the sandbox keeps the outcome under it for ten minutes.
 * The same request sent again gives the stored answer, or -EINPROGRESS while the first one still
 * runs, and never does anything twice. Where outcomes can't be kept it is done the first time, and
 * refused when it is sent again. An id must not be used for another request.
 *
 * Content travels in the request (small), or was put beforehand into a staging file in
 * SBX_STAGE_DIR (big) which the operations name.
 *
 * Links: the last component of a path is never followed. Parents are, as the sandbox resolves them.
 *
 * No I/O, no locks. The functions that add return the operation's index (from 0), or
 *   -E2BIG         the request is full: nothing was added; send it, begin another
 *   -EINVAL        a path or an argument has no valid form
 *   -ENAMETOOLONG
 *   -EOPNOTSUPP    the sandbox's tools can't
 */
#ifndef SBX_CLIENT_APPLY_H
#define SBX_CLIENT_APPLY_H

#include "client/attr.h"
#include "client/program.h"
#include "client/scan.h"

#define SBX_WORK_DIR  ".sbxfs"
#define SBX_STAGE_DIR ".sbxfs/stage"
#define SBX_HELD_DIR  ".sbxfs/held"
#define SBX_OPS_DIR   ".sbxfs/ops"
#define SBX_JOBS_DIR  ".sbxfs/jobs"

#define SBX_OPID_CHARS 32

/* Flags that every operation takes. */
#define SBX_APPLY_AND 0x1u /* only if the operation before it succeeded, else ECANCELED */

/* rename */
#define SBX_APPLY_NOREPLACE 0x2u
/* save, place: the name must be new, else EEXIST */
#define SBX_APPLY_EXCL 0x4u
/* save, place: nothing has the name, or an empty regular file, else EEXIST */
#define SBX_APPLY_EMPTY 0x10u
/* save, place: write into the existing file instead of replacing it (made when missing) */
#define SBX_APPLY_IN_PLACE 0x8u

/* Times for utimens and saves, as utimensat takes them. */
#define SBX_TIME_NOW  INT64_MAX
#define SBX_TIME_OMIT INT64_MIN

/* Mode of save and place: keep the target's, 0644 for a new file. */
#define SBX_MODE_KEEP UINT32_MAX
#define SBX_MODE_NEW  0644

struct sbx_apply_request;

/*
 * opid: at most SBX_OPID_CHARS of [A-Za-z0-9-], or NULL for a random one. Returns NULL only for an
 * opid of another form.
 */
struct sbx_apply_request *sbx_apply_new(const struct sbx_tools *tools,
					const struct sbx_program_limits *limits, const char *opid);
void sbx_apply_free(struct sbx_apply_request *req);
/* The same was sent before, by this request or another: from now on it is refused (-EUCLEAN) where
 * the sandbox could not keep what came of that. */
void sbx_apply_asked_before(struct sbx_apply_request *req);
const char *sbx_apply_opid(const struct sbx_apply_request *req);
unsigned sbx_apply_count(const struct sbx_apply_request *req);

/*
 * Has @scan done when the operations are over, by the same exec; its answer comes in the reply,
 * unless that were longer than a reply may be. @scan must outlive req. 0; -E2BIG: there is no room,
 * and the request is as it was.
 */
int sbx_apply_survey(struct sbx_apply_request *req, const struct sbx_scan_request *scan);

/*
 * argv of the exec; of the request. After the first call nothing can be added; called again (the
 * answer was lost) it gives the same. NULL with *ret_error when the request does not fit.
 */
const char *const *sbx_apply_argv(struct sbx_apply_request *req, int *ret_error);

/* mode: 07777, taken as it is: no umask. EEXIST for anything that is there. */
int sbx_apply_mkdir(struct sbx_apply_request *req, const char *path, uint32_t mode, unsigned flags);
int sbx_apply_rmdir(struct sbx_apply_request *req, const char *path, unsigned flags);
/*
 * EISDIR for a directory. held: NULL, or where in SBX_HELD_DIR the file is set aside instead of
 * being lost (a whole path; see in the reply whether it is there).
 */
int sbx_apply_unlink(struct sbx_apply_request *req, const char *path, const char *held,
		     unsigned flags);
/*
 * rename(2), never into a directory that is there: EISDIR, ENOTDIR, ENOTEMPTY, EINVAL, EXDEV as
 * the system call. NOREPLACE: EEXIST; EINVAL for a directory where no tool can. held: as unlink,
 * for what is overwritten.
 */
int sbx_apply_rename(struct sbx_apply_request *req, const char *from, const char *to,
		     const char *held, unsigned flags);
int sbx_apply_link(struct sbx_apply_request *req, const char *from, const char *to, unsigned flags);
int sbx_apply_symlink(struct sbx_apply_request *req, const char *text, const char *path,
		      unsigned flags);
/* A symlink: EOPNOTSUPP. */
int sbx_apply_chmod(struct sbx_apply_request *req, const char *path, uint32_t mode, unsigned flags);
/* Nanoseconds, SBX_TIME_NOW or SBX_TIME_OMIT; cut to seconds where the tools have no more. */
int sbx_apply_utimens(struct sbx_apply_request *req, const char *path, int64_t atime_ns,
		      int64_t mtime_ns, unsigned flags);
/* Exactly this size; only a regular file: EISDIR, ELOOP for a link, EINVAL. */
int sbx_apply_truncate(struct sbx_apply_request *req, const char *path, uint64_t size,
		       unsigned flags);
/* At least this size. */
int sbx_apply_extend(struct sbx_apply_request *req, const char *path, uint64_t size,
		     unsigned flags);
/* A new empty file, O_EXCL: EEXIST for anything that is there. mode: 0777, no umask. */
int sbx_apply_create(struct sbx_apply_request *req, const char *path, uint32_t mode,
		     unsigned flags);
/* ESTALE unless path is this file now (ENOENT when it is gone); for what follows with AND. */
int sbx_apply_expect(struct sbx_apply_request *req, const char *path, uint64_t dev, uint64_t ino,
		     unsigned flags);
/* SBX_WORK_DIR's subdirectory `dir` loses files not touched for `minutes` (0: all); with a mark
 * (may be NULL; letters and digits) only those whose names begin with it. */
int sbx_apply_sweep(struct sbx_apply_request *req, const char *dir, unsigned minutes,
		    const char *mark, unsigned flags);

/*
 * What was asked for under that id, by a request whose answer did not come, is over when this is
 * done: not begun by then it is never done (-ECANCELED is the answer to it), begun it is waited
 * for; EBUSY: not to its end. Holds as long as outcomes are kept.
 */
int sbx_apply_void(struct sbx_apply_request *req, const char *opid, unsigned flags);

struct sbx_apply_content {
	const void *data; /* bytes that travel with the request; or NULL with: */
	const char *stage; /* a file in SBX_STAGE_DIR that has them */
	uint64_t stage_offset; /* patch pieces only */
	uint64_t len;
};

struct sbx_apply_how {
	uint32_t mode; /* 0777, or SBX_MODE_KEEP */
	int64_t atime_ns; /* SBX_TIME_OMIT: as it comes */
	int64_t mtime_ns;
	const char *held; /* as in unlink, for the replaced file; or NULL */
	unsigned flags;
};

/*
 * The whole content of a regular file: staged and renamed into place, owner kept, mode kept or
 * set. A file with several links, and one that can't be replaced so, is written in place. Staged
 * content is consumed; EIO when its size is not content->len. EISDIR for a directory; a link, FIFO
 * or the like of that name is replaced. SBX_APPLY_EXCL, SBX_APPLY_EMPTY: EEXIST.
 */
int sbx_apply_save(struct sbx_apply_request *req, const char *path,
		   const struct sbx_apply_content *content, const struct sbx_apply_how *how);

/* One part of a patch. */
enum sbx_piece_kind {
	SBX_PIECE_WRITE, /* content at offset */
	SBX_PIECE_APPEND, /* content at the file's own end, O_APPEND */
	SBX_PIECE_TRUNCATE, /* size becomes offset */
};

struct sbx_apply_piece {
	enum sbx_piece_kind kind;
	uint64_t offset;
	struct sbx_apply_content content;
};

/*
 * Applies pieces in their order to a regular file that is there, in place. ENOENT, EISDIR, ELOOP
 * for a link, EINVAL for another kind. Staged content stays (unlink it in the same request).
 */
int sbx_apply_patch(struct sbx_apply_request *req, const char *path,
		    const struct sbx_apply_piece *pieces, unsigned count, unsigned flags);

/* len of sbx_apply_copy(): the whole file, to an empty or missing destination. */
#define SBX_COPY_WHOLE UINT64_MAX

/*
 * Copies bytes within the sandbox, at most to the end of the source, into a regular file that is
 * there (WHOLE: made when missing). What was copied shows from the sizes in the reply.
 */
int sbx_apply_copy(struct sbx_apply_request *req, const char *source, uint64_t source_offset,
		   const char *target, uint64_t target_offset, uint64_t len, unsigned flags);

struct sbx_apply_result {
	int error; /* positive errno, 0 done */
	char *text; /* what the tool said, printable; NULL when done */
	bool in_place; /* save: the file was not replaced but written into */
	bool set_aside; /* unlink, rename, save: `held` has the old file */
	/* save: the attributes in the reply are those of what was saved, to a tick of the sandbox's
	 * clock; else somebody may have changed it before they were looked at */
	bool proven;
};

struct sbx_apply_path {
	char *path;
	char *link; /* text of a symlink, else NULL */
	struct sbx_attr attr;
	bool present; /* false: ENOENT when the request was over, and attr is not set */
};

struct sbx_apply_reply {
	GArray *results; /* struct sbx_apply_result, one an operation */
	GPtrArray *paths; /* struct sbx_apply_path *: what was named, and the parents */
	GHashTable *by_path;
	struct sbx_scan_reply *survey; /* NULL: none came */
	bool repeated; /* the stored answer of an earlier run */
	bool not_kept; /* done, but the outcome could not be stored: sending it again is not safe */
};

/*
 * Decodes stdout of the exec that ran req. 0 and a reply to be freed; -EINPROGRESS: the same id
 * still runs (ask again); -ECANCELED: it was voided, nothing was done; -EUCLEAN: an earlier run
 * under this id ended without an answer, or could not keep it: what it did is not known; errors of
 * sbx_program_unframe().
 */
int sbx_apply_decode(const struct sbx_apply_request *req, const char *out, size_t out_len,
		     struct sbx_apply_reply **ret_reply);
void sbx_apply_reply_free(struct sbx_apply_reply *reply);

/* NULL when the request did not name the path. */
const struct sbx_apply_path *sbx_apply_reply_path(const struct sbx_apply_reply *reply,
						  const char *path);

#endif
