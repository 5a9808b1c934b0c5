#include "fusefs/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include <glib.h>

#include "client/call.h"
#include "client/name.h"
#include "fusefs/ino.h"
#include "fusefs/op.h"
#include "fusefs/text.h"
#include "fusefs/verb.h"

/* Numbers the files. Atomic. */
static uint32_t last_number;

/* References: the set's names, nodes and open files. */
struct scratch {
	struct scratch_set *set; /* a reference */
	unsigned int refs; /* under the set's lock */
	unsigned int opens; /* the same */
	uint64_t st_ino;
	int64_t closed_ms; /* monotonic, of the last close or the creation */
	int64_t mtime_ns;
	mode_t mode;
	GString *data;
};

struct scratch_set {
	pthread_mutex_t lock;
	unsigned int refs; /* atomic */
	GHashTable *files; /* name to struct scratch */
};

struct scratch_handle {
	struct handle head;
	struct scratch *file; /* a reference */
};

struct scratch_set *scratch_set_new(void)
{
	struct scratch_set *set = g_new0(struct scratch_set, 1);

	pthread_mutex_init(&set->lock, NULL);
	set->refs = 1;
	set->files = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	return set;
}

static void set_put(struct scratch_set *set)
{
	if (__atomic_sub_fetch(&set->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	g_hash_table_unref(set->files);
	pthread_mutex_destroy(&set->lock);
	g_free(set);
}

/* True: it was the last, and file_free() must be called without the lock. */
static bool file_drop_locked(struct scratch *file)
{
	return --file->refs == 0;
}

static void file_free(struct scratch *file)
{
	struct scratch_set *set = file->set;

	g_string_free(file->data, TRUE);
	g_free(file);
	set_put(set);
}

static void file_put(struct scratch *file)
{
	bool last;

	pthread_mutex_lock(&file->set->lock);
	last = file_drop_locked(file);
	pthread_mutex_unlock(&file->set->lock);
	if (last)
		file_free(file);
}

void scratch_set_unref(struct scratch_set *set)
{
	GHashTableIter iter;
	gpointer file;
	g_autoptr(GPtrArray) dead = g_ptr_array_new();

	if (!set)
		return;
	pthread_mutex_lock(&set->lock);
	g_hash_table_iter_init(&iter, set->files);
	while (g_hash_table_iter_next(&iter, NULL, &file)) {
		g_hash_table_iter_remove(&iter);
		if (file_drop_locked(file))
			g_ptr_array_add(dead, file);
	}
	pthread_mutex_unlock(&set->lock);
	for (guint i = 0; i < dead->len; i++)
		file_free(g_ptr_array_index(dead, i));
	set_put(set);
}

/* Forget a name; the file ends with its last user. */
static struct scratch *remove_locked(struct scratch_set *set, const char *name)
{
	struct scratch *file = g_hash_table_lookup(set->files, name);

	if (!file)
		return NULL;
	g_hash_table_remove(set->files, name);
	return file_drop_locked(file) ? file : NULL;
}

/* Files whose time is over. To be freed without the lock. */
static GPtrArray *expire_locked(struct scratch_set *set)
{
	GPtrArray *dead = g_ptr_array_new();
	int64_t now_ms = sbx_clock_ms();
	GHashTableIter iter;
	gpointer value;

	g_hash_table_iter_init(&iter, set->files);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct scratch *file = value;

		if (file->opens > 0 || now_ms - file->closed_ms < SCRATCH_LIFE_MS)
			continue;
		g_hash_table_iter_remove(&iter);
		if (file_drop_locked(file))
			g_ptr_array_add(dead, file);
	}
	return dead;
}

static void lock_and_expire(struct scratch_set *set)
{
	g_autoptr(GPtrArray) dead = NULL;

	pthread_mutex_lock(&set->lock);
	dead = expire_locked(set);
	if (dead->len == 0)
		return;
	pthread_mutex_unlock(&set->lock);
	for (guint i = 0; i < dead->len; i++)
		file_free(g_ptr_array_index(dead, i));
	pthread_mutex_lock(&set->lock);
}

static struct scratch *file_new_locked(struct scratch_set *set, const char *name, mode_t mode)
{
	struct scratch *file;

	if (g_hash_table_size(set->files) >= SCRATCH_FILES_MAX)
		return NULL;
	file = g_new0(struct scratch, 1);
	file->set = set;
	__atomic_add_fetch(&set->refs, 1, __ATOMIC_RELAXED);
	file->refs = 1;
	file->st_ino =
		INO_SCRATCH_BITS | (uint32_t)__atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
	file->mode = mode & 0777;
	file->mtime_ns = text_now_ns();
	file->closed_ms = sbx_clock_ms();
	file->data = g_string_new(NULL);
	g_hash_table_replace(set->files, g_strdup(name), file);
	return file;
}

static void file_stat_locked(const struct op *op, const struct scratch *file, struct stat *ret_st)
{
	op_own_stat(op->fs, S_IFREG | file->mode, file->st_ino, file->data->len, ret_st);
	op_set_time(&ret_st->st_mtim, file->mtime_ns);
	ret_st->st_atim = ret_st->st_ctim = ret_st->st_mtim;
}

/* Consumes one reference of @file, in any case. */
static int file_entry(struct op *op, struct node *dir, const char *name, struct scratch *file,
		      struct entry *ret_entry)
{
	struct node_spec spec = {
		.class = &scratch_class,
		.session = dir->session,
		.data = file,
		.type = S_IFREG,
		.fresh = true,
	};
	int r;

	memset(ret_entry, 0, sizeof(*ret_entry));
	r = node_enter(op->fs->nodes, dir, name, &spec, &ret_entry->node);
	if (r < 0) {
		file_put(file);
		return r;
	}
	pthread_mutex_lock(&file->set->lock);
	file_stat_locked(op, file, &ret_entry->st);
	pthread_mutex_unlock(&file->set->lock);
	return 0;
}

int scratch_lookup(struct op *op, struct scratch_set *set, struct node *dir, const char *name,
		   struct entry *ret_entry)
{
	struct scratch *file;

	lock_and_expire(set);
	file = g_hash_table_lookup(set->files, name);
	if (file)
		file->refs++;
	pthread_mutex_unlock(&set->lock);
	return file ? file_entry(op, dir, name, file, ret_entry) : -ENOENT;
}

static ssize_t scratch_handle_read(struct op *op, struct handle *handle, void *buf, size_t size,
				   off_t offset)
{
	struct scratch *file = ((struct scratch_handle *)handle)->file;
	size_t n = 0;

	(void)op;
	pthread_mutex_lock(&file->set->lock);
	if ((uint64_t)offset < file->data->len) {
		n = MIN(size, file->data->len - (size_t)offset);
		memcpy(buf, file->data->str + offset, n);
	}
	pthread_mutex_unlock(&file->set->lock);
	return (ssize_t)n;
}

static int resize_locked(struct scratch *file, uint64_t size)
{
	size_t old = file->data->len;

	if (size > VERB_INPUT_MAX)
		return -EFBIG;
	g_string_set_size(file->data, size);
	if (size > old)
		memset(file->data->str + old, 0, size - old);
	file->mtime_ns = text_now_ns();
	return 0;
}

static ssize_t scratch_handle_write(struct op *op, struct handle *handle, const void *buf,
				    size_t size, off_t offset, bool append)
{
	struct scratch *file = ((struct scratch_handle *)handle)->file;
	uint64_t at = (uint64_t)offset;
	int r = 0;

	(void)op;
	pthread_mutex_lock(&file->set->lock);
	if (append)
		at = file->data->len;
	if (at + size > file->data->len)
		r = resize_locked(file, at + size);
	if (r == 0 && size > 0)
		memcpy(file->data->str + at, buf, size);
	file->mtime_ns = text_now_ns();
	pthread_mutex_unlock(&file->set->lock);
	return r < 0 ? r : (ssize_t)size;
}

static void scratch_handle_release(struct op *op, struct handle *handle)
{
	struct scratch_handle *self = (struct scratch_handle *)handle;

	(void)op;
	pthread_mutex_lock(&self->file->set->lock);
	self->file->opens--;
	self->file->closed_ms = sbx_clock_ms();
	pthread_mutex_unlock(&self->file->set->lock);
	file_put(self->file);
	g_free(self);
}

static const struct handle_class scratch_handle_class = {
	.read = scratch_handle_read,
	.write = scratch_handle_write,
	.release = scratch_handle_release,
};

static int scratch_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	struct scratch *file = node->data;
	struct scratch_handle *self = g_new0(struct scratch_handle, 1);

	pthread_mutex_lock(&file->set->lock);
	file->refs++;
	file->opens++;
	if (flags & O_TRUNC)
		(void)resize_locked(file, 0);
	pthread_mutex_unlock(&file->set->lock);
	self->file = file;
	handle_init(op, &self->head, &scratch_handle_class, node, flags);
	self->head.direct_io = true;
	*ret_handle = &self->head;
	return 0;
}

