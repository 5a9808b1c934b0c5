/* Cancelling and waiting (client/call.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "client/call.h"

static void count_wake(void *arg)
{
	++*(int *)arg;
}

static void test_hooks(void **state)
{
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct sbx_cancel_hook one, two, late;
	int ones = 0;
	int twos = 0;

	(void)state;
	assert_int_equal(sbx_cancel_hook_add(cancel, &one, count_wake, &ones), 0);
	assert_int_equal(sbx_cancel_hook_add(cancel, &two, count_wake, &twos), 0);
	sbx_cancel_hook_del(cancel, &one);
	assert_false(sbx_cancel_fired(cancel));
	sbx_cancel_fire(cancel);
	sbx_cancel_fire(cancel);
	assert_true(sbx_cancel_fired(cancel));
	assert_int_equal(ones, 0);
	assert_int_equal(twos, 1);
	sbx_cancel_hook_del(cancel, &two);
	assert_int_equal(sbx_cancel_hook_add(cancel, &late, count_wake, &ones), -EINTR);
	sbx_cancel_hook_del(cancel, &late);
	assert_int_equal(ones, 0);
	sbx_cancel_unref(cancel);
	sbx_cancel_unref(NULL);
	assert_false(sbx_cancel_fired(NULL));
}

static void test_a_parent_fires_its_children(void **state)
{
	struct sbx_cancel *parent = sbx_cancel_new(NULL);
	struct sbx_cancel *child = sbx_cancel_new(parent);
	struct sbx_cancel *gone = sbx_cancel_new(parent);
	struct sbx_cancel *other = sbx_cancel_new(parent);
	struct sbx_cancel *late;

	(void)state;
	sbx_cancel_unref(gone);
	sbx_cancel_fire(other);
	assert_false(sbx_cancel_fired(parent));
	assert_false(sbx_cancel_fired(child));
	sbx_cancel_fire(parent);
	assert_true(sbx_cancel_fired(child));
	late = sbx_cancel_new(parent);
	assert_true(sbx_cancel_fired(late));
	sbx_cancel_unref(parent);
	sbx_cancel_unref(child);
	sbx_cancel_unref(late);
	sbx_cancel_unref(other);
}

static void *fire_soon(void *arg)
{
	struct sbx_call nap = { 0 };

	assert_int_equal(sbx_call_sleep(&nap, 30), 0);
	sbx_cancel_fire(arg);
	return NULL;
}

static void test_sleep(void **state)
{
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct sbx_call call = { .cancel = cancel };
	int64_t began_ms = sbx_clock_ms();
	pthread_t thread;

	(void)state;
	assert_int_equal(sbx_call_sleep(&call, 20), 0);
	assert_true(sbx_clock_ms() - began_ms >= 20);
	assert_int_equal(sbx_call_check(&call), 0);

	/* Past the deadline nothing is waited for. */
	began_ms = sbx_clock_ms();
	call.deadline_ms = began_ms + 1000;
	assert_int_equal(sbx_call_sleep(&call, 5000), -ETIMEDOUT);
	call.deadline_ms = began_ms - 1;
	assert_int_equal(sbx_call_check(&call), -ETIMEDOUT);
	assert_true(sbx_clock_ms() - began_ms < 500);
	call.deadline_ms = 0;

	began_ms = sbx_clock_ms();
	assert_int_equal(pthread_create(&thread, NULL, fire_soon, cancel), 0);
	assert_int_equal(sbx_call_sleep(&call, 20000), -EINTR);
	assert_true(sbx_clock_ms() - began_ms < 5000);
	pthread_join(thread, NULL);
	assert_int_equal(sbx_call_sleep(&call, 20000), -EINTR);
	assert_int_equal(sbx_call_check(&call), -EINTR);
	sbx_cancel_unref(cancel);
}

static void test_wait_ends_by_itself(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct sbx_call call = { .stall_timeout_ms = 30 };
	int64_t began_ms = sbx_clock_ms();
	struct sbx_wait wait;
	pthread_cond_t cond;
	int r;

	(void)state;
	assert_int_equal(sbx_cond_init(&cond), 0);
	r = sbx_wait_begin(&wait, &call, &cond, &lock);
	pthread_mutex_lock(&lock);
	while (r == 0)
		r = sbx_wait_for(&wait);
	pthread_mutex_unlock(&lock);
	sbx_wait_end(&wait);
	assert_int_equal(r, -ETIMEDOUT);
	assert_true(sbx_clock_ms() - began_ms >= 30);
	pthread_cond_destroy(&cond);
}

