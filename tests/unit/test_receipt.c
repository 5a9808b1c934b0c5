/* Receipts (client/snapshot/receipt.h): filled from an archive and two looks, printed, read. */
#include <errno.h>
#include <glib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/snapshot/receipt.h"
#include "client/workspace/walk.h"

/* What was looked at, and what was archived, in pieces of a test's own. */
struct scene {
	struct sbx_walk before;
	struct sbx_walk after;
	struct sbx_tar_list archive;
	GPtrArray *owned;
};

static void scene_init(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	scene->owned = g_ptr_array_new_with_free_func(g_free);
	scene->before.entries = g_ptr_array_new();
	scene->after.entries = g_ptr_array_new();
	scene->archive.members = g_ptr_array_new();
	scene->archive.by_path = g_hash_table_new(g_str_hash, g_str_equal);
}

static void scene_done(struct scene *scene)
{
	g_ptr_array_unref(scene->before.entries);
	g_ptr_array_unref(scene->after.entries);
	g_ptr_array_unref(scene->archive.members);
	g_hash_table_unref(scene->archive.by_path);
	g_ptr_array_unref(scene->owned);
}

static void *own(struct scene *scene, void *piece)
{
	g_ptr_array_add(scene->owned, piece);
	return piece;
}

static struct sbx_walk_entry *seen(struct scene *scene, struct sbx_walk *walk, const char *path,
				   mode_t mode, uint64_t size, int64_t mtime_ns)
{
	struct sbx_walk_entry *entry = own(scene, g_new0(struct sbx_walk_entry, 1));

	entry->path = (char *)path;
	entry->attr.mode = mode;
	entry->attr.size = size;
	entry->attr.mtime_ns = mtime_ns;
	entry->attr.has_ns = true;
	entry->attr.nlink = 1;
	g_ptr_array_add(walk->entries, entry);
	return entry;
}

/* The same at both looks. */
static void stays(struct scene *scene, const char *path, mode_t mode, uint64_t size)
{
	seen(scene, &scene->before, path, mode, size, 1234567890123456789);
	seen(scene, &scene->after, path, mode, size, 1234567890123456789);
}

static struct sbx_tar_member *archived(struct scene *scene, const char *path, mode_t type,
				       uint64_t size)
{
	struct sbx_tar_member *member = own(scene, g_new0(struct sbx_tar_member, 1));

	member->path = (char *)path;
	member->type = type;
	member->mode = 0600;
	member->size = size;
	memset(member->sha256, (int)strlen(path), sizeof(member->sha256));
	g_ptr_array_add(scene->archive.members, member);
	g_hash_table_insert(scene->archive.by_path, member->path, member);
	return member;
}

static int by_path(const void *a, const void *b)
{
	return strcmp((*(struct sbx_walk_entry *const *)a)->path,
		      (*(struct sbx_walk_entry *const *)b)->path);
}

static struct sbx_receipt *filled(struct scene *scene)
{
	struct sbx_receipt *receipt = sbx_receipt_new();

	receipt->snapshot = g_strdup("one");
	receipt->session = g_strdup("id");
	receipt->created = g_strdup("2026-11-30T08:30:00Z");
	receipt->how = g_strdup("route");
	receipt->verified = true;
	receipt->clock_ns = 42;
	g_ptr_array_sort(scene->before.entries, by_path);
	g_ptr_array_sort(scene->after.entries, by_path);
	sbx_receipt_fill(receipt, &scene->archive, &scene->before, &scene->after);
	return receipt;
}

