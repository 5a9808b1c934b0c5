#include "client/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/jobs_impl.h"
#include "client/json.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/random.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/names.h"
#include "client/workspace/workspace.h"

/* A directory without meta.json is a start that failed after this time. */
#define STARTING_S 10
/* How long after a cancel a death without an exit is not yet believed. */
#define CANCEL_GRACE_MS 3000
/* Of the name of a request to a leader. */
#define ASK_CHARS 16

const char *sbx_job_state_name(enum sbx_job_state state)
{
	static const char *const names[] = {
		[SBX_JOB_STARTING] = "starting", [SBX_JOB_RUNNING] = "running",
		[SBX_JOB_EXITED] = "exited",	 [SBX_JOB_CANCELLED] = "cancelled",
		[SBX_JOB_TIMEDOUT] = "timedout", [SBX_JOB_CRASHED] = "crashed",
		[SBX_JOB_LOST] = "lost",
	};

	return names[state];
}

bool sbx_job_state_is_final(enum sbx_job_state state)
{
	return state >= SBX_JOB_EXITED;
}

/* Life ---------------------------------------------------------------------------------------- */

static void jobs_unref(struct sbx_jobs *jobs)
{
	if (atomic_fetch_sub(&jobs->refs, 1) != 1)
		return;
	if (jobs->spool_dirfd >= 0)
		close(jobs->spool_dirfd);
	sbx_cancel_unref(jobs->cancel);
	sbx_session_unref(jobs->session);
	g_hash_table_destroy(jobs->by_id);
	pthread_cond_destroy(&jobs->changed);
	pthread_mutex_destroy(&jobs->lock);
	g_free(jobs->extra_root);
	g_free(jobs->spare_root);
	g_free(jobs);
}

struct sbx_job *sbx_job_ref(struct sbx_job *job)
{
	atomic_fetch_add(&job->refs, 1);
	return job;
}

void sbx_job_unref(struct sbx_job *job)
{
	if (!job || atomic_fetch_sub(&job->refs, 1) != 1)
		return;
	job_spool_close(job);
	if (job->window)
		g_byte_array_unref(job->window);
	jobs_unref(job->jobs);
	g_free(job->id);
	g_free(job->dir);
	g_free(job->op);
	g_free(job->meta);
	g_free(job->command);
	g_free(job);
}

int sbx_jobs_new(struct sbx_workspace *ws, const struct sbx_jobs_options *options,
		 struct sbx_jobs **ret_jobs)
{
	struct sbx_jobs *jobs = g_new0(struct sbx_jobs, 1);

	atomic_init(&jobs->refs, 1);
	jobs->ws = ws;
	jobs->names = sbx_workspace_names(ws);
	jobs->session = sbx_session_ref(sbx_workspace_session(ws));
	jobs->options = *options;
	jobs->extra_root = g_strdup(options->extra_root);
	jobs->spare_root =
		g_strdup_printf("/var/tmp/sbxfs-jobs/%s", sbx_session_tag(jobs->session));
	jobs->cancel = sbx_cancel_new(NULL);
	jobs->by_id = g_hash_table_new(g_str_hash, g_str_equal);
	jobs->chunk_bytes = 4u << 20;
	pthread_mutex_init(&jobs->lock, NULL);
	sbx_cond_init(&jobs->changed);
	jobs_spool_open(jobs);
	*ret_jobs = jobs;
	return 0;
}

void sbx_jobs_free(struct sbx_jobs *jobs)
{
	GHashTableIter iter;
	void *job;

	if (!jobs)
		return;
	pthread_mutex_lock(&jobs->lock);
	jobs->stopped = true;
	pthread_mutex_unlock(&jobs->lock);
	sbx_cancel_fire(jobs->cancel);
	pthread_mutex_lock(&jobs->lock);
	while (jobs->tasks)
		pthread_cond_wait(&jobs->changed, &jobs->lock);
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &job)) {
		g_hash_table_iter_steal(&iter);
		job_tell_waiters_locked(job, -ECANCELED);
		pthread_mutex_unlock(&jobs->lock);
		sbx_job_unref(job);
		pthread_mutex_lock(&jobs->lock);
		g_hash_table_iter_init(&iter, jobs->by_id);
	}
	pthread_mutex_unlock(&jobs->lock);
	jobs_unref(jobs);
}

