#include "fusefs/synth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/attr.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/op.h"
#include "fusefs/scratch.h"
#include "fusefs/text.h"
#include "fusefs/verb.h"

#define WRITABLE_BLOCK_SIZE (1024 * 1024)

struct synth_handle {
	struct handle head;
	const struct synth_row *row;
	GString *text; /* the rendering; NULL: opened for writing only */
	pthread_mutex_t lock; /* for cursor */
	size_t cursor; /* of an open file for both ways */
	pid_t opener; /* who writes: whose close ends the last line */
	struct verb_input input;
};

const struct synth_row *synth_find(const struct synth_table *table, const char *name)
{
	for (size_t i = 0; i < table->n; i++)
		if (strcmp(table->rows[i].name, name) == 0)
			return &table->rows[i];
	return NULL;
}

static const struct synth_row *row_of(const struct node *node)
{
	return node->data;
}

static bool is_writable(const struct synth_row *row)
{
	return row->verbs || row->store;
}

static int render(struct op *op, const struct synth_row *row, struct node *dir, GString **ret_text)
{
	GString *text = g_string_new(NULL);
	int r = 0;

	if (row->show)
		r = row->show(op, dir, text);
	else if (row->verbs)
		verb_table_show(row->verbs, text);
	if (r < 0) {
		g_string_free(text, TRUE);
		return r;
	}
	*ret_text = text;
	return 0;
}

static uint64_t row_ino(const struct synth_row *row, const struct node *dir)
{
	return row->st_ino ? row->st_ino(dir, row)
			   : ino_own(fsession_index(dir->session), row->index);
}

static void row_stat(struct op *op, const struct synth_row *row, const struct node *dir,
		     uint64_t size, int64_t mtime_ns, struct stat *ret_st)
{
	op_own_stat(op->fs, row->mode, row_ino(row, dir), size, ret_st);
	if (is_writable(row))
		ret_st->st_blksize = WRITABLE_BLOCK_SIZE;
	if (!row->fixed && !is_writable(row)) {
		op_set_time(&ret_st->st_mtim, mtime_ns);
		ret_st->st_ctim = ret_st->st_atim = ret_st->st_mtim;
	}
}

/* Render, remember size and time in the node. */
static int node_render(struct op *op, struct node *node, struct node *dir, struct stat *ret_st,
		       GString **ret_text)
{
	const struct synth_row *row = row_of(node);
	int64_t now_ns = text_now_ns();
	GString *text;
	int r;

	r = render(op, row, dir, &text);
	if (r < 0)
		return r;
	node_set_size(op->fs->nodes, node, text->len, now_ns);
	if (ret_st)
		row_stat(op, row, dir, text->len, now_ns, ret_st);
	if (ret_text)
		*ret_text = text;
	else
		g_string_free(text, TRUE);
	return 0;
}

static const struct node_class *class_of(const struct synth_row *row)
{
	if (row->class)
		return row->class;
	if (S_ISLNK(row->mode))
		return row->waits ? &synth_waiting_link_class : &synth_link_class;
	return row->waits ? &synth_waiting_file_class : &synth_file_class;
}

int synth_lookup(struct op *op, const struct synth_table *table, struct node *dir, const char *name,
		 struct entry *ret_entry)
{
	const struct synth_row *row = synth_find(table, name);
	struct node_spec spec;
	struct entry entry = { 0 };
	int r;

	if (!row || (row->exists && !row->exists(op, dir)))
		return -ENOENT;
	spec = (struct node_spec){
		.class = class_of(row),
		.session = dir->session,
		.data = (void *)row,
		.type = row->mode,
		.base_path = row->base_path,
		.fresh = S_ISREG(row->mode),
	};
	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	r = spec.class->getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	if (r < 0 && S_ISDIR(row->mode)) {
		/* The directory is there, whatever is the matter with what is in it. */
		op_own_stat(op->fs, row->mode, row_ino(row, dir), 0, &entry.st);
		r = 0;
	}
	if (r < 0) {
		op_entry_undo(op, &entry);
		return r;
	}
	/* Renaming a session changes what its link says; directories stay. */
	entry.entry_valid_ms = S_ISDIR(row->mode) ? op->fs->config.ttl_ms : 0;
	*ret_entry = entry;
	return 0;
}

static int synth_file_getattr(struct op *op, struct node *node, struct stat *ret_st,
			      int64_t *ret_valid_ms)
{
	struct sbx_attr attr;

	*ret_valid_ms = 0;
	if (!node_is_open(op->fs->nodes, node))
		return node_render(op, node, node->parent, ret_st, NULL);
	node_remembered(op->fs->nodes, node, &attr);
	row_stat(op, row_of(node), node->parent, attr.size, attr.mtime_ns, ret_st);
	return 0;
}

