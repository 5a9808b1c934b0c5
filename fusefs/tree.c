#include "fusefs/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
#include "fusefs/fsession.h"
#include "fusefs/notify.h"
#include "fusefs/op.h"
#include "fusefs/text.h"
#include "fusefs/tree_file.h"

static struct sbx_workspace *ws_of(const struct node *node)
{
	return node->session->ws;
}

static bool in_sandbox_root(const char *path)
{
	return path[0] == '/';
}

/* What .sbxfs-root does not show. */
static bool is_left_out(const char *path)
{
	return strcmp(path, "/proc") == 0 || strcmp(path, "/sys") == 0 || strcmp(path, "/dev") == 0;
}

/*
 * The type that is shown. The kernel opens a FIFO without asking, one of this machine that nobody
 * writes to; of a socket it says ENXIO.
 */
static mode_t shown_type(mode_t mode)
{
	return S_ISFIFO(mode) ? S_IFSOCK : mode & S_IFMT;
}

/* The permission bits that are shown. */
static mode_t shown_bits(const struct op *op, mode_t mode)
{
	return mode & 0777 & (S_ISLNK(mode) ? 0777 : ~op->fs->config.umask);
}

/* The attributes of @node as they are shown. @told: as node_show(). */
static void show(struct op *op, struct node *node, const struct sbx_attr *attr, bool told,
		 struct stat *ret_st)
{
	const struct fs_config *config = &op->fs->config;
	int64_t atime_ns = node_atime(op->fs->nodes, node);

	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->st_ino = node_show(op->fs->nodes, node, attr, told);
	ret_st->st_mode = shown_type(attr->mode) | shown_bits(op, attr->mode);
	ret_st->st_nlink = attr->nlink;
	ret_st->st_uid = config->uid;
	ret_st->st_gid = config->gid;
	ret_st->st_size = (off_t)attr->size;
	ret_st->st_blocks = (blkcnt_t)attr->blocks;
	ret_st->st_blksize = TREE_BLOCK_SIZE;
	op_set_time(&ret_st->st_mtim, attr->mtime_ns);
	op_set_time(&ret_st->st_ctim, attr->ctime_ns);
	op_set_time(&ret_st->st_atim, atime_ns ? atime_ns : attr->mtime_ns);
}

/* Another name of the file may change it behind this node's back: the kernel must ask each time. */
static int64_t attr_valid(const struct sbx_attr *attr, int64_t valid_ms)
{
	return S_ISREG(attr->mode) && attr->nlink > 1 ? 0 : valid_ms;
}

int tree_enter(struct op *op, struct node *dir, const char *name, const struct sbx_attr *attr,
	       int64_t valid_ms, bool told, struct entry *ret_entry)
{
	struct node_spec spec = {
		.class = &tree_class,
		.session = dir->session,
		.type = attr->mode,
		.dev = attr->dev,
		.ino = attr->ino,
		.epoch = fsession_epoch(dir->session),
	};
	struct entry entry = { .entry_valid_ms = valid_ms };
	int r;

	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	show(op, entry.node, attr, told, &entry.st);
	entry.attr_valid_ms = attr_valid(attr, valid_ms);
	*ret_entry = entry;
	return 0;
}

/* The name is known, and can't be asked now: what was known, for no time. */
static int lookup_known(struct op *op, struct node *dir, const char *name, const char *path, int r,
			struct entry *ret_entry)
{
	struct node *known = node_find(op->fs->nodes, dir, name);
	struct sbx_attr attr;

	if (!known)
		return r;
	if (sbx_ws_stat(ws_of(dir), &op->call, path, SBX_STAT_CACHED, &attr, NULL) < 0 ||
	    (attr.mode & S_IFMT) != known->type)
		node_remembered(op->fs->nodes, known, &attr);
	r = tree_enter(op, dir, name, &attr, 0, true, ret_entry);
	node_put(op->fs->nodes, known);
	return r;
}

/* Errors that say something of the name itself, not of what stands in the way of asking. */
static bool is_about_the_name(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ENAMETOOLONG || r == -EINVAL ||
	       r == -EILSEQ || r == -ELOOP || r == -ENOMEM;
}

