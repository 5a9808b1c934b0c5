/* What a symbolic link may show (client/workspace/links.h). */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "client/workspace/links.h"

static const struct sbx_link_view whole = {
	.depth = 2,
	.subtree = "",
	.sandbox_root = "../.sbxfs-root",
};
static const struct sbx_link_view only_session = {
	.depth = 1,
	.subtree = "",
	.sandbox_root = "../.sbxfs-root",
};
static const struct sbx_link_view only_workspace = {
	.depth = 0,
	.subtree = "",
	.sandbox_root = NULL,
};
static const struct sbx_link_view only_part = {
	.depth = 0,
	.subtree = "pkg/a",
	.sandbox_root = NULL,
};

#define WS "/home/agent"

struct show_case {
	const struct sbx_link_view *view;
	const char *link;
	const char *target;
	const char *shown; /* NULL: -EPERM */
};

static const struct show_case show_cases[] = {
	/* As it is: ..s that stay inside, then plain names. */
	{ &whole, "l", "f", "f" },
	{ &whole, "l", "d/f", "d/f" },
	{ &whole, "d/l", "../f", "../f" },
	{ &whole, "a/b/c/l", "../../../f", "../../../f" },
	{ &whole, "node_modules/.bin/tool", "../pkg/bin", "../pkg/bin" },
	{ &whole, "d/l", "..", ".." },
	{ &whole, "l", "...", "..." },
	{ &whole, "l", "..f", "..f" },
	{ &whole, "l", "caf\xc3\xa9\xff", "caf\xc3\xa9\xff" },
	{ &whole, "l", "new\nline", "new\nline" },
	/* Another spelling of such a place. */
	{ &whole, "l", "./f", "f" },
	{ &whole, "l", "d//f", "d/f" },
	{ &whole, "l", "d/./f/", "d/f" },
	{ &whole, "d/l", "./../f", "../f" },
	{ &whole, "l", ".", "." },
	/* Absolute, in the workspace. */
	{ &whole, "l", WS "/f", "f" },
	{ &whole, "a/b/l", WS "/a/c", "../c" },
	{ &whole, "a/l", WS, ".." },
	{ &whole, "l", WS, "." },
	{ &whole, "l", "//home//./agent/f", "f" },
	{ &whole, "l", "/../home/agent/f", "f" },
	/* Absolute, elsewhere. */
	{ &whole, "l", "/etc/passwd", "../.sbxfs-root/etc/passwd" },
	{ &whole, "venv/bin/python", "/usr/bin/python3", "../../../.sbxfs-root/usr/bin/python3" },
	{ &whole, "l", "/", "../.sbxfs-root" },
	{ &whole, "l", WS "2/f", "../.sbxfs-root/home/agent2/f" },
	{ &whole, "l", "/home", "../.sbxfs-root/home" },
	{ &only_session, "l", "/etc/passwd", "../.sbxfs-root/etc/passwd" },
	{ &whole, "l", "/.ssh/id_rsa", "../.sbxfs-root/.ssh/id_rsa" },
	/* Relative, out of the workspace. */
	{ &whole, "l", "../x", "../.sbxfs-root/home/x" },
	{ &whole, "l", "..", "../.sbxfs-root/home" },
	{ &whole, "l", "../../../etc/passwd", "../.sbxfs-root/etc/passwd" },
	{ &whole, "d/l", "../../../../../../etc/passwd", "../../.sbxfs-root/etc/passwd" },
	{ &whole, "l", "../agent/f", "f" },
	{ &whole, "l", "../.sbxfs-root/etc/passwd", "../.sbxfs-root/home/.sbxfs-root/etc/passwd" },
	{ &whole, "l", "../control", "../.sbxfs-root/home/control" },
	/* A .. behind a name can't be worked out without asking. */
	{ &whole, "l", "d/../f", NULL },
	{ &whole, "l", "/etc/../root", NULL },
	{ &whole, "a/l", "b/../../../../etc/passwd", NULL },
	{ &whole, "l", "d/..", NULL },
	{ &whole, "l", "", NULL },
	/* The mount shows the workspace alone. */
	{ &only_workspace, "l", "/etc/passwd", NULL },
	{ &only_workspace, "l", "../x", NULL },
	{ &only_workspace, "d/l", "../../../x", NULL },
	{ &only_workspace, "d/l", "../f", "../f" },
	{ &only_workspace, "d/l", WS "/f", "../f" },
	{ &only_workspace, "l", "/.ssh/id_rsa", NULL },
	/* … or a part of it. */
	{ &only_part, "pkg/a/l", "f", "f" },
	{ &only_part, "pkg/a/d/l", "../f", "../f" },
	{ &only_part, "pkg/a/l", "../b/f", NULL },
	{ &only_part, "pkg/a/l", "..", NULL },
	{ &only_part, "pkg/a/d/l", "../../../pkg/a/f", "../f" },
	{ &only_part, "pkg/a/l", WS "/pkg/a/d/f", "d/f" },
	{ &only_part, "pkg/a/l", WS "/pkg/ab", NULL },
	{ &only_part, "pkg/a/l", "/etc/passwd", NULL },
	/* Links of .sbxfs-root stay in it. */
	{ &whole, "/usr/bin/python3", "python3.11", "python3.11" },
	{ &whole, "/usr/bin/vi", "/etc/alternatives/vi", "../../etc/alternatives/vi" },
	{ &whole, "/lib", "usr/lib", "usr/lib" },
	{ &whole, "/usr/l", "../../../etc/x", "../etc/x" },
	{ &whole, "/usr/l", "/", ".." },
	{ &whole, "/usr/l", "a/../b", NULL },
};

