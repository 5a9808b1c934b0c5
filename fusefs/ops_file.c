#include "fusefs/ops.h"

#include <errno.h>
#include <fcntl.h>

#include <glib.h>

#include "client/task.h"
#include "fusefs/reply.h"

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return handle_take(fi->fh);
}

void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = NULL;
	struct op op;
	int r = op_begin(&op, req, ino, OP_OPEN);

	if (r == 0)
		r = op.node->class->open ? op.node->class->open(&op, op.node, fi->flags, &handle)
					 : -ENXIO;
	op_reply_open(&op, r, handle, fi);
}

void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct fuse_file_info *fi)
{
	struct entry entry = { 0 };
	struct handle *handle = NULL;
	struct op op;
	int r = op_begin(&op, req, parent, OP_CREATE);

	if (r == 0)
		r = op.node->class->create ? op.node->class->create(&op, op.node, name, fi->flags,
								    mode, &entry, &handle)
					   : -EPERM;
	op_reply_create(&op, r, &entry, handle, fi);
}

void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	g_autofree char *buf = NULL;
	struct op op;
	ssize_t r = op_begin(&op, req, ino, OP_READ);

	if (r == 0) {
		if (handle->class->park && handle->class->park(&op, handle, size, off))
			return;
		buf = g_try_malloc(size);
		if (!buf)
			r = -ENOMEM;
		else
			r = handle->class->read ? handle->class->read(&op, handle, buf, size, off)
						: -EBADF;
	}
	op_reply_read(&op, r, buf);
}

void ops_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	       struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	/* What fcntl() has made of the open file by now; and a page belongs where it is, through
	 * whatever it was mapped. */
	const bool append = !fi->writepage && fi->flags & O_APPEND;
	struct op op;
	ssize_t r = op_begin(&op, req, ino, OP_WRITE);

	/* From the page cache: the kernel names no process, and any handle. */
	if (fi->writepage)
		op.tid = 0;
	if (r == 0)
		r = handle->class->write ? handle->class->write(&op, handle, buf, size, off, append)
					 : -EBADF;
	op_reply_write(&op, r);
}

void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	struct op op;
	int r = op_begin(&op, req, ino, OP_FLUSH);

	if (r == 0 && handle->class->flush)
		r = handle->class->flush(&op, handle);
	op_reply_err(&op, r);
}

void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	struct op op;
	int r = op_begin(&op, req, ino, OP_FSYNC);

	(void)datasync;
	if (r == 0 && handle->class->fsync)
		r = handle->class->fsync(&op, handle);
	op_reply_err(&op, r);
}

/* A release that goes on without a thread of the loop. */
struct release {
	struct op op; /* of no request; its node is the open file's */
	struct handle *handle;
};

static int release_task(void *arg)
{
	struct release *release = arg;

	handle_put(&release->op, release->handle);
	node_put(release->op.fs->nodes, release->op.node);
	return 0;
}

/* No program waits for it, and the kernel's threads here are for those that do. */
static void release_aside(struct fs *fs, struct handle *handle)
{
	struct release *release = g_new0(struct release, 1);

	release->op.fs = fs;
	release->op.node = node_ref(fs->nodes, handle->node);
	release->op.call.cancel = fs->stop;
	release->op.call.stall_timeout_ms = fs->config.timeout_ms;
	release->handle = handle;
	if (sbx_task_start(fs->parts.pool, release_task, release, g_free, NULL) < 0) {
		(void)release_task(release);
		g_free(release);
	}
}

void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	struct op op;

	(void)op_begin_always(&op, req, ino, OP_RELEASE);
	if (handle->class->release_waits)
		release_aside(op.fs, handle);
	else
		handle_put(&op, handle);
	op_reply_err(&op, 0);
}

void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		   struct fuse_file_info *fi)
{
	struct handle *handle = handle_of(fi);
	struct op op;
	int r = op_begin(&op, req, ino, OP_FALLOCATE);

	if (r == 0)
		r = mode == 0 && handle->class->allocate
			    ? handle->class->allocate(&op, handle, offset, length)
			    : -EOPNOTSUPP;
	op_reply_err(&op, r);
}

void ops_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
			 fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
			 int flags)
{
	struct handle *from = handle_of(in_fi), *to = handle_of(out_fi);
	struct op op;
	ssize_t r = op_begin(&op, req, in, OP_COPY_FILE_RANGE);

	(void)out;
	if (r == 0) {
		if (flags)
			r = -EINVAL;
		else if (from->class != to->class || from->node->session != to->node->session)
			r = -EXDEV;
		else
			r = from->class->copy_range
				    ? from->class->copy_range(&op, from, in_off, to, out_off, len)
				    : -EOPNOTSUPP;
	}
	op_reply_write(&op, r);
}

void ops_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	       struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_size,
	       size_t out_size)
{
	struct op op;
	int r = op_begin(&op, req, ino, OP_IOCTL);

	(void)cmd;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)in_buf;
	(void)in_size;
	(void)out_size;
	op_reply_err(&op, r < 0 ? r : -ENOTTY);
}
