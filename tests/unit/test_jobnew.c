/* What directory of the sandbox a path on this machine means (fusefs/jobnew.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glib.h>

#include "fusefs/jobnew.h"

#define WORKSPACE "/mnt/dev1/fs"

static void test_translate(void **state)
{
	static const struct {
		const char *cwd;
		const char *expected; /* NULL: it is no path of the workspace */
	} cases[] = {
		{ WORKSPACE, "." },
		{ WORKSPACE "/", "." },
		{ WORKSPACE "/a/b", "a/b" },
		{ WORKSPACE "/./a//b/", "a/b" },
		{ WORKSPACE "/a/../b", "b" },
		{ "/mnt/./dev1/fs/a", "a" },
		{ WORKSPACE "/..", NULL },
		{ WORKSPACE "/../fs2", NULL },
		{ WORKSPACE "2", NULL },
		{ "/mnt/dev2/fs", NULL },
		{ "/", NULL },
		{ "/usr", NULL },
		{ "a/b", NULL },
		{ "mnt/dev1/fs", NULL },
		{ ".", NULL },
		{ "", NULL },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
		g_autofree char *got = jobnew_translate(WORKSPACE, cases[i].cwd);

		if (cases[i].expected)
			assert_string_equal(got, cases[i].expected);
		else
			assert_null(got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_translate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
