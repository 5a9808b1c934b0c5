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
	bool is_now; /* others of the pool wait for it: not counted among max_threads */

	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool has_ended;
	int result;
	int refs;
};

/* Tasks in the order in which they came. */
struct task_queue {
	struct sbx_task *head;
	struct sbx_task **tail;
	unsigned int n;
};

struct sbx_task_pool {
	pthread_mutex_t lock;
	pthread_cond_t work; /* a task became ready, or a delayed one was added, or stop */
	pthread_cond_t gone; /* a thread has ended, or no task runs any more */
	struct task_queue now; /* of sbx_task_start_now() */
	struct task_queue ready; /* the others */
	struct sbx_task *delayed; /* sorted by due_ms */
	unsigned int max_threads; /* that may run tasks of the queue `ready` */
	unsigned int n_threads;
	unsigned int n_idle;
	unsigned int n_running; /* tasks of both queues */
	unsigned int n_bounded; /* of these, tasks of the queue `ready` */
	bool stop;
};

static void queue_init(struct task_queue *queue)
{
	queue->tail = &queue->head;
}

static void queue_push(struct task_queue *queue, struct sbx_task *task)
{
	task->next = NULL;
	*queue->tail = task;
	queue->tail = &task->next;
	queue->n++;
}

static struct sbx_task *queue_pop(struct task_queue *queue)
{
	struct sbx_task *task = queue->head;

	if (!task)
		return NULL;
	queue->head = task->next;
	if (!queue->head)
		queue->tail = &queue->head;
	queue->n--;
	return task;
}

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
	queue_init(&pool->now);
	queue_init(&pool->ready);
	pthread_mutex_init(&pool->lock, NULL);
	if (sbx_cond_init(&pool->work) < 0 || sbx_cond_init(&pool->gone) < 0) {
		free(pool);
		return NULL;
	}
	return pool;
}

struct sbx_task *sbx_task_ref(struct sbx_task *task)
{
	if (!task)
		return NULL;
	pthread_mutex_lock(&task->lock);
	task->refs++;
	pthread_mutex_unlock(&task->lock);
	return task;
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

/* Move what is due; with stop, all: nothing that was promised is dropped. */
static void task_promote_locked(struct sbx_task_pool *pool, int64_t now_ms)
{
	while (pool->delayed && (pool->stop || pool->delayed->due_ms <= now_ms)) {
		struct sbx_task *task = pool->delayed;

		pool->delayed = task->next;
		queue_push(&pool->ready, task);
	}
}

/* How many tasks could begin, had each a thread. */
static unsigned int task_runnable_locked(const struct sbx_task_pool *pool)
{
	unsigned int room = pool->max_threads - pool->n_bounded;

	return pool->now.n + (pool->ready.n < room ? pool->ready.n : room);
}

static struct sbx_task *task_take_locked(struct sbx_task_pool *pool)
{
	struct sbx_task *task = queue_pop(&pool->now);

	if (!task && pool->n_bounded < pool->max_threads)
		task = queue_pop(&pool->ready);
	if (!task)
		return NULL;
	pool->n_running++;
	if (!task->is_now)
		pool->n_bounded++;
	return task;
}

static int task_add_thread_locked(struct sbx_task_pool *pool);

/*
 * A thread that runs nothing for each task that could begin, and while something is delayed one
 * that waits for the time: what is due does not wait for the end of other work. 0, or why there is
 * none.
 */
static int task_staff_locked(struct sbx_task_pool *pool)
{
	unsigned int wanted = task_runnable_locked(pool) + (pool->delayed ? 1 : 0);
	int r = 0;

	while (r == 0 && pool->n_threads - pool->n_running < wanted)
		r = task_add_thread_locked(pool);
	return r;
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
			bool is_now = task->is_now;

			/* Others that are ready at the same moment need a thread of their own, and
			 * so does what is due later. Where none can be had they wait. */
			(void)task_staff_locked(pool);
			if (pool->n_idle && (task_runnable_locked(pool) || pool->delayed))
				pthread_cond_signal(&pool->work);
			pthread_mutex_unlock(&pool->lock);
			task_run(task);
			pthread_mutex_lock(&pool->lock);
			if (!is_now)
				pool->n_bounded--;
			if (--pool->n_running == 0)
				pthread_cond_broadcast(&pool->gone);
			idle_since_ms = sbx_clock_ms();
			continue;
		}
		if (pool->stop)
			break;
		/* The last thread without a task stays while something is due later. */
		if (pool->delayed &&
		    (pool->n_threads - pool->n_running == 1 || pool->delayed->due_ms < until_ms))
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

/* A task for @fn, with a reference for the pool and one for @wanted. */
static int task_new(sbx_task_fn fn, void *arg, void (*arg_free)(void *), bool wanted,
		    struct sbx_task **ret_task)
{
	struct sbx_task *task = calloc(1, sizeof(*task));
	int r;

