/*
 * task - work that goes on although the caller has been let go.
 *
 * A FUSE request may be interrupted at any time, but an upload or a mutation that was begun must
 * not be. So such work runs on the threads of a pool, and whoever asked for it waits for it with a
 * wait that can be cancelled. Threads are started on demand (small stacks) and end when idle.
 *
 * What is delayed runs when it is due, however long other tasks take, while the pool has a thread
 * to give. A task that waits for another one of the pool holds its thread meanwhile; so that many
 * of them can't keep from running what they wait for, that is started by sbx_task_start_now().
 *
 * A task is a reference-counted object: the pool holds one reference until it has run, the creator
 * another. Locking: one lock a pool and one a task, both innermost.
 */
#ifndef SBX_CLIENT_TASK_H
#define SBX_CLIENT_TASK_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_call; /* client/call.h */
struct sbx_task;
struct sbx_task_pool;

/* Runs on a thread of the pool. The returned 0 or negative errno is what waiters get. */
typedef int (*sbx_task_fn)(void *arg);

/* @max_threads bounds how many tasks run at once, but for those of sbx_task_start_now(); what is
 * beyond it queues in order. NULL on ENOMEM. */
struct sbx_task_pool *sbx_task_pool_new(unsigned int max_threads);

/* Waits until nothing runs and nothing is queued to run now; what is delayed stays so. Others may
 * start tasks meanwhile, which are waited for as well. */
void sbx_task_pool_quiesce(struct sbx_task_pool *pool);

/* Waits for all tasks, queued ones too, delayed ones run at once; then ends the threads. */
void sbx_task_pool_free(struct sbx_task_pool *pool);

/*
 * Start @fn(@arg). @arg_free (may be NULL) is called on @arg after @fn has returned. *ret_task may
 * be NULL when nobody will wait. Returns 0 or -ENOMEM/-EAGAIN (nothing was started, @arg not
 * freed).
 */
int sbx_task_start(struct sbx_task_pool *pool, sbx_task_fn fn, void *arg, void (*arg_free)(void *),
		   struct sbx_task **ret_task);

/* As sbx_task_start(), and whatever else runs or queues: for what other tasks wait for, of which
 * there are only a few a session. */
int sbx_task_start_now(struct sbx_task_pool *pool, sbx_task_fn fn, void *arg,
		       void (*arg_free)(void *), struct sbx_task **ret_task);

/* Start @fn(@arg) after @delay_ms, not earlier. Else as sbx_task_start(). */
int sbx_task_start_after(struct sbx_task_pool *pool, int64_t delay_ms, sbx_task_fn fn, void *arg,
			 void (*arg_free)(void *), struct sbx_task **ret_task);

/* Wait until the task has run: its result; -EINTR when @call is cancelled (the task goes on);
 * -ETIMEDOUT after @timeout_ms (negative: no bound). */
int sbx_task_wait(struct sbx_task *task, const struct sbx_call *call, int64_t timeout_ms);

/* Another reference; NULL is allowed. */
struct sbx_task *sbx_task_ref(struct sbx_task *task);
void sbx_task_unref(struct sbx_task *task);

#endif
