/* What changes under way are about (client/workspace/claims.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glib.h>

#include "client/workspace/claims.h"
#include "client/workspace/path.h"

static void test_who_meets(void **state)
{
	struct sbx_claims *claims = sbx_claims_new();

	(void)state;
	assert_false(sbx_claims_meet(claims, ""));
	sbx_claims_add(claims, "a/b");
	assert_true(sbx_claims_meet(claims, "a/b"));
	assert_true(sbx_claims_meet(claims, "a/b/c"));
	assert_true(sbx_claims_meet(claims, "a/b/c/d"));
	assert_true(sbx_claims_meet(claims, "a"));
	assert_true(sbx_claims_meet(claims, ""));
	assert_false(sbx_claims_meet(claims, "a/c"));
	assert_false(sbx_claims_meet(claims, "a/bb"));
	assert_false(sbx_claims_meet(claims, "b"));
	/* The sandbox's own root is another tree. */
	assert_false(sbx_claims_meet(claims, "/"));
	assert_false(sbx_claims_meet(claims, "/a/b"));
	sbx_claims_remove(claims, "a/b");
	assert_false(sbx_claims_meet(claims, "a/b"));
	assert_false(sbx_claims_meet(claims, ""));
	sbx_claims_free(claims);
}

static void test_given_back_one_by_one(void **state)
{
	struct sbx_claims *claims = sbx_claims_new();

	(void)state;
	sbx_claims_add(claims, "a/b");
	sbx_claims_add(claims, "a/b");
	sbx_claims_add(claims, "a");
	sbx_claims_remove(claims, "a/b");
	assert_true(sbx_claims_meet(claims, "a/b"));
	sbx_claims_remove(claims, "a");
	assert_true(sbx_claims_meet(claims, "a"));
	assert_false(sbx_claims_meet(claims, "a/c"));
	sbx_claims_remove(claims, "a/b");
	assert_false(sbx_claims_meet(claims, "a"));
	sbx_claims_add(claims, "");
	assert_true(sbx_claims_meet(claims, "x/y"));
	assert_false(sbx_claims_meet(claims, "/usr"));
	sbx_claims_free(claims);
}

/* Against the definition, path by path. */
static void test_random(void **state)
{
	static const char *const paths[] = { "",    "a",     "a/b",	"a/b/c", "a/bc", "ab",
					     "a/c", "a/c/d", "a/c/d/e", "b",	 "b/a",	 "b/a/c" };
	g_autoptr(GRand) rand = g_rand_new_with_seed(17);
	struct sbx_claims *claims = sbx_claims_new();
	unsigned int claimed[G_N_ELEMENTS(paths)] = { 0 };

	(void)state;
	for (int round = 0; round < 5000; round++) {
		guint at = (guint)g_rand_int_range(rand, 0, G_N_ELEMENTS(paths));

		if (claimed[at] > 0 && g_rand_boolean(rand)) {
			sbx_claims_remove(claims, paths[at]);
			claimed[at]--;
		} else if (g_rand_int_range(rand, 0, 4) == 0) {
			sbx_claims_add(claims, paths[at]);
			claimed[at]++;
		}
		for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
			bool expected = false;

			for (guint j = 0; j < G_N_ELEMENTS(paths); j++)
				expected |=
					claimed[j] > 0 && (sbx_path_is_within(paths[i], paths[j]) ||
							   sbx_path_is_within(paths[j], paths[i]));
			assert_int_equal(sbx_claims_meet(claims, paths[i]), expected);
		}
	}
	sbx_claims_free(claims);
}

static void test_parents(void **state)
{
	static const char *const cases[][2] = {
		{ "", NULL },  { "/", NULL },	 { "a", "" },	     { "a/b", "a" },
		{ "/a", "/" }, { "/a/b", "/a" }, { "a/b/c", "a/b" },
	};

	(void)state;
	for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
		g_autofree char *parent = sbx_path_parent(cases[i][0]);

		assert_int_equal(g_strcmp0(parent, cases[i][1]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_meets),
		cmocka_unit_test(test_given_back_one_by_one),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_parents),
	};

	return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
