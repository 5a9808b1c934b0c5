#include "client/workspace/content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"
#include "client/localfile.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/blob.h"
#include "client/workspace/content_impl.h"
#include "client/workspace/names.h"
#include "client/workspace/spool.h"
#include "client/workspace/workspace.h"

/* Contents that nobody reads now, kept with what was fetched of them; and the part of the cache's
 * bound that they may take, since the cache can't remove what is open. */
#define IDLE_MAX  16
#define IDLE_PART 4
/* Our idea of the sandbox's clock may be wrong by this much. */
#define CLOCK_SLACK_NS INT64_C(50000000)

bool content_is_settled(const struct sbx_attr *attr, int64_t clock_ns)
{
	/* Where times come in whole seconds, a second has to be over before the next change
	 * shows. */
	int64_t tick_ns = attr->has_ns ? 0 : INT64_C(1000000000);

	return clock_ns != 0 && attr->ctime_ns != 0 &&
	       attr->ctime_ns <= clock_ns - tick_ns - SBX_VERSION_SETTLE_NS;
}

/* A lower bound of the sandbox's clock when attributes were seen that are ttl_ms old at most. */
static int64_t contents_look_clock_ns(struct sbx_contents *contents)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec +
	       sbx_names_clock_least_ns(contents->names) - contents->ttl_ms * 1000000 -
	       CLOCK_SLACK_NS;
}

int sbx_contents_new(struct sbx_session *session, struct sbx_names *names,
		     const struct sbx_workspace_options *options,
		     struct sbx_contents **ret_contents)
{
	struct sbx_contents *contents = calloc(1, sizeof(*contents));
	int r;

	if (!contents)
		return -ENOMEM;
	r = sbx_cache_new(sbx_session_statedir(session), sbx_session_pool(session),
			  sbx_session_tag(session), options->cache_on_disk,
			  options->cache_size_bytes, &contents->cache);
	if (r < 0) {
		free(contents);
		return r;
	}
	contents->session = session;
	contents->names = names;
	contents->ttl_ms = options->ttl_ms;
	contents->idle_limit_bytes = options->cache_size_bytes / IDLE_PART;
	contents->cache_size_bytes = options->cache_size_bytes;
	contents->no_exec = !options->use_exec;
	pthread_mutex_init(&contents->lock, NULL);
	pthread_cond_init(&contents->idle, NULL);
	g_queue_init(&contents->big);
	contents->small = small_files_new(contents);
	*ret_contents = contents;
	return 0;
}

static void content_free(struct sbx_content *content)
{
	content_held_locked(content, 0);
	sbx_cache_part_done(content->owner->cache, &content->part);
	sbx_cache_part_done(content->owner->cache, &content->left);
	sbx_rangeset_done(&content->present);
	sbx_rangeset_done(&content->wanted);
	sbx_blob_unref(content->blob);
	sbx_cancel_unref(content->stream.cancel);
	pthread_cond_destroy(&content->room);
	pthread_cond_destroy(&content->changed);
	pthread_mutex_destroy(&content->lock);
	g_free(content->path);
	free(content);
}

void sbx_contents_free(struct sbx_contents *contents)
{
	if (!contents)
		return;
	pthread_mutex_lock(&contents->lock);
	contents->closing = true;
	for (GList *link = contents->big.head; link; link = link->next) {
		struct sbx_content *content = link->data;

		pthread_mutex_lock(&content->lock);
		content_stream_cancel_locked(content);
		pthread_mutex_unlock(&content->lock);
	}
	while (contents->n_jobs > 0)
		pthread_cond_wait(&contents->idle, &contents->lock);
	pthread_mutex_unlock(&contents->lock);
	while (contents->big.head) {
		struct sbx_content *content = contents->big.head->data;

		g_queue_unlink(&contents->big, &content->link);
		content_free(content);
	}
	small_files_free(contents->small);
	sbx_cache_free(contents->cache);
	pthread_cond_destroy(&contents->idle);
	pthread_mutex_destroy(&contents->lock);
	free(contents);
}

void sbx_contents_refresh(struct sbx_contents *contents)
{
	small_files_refresh(contents->small);
}

/* Life of one ---------------------------------------------------------------------------------- */

