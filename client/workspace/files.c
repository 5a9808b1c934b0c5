#include "client/workspace/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/apply.h"
#include "client/errlog.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/early.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/mark.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/path.h"
#include "client/workspace/send.h"

/* How often content is asked for anew because this mount changed the file meanwhile. */
#define CONTENT_TRIES 20

/* The table ------------------------------------------------------------------------------------ */

int sbx_files_new(struct sbx_session *session, struct sbx_names *names,
		  const struct sbx_workspace_options *options, struct sbx_files **ret_files)
{
	struct sbx_files *files = calloc(1, sizeof(*files));
	int r;

	if (!files)
		return -ENOMEM;
	r = sbx_contents_new(session, names, options, &files->contents);
	if (r < 0) {
		free(files);
		return r;
	}
	files->session = session;
	files->names = names;
	files->pool = sbx_session_pool(session);
	files->options = *options;
	files->spool_dirfd = sbx_session_spool_dirfd(session);
	files->mark = sbx_mark_new(files->spool_dirfd);
	pthread_mutex_init(&files->lock, NULL);
	pthread_cond_init(&files->idle, NULL);
	files->nodes = g_hash_table_new(g_str_hash, g_str_equal);
	files->retry = retry_new(files);
	if (!options->read_only)
		retry_begin(files);
	*ret_files = files;
	return 0;
}

static void node_free(struct sbx_node_file *node)
{
	/* What is unsent stays in its file for the next mount. */
	if (node->detached)
		sbx_spool_remove(node->spool);
	else
		sbx_spool_close(node->spool);
	sbx_content_unref(node->content);
	early_free(node->early);
	pthread_cond_destroy(&node->changed);
	pthread_mutex_destroy(&node->lock);
	g_free(node->held);
	g_free(node->path);
	free(node);
}

void sbx_files_free(struct sbx_files *files)
{
	GHashTableIter iter;
	gpointer node;

	if (!files)
		return;
	retry_stop(files->retry);
	pthread_mutex_lock(&files->lock);
	files->closing = true;
	while (files->n_tasks > 0)
		pthread_cond_wait(&files->idle, &files->lock);
	pthread_mutex_unlock(&files->lock);
	g_hash_table_iter_init(&iter, files->nodes);
	while (g_hash_table_iter_next(&iter, NULL, &node))
		node_free(node);
	g_hash_table_unref(files->nodes);
	sbx_contents_free(files->contents);
	retry_free(files->retry);
	sbx_mark_free(files->mark);
	pthread_cond_destroy(&files->idle);
	pthread_mutex_destroy(&files->lock);
	free(files);
}

int files_task_begin(struct sbx_files *files)
{
	int r = 0;

	pthread_mutex_lock(&files->lock);
	if (files->closing)
		r = -ECANCELED;
	else
		files->n_tasks++;
	pthread_mutex_unlock(&files->lock);
	return r;
}

void files_task_end(struct sbx_files *files)
{
	pthread_mutex_lock(&files->lock);
	if (--files->n_tasks == 0)
		pthread_cond_broadcast(&files->idle);
	pthread_mutex_unlock(&files->lock);
}

struct sbx_node_file *nfile_ref(struct sbx_node_file *node)
{
	pthread_mutex_lock(&node->files->lock);
	node->refs++;
	pthread_mutex_unlock(&node->files->lock);
	return node;
}

struct held_job {
	struct sbx_files *files;
	char *path;
};

static int held_remove_run(void *arg)
{
	struct held_job *job = arg;
	struct sbx_op op = { .kind = SBX_DO_UNLINK, .path = job->path };
	struct sbx_op_result result = { 0 };
	struct sbx_call call = { .background = true };
	int r;

	/* What can't be removed now is swept as any left-over. */
	r = sbx_names_apply(job->files->names, &call,
			    sbx_session_options(job->files->session)->mutation_timeout_ms, &op, 1,
			    &result);
	if (r == 0)
		sbx_op_results_clear(&result, 1);
	else
		sbx_mark_leave(job->files->mark);
	files_task_end(job->files);
	g_free(job->path);
	return r;
}

