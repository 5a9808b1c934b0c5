/* The store of names under a clock of the test's own (client/workspace/meta.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <glib.h>
#include <malloc.h>

#include "client/workspace/meta.h"
#include "client/workspace/path.h"
#include "client/workspace/workspace.h"

#define SEC INT64_C(1000000)

static int setup(void **state)
{
	*state = sbx_meta_new(1000);
	return 0;
}

static int teardown(void **state)
{
	sbx_meta_free(*state);
	return 0;
}

static struct sbx_attr file_attr(uint64_t ino, uint64_t size)
{
	return (struct sbx_attr){
		.ino = ino, .dev = 1, .size = size, .mode = S_IFREG | 0644, .nlink = 1
	};
}

static struct sbx_attr dir_attr(uint64_t ino)
{
	return (struct sbx_attr){ .ino = ino, .dev = 1, .mode = S_IFDIR | 0755, .nlink = 2 };
}

/* Put a whole listing of @path: names that end in '/' are directories, of inode numbers from
 * @first_ino on, files of @size bytes. */
static bool list_at(struct sbx_meta *meta, const char *path, const char *const *names,
		    uint64_t first_ino, uint64_t size, int64_t asked_us)
{
	struct sbx_meta_listing *listing =
		sbx_meta_listing_begin(meta, path, true, asked_us, asked_us + SEC / 10);

	if (!listing)
		return false;
	for (; *names; names++, first_ino++) {
		size_t len = strlen(*names);
		bool is_dir = (*names)[len - 1] == '/';
		g_autofree char *name = g_strndup(*names, len - is_dir);
		struct sbx_attr attr = is_dir ? dir_attr(first_ino) : file_attr(first_ino, size);

		assert_int_equal(sbx_meta_listing_add(listing, name, &attr, NULL), 0);
	}
	sbx_meta_listing_end(listing, asked_us * 1000);
	return true;
}

#define LIST(meta, path, asked_us, ...) \
	list_at(meta, path, (const char *const[]){ __VA_ARGS__, NULL }, 100, 10, asked_us)

static int find(struct sbx_meta *meta, const char *path, int64_t need_us)
{
	struct sbx_meta_found found;

	return sbx_meta_find(meta, path, need_us, 0, &found);
}

/* Names of the listing, joined by spaces. */
static char *names_of(struct sbx_meta *meta, const char *path, int64_t need_us)
{
	struct sbx_listing *listing = NULL;
	GString *text = g_string_new(NULL);
	int64_t seen_us;
	size_t ask_len;

	if (sbx_meta_list(meta, path, need_us, 0, &listing, &seen_us, &ask_len) < 0)
		return g_string_free(text, TRUE);
	for (size_t i = 0; i < listing->n_entries; i++)
		g_string_append_printf(text, "%s%s", i > 0 ? " " : "", listing->entries[i].name);
	sbx_listing_unref(listing);
	return g_string_free(text, FALSE);
}

#define assert_names(meta, path, need_us, expected)                      \
	do {                                                             \
		g_autofree char *names_ = names_of(meta, path, need_us); \
		assert_non_null(names_);                                 \
		assert_string_equal(names_, expected);                   \
	} while (0)

static void test_nothing_known(void **state)
{
	struct sbx_meta_found found;

	assert_int_equal(sbx_meta_find(*state, "", 0, 0, &found), -EAGAIN);
	assert_int_equal(found.ask_len, 0);
	assert_int_equal(sbx_meta_find(*state, "a/b", SBX_META_ANY_AGE, 0, &found), -EAGAIN);
	assert_int_equal(found.ask_len, 0);
	assert_int_equal(sbx_meta_find(*state, "/usr/bin", SBX_META_ANY_AGE, 0, &found), -EAGAIN);
	assert_int_equal(found.ask_len, 1);
	assert_int_equal(sbx_meta_count(*state), 0);
}

