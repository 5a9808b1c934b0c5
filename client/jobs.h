/*
 * jobs - long-running commands of one session, as wire.md C lays them out in the sandbox.
 *
 * A job is a directory ROOT/ID in the sandbox with meta.json, output.log and exit; its leader
 * (programs/jobrun.sh) runs inside an exec whose answer nobody waits for, which keeps the session
 * awake and lives on where nothing outlives its exec. Roots: the workspace's .sbxfs/jobs, else
 * /var/tmp/sbxfs-jobs/TAG; another one only of jobs that others start
 * (sbx_jobs_options.extra_root).
 *
 * Looking: all readers of a session share one poll (programs/jobpoll.sh), which asks for what is
 * new in the logs of those jobs that somebody reads, and whether they have ended: 250 ms after
 * bytes came, longer when silent, up to 5 s, at once for a new reader, not at all when nobody has
 * read for 15 s or all have ended. What came is spooled in the cache directory, so a byte is rarely
 * fetched twice; the spool of an ended job is read when the session has gone. What does not fit
 * there is read from the sandbox: the logs of ended jobs that nobody reads, then the beginnings of
 * long ones, the ends of which are what is followed.
 *
 * What is shown never goes back: the log only grows, an offset stays valid. While a job runs its
 * visible size ends on a whole UTF-8 character (at most 3 bytes are held back until more comes).
 * A job that has written `exit` has ended: its log is what it held then, or what is left of that;
 * `exited` is shown only when those bytes are all readable here.
 *
 * Locking: jobs->lock (the table and every job's fields), never held across a request.
 */
#ifndef SBX_CLIENT_JOBS_H
#define SBX_CLIENT_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_call;
struct sbx_job;
struct sbx_jobs;
struct sbx_workspace;

struct sbx_jobs_options {
	const char *extra_root; /* -o jobs_root=, absolute in the sandbox; NULL */
	int64_t ttl_ms; /* how old a list may be */
	unsigned int keep; /* -o jobs_keep= */
	uint64_t log_bytes; /* bound of what is kept of logs, of all sessions together */
};

enum sbx_job_state {
	SBX_JOB_STARTING, /* no meta.json yet */
	SBX_JOB_RUNNING,
	SBX_JOB_EXITED,
	SBX_JOB_CANCELLED,
	SBX_JOB_TIMEDOUT,
	SBX_JOB_CRASHED, /* its leader died without an exit */
	SBX_JOB_LOST, /* the session, or its directory there, is gone, and its end was not seen */
};

const char *sbx_job_state_name(enum sbx_job_state state);
/* EXITED and all that follow. */
bool sbx_job_state_is_final(enum sbx_job_state state);

/* What a start asks for. Strings are borrowed. */
struct sbx_job_spec {
	const char *command; /* shell text, several lines are one script; not empty */
	size_t command_len;
	const char *cwd; /* relative to the workspace or absolute in the sandbox; NULL: its root */
	const char *const *env; /* "NAME=value", NULL at the end; NULL: none */
	int64_t timeout_s; /* 0: none */
	const char *process_name; /* may be NULL */
	const char *id; /* NULL: one is made, <unix-ms>-<base36> */
};

/* A copy of what is known; sbx_job_info_done(). */
struct sbx_job_info {
	char *id;
	enum sbx_job_state state;
	bool has_exit_code;
	int exit_code; /* what `exit` holds */
	int signal; /* that ended it, 0: none or not known */
	int64_t started_ms; /* wall clock of the sandbox, ms since 1970; 0: not known */
	int64_t ended_ms;
	uint64_t log_bytes; /* visible size of output.log */
	char *command; /* NULL: not known */
	char *meta_json; /* meta.json as it stands there, NULL: none yet */
	unsigned int left; /* processes that a cancel could not reach */
};

/* @ws is borrowed. Nothing is asked. */
int sbx_jobs_new(struct sbx_workspace *ws, const struct sbx_jobs_options *options,
		 struct sbx_jobs **ret_jobs);
/* Ends the poll; jobs run on. Readers that wait get -EINTR; call when no operation uses it. */
void sbx_jobs_free(struct sbx_jobs *jobs);

/* [A-Za-z0-9][A-Za-z0-9._-]{0,63}, and not "new" or "latest". */
bool sbx_job_id_is_valid(const char *id);

