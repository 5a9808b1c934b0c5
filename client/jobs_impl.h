/*
 * jobs_impl - what jobs.c (the table and what is asked of a job), jobs_follow.c (the poll) and
 * jobs_spool.c (what is kept of a log) share. Nobody else includes it. Locking: jobs.h; `_locked`
 * means jobs->lock.
 */
#ifndef SBX_CLIENT_JOBS_IMPL_H
#define SBX_CLIENT_JOBS_IMPL_H

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/call.h"
#include "client/job.h"
#include "client/jobs.h"

struct sbx_names;
struct sbx_session;

struct sbx_job_waiter {
	struct sbx_job *job; /* a reference */
	struct sbx_job_waiter *next; /* jobs->lock */
	int64_t until_ms; /* 0: no bound */
	void (*fn)(void *arg, int result);
	void *arg;
	bool queued; /* jobs->lock: fn has not been taken to run */
	_Atomic int refs; /* the list's and the caller's */
};

struct sbx_job {
	_Atomic int refs;
	struct sbx_jobs *jobs; /* a reference */
	char *id;
	char *dir; /* in the sandbox, as its commands reach it from the workspace's root */
	char *op; /* "" for one that was not started by us */

	/* jobs->lock from here on */
	enum sbx_job_state state;
	bool has_exit_code;
	int exit_code;
	int64_t started_ms;
	int64_t ended_ms;
	unsigned int left;
	char *meta; /* NULL: none yet */
	char *command;
	int64_t known_ms; /* monotonic, when it became known here */
	bool removed;
	bool mine; /* started by this mount */

	uint64_t remote_bytes; /* what the log held when it was last seen; once ended: then */
	bool ended; /* an end was seen; the state is shown when all is spooled */
	enum sbx_job_state ended_state;
	unsigned int cancelling; /* requests under way: its death is not yet its end */
	int64_t cancelled_ms; /* the last one's answer; 0: none */
	bool seen_dead; /* no leader and no exit, seen once: it may have ended between the looks */

	int spool_fd;
	bool spool_named; /* a later mount finds it */
	uint64_t spooled; /* bytes of the log that came, from 0 */
	unsigned char tail[3]; /* the last of them, of a running job */
	uint64_t visible;
	uint64_t spool_from; /* what lies before made room: read from the sandbox */
	bool spool_dropped; /* all of it, for good: did not fit, or made room for others */
	bool spool_forgotten; /* of a removed job: counts no more */

	GByteArray *window; /* asked for ahead of who reads what is not kept; NULL: none */
	uint64_t window_offset;

	int64_t reader_until_ms; /* somebody reads until then */
	int64_t looked_ms; /* when somebody last asked whether it has ended */
	bool wants_bytes; /* somebody waits for bytes that are not spooled */
	int64_t polled_ms; /* when the last answered poll of it was sent */
	unsigned int waiting; /* threads in sbx_job_wait() */
	struct sbx_job_waiter *waiters;
	int64_t timer_ms; /* when they are looked through for those whose time is over; 0: never */
};

struct sbx_jobs {
	_Atomic int refs;
	struct sbx_workspace *ws;
	struct sbx_names *names;
	struct sbx_session *session;
	struct sbx_jobs_options options;
	char *extra_root;
	char *spare_root;
	struct sbx_cancel *cancel; /* fires when it ends */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a poll, a list or a task has ended */
	GHashTable *by_id; /* id -> struct sbx_job, a reference each */
	bool stopped;
	unsigned int tasks; /* of ours that run on the pool */

	int64_t listed_ms; /* when the last answered list was sent; 0: never */
	uint64_t listed_epoch;
	bool listing;
	int list_result;

	bool polling;
	bool poll_again; /* at once after the one under way */
	int64_t moved_ms; /* when a poll or a list last got on */
	uint64_t poll_serial; /* a delayed poll of another serial is stale */
	int64_t interval_ms;
	int poll_result;
	size_t chunk_bytes;

	int spool_dirfd;
};

/* A job that becomes known; a reference that the table holds as well. */
struct sbx_job *job_new_locked(struct sbx_jobs *jobs, const char *id, const char *dir,
			       const char *op);
/* Take over what a list or a poll told; starts what waits for a final state. */
void job_take_record_locked(struct sbx_job *job, const struct sbx_job_record *record);
void job_take_end_locked(struct sbx_job *job, bool has_exit, int exit_code,
			 const struct sbx_job_end *end, enum sbx_job_life life);
/* The sandbox has it no more: out of the table, who waits for it is told. The caller has a
 * reference. Unlocks and locks again. */
void job_vanished_locked(struct sbx_job *job);
/* Run what waits for @job when its state is final. Unlocks and locks again. */
void job_tell_waiters_locked(struct sbx_job *job, int result);

/* A list of all jobs, sent after @not_before_ms; single flight. -errno of the request. */
int jobs_refresh_list(struct sbx_jobs *jobs, const struct sbx_call *call, int64_t not_before_ms);

/* Directories that hold jobs of this session, NULL at the end; g_free() the array alone. */
const char **jobs_roots(struct sbx_jobs *jobs);
/* One run of joblook.sh. @request is cleared. */
int jobs_look(struct sbx_jobs *jobs, const struct sbx_call *call,
	      struct sbx_program_request *request, bool repeatable, struct sbx_job_look **ret_look);

/* Start a task on the pool. sbx_jobs_free() waits for those that run; @fn runs in any case, with
 * jobs->stopped set when it comes too late, and then touches nothing but its own. */
int jobs_start_task_locked(struct sbx_jobs *jobs, int64_t delay_ms, int (*fn)(void *arg),
			   void *arg);

/* jobs_spool.c ------------------------------------------------------------------------------ */

/* Open the directory of spools, bound what earlier mounts left there, and load what is known of
 * ended jobs. */
void jobs_spool_open(struct sbx_jobs *jobs);
/* Find or make the spool of @job. */
void job_spool_open_locked(struct sbx_job *job);
/* By the last who has the job, or with the lock. */
void job_spool_close(struct sbx_job *job);
/* Of a removed job: no later mount is to find it, and it counts no more. What is open stays. */
void job_spool_forget_locked(struct sbx_job *job);
/* More of the log has come; a spool that can't take it is dropped, and `errors` told. */
void job_spool_append_locked(struct sbx_job *job, const void *data, size_t len);
/* Whether the log is kept here from @offset on, as far as it has come. */
bool job_spool_has_locked(const struct sbx_job *job, uint64_t offset);
/* An ended job whose log is here whole is remembered: it stays readable without its session. */
void job_spool_save_end_locked(struct sbx_job *job);

/* jobs_follow.c ----------------------------------------------------------------------------- */

/* sbx_call.moved of a request for whose end others wait; @arg: the jobs. */
void jobs_moved(void *arg);
/* Have a poll sent now. */
void jobs_poll_now_locked(struct sbx_jobs *jobs);
/* What is shown of a job's log and state follows from what is known. */
void job_update_visible_locked(struct sbx_job *job);

#endif