static void test_listing_answers(void **state)
{
	struct sbx_meta_found found;

	assert_true(LIST(*state, "", 10 * SEC, "b", "d/", "a"));
	assert_true(LIST(*state, "d", 10 * SEC, "x", "y"));
	assert_names(*state, "", 10 * SEC, "a b d");
	assert_int_equal(sbx_meta_find(*state, "d/x", 10 * SEC, 0, &found), 0);
	assert_int_equal(found.attr.ino, 100);
	assert_int_equal(found.seen_us, 10 * SEC);
	/* Absent names are known to be absent, and not for longer than the listing holds. */
	assert_int_equal(find(*state, "d/z", 10 * SEC), -ENOENT);
	assert_int_equal(find(*state, "d/z", 10 * SEC + 1), -EAGAIN);
	assert_int_equal(sbx_meta_find(*state, "d/x", 10 * SEC + 1, 0, &found), -EAGAIN);
	assert_int_equal(found.ask_len, 1);
	assert_int_equal(find(*state, "a/z", 10 * SEC), -ENOTDIR);
	assert_int_equal(sbx_meta_find(*state, "a/z", 11 * SEC, 0, &found), -EAGAIN);
	assert_int_equal(found.ask_len, 0);
	/* Nothing above it has to be fresh for what was seen by its full path. */
	assert_true(LIST(*state, "d", 20 * SEC, "x"));
	assert_int_equal(find(*state, "d/x", 20 * SEC), 0);
	assert_int_equal(find(*state, "d/y", 20 * SEC), -ENOENT);
}

static void test_list_asks(void **state)
{
	struct sbx_listing *listing = NULL;
	int64_t seen_us;
	size_t ask_len = 99;

	assert_int_equal(sbx_meta_list(*state, "d/e", 0, 0, &listing, &seen_us, &ask_len), -EAGAIN);
	assert_int_equal(ask_len, 0);
	assert_true(LIST(*state, "", 10 * SEC, "d/", "f"));
	assert_int_equal(sbx_meta_list(*state, "d/e", 0, 0, &listing, &seen_us, &ask_len), -EAGAIN);
	assert_int_equal(ask_len, 1);
	assert_int_equal(sbx_meta_list(*state, "d", 0, 0, &listing, &seen_us, &ask_len), -EAGAIN);
	assert_int_equal(ask_len, 1);
	assert_int_equal(sbx_meta_list(*state, "f", 0, 0, &listing, &seen_us, &ask_len), -ENOTDIR);
	assert_int_equal(sbx_meta_list(*state, "g", 0, 0, &listing, &seen_us, &ask_len), -ENOENT);
	assert_null(listing);
}

static void test_names_are_checked(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b" };
	g_autofree char *too_long = g_strnfill(256, 'x');
	struct sbx_attr attr = file_attr(1, 1);
	struct sbx_meta_listing *listing = sbx_meta_listing_begin(*state, "", true, 1, 1);

	assert_non_null(listing);
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		assert_int_equal(sbx_meta_listing_add(listing, bad[i], &attr, NULL), -EIO);
	assert_int_equal(sbx_meta_listing_add(listing, too_long, &attr, NULL), -EIO);
	assert_int_equal(sbx_meta_listing_add(listing, "twice", &attr, NULL), 0);
	assert_int_equal(sbx_meta_listing_add(listing, "twice", &attr, NULL), 0);
	sbx_meta_listing_end(listing, 0);
	assert_names(*state, "", 1, "twice");
	assert_int_equal(sbx_meta_count(*state), 1);
}

static void test_changed_entries(void **state)
{
	struct sbx_meta_listing *listing;
	struct sbx_meta_found found;
	struct sbx_attr attr = file_attr(101, 77);

	assert_null(sbx_meta_listing_begin(*state, "", false, 5 * SEC, 5 * SEC));
	assert_true(LIST(*state, "", 10 * SEC, "a", "b"));
	listing = sbx_meta_listing_begin(*state, "", false, 12 * SEC, 12 * SEC);
	assert_non_null(listing);
	assert_int_equal(sbx_meta_listing_add(listing, "b", &attr, NULL), 0);
	sbx_meta_listing_end(listing, 0);
	assert_int_equal(sbx_meta_find(*state, "b", 12 * SEC, 0, &found), 0);
	assert_int_equal(found.attr.size, 77);
	assert_int_equal(find(*state, "a", 12 * SEC), 0);
	assert_int_equal(find(*state, "c", 12 * SEC), -ENOENT);
}