/* The last reader of what was set aside has left. */
static void held_remove(struct sbx_files *files, const char *path)
{
	struct held_job *job;

	if (files_task_begin(files) < 0) {
		sbx_mark_leave(files->mark);
		return;
	}
	job = g_new(struct held_job, 1);
	*job = (struct held_job){ files, g_strdup(path) };
	if (sbx_task_start(files->pool, held_remove_run, job, g_free, NULL) < 0) {
		files_task_end(files);
		g_free(job->path);
		g_free(job);
	}
}

void nfile_unref(struct sbx_node_file *node)
{
	struct sbx_files *files = node->files;
	bool last;

	pthread_mutex_lock(&files->lock);
	last = --node->refs == 0;
	if (last && node->in_table)
		g_hash_table_remove(files->nodes, node->path);
	pthread_mutex_unlock(&files->lock);
	if (!last)
		return;
	if (node->held)
		held_remove(files, node->held);
	node_free(node);
}

struct sbx_node_file *files_find(struct sbx_files *files, const char *path)
{
	struct sbx_node_file *node;

	pthread_mutex_lock(&files->lock);
	node = g_hash_table_lookup(files->nodes, path);
	if (node)
		node->refs++;
	pthread_mutex_unlock(&files->lock);
	return node;
}

struct sbx_node_file *files_obtain(struct sbx_files *files, const char *path)
{
	struct sbx_node_file *node;

	pthread_mutex_lock(&files->lock);
	node = g_hash_table_lookup(files->nodes, path);
	if (!node)
		node = calloc(1, sizeof(*node));
	if (node && !node->files) {
		node->files = files;
		node->path = g_strdup(path);
		node->in_table = true;
		pthread_mutex_init(&node->lock, NULL);
		(void)sbx_cond_init(&node->changed);
		g_queue_init(&node->handles);
		g_hash_table_insert(files->nodes, node->path, node);
	}
	if (node)
		node->refs++;
	pthread_mutex_unlock(&files->lock);
	return node;
}

/* Unsent bytes --------------------------------------------------------------------------------- */

int64_t files_sandbox_now_ns(struct sbx_files *files)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec +
	       sbx_names_clock_offset_ns(files->names);
}

bool nfile_is_unsent_locked(const struct sbx_node_file *node)
{
	return node->spool && node->write_seq > node->sent_seq && !node->detached;
}

void nfile_local_attr_locked(struct sbx_node_file *node, struct sbx_attr *ret_attr)
{
	struct sbx_attr attr = { .mode = S_IFREG | 0644, .nlink = 1, .has_ns = true };
	const struct sbx_spool_meta *meta;

	if (node->has_attr)
		attr = node->attr;
	if (node->spool && (node->write_seq > node->sent_seq || !node->has_attr)) {
		meta = sbx_spool_meta(node->spool);
		attr.size = sbx_spool_layout(node->spool)->size_bytes;
		attr.blocks = (attr.size + 511) / 512;
		if (meta->flags & (SBX_SPOOL_NEW | SBX_SPOOL_MODE))
			attr.mode = S_IFREG | (meta->mode & 07777);
		attr.ctime_ns = node->written_ns;
		if (meta->flags & SBX_SPOOL_MTIME && meta->mtime_ns != SBX_TIME_NOW)
			attr.mtime_ns = meta->mtime_ns;
		else if (meta->flags & SBX_SPOOL_MTIME || meta->kind == SBX_SPOOL_WHOLE ||
			 !sbx_layout_is_base(sbx_spool_layout(node->spool)))
			attr.mtime_ns = node->written_ns;
		attr.has_ns = true;
	}
	if (node->detached)
		attr.nlink = 0;
	*ret_attr = attr;
}