struct mover {
	pthread_mutex_t *lock;
	int64_t moved_ms;
};

/* 20 steps of 40 ms. */
static void *move(void *arg)
{
	struct mover *mover = arg;

	for (int i = 0; i < 20; i++) {
		(void)sbx_call_sleep(&(struct sbx_call){ 0 }, 40);
		pthread_mutex_lock(mover->lock);
		mover->moved_ms = sbx_clock_ms();
		pthread_mutex_unlock(mover->lock);
	}
	return NULL;
}

/* How long a wait under @call takes for what gets on for 800 ms and then stands still. */
static int64_t wait_for_mover(const struct sbx_call *call)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct mover mover = { &lock, 0 };
	int64_t began_ms = sbx_clock_ms();
	int64_t took_ms;
	struct sbx_wait wait;
	pthread_cond_t cond;
	pthread_t thread;
	int r;

	assert_int_equal(sbx_cond_init(&cond), 0);
	r = sbx_wait_begin(&wait, call, &cond, &lock);
	assert_int_equal(pthread_create(&thread, NULL, move, &mover), 0);
	pthread_mutex_lock(&lock);
	while (r == 0)
		r = sbx_wait_moving(&wait, &mover.moved_ms);
	took_ms = sbx_clock_ms() - began_ms;
	pthread_mutex_unlock(&lock);
	sbx_wait_end(&wait);
	assert_int_equal(r, -ETIMEDOUT);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_cond_destroy(&cond);
	return took_ms;
}

static void test_wait_for_what_moves(void **state)
{
	struct sbx_call call = { .stall_timeout_ms = 500 };

	(void)state;
	assert_true(wait_for_mover(&call) >= 800 + 500 - 5);
	/* A deadline is one all the same. */
	call.deadline_ms = sbx_clock_ms() + 250;
	assert_in_range(wait_for_mover(&call), 200, 1200);
}

static void check_escape(const char *text, size_t len, size_t size, const char *want)
{
	char out[64];

	memset(out, 'Z', sizeof(out));
	sbx_text_escape(out, size, text, len);
	assert_string_equal(out, want);
	assert_int_equal(out[size], 'Z');
}

static void test_escape(void **state)
{
	(void)state;
	check_escape("plain", 5, 40, "plain");
	check_escape("a\nb\x1b[0m\0z", 9, 40, "a\\x0ab\\x1b[0m\\x00z");
	check_escape("\\x00", 4, 40, "\\x5cx00");
	check_escape("\xc3\xa4\xff\xc3", 4, 40, "\xc3\xa4\\xff\\xc3");
	/* U+0085 and DEL are control characters too. */
	check_escape("\xc2\x85\x7f", 3, 40, "\\xc2\\x85\\x7f");
	check_escape("abcdef", 6, 4, "abc");
	/* Neither an escape nor a character is cut. */
	check_escape("ab\n", 3, 6, "ab");
	check_escape("ab\n", 3, 7, "ab\\x0a");
	check_escape("ab\xc3\xa4", 4, 4, "ab");
}

static void test_fail(void **state)
{
	struct sbx_failure failure = { .http_status = 5, .maybe_done = true };
	struct sbx_call call = { .failure = &failure };
	char text[1000];

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(sbx_call_fail(&call, "get", -EILSEQ, text), -EILSEQ);
	assert_int_equal(failure.error, -EILSEQ);
	assert_int_equal(failure.kind, SBX_FAIL_LOCAL);
	assert_int_equal(failure.http_status, 0);
	assert_false(failure.maybe_done);
	assert_string_equal(failure.operation, "get");
	assert_int_equal(strlen(failure.message), SBX_FAILURE_TEXT_MAX);
	call.failure = NULL;
	assert_int_equal(sbx_call_fail(&call, "get", -EIO, "x"), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_a_parent_fires_its_children),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_wait_ends_by_itself),
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_fail),
		cmocka_unit_test(test_wait_for_what_moves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