static void test_later_listing_wins(void **state)
{
	assert_true(LIST(*state, "", 20 * SEC, "new"));
	assert_false(LIST(*state, "", 10 * SEC, "old"));
	assert_names(*state, "", 20 * SEC, "new");
	assert_true(LIST(*state, "", 30 * SEC, "newer"));
	assert_names(*state, "", 30 * SEC, "newer");
	/* An answer that took too long is no use at all. */
	assert_null(sbx_meta_listing_begin(*state, "", true, 40 * SEC,
					   40 * SEC + SBX_META_MEMORY_US + 1));
}

/* An answer that was asked for before a mutation was done does not undo it. */
static void test_mutation_against_late_listing(void **state)
{
	struct sbx_attr made = file_attr(500, 1);
	struct sbx_attr changed = file_attr(100, 4711);
	struct sbx_meta_found found;

	assert_true(LIST(*state, "", 10 * SEC, "changed", "removed", "other"));
	sbx_meta_did_set(*state, "made", &made, NULL, 11 * SEC, 12 * SEC);
	sbx_meta_did_set(*state, "changed", &changed, NULL, 11 * SEC, 12 * SEC);
	sbx_meta_did_remove(*state, "removed", 12 * SEC);
	assert_names(*state, "", 10 * SEC, "changed made other");
	assert_int_equal(find(*state, "removed", 12 * SEC), -ENOENT);

	/* Sent while the mutations were under way: it shows the state before them. */
	assert_true(LIST(*state, "", 11 * SEC + 500, "changed", "removed", "other"));
	assert_names(*state, "", 11 * SEC + 500, "changed made other");
	assert_int_equal(sbx_meta_find(*state, "changed", 0, 0, &found), 0);
	assert_int_equal(found.attr.size, 4711);

	/* Sent after they were done: it is believed. */
	assert_true(LIST(*state, "", 13 * SEC, "changed", "removed"));
	assert_names(*state, "", 13 * SEC, "changed removed");
	assert_int_equal(sbx_meta_find(*state, "changed", 0, 0, &found), 0);
	assert_int_equal(found.attr.size, 10);
}

/* Two mutations in one directory under way at once: the earlier look at the directory may come
 * last. */
static void test_mutations_that_cross(void **state)
{
	static const char *const names[] = { "d/", NULL };
	struct sbx_attr attr = dir_attr(20);
	struct sbx_meta_found found;

	assert_true(list_at(*state, "", names, 20, 0, 10 * SEC));
	attr.ctime_ns = 200;
	sbx_meta_did_set(*state, "d", &attr, NULL, 12 * SEC, 13 * SEC);
	attr.ctime_ns = 100;
	sbx_meta_did_set(*state, "d", &attr, NULL, 11 * SEC, 14 * SEC);
	assert_int_equal(sbx_meta_find(*state, "d", SBX_META_ANY_AGE, 0, &found), 0);
	assert_int_equal(found.attr.ctime_ns, 200);
	/* One that was sent when the other was over tells of a clock that was set. */
	sbx_meta_did_set(*state, "d", &attr, NULL, 15 * SEC, 16 * SEC);
	assert_int_equal(sbx_meta_find(*state, "d", SBX_META_ANY_AGE, 0, &found), 0);
	assert_int_equal(found.attr.ctime_ns, 100);
	/* Another directory of that name is never the older one. */
	attr = dir_attr(21);
	sbx_meta_did_set(*state, "d", &attr, NULL, 15 * SEC, 17 * SEC);
	assert_int_equal(sbx_meta_find(*state, "d", SBX_META_ANY_AGE, 0, &found), 0);
	assert_int_equal(found.attr.ino, 21);
}