struct jobs_task {
	struct sbx_jobs *jobs;
	int (*fn)(void *arg);
	void *arg;
};

static int jobs_task_run(void *arg)
{
	struct jobs_task *task = arg;
	struct sbx_jobs *jobs = task->jobs;
	bool counted;
	int r;

	/* Only what runs is waited for; what comes later sees that it is stopped, and frees. */
	pthread_mutex_lock(&jobs->lock);
	counted = !jobs->stopped;
	jobs->tasks += counted;
	pthread_mutex_unlock(&jobs->lock);
	r = task->fn(task->arg);
	pthread_mutex_lock(&jobs->lock);
	jobs->tasks -= counted;
	pthread_cond_broadcast(&jobs->changed);
	pthread_mutex_unlock(&jobs->lock);
	return r;
}

static void jobs_task_free(void *arg)
{
	struct jobs_task *task = arg;
	struct sbx_jobs *jobs = task->jobs;

	g_free(task);
	jobs_unref(jobs);
}

int jobs_start_task_locked(struct sbx_jobs *jobs, int64_t delay_ms, int (*fn)(void *arg), void *arg)
{
	struct jobs_task *task;
	int r;

	if (jobs->stopped)
		return -ECANCELED;
	task = g_new0(struct jobs_task, 1);
	task->jobs = jobs;
	task->fn = fn;
	task->arg = arg;
	atomic_fetch_add(&jobs->refs, 1);
	r = sbx_task_start_after(sbx_session_pool(jobs->session), delay_ms, jobs_task_run, task,
				 jobs_task_free, NULL);
	if (r < 0) {
		atomic_fetch_sub(&jobs->refs, 1);
		g_free(task);
	}
	return r;
}

struct sbx_job *job_new_locked(struct sbx_jobs *jobs, const char *id, const char *dir,
			       const char *op)
{
	struct sbx_job *job = g_new0(struct sbx_job, 1);

	atomic_init(&job->refs, 2);
	atomic_fetch_add(&jobs->refs, 1);
	job->jobs = jobs;
	job->id = g_strdup(id);
	job->dir = g_strdup(dir);
	job->op = g_strdup(op);
	job->spool_fd = -1;
	job->known_ms = sbx_clock_ms();
	g_hash_table_insert(jobs->by_id, job->id, job);
	return job;
}

/* What is known ------------------------------------------------------------------------------ */

/* Texts and times of meta.json, which anybody in the sandbox may have written. */
static void job_take_meta_locked(struct sbx_job *job, const char *meta)
{
	struct sbx_json *object = NULL;
	const char *text;

	if (!meta[0] || job->meta)
		return;
	if (sbx_json_parse(meta, strlen(meta), SBX_JSON_VALUES_DEFAULT, &object) < 0)
		return;
	if (sbx_json_is_object(object)) {
		job->meta = g_strchomp(g_strdup(meta));
		if (sbx_json_get_string(object, "command", 1 << 20, &text) == 0)
			job->command = g_strdup(text);
		if (sbx_json_get_string(object, "createdAt", 64, &text) == 0) {
			g_autoptr(GDateTime) at = g_date_time_new_from_iso8601(text, NULL);

			if (at)
				job->started_ms = g_date_time_to_unix(at) * 1000 +
						  g_date_time_get_microsecond(at) / 1000;
		}
		if (job->state == SBX_JOB_STARTING)
			job->state = SBX_JOB_RUNNING;
	}
	sbx_json_free(object);
}

/* A look that was sent before the exit was written may be answered after it. */
static bool job_is_being_cancelled_locked(const struct sbx_job *job)
{
	return job->cancelling ||
	       (job->cancelled_ms && sbx_clock_ms() < job->cancelled_ms + CANCEL_GRACE_MS);
}

