/* The last failures (client/errlog.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "client/call.h"
#include "client/errlog.h"

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void test_equal_lines_are_counted(void **state)
{
	struct sbx_errlog *log = sbx_errlog_new();
	g_autofree char *text = NULL;

	(void)state;
	for (int i = 0; i < 3; i++)
		sbx_errlog_note(log, "lookup", "a/b", -EIO, "refused");
	sbx_errlog_note(log, "lookup", "a/c", -EIO, "refused");
	text = sbx_errlog_render(log, NULL);
	assert_int_equal(count_lines(text), 2);
	assert_non_null(strstr(text, "lookup a/b EIO refused times=3\n"));
	assert_non_null(strstr(text, "lookup a/c EIO refused\n"));
	sbx_errlog_free(log);
}

/* Also those that others came between: a few that alternate don't drive out the rest. */
static void test_alternating_lines_are_two(void **state)
{
	struct sbx_errlog *log = sbx_errlog_new();
	g_autofree char *text = NULL;

	(void)state;
	sbx_errlog_note(log, "get", "first", -EIO, "x");
	for (int i = 0; i < 2 * SBX_ERRLOG_MAX; i++)
		sbx_errlog_note(log, "get", i % 2 ? "a" : "b", -EIO, "x");
	text = sbx_errlog_render(log, NULL);
	assert_int_equal(count_lines(text), 3);
	assert_non_null(strstr(text, "get first EIO x\n"));
	assert_non_null(strstr(text, "get a EIO x times=64\n"));
	assert_non_null(strstr(text, "get b EIO x times=64\n"));
	assert_true(strstr(text, " first ") < strstr(text, " b ") &&
		    strstr(text, " b ") < strstr(text, " a "));
	sbx_errlog_free(log);
}

static void test_oldest_go_first(void **state)
{
	struct sbx_errlog *log = sbx_errlog_new();
	g_autofree char *text = NULL;

	(void)state;
	for (int i = 0; i < SBX_ERRLOG_MAX + 10; i++) {
		char path[32];

		g_snprintf(path, sizeof(path), "f%d.", i);
		sbx_errlog_note(log, "get", path, -EIO, "x");
	}
	text = sbx_errlog_render(log, NULL);
	assert_int_equal(count_lines(text), SBX_ERRLOG_MAX);
	assert_null(strstr(text, " f9. "));
	assert_non_null(strstr(text, " f10. "));
	assert_non_null(strstr(text, " f73. "));
	sbx_errlog_free(log);
}

/* A name with line ends and escapes can't forge a line or move a cursor; a long one is cut. */
static void test_hostile_text_stays_on_its_line(void **state)
{
	struct sbx_errlog *log = sbx_errlog_new();
	char name[2000];
	g_autofree char *text = NULL;

	(void)state;
	sbx_errlog_note(log, "list", "a\nb\033[2J", -EINVAL, "c\rd");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	sbx_errlog_note(log, "list", name, -EINVAL, name);
	text = sbx_errlog_render(log, NULL);
	assert_int_equal(count_lines(text), 2);
	assert_null(strchr(text, '\033'));
	assert_null(strchr(text, '\r'));
	assert_true(strlen(strchr(text, '\n') + 1) <= SBX_ERRLOG_LINE_MAX);
	sbx_errlog_free(log);
}

static void test_failure_tells_status_and_code(void **state)
{
	struct sbx_errlog *log = sbx_errlog_new();
	struct sbx_failure failure = { .http_status = 500,
				       .code = "internal_error",
				       .message = "EIO: broken" };
	g_autofree char *text = NULL;

	(void)state;
	sbx_errlog_failure(log, "get", "f", -EIO, &failure);
	text = sbx_errlog_render(log, NULL);
	assert_non_null(
		strstr(text, "get f EIO http=500 code=internal_error message=\"EIO: broken\"\n"));
	sbx_errlog_free(log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_lines_are_counted),
		cmocka_unit_test(test_alternating_lines_are_two),
		cmocka_unit_test(test_oldest_go_first),
		cmocka_unit_test(test_hostile_text_stays_on_its_line),
		cmocka_unit_test(test_failure_tells_status_and_code),
	};

	return cmocka_run_group_tests_name("errlog", tests, NULL, NULL);
}