static void test_saw(void **state)
{
	struct sbx_attr attr = file_attr(7, 7);
	struct sbx_attr older = file_attr(7, 6);
	struct sbx_meta_found found;

	assert_true(LIST(*state, "", 10 * SEC, "f", "d/"));
	sbx_meta_saw(*state, "f", &attr, NULL, 12 * SEC, 12 * SEC);
	sbx_meta_saw(*state, "f", &older, NULL, 11 * SEC, 13 * SEC);
	assert_int_equal(sbx_meta_find(*state, "f", 12 * SEC, 0, &found), 0);
	assert_int_equal(found.attr.size, 7);
	/* A younger answer about one file is not undone by an older listing. */
	assert_true(LIST(*state, "", 11 * SEC, "f", "d/"));
	assert_int_equal(sbx_meta_find(*state, "f", 12 * SEC, 0, &found), 0);
	assert_int_equal(found.attr.size, 7);
	sbx_meta_saw(*state, "d/x", NULL, NULL, 14 * SEC, 14 * SEC);
	assert_int_equal(find(*state, "d/x", 14 * SEC), -ENOENT);
	assert_int_equal(find(*state, "d/y", 14 * SEC), -EAGAIN);
	sbx_meta_saw(*state, "f", NULL, NULL, 15 * SEC, 15 * SEC);
	assert_int_equal(find(*state, "f", 15 * SEC), -ENOENT);
	sbx_meta_saw(*state, "f", &attr, NULL, 14 * SEC, 16 * SEC);
	assert_int_equal(find(*state, "f", 15 * SEC), -ENOENT);
	sbx_meta_did_set(*state, "f", &attr, NULL, 16 * SEC, 17 * SEC);
	sbx_meta_saw(*state, "f", NULL, NULL, 16 * SEC + 1, 18 * SEC);
	assert_int_equal(find(*state, "f", 16 * SEC), 0);
}

static void test_made_directory_is_known(void **state)
{
	struct sbx_attr attr = dir_attr(9);

	assert_true(LIST(*state, "", 10 * SEC, "f"));
	sbx_meta_did_make_dir(*state, "d", &attr, 1, 11 * SEC, 12 * SEC);
	assert_names(*state, "d", 11 * SEC, "");
	assert_int_equal(find(*state, "d/x", 11 * SEC), -ENOENT);
	/* Of the directory that was there before. */
	assert_false(LIST(*state, "d", 11 * SEC + 1, "old"));
	assert_true(LIST(*state, "d", 13 * SEC, "x"));
	assert_names(*state, "d", 13 * SEC, "x");
}

static void test_rename(void **state)
{
	struct sbx_attr view = file_attr(0, 3);

	assert_true(LIST(*state, "", 10 * SEC, "d/", "e/", "f"));
	assert_true(LIST(*state, "d", 10 * SEC, "sub/", "x"));
	assert_true(LIST(*state, "d/sub", 10 * SEC, "deep"));
	assert_true(LIST(*state, "e", 10 * SEC, "gone"));
	sbx_meta_set_local(*state, "d/sub/unsent", &view);
	sbx_meta_did_rename(*state, "d", "e", 12 * SEC);
	assert_names(*state, "", 10 * SEC, "e f");
	assert_names(*state, "e", 10 * SEC, "sub x");
	assert_names(*state, "e/sub", 10 * SEC, "deep unsent");
	assert_int_equal(find(*state, "d/x", 12 * SEC), -ENOENT);
	assert_int_equal(find(*state, "e/gone", 10 * SEC), -ENOENT);
	/* What was asked for under the old names does not count under the new ones. */
	assert_false(LIST(*state, "e/sub", 11 * SEC, "other"));
	assert_true(LIST(*state, "", 11 * SEC, "d/", "e/", "f"));
	assert_names(*state, "", 11 * SEC, "e f");
	assert_names(*state, "e", 10 * SEC, "sub x");

	sbx_meta_did_rename(*state, "e/x", "e/sub/x", 14 * SEC);
	assert_names(*state, "e", 10 * SEC, "sub");
	assert_names(*state, "e/sub", 10 * SEC, "deep unsent x");
	sbx_meta_did_rename(*state, "f", "e/sub/deep", 15 * SEC);
	assert_names(*state, "e/sub", 10 * SEC, "deep unsent x");
	sbx_meta_did_rename(*state, "unknown", "e/sub/deep", 16 * SEC);
	assert_names(*state, "e/sub", 10 * SEC, "unsent x");
	/* e, e/sub, its three */
	assert_int_equal(sbx_meta_count(*state), 4);
}

