/* What could not be sent: tried again later, at the next use, and after a remount. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/errlog.h"
#include "client/localfile.h"
#include "client/random.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/mark.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/path.h"

#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 30000
/* At most one retry a second because the session is used. */
#define KICK_MS 1000
/* Nothing periodic touches a session that no program used for so long. */
#define UNUSED_MS (5 * 60 * 1000)
/* So often the spool directory is looked through for what another mount has left. */
#define RESCAN_MS 10000
/* Of a name for left-over bytes that can't go where they belong. */
#define ASIDE_CHARS 4

/* What left-over bytes have made of a file. */
struct sent_left {
	int64_t begun_ns;
	struct sbx_version version;
};

/* Outlives the files by what a delayed task holds, so that an unmount does not wait for one. */
struct files_retry {
	pthread_mutex_t lock; /* inside it: files->lock */
	int refs;
	struct sbx_files *files; /* NULL: gone */
	bool append_armed;
	bool due; /* some bytes could not be sent, or were adopted */
	bool armed; /* a task will try */
	bool adopted; /* the spool directory was looked through as the lock's holder */
	GHashTable *sent; /* path -> struct sent_left */
	bool waits; /* it has left-over bytes of a path that has others, or is being written */
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
	retry->sent = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
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
	g_hash_table_unref(retry->sent);
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

/* A program may write on what it has not seen. */
static bool node_is_being_written_locked(const struct sbx_node_file *node)
{
	for (const GList *link = node->handles.head; link; link = link->next)
		if (((const struct sbx_file *)link->data)->writable)
			return true;
	return false;
}

/*
 * Bytes of a dead process become unsent bytes of this one, unless the path has others (false: they
 * are looked for again when those were sent).
 */
static bool adopt_spool(struct sbx_files *files, struct sbx_spool *spool, bool left)
{
	const struct sbx_spool_meta *meta = sbx_spool_meta(spool);
	struct sbx_node_file *node = files_obtain(files, sbx_spool_path(spool));
	bool takes;

	if (!node) {
		sbx_spool_close(spool);
		return false;
	}
	pthread_mutex_lock(&node->lock);
	takes = !node->spool && !node->detached && !node_is_being_written_locked(node);
	if (!takes) {
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
		node->left = left;
	}
	pthread_mutex_unlock(&node->lock);
	nfile_settle_ref(node);
	nfile_unref(node);
	return takes;
}

void recover_note(struct sbx_files *files, const char *path, int64_t begun_ns,
		  const struct sbx_attr *attr)
{
	struct files_retry *retry = files->retry;
	struct sent_left *sent = g_new(struct sent_left, 1);

	sent->begun_ns = begun_ns;
	sbx_version_of(attr, &sent->version);
	pthread_mutex_lock(&retry->lock);
	g_hash_table_replace(retry->sent, g_strdup(path), sent);
	pthread_mutex_unlock(&retry->lock);
}

void recover_older(struct sbx_files *files, const char *path, int64_t begun_ns,
		   struct sbx_version *ret_version)
{
	struct files_retry *retry = files->retry;
	const struct sent_left *sent;