static int tree_lookup(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	struct tree_try try = { 0 };
	int64_t valid_ms = 0;
	struct sbx_attr attr;
	int r;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	do {
		g_autofree char *path = NULL;

		tree_try(op, &try);
		r = node_child_path(op->fs->nodes, dir, name, &path);
		if (r < 0)
			return r;
		if (in_sandbox_root(path) && is_left_out(path))
			return -ENOENT;
		r = tree_before_stat(op, dir, path, 0);
		if (r < 0)
			return r;
		r = sbx_ws_stat(ws_of(dir), &op->call, path, SBX_STAT_TTL, &attr, &valid_ms);
		if (r < 0 && !is_about_the_name(r))
			return lookup_known(op, dir, name, path, r, ret_entry);
	} while (tree_try_again(op, &try, r));
	if (r == -ENOENT) {
		*ret_entry = (struct entry){ .entry_valid_ms = valid_ms };
		return 0;
	}
	return r < 0 ? r : tree_enter(op, dir, name, &attr, valid_ms, true, ret_entry);
}

/* A directory that was removed here, but somebody stands in it. */
static void stat_removed(struct op *op, struct node *node, struct stat *ret_st)
{
	struct sbx_attr attr;

	node_remembered(op->fs->nodes, node, &attr);
	attr.nlink = 0;
	attr.mode = S_IFDIR | 0700;
	show(op, node, &attr, true, ret_st);
}

/* The attributes of an open file that has lost its name. -ESTALE: nobody has it open. */
static int getattr_nameless(struct op *op, struct node *node, struct sbx_attr *ret_attr)
{
	struct handle *handle = handle_of_node(op, node);

	if (!handle)
		return -ESTALE;
	sbx_file_nameless_attr(tree_handle_file(handle), ret_attr);
	handle_put(op, handle);
	return 0;
}

static int tree_getattr(struct op *op, struct node *node, struct stat *ret_st,
			int64_t *ret_valid_ms)
{
	g_autofree char *path = NULL;
	int64_t valid_ms = 0;
	struct sbx_attr attr;
	int r;

	r = node_path(op->fs->nodes, node, &path);
	if (node->type == S_IFDIR) {
		if (r == -ENOENT) {
			stat_removed(op, node, ret_st);
			*ret_valid_ms = 0;
			return 0;
		}
	} else if (r < 0 || node_state(op->fs->nodes, node) != NODE_LIVE) {
		r = getattr_nameless(op, node, &attr);
		if (r == 0)
			goto show;
		if (!path)
			return r;
		r = 0; /* replaced, and not open: what has its name now */
	}
	if (r < 0)
		return r;
	if (node->type == S_IFREG || node->type == S_IFDIR) {
		/* Which process asks matters only while some process has it open. */
		r = tree_before_stat(op, node, path,
				     node_is_open(op->fs->nodes, node) ? tree_looker(op) : 0);
		if (r < 0)
			return r;
	}
	r = sbx_ws_stat(ws_of(node), &op->call, path, SBX_STAT_TTL, &attr, &valid_ms);
	if (r == -ENOENT && node->type == S_IFREG && getattr_nameless(op, node, &attr) == 0)
		r = 0; /* removed in the sandbox, still open here */
	if (r < 0)
		return r;
show:
	if ((attr.mode & S_IFMT) != node->type)
		return -ESTALE;
	show(op, node, &attr, true, ret_st);
	*ret_valid_ms = attr_valid(&attr, valid_ms);
	return 0;
}

/*
 * From the attributes that a stat would show, but nothing is published first: what is unsent shows
 * its mode as well. Where they can't be asked for now, from what was known; a directory can be
 * entered then in any case: what is done there says what is wrong.
 */
static int tree_access(struct op *op, struct node *node, int mask)
{
	g_autofree char *path = NULL;
	struct sbx_attr attr;
	int r;

	r = node_path(op->fs->nodes, node, &path);
	if (r == 0)
		r = sbx_ws_stat(ws_of(node), &op->call, path, SBX_STAT_TTL, &attr, NULL);
	if (r == -EINTR)
		return r;
	if (r < 0 && node->type == S_IFDIR && !path)
		return 0; /* somebody stands in it */
	if (r < 0 && path && !is_about_the_name(r)) {
		if (sbx_ws_stat(ws_of(node), &op->call, path, SBX_STAT_CACHED, &attr, NULL) == 0)
			r = 0;
		else if (node->type == S_IFDIR)
			return 0;
	} else if (r < 0 && getattr_nameless(op, node, &attr) == 0) {
		r = 0;
	}
	if (r < 0)
		return r;
	if (mask & X_OK && S_ISREG(attr.mode) && !(shown_bits(op, attr.mode) & 0111))
		return -EACCES;
	return sbx_ws_access(ws_of(node), path, &attr, mask);
}

