#include "fusefs/tree_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include <glib.h>

#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
#include "fusefs/fsession.h"
#include "fusefs/op.h"

/* What of open(2)'s flags means something to a sandbox's file. */
#define OPEN_FLAGS (O_ACCMODE | O_TRUNC)

struct tree_handle {
	struct handle head;
	struct sbx_file *file;
	uint64_t version; /* atomic: at open, until node_version_settled() was told; else 0 */
};

static const struct handle_class tree_handle_class;

static struct tree_handle *self_of(struct handle *handle)
{
	return (struct tree_handle *)handle;
}

struct sbx_file *tree_handle_file(struct handle *handle)
{
	return handle && handle->class == &tree_handle_class ? self_of(handle)->file : NULL;
}

pid_t tree_looker(const struct op *op)
{
	return op->for_size ? 0 : op->tid;
}

int tree_before_stat(struct op *op, struct node *node, const char *path, pid_t tid)
{
	struct sbx_files *files = sbx_workspace_files(node->session->ws);

	return path[0] == '/' ? 0 : sbx_files_before_stat(files, &op->call, path, tid);
}

/* A path that failed because a directory above it moved meanwhile is tried again so often. */
#define MOVED_RETRIES 4

void tree_try(struct op *op, struct tree_try *try)
{
	try->moves = node_moves(op->fs->nodes);
}

bool tree_try_again(struct op *op, struct tree_try *try, int r)
{
	return r == -ENOENT && try->moves != node_moves(op->fs->nodes) && ++try->n < MOVED_RETRIES;
}

static bool is_write(const struct handle *handle)
{
	return (handle->flags & O_ACCMODE) != O_RDONLY;
}

/* Who reads or closes has got the answer to its open. */
static void settle_version(struct op *op, struct handle *handle)
{
	uint64_t version = __atomic_exchange_n(&self_of(handle)->version, 0, __ATOMIC_RELAXED);

	if (version)
		node_version_settled(op->fs->nodes, handle->node, version);
}

static ssize_t tree_read(struct op *op, struct handle *handle, void *buf, size_t size, off_t offset)
{
	settle_version(op, handle);
	return sbx_file_read(self_of(handle)->file, &op->call, buf, size, (uint64_t)offset);
}

static ssize_t tree_write(struct op *op, struct handle *handle, const void *buf, size_t size,
			  off_t offset, bool append)
{
	struct sbx_file *file = self_of(handle)->file;

	return append ? sbx_file_append(file, &op->call, buf, size, (uint64_t)offset)
		      : sbx_file_write(file, &op->call, buf, size, (uint64_t)offset);
}

static int tree_flush(struct op *op, struct handle *handle)
{
	settle_version(op, handle);
	return is_write(handle) ? sbx_file_flush(self_of(handle)->file, &op->call, op->tid) : 0;
}

static int tree_fsync(struct op *op, struct handle *handle)
{
	return sbx_file_fsync(self_of(handle)->file, &op->call);
}

static int tree_allocate(struct op *op, struct handle *handle, off_t offset, off_t len)
{
	return sbx_file_allocate(self_of(handle)->file, &op->call, (uint64_t)offset, (uint64_t)len);
}

static ssize_t tree_copy_range(struct op *op, struct handle *in, off_t in_offset,
			       struct handle *out, off_t out_offset, size_t len)
{
	return sbx_file_copy_range(self_of(in)->file, (uint64_t)in_offset, self_of(out)->file,
				   (uint64_t)out_offset, len, &op->call);
}

static void tree_release(struct op *op, struct handle *handle)
{
	struct tree_handle *self = self_of(handle);

	(void)op;
	/* Nobody waits for it. What can't be sent stays in its spool and is told in errors. */
	(void)sbx_file_release(self->file, NULL);
	g_free(self);
}

static const struct handle_class tree_handle_class = {
	.read = tree_read,
	.write = tree_write,
	.flush = tree_flush,
	.fsync = tree_fsync,
	.allocate = tree_allocate,
	.copy_range = tree_copy_range,
	.release = tree_release,
};

