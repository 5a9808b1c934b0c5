/* Open files: reading, writing, when they are published, attributes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/apply.h"
#include "client/session.h"
#include "client/workspace/early.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/process.h"
#include "client/workspace/send.h"

/* How often a read begins anew because this mount changed the file meanwhile. */
#define READ_TRIES 100

/* Reading -------------------------------------------------------------------------------------- */

/*
 * Bytes at @offset up to the next one that is the base's: their number; *ret_base is how many of
 * the base follow then.
 */
static ssize_t node_read_unsent_locked(struct sbx_node_file *node, char *buf, size_t size,
				       uint64_t offset, size_t *ret_base)
{
	const struct sbx_layout *layout = sbx_spool_layout(node->spool);
	struct sbx_extent extent;
	size_t done = 0;
	int r;

	*ret_base = 0;
	while (done < size && sbx_layout_extent(layout, offset + done, size - done, &extent)) {
		if (extent.kind == SBX_EXTENT_BASE) {
			*ret_base = extent.len_bytes;
			break;
		}
		if (extent.kind == SBX_EXTENT_ZEROS) {
			memset(buf + done, 0, extent.len_bytes);
		} else {
			r = sbx_spool_read(node->spool, buf + done, extent.len_bytes,
					   extent.log_pos);
			if (r < 0)
				return r;
		}
		done += extent.len_bytes;
	}
	return (ssize_t)done;
}

/*
 * A read of @content was -ESTALE. Where the file was changed in place, by this mount (which the
 * sandbox has before its answer is here) or in the sandbox, it is read anew: true. Waits for such
 * an answer.
 */
static bool file_changed_in_place(struct sbx_file *file, const struct sbx_call *call,
				  const struct sbx_content *content)
{
	struct sbx_node_file *node = file->node;
	struct sbx_wait wait;
	bool changed;

	if (sbx_wait_begin(&wait, call, &node->changed, &node->lock) < 0)
		return false;
	pthread_mutex_lock(&node->lock);
	while (!file->pinned && node->content == content && node->publishing &&
	       sbx_wait_moving(&wait, &node->moved_ms) == 0)
		;
	changed = !file->pinned && (node->content != content || nfile_follow_locked(node));
	pthread_mutex_unlock(&node->lock);
	sbx_wait_end(&wait);
	return changed;
}

/* One step: bytes of one kind, from @offset on. 0: end of file; -EAGAIN: once more. */
static ssize_t file_read_step(struct sbx_file *file, const struct sbx_call *call, char *buf,
			      size_t size, uint64_t offset)
{
	struct sbx_node_file *node = file->node;
	struct sbx_content *content = NULL;
	size_t base = size;
	ssize_t n = 0;

	pthread_mutex_lock(&node->lock);
	if (!file->pinned && !node->spool)
		(void)nfile_follow_locked(node);
	if (file->pinned)
		content = sbx_content_ref(file->pinned);
	else if (node->spool)
		n = node_read_unsent_locked(node, buf, size, offset, &base);
	if (n == 0 && base > 0 && !content)
		n = nfile_content_locked(node, call, &content);
	pthread_mutex_unlock(&node->lock);
	if (n != 0 || !content)
		return n;
	n = sbx_content_read(content, call, &file->reader, buf, base, offset);
	if (n == 0 && base < size) {
		/* The base has become shorter than the changes thought: what is missing is
		 * zeros. */
		memset(buf, 0, base);
		n = (ssize_t)base;
	}
	if (n == -ESTALE && file_changed_in_place(file, call, content))
		n = -EAGAIN;
	sbx_content_unref(content);
	return n;
}