static void test_type_change_drops_children(void **state)
{
	assert_true(LIST(*state, "", 10 * SEC, "d/"));
	assert_true(LIST(*state, "d", 10 * SEC, "x"));
	assert_true(LIST(*state, "", 12 * SEC, "d"));
	assert_int_equal(find(*state, "d/x", 12 * SEC), -ENOTDIR);
	assert_false(LIST(*state, "d", 13 * SEC, "x"));
	assert_int_equal(sbx_meta_count(*state), 1);
	/* Another directory under the same name is not the one that was listed. */
	assert_true(list_at(*state, "", (const char *const[]){ "d/", NULL }, 7, 0, 14 * SEC));
	assert_true(LIST(*state, "d", 15 * SEC, "x"));
	assert_true(list_at(*state, "", (const char *const[]){ "d/", NULL }, 8, 0, 16 * SEC));
	assert_int_equal(find(*state, "d/x", 15 * SEC), 0); /* seen by its full path at 15 */
	assert_int_equal(find(*state, "d/y", 15 * SEC), -EAGAIN);
}

static void test_local_view(void **state)
{
	struct sbx_attr view = file_attr(0, 4096);
	struct sbx_attr sent = file_attr(200, 4096);
	struct sbx_attr remote;
	struct sbx_meta_found found;

	assert_true(LIST(*state, "", 10 * SEC, "f", "d/"));
	sbx_meta_set_local(*state, "f", &view);
	sbx_meta_set_local(*state, "d/new", &view);
	assert_int_equal(sbx_meta_find(*state, "f", 99 * SEC, 0, &found), 0);
	assert_true(found.local);
	assert_int_equal(found.attr.size, 4096);
	assert_int_equal(sbx_meta_remote(*state, "f", &remote), 0);
	assert_int_equal(remote.size, 10);
	assert_int_equal(sbx_meta_remote(*state, "d/new", &remote), -ENOENT);
	/* Listings of the sandbox that know nothing of it don't hide it. */
	assert_true(LIST(*state, "d", 11 * SEC, "x"));
	assert_names(*state, "d", 11 * SEC, "new x");
	assert_true(LIST(*state, "", 12 * SEC, "other"));
	assert_names(*state, "", 12 * SEC, "f other");
	assert_int_equal(find(*state, "d/new", 12 * SEC), 0);
	assert_int_equal(find(*state, "d/x", 12 * SEC), -EAGAIN);

	sbx_meta_did_set(*state, "f", &sent, NULL, 13 * SEC, 13 * SEC);
	sbx_meta_clear_local(*state, "f");
	sbx_meta_clear_local(*state, "d/new");
	sbx_meta_clear_local(*state, "never/there");
	assert_int_equal(sbx_meta_find(*state, "f", 13 * SEC, 0, &found), 0);
	assert_false(found.local);
	assert_int_equal(find(*state, "d/new", 12 * SEC), -ENOENT);
	assert_int_equal(sbx_meta_count(*state), 2);
}

static void test_expire(void **state)
{
	assert_true(LIST(*state, "", 10 * SEC, "f"));
	sbx_meta_expire(*state, 20 * SEC);
	assert_int_equal(find(*state, "f", 0), -EAGAIN);
	assert_int_equal(find(*state, "f", SBX_META_ANY_AGE), 0);
	assert_true(LIST(*state, "", 19 * SEC, "f"));
	assert_int_equal(find(*state, "f", 0), -EAGAIN);
	assert_true(LIST(*state, "", 20 * SEC, "f"));
	assert_int_equal(find(*state, "f", 0), 0);
}

