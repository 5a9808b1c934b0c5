#include "fusefs/sessionjobs.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <glib.h>

#include "client/jobs.h"
#include "client/task.h"
#include "client/workspace/workspace.h"
#include "fusefs/fs.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/notify.h"
#include "fusefs/scratch.h"
#include "fusefs/text.h"

/* Numbers the jobs of all sessions. Atomic. */
static unsigned int last_number;

struct session_jobs {
	struct fsession *fsession; /* borrowed: it owns us */
	struct scratch_set *scratch;
	pthread_mutex_t lock;
	struct sbx_jobs *jobs; /* NULL: not used yet, or stopped */
	bool making; /* jobs, on the local disk */
	bool stopped;
	unsigned int users; /* of jobs */
	pthread_cond_t left; /* one of them; making is over */
	pthread_cond_t told; /* of an end */
	GHashTable *by_id; /* id to struct session_job, a reference each */
};

struct session_job *session_job_ref(struct session_job *job)
{
	__atomic_add_fetch(&job->refs, 1, __ATOMIC_RELAXED);
	return job;
}

void session_job_unref(struct session_job *job)
{
	if (!job || __atomic_sub_fetch(&job->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	sbx_job_unref(job->job);
	scratch_set_unref(job->scratch);
	g_free(job->id);
	g_free(job);
}

static void entry_unref(gpointer job)
{
	session_job_unref(job);
}

struct session_jobs *session_jobs_new(struct fsession *fsession)
{
	struct session_jobs *jobs = g_new0(struct session_jobs, 1);

	jobs->fsession = fsession;
	jobs->scratch = scratch_set_new();
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->left, NULL);
	pthread_cond_init(&jobs->told, NULL);
	jobs->by_id = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, entry_unref);
	return jobs;
}

void session_jobs_stop(struct session_jobs *jobs)
{
	struct sbx_jobs *below;

	pthread_mutex_lock(&jobs->lock);
	jobs->stopped = true;
	while (jobs->users > 0 || jobs->making)
		pthread_cond_wait(&jobs->left, &jobs->lock);
	below = jobs->jobs;
	jobs->jobs = NULL;
	pthread_mutex_unlock(&jobs->lock);
	sbx_jobs_free(below);
}

void session_jobs_free(struct session_jobs *jobs)
{
	if (!jobs)
		return;
	session_jobs_stop(jobs);
	g_hash_table_unref(jobs->by_id);
	scratch_set_unref(jobs->scratch);
	pthread_cond_destroy(&jobs->left);
	pthread_cond_destroy(&jobs->told);
	pthread_mutex_destroy(&jobs->lock);
	g_free(jobs);
}

struct scratch_set *session_jobs_scratch(struct session_jobs *jobs)
{
	return jobs->scratch;
}

int session_jobs_enter(struct session_jobs *jobs, struct sbx_jobs **ret_jobs)
{
	const struct fs_config *config = &jobs->fsession->fs->config;
	const struct sbx_jobs_options options = {
		.extra_root = config->jobs_root,
		.ttl_ms = config->ttl_ms,
		.keep = config->jobs_keep,
		.log_bytes = config->log_cache_bytes,
	};
	int r = 0;

	pthread_mutex_lock(&jobs->lock);
	while (jobs->making)
		pthread_cond_wait(&jobs->left, &jobs->lock);
	if (jobs->stopped) {
		r = -EINTR;
	} else if (!jobs->jobs) {
		struct sbx_jobs *made;

		jobs->making = true;
		pthread_mutex_unlock(&jobs->lock);
		r = sbx_jobs_new(jobs->fsession->ws, &options, &made);
		pthread_mutex_lock(&jobs->lock);
		jobs->making = false;
		if (r == 0)
			jobs->jobs = made;
		pthread_cond_broadcast(&jobs->left);
	}
	if (r == 0) {
		*ret_jobs = jobs->jobs;
		jobs->users++;
	}
	pthread_mutex_unlock(&jobs->lock);
	return r;
}