void nfile_show_locked(struct sbx_node_file *node)
{
	struct sbx_attr attr;

	if (node->detached)
		return;
	if (!nfile_is_unsent_locked(node)) {
		sbx_names_clear_local(node->files->names, node->path);
		return;
	}
	nfile_local_attr_locked(node, &attr);
	sbx_names_set_local(node->files->names, node->path, &attr);
}

void nfile_changed_locked(struct sbx_node_file *node, bool is_write)
{
	node->write_seq++;
	node->left = false;
	node->written |= is_write;
	node->written_ns = files_sandbox_now_ns(node->files);
	nfile_show_locked(node);
}

void nfile_settle_ref(struct sbx_node_file *node)
{
	struct sbx_files *files = node->files;
	bool drop = false;
	bool keep;

	pthread_mutex_lock(&files->lock);
	pthread_mutex_lock(&node->lock);
	keep = nfile_is_unsent_locked(node);
	if (keep && !node->keeps_ref) {
		node->refs++;
		files->n_unsent++;
	}
	drop = !keep && node->keeps_ref;
	files->n_unsent -= drop;
	node->keeps_ref = keep;
	pthread_mutex_unlock(&node->lock);
	pthread_mutex_unlock(&files->lock);
	if (drop)
		nfile_unref(node);
}

static void spool_meta_for(const struct sbx_node_file *node, bool attr_only,
			   struct sbx_spool_meta *ret_meta)
{
	*ret_meta = (struct sbx_spool_meta){
		.kind = SBX_SPOOL_PATCH,
		.begun_ns = sbx_spool_now_ns(),
	};
	if (node->has_attr) {
		sbx_version_of(&node->attr, &ret_meta->base);
		ret_meta->mode = node->attr.mode & 0777;
	}
	if (node->detached)
		ret_meta->flags |= SBX_SPOOL_ORPHAN;
	/* A file made by an exclusive creation is filled as a whole. */
	if ((node->fresh && !attr_only) || !node->has_attr) {
		ret_meta->kind = SBX_SPOOL_WHOLE;
		ret_meta->flags |= SBX_SPOOL_ADDS;
	}
}

int nfile_spool_locked(struct sbx_node_file *node, bool attr_only)
{
	struct sbx_files *files = node->files;
	struct sbx_spool_meta meta;
	int r;

	if (node->spool && (attr_only || !node->fresh))
		return 0;
	/* Mode and times were set before the first byte. */
	if (node->spool)
		return nfile_restart_locked(node, SBX_SPOOL_ADDS, 0);
	spool_meta_for(node, attr_only, &meta);
	r = sbx_spool_create(files->spool_dirfd, sbx_session_tag(files->session), node->path, &meta,
			     &node->spool);
	if (r == 0 && !attr_only)
		node->fresh = false;
	return r;
}

int nfile_restart_locked(struct sbx_node_file *node, unsigned int flags, mode_t mode)
{
	struct sbx_files *files = node->files;
	struct sbx_spool_meta meta = {
		.kind = SBX_SPOOL_WHOLE,
		.flags = flags,
		.mode = mode & 07777,
		.begun_ns = sbx_spool_now_ns(),
	};
	int r;

	if (node->detached)
		meta.flags |= SBX_SPOOL_ORPHAN;
	if (node->has_attr) {
		sbx_version_of(&node->attr, &meta.base);
		meta.mode = node->attr.mode & 0777;
	}
	early_stop_locked(node);
	if (node->spool) {
		const struct sbx_spool_meta *old = sbx_spool_meta(node->spool);

		/* A new file stays new, and a mode that is to be set is kept. */
		meta.flags |= old->flags & (SBX_SPOOL_NEW | SBX_SPOOL_MODE);
		meta.mode = old->mode;
		r = sbx_spool_restart(node->spool, &meta);
	} else {
		r = sbx_spool_create(files->spool_dirfd, sbx_session_tag(files->session),
				     node->path, &meta, &node->spool);
	}
	if (r < 0)
		return r;
	node->fresh = false;
	nfile_changed_locked(node, false);
	return 0;
}