static void test_links(void **state)
{
	struct sbx_attr two = file_attr(7, 1);
	struct sbx_attr more;
	struct sbx_meta_found found;
	g_autofree char *other = NULL;

	two.nlink = 3;
	assert_true(LIST(*state, "", 10 * SEC, "d/", "x"));
	sbx_meta_saw(*state, "a", &two, NULL, 11 * SEC, 11 * SEC);
	sbx_meta_saw(*state, "d/b", &two, NULL, 11 * SEC, 11 * SEC);
	sbx_meta_saw(*state, "c", &two, NULL, 11 * SEC, 11 * SEC);
	more = two;
	more.size = 4711;
	more.nlink = 2;
	sbx_meta_did_remove(*state, "c", 12 * SEC);
	sbx_meta_did_rename(*state, "a", "renamed", 12 * SEC);
	sbx_meta_did_set(*state, "renamed", &more, NULL, 12 * SEC, 12 * SEC);
	assert_int_equal(sbx_meta_find(*state, "d/b", 11 * SEC, 0, &found), 0);
	assert_int_equal(found.attr.size, 4711);
	assert_int_equal(found.attr.nlink, 2);
	assert_int_equal(find(*state, "d/b", 12 * SEC), -EAGAIN);
	other = sbx_meta_other_name(*state, "renamed", &more);
	assert_string_equal(other, "d/b");
	assert_null(sbx_meta_other_name(*state, "x", &more));
	sbx_meta_did_remove(*state, "d/b", 13 * SEC);
	assert_null(sbx_meta_other_name(*state, "renamed", &more));
}

static void test_doubt(void **state)
{
	assert_true(LIST(*state, "", 10 * SEC, "d/"));
	assert_true(LIST(*state, "d", 10 * SEC, "x", "y"));
	sbx_meta_doubt(*state, "d/x");
	assert_int_equal(find(*state, "d/x", 0), -EAGAIN);
	assert_int_equal(find(*state, "d/z", 0), -EAGAIN);
	assert_int_equal(find(*state, "d", 0), 0);
	assert_int_equal(find(*state, "d/x", SBX_META_ANY_AGE), 0);
}

static bool collect(void *arg, const struct sbx_meta_dir_info *info)
{
	g_string_append_printf(arg, "[%s]", info->path);
	return true;
}

static void test_dirs_by_use(void **state)
{
	g_autoptr(GString) paths = g_string_new(NULL);
	struct sbx_meta_found found;
	struct sbx_meta_dir_info info;

	assert_true(LIST(*state, "", 10 * SEC, "a/", "b/"));
	assert_true(LIST(*state, "a", 10 * SEC, "x"));
	assert_true(LIST(*state, "b", 10 * SEC, "y", "z"));
	assert_int_equal(sbx_meta_find(*state, "b/y", 0, 11 * SEC, &found), 0);
	sbx_meta_each_dir(*state, collect, paths);
	assert_string_equal(paths->str, "[b][][a]");
	assert_int_equal(sbx_meta_find(*state, "a/x", 0, 12 * SEC, &found), 0);
	g_string_truncate(paths, 0);
	sbx_meta_each_dir(*state, collect, paths);
	assert_string_equal(paths->str, "[a][][b]");
	assert_int_equal(sbx_meta_dir_info(*state, "b", &info), 0);
	assert_int_equal(info.n_entries, 2);
	assert_int_equal(info.clock_ns, 10 * SEC * 1000);
	assert_int_equal(info.used_us, 11 * SEC);
	g_free(info.path);
	assert_int_equal(sbx_meta_dir_info(*state, "a/x", &info), -ENOENT);
}

static void test_bound(void **state)
{
	struct sbx_attr view = file_attr(0, 1);
	struct sbx_meta_found found;

	assert_true(LIST(*state, "", SEC, "a/", "b/", "c/"));
	for (int i = 0; i < 3; i++) {
		const char *dir = i == 0 ? "a" : i == 1 ? "b" : "c";
		struct sbx_meta_listing *listing =
			sbx_meta_listing_begin(*state, dir, true, (i + 2) * SEC, (i + 2) * SEC);

		assert_non_null(listing);
		for (int j = 0; j < 400; j++) {
			g_autofree char *name = g_strdup_printf("%d", j);
			struct sbx_attr attr = file_attr(j, j);

			assert_int_equal(sbx_meta_listing_add(listing, name, &attr, NULL), 0);
		}
		if (i == 2)
			sbx_meta_set_local(*state, "a/unsent", &view);
		sbx_meta_listing_end(listing, 0);
		assert_int_equal(sbx_meta_find(*state,
					       i == 0	? "a/1"
					       : i == 1 ? "b/1"
							: "c/1",
					       0, (i + 2) * SEC, &found),
				 0);
	}
	assert_true(sbx_meta_count(*state) <= 1000);
	assert_int_equal(find(*state, "a/1", 0), -EAGAIN);
	assert_int_equal(find(*state, "a/unsent", 0), 0);
	assert_int_equal(find(*state, "c/1", 0), 0);
}