static int tree_setattr(struct op *op, struct node *node, struct handle *handle,
			const struct op_setattr *change, struct stat *ret_st, int64_t *ret_valid_ms)
{
	struct sbx_setattr set = {
		.of_directory = S_ISDIR(node->type),
		.mode = change->mode & 07777,
		.size_bytes = change->size,
		.atime_ns = change->atime_ns,
		.mtime_ns = change->mtime_ns,
	};
	struct handle *held = NULL;
	g_autofree char *path = NULL;
	struct sbx_attr attr;
	int r;

	if (((change->set & OP_SET_UID) && change->uid != op->fs->config.uid) ||
	    ((change->set & OP_SET_GID) && change->gid != op->fs->config.gid)) {
		(void)node_path(op->fs->nodes, node, &path);
		sbx_errlog_note(sbx_session_errors(node->session->session), "chown", path, -EPERM,
				"everything belongs to who mounted, or to uid and gid");
		return -EPERM;
	}
	set.set = (change->set & OP_SET_MODE ? SBX_SET_MODE : 0) |
		  (change->set & OP_SET_SIZE ? SBX_SET_SIZE : 0) |
		  (change->set & OP_SET_ATIME ? SBX_SET_ATIME : 0) |
		  (change->set & OP_SET_MTIME ? SBX_SET_MTIME : 0) |
		  (change->set & OP_SET_ATIME_NOW ? SBX_SET_ATIME_NOW : 0) |
		  (change->set & OP_SET_MTIME_NOW ? SBX_SET_MTIME_NOW : 0);
	r = node_path(op->fs->nodes, node, &path);
	if (set.set == 0 &&
	    (r < 0 || in_sandbox_root(path) || node_state(op->fs->nodes, node) != NODE_LIVE))
		return tree_getattr(op, node, ret_st, ret_valid_ms);
	if (r < 0 || node_state(op->fs->nodes, node) != NODE_LIVE) {
		/* It has no name any more: only an open file can be changed. */
		if (!handle)
			handle = held = handle_of_node(op, node);
		if (!tree_handle_file(handle) && !path) {
			if (held)
				handle_put(op, held);
			return r;
		}
	}
	if (path && in_sandbox_root(path))
		r = -EROFS;
	else
		r = sbx_ws_setattr(ws_of(node), &op->call, path, tree_handle_file(handle), &set,
				   &attr);
	if (held)
		handle_put(op, held);
	if (r < 0)
		return r;
	if (change->set & (OP_SET_ATIME | OP_SET_ATIME_NOW))
		node_set_atime(op->fs->nodes, node,
			       change->set & OP_SET_ATIME	? change->atime_ns
			       : change->set & OP_SET_MTIME_NOW ? 0
								: text_now_ns());
	show(op, node, &attr, true, ret_st);
	*ret_valid_ms = 0;
	return 0;
}

void tree_link_view(const struct fs *fs, struct sbx_link_view *ret_view)
{
	const char *subtree = fs->config.subtree ? fs->config.subtree : "";
	const char *slash = strchr(subtree, '/');

	*ret_view = (struct sbx_link_view){
		.depth = 2,
		.subtree = "",
		.sandbox_root = "../.sbxfs-root",
		.raw = fs->config.raw_links,
	};
	if (!*subtree)
		return;
	if (!slash) {
		ret_view->depth = 1;
		return;
	}
	/* "dev1/fs" or "dev1/fs/a": nothing of ours is above. */
	slash = strchr(slash + 1, '/');
	ret_view->depth = 0;
	ret_view->sandbox_root = NULL;
	ret_view->subtree = slash ? slash + 1 : "";
}

static int tree_readlink(struct op *op, struct node *node, char **ret_text)
{
	struct sbx_link_view view;
	g_autofree char *path = NULL;
	int r;

	r = node_path(op->fs->nodes, node, &path);
	if (r < 0)
		return r;
	tree_link_view(op->fs, &view);
	return sbx_ws_readlink(ws_of(node), &op->call, path, &view, ret_text);
}

/* Path of a name that is to be made, changed or removed. */
static int change_path(struct op *op, struct node *dir, const char *name, char **ret_path)
{
	int r;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	r = node_child_path(op->fs->nodes, dir, name, ret_path);
	if (r == 0 && in_sandbox_root(*ret_path)) {
		g_clear_pointer(ret_path, g_free);
		r = -EROFS;
	}
	return r;
}

