#include "fusefs/snapshotdir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

#include "client/errlog.h"
#include "client/name.h"
#include "client/session.h"
#include "client/snapshot/snapshot.h"
#include "fusefs/ino.h"
#include "fusefs/op.h"
#include "fusefs/synth.h"

/* A tag of its own for names in snapshots/. */
static uint64_t number_of(const char *session, const char *file)
{
	return INO_SNAPSHOT_BITS | (g_str_hash(session) ^ (file ? g_str_hash(file) * 31 : 0));
}

char *snapshot_newest(struct fs *fs, const char *name)
{
	g_autoptr(GPtrArray) infos = NULL;
	const struct sbx_snapshot_info *newest;

	if (sbx_snapshots_list(fs->parts.statedir, name, &infos) < 0 || infos->len == 0)
		return NULL;
	newest = g_ptr_array_index(infos, 0);
	return g_strdup_printf("%s, %8lld s old%s", newest->name,
			       (long long)time(NULL) - (long long)(newest->mtime_ns / 1000000000),
			       newest->verified ? "" : ", not verified");
}

/* SNAPSHOT.tar, SNAPSHOT.json ------------------------------------------------------------------ */

struct snapfile_handle {
	struct handle head;
	int fd;
	/* Of one that is being copied in. */
	bool imports;
	pid_t opener;
	char *session;
	char *file;
	pthread_mutex_t lock; /* for what follows */
	bool written;
	bool finished;
	int result;
};

/* The directory's name and the file's, as copies. -ENOENT: it was removed. */
static int names_of(struct op *op, struct node *node, char **ret_session, char **ret_file)
{
	char *file = NULL, *session = NULL;
	struct node *dir = node_parent(op->fs->nodes, node, &file);
	struct node *above = dir ? node_parent(op->fs->nodes, dir, &session) : NULL;

	if (above)
		node_put(op->fs->nodes, above);
	if (dir)
		node_put(op->fs->nodes, dir);
	if (!session || !file) {
		g_free(session);
		g_free(file);
		return -ENOENT;
	}
	*ret_session = session;
	*ret_file = file;
	return 0;
}

static void stat_of_fd(struct op *op, int fd, const char *session, const char *file,
		       struct stat *ret_st)
{
	struct stat st = { 0 };

	(void)fstat(fd, &st);
	op_own_stat(op->fs, S_IFREG | 0400, number_of(session, file), (uint64_t)st.st_size, ret_st);
	ret_st->st_blocks = st.st_blocks;
	ret_st->st_mtim = st.st_mtim;
	ret_st->st_ctim = st.st_ctim;
	ret_st->st_atim = st.st_mtim;
}

static const struct handle_class snapfile_reader;
static const struct handle_class snapfile_importer;

static int snapfile_getattr(struct op *op, struct node *node, struct stat *ret_st,
			    int64_t *ret_valid_ms)
{
	struct handle *handle = handle_of_node(op, node);
	g_autofree char *session = NULL;
	g_autofree char *file = NULL;
	int fd, r;

	*ret_valid_ms = 0;
	r = names_of(op, node, &session, &file);
	if (r == 0 && handle) {
		stat_of_fd(op, ((struct snapfile_handle *)handle)->fd, session, file, ret_st);
		handle_put(op, handle);
		return 0;
	}
	if (handle)
		handle_put(op, handle);
	if (r < 0)
		return r;
	fd = sbx_snapshots_open(op->fs->parts.statedir, session, file);
	if (fd < 0)
		return fd;
	stat_of_fd(op, fd, session, file, ret_st);
	close(fd);
	return 0;
}

/* cp -p and tar set modes and times of what they have written: these are ours. */
static int snapfile_setattr(struct op *op, struct node *node, struct handle *handle,
			    const struct op_setattr *change, struct stat *ret_st,
			    int64_t *ret_valid_ms)
{
	struct snapfile_handle *self = (struct snapfile_handle *)handle;

	if (change->set & OP_SET_SIZE) {
		if (!self || !self->imports)
			return -EPERM;
		if (ftruncate(self->fd, (off_t)change->size) < 0)
			return -errno;
	}
	return snapfile_getattr(op, node, ret_st, ret_valid_ms);
}

static ssize_t snapfile_read(struct op *op, struct handle *handle, void *buf, size_t size,
			     off_t offset)
{
	ssize_t n = pread(((struct snapfile_handle *)handle)->fd, buf, size, offset);

	(void)op;
	return n < 0 ? -errno : n;
}

