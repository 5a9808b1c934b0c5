#include "fusefs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "fusefs/fs.h"
#include "fusefs/reply.h"
#include "fusefs/told.h"

#define MAX_WRITE_BYTES	     (1024 * 1024)
#define MAX_READAHEAD_BYTES  (1024 * 1024)
#define MAX_BACKGROUND	     1024
#define CONGESTION_THRESHOLD 768

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* The sandbox changes behind the kernel's back: it must not own sizes, times or links. */
	conn->want &=
		~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPORT_SUPPORT |
		  FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_SPLICE_READ |
		  FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable &
		      (FUSE_CAP_ASYNC_READ | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC |
		       FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
		       FUSE_CAP_PARALLEL_DIROPS);
	conn->max_write = MAX_WRITE_BYTES;
	conn->max_readahead = MAX_READAHEAD_BYTES;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = CONGESTION_THRESHOLD;
}

static void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct entry entry = { 0 };
	struct op op;
	int r = op_begin(&op, req, parent, OP_LOOKUP);

	if (r == 0)
		r = op.node->class->lookup ? op.node->class->lookup(&op, op.node, name, &entry)
					   : -ENOENT;
	if (r == 0 && !entry.node && op.node->class->foreign)
		entry.entry_valid_ms = told_add(op.fs->told, op.told_takings, op.node->session,
						parent, name, entry.entry_valid_ms);
	op_reply_entry(&op, r, &entry);
}

static void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	struct fs *fs = fuse_req_userdata(req);

	node_forget(fs->nodes, ino, nlookup);
	fuse_reply_none(req);
}

static void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *fs = fuse_req_userdata(req);

	for (size_t i = 0; i < count; i++)
		node_forget(fs->nodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int64_t valid_ms = 0;
	struct stat st;
	struct op op;
	int r = op_begin(&op, req, ino, OP_GETATTR);

	/* stat and fstat come without an open file; the kernel names the one that it looks at. */
	op.for_size = fi != NULL;
	if (r == 0)
		r = op.node->class->getattr(&op, op.node, &st, &valid_ms);
	op_reply_attr(&op, r, &st, valid_ms);
}

static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
			struct fuse_file_info *fi)
{
	const struct op_setattr change = {
		.set = (to_set & FUSE_SET_ATTR_MODE ? OP_SET_MODE : 0) |
		       (to_set & FUSE_SET_ATTR_UID ? OP_SET_UID : 0) |
		       (to_set & FUSE_SET_ATTR_GID ? OP_SET_GID : 0) |
		       (to_set & FUSE_SET_ATTR_SIZE ? OP_SET_SIZE : 0) |
		       (to_set & FUSE_SET_ATTR_ATIME_NOW ? OP_SET_ATIME_NOW
			: to_set & FUSE_SET_ATTR_ATIME	 ? OP_SET_ATIME
							 : 0) |
		       (to_set & FUSE_SET_ATTR_MTIME_NOW ? OP_SET_MTIME_NOW
			: to_set & FUSE_SET_ATTR_MTIME	 ? OP_SET_MTIME
							 : 0),
		.mode = attr->st_mode,
		.uid = attr->st_uid,
		.gid = attr->st_gid,
		.size = (uint64_t)attr->st_size,
		.atime_ns = nanoseconds(&attr->st_atim),
		.mtime_ns = nanoseconds(&attr->st_mtim),
	};
	int64_t valid_ms = 0;
	struct stat st;
	struct op op;
	int r = op_begin(&op, req, ino, OP_SETATTR);

	if (r == 0)
		r = op.node->class->setattr
			    ? op.node->class->setattr(&op, op.node, fi ? handle_take(fi->fh) : NULL,
						      &change, &st, &valid_ms)
			    : -EPERM;
	op_reply_attr(&op, r, &st, valid_ms);
}

/* No bit for anybody: nobody but root could, and what is shown here is not changed as root
 * would. */
static int access_by_mode(struct op *op, int mask)
{
	int64_t valid_ms;
	struct stat st;
	int r = op->node->class->getattr(op, op->node, &st, &valid_ms);

	if (r < 0)
		return r;
	return (mask & R_OK && !(st.st_mode & 0444)) || (mask & W_OK && !(st.st_mode & 0222)) ||
			       (mask & X_OK && !(st.st_mode & 0111))
		       ? -EACCES
		       : 0;
}

static void ops_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct op op;
	int r = op_begin(&op, req, ino, OP_ACCESS);

	/* That it is there was just told to the kernel, or is still believed. */
	if (r == 0 && mask != F_OK)
		r = op.node->class->access ? op.node->class->access(&op, op.node, mask)
					   : access_by_mode(&op, mask);
	op_reply_err(&op, r);
}

