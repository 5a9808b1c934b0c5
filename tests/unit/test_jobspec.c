/* What a program writes into jobs/new (client/jobspec.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "client/jobspec.h"

static struct sbx_jobspec *parse(const char *text)
{
	struct sbx_jobspec *spec = (void *)1;

	assert_int_equal(sbx_jobspec_parse(text, strlen(text), &spec), 0);
	return spec;
}

static void is_command(const char *text, const char *command)
{
	struct sbx_jobspec *spec = parse(text);

	assert_non_null(spec);
	assert_string_equal(spec->spec.command, command);
	assert_int_equal(spec->spec.command_len, strlen(command));
	assert_null(spec->spec.cwd);
	assert_null(spec->spec.env);
	assert_null(spec->spec.id);
	sbx_jobspec_free(spec);
}

static void is_refused(const char *text)
{
	struct sbx_jobspec *spec = (void *)1;

	assert_int_equal(sbx_jobspec_parse(text, strlen(text), &spec), -EINVAL);
	assert_ptr_equal(spec, (void *)1);
}

static void test_commands(void **state)
{
	(void)state;
	is_command("make -j4", "make -j4");
	is_command("make -j4\n", "make -j4");
	is_command("make -j4\r\n", "make -j4");
	is_command("# help\n#\n\n  # more\nmake\n# behind\n\n", "make");
	is_command("one\n\n# between\n\ttwo\n", "one\n\n# between\n\ttwo");
	is_command("one\r\ntwo\r\n", "one\ntwo");
	is_command("printf 'a\rb'", "printf 'a\rb'");
	is_command("  indented\n", "  indented");
	is_command("{ echo a; echo b; }\n", "{ echo a; echo b; }");
	is_command("{\necho a\n}\n", "{\necho a\n}");
	is_command("\xff\n", "\xff");
}

static void test_nothing(void **state)
{
	static const char *const texts[] = { "", "\n", "# x", "#\n\n \t\r\n", "\r\n", " " };

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
		assert_null(parse(texts[i]));
}

static void test_objects(void **state)
{
	struct sbx_jobspec *spec = parse("# help\n"
					 "{\n"
					 "  \"command\": \"echo \\\"a\\\"\\necho b\",\n"
					 "  \"cwd\": \"src\",\n"
					 "  \"env\": {\"A\": \"1\", \"B\": \"x y=z\"},\n"
					 "  \"timeoutSeconds\": 1.5,\n"
					 "  \"processName\": \"build\",\n"
					 "  \"id\": \"j1\"\n"
					 "}\n");

	(void)state;
	assert_string_equal(spec->spec.command, "echo \"a\"\necho b");
	assert_string_equal(spec->spec.cwd, "src");
	assert_string_equal(spec->spec.env[0], "A=1");
	assert_string_equal(spec->spec.env[1], "B=x y=z");
	assert_null(spec->spec.env[2]);
	assert_int_equal(spec->spec.timeout_s, 2);
	assert_string_equal(spec->spec.process_name, "build");
	assert_string_equal(spec->spec.id, "j1");
	sbx_jobspec_free(spec);

	spec = parse(
		"{\"command\":\"x\",\"cwd\":null,\"env\":null,\"timeoutSeconds\":3,\"id\":null}");
	assert_null(spec->spec.cwd);
	assert_null(spec->spec.env);
	assert_int_equal(spec->spec.timeout_s, 3);
	assert_null(spec->spec.id);
	sbx_jobspec_free(spec);
}

static void test_refused(void **state)
{
	struct sbx_jobspec *spec;

	(void)state;
	is_refused("{}");
	is_refused("{\"command\":\"\"}");
	is_refused("{\"command\":1}");
	is_refused("{\"command\":\"x\"");
	is_refused("{ \"command\":\"x\"} trailing");
	is_refused("{\"command\":\"x\",\"other\":1}");
	is_refused("{\"command\":\"x\",\"env\":[]}");
	is_refused("{\"command\":\"x\",\"env\":{\"A\":1}}");
	is_refused("{\"command\":\"x\",\"env\":{\"A=B\":\"c\"}}");
	is_refused("{\"command\":\"x\",\"timeoutSeconds\":-1}");
	is_refused("{\"command\":\"x\",\"timeoutSeconds\":1e300}");
	is_refused("{\"command\":\"x\",\"timeoutSeconds\":\"1\"}");
	is_refused("{\"command\":\"a\\u0000b\"}");
	is_refused("{\"command\":\"\xff\"}");
	assert_int_equal(sbx_jobspec_parse("a\0b", 3, &spec), -EINVAL);
}

static void test_printed_is_read_back(void **state)
{
	static const char *const env[] = { "A=1", "B=\xc3\xa9=", NULL };
	const struct sbx_job_spec given = {
		.command = "echo 'a\nb' \"\\\"",
		.command_len = strlen("echo 'a\nb' \"\\\""),
		.cwd = "d/e",
		.env = env,
		.timeout_s = 7,
		.process_name = "p",
		.id = "i",
	};
	struct sbx_jobspec *spec;
	char *text = NULL;

	(void)state;
	assert_int_equal(sbx_jobspec_print(&given, &text), 0);
	spec = parse(text);
	assert_string_equal(spec->spec.command, given.command);
	assert_string_equal(spec->spec.cwd, given.cwd);
	assert_string_equal(spec->spec.env[0], env[0]);
	assert_string_equal(spec->spec.env[1], env[1]);
	assert_int_equal(spec->spec.timeout_s, 7);
	assert_string_equal(spec->spec.process_name, "p");
	assert_string_equal(spec->spec.id, "i");
	sbx_jobspec_free(spec);
	g_free(text);
}

/* What a shell makes of the quoted words is what they were. */
static void test_quoting(void **state)
{
	static const char *const argv[] = { "printf", "<%s>", "",     "a b",	     "it's",
					    "$HOME",  "`x`",  "a\nb", "\\n",	     "*",
					    "~",      "#x",   "-e",   "caf\xc3\xa9", "raw\xff\xe9'",
					    "a=b",    "\"",   "!",    NULL };
	g_autofree char *command = sbx_jobspec_quote(argv);
	GString *expected = g_string_new(NULL);
	char got[512];
	FILE *shell;
	size_t n;

	(void)state;
	assert_true(g_utf8_validate(command, -1, NULL));
	for (size_t i = 2; argv[i]; i++)
		g_string_append_printf(expected, "<%s>", argv[i]);
	shell = popen(command, "r");
	assert_non_null(shell);
	n = fread(got, 1, sizeof(got), shell);
	assert_int_equal(pclose(shell), 0);
	assert_int_equal(n, expected->len);
	assert_memory_equal(got, expected->str, n);
	g_string_free(expected, TRUE);
}

static void test_words_of_the_shell_are_quoted(void **state)
{
	g_autofree char *first = sbx_jobspec_quote((const char *const[]){ "if", "if", NULL });
	g_autofree char *assignment = sbx_jobspec_quote((const char *const[]){ "A=1", NULL });

	(void)state;
	assert_string_equal(first, "'if' if");
	assert_string_equal(assignment, "'A=1'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_printed_is_read_back),
		cmocka_unit_test(test_quoting),
		cmocka_unit_test(test_words_of_the_shell_are_quoted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
