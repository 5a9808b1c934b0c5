/*
 * daemon - going into the background, and being told to end.
 *
 * daemon_detach() forks before any thread is started; the parent stays until the child reports: so
 * the shell has its prompt back when the mount works, and the exit status says why it does not.
 *
 * Signals: SIGTERM, SIGINT and SIGHUP are blocked in every thread and taken by one thread of
 * daemon's own, which calls the given function at each of them.
 *
 * One instance a process; called from main's thread only.
 */
#ifndef SBX_FUSEFS_DAEMON_H
#define SBX_FUSEFS_DAEMON_H

#include <pthread.h>

struct daemon {
	int report_fd; /* -1: in the foreground, or reported already */
	pthread_t signals;
	int has_signals;
	void (*on_end)(void *arg);
	void *arg;
};

/* Open what is closed of 0, 1, 2, so that no file of ours takes their place. */
void daemon_fix_stdio(void);

/*
 * Fork; the child returns 0, the parent never does: it ends with the status that the child reports,
 * or @lost_status when the child dies without a report. -errno when there is no child.
 */
int daemon_detach(struct daemon *daemon, int lost_status);

/* Let the parent end with @status; stdin, stdout and stderr then lead to /dev/null. */
void daemon_report(struct daemon *daemon, int status);

/* Block the ending signals in this thread and those started later. */
void daemon_block_signals(void);

/* Start the thread that takes them; @on_end runs in it at each. 0 or -errno. */
int daemon_watch_signals(struct daemon *daemon, void (*on_end)(void *arg), void *arg);
void daemon_unwatch_signals(struct daemon *daemon);

#endif
