/* Checked reading and writing of JSON (client/json.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/json.h"
#include "client/name.h"

static struct sbx_json *parse(const char *text)
{
	struct sbx_json *root = NULL;

	assert_int_equal(sbx_json_parse(text, strlen(text), SBX_JSON_VALUES_DEFAULT, &root), 0);
	assert_non_null(root);
	return root;
}

static int parse_result(const char *text, size_t len, size_t max_values)
{
	struct sbx_json *root = NULL;
	int r = sbx_json_parse(text, len, max_values, &root);

	assert_true((r == 0) == (root != NULL));
	sbx_json_free(root);
	return r;
}

static void test_refuses_what_is_not_json(void **state)
{
	static const char *const bad[] = {
		"",	    "{",	 "{\"a\":1}x",	"[1,2",	 "nul",		"\"\xff\"",
		"\"\xc3\"", "{\"a\" 1}", "\"\\ud800\"", "\"abc", "{\"a\":1}{}", "[1]]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(parse_result(bad[i], strlen(bad[i]), 100), -EBADMSG);
	assert_int_equal(parse_result("{}\0", 3, 100), -EBADMSG);
	assert_int_equal(parse_result(" {\"a\":[1,2]}\r\n\t ", 16, 100), 0);
}

static void test_bounds(void **state)
{
	char deep[400];

	(void)state;
	assert_int_equal(parse_result("[1,2,3]", 7, 4), 0);
	assert_int_equal(parse_result("[1,2,3]", 7, 3), -EBADMSG);
	/* Commas in a string are no values. */
	assert_int_equal(parse_result("\",,,,\\\",,\"", 10, 2), 0);
	memset(deep, '[', 64);
	memset(deep + 64, ']', 64);
	assert_int_equal(parse_result(deep, 128, 1000), 0);
	memset(deep, '[', 65);
	memset(deep + 65, ']', 65);
	assert_int_equal(parse_result(deep, 130, 1000), -EBADMSG);
}

static void test_numbers(void **state)
{
	struct sbx_json *root = parse("{\"a\":5,\"b\":1.5,\"c\":\"5\",\"d\":-3,"
				      "\"e\":9007199254740993000,\"f\":1e400,\"g\":4294967296}");
	double real = 0;
	int64_t n = 77;

	(void)state;
	assert_int_equal(sbx_json_get_int(root, "b", 0, 10, &n), -EBADMSG);
	assert_int_equal(sbx_json_get_int(root, "c", 0, 10, &n), -EBADMSG);
	assert_int_equal(sbx_json_get_int(root, "d", 0, 10, &n), -EBADMSG);
	assert_int_equal(sbx_json_get_int(root, "e", INT64_MIN, INT64_MAX, &n), -EBADMSG);
	assert_int_equal(sbx_json_get_int(root, "f", INT64_MIN, INT64_MAX, &n), -EBADMSG);
	assert_int_equal(sbx_json_get_double(root, "f", &real), -EBADMSG);
	assert_int_equal(sbx_json_get_int(root, "nope", 0, 10, &n), -ENOENT);
	assert_int_equal(n, 77);
	assert_int_equal(sbx_json_get_int(root, "a", 0, 10, &n), 0);
	assert_int_equal(n, 5);
	assert_int_equal(sbx_json_get_int(root, "g", 0, INT64_MAX, &n), 0);
	assert_int_equal(n, 4294967296);
	assert_int_equal(sbx_json_get_double(root, "b", &real), 0);
	assert_true(real == 1.5);
	sbx_json_free(root);
}

static void test_strings(void **state)
{
	struct sbx_json *root = parse("{\"a\":\"xyz\",\"nul\":\"a\\u0000b\",\"esc\":\"a\\\\u0000\","
				      "\"n\":5,\"z\":null,\"t\":true,\"a\":\"second\"}");
	const char *text = "before";
	char *bytes = NULL;
	bool flag = false;
	size_t len = 0;

	(void)state;
	assert_int_equal(sbx_json_get_string(root, "a", 2, &text), -EBADMSG);
	assert_int_equal(sbx_json_get_string(root, "n", 9, &text), -EBADMSG);
	assert_int_equal(sbx_json_get_string(root, "z", 9, &text), -EBADMSG);
	assert_int_equal(sbx_json_get_string(root, "nul", 9, &text), -EBADMSG);
	assert_int_equal(sbx_json_get_string(root, "nope", 9, &text), -ENOENT);
	assert_string_equal(text, "before");
	assert_int_equal(sbx_json_get_string(root, "a", 3, &text), 0);
	assert_string_equal(text, "xyz");
	/* An escaped backslash before u0000 is text. */
	assert_int_equal(sbx_json_get_string(root, "esc", 9, &text), 0);
	assert_string_equal(text, "a\\u0000");

	assert_int_equal(sbx_json_steal_bytes(root, "nul", &bytes, &len), 0);
	assert_int_equal(len, 3);
	assert_memory_equal(bytes, "a\0b", 4);
	free(bytes);
	assert_int_equal(sbx_json_steal_bytes(root, "n", &bytes, &len), -EBADMSG);

	assert_true(sbx_json_member_is_null(root, "z"));
	assert_false(sbx_json_member_is_null(root, "nope"));
	assert_int_equal(sbx_json_get_bool(root, "t", &flag), 0);
	assert_true(flag);
	assert_int_equal(sbx_json_get_bool(root, "n", &flag), -EBADMSG);
	sbx_json_free(root);
}