static struct sbx_content *content_new(struct sbx_contents *contents, const char *path,
				       const struct sbx_attr *attr)
{
	struct sbx_content *content = calloc(1, sizeof(*content));

	if (!content)
		return NULL;
	content->owner = contents;
	content->users = 1;
	content->path = g_strdup(path);
	content->size = attr->size;
	content->attr = *attr;
	sbx_version_of(attr, &content->version);
	content->part.fd = content->left.fd = -1;
	content->no_get = path[0] == '/' || attr->size >= SBX_GET_LIMIT;
	pthread_mutex_init(&content->lock, NULL);
	(void)sbx_cond_init(&content->changed);
	(void)sbx_cond_init(&content->room);
	sbx_rangeset_init(&content->present);
	sbx_rangeset_init(&content->wanted);
	return content;
}

struct sbx_content *content_new_small(struct sbx_contents *contents, const char *path,
				      const struct sbx_attr *attr, struct sbx_blob *blob,
				      bool settled)
{
	struct sbx_content *content = content_new(contents, path, attr);

	if (!content)
		return NULL;
	content->blob = sbx_blob_ref(blob);
	content->settled = settled;
	content->complete = true;
	return content;
}

struct sbx_content *sbx_content_ref(struct sbx_content *content)
{
	pthread_mutex_lock(&content->owner->lock);
	content->users++;
	pthread_mutex_unlock(&content->owner->lock);
	return content;
}

/* Nobody is at it any more: keep it for a while. Returns those that are to be freed. */
static GSList *contents_retire_locked(struct sbx_contents *contents, struct sbx_content *content)
{
	GSList *gone = NULL;
	GList *previous;

	if (!content->link.data)
		return g_slist_prepend(NULL, content);
	if (content->stale || content->in_memory || contents->closing) {
		g_queue_unlink(&contents->big, &content->link);
		return g_slist_prepend(NULL, content);
	}
	contents->n_idle++;
	contents->idle_bytes += content->size;
	for (GList *link = contents->big.tail; link; link = previous) {
		struct sbx_content *other = link->data;

		if (contents->n_idle <= IDLE_MAX &&
		    contents->idle_bytes <= contents->idle_limit_bytes)
			break;
		previous = link->prev;
		if (other->users > 0 || other->jobs > 0)
			continue;
		g_queue_unlink(&contents->big, link);
		contents->n_idle--;
		contents->idle_bytes -= other->size;
		gone = g_slist_prepend(gone, other);
	}
	return gone;
}

static void contents_free_list(GSList *gone)
{
	for (GSList *link = gone; link; link = link->next)
		content_free(link->data);
	g_slist_free(gone);
}

static void content_leave(struct sbx_content *content, int users, int jobs)
{
	struct sbx_contents *contents = content->owner;
	GSList *gone = NULL;
	bool closing;

	pthread_mutex_lock(&contents->lock);
	content->users -= users;
	content->jobs -= jobs;
	contents->n_jobs -= (unsigned int)jobs;
	if (content->users == 0 && content->jobs > 0) {
		/* Nobody reads what a stream brings; what it has brought is kept. */
		pthread_mutex_lock(&content->lock);
		if (content->stream.pos < content->stream.end)
			content_stream_cancel_locked(content);
		pthread_mutex_unlock(&content->lock);
	} else if (content->users == 0) {
		gone = contents_retire_locked(contents, content);
	}
	closing = contents->closing;
	if (closing)
		contents_free_list(gone);
	if (contents->n_jobs == 0)
		pthread_cond_broadcast(&contents->idle);
	/* Whoever waits for the last job frees the owner as soon as the lock is free. */
	pthread_mutex_unlock(&contents->lock);
	if (!closing)
		contents_free_list(gone);
}

void sbx_content_unref(struct sbx_content *content)
{
	if (content)
		content_leave(content, 1, 0);
}

struct content_job {
	struct sbx_content *content;
	content_job_fn fn;
	uint64_t start;
	uint64_t end;
};

static int content_job_run(void *arg)
{
	struct content_job *job = arg;

	job->fn(job->content, job->start, job->end);
	content_leave(job->content, 0, 1);
	return 0;
}

