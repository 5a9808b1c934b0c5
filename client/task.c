#include "client/task.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "client/call.h"

/* Enough for curl, zlib and our own frames; a thousand of them cost address space only. */
#define TASK_STACK_BYTES (256 * 1024)
#define TASK_IDLE_MS	 10000

struct sbx_task {
	struct sbx_task *next; /* pool->lock: in the ready or the delayed list */
	int64_t due_ms; /* monotonic; 0: at once */
	sbx_task_fn fn;
	void *arg;
	void (*arg_free)(void *);

	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool has_ended;
	int result;
	int refs;
};

struct sbx_task_pool {
	pthread_mutex_t lock;
	pthread_cond_t work; /* a task became ready, or a delayed one was added, or stop */
	pthread_cond_t gone; /* a thread has ended, or no task runs any more */
	struct sbx_task *ready_head;
	struct sbx_task **ready_tail;
	struct sbx_task *delayed; /* sorted by due_ms */
	unsigned int max_threads;
	unsigned int n_threads;
	unsigned int n_idle;
	unsigned int n_ready;
	unsigned int n_running;
	bool stop;
};

static void task_timespec(int64_t at_ms, struct timespec *ret_ts)
{
	ret_ts->tv_sec = at_ms / 1000;
	ret_ts->tv_nsec = (at_ms % 1000) * 1000000;
}

struct sbx_task_pool *sbx_task_pool_new(unsigned int max_threads)
{
	struct sbx_task_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->max_threads = max_threads ? max_threads : 1;
	pool->ready_tail = &pool->ready_head;
	pthread_mutex_init(&pool->lock, NULL);
	if (sbx_cond_init(&pool->work) < 0 || sbx_cond_init(&pool->gone) < 0) {
		free(pool);
		return NULL;
	}
	return pool;
}

void sbx_task_unref(struct sbx_task *task)
{
	bool last;

	if (!task)
		return;
	pthread_mutex_lock(&task->lock);
	last = --task->refs == 0;
	pthread_mutex_unlock(&task->lock);
	if (!last)
		return;
	pthread_cond_destroy(&task->ended);
	pthread_mutex_destroy(&task->lock);
	free(task);
}

int sbx_task_wait(struct sbx_task *task, const struct sbx_call *call, int64_t timeout_ms)
{
	struct sbx_call bounded = { .cancel = call ? call->cancel : NULL };
	struct sbx_wait wait;
	int r;

	if (timeout_ms >= 0)
		bounded.deadline_ms = sbx_clock_ms() + timeout_ms;
	r = sbx_wait_begin(&wait, &bounded, &task->ended, &task->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&task->lock);
	while (!task->has_ended && r == 0)
		r = sbx_wait_for(&wait);
	if (task->has_ended)
		r = task->result;
	pthread_mutex_unlock(&task->lock);
	sbx_wait_end(&wait);
	return r;
}

static void task_run(struct sbx_task *task)
{
	int result = task->fn(task->arg);

	if (task->arg_free)
		task->arg_free(task->arg);
	pthread_mutex_lock(&task->lock);
	task->result = result;
	task->has_ended = true;
	pthread_cond_broadcast(&task->ended);
	pthread_mutex_unlock(&task->lock);
	sbx_task_unref(task);
}

static void task_ready_locked(struct sbx_task_pool *pool, struct sbx_task *task)
{
	task->next = NULL;
	*pool->ready_tail = task;
	pool->ready_tail = &task->next;
	pool->n_ready++;
}

/* Move what is due; with stop, all: nothing that was promised is dropped. */
static void task_promote_locked(struct sbx_task_pool *pool, int64_t now_ms)
{
	while (pool->delayed && (pool->stop || pool->delayed->due_ms <= now_ms)) {
		struct sbx_task *task = pool->delayed;

		pool->delayed = task->next;
		task_ready_locked(pool, task);
	}
}

static struct sbx_task *task_take_locked(struct sbx_task_pool *pool)
{
	struct sbx_task *task = pool->ready_head;

