/* Work that goes on although its caller has left (client/task.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/call.h"
#include "client/task.h"

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool open;
	_Atomic int ran;
	_Atomic int freed;
};

static void gate_init(struct gate *gate)
{
	pthread_mutex_init(&gate->lock, NULL);
	sbx_cond_init(&gate->cond);
	gate->open = false;
	atomic_init(&gate->ran, 0);
	atomic_init(&gate->freed, 0);
}

static void gate_open(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->open = true;
	pthread_cond_broadcast(&gate->cond);
	pthread_mutex_unlock(&gate->lock);
}

static int wait_at_gate(void *arg)
{
	struct gate *gate = arg;

	pthread_mutex_lock(&gate->lock);
	while (!gate->open)
		pthread_cond_wait(&gate->cond, &gate->lock);
	pthread_mutex_unlock(&gate->lock);
	atomic_fetch_add(&gate->ran, 1);
	return -EDOM;
}

static void count_freed(void *arg)
{
	atomic_fetch_add(&((struct gate *)arg)->freed, 1);
}

static void test_result_reaches_who_waits(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(4);
	struct sbx_task *task = NULL;
	struct gate gate;

	(void)state;
	gate_init(&gate);
	gate_open(&gate);
	assert_int_equal(sbx_task_start(pool, wait_at_gate, &gate, count_freed, &task), 0);
	assert_int_equal(sbx_task_wait(task, NULL, -1), -EDOM);
	assert_int_equal(gate.freed, 1);
	sbx_task_unref(task);
	sbx_task_pool_free(pool);
}

static void test_cancelled_wait_leaves_the_task_running(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(4);
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct sbx_call call = { .cancel = cancel };
	struct sbx_task *task = NULL;
	struct gate gate;

	(void)state;
	gate_init(&gate);
	assert_int_equal(sbx_task_start(pool, wait_at_gate, &gate, NULL, &task), 0);
	assert_int_equal(sbx_task_wait(task, &call, 20), -ETIMEDOUT);
	sbx_cancel_fire(cancel);
	assert_int_equal(sbx_task_wait(task, &call, -1), -EINTR);
	assert_int_equal(gate.ran, 0);
	gate_open(&gate);
	assert_int_equal(sbx_task_wait(task, NULL, -1), -EDOM);
	assert_int_equal(gate.ran, 1);
	sbx_task_unref(task);
	sbx_cancel_unref(cancel);
	sbx_task_pool_free(pool);
}

/* More tasks than threads: all run; freeing the pool waits for them, for delayed ones too. */
static void test_pool_runs_all_before_it_ends(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(2);
	struct gate gate;

	(void)state;
	gate_init(&gate);
	for (int i = 0; i < 50; i++)
		assert_int_equal(sbx_task_start(pool, wait_at_gate, &gate, count_freed, NULL), 0);
	assert_int_equal(
		sbx_task_start_after(pool, 3600 * 1000, wait_at_gate, &gate, count_freed, NULL), 0);
	gate_open(&gate);
	sbx_task_pool_free(pool);
	assert_int_equal(gate.ran, 51);
	assert_int_equal(gate.freed, 51);
}

static void test_delay_is_kept(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(2);
	struct sbx_task *task = NULL;
	int64_t begun_ms = sbx_clock_ms();
	struct gate gate;

	(void)state;
	gate_init(&gate);
	gate_open(&gate);
	assert_int_equal(sbx_task_start_after(pool, 120, wait_at_gate, &gate, NULL, &task), 0);
	assert_int_equal(sbx_task_wait(task, NULL, -1), -EDOM);
	assert_true(sbx_clock_ms() - begun_ms >= 120);
	sbx_task_unref(task);
	sbx_task_pool_free(pool);
}

