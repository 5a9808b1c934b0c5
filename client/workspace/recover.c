/* What could not be sent: tried again later, at the next use, and after a remount. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/mark.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"

#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 30000
/* At most one retry a second because the session is used. */
#define KICK_MS 1000
/* Nothing periodic touches a session that no program used for so long. */
#define UNUSED_MS (5 * 60 * 1000)

/* Outlives the files by what a delayed task holds, so that an unmount does not wait for one. */
struct files_retry {
	pthread_mutex_t lock; /* inside it: files->lock */
	int refs;
	struct sbx_files *files; /* NULL: gone */
	bool append_armed;
	bool due; /* some bytes could not be sent, or were adopted */
	bool armed; /* a task will try */
	bool adopted; /* the spool directory was looked through as the lock's holder */
	bool swept; /* what dead clients left in the sandbox was looked for */
	int64_t backoff_ms;
	int64_t kicked_ms;
	int64_t adopted_ms; /* wall clock: as good as a use of the session; 0: nothing was */
};

struct files_retry *retry_new(struct sbx_files *files)
{
	struct files_retry *retry = g_new0(struct files_retry, 1);

	pthread_mutex_init(&retry->lock, NULL);
	retry->refs = 1;
	retry->files = files;
	retry->backoff_ms = BACKOFF_MIN_MS;
	return retry;
}

static void retry_unref(struct files_retry *retry)
{
	bool last;

	pthread_mutex_lock(&retry->lock);
	last = --retry->refs == 0;
	pthread_mutex_unlock(&retry->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&retry->lock);
	g_free(retry);
}

void retry_stop(struct files_retry *retry)
{
	pthread_mutex_lock(&retry->lock);
	retry->files = NULL;
	pthread_mutex_unlock(&retry->lock);
}

void retry_free(struct files_retry *retry)
{
	retry_unref(retry);
}

/* The files, as a task that uses them; NULL: they are gone. Ends with files_task_end(). */
static struct sbx_files *retry_enter(struct files_retry *retry)
{
	struct sbx_files *files;

	pthread_mutex_lock(&retry->lock);
	files = retry->files;
	if (files && files_task_begin(files) < 0)
		files = NULL;
	pthread_mutex_unlock(&retry->lock);
	return files;
}

static bool retry_delay(struct files_retry *retry, int64_t delay_ms, int (*fn)(void *retry))
{
	struct sbx_task_pool *pool = NULL;

	pthread_mutex_lock(&retry->lock);
	if (retry->files) {
		pool = retry->files->pool;
		retry->refs++;
	}
	pthread_mutex_unlock(&retry->lock);
	if (!pool)
		return false;
	if (sbx_task_start_after(pool, delay_ms, fn, retry, NULL, NULL) == 0)
		return true;
	retry_unref(retry);
	return false;
}

/* Adoption ------------------------------------------------------------------------------------- */

/* Bytes of a dead process become unsent bytes of this one. */
static void adopt_spool(struct sbx_files *files, struct sbx_spool *spool)
{
	const struct sbx_spool_meta *meta = sbx_spool_meta(spool);
	struct sbx_node_file *node = files_obtain(files, sbx_spool_path(spool));

	if (!node) {
		sbx_spool_close(spool);
		return;
	}
	pthread_mutex_lock(&node->lock);
	if (node->spool || node->detached) {
		/* One at a time: it is looked for again when the other was sent. */
		sbx_spool_close(spool);
	} else {
		if (!(meta->flags & SBX_SPOOL_NEW) && !node->has_attr) {
			node->attr = (struct sbx_attr){
				.dev = meta->base.dev,
				.ino = meta->base.ino,
				.size = meta->base.size_bytes,
				.mtime_ns = meta->base.mtime_ns,
				.ctime_ns = meta->base.ctime_ns,
				.mode = S_IFREG | (meta->mode & 0777),
				.nlink = 1,
				.has_ns = true,
			};
			node->has_attr = true;
		}
		node->spool = spool;
		node->failed = true;
		/* What an attempt in doubt has sent comes first; all of it counts as one change. */
		nfile_changed_locked(node, true);
		node->attempt_seq = node->write_seq;
		if (sbx_spool_meta(spool)->attempt_id[0] && sbx_spool_pin_until_attempt(spool))
			nfile_changed_locked(node, true);
	}
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	nfile_unref(node);
}