/* Versions ------------------------------------------------------------------------------------- */

static void node_pin_locked(struct sbx_node_file *node)
{
	if (!node->content)
		return;
	for (GList *link = node->handles.head; link; link = link->next) {
		struct sbx_file *file = link->data;

		if (file->readable && !file->pinned)
			file->pinned = sbx_content_ref(node->content);
	}
	sbx_content_unref(node->content);
	node->content = NULL;
}

void nfile_forget_attr_locked(struct sbx_node_file *node)
{
	node_pin_locked(node);
	node->has_attr = false;
}

void nfile_set_attr_locked(struct sbx_node_file *node, const struct sbx_attr *attr)
{
	struct sbx_version old;
	struct sbx_version new;

	sbx_version_of(&node->attr, &old);
	sbx_version_of(attr, &new);
	if (node->has_attr && !sbx_version_equal(&old, &new)) {
		if (old.dev != new.dev || old.ino != new.ino) {
			node_pin_locked(node);
		} else {
			/* Changed in place: every open file sees it, as on a local disk. */
			sbx_content_unref(node->content);
			node->content = NULL;
		}
		/* Somebody has written to it, or it is another. */
		if (attr->size > 0 || old.dev != new.dev || old.ino != new.ino)
			node->fresh = false;
	}
	node->attr = *attr;
	node->has_attr = true;
}

/* One try. -EAGAIN: the node has come to mean another version, or file, meanwhile. */
static int node_content_try_locked(struct sbx_node_file *node, const struct sbx_call *call,
				   struct sbx_content **ret_content)
{
	struct sbx_content *content = NULL;
	g_autofree char *path = NULL;
	struct sbx_attr attr = node->attr;
	bool detached = node->detached;
	struct sbx_version asked;
	struct sbx_version now;
	int r;

	if (node->content) {
		*ret_content = sbx_content_ref(node->content);
		return 0;
	}
	if (!node->has_attr)
		return -ESTALE;
	path = g_strdup(detached ? node->held : node->path);
	if (!path)
		return -ESTALE;
	sbx_version_of(&attr, &asked);
	pthread_mutex_unlock(&node->lock);
	r = sbx_contents_open(node->files->contents, call, path, &attr, &content);
	pthread_mutex_lock(&node->lock);
	sbx_version_of(&node->attr, &now);
	if (!sbx_version_equal(&asked, &now) || node->detached != detached) {
		if (r == 0)
			sbx_content_unref(content);
		return r == -EINTR ? r : -EAGAIN;
	}
	if (r < 0)
		return r;
	if (!node->content) {
		node->content = sbx_content_ref(content);
		node->attr = attr;
	}
	*ret_content = content;
	return 0;
}

bool nfile_follow_locked(struct sbx_node_file *node)
{
	struct sbx_version old;
	struct sbx_version new;
	struct sbx_attr attr;

	if (node->detached || !node->has_attr ||
	    sbx_names_remote_attr(node->files->names, node->path, &attr) < 0 || !S_ISREG(attr.mode))
		return false;
	sbx_version_of(&node->attr, &old);
	sbx_version_of(&attr, &new);
	if (old.dev != new.dev || old.ino != new.ino || old.ctime_ns >= new.ctime_ns)
		return false;
	nfile_set_attr_locked(node, &attr);
	return true;
}

int nfile_content_locked(struct sbx_node_file *node, const struct sbx_call *call,
			 struct sbx_content **ret_content)
{
	int r = -EAGAIN;

	for (int tries = 0; tries < CONTENT_TRIES && r == -EAGAIN; tries++)
		r = node_content_try_locked(node, call, ret_content);
	return r == -EAGAIN ? -EIO : r;
}

/* What name operations tell and ask ------------------------------------------------------------ */