/* The new name @name with the attributes that the sandbox gave it. */
static int entered(struct op *op, struct node *dir, const char *name, const char *path,
		   const struct sbx_attr *attr, struct entry *ret_entry)
{
	struct sbx_attr now;
	int64_t valid_ms = 0;

	if (sbx_ws_stat(ws_of(dir), &op->call, path, SBX_STAT_CACHED, &now, &valid_ms) < 0)
		valid_ms = 0;
	return tree_enter(op, dir, name, attr, valid_ms, true, ret_entry);
}

static int tree_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode,
		      struct entry *ret_entry)
{
	g_autofree char *path = NULL;
	struct sbx_attr attr;
	int r;

	r = change_path(op, dir, name, &path);
	if (r == 0)
		r = sbx_ws_mkdir(ws_of(dir), &op->call, path, mode & 0777, &attr);
	return r < 0 ? r : entered(op, dir, name, path, &attr, ret_entry);
}

static int tree_mknod(struct op *op, struct node *dir, const char *name, mode_t mode,
		      struct entry *ret_entry)
{
	g_autofree char *path = NULL;
	struct sbx_file *file;
	struct sbx_attr attr;
	int r;

	r = change_path(op, dir, name, &path);
	if (r == 0)
		r = sbx_ws_open(ws_of(dir), &op->call, path, O_WRONLY | O_CREAT | O_EXCL,
				mode & 0777, op->tid, &file, &attr);
	if (r < 0)
		return r;
	r = sbx_file_release(file, &op->call);
	if (r == 0)
		r = sbx_ws_stat(ws_of(dir), &op->call, path, SBX_STAT_TTL, &attr, NULL);
	return r < 0 ? r : entered(op, dir, name, path, &attr, ret_entry);
}

static int tree_unlink(struct op *op, struct node *dir, const char *name)
{
	g_autofree char *path = NULL;
	int r;

	r = change_path(op, dir, name, &path);
	if (r == 0)
		r = sbx_ws_unlink(ws_of(dir), &op->call, path);
	if (r == 0)
		node_removed(op->fs->nodes, dir, name);
	return r;
}

static int tree_rmdir(struct op *op, struct node *dir, const char *name)
{
	g_autofree char *path = NULL;
	int r;

	r = change_path(op, dir, name, &path);
	if (r == 0)
		r = sbx_ws_rmdir(ws_of(dir), &op->call, path);
	if (r == 0)
		node_removed(op->fs->nodes, dir, name);
	return r;
}

static int tree_symlink(struct op *op, struct node *dir, const char *name, const char *text,
			struct entry *ret_entry)
{
	struct sbx_link_view view;
	g_autofree char *path = NULL;
	struct sbx_attr attr;
	int r;

	r = change_path(op, dir, name, &path);
	if (r < 0)
		return r;
	tree_link_view(op->fs, &view);
	r = sbx_ws_symlink(ws_of(dir), &op->call, text, path, &view, &attr);
	return r < 0 ? r : entered(op, dir, name, path, &attr, ret_entry);
}

static int tree_rename(struct op *op, struct node *from_dir, const char *from, struct node *to_dir,
		       const char *to, unsigned int flags)
{
	g_autofree char *from_path = NULL;
	g_autofree char *to_path = NULL;
	int r;

	r = change_path(op, from_dir, from, &from_path);
	if (r == 0)
		r = change_path(op, to_dir, to, &to_path);
	if (r == 0)
		r = sbx_ws_rename(ws_of(from_dir), &op->call, from_path, to_path, flags);
	if (r == 0)
		node_renamed(op->fs->nodes, from_dir, from, to_dir, to);
	return r;
}

static int tree_link(struct op *op, struct node *node, struct node *dir, const char *name,
		     struct entry *ret_entry)
{
	g_autofree char *from = NULL;
	g_autofree char *to = NULL;
	struct sbx_attr attr;
	int r;

	r = change_path(op, dir, name, &to);
	if (r == 0)
		r = node_path(op->fs->nodes, node, &from);
	if (r == 0 && in_sandbox_root(from))
		r = -EXDEV;
	if (r == 0)
		r = sbx_ws_link(ws_of(dir), &op->call, from, to, &attr);
	if (r < 0)
		return r;
	/* The kernel does not know that both names are one file, with one more link. */
	notify_attr(op->fs, node);
	return entered(op, dir, name, to, &attr, ret_entry);
}

