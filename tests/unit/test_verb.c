/* Lines written into a control file, and what may free a caller (fusefs/verb.h, interrupt.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "fusefs/interrupt.h"
#include "fusefs/reply.h"
#include "fusefs/verb.h"

static const struct verb verbs[] = {
	{ .name = "create",
	  .usage = "create NAME [JSON]",
	  .help = "make",
	  .min_args = 1,
	  .max_args = 2,
	  .rest = true },
	{ .name = "sync", .usage = "sync", .help = "send" },
};

static const struct verb_table table = { .verbs = verbs, .n = G_N_ELEMENTS(verbs) };

static struct verb_run *parsed(const char *line)
{
	struct verb_run *run = NULL;

	assert_int_equal(verb_parse(&table, line, strlen(line), &run), 0);
	return run;
}

static void assert_refused(const char *line)
{
	struct verb_run *run = NULL;

	assert_int_equal(verb_parse(&table, line, strlen(line), &run), -EINVAL);
}

static void test_lines_that_say_nothing(void **state)
{
	(void)state;
	assert_null(parsed(""));
	assert_null(parsed("  \t"));
	assert_null(parsed("\r"));
	assert_null(parsed("# sync"));
	assert_null(parsed("  # sync"));
}

static void test_words(void **state)
{
	struct verb_run *run = parsed("  create\t dev1 {\"runId\": \"a b\"} \r");

	(void)state;
	assert_string_equal(run->verb->name, "create");
	assert_string_equal(run->args[0], "dev1");
	assert_string_equal(run->args[1], "{\"runId\": \"a b\"}");
	assert_null(run->args[2]);
	assert_false(run->background);
	verb_run_free(run);
	run = parsed("sync &");
	assert_true(run->background);
	assert_null(run->args[0]);
	verb_run_free(run);
}

static void test_refused_lines(void **state)
{
	struct verb_run *run = NULL;

	(void)state;
	assert_refused("syn");
	assert_refused("synchronise");
	assert_refused("sync now");
	assert_refused("create");
	assert_refused("create &");
	assert_refused("&");
	assert_refused(" &");
	assert_int_equal(verb_parse(&table, "sync\0", 5, &run), -EINVAL);
}

static void test_text_of_the_table_says_nothing(void **state)
{
	GString *text = g_string_new(NULL);
	char **lines;

	(void)state;
	verb_table_show(&table, text);
	lines = g_strsplit(text->str, "\n", -1);
	assert_int_equal(g_strv_length(lines), G_N_ELEMENTS(verbs) + 2);
	for (char **line = lines; *line; line++)
		assert_null(parsed(*line));
	g_strfreev(lines);
	g_string_free(text, TRUE);
}

static bool fatal(const char *pending, const char *shared, const char *blocked, const char *ignored,
		  const char *caught)
{
	char *status = g_strdup_printf("Name:\tx\nTgid:\t1\nSigPnd:\t%s\nShdPnd:\t%s\nSigBlk:\t%s\n"
				       "SigIgn:\t%s\nSigCgt:\t%s\n",
				       pending, shared, blocked, ignored, caught);
	bool result = interrupt_status_is_fatal(status);

	g_free(status);
	return result;
}

static void test_signals_that_free_a_caller(void **state)
{
	(void)state;
	assert_false(fatal("0", "0", "0", "0", "0"));
	/* KILL (bit 8), whatever else is set. */
	assert_true(fatal("0000000000000100", "0", "ffffffff", "ffffffff", "ffffffff"));
	assert_true(fatal("0", "0000000000000100", "0", "0", "0"));
	/* INT (bit 1): not when caught, ignored or blocked. */
	assert_true(fatal("0", "2", "0", "0", "0"));
	assert_false(fatal("0", "2", "0", "0", "2"));
	assert_false(fatal("0", "2", "0", "2", "0"));
	assert_false(fatal("0", "2", "2", "0", "0"));
	/* HUP, QUIT, TERM. */
	assert_true(fatal("1", "0", "0", "0", "0"));
	assert_true(fatal("4", "0", "0", "0", "0"));
	assert_true(fatal("4000", "0", "0", "0", "0"));
	/* USR1, ALRM, CHLD mean nothing here. */
	assert_false(fatal("12200", "12200", "0", "0", "0"));
	/* What can't be read belongs to nobody who waits. */
	assert_true(interrupt_status_is_fatal(""));
	assert_true(interrupt_is_fatal(0));
	assert_false(interrupt_is_fatal(1));
}

static void test_errnos_for_the_kernel(void **state)
{
	(void)state;
	assert_int_equal(op_errno(-ENOENT), ENOENT);
	assert_int_equal(op_errno(-ENOSYS), EOPNOTSUPP);
	assert_int_equal(op_errno(-512), EIO);
	assert_int_equal(op_errno(-100000), EIO);
	assert_int_equal(op_errno(5), EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_that_say_nothing),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_refused_lines),
		cmocka_unit_test(test_text_of_the_table_says_nothing),
		cmocka_unit_test(test_signals_that_free_a_caller),
		cmocka_unit_test(test_errnos_for_the_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