void session_jobs_leave(struct session_jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->users--;
	pthread_cond_broadcast(&jobs->left);
	pthread_mutex_unlock(&jobs->lock);
}

int session_jobs_any_running(struct session_jobs *jobs, const struct sbx_call *call)
{
	struct sbx_jobs *below;
	int r;

	r = session_jobs_enter(jobs, &below);
	if (r < 0)
		return r;
	if (call)
		r = sbx_jobs_list_now(below, call);
	/* Without exec there are none. */
	if (r == 0 || r == -EOPNOTSUPP)
		r = sbx_jobs_any_running(below);
	session_jobs_leave(jobs);
	return r;
}

/* The entry of @job, whose reference is taken over. */
static struct session_job *entry_of(struct session_jobs *jobs, const char *id, struct sbx_job *job,
				    bool started)
{
	struct session_job *entry, *other = NULL;
	bool known;

	pthread_mutex_lock(&jobs->lock);
	entry = g_hash_table_lookup(jobs->by_id, id);
	known = entry && entry->job == job;
	if (!known) {
		/* Another job of that id than the one that was here: a new number. */
		other = entry;
		if (other)
			g_hash_table_steal(jobs->by_id, id);
		entry = g_new0(struct session_job, 1);
		entry->refs = 1;
		entry->jobs = jobs;
		entry->job = job;
		entry->id = g_strdup(id);
		entry->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
		entry->scratch = scratch_set_new();
		g_hash_table_insert(jobs->by_id, entry->id, entry);
	}
	entry->seen_running |= started;
	session_job_ref(entry);
	pthread_mutex_unlock(&jobs->lock);
	session_job_unref(other);
	if (known)
		sbx_job_unref(job);
	return entry;
}

static void entry_drop(struct session_jobs *jobs, const char *id, const struct session_job *only)
{
	struct session_job *entry;

	pthread_mutex_lock(&jobs->lock);
	entry = g_hash_table_lookup(jobs->by_id, id);
	if (entry && (!only || entry == only))
		g_hash_table_steal(jobs->by_id, id);
	else
		entry = NULL;
	pthread_mutex_unlock(&jobs->lock);
	session_job_unref(entry);
}

void session_jobs_bound_logs(struct session_jobs *jobs, bool also_read)
{
	struct sbx_jobs *below;

	pthread_mutex_lock(&jobs->lock);
	below = jobs->stopped ? NULL : jobs->jobs;
	if (below)
		jobs->users++;
	pthread_mutex_unlock(&jobs->lock);
	if (!below)
		return;
	sbx_jobs_bound_logs(below, also_read);
	session_jobs_leave(jobs);
}

void session_jobs_sweep(struct session_jobs *jobs)
{
	g_autoptr(GPtrArray) all = g_ptr_array_new();
	GHashTableIter iter;
	void *value;

	pthread_mutex_lock(&jobs->lock);
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		session_job_ref(value);
		g_ptr_array_add(all, value);
	}
	pthread_mutex_unlock(&jobs->lock);
	for (guint i = 0; i < all->len; i++) {
		struct session_job *entry = all->pdata[i];

		if (sbx_job_retire(entry->job))
			entry_drop(jobs, entry->id, entry);
		session_job_unref(entry);
	}
}

int session_jobs_find(struct session_jobs *jobs, const struct sbx_call *call, const char *id,
		      struct session_job **ret_job)
{
	struct sbx_jobs *below;
	struct sbx_job *job;
	int r;

	if (!sbx_job_id_is_valid(id))
		return -ENOENT;
	r = session_jobs_enter(jobs, &below);
	if (r < 0)
		return r;
	r = sbx_jobs_find(below, call, id, &job);
	session_jobs_leave(jobs);
	if (r == -ENOENT)
		entry_drop(jobs, id, NULL);
	if (r == 0)
		*ret_job = entry_of(jobs, id, job, false);
	return r;
}