static void ops_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char *text = NULL;
	struct op op;
	int r = op_begin(&op, req, ino, OP_READLINK);

	if (r == 0)
		r = op.node->class->readlink ? op.node->class->readlink(&op, op.node, &text)
					     : -EINVAL;
	op_reply_text(&op, r, text);
}

static void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct entry entry = { 0 };
	struct op op;
	int r = op_begin(&op, req, parent, OP_MKNOD);

	(void)rdev;
	/* FIFOs, sockets and devices are inert here: none is made. */
	if (r == 0)
		r = op.node->class->mknod && S_ISREG(mode)
			    ? op.node->class->mknod(&op, op.node, name, mode, &entry)
			    : -EPERM;
	op_reply_entry(&op, r, &entry);
}

static void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct entry entry = { 0 };
	struct op op;
	int r = op_begin(&op, req, parent, OP_MKDIR);

	if (r == 0)
		r = op.node->class->mkdir ? op.node->class->mkdir(&op, op.node, name, mode, &entry)
					  : -EPERM;
	op_reply_entry(&op, r, &entry);
}

static void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = op_begin(&op, req, parent, OP_UNLINK);

	if (r == 0)
		r = op.node->class->unlink ? op.node->class->unlink(&op, op.node, name) : -EPERM;
	op_reply_err(&op, r);
}

static void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = op_begin(&op, req, parent, OP_RMDIR);

	if (r == 0)
		r = op.node->class->rmdir ? op.node->class->rmdir(&op, op.node, name) : -EPERM;
	op_reply_err(&op, r);
}

static void ops_symlink(fuse_req_t req, const char *text, fuse_ino_t parent, const char *name)
{
	struct entry entry = { 0 };
	struct op op;
	int r = op_begin(&op, req, parent, OP_SYMLINK);

	if (r == 0)
		r = op.node->class->symlink
			    ? op.node->class->symlink(&op, op.node, name, text, &entry)
			    : -EPERM;
	op_reply_entry(&op, r, &entry);
}

static bool same_tree(const struct node *a, const struct node *b)
{
	return a->class == b->class && a->session == b->session;
}

static void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		       const char *newname, unsigned int flags)
{
	struct node *to_dir = NULL;
	struct op op;
	int r = op_begin(&op, req, parent, OP_RENAME);

	if (r == 0) {
		to_dir = node_get(op.fs->nodes, newparent);
		if (!to_dir)
			r = -ESTALE;
		else if (flags & ~(unsigned int)RENAME_NOREPLACE)
			r = -EINVAL;
		else if (!same_tree(op.node, to_dir))
			r = -EXDEV;
		else
			r = op.node->class->rename ? op.node->class->rename(&op, op.node, name,
									    to_dir, newname, flags)
						   : -EPERM;
	}
	node_put(op.fs->nodes, to_dir);
	op_reply_err(&op, r);
}

static void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct entry entry = { 0 };
	struct node *dir = NULL;
	struct op op;
	int r = op_begin(&op, req, ino, OP_LINK);

	if (r == 0) {
		dir = node_get(op.fs->nodes, newparent);
		if (!dir)
			r = -ESTALE;
		else if (!same_tree(op.node, dir))
			r = -EXDEV;
		else
			r = op.node->class->link
				    ? op.node->class->link(&op, op.node, dir, newname, &entry)
				    : -EPERM;
	}
	node_put(op.fs->nodes, dir);
	op_reply_entry(&op, r, &entry);
}

static void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	struct op op;
	int r = op_begin(&op, req, ino, OP_STATFS);

	if (r == 0) {
		if (op.node->class->statfs)
			r = op.node->class->statfs(&op, op.node, &st);
		else
			op_own_statfs(&st);
	}
	op_reply_statfs(&op, r, &st);
}

static const struct fuse_lowlevel_ops table = {
	.init = ops_init,
	.lookup = ops_lookup,
	.forget = ops_forget,
	.forget_multi = ops_forget_multi,
	.getattr = ops_getattr,
	.setattr = ops_setattr,
	.access = ops_access,
	.readlink = ops_readlink,
	.mknod = ops_mknod,
	.mkdir = ops_mkdir,
	.unlink = ops_unlink,
	.rmdir = ops_rmdir,
	.symlink = ops_symlink,
	.rename = ops_rename,
	.link = ops_link,
	.open = ops_open,
	.create = ops_create,
	.read = ops_read,
	.write = ops_write,
	.flush = ops_flush,
	.fsync = ops_fsync,
	.release = ops_release,
	.opendir = ops_opendir,
	.readdir = ops_readdir,
	.readdirplus = ops_readdirplus,
	.releasedir = ops_releasedir,
	.fsyncdir = ops_fsyncdir,
	.statfs = ops_statfs,
	.fallocate = ops_fallocate,
	.copy_file_range = ops_copy_file_range,
	.ioctl = ops_ioctl,
};

const struct fuse_lowlevel_ops *ops_table(void)
{
	return &table;
}