void job_take_end_locked(struct sbx_job *job, bool has_exit, int exit_code,
			 const struct sbx_job_end *end, enum sbx_job_life life)
{
	if (job->ended)
		return;
	if (has_exit || end->known) {
		job->ended = true;
		job->has_exit_code = true;
		job->exit_code = end->known ? end->code : exit_code;
		job->ended_state = SBX_JOB_EXITED;
		if (end->known && !strcmp(end->state, "cancelled"))
			job->ended_state = SBX_JOB_CANCELLED;
		if (end->known && !strcmp(end->state, "timedout"))
			job->ended_state = SBX_JOB_TIMEDOUT;
		if (end->known) {
			/* What survivors write later is not this job's log. */
			job->remote_bytes = end->log_bytes;
			job->ended_ms = end->ended_s * 1000;
			job->left = end->left;
		}
	} else if (life == SBX_JOB_LIFE_DEAD && !job_is_being_cancelled_locked(job)) {
		/* It may have written its exit between the two looks. */
		if (job->seen_dead) {
			job->ended = true;
			job->ended_state = SBX_JOB_CRASHED;
		}
		job->seen_dead = true;
	} else {
		job->seen_dead = false;
	}
}

void job_take_record_locked(struct sbx_job *job, const struct sbx_job_record *record)
{
	bool was_known = job->meta || job->ended;

	if (!job->ended && record->log_bytes > job->remote_bytes)
		job->remote_bytes = record->log_bytes;
	job_take_meta_locked(job, record->meta);
	if (!job->meta && record->age_s <= STARTING_S && !record->has_exit)
		return;
	/* The list looks at exit twice, so one death is enough; without meta.json it never
	 * began. */
	if ((record->life == SBX_JOB_LIFE_DEAD || !job->meta) &&
	    !job_is_being_cancelled_locked(job))
		job->seen_dead = true;
	job_take_end_locked(job, record->has_exit, record->exit_code, &record->end,
			    job->meta ? record->life : SBX_JOB_LIFE_DEAD);
	/* One that had ended before we came is final at once; its log is fetched when it is
	 * read. */
	if (job->ended && !was_known)
		job->state = job->ended_state;
	job_update_visible_locked(job);
	job_tell_waiters_locked(job, 0);
}

void sbx_job_info(struct sbx_job *job, struct sbx_job_info *ret_info)
{
	struct sbx_session_info session;
	bool gone;

	sbx_session_info(job->jobs->session, &session);
	gone = session.state == SBX_SESSION_GONE;
	sbx_session_info_done(&session);
	memset(ret_info, 0, sizeof(*ret_info));
	pthread_mutex_lock(&job->jobs->lock);
	ret_info->id = g_strdup(job->id);
	ret_info->state = job->state;
	if ((gone || job->removed) && !sbx_job_state_is_final(job->state))
		ret_info->state = SBX_JOB_LOST;
	if (sbx_job_state_is_final(job->state) && job->has_exit_code) {
		ret_info->has_exit_code = true;
		ret_info->exit_code = job->exit_code;
		/* A shell says 128 + N of what signal N has ended. */
		if (job->exit_code > 128 && job->exit_code <= 128 + 64)
			ret_info->signal = job->exit_code - 128;
	}
	ret_info->started_ms = job->started_ms;
	ret_info->ended_ms = sbx_job_state_is_final(job->state) ? job->ended_ms : 0;
	ret_info->log_bytes = job->visible;
	ret_info->command = g_strdup(job->command);
	ret_info->meta_json = g_strdup(job->meta);
	ret_info->left = job->left;
	pthread_mutex_unlock(&job->jobs->lock);
}

void sbx_job_info_done(struct sbx_job_info *info)
{
	g_free(info->id);
	g_free(info->command);
	g_free(info->meta_json);
	memset(info, 0, sizeof(*info));
}

/* Asking the sandbox ------------------------------------------------------------------------- */

int jobs_look(struct sbx_jobs *jobs, const struct sbx_call *call,
	      struct sbx_program_request *request, bool repeatable, struct sbx_job_look **ret_look)
{
	struct sbx_exec_result result = { 0 };
	int64_t timeout_ms = sbx_session_options(jobs->session)->timeout_ms;
	int r;

	r = sbx_names_run(jobs->names, call, timeout_ms, sbx_program_request_argv(request),
			  repeatable, &result);
	if (r == 0) {
		r = sbx_job_look_decode(request->nonce, result.out, result.out_len, ret_look);
		if (r < 0)
			r = sbx_names_bad_answer(jobs->names, "joblook", r, &result);
		sbx_exec_result_clear(&result);
	}
	sbx_program_request_clear(request);
	return r;
}

