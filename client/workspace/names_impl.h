/*
 * names_impl - the insides of struct sbx_names, shared by the modules that names.h describes:
 * names.c (what is asked of the store), runner.c (one run of a program), freshen.c (how listings
 * become fresh), mutate.c (the queue), late.c (what of it is called off), plain.c (servers without
 * exec). For no other module.
 *
 * names->lock protects everything below it that is not marked otherwise. It is never held across a
 * request or a wait for anything but names->changed. Inside it: the session's lock, a pool's lock.
 */
#ifndef SBX_CLIENT_WORKSPACE_NAMES_IMPL_H
#define SBX_CLIENT_WORKSPACE_NAMES_IMPL_H

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/call.h"
#include "client/probe.h"
#include "client/program.h"
#include "client/workspace/meta.h"
#include "client/workspace/names.h"

/*
 * How long to wait for a request that another thread makes and that gives up after @timeout_ms: a
 * little longer, so that its end is seen first. It has the session taken for unreachable, and who
 * was waiting finds it so with the next call instead of waiting once more.
 */
#define NAMES_WAIT_MS(timeout_ms) ((timeout_ms) + (timeout_ms) / 20)

struct sbx_names {
	/* Set once. */
	struct sbx_session *session; /* own reference */
	struct sbx_task_pool *pool;
	struct sbx_workspace_options options;
	struct sbx_cancel *cancel; /* fires when the store is freed: ends our own requests */
	struct names_late *late; /* late.h */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a flight, a batch, a probe or a task has ended */
	struct sbx_meta *meta;
	uint64_t epoch; /* the session's, as last compared */
	int64_t doubted_us; /* when sbx_names_refresh() was called last; INT64_MIN: never */
	unsigned int n_tasks; /* on the pool, with a pointer to this */

	/* runner.c */
	struct sbx_program_limits limits;
	bool no_exec; /* the server has none, or nothing that our programs need */
	GPtrArray *probes; /* struct sbx_probe_reply *: all that were handed out */
	struct sbx_probe_reply *probe; /* the newest, in probes; NULL: not asked yet */
	uint64_t probe_epoch; /* of the newest */
	bool probing;
	bool clock_known;
	int64_t clock_low_ns; /* the sandbox's clock less ours (monotonic), at least */
	int64_t clock_high_ns; /* ... and at most */

	/* freshen.c */
	GPtrArray *flights; /* struct names_flight *: queued and under way */
	int64_t fastest_us; /* quickest scan so far: round trip and start of the tools */
	int64_t group_sent_us; /* when the last group was asked for */
	int64_t asleep_us; /* when the session was last asked and found to be asleep; 0: never */
	char *walk_next; /* the directory behind those that were last asked for ahead; or NULL */
	guint walk_ahead; /* how many directories are asked for ahead */
	double entry_cost_us; /* estimate: time of the sandbox an entry of a scan */
	_Atomic int64_t
		slow_us; /* how long the last look took, at more than can be had within ttl */

	/* mutate.c */
	GQueue waiting; /* struct mutation * */
	struct sbx_claims *claims; /* what the requests under way are about */
	unsigned int n_senders; /* tasks that work the queue off */
	unsigned int n_sent; /* of them, with a request under way */
	unsigned int n_holding; /* of them, until it is time for the next */
	int64_t sent_us; /* when the last request was sent */

	int64_t moved_ms; /* when a request that others wait for last got on */
	int64_t told_moved_ms; /* and when those who wait were last woken for that */

	/* plain.c */
	unsigned int n_plain; /* requests under way */

	/* names.c */
	struct sbx_statfs statfs;
	int64_t statfs_us; /* when it was asked for; 0: never */
	bool statfs_asking;
};

/* Microseconds of CLOCK_MONOTONIC. */
int64_t names_now_us(void);
/* Milliseconds that also pass while this machine sleeps. */
int64_t names_awake_ms(void);

/* Make what is known stale when the session's epoch grew. Takes names->lock. */
void names_check_epoch(struct sbx_names *names);

/* A call for requests of our own, which no caller can cancel. */
struct sbx_call names_own_call(struct sbx_names *names, int64_t timeout_ms);
/* @call, of a request for whose end others wait (sbx_wait_moving() on moved_ms). */
struct sbx_call names_telling(struct sbx_names *names, const struct sbx_call *call);

/* Start @fn(@arg) on the pool; counted in n_tasks, so that the store outlives it: @fn ends with
 * names_task_end(). Caller holds names->lock. */
int names_task_start_locked(struct sbx_names *names, int (*fn)(void *arg), void *arg);
/* A task that another has started begins to use the store. Both take names->lock. */
void names_task_begin(struct sbx_names *names);
void names_task_end(struct sbx_names *names);

/* The sandbox's ".sbxfs" in the workspace's root, and what is below it. */
bool names_path_is_hidden(const char *path);

/* The form in which programs and routes want a path: "." for the root. */
const char *names_wire_path(const char *path);

#endif