int scratch_create(struct op *op, struct scratch_set *set, struct node *dir, const char *name,
		   int flags, mode_t mode, struct entry *ret_entry, struct handle **ret_handle)
{
	struct scratch *file;
	int r;

	lock_and_expire(set);
	file = g_hash_table_lookup(set->files, name);
	if (file && (flags & O_EXCL)) {
		pthread_mutex_unlock(&set->lock);
		return -EEXIST;
	}
	if (!file)
		file = file_new_locked(set, name, mode);
	if (file)
		file->refs++;
	pthread_mutex_unlock(&set->lock);
	if (!file)
		return -ENOSPC;
	r = file_entry(op, dir, name, file, ret_entry);
	if (r < 0 || !ret_handle)
		return r;
	r = scratch_open(op, ret_entry->node, flags, ret_handle);
	ret_entry->st.st_size = flags & O_TRUNC ? 0 : ret_entry->st.st_size;
	return r;
}

int scratch_put(struct scratch_set *set, const char *name, const char *data, size_t len)
{
	struct scratch *dead, *file;

	if (len > VERB_INPUT_MAX)
		return -EFBIG;
	lock_and_expire(set);
	dead = remove_locked(set, name);
	file = file_new_locked(set, name, 0600);
	if (file)
		g_string_append_len(file->data, data, (gssize)len);
	pthread_mutex_unlock(&set->lock);
	if (dead)
		file_free(dead);
	return file ? 0 : -ENOSPC;
}