static void test_show(void **state)
{
	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(show_cases); i++) {
		const struct show_case *c = &show_cases[i];
		g_autofree char *text = NULL;
		int r = sbx_link_show(c->view, WS, c->link, c->target, &text);

		if (r != (c->shown ? 0 : -EPERM) || g_strcmp0(text, c->shown) != 0)
			fail_msg("%s -> %s: %d, shown %s, not %s", c->link, c->target, r,
				 text ? text : "(none)", c->shown ? c->shown : "(none)");
	}
}

/* Whatever the sandbox says: leading ..s that stay in the mount, then plain names. */
static void test_show_is_contained(void **state)
{
	static const char *const words[] = { "..", ".",	   "",	    "a",	   "b",
					     "/",  "home", "agent", ".sbxfs-root", "..." };
	static const char *const links[] = { "l", "a/l", "a/b/l", "pkg/a/l", "pkg/a/b/c/l" };
	static const struct sbx_link_view *const views[] = { &whole, &only_session, &only_workspace,
							     &only_part };
	g_autoptr(GRand) rand = g_rand_new_with_seed(1);
	unsigned int n_shown = 0;

	(void)state;
	for (int round = 0; round < 40000; round++) {
		const struct sbx_link_view *view = views[g_rand_int_range(rand, 0, 4)];
		const char *link = links[view == &only_part ? g_rand_int_range(rand, 3, 5)
							    : g_rand_int_range(rand, 0, 5)];
		g_autoptr(GString) target = g_string_new(g_rand_boolean(rand) ? "" : "/");
		g_autofree char *text = NULL;
		int n_words = g_rand_int_range(rand, 0, 9);
		long depth = view->depth;
		bool plain = false;

		for (int i = 0; i < n_words; i++)
			g_string_append_printf(target, "%s/", words[g_rand_int_range(rand, 0, 10)]);
		if (sbx_link_show(view, WS, link, target->str, &text) < 0)
			continue;
		n_shown++;
		for (const char *p = link; (p = strchr(p, '/')); p++)
			depth++;
		if (view == &only_part)
			depth -= 2;
		assert_int_not_equal(text[0], '/');
		assert_int_not_equal(text[0], '\0');
		g_auto(GStrv) names = g_strsplit(text, "/", -1);

		for (char **name = names; *name; name++) {
			if (strcmp(*name, "..") == 0) {
				assert_false(plain);
				assert_true(--depth >= 0);
			} else {
				plain = true;
				assert_true(strcmp(*name, ".") != 0 || !names[1]);
				assert_int_not_equal((*name)[0], '\0');
			}
		}
	}
	assert_true(n_shown > 1000);
}

