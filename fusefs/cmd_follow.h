/*
 * cmd_follow - a job's log to standard output, byte for byte, until the job ends.
 *
 * Signals while following: SIGINT cancels the job where that is wanted, and following goes on to
 * its end; SIGTERM, SIGHUP, SIGQUIT, and a standard output that nobody reads, end the following,
 * and the job runs on.
 */
#ifndef SBX_FUSEFS_CMD_FOLLOW_H
#define SBX_FUSEFS_CMD_FOLLOW_H

#include <stdbool.h>

/* Take the signals over: before the job is started, so that none is lost. */
void cmd_follow_begin(bool cancels);

/* The number of the signal that ended (or is to end) the following; 0. */
int cmd_follow_signal(void);

/*
 * Copy the log of @job_dir; @to_end: until the job ends, else what is there. 0; -EINTR: a signal,
 * see cmd_follow_signal(); -EPIPE; other errnos of reading and writing.
 */
int cmd_follow(const char *job_dir, bool to_end);

#endif