	if (!task)
		return -ENOMEM;
	task->fn = fn;
	task->arg = arg;
	task->arg_free = arg_free;
	task->refs = wanted ? 2 : 1;
	pthread_mutex_init(&task->lock, NULL);
	r = sbx_cond_init(&task->ended);
	if (r < 0) {
		free(task);
		return r;
	}
	*ret_task = task;
	return 0;
}

static void task_delay_locked(struct sbx_task_pool *pool, struct sbx_task *task)
{
	struct sbx_task **at;

	for (at = &pool->delayed; *at && (*at)->due_ms <= task->due_ms; at = &(*at)->next)
		;
	task->next = *at;
	*at = task;
}

/* Have it run, after @delay_ms. */
static int task_submit(struct sbx_task_pool *pool, struct sbx_task *task, int64_t delay_ms)
{
	struct task_queue *queue = task->is_now ? &pool->now : &pool->ready;
	int r;

	pthread_mutex_lock(&pool->lock);
	if (delay_ms > 0 && !pool->stop) {
		task->due_ms = sbx_clock_ms() + delay_ms;
		task_delay_locked(pool, task);
	} else {
		queue_push(queue, task);
	}
	r = task_staff_locked(pool);
	if (pool->n_threads) {
		/* Without a thread of its own it waits for one that is there. */
		r = 0;
		pthread_cond_signal(&pool->work);
	} else if (pool->delayed) {
		/* Where there was no thread nothing else waits. */
		pool->delayed = NULL;
	} else {
		(void)queue_pop(queue);
	}
	pthread_mutex_unlock(&pool->lock);
	return r;
}

static int task_start(struct sbx_task_pool *pool, int64_t delay_ms, bool is_now, sbx_task_fn fn,
		      void *arg, void (*arg_free)(void *), struct sbx_task **ret_task)
{
	struct sbx_task *task;
	int r;

	r = task_new(fn, arg, arg_free, ret_task != NULL, &task);
	if (r < 0)
		return r;
	task->is_now = is_now;
	r = task_submit(pool, task, delay_ms);
	if (r < 0) {
		task->refs = 1;
		sbx_task_unref(task);
		return r;
	}
	if (ret_task)
		*ret_task = task;
	return 0;
}

int sbx_task_start(struct sbx_task_pool *pool, sbx_task_fn fn, void *arg, void (*arg_free)(void *),
		   struct sbx_task **ret_task)
{
	return task_start(pool, 0, false, fn, arg, arg_free, ret_task);
}

int sbx_task_start_now(struct sbx_task_pool *pool, sbx_task_fn fn, void *arg,
		       void (*arg_free)(void *), struct sbx_task **ret_task)
{
	return task_start(pool, 0, true, fn, arg, arg_free, ret_task);
}

int sbx_task_start_after(struct sbx_task_pool *pool, int64_t delay_ms, sbx_task_fn fn, void *arg,
			 void (*arg_free)(void *), struct sbx_task **ret_task)
{
	return task_start(pool, delay_ms, false, fn, arg, arg_free, ret_task);
}

void sbx_task_pool_quiesce(struct sbx_task_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	while (pool->n_running || pool->ready.n || pool->now.n)
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
	while (pool->n_threads || pool->ready.n || pool->now.n || pool->delayed) {
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