static void test_show_without_root(void **state)
{
	g_autofree char *text = NULL;

	(void)state;
	assert_int_equal(sbx_link_show(&whole, NULL, "l", "/etc/passwd", &text), -EPERM);
	assert_int_equal(sbx_link_show(&whole, "odd", "l", "../x", &text), -EPERM);
	assert_null(text);
	assert_int_equal(sbx_link_show(&whole, NULL, "d/l", "../x", &text), 0);
	assert_string_equal(text, "../x");
}

static void test_show_raw(void **state)
{
	struct sbx_link_view raw = whole;
	g_autofree char *text = NULL;

	(void)state;
	raw.raw = true;
	assert_int_equal(sbx_link_show(&raw, WS, "l", "/etc/../passwd", &text), 0);
	assert_string_equal(text, "/etc/../passwd");
}

static void test_show_long(void **state)
{
	g_autofree char *target = g_strnfill(PATH_MAX - 5, 'x');
	g_autofree char *text = NULL;

	(void)state;
	target[0] = '/';
	assert_int_equal(sbx_link_show(&whole, WS, "l", target, &text), -EPERM);
	assert_null(text);
}

struct store_case {
	const struct sbx_link_view *view;
	const char *link;
	const char *text;
	const char *stored;
};

static const struct store_case store_cases[] = {
	{ &whole, "l", "f", "f" },
	{ &whole, "l", "../x", "../x" },
	{ &whole, "l", "/usr/bin/python3", "/usr/bin/python3" },
	{ &whole, "l", "../.sbxfs-root/usr/bin/python3", "/usr/bin/python3" },
	{ &whole, "venv2/bin/python", "../../../.sbxfs-root/usr/bin/python3", "/usr/bin/python3" },
	{ &whole, "l", "./..//.sbxfs-root//usr/bin/", "/usr/bin/" },
	{ &whole, "l", "../.sbxfs-root", "/" },
	{ &whole, "l", "../.sbxfs-root/usr/lib/../bin", "/usr/lib/../bin" },
	{ &whole, "l", "../.sbxfs-root/../x", "../.sbxfs-root/../x" },
	{ &whole, "d/l", "../.sbxfs-root/usr", "../.sbxfs-root/usr" },
	{ &whole, "l", ".sbxfs-root/usr", ".sbxfs-root/usr" },
	{ &whole, "l", "../.sbxfs-rooted/usr", "../.sbxfs-rooted/usr" },
	{ &whole, "l", "", "" },
	{ &only_workspace, "l", "../.sbxfs-root/usr", "../.sbxfs-root/usr" },
};

static void test_store(void **state)
{
	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(store_cases); i++) {
		const struct store_case *c = &store_cases[i];
		g_autofree char *target = NULL;

		assert_int_equal(sbx_link_store(c->view, WS, c->link, c->text, &target), 0);
		assert_string_equal(target, c->stored);
	}
}

/* What is shown for a link that leaves the workspace is stored as the link that it stands for. */
static void test_round_trip(void **state)
{
	static const char *const targets[] = { "/usr/bin/python3", "/", "/etc/alternatives/vi" };
	static const char *const links[] = { "l", "venv/bin/python", "a/b/c/d/l" };

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(targets); i++) {
		for (size_t j = 0; j < G_N_ELEMENTS(links); j++) {
			g_autofree char *text = NULL;
			g_autofree char *target = NULL;

			assert_int_equal(sbx_link_show(&whole, WS, links[j], targets[i], &text), 0);
			assert_int_equal(sbx_link_store(&whole, WS, links[j], text, &target), 0);
			assert_string_equal(target, targets[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_show),
		cmocka_unit_test(test_show_is_contained),
		cmocka_unit_test(test_show_without_root),
		cmocka_unit_test(test_show_raw),
		cmocka_unit_test(test_show_long),
		cmocka_unit_test(test_store),
		cmocka_unit_test(test_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