/*
 * All open files of a node share the kernel's pages. So @handle must not use them where another
 * that does has an older version than it, or where it has itself been overtaken by one. It is on
 * the node's list: of two that are opened at once the later one sees the other.
 */
static bool is_mixed(struct op *op, struct handle *handle)
{
	struct handle *other = handle_of_node(op, handle->node);
	bool mixed = sbx_file_is_old(self_of(handle)->file);

	while (other) {
		struct handle *next = node_handle_next(op->fs->nodes, other);

		if (other != handle && !__atomic_load_n(&other->direct_io, __ATOMIC_RELAXED) &&
		    sbx_file_is_old(self_of(other)->file))
			mixed = true;
		handle_put(op, other);
		other = next;
	}
	return mixed;
}

static struct handle *handle_new(struct op *op, struct node *node, struct sbx_file *file, int flags)
{
	struct tree_handle *self = g_new0(struct tree_handle, 1);

	self->file = file;
	self->version = sbx_file_version(file);
	self->head.keep_cache = node_version(op->fs->nodes, node, self->version);
	handle_init(op, &self->head, &tree_handle_class, node, flags);
	__atomic_store_n(&self->head.direct_io, is_mixed(op, &self->head), __ATOMIC_RELAXED);
	return &self->head;
}

/*
 * A file that was removed here is opened by the number of an open file (/proc/self/fd/3), as on a
 * local disk. Not one whose name means something else by now: who comes by that name gets what it
 * means, once the kernel has walked the path again for -ESTALE.
 */
static int open_removed(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	struct handle *handle = NULL;
	struct sbx_file *file;
	int r = -ESTALE;

	if (node_state(op->fs->nodes, node) == NODE_REMOVED)
		handle = handle_of_node(op, node);
	if (!handle)
		return r;
	r = sbx_file_open_again(self_of(handle)->file, flags & OPEN_FLAGS, op->tid, &file);
	handle_put(op, handle);
	if (r == 0)
		*ret_handle = handle_new(op, node, file, flags);
	return r;
}

int tree_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	g_autofree char *path = NULL;
	struct tree_try try = { 0 };
	struct sbx_file *file;
	struct sbx_attr attr;
	int r;

	do {
		g_clear_pointer(&path, g_free);
		tree_try(op, &try);
		r = node_path(op->fs->nodes, node, &path);
		if (r < 0)
			return open_removed(op, node, flags, ret_handle);
		if (path[0] == '/' && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)))
			return -EROFS;
		r = sbx_ws_open(node->session->ws, &op->call, path, flags & OPEN_FLAGS, 0, op->tid,
				&file, &attr);
	} while (tree_try_again(op, &try, r));
	/*
	 * Gone, though the kernel believes in the name: it asks for it and forgets it, and then
	 * O_CREAT makes a file.
	 */
	if (r == -ENOENT)
		return -ESTALE;
	if (r < 0)
		return r;
	*ret_handle = handle_new(op, node, file, flags);
	return 0;
}

int tree_create(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
		struct entry *ret_entry, struct handle **ret_handle)
{
	g_autofree char *path = NULL;
	struct sbx_file *file;
	struct sbx_attr attr;
	int r;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	r = node_child_path(op->fs->nodes, dir, name, &path);
	if (r < 0)
		return r;
	if (path[0] == '/')
		return -EROFS;
	r = sbx_ws_open(dir->session->ws, &op->call, path,
			(flags & (OPEN_FLAGS | O_EXCL)) | O_CREAT, mode & 0777, op->tid, &file,
			&attr);
	if (r < 0)
		return r;
	/* No program has seen a number yet: after the first publish it is the sandbox's. */
	r = tree_enter(op, dir, name, &attr, 0, false, ret_entry);
	if (r < 0) {
		(void)sbx_file_release(file, &op->call);
		return r;
	}
	ret_entry->entry_valid_ms = op->fs->config.ttl_ms;
	*ret_handle = handle_new(op, ret_entry->node, file, flags);
	return 0;
}