int content_job_start(struct sbx_content *content, content_job_fn fn, uint64_t start, uint64_t end)
{
	struct sbx_contents *contents = content->owner;
	struct content_job *job;
	int r = 0;

	pthread_mutex_lock(&contents->lock);
	if (contents->closing) {
		r = -ECANCELED;
	} else {
		content->jobs++;
		contents->n_jobs++;
	}
	pthread_mutex_unlock(&contents->lock);
	if (r < 0)
		return r;
	job = g_new(struct content_job, 1);
	*job = (struct content_job){ content, fn, start, end };
	r = sbx_task_start(sbx_session_pool(contents->session), content_job_run, job, g_free, NULL);
	if (r < 0) {
		g_free(job);
		content_leave(content, 0, 1);
	}
	return r;
}

/* Opening -------------------------------------------------------------------------------------- */

static struct sbx_content *contents_find_locked(struct sbx_contents *contents, const char *path,
						const struct sbx_version *version)
{
	for (GList *link = contents->big.head; link; link = link->next) {
		struct sbx_content *content = link->data;
		bool found;

		pthread_mutex_lock(&content->lock);
		found = !content->stale && !content->any_ctime &&
			sbx_version_equal(&content->version, version) &&
			strcmp(content->path, path) == 0;
		pthread_mutex_unlock(&content->lock);
		if (found)
			return content;
	}
	return NULL;
}

static struct sbx_content *contents_open_big(struct sbx_contents *contents, const char *path,
					     const struct sbx_attr *attr)
{
	struct sbx_version version;
	struct sbx_content *content;
	int fd;

	sbx_version_of(attr, &version);
	pthread_mutex_lock(&contents->lock);
	content = contents_find_locked(contents, path, &version);
	if (content) {
		if (content->users++ == 0 && content->jobs == 0) {
			contents->n_idle--;
			contents->idle_bytes -= content->size;
		}
		g_queue_unlink(&contents->big, &content->link);
		g_queue_push_head_link(&contents->big, &content->link);
	}
	pthread_mutex_unlock(&contents->lock);
	if (content)
		return content;
	content = content_new(contents, path, attr);
	if (!content)
		return NULL;
	if (sbx_cache_open(contents->cache, &version, &fd) == 0) {
		content->part.fd = fd;
		content->complete = true;
		content->settled = true;
		sbx_rangeset_add(&content->present, 0, attr->size);
	} else {
		content->settled = content_is_settled(attr, contents_look_clock_ns(contents));
	}
	pthread_mutex_lock(&contents->lock);
	content->link.data = content;
	g_queue_push_head_link(&contents->big, &content->link);
	pthread_mutex_unlock(&contents->lock);
	return content;
}

int sbx_contents_open(struct sbx_contents *contents, const struct sbx_call *call, const char *path,
		      struct sbx_attr *attr, struct sbx_content **ret_content)
{
	struct sbx_content *content = NULL;

	if (attr->size > 0 && attr->size <= SBX_SMALL_BYTES)
		return small_files_open(contents->small, call, path, attr, ret_content);
	if (attr->size == 0) {
		struct sbx_blob *empty = sbx_blob_new(0);

		if (empty)
			content = content_new_small(
				contents, path, attr, empty,
				content_is_settled(attr, contents_look_clock_ns(contents)));
		sbx_blob_unref(empty);
	} else {
		content = contents_open_big(contents, path, attr);
	}
	if (!content)
		return -ENOMEM;
	*ret_content = content;
	return 0;
}

/* Copy the bytes of @view to @content's file. A whole view has no bytes of a base. */
static int content_fill(struct sbx_content *content, const struct sbx_spool_view *view)
{
	g_autofree char *buf = g_try_malloc(SBX_WINDOW_MAX);
	struct sbx_extent extent;
	uint64_t offset = 0;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && sbx_layout_extent(&view->layout, offset, SBX_WINDOW_MAX, &extent)) {
		if (extent.kind == SBX_EXTENT_BASE)
			return -EINVAL;
		if (extent.kind == SBX_EXTENT_LOG) {
			r = sbx_spool_view_read(view, buf, extent.len_bytes, extent.log_pos);
			if (r == 0)
				r = content_store(content, content->part.fd, buf, extent.len_bytes,
						  offset);
		}
		offset += extent.len_bytes;
	}
	return r;
}

static struct sbx_blob *view_blob(const struct sbx_spool_view *view)
{
	struct sbx_blob *blob = sbx_blob_new((size_t)view->layout.size_bytes);
	struct sbx_extent extent;
	uint64_t offset = 0;
	int r = blob ? 0 : -ENOMEM;