	if (!task)
		return NULL;
	pool->ready_head = task->next;
	if (!pool->ready_head)
		pool->ready_tail = &pool->ready_head;
	pool->n_ready--;
	return task;
}

static void *task_thread(void *arg)
{
	struct sbx_task_pool *pool = arg;
	int64_t idle_since_ms = sbx_clock_ms();

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		int64_t now_ms = sbx_clock_ms();
		int64_t until_ms = idle_since_ms + TASK_IDLE_MS;
		struct sbx_task *task;
		struct timespec ts;

		task_promote_locked(pool, now_ms);
		task = task_take_locked(pool);
		if (task) {
			/* Others that are ready at the same moment need a thread of their own. */
			if (pool->n_ready && pool->n_idle)
				pthread_cond_signal(&pool->work);
			pool->n_running++;
			pthread_mutex_unlock(&pool->lock);
			task_run(task);
			pthread_mutex_lock(&pool->lock);
			if (--pool->n_running == 0)
				pthread_cond_broadcast(&pool->gone);
			idle_since_ms = sbx_clock_ms();
			continue;
		}
		if (pool->stop)
			break;
		/* The last thread stays while something is due later. */
		if (pool->delayed && (pool->n_threads == 1 || pool->delayed->due_ms < until_ms))
			until_ms = pool->delayed->due_ms;
		else if (now_ms >= until_ms)
			break;
		pool->n_idle++;
		task_timespec(until_ms, &ts);
		pthread_cond_timedwait(&pool->work, &pool->lock, &ts);
		pool->n_idle--;
	}
	pool->n_threads--;
	pthread_cond_broadcast(&pool->gone);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static int task_add_thread_locked(struct sbx_task_pool *pool)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, TASK_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, task_thread, pool);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!r)
		pool->n_threads++;
	return -r;
}

int sbx_task_start_after(struct sbx_task_pool *pool, int64_t delay_ms, sbx_task_fn fn, void *arg,
			 void (*arg_free)(void *), struct sbx_task **ret_task)
{
	struct sbx_task *task = calloc(1, sizeof(*task));
	struct sbx_task **at;
	int r = 0;

	if (!task)
		return -ENOMEM;
	task->fn = fn;
	task->arg = arg;
	task->arg_free = arg_free;
	task->refs = ret_task ? 2 : 1;
	pthread_mutex_init(&task->lock, NULL);
	r = sbx_cond_init(&task->ended);
	if (r < 0) {
		free(task);
		return r;
	}

	pthread_mutex_lock(&pool->lock);
	if ((pool->n_idle <= pool->n_ready && pool->n_threads < pool->max_threads) ||
	    !pool->n_threads) {
		r = task_add_thread_locked(pool);
		/* Without a thread of its own it waits for one that is there. */
		if (r < 0 && pool->n_threads)
			r = 0;
	}
	if (r < 0) {
		pthread_mutex_unlock(&pool->lock);
		task->refs = 1;
		sbx_task_unref(task);
		return r;
	}
	if (delay_ms > 0 && !pool->stop) {
		task->due_ms = sbx_clock_ms() + delay_ms;
		for (at = &pool->delayed; *at && (*at)->due_ms <= task->due_ms; at = &(*at)->next)
			;
		task->next = *at;
		*at = task;
	} else {
		task_ready_locked(pool, task);
	}
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	if (ret_task)
		*ret_task = task;
	return 0;
}

int sbx_task_start(struct sbx_task_pool *pool, sbx_task_fn fn, void *arg, void (*arg_free)(void *),
		   struct sbx_task **ret_task)
{
	return sbx_task_start_after(pool, 0, fn, arg, arg_free, ret_task);
}

void sbx_task_pool_quiesce(struct sbx_task_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	while (pool->n_running || pool->ready_head)
		pthread_cond_wait(&pool->gone, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void sbx_task_pool_free(struct sbx_task_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	while (pool->n_threads || pool->ready_head || pool->delayed) {
		if (!pool->n_threads && task_add_thread_locked(pool) < 0)
			break; /* no thread can be had: what is left can't be run */
		pthread_cond_wait(&pool->gone, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	pthread_cond_destroy(&pool->gone);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
