/*
 * reply - how an operation begins and how it is answered: the one place of positive errnos.
 *
 * Every handler of libfuse's table begins with op_begin() and ends with exactly one op_reply_…,
 * which first ends the interrupt (libfuse waits for a running callback), then leaves the session,
 * then replies, then takes back what the kernel did not take (its caller had gone), and drops the
 * operation's references.
 *
 * Errnos: ENOSYS never reaches the kernel, which would take it as "never ask again, succeed"; it
 * becomes EOPNOTSUPP, and what is no errno becomes EIO.
 */
#ifndef SBX_FUSEFS_REPLY_H
#define SBX_FUSEFS_REPLY_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "fusefs/op.h"

/* What an unanswered session costs a request when it holds its share of the threads already. */
#define OP_ERRNO_REFUSED (-ETIMEDOUT)

/*
 * Find the node, count the thread, listen for signals. 0; or -ESTALE (the node is not known),
 * OP_ERRNO_REFUSED, -ENOMEM, and then too the operation is ended by an op_reply_….
 */
int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum op_kind kind);
/* The same, but never refused: what ends an open file must be done. */
int op_begin_always(struct op *op, fuse_req_t req, fuse_ino_t ino, enum op_kind kind);

/* Replies. @r: 0 or a negative errno; what follows counts only when it is 0. */
void op_reply_err(struct op *op, int r);
void op_reply_entry(struct op *op, int r, struct entry *entry);
void op_reply_create(struct op *op, int r, struct entry *entry, struct handle *handle,
		     struct fuse_file_info *fi);
void op_reply_open(struct op *op, int r, struct handle *handle, struct fuse_file_info *fi);
void op_reply_attr(struct op *op, int r, const struct stat *st, int64_t valid_ms);
void op_reply_text(struct op *op, int r, char *text); /* takes @text over */
void op_reply_read(struct op *op, ssize_t r, const void *buf);
void op_reply_write(struct op *op, ssize_t r);
void op_reply_statfs(struct op *op, int r, const struct statvfs *st);

/*
 * Take @op out of its handler, to be answered later by one op_reply_… and then freed with g_free():
 * *ret_op has its references, holds no thread of the session, and is cancelled by any signal of its
 * caller. -ENOMEM: *ret_op can only be answered.
 */
int op_detach(struct op *op, struct op **ret_op);
/* End everything but the reply, for replies that are built elsewhere (directories). */
void op_settle(struct op *op);
/* Drop the references. After the reply. */
void op_done(struct op *op);

/* What the kernel is told of @entry, remembered in told.h. */
void op_fill_entry(struct op *op, const struct entry *entry, struct fuse_entry_param *ret_param);

/* Positive errno for the kernel. Exported for tests. */
int op_errno(int r);

#endif