/* A server without exec tells names first, attributes one by one. */
static void test_names_without_attributes(void **state)
{
	struct sbx_attr none = { 0 };
	struct sbx_attr attr = file_attr(0, 5);
	struct sbx_meta_listing *listing;
	int r;

	sbx_meta_saw(*state, "", &(struct sbx_attr){ .mode = S_IFDIR | 0700 }, NULL, SEC, SEC);
	for (int i = 1; i < 3; i++) {
		listing = sbx_meta_listing_begin(*state, "", true, i * SEC, i * SEC);
		assert_non_null(listing);
		r = sbx_meta_listing_add(listing, "f", &none, NULL);
		assert_int_equal(r, 0);
		sbx_meta_listing_end(listing, 0);
		assert_names(*state, "", i * SEC, "f");
		assert_int_equal(find(*state, "g", i * SEC), -ENOENT);
		/* The name is known, the attributes are not, or are as old as they are. */
		assert_int_equal(find(*state, "f", i * SEC), -EAGAIN);
		sbx_meta_saw(*state, "f", &attr, NULL, i * SEC + 1, i * SEC + 1);
		assert_int_equal(find(*state, "f", i * SEC + 1), 0);
	}
}

static void test_memory(void **state)
{
	enum { COUNT = 200000 };
	struct sbx_meta *meta = sbx_meta_new(1000000);
	struct sbx_meta_listing *listing;
	struct mallinfo2 before = mallinfo2();
	size_t bytes;

	(void)state;
	listing = sbx_meta_listing_begin(meta, "", true, SEC, SEC);
	for (int i = 0; i < COUNT; i++) {
		char name[32];
		struct sbx_attr attr = file_attr(i, i);

		g_snprintf(name, sizeof(name), "module-%d-name.js", i);
		assert_int_equal(sbx_meta_listing_add(listing, name, &attr, NULL), 0);
	}
	sbx_meta_listing_end(listing, 0);
	bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before.uordblks - before.hblkhd;
	/* Where the allocator is a checker's own, it does not count. */
	if (bytes > 0)
		assert_true(bytes / COUNT < 300);
	assert_int_equal(sbx_meta_count(meta), COUNT);
	sbx_meta_free(meta);
}