/* A listing of the workspace, and when it was taken. */
struct tree_snap {
	struct dirsnap head;
	struct sbx_listing *listing; /* a reference */
	char *path; /* of the directory, when it was listed */
};

static const struct sbx_dirent *dirent_of(const struct dirsnap *snap, size_t index)
{
	return &((const struct tree_snap *)snap)->listing->entries[index];
}

static void tree_snap_get(const struct dirsnap *snap, struct op *op, struct node *dir, size_t index,
			  const char **ret_name, mode_t *ret_type, uint64_t *ret_ino)
{
	const struct sbx_dirent *dirent = dirent_of(snap, index);

	*ret_name = dirent->name;
	*ret_type = shown_type(dirent->attr.mode);
	*ret_ino = node_show_name(op->fs->nodes, dir, dirent->name, dir->session, dirent->attr.dev,
				  dirent->attr.ino);
}

/*
 * Attributes as they are known now, not those of the listing: a file may have been written or
 * removed since then. Never asks.
 */
static int tree_snap_plus(const struct dirsnap *snap, struct op *op, struct node *dir, size_t index,
			  struct entry *ret_entry)
{
	const struct tree_snap *self = (const struct tree_snap *)snap;
	const struct sbx_dirent *dirent = dirent_of(snap, index);
	g_autofree char *path = NULL;
	int64_t valid_ms = 0;
	struct sbx_attr attr;
	int r;

	if (!dirent->attr.mode)
		return -EAGAIN;
	path = self->path[0] == '\0' ? g_strdup(dirent->name)
	       : self->path[1] == '\0' && self->path[0] == '/'
		       ? g_strconcat("/", dirent->name, NULL)
		       : g_strconcat(self->path, "/", dirent->name, NULL);
	r = sbx_ws_stat(ws_of(dir), &op->call, path, SBX_STAT_CACHED, &attr, &valid_ms);
	return r < 0 ? r : tree_enter(op, dir, dirent->name, &attr, valid_ms, true, ret_entry);
}

static void tree_snap_free(struct dirsnap *snap)
{
	struct tree_snap *self = (struct tree_snap *)snap;

	sbx_listing_unref(self->listing);
	g_free(self->path);
	g_free(self);
}

static int tree_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_autofree char *path = NULL;
	struct tree_try try = { 0 };
	struct sbx_listing *listing;
	struct tree_snap *self;
	int r;

	do {
		g_clear_pointer(&path, g_free);
		tree_try(op, &try);
		r = node_path(op->fs->nodes, dir, &path);
		if (r < 0)
			return r;
		if (strcmp(path, "/") == 0 || is_left_out(path))
			return -EACCES;
		r = sbx_ws_list(ws_of(dir), &op->call, path, &listing);
	} while (tree_try_again(op, &try, r));
	if (r < 0)
		return r;
	self = g_new0(struct tree_snap, 1);
	self->head.n = listing->n_entries;
	self->head.get = tree_snap_get;
	self->head.plus = tree_snap_plus;
	self->head.free = tree_snap_free;
	self->listing = listing;
	self->path = g_steal_pointer(&path);
	*ret_snap = &self->head;
	return 0;
}

/* Names are the sandbox's when their operation returns, but of files just made; and what was closed
 * may not be sent yet. */
static int tree_fsyncdir(struct op *op, struct node *dir)
{
	g_autofree char *path = NULL;
	int r;

	r = node_path(op->fs->nodes, dir, &path);
	if (r < 0 || in_sandbox_root(path))
		return r == -ENOENT ? 0 : r;
	return sbx_files_publish_closed(sbx_workspace_files(ws_of(dir)), &op->call, path);
}

static int tree_statfs(struct op *op, struct node *node, struct statvfs *ret_st)
{
	return sbx_ws_statfs(ws_of(node), &op->call, ret_st);
}

const struct node_class tree_class = {
	.waits = true,
	.foreign = true,
	.lookup = tree_lookup,
	.getattr = tree_getattr,
	.setattr = tree_setattr,
	.access = tree_access,
	.readlink = tree_readlink,
	.mknod = tree_mknod,
	.mkdir = tree_mkdir,
	.unlink = tree_unlink,
	.rmdir = tree_rmdir,
	.symlink = tree_symlink,
	.rename = tree_rename,
	.link = tree_link,
	.open = tree_open,
	.create = tree_create,
	.list = tree_list,
	.fsyncdir = tree_fsyncdir,
	.statfs = tree_statfs,
};