static void test_from_both(void **state)
{
	const struct sbx_receipt_entry *entry;
	struct sbx_receipt *receipt;
	struct scene scene;

	(void)state;
	scene_init(&scene);
	stays(&scene, "d", S_IFDIR | 0700, 4096);
	stays(&scene, "d/f", S_IFREG | 0640, 5);
	stays(&scene, "fifo", S_IFIFO | 0600, 0);
	archived(&scene, "d", S_IFDIR, 0);
	archived(&scene, "d/f", S_IFREG, 5);
	receipt = filled(&scene);
	assert_int_equal(receipt->entries->len, 2);
	entry = sbx_receipt_find(receipt, "d");
	assert_int_equal(entry->mode, S_IFDIR | 0700);
	assert_int_equal(entry->size, 0);
	entry = sbx_receipt_find(receipt, "d/f");
	/* Modes and times are the looks', content is the archive's. */
	assert_int_equal(entry->mode, S_IFREG | 0640);
	assert_int_equal(entry->mtime_ns, 1234567890123456789);
	assert_int_equal(entry->sha256[0], 3);
	assert_null(sbx_receipt_find(receipt, "fifo"));
	assert_int_equal(sbx_receipt_unstable(receipt), 0);
	assert_int_equal(sbx_receipt_missing(receipt), 0);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

static void test_unstable(void **state)
{
	struct sbx_receipt *receipt;
	struct scene scene;

	(void)state;
	scene_init(&scene);
	seen(&scene, &scene.before, "changed", S_IFREG | 0644, 5, 1);
	seen(&scene, &scene.after, "changed", S_IFREG | 0644, 5, 2);
	seen(&scene, &scene.after, "came", S_IFREG | 0644, 5, 1);
	seen(&scene, &scene.after, "came late", S_IFREG | 0644, 5, 1);
	seen(&scene, &scene.before, "went", S_IFREG | 0644, 5, 1);
	seen(&scene, &scene.before, "went early", S_IFREG | 0644, 5, 1);
	stays(&scene, "grew", S_IFREG | 0644, 5);
	stays(&scene, "missed", S_IFREG | 0644, 5);
	archived(&scene, "came", S_IFREG, 5);
	archived(&scene, "changed", S_IFREG, 5);
	archived(&scene, "grew", S_IFREG, 7);
	archived(&scene, "went", S_IFREG, 5);
	receipt = filled(&scene);
	assert_true(sbx_receipt_find(receipt, "changed")->unstable);
	assert_true(sbx_receipt_find(receipt, "grew")->unstable);
	assert_int_equal(sbx_receipt_find(receipt, "grew")->size, 7);
	assert_null(sbx_receipt_find(receipt, "came late"));
	assert_null(sbx_receipt_find(receipt, "went early"));
	assert_true(sbx_receipt_find(receipt, "missed")->missing);
	assert_int_equal(sbx_receipt_missing(receipt), 1);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

static void test_names_of_100_bytes(void **state)
{
	g_autofree char *n99 = g_strnfill(99, 'n');
	g_autofree char *n100 = g_strnfill(100, 'n');
	const struct sbx_receipt_entry *entry;
	struct sbx_receipt *receipt;
	struct scene scene;

	(void)state;
	scene_init(&scene);
	stays(&scene, n100, S_IFREG | 0644, 5);
	archived(&scene, n99, S_IFREG, 5);
	receipt = filled(&scene);
	entry = sbx_receipt_find(receipt, n100);
	assert_string_equal(entry->member, n99);
	assert_false(entry->missing);
	sbx_receipt_free(receipt);
	scene_done(&scene);
	/* Where a file is really called so, the other is not in the archive. */
	scene_init(&scene);
	stays(&scene, n99, S_IFREG | 0644, 5);
	stays(&scene, n100, S_IFREG | 0644, 5);
	archived(&scene, n99, S_IFREG, 5);
	receipt = filled(&scene);
	assert_true(sbx_receipt_find(receipt, n100)->missing);
	assert_false(sbx_receipt_find(receipt, n99)->missing);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

static void test_names_of_one_file(void **state)
{
	struct sbx_receipt *receipt;
	struct sbx_tar_member *member;
	struct scene scene;

	(void)state;
	scene_init(&scene);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "a", "b", "c" };
		struct sbx_walk_entry *entry =
			seen(&scene, &scene.before, names[i], S_IFREG | 0644, 5, 1);

		entry->attr.nlink = 2;
		entry->attr.ino = 7;
		entry = seen(&scene, &scene.after, names[i], S_IFREG | 0644, 5, 1);
		/* "c" has become a file of its own since. */
		entry->attr.nlink = i < 2 ? 2 : 1;
		entry->attr.ino = i < 2 ? 7 : 8;
	}
	archived(&scene, "c", S_IFREG, 5);
	for (int i = 0; i < 2; i++) {
		member = archived(&scene, i ? "b" : "a", S_IFREG, 0);
		member->is_hardlink = true;
		member->link = (char *)"c";
	}
	receipt = filled(&scene);
	assert_null(sbx_receipt_find(receipt, "a")->same_as);
	assert_string_equal(sbx_receipt_find(receipt, "b")->same_as, "a");
	/* One content of the archive is put in one place, the others are its names. */
	assert_string_equal(sbx_receipt_find(receipt, "c")->same_as, "a");
	assert_int_equal(sbx_receipt_find(receipt, "a")->size, 5);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

static void test_from_the_archive(void **state)
{
	struct sbx_receipt *receipt = sbx_receipt_new();
	struct sbx_tar_member *member;
	struct scene scene;

	(void)state;
	scene_init(&scene);
	archived(&scene, ".sbxfs", S_IFDIR, 0);
	archived(&scene, ".sbxfs/ops/1", S_IFREG, 5);
	archived(&scene, "f", S_IFREG, 5)->mtime_ns = 5;
	member = archived(&scene, "l", S_IFLNK, 0);
	member->link = (char *)"f";
	sbx_receipt_fill(receipt, &scene.archive, NULL, NULL);
	assert_int_equal(receipt->entries->len, 2);
	assert_string_equal(sbx_receipt_find(receipt, "l")->link, "f");
	assert_int_equal(sbx_receipt_find(receipt, "f")->mode, S_IFREG | 0600);
	assert_int_equal(sbx_receipt_find(receipt, "f")->mtime_ns, 5);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

static void test_there_and_back(void **state)
{
	struct sbx_receipt *receipt, *back = NULL;
	struct sbx_walk_entry *link;
	struct scene scene;
	char *text, *again;

	(void)state;
	scene_init(&scene);
	stays(&scene, "bad\xff\nname", S_IFREG | 04755, 5);
	stays(&scene, "d", S_IFDIR | 01777, 0);
	for (int i = 0; i < 2; i++) {
		link = seen(&scene, i ? &scene.after : &scene.before, "l", S_IFLNK | 0777, 4, -5);
		link->link = (char *)"\xfe\"\\";
		link->attr.has_ns = false;
	}
	archived(&scene, "bad\xff\nname", S_IFREG, 5);
	receipt = filled(&scene);
	text = sbx_receipt_print(receipt);
	assert_int_equal(sbx_receipt_parse(text, strlen(text), &back), 0);
	again = sbx_receipt_print(back);
	assert_string_equal(text, again);
	assert_string_equal(sbx_receipt_find(back, "l")->link, "\xfe\"\\");
	assert_false(sbx_receipt_find(back, "l")->has_ns);
	assert_int_equal(sbx_receipt_find(back, "l")->mtime_ns, -5);
	assert_int_equal(sbx_receipt_find(back, "bad\xff\nname")->mode, S_IFREG | 04755);
	assert_int_equal(back->clock_ns, 42);
	assert_true(back->verified);
	/* One line an entry. */
	assert_int_equal(g_strrstr(text, "\n]}\n") - text, strlen(text) - 4);
	sbx_receipt_free(back);
	/* Nothing that is cut is a receipt. */
	for (size_t len = 0; len + 2 < strlen(text); len += 7)
		assert_int_equal(sbx_receipt_parse(text, len, &back), -EBADMSG);
	free(text);
	free(again);
	sbx_receipt_free(receipt);
	scene_done(&scene);
}

#define HEAD                                                                                     \
	"{\"version\":1,\"snapshot\":\"one\",\"session\":\"\",\"createdAt\":\"x\",\"how\":"      \
	"\"import\",\"verified\":true,\"unstable\":0,\"clockNs\":\"0\",\"archive\":{\"size\":0," \
	"\"sha256\":\"0000000000000000000000000000000000000000000000000000000000000000\"},"      \
	"\"entries\":["
#define DIRECTORY(path) \
	"{\"path\":\"" path "\",\"type\":\"directory\",\"mode\":\"0755\",\"mtimeNs\":\"0\"}"
#define LINK(path, text)                                                                \
	"{\"path\":\"" path "\",\"type\":\"link\",\"mode\":\"0777\",\"mtimeNs\":\"0\"," \
	"\"link\":\"" text "\"}"
#define FILE_MORE(path, more)                                                                     \
	"{\"path\":\"" path "\",\"type\":\"file\",\"mode\":\"0644\",\"mtimeNs\":\"0\",\"size\""   \
	":0,\"sha256\":\"0000000000000000000000000000000000000000000000000000000000000000\"" more \
	"}"
#define FILE(path) FILE_MORE(path, "")

static void test_hostile(void **state)
{
	static const char *const bad[] = {
		FILE("../x"),
		FILE("/x"),
		FILE(""),
		FILE("a//b"),
		FILE("a/./b"),
		FILE(".sbxfs/x"),
		LINK("l", "/tmp") "," FILE("l/x"),
		FILE("f") "," DIRECTORY("f/d"),
		FILE("f") "," FILE("f"),
		FILE_MORE("f", ",\"sameAs\":\"nowhere\""),
		FILE_MORE("f", ",\"sameAs\":\"../x\""),
		FILE_MORE("f", ",\"sameAs\":\"f\""),
		FILE("a") "," FILE_MORE("b", ",\"sameAs\":\"a\"") "," FILE_MORE("c", ",\"sameAs\":"
										     "\"b\""),
		FILE_MORE("f", ",\"link\":\"x\""),
		LINK("l", ""),
		"{\"path\":\"f\"}",
		"5",
		"{\"path\":\"f\",\"type\":\"file\",\"mode\":\"99\",\"mtimeNs\":\"0\",\"size\":0}",
	};
	static const char *const good[] = {
		"",
		DIRECTORY("d") "," FILE("d/f"),
		FILE("d/f"),
		FILE("a") "," FILE_MORE("b", ",\"sameAs\":\"a\""),
		LINK("l", "/tmp"),
	};
	struct sbx_receipt *receipt = NULL;

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		g_autofree char *text = g_strconcat(HEAD, bad[i], "]}", NULL);

		if (sbx_receipt_parse(text, strlen(text), &receipt) != -EBADMSG)
			fail_msg("taken: %s", bad[i]);
	}
	for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
		g_autofree char *text = g_strconcat(HEAD, good[i], "]}", NULL);

		assert_int_equal(sbx_receipt_parse(text, strlen(text), &receipt), 0);
		sbx_receipt_free(receipt);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_from_both),
		cmocka_unit_test(test_unstable),
		cmocka_unit_test(test_names_of_100_bytes),
		cmocka_unit_test(test_names_of_one_file),
		cmocka_unit_test(test_from_the_archive),
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests_name("receipt", tests, NULL, NULL);
}