/* Have the sandbox swept of what dead clients left there. A task of the pool. */
static int sweep_run(void *arg)
{
	struct sbx_files *files = arg;
	struct sbx_call call = { .background = true };
	g_autoptr(GPtrArray) dead = sbx_mark_dead(files->spool_dirfd);

	for (guint i = 0; i < dead->len; i++) {
		const struct sbx_op ops[2] = {
			{ .kind = SBX_DO_SWEEP, .path = "stage", .from = dead->pdata[i] },
			{ .kind = SBX_DO_SWEEP, .path = "held", .from = dead->pdata[i] },
		};
		struct sbx_op_result results[2] = { 0 };
		int r;

		r = sbx_names_apply(files->names, &call,
				    sbx_session_options(files->session)->mutation_timeout_ms, ops,
				    2, results);
		if (r == -EOPNOTSUPP || (r == 0 && results[0].error == 0 && results[1].error == 0))
			sbx_mark_forget(files->spool_dirfd, dead->pdata[i]);
		if (r == 0)
			sbx_op_results_clear(results, 2);
	}
	files_task_end(files);
	return 0;
}

static void sweep_start(struct sbx_files *files)
{
	g_autoptr(GPtrArray) dead = NULL;

	if (!sbx_session_is_holder(files->session))
		return;
	dead = sbx_mark_dead(files->spool_dirfd);
	if (dead->len == 0 || files_task_begin(files) < 0)
		return;
	if (sbx_task_start(files->pool, sweep_run, files, NULL, NULL) < 0)
		files_task_end(files);
}

void retry_adopt(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	struct dirent *entry;
	bool found = false;
	DIR *dir;
	int fd;

	if (!sbx_session_is_holder(files->session))
		return;
	fd = openat(files->spool_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		struct sbx_spool *spool;
		int r;

		if (!sbx_spool_is_name(entry->d_name))
			continue;
		r = sbx_spool_adopt(files->spool_dirfd, sbx_session_tag(files->session),
				    entry->d_name, &spool);
		if (r == 0) {
			adopt_spool(files, spool);
			found = true;
		} else if (r != -EWOULDBLOCK && r != -ENOENT) {
			sbx_errlog_note(sbx_session_errors(files->session), "recover",
					entry->d_name, r, "left-over spool can't be read");
		}
	}
	closedir(dir);
	pthread_mutex_lock(&retry->lock);
	retry->adopted = true;
	if (found)
		retry->adopted_ms = g_get_real_time() / 1000;
	pthread_mutex_unlock(&retry->lock);
	if (found)
		retry_arm(files);
}

/* Retries -------------------------------------------------------------------------------------- */

static GPtrArray *retry_nodes(struct sbx_files *files)
{
	GPtrArray *nodes = g_ptr_array_new();
	GHashTableIter iter;
	gpointer value;

	pthread_mutex_lock(&files->lock);
	g_hash_table_iter_init(&iter, files->nodes);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		((struct sbx_node_file *)value)->refs++;
		g_ptr_array_add(nodes, value);
	}
	pthread_mutex_unlock(&files->lock);
	return nodes;
}

/* Start to send what failed before. */
static void retry_start(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	g_autoptr(GPtrArray) nodes = NULL;

	pthread_mutex_lock(&retry->lock);
	retry->due = false;
	pthread_mutex_unlock(&retry->lock);
	nodes = retry_nodes(files);
	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];
		bool failed;

		pthread_mutex_lock(&node->lock);
		failed = node->failed && nfile_is_unsent_locked(node);
		pthread_mutex_unlock(&node->lock);
		if (failed)
			(void)publish_start(node);
		nfile_unref(node);
	}
}