const char **jobs_roots(struct sbx_jobs *jobs)
{
	GPtrArray *roots = g_ptr_array_new();

	g_ptr_array_add(roots, (void *)SBX_JOBS_DIR);
	g_ptr_array_add(roots, jobs->spare_root);
	if (jobs->extra_root)
		g_ptr_array_add(roots, jobs->extra_root);
	g_ptr_array_add(roots, NULL);
	return (const char **)g_ptr_array_free(roots, FALSE);
}

bool sbx_job_retire(struct sbx_job *job)
{
	bool retired;

	pthread_mutex_lock(&job->jobs->lock);
	retired = job->removed && job->reader_until_ms <= sbx_clock_ms();
	if (retired)
		job_spool_close(job);
	pthread_mutex_unlock(&job->jobs->lock);
	return retired;
}

void job_vanished_locked(struct sbx_job *job)
{
	struct sbx_jobs *jobs = job->jobs;
	bool in_table = g_hash_table_lookup(jobs->by_id, job->id) == job;

	if (in_table)
		g_hash_table_remove(jobs->by_id, job->id);
	if (!job->removed) {
		job->removed = true;
		job_spool_forget_locked(job);
		job_tell_waiters_locked(job, -ENOENT);
	}
	if (in_table)
		atomic_fetch_sub(&job->refs, 1);
}

static void jobs_take_list_locked(struct sbx_jobs *jobs, const struct sbx_job_look *look,
				  int64_t asked_ms)
{
	g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
	g_autoptr(GPtrArray) gone = g_ptr_array_new();
	GHashTableIter iter;
	void *value;

	for (guint i = 0; i < look->records->len; i++) {
		const struct sbx_job_record *record = g_ptr_array_index(look->records, i);
		struct sbx_job *job = g_hash_table_lookup(jobs->by_id, record->id);
		g_autofree char *dir = g_strdup_printf("%s/%s", record->root, record->id);
		bool is_new = !job;

		if (job && strcmp(job->op, record->op) != 0 && strcmp(job->dir, dir) == 0) {
			/* Another job under the id of one that was removed behind our back. */
			g_hash_table_remove(jobs->by_id, job->id);
			g_ptr_array_add(gone, job);
			is_new = true;
		} else if (job && strcmp(job->dir, dir) != 0) {
			continue; /* the same id in a second root: the first one counts */
		}
		if (is_new) {
			job = job_new_locked(jobs, record->id, dir, record->op);
			job_spool_open_locked(job);
		} else {
			sbx_job_ref(job);
		}
		g_hash_table_add(seen, job->id);
		job_take_record_locked(job, record);
		sbx_job_unref(job);
	}
	/* What the sandbox has no more is gone, but for one that came after the question. */
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct sbx_job *job = value;

		if (g_hash_table_contains(seen, job->id) || job->known_ms >= asked_ms)
			continue;
		g_hash_table_iter_steal(&iter);
		g_ptr_array_add(gone, job);
	}
	/* Only now, because it lets go of the lock. The table's references are ours. */
	for (guint i = 0; i < gone->len; i++) {
		job_vanished_locked(gone->pdata[i]);
		sbx_job_unref(gone->pdata[i]);
	}
}

/* Runs without the lock; jobs->listing is ours. */
static int jobs_list_once(struct sbx_jobs *jobs, const struct sbx_call *call)
{
	const struct sbx_probe_reply *probe;
	struct sbx_program_request request;
	struct sbx_program_limits limits;
	struct sbx_job_look *look = NULL;
	g_autofree const char **roots = jobs_roots(jobs);
	int64_t asked_ms = sbx_clock_ms();
	uint64_t epoch = sbx_session_epoch(jobs->session);
	int r;

	r = sbx_names_probe(jobs->names, call, &probe);
	if (r < 0)
		return r;
	sbx_names_limits(jobs->names, &limits);
	r = sbx_job_list_request(roots, &probe->tools, &limits, &request);
	if (r < 0) {
		sbx_program_request_clear(&request);
		return r;
	}
	r = jobs_look(jobs, call, &request, true, &look);
	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	jobs_take_list_locked(jobs, look, asked_ms);
	jobs->listed_ms = asked_ms;
	jobs->listed_epoch = epoch;
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_look_free(look);
	return 0;
}