	*ret_version = (struct sbx_version){ 0 };
	pthread_mutex_lock(&retry->lock);
	sent = g_hash_table_lookup(retry->sent, path);
	if (sent && sent->begun_ns < begun_ns)
		*ret_version = sent->version;
	pthread_mutex_unlock(&retry->lock);
}

/* A name beside @path that says what it is. */
static char *aside_path(const char *path)
{
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();
	g_autofree char *stamp = g_date_time_format(now, "%Y%m%dT%H%M%SZ");
	g_autofree char *parent = sbx_path_parent(path);
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char random[ASIDE_CHARS + 1];
	g_autofree char *aside = NULL;

	sbx_random_hex(random, ASIDE_CHARS);
	aside = g_strdup_printf("%s.unsent-%s-%s", name, stamp, random);
	/* Where that is too long the stamp has to do. */
	if (strlen(aside) > NAME_MAX) {
		g_free(aside);
		aside = g_strdup_printf("unsent-%s-%s", stamp, random);
	}
	return g_strconcat(parent ? parent : "", parent && parent[0] ? "/" : "", aside, NULL);
}

/* Changes of a file need one to be made to: a copy of what it is now. */
static int aside_copy(struct sbx_files *files, const struct sbx_call *call, const char *path,
		      const char *aside)
{
	const struct sbx_op op = {
		.kind = SBX_DO_COPY, .from = path, .path = aside, .size = SBX_COPY_WHOLE
	};
	struct sbx_op_result result = { 0 };
	int r;

	r = sbx_names_apply(files->names, call, sbx_session_options(files->session)->timeout_ms,
			    &op, 1, &result);
	if (r == 0)
		r = result.error;
	sbx_op_results_clear(&result, 1);
	return r;
}

int recover_aside(struct sbx_node_file *node, const struct sbx_call *call, const char *path,
		  const struct sbx_attr *attr)
{
	struct sbx_files *files = node->files;
	g_autofree char *aside = aside_path(path);
	g_autofree char *text = NULL;
	struct sbx_spool *spool = NULL;
	struct sbx_node_file *other;
	struct sbx_spool_meta meta;
	bool is_patch = false;
	int r = 0;

	pthread_mutex_lock(&node->lock);
	if (node->left && node->spool)
		is_patch = sbx_spool_meta(node->spool)->kind == SBX_SPOOL_PATCH;
	pthread_mutex_unlock(&node->lock);
	if (is_patch)
		r = aside_copy(files, call, path, aside);
	if (r < 0)
		return r;
	pthread_mutex_lock(&node->lock);
	if (!node->left || !node->spool || node->detached || strcmp(node->path, path) != 0) {
		/* Somebody here has changed it, or its name, meanwhile. */
		node->publish_again = true;
		pthread_mutex_unlock(&node->lock);
		return -ECANCELED;
	}
	meta = *sbx_spool_meta(node->spool);
	meta.flags &= SBX_SPOOL_SET;
	if (!is_patch)
		meta.flags |= SBX_SPOOL_NEW;
	meta.attempt_id[0] = '\0';
	meta.attempt_end = 0;
	meta.begun_ns = sbx_spool_now_ns();
	r = sbx_spool_set_path(node->spool, aside);
	if (r == 0) {
		(void)sbx_spool_set_meta(node->spool, &meta);
		spool = g_steal_pointer(&node->spool);
		sbx_spool_unpin(spool);
		node->left = node->failed = node->written = false;
		node->sent_seq = node->write_seq;
		sbx_content_unref(node->content);
		node->content = NULL;
		node->attr = *attr;
		node->has_attr = true;
		nfile_show_locked(node);
		pthread_cond_broadcast(&node->changed);
	}
	pthread_mutex_unlock(&node->lock);
	if (r < 0)
		return r;
	text = g_strdup_printf("changed in the sandbox since unsent bytes were written to it here: "
			       "they are in %s",
			       aside);
	sbx_errlog_note(sbx_session_errors(files->session), "recover", path, -ESTALE, text);
	if (adopt_spool(files, spool, false)) {
		other = files_find(files, aside);
		if (other) {
			(void)publish_start(other);
			nfile_unref(other);
		}
	}
	return -ECANCELED;
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

/* Those of the spool directory whose owners are dead. */
static GPtrArray *spools_of_dead(struct sbx_files *files, bool tell)
{
	GPtrArray *spools = g_ptr_array_new();
	struct dirent *entry;
	DIR *dir = sbx_local_opendir(files->spool_dirfd);

	if (!dir)
		return spools;
	while ((entry = readdir(dir))) {
		struct sbx_spool *spool;
		int r;

		if (!sbx_spool_is_name(entry->d_name))
			continue;
		r = sbx_spool_adopt(files->spool_dirfd, sbx_session_tag(files->session),
				    entry->d_name, &spool);
		if (r == 0)
			g_ptr_array_add(spools, spool);
		else if (tell && r != -EWOULDBLOCK && r != -ENOENT)
			sbx_errlog_note(sbx_session_errors(files->session), "recover",
					entry->d_name, r, "left-over spool can't be read");
	}
	closedir(dir);
	return spools;
}

static gint spool_compare_age(gconstpointer a, gconstpointer b)
{
	int64_t first = sbx_spool_meta(*(struct sbx_spool *const *)a)->begun_ns;
	int64_t second = sbx_spool_meta(*(struct sbx_spool *const *)b)->begun_ns;

	return first < second ? -1 : first > second;
}

/* As the lock's holder, take over what dead owners have left; the oldest first. */
static void retry_adopt(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	g_autoptr(GPtrArray) spools = NULL;
	bool found = false;
	bool waits = false;
	bool first;

	if (!sbx_session_is_holder(files->session))
		return;
	pthread_mutex_lock(&retry->lock);
	first = !retry->adopted;
	pthread_mutex_unlock(&retry->lock);
	spools = spools_of_dead(files, first);
	g_ptr_array_sort(spools, spool_compare_age);
	for (guint i = 0; i < spools->len; i++) {
		if (adopt_spool(files, spools->pdata[i], true))
			found = true;
		else
			waits = true;
	}
	pthread_mutex_lock(&retry->lock);
	retry->adopted = true;
	retry->waits = waits;
	if (found)
		retry->adopted_ms = g_get_real_time() / 1000;
	pthread_mutex_unlock(&retry->lock);
	if (found)
		retry_arm(files);
}

static int rescan_run(void *arg)
{
	struct files_retry *retry = arg;
	struct sbx_files *files = retry_enter(retry);

	if (files) {
		retry_adopt(files);
		(void)retry_delay(retry, RESCAN_MS, rescan_run);
		files_task_end(files);
	}
	retry_unref(retry);
	return 0;
}

void retry_begin(struct sbx_files *files)
{
	retry_adopt(files);
	(void)retry_delay(files->retry, RESCAN_MS, rescan_run);
}

void retry_sent(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	bool waits;

	pthread_mutex_lock(&retry->lock);
	waits = retry->waits;
	retry->waits = false;
	pthread_mutex_unlock(&retry->lock);
	if (waits)
		retry_adopt(files);
}

/* Retries -------------------------------------------------------------------------------------- */

/* Start to send what failed before. */
static void retry_start(struct sbx_files *files)
{
	struct files_retry *retry = files->retry;
	g_autoptr(GPtrArray) nodes = NULL;

	pthread_mutex_lock(&retry->lock);
	retry->due = false;
	pthread_mutex_unlock(&retry->lock);
	nodes = files_collect(files, NULL);
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
	g_autoptr(GPtrArray) nodes = files_collect(files, NULL);
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
		/* One that is under way may have begun before the last of them. */
		if (send)
			(void)publish_after(node);
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