ssize_t sbx_file_read(struct sbx_file *file, const struct sbx_call *call, void *buf, size_t size,
		      uint64_t offset)
{
	unsigned int tries = 0;
	size_t done = 0;

	while (done < size) {
		ssize_t n =
			file_read_step(file, call, (char *)buf + done, size - done, offset + done);

		/* It was changed in place meanwhile. */
		if (n == -EAGAIN && ++tries < READ_TRIES)
			continue;
		if (n == -EAGAIN)
			n = -EIO;
		if (n < 0)
			return done > 0 ? (ssize_t)done : n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* Writing -------------------------------------------------------------------------------------- */

/* What the spool says no longer counts: @flags of it. */
static int node_drop_locked(struct sbx_node_file *node, unsigned int flags)
{
	struct sbx_spool_meta meta = *sbx_spool_meta(node->spool);

	if (!(meta.flags & flags))
		return 0;
	meta.flags &= ~flags;
	return sbx_spool_set_meta(node->spool, &meta);
}

static ssize_t file_write(struct sbx_file *file, const void *buf, size_t size, uint64_t offset,
			  bool append)
{
	struct sbx_node_file *node = file->node;
	bool arm = false;
	bool early = false;
	int r;

	if (!file->writable)
		return -EBADF;
	if (size == 0)
		return 0;
	pthread_mutex_lock(&node->lock);
	/* What is appended to a file just made goes to its end, whatever that is by then. */
	if (append)
		node->fresh = false;
	r = nfile_spool_locked(node, false);
	/* A write sets the time of modification: one that was set before no longer counts. */
	if (r == 0)
		r = node_drop_locked(node, SBX_SPOOL_MTIME);
	if (r == 0 && append)
		r = sbx_spool_append(node->spool, buf, size);
	else if (r == 0)
		r = sbx_spool_write(node->spool, buf, size, offset);
	if (r == 0) {
		file->wrote = true;
		file->closed = false;
		nfile_changed_locked(node, true);
		early = early_wrote_locked(node, offset, size);
		arm = append && node->append_due_ms == 0 && !node->detached;
		if (arm)
			node->append_due_ms = sbx_clock_ms() + APPEND_DELAY_MS;
	}
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	if (arm)
		append_arm(node->files, APPEND_DELAY_MS);
	if (early)
		early_start(node);
	return r < 0 ? r : (ssize_t)size;
}

ssize_t sbx_file_write(struct sbx_file *file, const struct sbx_call *call, const void *buf,
		       size_t size, uint64_t offset)
{
	(void)call;
	return file_write(file, buf, size, offset, false);
}

ssize_t sbx_file_append(struct sbx_file *file, const struct sbx_call *call, const void *buf,
			size_t size, uint64_t offset)
{
	(void)call;
	return file_write(file, buf, size, offset, true);
}

static int node_resize_locked(struct sbx_node_file *node, uint64_t size)
{
	unsigned int dropped = SBX_SPOOL_MTIME;
	int r = nfile_spool_locked(node, false);

	/* Who cuts the file wants nothing of it that he has not written. */
	if (r == 0 && (size == 0 || size < sbx_spool_layout(node->spool)->size_bytes))
		dropped |= SBX_SPOOL_ADDS;
	if (r == 0)
		r = node_drop_locked(node, dropped);
	if (r == 0)
		r = sbx_spool_truncate(node->spool, size);
	early_stop_locked(node);
	if (r == 0)
		nfile_changed_locked(node, true);
	return r;
}

int sbx_file_allocate(struct sbx_file *file, const struct sbx_call *call, uint64_t offset,
		      uint64_t len)
{
	struct sbx_node_file *node = file->node;
	uint64_t size;
	int r = 0;

	(void)call;
	if (!file->writable)
		return -EBADF;
	if (len == 0)
		return -EINVAL;
	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return -EFBIG;
	pthread_mutex_lock(&node->lock);
	size = node->spool ? sbx_spool_layout(node->spool)->size_bytes : node->attr.size;
	if (offset + len > size) {
		r = node_resize_locked(node, offset + len);
		file->wrote |= r == 0;
	}
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	return r;
}

/* Publishing ----------------------------------------------------------------------------------- */

int sbx_file_flush(struct sbx_file *file, const struct sbx_call *call, pid_t tid)
{
	struct sbx_node_file *node = file->node;
	bool unsent, due;

	if (!file->writable)
		return 0;
	pthread_mutex_lock(&node->lock);
	unsent = nfile_is_unsent_locked(node);
	pthread_mutex_unlock(&node->lock);
	if (!unsent || !sbx_process_closes(tid, file->opener))
		return 0;
	pthread_mutex_lock(&node->lock);
	file->closed = true;
	due = nfile_is_unsent_locked(node) && node->written;
	pthread_mutex_unlock(&node->lock);
	return due ? publish_wait(node, call) : 0;
}

int sbx_file_fsync(struct sbx_file *file, const struct sbx_call *call)
{
	return publish_wait(file->node, call);
}

bool nfile_has_writer_locked(const struct sbx_node_file *node)
{
	for (const GList *link = node->handles.head; link; link = link->next) {
		const struct sbx_file *file = link->data;

		if (file->writable)
			return true;
	}
	return false;
}

int sbx_file_release(struct sbx_file *file, const struct sbx_call *call)
{
	struct sbx_node_file *node = file->node;
	bool due;
	int r = 0;

	pthread_mutex_lock(&node->lock);
	g_queue_unlink(&node->handles, &file->link);
	pthread_cond_broadcast(&node->changed);
	due = nfile_is_unsent_locked(node) && file->writable &&
	      (file->wrote || !nfile_has_writer_locked(node));
	pthread_mutex_unlock(&node->lock);
	/* Nobody hears of a failure here: it is in errors, and the bytes are kept. */
	if (due)
		r = call ? publish_wait(node, call) : publish_after(node);
	sbx_content_unref(file->pinned);
	free(file);
	nfile_settle_ref(node);
	nfile_unref(node);
	return r;
}

/* Attributes ----------------------------------------------------------------------------------- */

/* The process of @tid holds unsent bytes, and is not one that watches its own file grow. */
static bool node_stat_publishes(struct sbx_node_file *node, pid_t tid)
{
	bool publishes = false;

	pthread_mutex_lock(&node->lock);
	if (tid > 0 && nfile_is_unsent_locked(node) && node->written &&
	    node->stat_run < STAT_RUN_MAX) {
		const pid_t process = sbx_process_of(tid);

		for (GList *link = node->handles.head; link && !publishes; link = link->next) {
			const struct sbx_file *file = link->data;

			publishes = file->wrote && file->opener == process;
		}
	}
	if (publishes)
		node->stat_run++;
	pthread_mutex_unlock(&node->lock);
	return publishes;
}

/*
 * The program that made, truncated or wrote the file has closed it, and what is still owed takes
 * one request: its attributes are the sandbox's in a moment. What could not be sent is not waited
 * for.
 */
static bool node_is_left_locked(const struct sbx_node_file *node)
{
	if (!nfile_is_unsent_locked(node) || node->failed ||
	    sbx_spool_layout(node->spool)->log_bytes > SBX_INLINE_BYTES)
		return false;
	for (const GList *link = node->handles.head; link; link = link->next) {
		const struct sbx_file *file = link->data;

		/* The kernel tells of the last close when the program has long gone on. */
		if (!file->writable)
			continue;
		if (node->written || file->opener <= 0 || !sbx_process_is_dead(file->opener))
			return false;
	}
	return true;
}

/*
 * A node with unsent bytes (a reference) that has to do with @path, or NULL: another name of the
 * file that *attr describes, or, without @attr, a file in the directory. @left: one that is left.
 */
static struct sbx_node_file *files_find_unsent(struct sbx_files *files, const char *path,
					       const struct sbx_attr *attr, bool left)
{
	size_t len = strlen(path);
	struct sbx_node_file *found = NULL;
	GHashTableIter iter;
	gpointer value;

	pthread_mutex_lock(&files->lock);
	g_hash_table_iter_init(&iter, files->nodes);
	while (!found && g_hash_table_iter_next(&iter, NULL, &value)) {
		struct sbx_node_file *node = value;
		const char *slash = strrchr(node->path, '/');
		bool matches;

		if (!node->keeps_ref)
			continue;
		pthread_mutex_lock(&node->lock);
		if (attr)
			matches = node->has_attr && node->attr.ino == attr->ino &&
				  node->attr.dev == attr->dev && strcmp(node->path, path) != 0;
		else
			matches = (slash ? (size_t)(slash - node->path) : 0) == len &&
				  strncmp(node->path, path, len) == 0;
		if (matches && nfile_is_unsent_locked(node) && !node->failed &&
		    (!left || node_is_left_locked(node))) {
			node->refs++;
			found = node;
		}
		pthread_mutex_unlock(&node->lock);
	}
	pthread_mutex_unlock(&files->lock);
	return found;
}

int files_publish_links(struct sbx_files *files, const struct sbx_call *call, const char *path,
			const struct sbx_attr *attr, bool left)
{
	struct sbx_node_file *node;
	int r;

	if (!S_ISREG(attr->mode) || attr->nlink < 2)
		return 0;
	node = files_find_unsent(files, path, attr, left);
	if (!node)
		return 0;
	r = publish_wait(node, call);
	nfile_unref(node);
	/* What can't be sent now is of no name but its own. */
	return r == -EINTR ? r : 0;
}

static bool files_have_unsent(struct sbx_files *files)
{
	bool have;

	pthread_mutex_lock(&files->lock);
	have = files->n_unsent > 0;
	pthread_mutex_unlock(&files->lock);
	return have;
}

int sbx_files_before_stat(struct sbx_files *files, const struct sbx_call *call, const char *path,
			  pid_t tid)
{
	struct sbx_node_file *node;
	struct sbx_attr attr;
	bool publishes;
	int r = 0;

	if (!files_have_unsent(files))
		return 0;
	if (sbx_names_remote_attr(files->names, path, &attr) == 0)
		r = files_publish_links(files, call, path, &attr, true);
	if (r < 0)
		return r;
	node = files_find(files, path);
	if (!node)
		node = files_find_unsent(files, path, NULL, true);
	if (!node)
		return 0;
	pthread_mutex_lock(&node->lock);
	publishes = node_is_left_locked(node);
	pthread_mutex_unlock(&node->lock);
	if (publishes || node_stat_publishes(node, tid))
		r = publish_wait(node, call);
	nfile_unref(node);
	/* What could not be sent shows as it is here. */
	return r == -EINTR ? r : 0;
}

int sbx_file_getattr(struct sbx_file *file, const struct sbx_call *call, pid_t tid,
		     struct sbx_attr *ret_attr)
{
	struct sbx_node_file *node = file->node;
	g_autofree char *path = NULL;
	struct sbx_attr attr;
	bool done = true;
	int r = 0;

	if (node_stat_publishes(node, tid) && publish_wait(node, call) == -EINTR)
		return -EINTR;
	pthread_mutex_lock(&node->lock);
	if (node->detached || nfile_is_unsent_locked(node)) {
		nfile_local_attr_locked(node, ret_attr);
	} else {
		path = g_strdup(node->path);
		done = false;
	}
	pthread_mutex_unlock(&node->lock);
	if (done)
		return 0;
	r = sbx_names_stat(node->files->names, call, path, SBX_STAT_TTL, &attr, NULL, NULL);
	if (r == 0) {
		*ret_attr = attr;
	} else if (r == -ENOENT || r == -ENOTDIR) {
		/* Removed in the sandbox: who has it open sees what it was. */
		pthread_mutex_lock(&node->lock);
		*ret_attr = node->attr;
		ret_attr->nlink = 0;
		pthread_mutex_unlock(&node->lock);
		r = 0;
	}
	return r;
}

void sbx_file_nameless_attr(struct sbx_file *file, struct sbx_attr *ret_attr)
{
	struct sbx_node_file *node = file->node;

	pthread_mutex_lock(&node->lock);
	if (file->pinned)
		sbx_content_attr(file->pinned, ret_attr);
	else
		nfile_local_attr_locked(node, ret_attr);
	pthread_mutex_unlock(&node->lock);
	ret_attr->nlink = 0;
}

/* Ride along with unsent bytes. */
static int node_setattr_unsent_locked(struct sbx_node_file *node, const struct sbx_setattr *change)
{
	struct sbx_spool_meta meta;
	bool is_now;
	int r = 0;

	if (change->set & SBX_SET_SIZE)
		r = node_resize_locked(node, change->size_bytes);
	if (r < 0)
		return r;
	meta = *sbx_spool_meta(node->spool);
	/* A save that begins after this sets both times so by itself. */
	is_now = meta.kind == SBX_SPOOL_WHOLE && !node->publishing;
	if (change->set & SBX_SET_MODE) {
		meta.mode = change->mode & 0777;
		meta.flags |= SBX_SPOOL_MODE;
	}
	if (change->set & (SBX_SET_ATIME | SBX_SET_ATIME_NOW)) {
		meta.atime_ns = change->set & SBX_SET_ATIME ? change->atime_ns : SBX_TIME_NOW;
		meta.flags |= SBX_SPOOL_ATIME;
	}
	if (change->set & (SBX_SET_MTIME | SBX_SET_MTIME_NOW)) {
		meta.mtime_ns = change->set & SBX_SET_MTIME ? change->mtime_ns : SBX_TIME_NOW;
		meta.flags |= SBX_SPOOL_MTIME;
	}
	if (is_now && change->set & SBX_SET_ATIME_NOW)
		meta.flags &= ~(unsigned int)SBX_SPOOL_ATIME;
	if (is_now && change->set & SBX_SET_MTIME_NOW)
		meta.flags &= ~(unsigned int)SBX_SPOOL_MTIME;
	r = sbx_spool_set_meta(node->spool, &meta);
	if (r == 0)
		nfile_changed_locked(node, false);
	return r;
}

/* The sandbox's file, changed at once, and what shows of it here brought along. */
static int node_setattr_apply(struct sbx_node_file *node, const struct sbx_call *call,
			      const char *path, const struct sbx_setattr *change)
{
	struct sbx_files *files = node->files;
	struct sbx_op_result results[SBX_OP_SETATTR_MAX] = { 0 };
	struct sbx_op ops[SBX_OP_SETATTR_MAX];
	size_t n_ops = sbx_op_setattr(change, path, ops);
	int r;

	if (n_ops == 0)
		return 0;
	r = sbx_names_apply(files->names, call,
			    sbx_session_options(files->session)->mutation_timeout_ms, ops, n_ops,
			    results);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n_ops && r == 0; i++)
		r = results[i].error;
	if (results[n_ops - 1].has_attr) {
		const struct sbx_attr *attr = &results[n_ops - 1].attr;

		pthread_mutex_lock(&node->lock);
		if (node->has_attr && attr->ino == node->attr.ino && attr->dev == node->attr.dev &&
		    attr->size == node->attr.size && !(change->set & SBX_SET_SIZE)) {
			/* The same bytes under another ctime. */
			if (node->content &&
			    (attr->mtime_ns == node->attr.mtime_ns || change->set & SBX_SET_MTIME))
				sbx_content_moved(node->content, node->path, attr);
			node->attr = *attr;
		} else {
			/* Changed in place: every open file sees it, as on a local disk. */
			sbx_content_unref(node->content);
			node->content = NULL;
			node->attr = *attr;
			node->has_attr = true;
		}
		pthread_mutex_unlock(&node->lock);
	}
	sbx_op_results_clear(results, n_ops);
	return r;
}

int sbx_files_setattr(struct sbx_files *files, const struct sbx_call *call, const char *path,
		      struct sbx_file *file, const struct sbx_setattr *change, bool *ret_done,
		      struct sbx_attr *ret_attr)
{
	struct sbx_node_file *node = file ? nfile_ref(file->node) : files_find(files, path);
	bool left = false;
	bool local;
	int r = 0;

	*ret_done = false;
	if (!node)
		return 0;
	pthread_mutex_lock(&node->lock);
	/* ftruncate() comes with writes before or after it, and who has just made a file sets its
	 * mode before he writes it (sed -i): they go together. */
	local = nfile_is_unsent_locked(node) || node->detached ||
		(node->fresh && nfile_has_writer_locked(node)) ||
		(file && file->writable && change->set & SBX_SET_SIZE);
	if (local) {
		r = nfile_spool_locked(node, !(change->set & SBX_SET_SIZE));
		if (r == 0)
			r = node_setattr_unsent_locked(node, change);
		if (r == 0 && file)
			file->wrote = true;
		if (r == 0)
			nfile_local_attr_locked(node, ret_attr);
		left = r == 0 && !node->failed && !nfile_has_writer_locked(node);
	}
	pthread_mutex_unlock(&node->lock);
	/* What its last writer has left may be on its way already, without this. */
	if (left)
		(void)publish_after(node);
	/* What has its path by now is another file. */
	if (!local && !path)
		r = -ESTALE;
	if (!local && path) {
		r = node_setattr_apply(node, call, path, change);
		if (r == 0) {
			pthread_mutex_lock(&node->lock);
			*ret_attr = node->attr;
			pthread_mutex_unlock(&node->lock);
		}
	}
	nfile_settle_ref(node);
	nfile_unref(node);
	*ret_done = r == 0;
	return r;
}

/* Copying within the sandbox ------------------------------------------------------------------- */

/* What says that the path of @file, the caller's *ret_path, is still that file. False: it is an
 * older version, or has no path. */
static bool file_expect(struct sbx_file *file, struct sbx_op *ret_op, char **ret_path)
{
	struct sbx_node_file *node = file->node;
	bool is_there;

	pthread_mutex_lock(&node->lock);
	is_there = !file->pinned && !node->detached && node->has_attr;
	if (is_there) {
		*ret_path = g_strdup(node->path);
		*ret_op = (struct sbx_op){ .kind = SBX_DO_EXPECT,
					   .path = *ret_path,
					   .dev = node->attr.dev,
					   .ino = node->attr.ino };
	}
	pthread_mutex_unlock(&node->lock);
	return is_there;
}

ssize_t sbx_file_copy_range(struct sbx_file *in, uint64_t in_offset, struct sbx_file *out,
			    uint64_t out_offset, size_t len, const struct sbx_call *call)
{
	struct sbx_files *files = in->node->files;
	struct sbx_op_result results[3] = { 0 };
	const struct sbx_op_result *done = &results[2];
	g_autofree char *from = NULL;
	g_autofree char *to = NULL;
	struct sbx_op ops[3];
	struct sbx_attr attr;
	int r;

	if (files != out->node->files)
		return -EXDEV;
	if (!out->writable || !in->readable)
		return -EBADF;
	if (in->node == out->node)
		return -EOPNOTSUPP;
	r = publish_wait(in->node, call);
	if (r == 0)
		r = publish_wait(out->node, call);
	if (r == 0)
		r = sbx_file_getattr(in, call, 0, &attr);
	if (r < 0)
		return r;
	if (in_offset >= attr.size)
		return 0;
	len = (size_t)MIN(len, attr.size - in_offset);
	/* The files that were opened, not what has their names by now. */
	if (!file_expect(in, &ops[0], &from) || !file_expect(out, &ops[1], &to))
		return -EOPNOTSUPP;
	ops[1].flags = SBX_APPLY_AND;
	ops[2] = (struct sbx_op){
		.kind = SBX_DO_COPY,
		.flags = SBX_APPLY_AND,
		.from = from,
		.from_offset = in_offset,
		.path = to,
		.offset = out_offset,
		.size = len,
	};
	r = sbx_names_apply_aside(files->names, call,
				  sbx_session_options(files->session)->timeout_ms +
					  sbx_op_work_ms(len),
				  ops, G_N_ELEMENTS(ops), results);
	if (r < 0)
		return r;
	r = done->error;
	if (results[0].error < 0 || results[1].error < 0)
		r = -EOPNOTSUPP;
	if (r == 0 && done->has_attr) {
		pthread_mutex_lock(&out->node->lock);
		out->node->fresh = false;
		sbx_content_unref(out->node->content);
		out->node->content = NULL;
		out->node->attr = done->attr;
		out->node->has_attr = true;
		pthread_mutex_unlock(&out->node->lock);
		if (done->attr.size < out_offset + len)
			r = -EIO;
	}
	sbx_op_results_clear(results, G_N_ELEMENTS(results));
	return r < 0 ? r : (ssize_t)len;
}
