/*
 * op - one change in the sandbox, as a value that can wait in the queue of names.h.
 *
 * client/apply.h encodes operations at once into a request; whoever asks does not know with which
 * others they will travel. So they are described here, copied when they are queued, and encoded
 * when their request is built. The meaning of each kind and flag is that of the sbx_apply_ function
 * of the same name.
 *
 * Values, no locks.
 */
#ifndef SBX_CLIENT_WORKSPACE_OP_H
#define SBX_CLIENT_WORKSPACE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/apply.h"
#include "client/attr.h"

struct sbx_setattr; /* workspace.h */

enum sbx_op_kind {
	SBX_DO_MKDIR, /* path, mode */
	SBX_DO_RMDIR, /* path */
	SBX_DO_UNLINK, /* path, held */
	SBX_DO_RENAME, /* from, path (the new name), held; SBX_APPLY_NOREPLACE */
	SBX_DO_LINK, /* from (the file), path (the new name) */
	SBX_DO_SYMLINK, /* from (the text), path */
	SBX_DO_CHMOD, /* path, mode */
	SBX_DO_UTIMENS, /* path, atime_ns, mtime_ns */
	SBX_DO_TRUNCATE, /* path, size */
	SBX_DO_EXTEND, /* path, size */
	SBX_DO_CREATE, /* path, mode */
	SBX_DO_EXPECT, /* path, dev, ino */
	SBX_DO_SWEEP, /* path (the subdirectory's name), size (minutes), from (the mark, or NULL) */
	SBX_DO_SAVE, /* path, content, mode, atime_ns, mtime_ns, held */
	SBX_DO_PATCH, /* path, pieces, n_pieces */
	SBX_DO_COPY, /* from, from_offset, path, offset, size (SBX_COPY_WHOLE) */
};

/* As a user would say it: "mkdir". A constant. */
const char *sbx_op_word(enum sbx_op_kind kind);

/* Paths as in workspace.h: relative to the workspace. Pointers are borrowed by who makes it. */
struct sbx_op {
	enum sbx_op_kind kind;
	unsigned int flags; /* SBX_APPLY_… */
	const char *path;
	const char *from;
	const char *held;
	uint32_t mode;
	int64_t atime_ns;
	int64_t mtime_ns;
	uint64_t size;
	uint64_t offset;
	uint64_t from_offset;
	uint64_t dev;
	uint64_t ino;
	struct sbx_apply_content content;
	const struct sbx_apply_piece *pieces;
	unsigned int n_pieces;
	/* Of the first operation of a caller's: the id of a request of their own (apply.h). Asked
	 * again with the same one, what was done is not done twice. NULL: they share a request. */
	const char *opid;
	bool asked_before; /* that request was sent, and its answer did not come */
};

struct sbx_op_result {
	int error; /* negative errno, 0 done */
	bool in_place; /* save: the file was not replaced but written into */
	bool set_aside; /* `held` has the old file */
	bool proven; /* save: attr is that of what was saved */
	bool has_attr; /* attr is set: path was there when the request was over */
	struct sbx_attr attr; /* of op.path */
	char *link; /* text where op.path is a symbolic link; freed by sbx_op_results_clear() */
};

void sbx_op_results_clear(struct sbx_op_result *results, size_t n_results);

/* Encode @op: its index in @req or the negative errno of the sbx_apply_ function. */
int sbx_op_add(struct sbx_apply_request *req, const struct sbx_op *op);

/*
 * The operations of *change on @path, each done only if the one before it was: their number, 0 when
 * nothing is set. The size first: a mode that is set with it may forbid that.
 */
#define SBX_OP_SETATTR_MAX 3
size_t sbx_op_setattr(const struct sbx_setattr *change, const char *path,
		      struct sbx_op ret_ops[SBX_OP_SETATTR_MAX]);

/* Deep copies of @n_ops operations, in one block; sbx_ops_free(). */
struct sbx_op *sbx_ops_copy(const struct sbx_op *ops, size_t n_ops);
void sbx_ops_free(struct sbx_op *ops, size_t n_ops);

/* In so many milliseconds the sandbox surely moves @len_bytes from one of its files to another:
 * what an answer may take beside what any may. */
int64_t sbx_op_work_ms(uint64_t len_bytes);

/* Roughly how many bytes of a command @op takes, never less than what it takes. */
size_t sbx_op_command_bytes(const struct sbx_op *op);

#endif
