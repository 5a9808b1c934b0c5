/*
 * sessionjobs - what the mount keeps of one session's jobs.
 *
 * struct sbx_jobs is made at the first use of jobs/. A session_job is one job as it shows here: its
 * number (st_ino), what was removed of it by name, the scratch files beside its control, and
 * whether its end was told. It lives while jobs/ knows the job, or a node does.
 *
 * A job's end makes caches stale before it is seen: the first that sees it drops the session's
 * caches and the kernel's before anybody is told (session_job_info).
 *
 * Locking: jobs->lock, for the table and a session_job's fields; innermost, never held while
 * something is asked or the kernel is notified.
 */
#ifndef SBX_FUSEFS_SESSIONJOBS_H
#define SBX_FUSEFS_SESSIONJOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fsession;
struct sbx_call;
struct sbx_job;
struct sbx_job_info;
struct sbx_jobs;
struct scratch_set;
struct session_jobs;

struct session_job {
	unsigned int refs; /* atomic */
	struct session_jobs *jobs;
	struct sbx_job *job; /* a reference */
	char *id;
	unsigned int number; /* from 1; never used again in this mount */
	struct scratch_set *scratch;
	/* jobs->lock */
	unsigned int hidden; /* files that were removed by name: bit by index */
	bool seen_running;
	bool telling; /* somebody saw that it has ended, and makes that visible */
	uint64_t log_bytes; /* as shown last, and since when */
	int64_t log_mtime_ns;
};

/* @fsession is borrowed and outlives it. Nothing is asked. */
struct session_jobs *session_jobs_new(struct fsession *fsession);
/* Ends polls and waits, when those who use them have ended; later ones are -EINTR. */
void session_jobs_stop(struct session_jobs *jobs);
void session_jobs_free(struct session_jobs *jobs); /* NULL is allowed */

/* The scratch files of jobs/ itself. */
struct scratch_set *session_jobs_scratch(struct session_jobs *jobs);

/*
 * The jobs of the layer below, until session_jobs_leave(); made when they are asked for first.
 * Blocks on the local disk only.
 */
int session_jobs_enter(struct session_jobs *jobs, struct sbx_jobs **ret_jobs);
void session_jobs_leave(struct session_jobs *jobs);
/* 1: a job runs; 0. With @call the sandbox is asked first, and what came of that is returned when
 * it can't be; without, as it is known. */
int session_jobs_any_running(struct session_jobs *jobs, const struct sbx_call *call);
/* Forget jobs that the sandbox has no more and nobody reads. */
void session_jobs_sweep(struct session_jobs *jobs);
/* sbx_jobs_bound_logs(), where jobs were used. */
void session_jobs_bound_logs(struct session_jobs *jobs, bool also_read);

/* A new reference. -ENOENT; errnos of sbx_jobs_find(). */
int session_jobs_find(struct session_jobs *jobs, const struct sbx_call *call, const char *id,
		      struct session_job **ret_job);
/* The one of @job, which was started here. A new reference. */
struct session_job *session_jobs_started(struct session_jobs *jobs, struct sbx_job *job);
/* Remove it in the sandbox and here. -EBUSY while it runs. */
int session_job_remove(struct session_job *job, const struct sbx_call *call);

struct session_job *session_job_ref(struct session_job *job);
void session_job_unref(struct session_job *job); /* NULL is allowed */

/* What is known of the job, as it may be shown. sbx_job_info_done(). Never asks; of a job that has
 * ended this moment waits as notify_names() does. */
void session_job_info(struct session_job *job, struct sbx_job_info *ret_info);
/* The same, as new as a reader may expect; what can't be asked is as it is known. -EINTR alone is
 * an error. */
int session_job_look(struct session_job *job, const struct sbx_call *call,
		     struct sbx_job_info *ret_info);
/* When the log's size changed last, as seen here. @bytes: its size now. */
int64_t session_job_log_time(struct session_job *job, const struct sbx_job_info *info);

bool session_job_is_hidden(struct session_job *job, unsigned int index);
void session_job_hide(struct session_job *job, unsigned int index);

/* st_ino of the job's directory (@index 0) or of a file in it (1 … 15). */
uint64_t session_job_ino(const struct session_job *job, unsigned int index);

#endif
