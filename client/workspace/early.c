#include "client/workspace/early.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/apply.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/mark.h"
#include "client/workspace/names.h"
#include "client/workspace/send.h"
#include "client/workspace/upload.h"

/* Handed to the wire at a time, unless the end is near. */
#define EARLY_CHUNK ((uint64_t)256 << 10)
/* A server gives up a request that takes 300 s to come in. */
#define EARLY_MAX_MS 120000

struct early {
	char *stage;
	uint64_t pos; /* what lies before has left */
	bool stop;
	const struct sbx_spool_view *view; /* of the publish: the upload ends with it */
	bool waiting; /* for bytes to send */
	bool running;
	int result;
	int64_t started_ms;
};

void early_free(struct early *early)
{
	if (!early)
		return;
	g_free(early->stage);
	g_free(early);
}

/* At most @len bytes at @offset, as they are now. */
static ssize_t early_copy_locked(struct sbx_node_file *node, void *buf, size_t len, uint64_t offset)
{
	struct early *early = node->early;
	struct sbx_upload upload;
	struct sbx_extent extent;
	ssize_t n;

	if (early->view) {
		sbx_upload_init(&upload, early->view);
		sbx_upload_add(&upload, offset, offset + len);
		n = sbx_upload_read(&upload, buf, len, 0);
		sbx_upload_done(&upload);
		return n;
	}
	if (!sbx_layout_extent(sbx_spool_layout(node->spool), offset, len, &extent) ||
	    extent.kind != SBX_EXTENT_LOG)
		return -ECANCELED;
	n = sbx_spool_read(node->spool, buf, extent.len_bytes, extent.log_pos);
	return n < 0 ? n : (ssize_t)extent.len_bytes;
}

/* How many bytes at @offset can be sent; 0: none yet. */
static uint64_t early_ready_locked(struct sbx_node_file *node, uint64_t offset, size_t len)
{
	const struct early *early = node->early;
	uint64_t size;

	if (early->view)
		return MIN(len, early->view->layout.size_bytes - offset);
	size = sbx_spool_layout(node->spool)->size_bytes;
	return size >= offset + EARLY_CHUNK ? MIN(len, size - offset) : 0;
}

static bool early_is_over_locked(const struct sbx_node_file *node)
{
	const struct early *early = node->early;

	return early->stop || (!early->view && (!node->spool || node->detached));
}

static ssize_t early_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	struct sbx_node_file *node = arg;
	struct early *early = node->early;
	int64_t until_ms = sbx_clock_ms() + EARLY_PAUSE_MS;
	const struct timespec until = { until_ms / 1000, until_ms % 1000 * 1000000 };
	uint64_t ready = 0;
	ssize_t n = -ECANCELED;

	pthread_mutex_lock(&node->lock);
	while (!early_is_over_locked(node)) {
		if (early->view && (uint64_t)offset >= early->view->layout.size_bytes) {
			n = 0;
			break;
		}
		ready = early_ready_locked(node, (uint64_t)offset, len);
		if (ready > 0) {
			n = early_copy_locked(node, buf, (size_t)ready, (uint64_t)offset);
			break;
		}
		if (sbx_clock_ms() >= until_ms || sbx_clock_ms() - early->started_ms > EARLY_MAX_MS)
			break;
		early->waiting = true;
		pthread_cond_timedwait(&node->changed, &node->lock, &until);
		early->waiting = false;
	}
	if (n > 0)
		early->pos = MAX(early->pos, (uint64_t)(offset + n));
	else if (n < 0)
		early->stop = true;
	pthread_mutex_unlock(&node->lock);
	return n;
}

static int early_run(void *arg)
{
	struct sbx_node_file *node = arg;
	struct sbx_files *files = node->files;
	struct early *early = node->early;
	const struct sbx_source body = { -1, early_read_at, node };
	struct sbx_call call = {
		.stall_timeout_ms = sbx_session_options(files->session)->timeout_ms,
		.moved = nfile_moved,
		.moved_arg = node,
	};
	const struct sbx_probe_reply *probe;
	int r;

	r = sbx_names_probe(files->names, &call, &probe);
	if (r == 0)
		r = sbx_session_put(files->session, &call, early->stage, &body);
	pthread_mutex_lock(&node->lock);
	early->running = false;
	early->result = r < 0 ? r : early->stop ? -ECANCELED : 0;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	nfile_unref(node);
	files_task_end(files);
	return r;
}

bool early_wrote_locked(struct sbx_node_file *node, uint64_t offset, uint64_t len)
{
	const struct sbx_layout *layout = sbx_spool_layout(node->spool);
	struct early *early = node->early;

	if (early) {
		if (offset < early->pos)
			early_stop_locked(node);
		else if (early->waiting)
			pthread_cond_broadcast(&node->changed);
		return false;
	}
	if (node->early_tried || sbx_spool_meta(node->spool)->kind != SBX_SPOOL_WHOLE ||
	    layout->size_bytes < EARLY_BYTES || layout->log_bytes != layout->size_bytes ||
	    layout->append_start != SBX_NO_APPEND || offset + len != layout->size_bytes ||
	    node->publishing || node->detached ||
	    sbx_names_probe_cached(node->files->names) == NULL)
		return false;
	node->early_tried = true;
	node->early = early = g_new0(struct early, 1);
	early->stage = sbx_mark_path(node->files->mark, SBX_STAGE_DIR);
	early->running = true;
	early->started_ms = sbx_clock_ms();
	return true;
}

void early_start(struct sbx_node_file *node)
{
	struct sbx_files *files = node->files;
	int r;

	nfile_ref(node);
	r = files_task_begin(files);
	if (r == 0) {
		r = sbx_task_start(files->pool, early_run, node, NULL, NULL);
		if (r == 0)
			return;
		files_task_end(files);
	}
	pthread_mutex_lock(&node->lock);
	node->early->running = false;
	node->early->result = r;
	pthread_mutex_unlock(&node->lock);
	nfile_unref(node);
}

void early_stop_locked(struct sbx_node_file *node)
{
	if (!node->early)
		return;
	node->early->stop = true;
	pthread_cond_broadcast(&node->changed);
}

char *early_finish_locked(struct sbx_node_file *node, const struct sbx_spool_view *view)
{
	struct early *early = node->early;
	char *stage = NULL;

	if (!early)
		return NULL;
	/* What has left is the beginning of the view, since nothing that changed it was written. */
	if (view->meta.kind != SBX_SPOOL_WHOLE || early->pos > view->layout.size_bytes ||
	    view->layout.size_bytes > SBX_STAGE_BYTES)
		early->stop = true;
	else
		early->view = view;
	pthread_cond_broadcast(&node->changed);
	while (early->running)
		pthread_cond_wait(&node->changed, &node->lock);
	if (early->result == 0 && early->view)
		stage = g_steal_pointer(&early->stage);
	node->early = NULL;
	early_free(early);
	return stage;
}