bool sbx_files_is_open(struct sbx_files *files, const char *path)
{
	bool is_open;

	pthread_mutex_lock(&files->lock);
	is_open = g_hash_table_contains(files->nodes, path);
	pthread_mutex_unlock(&files->lock);
	return is_open;
}

bool sbx_files_any_writer(struct sbx_files *files)
{
	bool found = false;
	GHashTableIter iter;
	gpointer value;

	pthread_mutex_lock(&files->lock);
	g_hash_table_iter_init(&iter, files->nodes);
	while (!found && g_hash_table_iter_next(&iter, NULL, &value)) {
		struct sbx_node_file *node = value;

		pthread_mutex_lock(&node->lock);
		for (GList *link = node->handles.head; link && !found; link = link->next)
			found = ((const struct sbx_file *)link->data)->writable;
		pthread_mutex_unlock(&node->lock);
	}
	pthread_mutex_unlock(&files->lock);
	return found;
}

static bool files_want_held(struct sbx_files *files, const char *path)
{
	struct sbx_node_file *node = files_find(files, path);
	bool wants = false;

	if (!node)
		return false;
	pthread_mutex_lock(&node->lock);
	for (GList *link = node->handles.head; link && !wants; link = link->next) {
		const struct sbx_file *file = link->data;
		struct sbx_content *content = file->pinned ? file->pinned : node->content;

		if (file->readable && node->has_attr)
			wants = !content || !sbx_content_is_complete(content);
	}
	pthread_mutex_unlock(&node->lock);
	nfile_unref(node);
	return wants;
}

char *sbx_files_held_path(struct sbx_files *files, const char *path)
{
	return files_want_held(files, path) ? sbx_mark_path(files->mark, SBX_HELD_DIR) : NULL;
}

GPtrArray *files_collect(struct sbx_files *files, const char *path)
{
	GPtrArray *found = g_ptr_array_new();
	struct sbx_node_file *node;
	GHashTableIter iter;
	gpointer value;

	pthread_mutex_lock(&files->lock);
	g_hash_table_iter_init(&iter, files->nodes);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		node = value;
		if (path && !sbx_path_is_within(node->path, path))
			continue;
		node->refs++;
		g_ptr_array_add(found, node);
	}
	pthread_mutex_unlock(&files->lock);
	return found;
}

/* Send what is unsent of @nodes, and let go of them. @told (may be NULL): what goes on all the same
 * when a file can't be sent that could not be sent before. */
static int nodes_publish(struct sbx_files *files, const struct sbx_call *call, GPtrArray *nodes,
			 const char *told)
{
	g_autofree bool *failed = g_new0(bool, nodes->len + 1);
	int result = 0;

	/* All begin before one is waited for: they share requests. */
	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];

		pthread_mutex_lock(&node->lock);
		failed[i] = node->failed;
		pthread_mutex_unlock(&node->lock);
		(void)publish_start(node);
	}
	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];
		int r = publish_wait(node, call);

		/* The first failure was told by the attempt itself. */
		if (r < 0 && r != -EINTR && failed[i]) {
			g_autofree char *path = NULL;

			pthread_mutex_lock(&node->lock);
			path = g_strdup(node->path);
			pthread_mutex_unlock(&node->lock);
			sbx_errlog_note(sbx_session_errors(files->session), told ? told : "publish",
					path, r,
					told ? "goes on without the unsent bytes of this file"
					     : "unsent bytes of this file are waited for");
			if (told)
				r = 0;
		}
		if (result == 0)
			result = r;
		nfile_unref(node);
	}
	g_ptr_array_unref(nodes);
	return result;
}

int sbx_files_publish(struct sbx_files *files, const struct sbx_call *call, const char *path)
{
	/* All of it: what another mount has left, too. */
	if (!path)
		sbx_files_used(files);
	return nodes_publish(files, call, files_collect(files, path), NULL);
}

int sbx_files_publish_most(struct sbx_files *files, const struct sbx_call *call,
			   const char *operation)
{
	sbx_files_used(files);
	return nodes_publish(files, call, files_collect(files, NULL), operation);
}