int scratch_unlink(struct scratch_set *set, const char *name)
{
	struct scratch *dead;
	bool found;

	lock_and_expire(set);
	found = g_hash_table_contains(set->files, name);
	dead = remove_locked(set, name);
	pthread_mutex_unlock(&set->lock);
	if (dead)
		file_free(dead);
	return found ? 0 : -ENOENT;
}

int scratch_rename(struct scratch_set *set, const char *from, const char *to, unsigned int flags)
{
	struct scratch *file, *dead = NULL;
	int r = 0;

	if (flags & ~1u /* RENAME_NOREPLACE */)
		return -EINVAL;
	lock_and_expire(set);
	file = g_hash_table_lookup(set->files, from);
	if (!file)
		r = -ENOENT;
	else if (flags && g_hash_table_contains(set->files, to))
		r = -EEXIST;
	else if (strcmp(from, to) != 0) {
		dead = remove_locked(set, to);
		g_hash_table_remove(set->files, from);
		g_hash_table_replace(set->files, g_strdup(to), file);
	}
	pthread_mutex_unlock(&set->lock);
	if (dead)
		file_free(dead);
	return r;
}

int scratch_read(struct scratch_set *set, const char *name, char **ret_data, size_t *ret_len)
{
	struct scratch *file;

	lock_and_expire(set);
	file = g_hash_table_lookup(set->files, name);
	if (file) {
		*ret_data = g_memdup2(file->data->str, file->data->len + 1);
		*ret_len = file->data->len;
	}
	pthread_mutex_unlock(&set->lock);
	return file ? 0 : -ENOENT;
}

char **scratch_list(struct scratch_set *set)
{
	GPtrArray *names = g_ptr_array_new();
	GHashTableIter iter;
	gpointer name;

	lock_and_expire(set);
	g_hash_table_iter_init(&iter, set->files);
	while (g_hash_table_iter_next(&iter, &name, NULL))
		g_ptr_array_add(names, g_strdup(name));
	pthread_mutex_unlock(&set->lock);
	g_ptr_array_add(names, NULL);
	qsort(names->pdata, names->len - 1, sizeof(names->pdata[0]), sbx_name_compare);
	return (char **)g_ptr_array_free(names, FALSE);
}

uint64_t scratch_ino(struct scratch_set *set, const char *name)
{
	const struct scratch *file;
	uint64_t st_ino;

	pthread_mutex_lock(&set->lock);
	file = g_hash_table_lookup(set->files, name);
	st_ino = file ? file->st_ino : 0;
	pthread_mutex_unlock(&set->lock);
	return st_ino;
}

static int scratch_getattr(struct op *op, struct node *node, struct stat *ret_st,
			   int64_t *ret_valid_ms)
{
	struct scratch *file = node->data;

	pthread_mutex_lock(&file->set->lock);
	file_stat_locked(op, file, ret_st);
	pthread_mutex_unlock(&file->set->lock);
	*ret_valid_ms = 0;
	return 0;
}

static int scratch_setattr(struct op *op, struct node *node, struct handle *handle,
			   const struct op_setattr *change, struct stat *ret_st,
			   int64_t *ret_valid_ms)
{
	struct scratch *file = node->data;
	int r = 0;

	(void)handle;
	pthread_mutex_lock(&file->set->lock);
	if (change->set & OP_SET_SIZE)
		r = resize_locked(file, change->size);
	if (change->set & OP_SET_MODE)
		file->mode = change->mode & 0777;
	if (change->set & OP_SET_MTIME_NOW)
		file->mtime_ns = text_now_ns();
	else if (change->set & OP_SET_MTIME)
		file->mtime_ns = change->mtime_ns;
	pthread_mutex_unlock(&file->set->lock);
	return r < 0 ? r : scratch_getattr(op, node, ret_st, ret_valid_ms);
}

static void scratch_ended(struct node *node)
{
	file_put(node->data);
}

const struct node_class scratch_class = {
	.getattr = scratch_getattr,
	.setattr = scratch_setattr,
	.open = scratch_open,
	.ended = scratch_ended,
};