/* Long work that takes the thread in which a delay runs does not hold up what is due. */
static void test_due_beside_long_work(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(8);
	struct sbx_task *due = NULL;
	struct gate gate, quick;

	(void)state;
	gate_init(&gate);
	gate_init(&quick);
	gate_open(&quick);
	assert_int_equal(sbx_task_start_after(pool, 200, wait_at_gate, &quick, NULL, &due), 0);
	/* The thread made for it idles: it takes this. */
	assert_int_equal(sbx_task_wait(due, NULL, 50), -ETIMEDOUT);
	assert_int_equal(sbx_task_start(pool, wait_at_gate, &gate, NULL, NULL), 0);
	assert_int_equal(sbx_task_wait(due, NULL, 5000), -EDOM);
	sbx_task_unref(due);
	gate_open(&gate);
	sbx_task_pool_free(pool);
}

/* Nor does delayed work that takes long hold up what is due after it. */
static void test_due_after_long_due(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(8);
	struct sbx_task *due = NULL;
	const struct sbx_call call = { 0 };
	struct gate gate, quick;

	(void)state;
	gate_init(&gate);
	gate_init(&quick);
	gate_open(&quick);
	assert_int_equal(sbx_task_start_after(pool, 50, wait_at_gate, &gate, NULL, NULL), 0);
	assert_int_equal(sbx_call_sleep(&call, 20), 0); /* its thread idles */
	assert_int_equal(sbx_task_start_after(pool, 150, wait_at_gate, &quick, NULL, &due), 0);
	assert_int_equal(sbx_task_wait(due, NULL, 5000), -EDOM);
	sbx_task_unref(due);
	gate_open(&gate);
	sbx_task_pool_free(pool);
}

struct nested {
	struct sbx_task_pool *pool;
	struct gate *gate;
};

/* Waits for work of its own, as an upload does for the change that puts it in place. */
static int wait_for_another(void *arg)
{
	struct nested *nested = arg;
	struct sbx_task *task = NULL;
	int r = sbx_task_start_now(nested->pool, wait_at_gate, nested->gate, NULL, &task);

	if (r == 0)
		r = sbx_task_wait(task, NULL, 5000);
	sbx_task_unref(task);
	return r;
}

static void test_what_tasks_wait_for_runs_in_a_full_pool(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(2);
	struct sbx_task *tasks[6];
	struct gate gate;
	struct nested nested = { pool, &gate };

	(void)state;
	gate_init(&gate);
	gate_open(&gate);
	for (int i = 0; i < 6; i++)
		assert_int_equal(sbx_task_start(pool, wait_for_another, &nested, NULL, &tasks[i]),
				 0);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(sbx_task_wait(tasks[i], NULL, 10000), -EDOM);
		sbx_task_unref(tasks[i]);
	}
	sbx_task_pool_free(pool);
}

/* What has a thread of its own leaves the others theirs. */
static void test_now_does_not_count(void **state)
{
	struct sbx_task_pool *pool = sbx_task_pool_new(1);
	struct sbx_task *task = NULL;
	struct gate gate, quick;

	(void)state;
	gate_init(&gate);
	gate_init(&quick);
	gate_open(&quick);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sbx_task_start_now(pool, wait_at_gate, &gate, NULL, NULL), 0);
	assert_int_equal(sbx_task_start(pool, wait_at_gate, &quick, NULL, &task), 0);
	assert_int_equal(sbx_task_wait(task, NULL, 5000), -EDOM);
	sbx_task_unref(task);
	gate_open(&gate);
	sbx_task_pool_free(pool);
	assert_int_equal(gate.ran, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_result_reaches_who_waits),
		cmocka_unit_test(test_cancelled_wait_leaves_the_task_running),
		cmocka_unit_test(test_pool_runs_all_before_it_ends),
		cmocka_unit_test(test_delay_is_kept),
		cmocka_unit_test(test_due_beside_long_work),
		cmocka_unit_test(test_due_after_long_due),
		cmocka_unit_test(test_what_tasks_wait_for_runs_in_a_full_pool),
		cmocka_unit_test(test_now_does_not_count),
	};

	return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