	while (r == 0 && sbx_layout_extent(&view->layout, offset, UINT64_MAX, &extent)) {
		if (extent.kind == SBX_EXTENT_LOG)
			r = sbx_spool_view_read(view, blob->data + offset, extent.len_bytes,
						extent.log_pos);
		else if (extent.kind == SBX_EXTENT_ZEROS)
			memset(blob->data + offset, 0, extent.len_bytes);
		else
			r = -EINVAL;
		offset += extent.len_bytes;
	}
	if (r < 0) {
		sbx_blob_unref(blob);
		return NULL;
	}
	return blob;
}

struct sbx_content *sbx_contents_adopt(struct sbx_contents *contents, const char *path,
				       const struct sbx_attr *attr,
				       const struct sbx_spool_view *view)
{
	struct sbx_content *content = NULL;
	struct sbx_version version;

	if (attr->size != view->layout.size_bytes || attr->ctime_ns == 0)
		return NULL;
	sbx_version_of(attr, &version);
	if (attr->size <= SBX_SMALL_BYTES) {
		struct sbx_blob *blob = view_blob(view);

		if (!blob)
			return NULL;
		if (attr->size > 0)
			sbx_cache_put(contents->cache, &version, blob);
		content = content_new_small(contents, path, attr, blob, true);
		sbx_blob_unref(blob);
		return content;
	}
	if (!content_fits(contents, attr->size))
		return NULL;
	content = content_new(contents, path, attr);
	if (!content)
		return NULL;
	content->settled = true;
	pthread_mutex_lock(&content->lock);
	if (content_part_locked(content) == 0 && !content->in_memory &&
	    ftruncate(content->part.fd, (off_t)(SBX_CACHE_DATA + attr->size)) == 0)
		content->complete = true;
	pthread_mutex_unlock(&content->lock);
	if (!content->complete || content_fill(content, view) < 0) {
		content->complete = false;
		sbx_content_unref(content);
		return NULL;
	}
	sbx_rangeset_add(&content->present, 0, attr->size);
	sbx_cache_part_commit(contents->cache, &content->part, &version);
	pthread_mutex_lock(&contents->lock);
	content->link.data = content;
	g_queue_push_head_link(&contents->big, &content->link);
	pthread_mutex_unlock(&contents->lock);
	return content;
}

/* State ---------------------------------------------------------------------------------------- */

uint64_t sbx_content_version(struct sbx_content *content)
{
	uint64_t version = 0;

	pthread_mutex_lock(&content->lock);
	if (content->settled && !content->any_ctime)
		version = sbx_version_hash(&content->version);
	pthread_mutex_unlock(&content->lock);
	return version;
}

bool sbx_content_is_complete(struct sbx_content *content)
{
	bool complete;

	pthread_mutex_lock(&content->lock);
	complete = content->complete;
	pthread_mutex_unlock(&content->lock);
	return complete;
}

void sbx_content_attr(struct sbx_content *content, struct sbx_attr *ret_attr)
{
	pthread_mutex_lock(&content->lock);
	*ret_attr = content->attr;
	pthread_mutex_unlock(&content->lock);
}

static bool attr_same_bytes(const struct sbx_attr *a, const struct sbx_attr *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

void sbx_content_moved(struct sbx_content *content, const char *path, const struct sbx_attr *attr)
{
	pthread_mutex_lock(&content->lock);
	if (path) {
		g_free(content->path);
		content->path = g_strdup(path);
	} else {
		content->stale = true;
		content_signal_locked(content);
	}
	if (!attr) {
		content->any_ctime = true;
	} else if (attr->dev == content->attr.dev && attr->ino == content->attr.ino &&
		   attr->size == content->attr.size) {
		content->attr = *attr;
		content->any_ctime = false;
		sbx_version_of(attr, &content->version);
	}
	pthread_mutex_unlock(&content->lock);
}

bool content_matches_locked(struct sbx_content *content, const struct sbx_attr *attr)
{
	struct sbx_version seen;

	sbx_version_of(attr, &seen);
	if (sbx_version_equal(&seen, &content->version))
		return true;
	if (!content->any_ctime || !attr_same_bytes(attr, &content->attr))
		return false;
	content->attr = *attr;
	content->version = seen;
	content->any_ctime = false;
	return true;
}

void content_signal_locked(struct sbx_content *content)
{
	if (content->n_waiting > 0)
		pthread_cond_broadcast(&content->changed);
}