/* Take the node out of the table: its path means another file, or none, from now on. */
static void node_detach(struct sbx_node_file *node, const char *held)
{
	struct sbx_files *files = node->files;
	struct sbx_spool_meta meta;

	pthread_mutex_lock(&files->lock);
	pthread_mutex_lock(&node->lock);
	if (node->in_table)
		g_hash_table_remove(files->nodes, node->path);
	node->in_table = false;
	sbx_names_clear_local(files->names, node->path);
	node->detached = true;
	early_stop_locked(node);
	if (node->failed && node->spool && sbx_spool_meta(node->spool)->attempt_id[0])
		sbx_send_give_up(files->names, sbx_spool_meta(node->spool)->attempt_id);
	node->failed = false;
	node->held = g_strdup(held);
	if (node->content)
		sbx_content_moved(node->content, held, NULL);
	for (GList *link = node->handles.head; link; link = link->next) {
		struct sbx_file *file = link->data;

		if (file->pinned)
			sbx_content_moved(file->pinned, NULL, NULL);
	}
	if (node->spool) {
		meta = *sbx_spool_meta(node->spool);
		meta.flags |= SBX_SPOOL_ORPHAN;
		(void)sbx_spool_set_meta(node->spool, &meta);
	}
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	pthread_mutex_unlock(&files->lock);
	nfile_settle_ref(node);
}

void sbx_files_unlinked(struct sbx_files *files, const char *path, const char *held)
{
	struct sbx_node_file *node = files_find(files, path);

	if (node) {
		node_detach(node, held);
		nfile_unref(node);
	} else if (held) {
		held_remove(files, held);
	}
}

void sbx_files_renamed(struct sbx_files *files, const char *from, const char *to)
{
	GPtrArray *nodes = files_collect(files, from);

	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];
		struct sbx_node_file *other;
		g_autofree char *path = NULL;
		struct sbx_attr attr;
		bool has_attr;

		pthread_mutex_lock(&files->lock);
		pthread_mutex_lock(&node->lock);
		path = g_strconcat(to, node->path + strlen(from), NULL);
		if (node->in_table) {
			g_hash_table_remove(files->nodes, node->path);
			g_free(node->path);
			node->path = g_steal_pointer(&path);
			other = g_hash_table_lookup(files->nodes, node->path);
			if (other)
				other->in_table = false;
			g_hash_table_replace(files->nodes, node->path, node);
			has_attr = sbx_names_remote_attr(files->names, node->path, &attr) == 0 &&
				   node->has_attr && attr.dev == node->attr.dev &&
				   attr.ino == node->attr.ino && attr.size == node->attr.size &&
				   attr.mtime_ns == node->attr.mtime_ns;
			if (node->content)
				sbx_content_moved(node->content, node->path,
						  has_attr ? &attr : NULL);
			if (has_attr)
				node->attr = attr;
			if (node->spool)
				(void)sbx_spool_set_path(node->spool, node->path);
			nfile_show_locked(node);
		}
		pthread_mutex_unlock(&node->lock);
		pthread_mutex_unlock(&files->lock);
		nfile_unref(node);
	}
	g_ptr_array_unref(nodes);
}

void sbx_files_pending(struct sbx_files *files, size_t *ret_files, uint64_t *ret_bytes)
{
	GPtrArray *nodes = files_collect(files, NULL);
	size_t n_files = 0;
	uint64_t n_bytes = 0;

	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];

		pthread_mutex_lock(&node->lock);
		if (nfile_is_unsent_locked(node)) {
			n_files++;
			n_bytes += sbx_spool_layout(node->spool)->log_bytes;
		}
		pthread_mutex_unlock(&node->lock);
		nfile_unref(node);
	}
	g_ptr_array_unref(nodes);
	*ret_files = n_files;
	*ret_bytes = n_bytes;
}

void sbx_files_refresh(struct sbx_files *files)
{
	sbx_contents_refresh(files->contents);
}