static ssize_t snapfile_write(struct op *op, struct handle *handle, const void *buf, size_t size,
			      off_t offset, bool append)
{
	struct snapfile_handle *self = (struct snapfile_handle *)handle;
	const char *at = buf;
	size_t left = size;
	bool finished;

	(void)op;
	(void)append; /* nobody else writes it: the end is where the kernel believes it */
	pthread_mutex_lock(&self->lock);
	finished = self->finished;
	self->written = true;
	pthread_mutex_unlock(&self->lock);
	if (finished)
		return -EBADF; /* it was checked and is in place, or refused */
	while (left > 0) {
		ssize_t n = pwrite(self->fd, at, left, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		offset += n;
		left -= (size_t)n;
	}
	return (ssize_t)size;
}

/* Check what was copied in and put it in place, or take it away. Once. */
static int import_finish(struct op *op, struct snapfile_handle *self)
{
	g_autofree char *message = NULL;
	g_autofree char *name = NULL;
	bool mine;
	int r;

	pthread_mutex_lock(&self->lock);
	mine = !self->finished;
	self->finished = true;
	r = self->result;
	pthread_mutex_unlock(&self->lock);
	if (!mine)
		return r;
	r = sbx_snapshots_import_end(op->fs->parts.statedir, self->session, self->file, &op->call,
				     &message);
	/* One that is too much, or does not match its receipt, is a wrong one. */
	if (message && (r == -E2BIG || r == -EIO))
		r = -EINVAL;
	if (r < 0) {
		name = g_strdup_printf("snapshots/%s/%s", self->session, self->file);
		sbx_errlog_note(op->fs->parts.errors, "import", name, r,
				message ? message : g_strerror(-r));
	}
	pthread_mutex_lock(&self->lock);
	self->result = r;
	pthread_mutex_unlock(&self->lock);
	return r;
}

static int snapfile_flush(struct op *op, struct handle *handle)
{
	struct snapfile_handle *self = (struct snapfile_handle *)handle;
	bool written;

	pthread_mutex_lock(&self->lock);
	written = self->written;
	pthread_mutex_unlock(&self->lock);
	return written && op_closes(op, self->opener) ? import_finish(op, self) : 0;
}

static void snapfile_release(struct op *op, struct handle *handle)
{
	struct snapfile_handle *self = (struct snapfile_handle *)handle;

	if (self->imports && self->written)
		(void)import_finish(op, self);
	else if (self->imports)
		sbx_snapshots_import_drop(op->fs->parts.statedir, self->session, self->file);
	close(self->fd);
	g_free(self->session);
	g_free(self->file);
	pthread_mutex_destroy(&self->lock);
	g_free(self);
}

static const struct handle_class snapfile_reader = {
	.read = snapfile_read,
	.release = snapfile_release,
};

static const struct handle_class snapfile_importer = {
	.read = snapfile_read,
	.write = snapfile_write,
	.flush = snapfile_flush,
	.release = snapfile_release,
	.release_waits = true,
};

static struct handle *handle_new(struct op *op, struct node *node, int fd, int flags)
{
	struct snapfile_handle *self = g_new0(struct snapfile_handle, 1);

	self->fd = fd;
	pthread_mutex_init(&self->lock, NULL);
	handle_init(op, &self->head, &snapfile_reader, node, flags);
	return &self->head;
}

/* Begin to copy @file in. */
static int import_open(struct op *op, struct node *node, const char *session, const char *file,
		       int flags, struct handle **ret_handle)
{
	struct snapfile_handle *self;
	int fd, r;

	r = sbx_snapshots_import_begin(op->fs->parts.statedir, session, file, &fd);
	if (r < 0)
		return r;
	self = (struct snapfile_handle *)handle_new(op, node, fd, flags);
	self->head.class = &snapfile_importer;
	self->imports = true;
	self->opener = op_pid(op);
	self->session = g_strdup(session);
	self->file = g_strdup(file);
	*ret_handle = &self->head;
	return 0;
}

static int snapfile_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	g_autofree char *session = NULL;
	g_autofree char *file = NULL;
	int fd, r;

	r = names_of(op, node, &session, &file);
	if (r < 0)
		return -ESTALE;
	if ((flags & O_ACCMODE) != O_RDONLY)
		return import_open(op, node, session, file, flags, ret_handle);
	fd = sbx_snapshots_open(op->fs->parts.statedir, session, file);
	if (fd < 0)
		return fd;
	*ret_handle = handle_new(op, node, fd, flags);
	return 0;
}

static const struct node_class snapfile_class = {
	.getattr = snapfile_getattr,
	.setattr = snapfile_setattr,
	.open = snapfile_open,
};

/* snapshots/NAME ------------------------------------------------------------------------------- */