struct session_job *session_jobs_started(struct session_jobs *jobs, struct sbx_job *job)
{
	struct session_job *entry;
	struct sbx_job_info info;

	sbx_job_info(job, &info);
	entry = entry_of(jobs, info.id, sbx_job_ref(job), true);
	sbx_job_info_done(&info);
	return entry;
}

int session_job_remove(struct session_job *job, const struct sbx_call *call)
{
	int r = sbx_job_remove(job->job, call);

	if (r == 0)
		entry_drop(job->jobs, job->id, job);
	return r;
}

/* Attributes of open files; names lead to new ones already. */
static int forget_attributes(void *arg)
{
	struct fsession *fsession = arg;

	notify_attrs(fsession->fs, fsession);
	fsession_unref(fsession);
	return 0;
}

/* Nobody tells of the end before what the job changed can be seen. */
static void see_end(struct session_job *job)
{
	struct session_jobs *jobs = job->jobs;
	struct fsession *fsession = jobs->fsession;
	bool first;

	pthread_mutex_lock(&jobs->lock);
	while (job->telling)
		pthread_cond_wait(&jobs->told, &jobs->lock);
	first = job->seen_running;
	job->seen_running = false;
	job->telling = first;
	pthread_mutex_unlock(&jobs->lock);
	if (!first)
		return;
	sbx_ws_refresh(fsession->ws);
	notify_names(fsession->fs, fsession);
	pthread_mutex_lock(&jobs->lock);
	job->telling = false;
	pthread_cond_broadcast(&jobs->told);
	pthread_mutex_unlock(&jobs->lock);
	if (sbx_task_start(fsession->fs->parts.pool, forget_attributes, fsession_ref(fsession),
			   NULL, NULL) < 0)
		fsession_unref(fsession);
}

void session_job_info(struct session_job *job, struct sbx_job_info *ret_info)
{
	sbx_job_info(job->job, ret_info);
	if (sbx_job_state_is_final(ret_info->state)) {
		see_end(job);
		return;
	}
	pthread_mutex_lock(&job->jobs->lock);
	job->seen_running = true;
	pthread_mutex_unlock(&job->jobs->lock);
}

int session_job_look(struct session_job *job, const struct sbx_call *call,
		     struct sbx_job_info *ret_info)
{
	int r = sbx_job_look(job->job, call);

	if (r == -EINTR)
		return r;
	session_job_info(job, ret_info);
	return 0;
}

int64_t session_job_log_time(struct session_job *job, const struct sbx_job_info *info)
{
	bool final = sbx_job_state_is_final(info->state);
	int64_t time_ns;

	pthread_mutex_lock(&job->jobs->lock);
	if (job->log_mtime_ns == 0) {
		/* Not seen growing: since its start, or its end. */
		job->log_mtime_ns =
			(final && info->ended_ms ? info->ended_ms : info->started_ms) * 1000000;
		if (job->log_mtime_ns == 0)
			job->log_mtime_ns = text_now_ns();
	} else if (job->log_bytes != info->log_bytes) {
		job->log_mtime_ns = text_now_ns();
	}
	job->log_bytes = info->log_bytes;
	time_ns = job->log_mtime_ns;
	pthread_mutex_unlock(&job->jobs->lock);
	return time_ns;
}

bool session_job_is_hidden(struct session_job *job, unsigned int index)
{
	bool hidden;

	pthread_mutex_lock(&job->jobs->lock);
	hidden = job->hidden & 1u << index;
	pthread_mutex_unlock(&job->jobs->lock);
	return hidden;
}

void session_job_hide(struct session_job *job, unsigned int index)
{
	pthread_mutex_lock(&job->jobs->lock);
	job->hidden |= 1u << index;
	pthread_mutex_unlock(&job->jobs->lock);
}

uint64_t session_job_ino(const struct session_job *job, unsigned int index)
{
	return INO_JOB_BITS | (job->number << 4 & 0xffffffff) | index;
}