int jobs_refresh_list(struct sbx_jobs *jobs, const struct sbx_call *call, int64_t not_before_ms)
{
	struct sbx_failure failure;
	struct sbx_call own = *call;
	struct sbx_wait wait;
	int r;

	r = sbx_wait_begin(&wait, call, &jobs->changed, &jobs->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	while (r == 0 && (!jobs->listed_ms || jobs->listed_ms < not_before_ms ||
			  jobs->listed_epoch != sbx_session_epoch(jobs->session))) {
		if (jobs->listing) {
			r = sbx_wait_moving(&wait, &jobs->moved_ms);
			continue;
		}
		jobs->listing = true;
		/* No job runs while the session is asleep: what is known is as it was. */
		own.no_wake = jobs->listed_ms != 0 &&
			      jobs->listed_epoch == sbx_session_epoch(jobs->session);
		own.failure = &failure;
		own.moved = jobs_moved;
		own.moved_arg = jobs;
		memset(&failure, 0, sizeof(failure));
		pthread_mutex_unlock(&jobs->lock);
		r = jobs_list_once(jobs, &own);
		if (r < 0 && call->failure)
			*call->failure = failure;
		pthread_mutex_lock(&jobs->lock);
		jobs->listing = false;
		pthread_cond_broadcast(&jobs->changed);
		if (r == -ESTALE && own.no_wake && failure.session_not_found) {
			r = 0;
			break;
		}
	}
	pthread_mutex_unlock(&jobs->lock);
	sbx_wait_end(&wait);
	return r;
}

static int id_compare(const void *a, const void *b)
{
	const struct sbx_job *x = *(struct sbx_job *const *)a, *y = *(struct sbx_job *const *)b;

	if (x->started_ms != y->started_ms && x->started_ms && y->started_ms)
		return x->started_ms < y->started_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

static GPtrArray *jobs_sorted_locked(struct sbx_jobs *jobs)
{
	GPtrArray *all = g_ptr_array_new();
	GHashTableIter iter;
	void *job;

	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &job))
		g_ptr_array_add(all, job);
	g_ptr_array_sort(all, id_compare);
	return all;
}

static int64_t jobs_ttl_ago_ms(struct sbx_jobs *jobs)
{
	return sbx_clock_ms() - jobs->options.ttl_ms;
}

int sbx_jobs_list(struct sbx_jobs *jobs, const struct sbx_call *call, char ***ret_ids)
{
	g_autoptr(GPtrArray) all = NULL;
	GPtrArray *ids;
	int r;

	r = jobs_refresh_list(jobs, call, jobs_ttl_ago_ms(jobs));
	pthread_mutex_lock(&jobs->lock);
	if (r < 0 && (r == -EINTR || !g_hash_table_size(jobs->by_id))) {
		pthread_mutex_unlock(&jobs->lock);
		return r;
	}
	ids = g_ptr_array_new();
	all = jobs_sorted_locked(jobs);
	for (guint i = 0; i < all->len; i++)
		g_ptr_array_add(ids, g_strdup(((struct sbx_job *)g_ptr_array_index(all, i))->id));
	pthread_mutex_unlock(&jobs->lock);
	g_ptr_array_add(ids, NULL);
	*ret_ids = (char **)g_ptr_array_free(ids, FALSE);
	return 0;
}

int sbx_jobs_list_now(struct sbx_jobs *jobs, const struct sbx_call *call)
{
	return jobs_refresh_list(jobs, call, sbx_clock_ms());
}

static struct sbx_job *jobs_known(struct sbx_jobs *jobs, const char *id)
{
	struct sbx_job *job;

	pthread_mutex_lock(&jobs->lock);
	job = g_hash_table_lookup(jobs->by_id, id);
	if (job)
		sbx_job_ref(job);
	pthread_mutex_unlock(&jobs->lock);
	return job;
}

int sbx_jobs_find(struct sbx_jobs *jobs, const struct sbx_call *call, const char *id,
		  struct sbx_job **ret_job)
{
	struct sbx_job *job;
	int r = 0;

	if (!sbx_job_id_is_valid(id))
		return -ENOENT;
	job = jobs_known(jobs, id);
	if (!job) {
		r = jobs_refresh_list(jobs, call, jobs_ttl_ago_ms(jobs));
		job = jobs_known(jobs, id);
	}
	if (!job)
		return r < 0 ? r : -ENOENT;
	*ret_job = job;
	return 0;
}

