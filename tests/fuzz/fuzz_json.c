/* JSON (client/json.h), and the answer of an exec in it (client/wire_exec.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/json.h"
#include "client/name.h"
#include "client/wire_exec.h"
#include "tests/fuzz/garble.h"

#define ROUNDS 10000
#define VALUES 64

static const char spice[] = "{}[]\",:\\u0123456789eE+-.tfnd \n\0\303\251\377";

/* Walks over all that is there; what is printed again is JSON again. */
static unsigned int count(const struct sbx_json *node)
{
	unsigned int values = 1;
	const char *text;

	if (sbx_json_string(node, 1000, &text) == 0)
		assert_true(strlen(text) <= 1000 && g_utf8_validate(text, -1, NULL));
	for (const struct sbx_json *child = sbx_json_first(node); child;
	     child = sbx_json_next(child))
		values += count(child);
	return values;
}

static void check_tree(struct sbx_json *root)
{
	struct sbx_json *again = NULL;
	int64_t number;
	const char *text;
	char *printed;

	assert_in_range(count(root), 1, VALUES);
	if (sbx_json_get_int(root, "n", -5, 2000000000, &number) == 0)
		assert_true(number >= -5 && number <= 2000000000);
	if (sbx_json_get_id(root, "id", &text) == 0)
		assert_true(sbx_id_valid(text) && strlen(text) <= SBX_ID_MAX);
	if (sbx_json_get_string(root, "s", 8, &text) == 0)
		assert_true(strlen(text) <= 8);
	printed = sbx_json_print(root, false);
	assert_non_null(printed);
	/* But for a string with U+0000, which is never printed, it is the same document. */
	if (g_utf8_validate(printed, -1, NULL) &&
	    sbx_json_parse(printed, strlen(printed), VALUES, &again) < 0)
		fail_msg("%s", printed);
	sbx_json_free(again);
	free(printed);
}

static void test_documents(void **state)
{
	static const char clean[] =
		"{\"id\":\"abc-1\",\"n\":1700000000,\"s\":\"t\\u00e9\\ud83d\\ude00\\n\\\"\",\"a\":"
		"[1,-2.5e3,true,false,null,[],{},[[\"\\u0000x\"]]],\"o\":{\"id\":\"\303\251\"}}";
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		struct sbx_json *root = NULL;
		size_t len;
		g_autofree char *text = garble_text(&garble, clean, sizeof(clean) - 1, &len);
		int r = sbx_json_parse(text, len, VALUES, &root);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0) {
			assert_null(root);
			continue;
		}
		garble.taken++;
		check_tree(root);
		sbx_json_free(root);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

static int take_entry(void *arg, struct sbx_json *element)
{
	const char *name;
	bool is_directory;

	(*(unsigned int *)arg)++;
	if (sbx_json_get_string(element, "name", 255, &name) == 0)
		assert_true(strlen(name) <= 255);
	(void)sbx_json_get_bool(element, "isDirectory", &is_directory);
	return 0;
}

static void test_listings(void **state)
{
	static const char clean[] = "[{\"name\":\"f\",\"isDirectory\":false},"
				    "{\"name\":\"d\\u00e9\",\"isDirectory\":true}, 5,\n[\"x\"]]";
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		unsigned int elements = 0;
		size_t len;
		g_autofree char *text = garble_text(&garble, clean, sizeof(clean) - 1, &len);
		int r = sbx_json_each(text, len, take_entry, &elements);

		assert_true(r == 0 || r == -EBADMSG);
		assert_true(elements <= len);
		garble.taken += r == 0;
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

static void test_exec_answers(void **state)
{
	static const char clean[] = "{\"exitCode\":0,\"signal\":null,\"stdout\":\"a\\u0000b\\n\","
				    "\"stderr\":\"\\\"e\\\"\",\"timedOut\":true}";
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		struct sbx_exec_result result;
		size_t len;
		g_autofree char *text = garble_text(&garble, clean, sizeof(clean) - 1, &len);
		int r = wire_exec_read(text, len, &result);

		assert_true(r == 0 || r == -EBADMSG || r == -ENOENT);
		if (r < 0)
			continue;
		garble.taken++;
		assert_true(result.out && result.out[result.out_len] == '\0');
		assert_true(result.err && result.err[result.err_len] == '\0');
		assert_true(strlen(result.signal) < sizeof(result.signal));
		sbx_exec_result_clear(&result);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_listings),
		cmocka_unit_test(test_exec_answers),
	};

	return cmocka_run_group_tests_name("fuzz_json", tests, NULL, NULL);
}
