#include "fusefs/reply.h"

#include <errno.h>
#include <string.h>

#include <glib.h>

#include "client/call.h"
#include "fusefs/fsession.h"
#include "fusefs/told.h"

static void count(struct fs *fs, unsigned int which)
{
	__atomic_add_fetch(&fs->counters[which], 1, __ATOMIC_RELAXED);
}

int op_errno(int r)
{
	int error = -r;

	if (error == ENOSYS)
		return EOPNOTSUPP;
	/* Linux' own errnos end below 512; those above are the kernel's private ones. */
	return error > 0 && error < 512 ? error : EIO;
}

/* Whatever it waits for, the directory (or the file) is locked in the kernel meanwhile. */
static bool is_mutation(enum op_kind kind)
{
	switch (kind) {
	case OP_SETATTR:
	case OP_MKNOD:
	case OP_MKDIR:
	case OP_UNLINK:
	case OP_RMDIR:
	case OP_SYMLINK:
	case OP_RENAME:
	case OP_LINK:
	case OP_CREATE:
		return true;
	default:
		return false;
	}
}

static int begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum op_kind kind, bool always)
{
	struct fs *fs = fuse_req_userdata(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int r;

	memset(op, 0, sizeof(*op));
	op->fs = fs;
	op->req = req;
	op->tid = ctx->pid;
	op->told_takings = told_takings(fs->told);
	count(fs, kind);
	op->node = node_get(fs->nodes, ino);
	if (!op->node)
		return -ESTALE;
	if (op->node->session && op->node->class->waits) {
		if (fsession_admit(op->node->session)) {
			op->admitted = op->node->session;
		} else if (!always) {
			count(fs, OP_REFUSED);
			return OP_ERRNO_REFUSED;
		}
	}
	r = interrupt_begin(fs->interrupts, &op->interrupt, req, op->tid, false, fs->stop);
	if (r < 0)
		return r;
	op->call.cancel = op->interrupt.cancel;
	op->call.stall_timeout_ms =
		is_mutation(kind) ? fs->config.mutation_timeout_ms : fs->config.timeout_ms;
	return 0;
}

int op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum op_kind kind)
{
	return begin(op, req, ino, kind, false);
}

int op_begin_always(struct op *op, fuse_req_t req, fuse_ino_t ino, enum op_kind kind)
{
	return begin(op, req, ino, kind, true);
}

void op_settle(struct op *op)
{
	interrupt_end(&op->interrupt);
	op->call.cancel = NULL;
	if (op->admitted)
		fsession_leave(op->admitted);
	op->admitted = NULL;
}

int op_detach(struct op *op, struct op **ret_op)
{
	struct op *self = g_memdup2(op, sizeof(*op));
	int r;

	op_settle(op);
	op->node = NULL;
	self->admitted = NULL;
	/* A signal that came before is told by this again. */
	r = interrupt_begin(self->fs->interrupts, &self->interrupt, self->req, self->tid, true,
			    self->fs->stop);
	self->call.cancel = self->interrupt.cancel;
	*ret_op = self;
	return r;
}

void op_done(struct op *op)
{
	node_put(op->fs->nodes, op->node);
	op->node = NULL;
}

static void reply_error(struct op *op, int r)
{
	if (r < 0 && r != -ENOENT && r != -ENOTTY)
		count(op->fs, OP_FAILED);
	fuse_reply_err(op->req, r < 0 ? op_errno(r) : 0);
}

void op_reply_err(struct op *op, int r)
{
	op_settle(op);
	reply_error(op, r);
	op_done(op);
}

static double seconds(int64_t ms)
{
	return ms > 0 ? (double)ms / 1000 : 0;
}

/* For how long its name is to be believed. */
static int64_t name_valid_ms(struct op *op, const struct entry *entry)
{
	struct node *node = entry->node;

	/* A tree's own top is a name of ours. */
	if (!node || !node->class->foreign || node->base_path || entry->entry_valid_ms <= 0)
		return entry->entry_valid_ms;
	node_told(op->fs->nodes, node, sbx_clock_ms() + entry->entry_valid_ms);
	return told_takings(op->fs->told) == op->told_takings ? entry->entry_valid_ms : 0;
}

void op_fill_entry(struct op *op, const struct entry *entry, struct fuse_entry_param *ret_param)
{
	memset(ret_param, 0, sizeof(*ret_param));
	ret_param->ino = entry->node ? entry->node->id : 0;
	ret_param->attr = entry->st;
	ret_param->attr_timeout = seconds(entry->attr_valid_ms);
	ret_param->entry_timeout = seconds(name_valid_ms(op, entry));
}

void op_reply_entry(struct op *op, int r, struct entry *entry)
{
	struct fuse_entry_param param;

	op_settle(op);
	if (r < 0) {
		reply_error(op, r);
	} else {
		op_fill_entry(op, entry, &param);
		if (fuse_reply_entry(op->req, &param) < 0)
			op_entry_undo(op, entry);
		else
			node_put(op->fs->nodes, entry->node);
	}
	op_done(op);
}

static void fill_file_info(struct handle *handle, struct fuse_file_info *fi)
{
	fi->direct_io = handle->direct_io;
	fi->keep_cache = handle->keep_cache;
	fi->fh = handle_pass(handle);
}

void op_reply_create(struct op *op, int r, struct entry *entry, struct handle *handle,
		     struct fuse_file_info *fi)
{
	struct fuse_entry_param param;

	if (r < 0) {
		op_reply_err(op, r);
		return;
	}
	interrupt_end(&op->interrupt);
	op->call.cancel = NULL;
	op_fill_entry(op, entry, &param);
	fill_file_info(handle, fi);
	if (fuse_reply_create(op->req, &param, fi) < 0) {
		handle_put(op, handle);
		op_entry_undo(op, entry);
	} else {
		node_put(op->fs->nodes, entry->node);
	}
	op_settle(op);
	op_done(op);
}

void op_reply_open(struct op *op, int r, struct handle *handle, struct fuse_file_info *fi)
{
	if (r < 0) {
		op_reply_err(op, r);
		return;
	}
	interrupt_end(&op->interrupt);
	op->call.cancel = NULL;
	fill_file_info(handle, fi);
	if (fuse_reply_open(op->req, fi) < 0)
		handle_put(op, handle);
	op_settle(op);
	op_done(op);
}

void op_reply_attr(struct op *op, int r, const struct stat *st, int64_t valid_ms)
{
	op_settle(op);
	if (r < 0)
		reply_error(op, r);
	else
		fuse_reply_attr(op->req, st, seconds(valid_ms));
	op_done(op);
}

void op_reply_text(struct op *op, int r, char *text)
{
	op_settle(op);
	if (r < 0)
		reply_error(op, r);
	else
		fuse_reply_readlink(op->req, text);
	g_free(text);
	op_done(op);
}

void op_reply_read(struct op *op, ssize_t r, const void *buf)
{
	op_settle(op);
	if (r < 0)
		reply_error(op, (int)r);
	else
		fuse_reply_buf(op->req, buf, (size_t)r);
	op_done(op);
}

void op_reply_write(struct op *op, ssize_t r)
{
	op_settle(op);
	if (r < 0)
		reply_error(op, (int)r);
	else
		fuse_reply_write(op->req, (size_t)r);
	op_done(op);
}

void op_reply_statfs(struct op *op, int r, const struct statvfs *st)
{
	op_settle(op);
	if (r < 0)
		reply_error(op, r);
	else
		fuse_reply_statfs(op->req, st);
	op_done(op);
}
