#include "fusefs/ops.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <glib.h>

#include "fusefs/reply.h"

/*
 * An open directory: its listing as it was when reading began (again) at offset 0. Offsets are
 * indices in it plus one, so they stay valid whatever happens to the directory.
 */
struct dir_handle {
	struct handle head;
	pthread_mutex_t lock;
	struct dirsnap *snap;
};

static struct dir_handle *dir_of(const struct fuse_file_info *fi)
{
	return (struct dir_handle *)handle_take(fi->fh);
}

static void dir_release(struct op *op, struct handle *handle)
{
	struct dir_handle *dir = (struct dir_handle *)handle;

	(void)op;
	if (dir->snap)
		dir->snap->free(dir->snap);
	pthread_mutex_destroy(&dir->lock);
	g_free(dir);
}

static const struct handle_class dir_class = {
	.release = dir_release,
};

void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir_handle *dir;
	struct op op;
	int r = op_begin(&op, req, ino, OP_OPENDIR);

	if (r == 0 && !op.node->class->list)
		r = -ENOTDIR;
	if (r < 0) {
		op_reply_err(&op, r);
		return;
	}
	dir = g_new0(struct dir_handle, 1);
	pthread_mutex_init(&dir->lock, NULL);
	handle_init(&op, &dir->head, &dir_class, op.node, fi->flags);
	op_reply_open(&op, 0, &dir->head, fi);
}

/* st_ino of the directory above, without asking; the root is its own. */
static uint64_t parent_ino(struct op *op, const struct stat *self)
{
	g_autofree char *name = NULL;
	struct node *parent = node_parent(op->fs->nodes, op->node, &name);
	uint64_t st_ino = self->st_ino;

	if (parent) {
		st_ino = node_shown(op->fs->nodes, parent);
		node_put(op->fs->nodes, parent);
	}
	return st_ino;
}

/* A reply under construction. */
struct dir_reply {
	char *buf;
	size_t size;
	size_t used;
	bool plus;
};

/* Adds one entry; false: it does not fit. */
static bool reply_add(struct op *op, struct dir_reply *reply, const char *name,
		      const struct fuse_entry_param *param, off_t next)
{
	char *at = reply->buf + reply->used;
	size_t left = reply->size - reply->used, need;

	need = reply->plus ? fuse_add_direntry_plus(op->req, at, left, name, param, next)
			   : fuse_add_direntry(op->req, at, left, name, &param->attr, next);
	if (need > left)
		return false;
	reply->used += need;
	return true;
}

/* "." and "..", which count no lookup. */
static bool reply_add_dot(struct op *op, struct dir_reply *reply, const char *name, off_t next)
{
	struct fuse_entry_param param = { .attr = { .st_mode = S_IFDIR } };

	param.attr.st_ino = node_shown(op->fs->nodes, op->node);
	if (name[1] == '.')
		param.attr.st_ino = parent_ino(op, &param.attr);
	return reply_add(op, reply, name, &param, next);
}

static bool reply_add_name(struct op *op, struct dir_reply *reply, const struct dirsnap *snap,
			   size_t index, off_t next)
{
	struct fuse_entry_param param = { 0 };
	struct entry entry = { 0 };
	const char *name;
	mode_t type;
	uint64_t st_ino;

	/* The node first: its number is then the one that the name is listed with. */
	if (reply->plus && snap->plus && snap->plus(snap, op, op->node, index, &entry) < 0)
		entry.node = NULL;
	snap->get(snap, op, op->node, index, &name, &type, &st_ino);
	if (entry.node)
		op_fill_entry(op, &entry, &param);
	param.attr.st_mode = entry.node ? param.attr.st_mode : type;
	param.attr.st_ino = entry.node ? param.attr.st_ino : st_ino;
	if (!reply_add(op, reply, name, &param, next)) {
		op_entry_undo(op, &entry);
		return false;
	}
	node_put(op->fs->nodes, entry.node);
	return true;
}

/* Lookups that a reply which nobody took has counted. */
static void undo_lookups(struct op *op, const struct dir_reply *reply)
{
	size_t at = 0;

	while (reply->plus && at < reply->used) {
		uint64_t nodeid;
		uint32_t namelen;

		/* struct fuse_direntplus: struct fuse_entry_out (128 bytes, the id first), then
		 * struct fuse_dirent {ino, off, namelen, type, name}, padded to 8 bytes. */
		memcpy(&nodeid, reply->buf + at, sizeof(nodeid));
		memcpy(&namelen, reply->buf + at + 128 + 16, sizeof(namelen));
		if (nodeid)
			node_forget(op->fs->nodes, nodeid, 1);
		at += (128 + 24 + (size_t)namelen + 7) & ~(size_t)7;
	}
}

static int fill_locked(struct op *op, struct dir_handle *dir, off_t off, struct dir_reply *reply)
{
	size_t index;

	if (off == 0 || !dir->snap) {
		struct dirsnap *snap;
		int r = op->node->class->list(op, op->node, &snap);

		if (r < 0)
			return r;
		if (dir->snap)
			dir->snap->free(dir->snap);
		dir->snap = snap;
	}
	if (off == 0) {
		if (!reply_add_dot(op, reply, ".", 1))
			return -EINVAL;
		off = 1;
	}
	if (off == 1) {
		if (!reply_add_dot(op, reply, "..", 2))
			return 0;
		off = 2;
	}
	for (index = (size_t)off - 2; index < dir->snap->n; index++)
		if (!reply_add_name(op, reply, dir->snap, index, (off_t)index + 3))
			break;
	return 0;
}

static void read_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi, bool plus)
{
	struct dir_handle *dir = dir_of(fi);
	struct dir_reply reply = { .size = size, .plus = plus };
	struct op op;
	int r = op_begin(&op, req, ino, plus ? OP_READDIRPLUS : OP_READDIR);

	if (r == 0 && off < 0)
		r = -EINVAL;
	if (r == 0) {
		reply.buf = g_try_malloc(size);
		r = reply.buf ? 0 : -ENOMEM;
	}
	if (r == 0) {
		/*
		 * Held while the directory is listed, which may ask the server: only readers of
		 * this very open directory wait for it, and they need the listing.
		 */
		pthread_mutex_lock(&dir->lock);
		r = fill_locked(&op, dir, off, &reply);
		pthread_mutex_unlock(&dir->lock);
	}
	if (r < 0) {
		op_reply_err(&op, r);
	} else {
		op_settle(&op);
		if (fuse_reply_buf(req, reply.buf, reply.used) < 0)
			undo_lookups(&op, &reply);
		op_done(&op);
	}
	g_free(reply.buf);
}

void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_directory(req, ino, size, off, fi, false);
}

void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	read_directory(req, ino, size, off, fi, true);
}

void ops_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct op op;

	(void)op_begin_always(&op, req, ino, OP_RELEASEDIR);
	handle_put(&op, &dir_of(fi)->head);
	op_reply_err(&op, 0);
}

void ops_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct op op;
	int r = op_begin(&op, req, ino, OP_FSYNCDIR);

	(void)datasync;
	(void)fi;
	if (r == 0 && op.node->class->fsyncdir)
		r = op.node->class->fsyncdir(&op, op.node);
	op_reply_err(&op, r);
}
