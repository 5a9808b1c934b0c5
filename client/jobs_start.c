#include "client/jobs.h"

#include <errno.h>
#include <string.h>

#include "client/jobs_impl.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/workspace/names.h"
#include "client/workspace/workspace.h"

/* How long a start may stay without a sign before it has failed. */
#define START_TIMEOUT_MS 10000
#define START_LOOKS_MAX	 3

/*
 * The exec that is the leader. Its answer comes when the job has ended, maybe hours later and after
 * the jobs object is freed, so it holds what it touches.
 */
struct leader {
	_Atomic int refs;
	struct sbx_job *job; /* a reference; NULL: refused before it was one */
	pthread_mutex_t lock;
	bool answered;
	int error;
};

static void leader_unref(struct leader *leader)
{
	if (atomic_fetch_sub(&leader->refs, 1) != 1)
		return;
	sbx_job_unref(leader->job);
	pthread_mutex_destroy(&leader->lock);
	g_free(leader);
}

static void leader_answered(void *arg, int error, const struct sbx_exec_result *result)
{
	struct leader *leader = arg;
	struct sbx_job *job;

	(void)result;
	pthread_mutex_lock(&leader->lock);
	leader->answered = true;
	leader->error = error;
	job = leader->job;
	pthread_mutex_unlock(&leader->lock);
	/* It has ended: whoever reads it need not wait for the next poll. */
	if (job && error == 0) {
		pthread_mutex_lock(&job->jobs->lock);
		jobs_poll_now_locked(job->jobs);
		pthread_mutex_unlock(&job->jobs->lock);
	}
	leader_unref(leader);
}

static char *job_make_id(void)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	char random[7];

	for (int i = 0; i < 6; i++)
		random[i] = digits[g_random_int_range(0, 36)];
	random[6] = '\0';
	return g_strdup_printf("%" G_GINT64_FORMAT "-%s", g_get_real_time() / 1000, random);
}

/* Wait until the start @op has made its job, or said why not. */
static int start_await(struct sbx_jobs *jobs, const struct sbx_call *call,
		       const struct sbx_job_spec *spec, const char *op, struct leader *leader,
		       struct sbx_job **ret_job)
{
	int64_t until_ms = sbx_clock_ms() + START_TIMEOUT_MS;
	g_autofree const char **roots = jobs_roots(jobs);
	const struct sbx_probe_reply *probe;
	int lost = -EIO, unread = 0, r;