static int synth_file_setattr(struct op *op, struct node *node, struct handle *handle,
			      const struct op_setattr *change, struct stat *ret_st,
			      int64_t *ret_valid_ms)
{
	(void)handle;
	(void)change;
	if (!is_writable(row_of(node)))
		return -EPERM;
	return synth_file_getattr(op, node, ret_st, ret_valid_ms);
}

static ssize_t synth_read(struct op *op, struct handle *handle, void *buf, size_t size,
			  off_t offset)
{
	struct synth_handle *self = (struct synth_handle *)handle;
	bool both = (handle->flags & O_ACCMODE) == O_RDWR;
	size_t at = (size_t)offset, n = 0;

	(void)op;
	pthread_mutex_lock(&self->lock);
	if (both)
		at = self->cursor;
	if (self->text && at < self->text->len) {
		n = MIN(size, self->text->len - at);
		memcpy(buf, self->text->str + at, n);
	}
	if (both)
		self->cursor = at + n;
	pthread_mutex_unlock(&self->lock);
	return (ssize_t)n;
}

static ssize_t synth_write(struct op *op, struct handle *handle, const void *buf, size_t size,
			   off_t offset, bool append)
{
	struct synth_handle *self = (struct synth_handle *)handle;

	(void)offset;
	(void)append;
	return verb_input_write(op, &self->input, self->row->verbs, handle->node->session, buf,
				size);
}

static int synth_flush(struct op *op, struct handle *handle)
{
	struct synth_handle *self = (struct synth_handle *)handle;

	if (!verb_input_is_pending(&self->input) || !op_closes(op, self->opener))
		return 0;
	return verb_input_flush(op, &self->input, self->row->verbs, handle->node->session);
}

static void synth_release(struct op *op, struct handle *handle)
{
	struct synth_handle *self = (struct synth_handle *)handle;

	/* Written by a process that its opener outlived. */
	if (verb_input_is_pending(&self->input))
		verb_input_end(op, &self->input, self->row->verbs, handle->node->session);
	if (self->text)
		g_string_free(self->text, TRUE);
	verb_input_done(&self->input);
	pthread_mutex_destroy(&self->lock);
	g_free(self);
}

static const struct handle_class synth_reader = {
	.read = synth_read,
	.release = synth_release,
};

static const struct handle_class synth_writer = {
	.read = synth_read,
	.write = synth_write,
	.flush = synth_flush,
	.release = synth_release,
	.release_waits = true,
};

static int synth_file_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	const struct synth_row *row = row_of(node);
	bool writes = (flags & O_ACCMODE) != O_RDONLY;
	struct synth_handle *self;
	GString *text = NULL;
	int r;

	if (writes && !is_writable(row))
		return -EACCES;
	if (row->open)
		return row->open(op, node, flags, ret_handle);
	if ((flags & O_ACCMODE) != O_WRONLY) {
		r = node_render(op, node, node->parent, NULL, &text);
		if (r < 0)
			return r;
	}
	self = g_new0(struct synth_handle, 1);
	self->row = row;
	self->text = text;
	self->opener = writes ? op_pid(op) : 0;
	pthread_mutex_init(&self->lock, NULL);
	verb_input_init(&self->input);
	handle_init(op, &self->head, writes ? &synth_writer : &synth_reader, node, flags);
	self->head.direct_io = true;
	*ret_handle = &self->head;
	return 0;
}

const struct node_class synth_file_class = {
	.getattr = synth_file_getattr,
	.setattr = synth_file_setattr,
	.open = synth_file_open,
};

const struct node_class synth_waiting_file_class = {
	.waits = true,
	.getattr = synth_file_getattr,
	.setattr = synth_file_setattr,
	.open = synth_file_open,
};

static int synth_link_readlink(struct op *op, struct node *node, char **ret_text)
{
	GString *text;
	int r = render(op, row_of(node), node->parent, &text);

	if (r == 0)
		*ret_text = g_string_free(text, FALSE);
	return r;
}

static int synth_link_getattr(struct op *op, struct node *node, struct stat *ret_st,
			      int64_t *ret_valid_ms)
{
	g_autofree char *text = NULL;
	int r = synth_link_readlink(op, node, &text);

	if (r < 0)
		return r;
	op_own_stat(op->fs, row_of(node)->mode, row_ino(row_of(node), node->parent), strlen(text),
		    ret_st);
	*ret_valid_ms = 0;
	return 0;
}

const struct node_class synth_link_class = {
	.getattr = synth_link_getattr,
	.readlink = synth_link_readlink,
};

const struct node_class synth_waiting_link_class = {
	.waits = true,
	.getattr = synth_link_getattr,
	.readlink = synth_link_readlink,
};

int synth_create(struct op *op, const struct synth_table *table, struct scratch_set *scratch,
		 struct node *dir, const char *name, int flags, mode_t mode,
		 struct entry *ret_entry, struct handle **ret_handle)
{
	int r;