static int snapshot_getattr(struct op *op, struct node *node, struct stat *ret_st,
			    int64_t *ret_valid_ms)
{
	op_own_dir(op, node, 0700, number_of(node->name, NULL), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int enter_file(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	const struct node_spec spec = { .class = &snapfile_class, .type = S_IFREG };
	struct entry entry = { 0 };
	int r;

	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r == 0)
		*ret_entry = entry;
	return r;
}

static int snapshot_lookup(struct op *op, struct node *dir, const char *name,
			   struct entry *ret_entry)
{
	int fd = sbx_snapshots_open(op->fs->parts.statedir, dir->name, name);
	int r;

	if (fd < 0)
		return fd;
	r = enter_file(op, dir, name, ret_entry);
	if (r == 0)
		stat_of_fd(op, fd, dir->name, name, &ret_entry->st);
	close(fd);
	return r;
}

static int snapshot_create(struct op *op, struct node *dir, const char *name, int flags,
			   mode_t mode, struct entry *ret_entry, struct handle **ret_handle)
{
	struct entry entry;
	int r;

	(void)mode;
	if (!ret_handle)
		return -EPERM;
	r = enter_file(op, dir, name, &entry);
	if (r < 0)
		return r;
	r = import_open(op, entry.node, dir->name, name, flags, ret_handle);
	if (r < 0) {
		op_entry_undo(op, &entry);
		return r;
	}
	stat_of_fd(op, ((struct snapfile_handle *)*ret_handle)->fd, dir->name, name, &entry.st);
	*ret_entry = entry;
	return 0;
}

static int snapshot_unlink(struct op *op, struct node *dir, const char *name)
{
	int r = sbx_snapshots_remove(op->fs->parts.statedir, dir->name, name);

	if (r == 0)
		node_removed(op->fs->nodes, dir, name);
	return r;
}

static int snapshot_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_auto(GStrv) files = NULL;
	struct synth_snap *snap;
	int r;

	r = sbx_snapshots_files(op->fs->parts.statedir, dir->name, &files);
	if (r < 0)
		return r;
	snap = synth_snap_new();
	for (char **file = files; *file; file++)
		synth_snap_add(snap, *file, S_IFREG, number_of(dir->name, *file));
	*ret_snap = synth_snap_done(snap);
	return 0;
}

/* It follows the name, not the session, so it is never renamed. */
static const struct node_class snapshot_class = {
	.lookup = snapshot_lookup,
	.getattr = snapshot_getattr,
	.create = snapshot_create,
	.unlink = snapshot_unlink,
	.list = snapshot_list,
};

/* snapshots ------------------------------------------------------------------------------------ */

static bool session_is_known(struct op *op, const char *name)
{
	struct sbx_session *session = sbx_sessions_find(op->fs->parts.sessions, name);

	sbx_session_unref(session);
	return session != NULL;
}

static GHashTable *session_names(struct op *op)
{
	GHashTable *names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	g_auto(GStrv) kept = sbx_snapshots_sessions(op->fs->parts.statedir);
	g_auto(GStrv) sessions = sbx_sessions_list(op->fs->parts.sessions);

	for (char **name = kept; *name; name++)
		g_hash_table_add(names, g_strdup(*name));
	for (char **name = sessions; *name; name++)
		g_hash_table_add(names, g_strdup(*name));
	return names;
}

static int snapshots_getattr(struct op *op, struct node *node, struct stat *ret_st,
			     int64_t *ret_valid_ms)
{
	op_own_dir(op, node, 0700, ino_own(0, 7), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int enter_directory(struct op *op, struct node *dir, const char *name,
			   struct entry *ret_entry)
{
	const struct node_spec spec = { .class = &snapshot_class, .type = S_IFDIR };
	struct entry entry = { .entry_valid_ms = op->fs->config.ttl_ms };
	int r;

	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	(void)snapshot_getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	*ret_entry = entry;
	return 0;
}

static int snapshots_lookup(struct op *op, struct node *dir, const char *name,
			    struct entry *ret_entry)
{
	g_autoptr(GHashTable) names = session_names(op);

	return g_hash_table_contains(names, name) ? enter_directory(op, dir, name, ret_entry)
						  : -ENOENT;
}

static int snapshots_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode,
			   struct entry *ret_entry)
{
	g_autoptr(GHashTable) names = session_names(op);
	int r;

	(void)mode;
	if (g_hash_table_contains(names, name))
		return -EEXIST;
	if (!sbx_session_name_is_valid(name))
		return -EINVAL;
	r = sbx_snapshots_make(op->fs->parts.statedir, name);
	return r < 0 ? r : enter_directory(op, dir, name, ret_entry);
}

static int snapshots_rmdir(struct op *op, struct node *dir, const char *name)
{
	g_autoptr(GHashTable) names = session_names(op);
	int r;

	if (!g_hash_table_contains(names, name))
		return -ENOENT;
	/* That of a session is always there. */
	if (session_is_known(op, name))
		return -EBUSY;
	r = sbx_snapshots_unmake(op->fs->parts.statedir, name);
	if (r == 0)
		node_removed(op->fs->nodes, dir, name);
	return r;
}

static int snapshots_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_autoptr(GHashTable) names = session_names(op);
	g_autofree char **sorted = NULL;
	struct synth_snap *snap = synth_snap_new();
	guint n;

	(void)dir;
	sorted = (char **)g_hash_table_get_keys_as_array(names, &n);
	if (n > 0)
		qsort(sorted, n, sizeof(*sorted), sbx_name_compare);
	for (guint i = 0; i < n; i++)
		synth_snap_add(snap, sorted[i], S_IFDIR, number_of(sorted[i], NULL));
	*ret_snap = synth_snap_done(snap);
	return 0;
}

const struct node_class snapshots_class = {
	.lookup = snapshots_lookup,
	.getattr = snapshots_getattr,
	.mkdir = snapshots_mkdir,
	.rmdir = snapshots_rmdir,
	.list = snapshots_list,
};