static void test_ids(void **state)
{
	char id[80];

	(void)state;
	assert_true(sbx_id_valid("3f1c8a52-0000-4d7e-9c1b-1234567890ab"));
	assert_true(sbx_id_valid("A"));
	assert_false(sbx_id_valid(""));
	assert_false(sbx_id_valid("../../x"));
	assert_false(sbx_id_valid("a/b"));
	assert_false(sbx_id_valid("a.b"));
	assert_false(sbx_id_valid("a%2e"));
	assert_false(sbx_id_valid("a\n"));
	memset(id, 'a', sizeof(id));
	id[64] = '\0';
	assert_true(sbx_id_valid(id));
	id[64] = 'a';
	id[65] = '\0';
	assert_false(sbx_id_valid(id));
}

struct seen {
	int count;
	int stop_at;
	char first[32];
};

static int see_element(void *arg, struct sbx_json *element)
{
	struct seen *seen = arg;
	const char *name;

	if (seen->count++ == 0 && sbx_json_get_string(element, "name", 31, &name) == 0)
		snprintf(seen->first, sizeof(seen->first), "%s", name);
	return seen->count == seen->stop_at ? -ECANCELED : 0;
}

static int each(const char *text, struct seen *seen)
{
	*seen = (struct seen){ .stop_at = seen->stop_at };
	return sbx_json_each(text, strlen(text), see_element, seen);
}

static void test_each(void **state)
{
	static const char *const broken[] = {
		"",	 "{}",	"[",   "[{}",  "[{},", "[{},]", "[{} {}]",
		"[{}]x", "[{]", "[,]", "[\"]", "[1,2", "nul",	"[{}}]",
	};
	struct seen seen = { 0 };

	(void)state;
	assert_int_equal(each(" [ ] ", &seen), 0);
	assert_int_equal(seen.count, 0);
	assert_int_equal(each("[{\"name\":\"a]},[\\\"\"} , {\"x\":[1,{\"y\":2}]},\"s\",5]", &seen),
			 0);
	assert_int_equal(seen.count, 4);
	assert_string_equal(seen.first, "a]},[\"");
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		assert_int_equal(each(broken[i], &seen), -EBADMSG);
	seen.stop_at = 2;
	assert_int_equal(each("[1,2,3]", &seen), -ECANCELED);
	assert_int_equal(seen.count, 2);
}

static void test_build(void **state)
{
	struct sbx_json *root = sbx_json_new_object();
	struct sbx_json *list = sbx_json_new_array();
	char *text;

	(void)state;
	assert_int_equal(sbx_json_set_string(root, "b", "1"), 0);
	assert_int_equal(sbx_json_set_int(root, "a", 1733000000123), 0);
	assert_int_equal(sbx_json_set_int(root, "big", INT64_MAX), -ERANGE);
	assert_int_equal(sbx_json_set_bool(root, "c", true), 0);
	assert_int_equal(sbx_json_set_null(root, "d"), 0);
	assert_int_equal(sbx_json_set_string(root, "e", "\xff"), -EILSEQ);
	assert_int_equal(sbx_json_append_string(list, "x\"\n"), 0);
	assert_int_equal(sbx_json_append_string(list, "\xc3("), -EILSEQ);
	assert_int_equal(sbx_json_append_node(list, NULL), -ENOMEM);
	assert_int_equal(sbx_json_set_node(root, "l", list), 0);
	/* A second value takes the place of the first. */
	assert_int_equal(sbx_json_set_string(root, "b", "2"), 0);
	text = sbx_json_print(root, false);
	assert_string_equal(text, "{\"b\":\"2\",\"a\":1733000000123,\"c\":true,\"d\":null,"
				  "\"l\":[\"x\\\"\\n\"]}");
	free(text);
	sbx_json_remove(root, "a");
	assert_null(sbx_json_member(root, "a"));
	assert_string_equal(sbx_json_key(sbx_json_first(root)), "b");
	assert_string_equal(sbx_json_key(sbx_json_next(sbx_json_first(root))), "c");
	sbx_json_free(root);
}

static void test_a_long_string(void **state)
{
	size_t len = 30 * 1024 * 1024;
	char *text = malloc(len + 16);
	struct sbx_json *root = NULL;
	char *bytes = NULL;
	size_t got = 0;

	(void)state;
	memcpy(text, "{\"s\":\"", 6);
	memset(text + 6, 'A', len);
	memcpy(text + 6 + len, "\"}", 3);
	assert_int_equal(sbx_json_parse(text, len + 8, 100, &root), 0);
	assert_int_equal(sbx_json_steal_bytes(root, "s", &bytes, &got), 0);
	assert_int_equal(got, len);
	free(bytes);
	sbx_json_free(root);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses_what_is_not_json),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_each),
		cmocka_unit_test(test_build),
		cmocka_unit_test(test_a_long_string),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