	if (!synth_find(table, name))
		return scratch ? scratch_create(op, scratch, dir, name, flags, mode, ret_entry,
						ret_handle)
			       : -EPERM;
	/* The kernel thought that it is not there. */
	if (flags & O_EXCL)
		return -EEXIST;
	r = synth_lookup(op, table, dir, name, ret_entry);
	if (r < 0 || !ret_handle)
		return r;
	r = ret_entry->node->class->open
		    ? ret_entry->node->class->open(op, ret_entry->node, flags, ret_handle)
		    : -EISDIR;
	if (r < 0) {
		op_entry_undo(op, ret_entry);
	}
	return r;
}

int synth_unlink(const struct synth_table *table, struct scratch_set *scratch, const char *name)
{
	if (synth_find(table, name))
		return -EPERM;
	return scratch ? scratch_unlink(scratch, name) : -ENOENT;
}

/* The text of the scratch file @from is written to @row. */
static int store_scratch(struct op *op, const struct synth_row *row, struct scratch_set *scratch,
			 struct node *dir, const char *from)
{
	g_autofree char *data = NULL;
	size_t len;
	int r;

	r = scratch_read(scratch, from, &data, &len);
	if (r < 0)
		return r;
	if (!is_writable(row))
		return -EPERM;
	r = row->store ? row->store(op, dir, data, len)
		       : verb_input_text(op, row->verbs, dir->session, data, len);
	if (r == 0)
		(void)scratch_unlink(scratch, from);
	return r;
}

int synth_rename(struct op *op, const struct synth_table *table, struct scratch_set *scratch,
		 struct node *dir, const char *from, const char *to, unsigned int flags)
{
	const struct synth_row *from_row = synth_find(table, from);
	const struct synth_row *to_row = synth_find(table, to);
	GString *text;
	int r;

	if (!scratch)
		return -EPERM;
	if (!from_row && !to_row)
		return scratch_rename(scratch, from, to, flags);
	if (flags)
		return to_row && flags == RENAME_NOREPLACE ? -EEXIST : -EINVAL;
	if (!from_row)
		return store_scratch(op, to_row, scratch, dir, from);
	if (to_row || !is_writable(from_row))
		return from_row == to_row ? 0 : -EPERM;
	r = render(op, from_row, dir, &text);
	if (r < 0)
		return r;
	r = scratch_put(scratch, to, text->str, text->len);
	g_string_free(text, TRUE);
	return r;
}

struct synth_name {
	char *name;
	mode_t type;
	uint64_t st_ino;
};

struct synth_snap {
	struct dirsnap head;
	GArray *names; /* of struct synth_name */
};

static void snap_get(const struct dirsnap *head, struct op *op, struct node *dir, size_t index,
		     const char **ret_name, mode_t *ret_type, uint64_t *ret_ino)
{
	const struct synth_snap *snap = (const struct synth_snap *)head;
	const struct synth_name *name = &g_array_index(snap->names, struct synth_name, index);

	(void)op;
	(void)dir;
	*ret_name = name->name;
	*ret_type = name->type;
	*ret_ino = name->st_ino;
}

static void snap_free(struct dirsnap *head)
{
	struct synth_snap *snap = (struct synth_snap *)head;

	g_array_unref(snap->names);
	g_free(snap);
}

static void name_clear(gpointer data)
{
	struct synth_name *name = data;

	g_free(name->name);
}

struct synth_snap *synth_snap_new(void)
{
	struct synth_snap *snap = g_new0(struct synth_snap, 1);

	snap->head.get = snap_get;
	snap->head.free = snap_free;
	snap->names = g_array_new(FALSE, FALSE, sizeof(struct synth_name));
	g_array_set_clear_func(snap->names, name_clear);
	return snap;
}

void synth_snap_add(struct synth_snap *snap, const char *name, mode_t type, uint64_t st_ino)
{
	struct synth_name entry = { .name = g_strdup(name),
				    .type = type & S_IFMT,
				    .st_ino = st_ino };

	g_array_append_val(snap->names, entry);
}

void synth_snap_add_rows(struct synth_snap *snap, struct op *op, const struct synth_table *table,
			 struct scratch_set *scratch, struct node *dir)
{
	g_auto(GStrv) names = scratch ? scratch_list(scratch) : NULL;

	for (size_t i = 0; i < table->n; i++) {
		const struct synth_row *row = &table->rows[i];

		if (!row->hidden && (!row->exists || row->exists(op, dir)))
			synth_snap_add(snap, row->name, row->mode, row_ino(row, dir));
	}
	for (char **name = names; name && *name; name++) {
		uint64_t st_ino = scratch_ino(scratch, *name);

		if (st_ino) /* not gone meanwhile */
			synth_snap_add(snap, *name, S_IFREG, st_ino);
	}
}

struct dirsnap *synth_snap_done(struct synth_snap *snap)
{
	snap->head.n = snap->names->len;
	return &snap->head;
}