static int retry_run(void *arg)
{
	struct files_retry *retry = arg;
	struct sbx_files *files = retry_enter(retry);
	int64_t used_ms;

	pthread_mutex_lock(&retry->lock);
	retry->armed = false;
	retry->backoff_ms = MIN(retry->backoff_ms * 2, (int64_t)BACKOFF_MAX_MS);
	used_ms = retry->adopted_ms;
	pthread_mutex_unlock(&retry->lock);
	if (files) {
		used_ms = MAX(used_ms, sbx_session_last_use_ms(files->session));
		if (g_get_real_time() / 1000 - used_ms < UNUSED_MS)
			retry_start(files);
		else
			retry_arm(files);
		files_task_end(files);
	}
	retry_unref(retry);
	return 0;
}

void retry_arm(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	int64_t delay_ms;
	bool arm;

	pthread_mutex_lock(&retry->lock);
	retry->due = true;
	arm = !retry->armed;
	retry->armed = true;
	delay_ms = retry->backoff_ms;
	pthread_mutex_unlock(&retry->lock);
	if (!arm || retry_delay(retry, delay_ms, retry_run))
		return;
	pthread_mutex_lock(&retry->lock);
	retry->armed = false;
	pthread_mutex_unlock(&retry->lock);
}

/* Appends -------------------------------------------------------------------------------------- */

/* Send what is due; returns when the next will be, 0: nothing waits. */
static int64_t append_send(struct sbx_files *files)
{
	g_autoptr(GPtrArray) nodes = retry_nodes(files);
	int64_t now_ms = sbx_clock_ms();
	int64_t next_ms = 0;

	for (guint i = 0; i < nodes->len; i++) {
		struct sbx_node_file *node = nodes->pdata[i];
		bool send = false;

		pthread_mutex_lock(&node->lock);
		if (node->append_due_ms > 0 && node->append_due_ms <= now_ms) {
			node->append_due_ms = 0;
			send = nfile_is_unsent_locked(node) && !node->failed;
		} else if (node->append_due_ms > 0) {
			next_ms = next_ms ? MIN(next_ms, node->append_due_ms) : node->append_due_ms;
		}
		pthread_mutex_unlock(&node->lock);
		if (send)
			(void)publish_start(node);
		nfile_unref(node);
	}
	return next_ms;
}

static int append_run(void *arg)
{
	struct files_retry *retry = arg;
	struct sbx_files *files = retry_enter(retry);
	int64_t next_ms = 0;

	/* Not armed from here on: what comes now arms anew. */
	pthread_mutex_lock(&retry->lock);
	retry->append_armed = false;
	pthread_mutex_unlock(&retry->lock);
	if (files) {
		next_ms = append_send(files);
		if (next_ms > 0)
			append_arm(files, MAX(next_ms - sbx_clock_ms(), 1));
		files_task_end(files);
	}
	retry_unref(retry);
	return 0;
}

void append_arm(struct sbx_files *files, int64_t delay_ms)
{
	struct files_retry *retry = files->retry;
	bool arm;

	pthread_mutex_lock(&retry->lock);
	arm = !retry->append_armed;
	retry->append_armed = true;
	pthread_mutex_unlock(&retry->lock);
	if (!arm || retry_delay(retry, delay_ms, append_run))
		return;
	pthread_mutex_lock(&retry->lock);
	retry->append_armed = false;
	pthread_mutex_unlock(&retry->lock);
}

/* Use ------------------------------------------------------------------------------------------ */

void sbx_files_used(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	int64_t now_ms = sbx_clock_ms();
	bool adopt;
	bool sweep;
	bool due;

	if (files->options.read_only)
		return;
	pthread_mutex_lock(&retry->lock);
	sweep = !retry->swept;
	retry->swept = true;
	due = now_ms - retry->kicked_ms >= KICK_MS && (retry->due || !retry->adopted);
	adopt = due && !retry->adopted;
	if (due) {
		retry->kicked_ms = now_ms;
		retry->backoff_ms = BACKOFF_MIN_MS;
	}
	pthread_mutex_unlock(&retry->lock);
	if (adopt)
		retry_adopt(files);
	if (due)
		retry_start(files);
	if (sweep)
		sweep_start(files);
}
