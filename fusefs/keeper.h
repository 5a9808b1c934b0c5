/*
 * keeper - what the mount does by itself so that no work is lost to a sandbox's sleep: it keeps
 * sessions awake that could not be woken again, and persists what has changed.
 *
 *  - Kept awake by one cheap request an interval, where nothing else was asked: a session whose
 *    tree the server could archive but not thaw (risk), one with a running job (jobs), or each
 *    (all).
 *  - Persisted, where it differs from its newest snapshot: a session at risk when nobody used it
 *    for a while, and at unmount; with autopersist each, every so often, when some program used it
 *    lately. Such snapshots are called auto-TIME; the newest few of them are kept.
 *
 * Only sessions that were seen alive and whose lock this mount holds; a sleeping one is never
 * woken.
 *
 * A thread of its own, which blocks on requests one session after another; no lock is held then.
 */
#ifndef SBX_FUSEFS_KEEPER_H
#define SBX_FUSEFS_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct keeper;

/* Times in milliseconds. */
struct keeper_options {
	bool keep_risk;
	bool keep_jobs;
	bool keep_all;
	int64_t interval_ms; /* between two requests that keep a session awake */
	int64_t quiet_ms; /* nobody used it for so long: persist what is at risk */
	int64_t recent_ms; /* autopersist: some program used it within this time */
	int64_t autopersist_ms; /* 0: off */
	unsigned int autopersist_keep; /* snapshots of ours that are kept; at least 1 */
};

/* Starts the thread. @fs is borrowed and outlives it. -EAGAIN, -ENOMEM. */
int keeper_new(struct fs *fs, const struct keeper_options *options, struct keeper **ret_keeper);

/* Ends the thread; what it waits for is given up. NULL is allowed. */
void keeper_stop(struct keeper *keeper);
/*
 * After keeper_stop(), at unmount: persist what is at risk and has changed. Takes five minutes at
 * most for all sessions together, and ends at keeper_give_up(), which may have come before. NULL is
 * allowed to both.
 */
void keeper_unmount(struct keeper *keeper);
void keeper_give_up(struct keeper *keeper); /* from any thread */
void keeper_free(struct keeper *keeper); /* NULL is allowed */

#endif