	r = sbx_names_probe(jobs->names, call, &probe);
	while (r == 0) {
		struct sbx_program_request request;
		struct sbx_program_limits limits;
		struct sbx_job_look *look = NULL;
		bool answered;

		/* Looked at before asking: an answer that comes first still leaves its traces. */
		pthread_mutex_lock(&leader->lock);
		answered = leader->answered;
		if (answered && leader->error < 0 && leader->error != -ECANCELED)
			lost = leader->error;
		pthread_mutex_unlock(&leader->lock);

		sbx_names_limits(jobs->names, &limits);
		if (sbx_job_started_request(spec->id, op, roots, &probe->tools, &limits, &request) <
		    0) {
			sbx_program_request_clear(&request);
			return -EIO;
		}
		r = jobs_look(jobs, call, &request, true, &look);
		/* The leader may be at work: one answer that was lost is no reason to forget it. */
		if (r == -EIO && ++unread < START_LOOKS_MAX) {
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		if (look->error && look->error != EAGAIN) {
			r = -look->error;
		} else if (look->records->len == 1) {
			const struct sbx_job_record *record = g_ptr_array_index(look->records, 0);
			g_autofree char *dir = g_strdup_printf("%s/%s", record->root, record->id);
			struct sbx_job *job;

			pthread_mutex_lock(&jobs->lock);
			job = g_hash_table_lookup(jobs->by_id, record->id);
			if (job)
				sbx_job_ref(job);
			else
				job = job_new_locked(jobs, record->id, dir, record->op);
			job->mine = true;
			/* Fetched from the start: nobody has to ask for what is short. */
			job->seen_dead = false;
			job_spool_open_locked(job);
			if (!job->meta && !record->has_exit)
				job->state = SBX_JOB_STARTING;
			job_take_record_locked(job, record, look->clock_s);
			pthread_mutex_unlock(&jobs->lock);
			pthread_mutex_lock(&leader->lock);
			leader->job = sbx_job_ref(job);
			pthread_mutex_unlock(&leader->lock);
			sbx_job_look_free(look);
			*ret_job = job;
			return 0;
		} else if (look->error == EAGAIN && (answered || sbx_clock_ms() >= until_ms)) {
			/* The look itself waits for two seconds. */
			r = answered ? lost : -ETIMEDOUT;
		}
		sbx_job_look_free(look);
	}
	return r;
}

/* Older ended jobs that this mount started go when there are more than are to be kept. */
static int jobs_prune(void *arg)
{
	struct sbx_jobs *jobs = arg;
	struct sbx_call call = { .cancel = jobs->cancel,
				 .stall_timeout_ms = sbx_session_options(jobs->session)->timeout_ms,
				 .background = true };

	for (;;) {
		struct sbx_job *oldest = NULL;
		unsigned int ended = 0;
		GHashTableIter iter;
		void *value;
		int r;

		pthread_mutex_lock(&jobs->lock);
		if (jobs->stopped) {
			pthread_mutex_unlock(&jobs->lock);
			return 0;
		}
		g_hash_table_iter_init(&iter, jobs->by_id);
		while (g_hash_table_iter_next(&iter, NULL, &value)) {
			struct sbx_job *job = value;

			if (!job->mine || !sbx_job_state_is_final(job->state))
				continue;
			ended++;
			/* The sandbox tells whole seconds; ids sort by time within one. */
			if (!oldest || job->started_ms < oldest->started_ms ||
			    (job->started_ms == oldest->started_ms &&
			     strcmp(job->id, oldest->id) < 0))
				oldest = job;
		}
		if (ended > jobs->options.keep)
			sbx_job_ref(oldest);
		else
			oldest = NULL;
		pthread_mutex_unlock(&jobs->lock);
		if (!oldest)
			return 0;
		r = sbx_job_remove(oldest, &call);
		sbx_job_unref(oldest);
		if (r < 0)
			return r;
	}
}

int sbx_jobs_start(struct sbx_jobs *jobs, const struct sbx_call *call,
		   const struct sbx_job_spec *spec, struct sbx_job **ret_job)
{
	struct sbx_failure failure = { 0 };
	struct sbx_program_request request;
	struct sbx_program_limits limits;
	const struct sbx_probe_reply *probe;
	g_autofree char *made_id = NULL, *session = NULL, *op = NULL;
	struct sbx_job_spec own = *spec;
	struct sbx_call start = *call;
	struct sbx_exec_spec exec = { 0 };
	struct leader *leader;
	int r;

	if (!spec->command_len || (spec->id && !sbx_job_id_is_valid(spec->id)) ||
	    spec->timeout_s < 0)
		return -EINVAL;
	if (!own.id)
		own.id = made_id = job_make_id();
	r = sbx_names_probe(jobs->names, call, &probe);
	if (r < 0)
		return r;
	/* The command sees what was written before it. */
	r = sbx_ws_sync(jobs->ws, call);
	if (r < 0)
		return r;
	op = g_strdup_printf("%08x%08x%08x%08x", g_random_int(), g_random_int(), g_random_int(),
			     g_random_int());
	session = sbx_session_id(jobs->session);
	sbx_names_limits(jobs->names, &limits);
	r = sbx_job_run_request(&own, op, session, jobs->spare_root, probe->setsid, &probe->tools,
				&limits, &request);
	if (r < 0)
		goto out;
	leader = g_new0(struct leader, 1);
	atomic_init(&leader->refs, 2);
	pthread_mutex_init(&leader->lock, NULL);
	exec.argv = sbx_program_request_argv(&request);
	start.failure = &failure;
	r = sbx_session_exec_detached(jobs->session, &start, &exec, leader_answered, leader);
	if (r < 0)
		leader_unref(leader); /* never called */
	/* A lost answer is no failure: the start is looked for. */
	if (r == 0 || failure.maybe_done)
		r = start_await(jobs, call, &own, op, leader, ret_job);
	leader_unref(leader);
	if (r == 0) {
		pthread_mutex_lock(&jobs->lock);
		(void)jobs_start_task_locked(jobs, 0, jobs_prune, jobs);
		pthread_mutex_unlock(&jobs->lock);
	}
out:
	sbx_program_request_clear(&request);
	return r;
}
