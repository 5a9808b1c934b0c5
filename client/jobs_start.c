#include "client/jobs.h"

#include <errno.h>
#include <string.h>

#include "client/jobs_impl.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/random.h"
#include "client/session.h"
#include "client/workspace/names.h"
#include "client/workspace/workspace.h"

/* How long a start may stay without a sign before it has failed. */
#define START_TIMEOUT_MS 10000
#define START_LOOKS_MAX	 3
/* For how long one look waits for a trace, in twentieths of a second. */
#define START_LOOKS 40

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

struct starting {
	struct sbx_jobs *jobs;
	const struct sbx_job_spec *spec;
	const char *op;
	struct sbx_program_request request; /* the leader's */
	struct leader *leader; /* NULL: not sent */
	bool resent;
};

/* Send the leader. A lost answer is no failure: the start is looked for. */
static int start_send(struct starting *starting, const struct sbx_call *call)
{
	struct sbx_exec_spec exec = { .argv = sbx_program_request_argv(&starting->request) };
	struct leader *leader = g_new0(struct leader, 1);
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	int r;

	atomic_init(&leader->refs, 2);
	pthread_mutex_init(&leader->lock, NULL);
	own.failure = &failure;
	r = sbx_session_exec_detached(starting->jobs->session, &own, &exec, leader_answered,
				      leader);
	if (r < 0)
		leader_unref(leader); /* never called */
	if (r < 0 && !failure.maybe_done) {
		if (call->failure)
			*call->failure = failure;
		leader_unref(leader);
		return r;
	}
	if (starting->leader)
		leader_unref(starting->leader);
	starting->leader = leader;
	return 0;
}

static void leader_state(struct leader *leader, bool *ret_answered, int *ret_error)
{
	pthread_mutex_lock(&leader->lock);
	*ret_answered = leader->answered;
	*ret_error = leader->answered ? leader->error : 0;
	pthread_mutex_unlock(&leader->lock);
}

/* There was no session: it did not run, and won't. */
static bool leader_was_refused(struct leader *leader)
{
	bool answered;
	int error;

	leader_state(leader, &answered, &error);
	return error == -ESTALE;
}

/* One look for what has become of it. */
static int start_look(const struct starting *starting, const struct sbx_call *call,
		      unsigned int looks, struct sbx_job_look **ret_look)
{
	struct sbx_jobs *jobs = starting->jobs;
	g_autofree const char **roots = jobs_roots(jobs);
	const struct sbx_probe_reply *probe;
	struct sbx_program_request request;
	struct sbx_program_limits limits;
	int r;

	r = sbx_names_probe(jobs->names, call, &probe);
	if (r < 0)
		return r;
	sbx_names_limits(jobs->names, &limits);
	r = sbx_job_started_request(starting->spec->id, starting->op, looks, roots, &probe->tools,
				    &limits, &request);
	if (r < 0) {
		sbx_program_request_clear(&request);
		return r;
	}
	return jobs_look(jobs, call, &request, true, ret_look);
}

/* The job of @record, which is the one that was started. */
static struct sbx_job *start_job(const struct starting *starting,
				 const struct sbx_job_record *record)
{
	g_autofree char *dir = g_strdup_printf("%s/%s", record->root, record->id);
	struct sbx_jobs *jobs = starting->jobs;
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
	job_take_record_locked(job, record);
	pthread_mutex_unlock(&jobs->lock);
	pthread_mutex_lock(&starting->leader->lock);
	starting->leader->job = sbx_job_ref(job);
	pthread_mutex_unlock(&starting->leader->lock);
	return job;
}

/*
 * Wait until the start has made its job, or said why not. The leader's request is answered when the
 * job has ended, so it can't find out by itself that its session was asleep: that the looks do,
 * which wake it, and then it is sent once more.
 */
static int start_await(struct starting *starting, const struct sbx_call *call,
		       struct sbx_job **ret_job)
{
	int64_t until_ms = sbx_clock_ms() + START_TIMEOUT_MS;
	unsigned int looks = START_LOOKS;
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	int lost = -EIO, unread = 0, r = 0;

	own.no_wake = true;
	own.failure = &failure;
	while (r == 0) {
		struct sbx_job_look *look = NULL;
		bool answered;
		int error;

		/* Looked at before asking: an answer that comes first still leaves its traces. */
		leader_state(starting->leader, &answered, &error);
		if (error < 0 && error != -ECANCELED)
			lost = error;
		memset(&failure, 0, sizeof(failure));
		r = start_look(starting, &own, looks, &look);
		looks = START_LOOKS;
		if (r == -ESTALE && own.no_wake && failure.session_not_found) {
			/* It was refused, too. */
			own.no_wake = false;
			looks = 1;
			r = 0;
			continue;
		}
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
			*ret_job = start_job(starting, g_ptr_array_index(look->records, 0));
			sbx_job_look_free(look);
			return 0;
		} else if (leader_was_refused(starting->leader) && !starting->resent) {
			starting->resent = true;
			r = start_send(starting, &own);
		} else if (look->error == EAGAIN && (answered || sbx_clock_ms() >= until_ms)) {
			/* The look itself waits for two seconds. */
			r = answered ? lost : -ETIMEDOUT;
		}
		sbx_job_look_free(look);
	}
	if (call->failure)
		*call->failure = failure;
	return r;
}

/* It has failed, as far as anybody is told: the leader is not to begin after that. */
static void start_call_off(const struct starting *starting)
{
	if (starting->leader)
		sbx_names_give_up(starting->jobs->names, starting->op);
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
	g_autofree char *made_id = NULL, *session = NULL;
	char op[SBX_JOB_OP_CHARS + 1];
	struct sbx_job_spec own = *spec;
	struct starting starting = { .jobs = jobs, .spec = &own };
	const struct sbx_probe_reply *probe;
	struct sbx_program_limits limits;
	int r;

	if (!spec->command_len || (spec->id && !sbx_job_id_is_valid(spec->id)) ||
	    spec->timeout_s < 0)
		return -EINVAL;
	if (!own.id)
		own.id = made_id = job_make_id();
	r = sbx_names_probe(jobs->names, call, &probe);
	if (r < 0)
		return r;
	/* The command sees what was written before it, but for what can't be sent. */
	r = sbx_ws_sync_most(jobs->ws, call, "jobs/new");
	if (r < 0)
		return r;
	sbx_random_hex(op, SBX_JOB_OP_CHARS);
	starting.op = op;
	session = sbx_session_id(jobs->session);
	sbx_names_limits(jobs->names, &limits);
	r = sbx_job_run_request(&own, op, session, jobs->spare_root, probe->setsid, &probe->tools,
				&limits, &starting.request);
	if (r == 0)
		r = start_send(&starting, call);
	if (r == 0)
		r = start_await(&starting, call, ret_job);
	if (r == -ETIMEDOUT || r == -EHOSTUNREACH || r == -EIO)
		start_call_off(&starting);
	if (starting.leader)
		leader_unref(starting.leader);
	if (r == 0) {
		pthread_mutex_lock(&jobs->lock);
		(void)jobs_start_task_locked(jobs, 0, jobs_prune, jobs);
		pthread_mutex_unlock(&jobs->lock);
	}
	sbx_program_request_clear(&starting.request);
	return r;
}