/*
 * Start one: pending bytes of the session are published first, but for those of files that could
 * not be sent before, and can't be now (sbx_ws_sync_most()). Returns when its directory is there
 * with meta.json. *ret_job: a new reference. -EINVAL (id, command, cwd outside), -EEXIST (the id is
 * taken, and not by this very start), -ENOENT (cwd is missing), -EOPNOTSUPP (no exec). A lost
 * answer never starts it twice: the start carries an id of its own, which is looked for. A session
 * that is asleep is woken: the start that found none is sent once more.
 */
int sbx_jobs_start(struct sbx_jobs *jobs, const struct sbx_call *call,
		   const struct sbx_job_spec *spec, struct sbx_job **ret_job);

/* Ids of the session's jobs, oldest first, NULL at the end, g_strfreev(); as old as the workspace's
 * ttl at most. When the session can't be asked: what is known, 0 all the same if anything is. */
int sbx_jobs_list(struct sbx_jobs *jobs, const struct sbx_call *call, char ***ret_ids);
/* Have what is known of all of them no older than this call. */
int sbx_jobs_list_now(struct sbx_jobs *jobs, const struct sbx_call *call);
/* A new reference. -ENOENT: there is none (asked when the list is older than ttl). */
int sbx_jobs_find(struct sbx_jobs *jobs, const struct sbx_call *call, const char *id,
		  struct sbx_job **ret_job);
/* Id of the one started last by whomever; -ENOENT. g_free(). */
int sbx_jobs_latest(struct sbx_jobs *jobs, const struct sbx_call *call, char **ret_id);
/* Some job of the session is known to run. Never asks. */
bool sbx_jobs_any_running(struct sbx_jobs *jobs);
/* Where the logs that are kept take more than they may: give of those that nobody reads, or of
 * @also_read ones too. Call every few seconds. Blocks on the local disk only. */
void sbx_jobs_bound_logs(struct sbx_jobs *jobs, bool also_read);

struct sbx_job *sbx_job_ref(struct sbx_job *job);
void sbx_job_unref(struct sbx_job *job);

/* What is known; never asks. */
void sbx_job_info(struct sbx_job *job, struct sbx_job_info *ret_info);
void sbx_job_info_done(struct sbx_job_info *info);

/* Count as a reader from now for 15 s, and have what is shown no older than the poll's interval:
 * waits for a poll where the last is older. Errors of the poll are returned; what is known
 * stays. */
int sbx_job_look(struct sbx_job *job, const struct sbx_call *call);

/* The sandbox has it no more, and nobody has read it for a while: what was kept of it goes. False:
 * not so. */
bool sbx_job_retire(struct sbx_job *job);

/*
 * Bytes of the log at @offset, as far as they are visible; 0 at the visible end. Fetches what is
 * not spooled. Counts as a reader. -ESTALE: the job was removed, and these bytes are not here.
 */
ssize_t sbx_job_read(struct sbx_job *job, const struct sbx_call *call, void *buf, size_t size,
		     uint64_t offset);

/* Until the state is final, at most @timeout_ms (negative: no bound): 0, -ETIMEDOUT, -EINTR,
 * -ENOENT when it was removed before. Counts as a reader. Blocks the calling thread. */
int sbx_job_wait(struct sbx_job *job, const struct sbx_call *call, int64_t timeout_ms);
/*
 * The same without a thread: @fn runs once when the state is final, @timeout_ms is over (then with
 * -ETIMEDOUT), the job was removed (-ENOENT), the session is gone (-ESTALE), or the jobs are freed
 * (-ECANCELED), on some thread without locks.
 * *ret_waiter: for sbx_job_unwait(), which returns true when fn will not run any more (it has not
 * run); false: it has run, or runs.
 */
struct sbx_job_waiter;
int sbx_job_wait_async(struct sbx_job *job, int64_t timeout_ms, void (*fn)(void *arg, int result),
		       void *arg, struct sbx_job_waiter **ret_waiter);
bool sbx_job_unwait(struct sbx_job_waiter *waiter);

/* "TERM", "SIGTERM", "15"; -EINVAL: none of the sandbox's. -ESRCH: it has ended, or its leader is
 * dead. Asked for when it returns, done once, in the order of the calls. */
int sbx_job_signal(struct sbx_job *job, const struct sbx_call *call, const char *name);
/* Every descendant: SIGTERM, after 2 s SIGKILL. Returns when it was asked for; the state
 * follows. */
int sbx_job_cancel(struct sbx_job *job, const struct sbx_call *call);
/* -EBUSY while it runs. Its files here and in the sandbox are gone then. */
int sbx_job_remove(struct sbx_job *job, const struct sbx_call *call);

#endif
