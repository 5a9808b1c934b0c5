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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_result_reaches_who_waits),
		cmocka_unit_test(test_cancelled_wait_leaves_the_task_running),
		cmocka_unit_test(test_pool_runs_all_before_it_ends),
		cmocka_unit_test(test_delay_is_kept),
	};

	return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
