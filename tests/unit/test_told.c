/* Names that the kernel believes (fusefs/told.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/call.h"
#include "fusefs/told.h"

static unsigned int count(struct told_name *names)
{
	unsigned int n = 0;

	for (const struct told_name *name = names; name; name = name->next)
		n++;
	told_names_free(names);
	return n;
}

static void test_of_a_session(void **state)
{
	struct told *told = told_new();
	struct told_name *names;
	int one, two;
	bool lost;

	(void)state;
	assert_int_equal(told_add(told, 0, &one, 7, "a", 60000), 60000);
	assert_int_equal(told_add(told, 0, &two, 8, "b", 60000), 60000);
	assert_int_equal(told_add(told, 0, &one, 9, "c", 0), 0);
	names = told_take(told, &one, &lost);
	assert_non_null(names);
	assert_string_equal(names->name, "a");
	assert_int_equal(names->dir, 7);
	assert_false(lost);
	assert_int_equal(count(names), 1);
	assert_null(told_take(told, &one, &lost));
	assert_int_equal(count(told_take(told, &two, &lost)), 1);
	/* The list is whole again after its last one was taken. */
	assert_int_equal(told_add(told, told_takings(told), &one, 7, "d", 60000), 60000);
	assert_int_equal(count(told_take(told, &one, &lost)), 1);
	told_free(told);
}

static void test_worked_out_before_a_taking(void **state)
{
	struct told *told = told_new();
	uint64_t before = told_takings(told);
	int one;
	bool lost;

	(void)state;
	assert_null(told_take(told, &one, &lost));
	assert_int_equal(told_add(told, before, &one, 7, "a", 1000), 0);
	assert_null(told_take(told, &one, &lost));
	told_free(told);
}

static void test_over(void **state)
{
	const struct sbx_call call = { 0 };
	struct told *told = told_new();
	int one;
	bool lost;

	(void)state;
	assert_int_equal(told_add(told, 0, &one, 7, "long", 60000), 60000);
	assert_int_equal(told_add(told, 0, &one, 7, "short", 1), 1);
	assert_int_equal(sbx_call_sleep(&call, 5), 0);
	assert_int_equal(count(told_take(told, &one, &lost)), 1);
	assert_false(lost);
	told_free(told);
}

static void test_too_many(void **state)
{
	struct told *told = told_new();
	char name[16];
	int one;
	bool lost;

	(void)state;
	for (int i = 0; i < TOLD_MAX; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(told_add(told, 0, &one, 7, name, 60000), 60000);
	}
	assert_int_equal(told_add(told, 0, &one, 7, "more", 60000), 60000);
	assert_int_equal(count(told_take(told, &one, &lost)), TOLD_MAX);
	assert_true(lost);
	told_free(told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_of_a_session),
		cmocka_unit_test(test_worked_out_before_a_taking),
		cmocka_unit_test(test_over),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