int sbx_jobs_latest(struct sbx_jobs *jobs, const struct sbx_call *call, char **ret_id)
{
	g_autoptr(GPtrArray) all = NULL;
	char *id = NULL;
	int r;

	r = jobs_refresh_list(jobs, call, jobs_ttl_ago_ms(jobs));
	pthread_mutex_lock(&jobs->lock);
	all = jobs_sorted_locked(jobs);
	if (all->len)
		id = g_strdup(((struct sbx_job *)g_ptr_array_index(all, all->len - 1))->id);
	pthread_mutex_unlock(&jobs->lock);
	if (!id)
		return r < 0 ? r : -ENOENT;
	*ret_id = id;
	return 0;
}

bool sbx_jobs_any_running(struct sbx_jobs *jobs)
{
	GHashTableIter iter;
	bool running = false;
	void *job;

	pthread_mutex_lock(&jobs->lock);
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (!running && g_hash_table_iter_next(&iter, NULL, &job))
		running = !((struct sbx_job *)job)->ended;
	pthread_mutex_unlock(&jobs->lock);
	return running;
}

/* Asking a job --------------------------------------------------------------------------------- */

static int job_ask(struct sbx_job *job, const struct sbx_call *call, const char *words)
{
	struct sbx_jobs *jobs = job->jobs;
	const struct sbx_probe_reply *probe;
	struct sbx_program_request request;
	struct sbx_program_limits limits;
	struct sbx_job_look *look = NULL;
	g_autofree char *ask_id = NULL;
	char random[ASK_CHARS + 1];
	int r;

	r = sbx_names_probe(jobs->names, call, &probe);
	if (r < 0)
		return r;
	/* By time: what one program asks for is done in that order. */
	sbx_random_hex(random, ASK_CHARS);
	ask_id = g_strdup_printf("%013" G_GINT64_MODIFIER "x-%s", (guint64)g_get_real_time() / 1000,
				 random);
	sbx_names_limits(jobs->names, &limits);
	r = sbx_job_ask_request(job->dir, ask_id, words, &probe->tools, &limits, &request);
	if (r < 0) {
		sbx_program_request_clear(&request);
		return r;
	}
	r = jobs_look(jobs, call, &request, true, &look);
	if (r < 0)
		return r;
	r = -look->error;
	sbx_job_look_free(look);
	pthread_mutex_lock(&jobs->lock);
	if (r == 0)
		job->reader_until_ms = MAX(job->reader_until_ms, sbx_clock_ms() + 5000);
	jobs->interval_ms = 0;
	jobs_poll_now_locked(jobs);
	pthread_mutex_unlock(&jobs->lock);
	return r;
}

static bool job_has_ended(struct sbx_job *job)
{
	bool ended;

	pthread_mutex_lock(&job->jobs->lock);
	ended = job->ended;
	pthread_mutex_unlock(&job->jobs->lock);
	return ended;
}

int sbx_job_signal(struct sbx_job *job, const struct sbx_call *call, const char *name)
{
	g_autofree char *words = NULL;

	if (g_str_has_prefix(name, "SIG"))
		name += 3;
	words = g_strdup_printf("signal %s", name);
	return job_has_ended(job) ? -ESRCH : job_ask(job, call, words);
}

int sbx_job_cancel(struct sbx_job *job, const struct sbx_call *call)
{
	int r;

	if (job_has_ended(job))
		return -ESRCH;
	/* A job without a leader of ours gets its exit when it is dead already. */
	pthread_mutex_lock(&job->jobs->lock);
	job->cancelling++;
	pthread_mutex_unlock(&job->jobs->lock);
	r = job_ask(job, call, "cancel");
	pthread_mutex_lock(&job->jobs->lock);
	job->cancelling--;
	job->cancelled_ms = sbx_clock_ms();
	pthread_mutex_unlock(&job->jobs->lock);
	return r;
}

int sbx_job_remove(struct sbx_job *job, const struct sbx_call *call)
{
	struct sbx_jobs *jobs = job->jobs;
	int r = job_ask(job, call, NULL);

	if (r < 0 && r != -ENOENT)
		return r;
	pthread_mutex_lock(&jobs->lock);
	job_vanished_locked(job);
	pthread_mutex_unlock(&jobs->lock);
	return 0;
}