/* Whatever comes in whatever order, the store stays sound: checked under the sanitizers. */
static void test_random(void **state)
{
	static const char *const names[] = { "a", "b", "c/", "d/" };
	g_autoptr(GRand) rand = g_rand_new_with_seed(7);
	int64_t now_us = SEC;

	for (int i = 0; i < 20000; i++) {
		char path[2][32];
		struct sbx_attr file = file_attr(g_rand_int_range(rand, 1, 20), 1);
		struct sbx_attr dir = dir_attr(g_rand_int_range(rand, 1, 20));
		int64_t asked_us = now_us - g_rand_int_range(rand, 0, 2000);

		file.nlink = g_rand_int_range(rand, 1, 4);

		for (int j = 0; j < 2; j++) {
			int depth = g_rand_int_range(rand, 1, 4);

			path[j][0] = '\0';
			for (int k = 0; k < depth; k++)
				g_strlcat(path[j],
					  k > 0 ? (char[]){ '/', 'a' + g_rand_int_range(rand, 0, 4),
							    0 }
						: (char[]){ 'a' + g_rand_int_range(rand, 0, 4), 0 },
					  sizeof(path[j]));
		}
		switch (g_rand_int_range(rand, 0, 9)) {
		case 0:
		case 1: {
			const char *some[5] = { NULL };
			int n = 0;

			for (size_t j = 0; j < G_N_ELEMENTS(names); j++)
				if (g_rand_boolean(rand))
					some[n++] = names[j];
			list_at(*state, g_rand_boolean(rand) ? path[0] : "", some,
				g_rand_int_range(rand, 1, 9), 1, asked_us);
			break;
		}
		case 2:
			sbx_meta_did_set(*state, path[0], g_rand_boolean(rand) ? &file : &dir, NULL,
					 asked_us, now_us);
			break;
		case 3:
			sbx_meta_did_make_dir(*state, path[0], &dir, 1, asked_us, now_us);
			break;
		case 4:
			sbx_meta_did_remove(*state, path[0], now_us);
			assert_true(find(*state, path[0], now_us) != 0 ||
				    sbx_meta_remote(*state, path[0], &file) == -ENOENT);
			break;
		case 5:
			if (!sbx_path_is_within(path[1], path[0]) &&
			    !sbx_path_is_within(path[0], path[1]))
				sbx_meta_did_rename(*state, path[0], path[1], now_us);
			break;
		case 6:
			sbx_meta_saw(*state, path[0], g_rand_boolean(rand) ? &file : NULL, NULL,
				     asked_us, now_us);
			break;
		case 7:
			sbx_meta_set_local(*state, path[0], &file);
			/* A directory above it may be a file by now; it is never absent. */
			assert_int_not_equal(find(*state, path[0], now_us), -ENOENT);
			break;
		default:
			sbx_meta_clear_local(*state, path[0]);
			break;
		}
		now_us += g_rand_int_range(rand, 0, 1000);
	}
}

static void test_paths(void **state)
{
	g_autofree char *long_name = g_strnfill(256, 'n');
	g_autofree char *long_path = g_strnfill(4096, 'n');

	(void)state;
	assert_int_equal(sbx_path_check(""), 0);
	assert_int_equal(sbx_path_check("/"), 0);
	assert_int_equal(sbx_path_check("a"), 0);
	assert_int_equal(sbx_path_check("/usr/lib"), 0);
	assert_int_equal(sbx_path_check("a/b c\n\xff/..."), 0);
	assert_int_equal(sbx_path_check("//"), -EINVAL);
	assert_int_equal(sbx_path_check("a/"), -EINVAL);
	assert_int_equal(sbx_path_check("a//b"), -EINVAL);
	assert_int_equal(sbx_path_check("."), -EINVAL);
	assert_int_equal(sbx_path_check("a/../b"), -EINVAL);
	assert_int_equal(sbx_path_check("a/."), -EINVAL);
	assert_int_equal(sbx_path_check(long_name), -EINVAL);
	assert_int_equal(sbx_path_check(long_name + 1), 0);
	assert_int_equal(sbx_path_check(long_path), -ENAMETOOLONG);
	assert_true(sbx_path_is_within("a/b", "a"));
	assert_true(sbx_path_is_within("a", "a"));
	assert_true(sbx_path_is_within("a", ""));
	assert_false(sbx_path_is_within("ab", "a"));
	assert_false(sbx_path_is_within("a", "a/b"));
	assert_false(sbx_path_is_within("/a", ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_known, setup, teardown),
		cmocka_unit_test_setup_teardown(test_listing_answers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list_asks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changed_entries, setup, teardown),
		cmocka_unit_test_setup_teardown(test_later_listing_wins, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mutation_against_late_listing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_mutations_that_cross, setup, teardown),
		cmocka_unit_test_setup_teardown(test_saw, setup, teardown),
		cmocka_unit_test_setup_teardown(test_made_directory_is_known, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rename, setup, teardown),
		cmocka_unit_test_setup_teardown(test_type_change_drops_children, setup, teardown),
		cmocka_unit_test_setup_teardown(test_local_view, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expire, setup, teardown),
		cmocka_unit_test_setup_teardown(test_links, setup, teardown),
		cmocka_unit_test_setup_teardown(test_doubt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dirs_by_use, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names_without_attributes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
