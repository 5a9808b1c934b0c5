/* Nodes, their names and their numbers (fusefs/node.h, fusefs/ino.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <glib.h>

#include "client/attr.h"
#include "fusefs/node.h"
#include "fusefs/op.h"

static const struct node_class some_class;

static struct node_table *table_new(void)
{
	const struct node_spec root = { .class = &some_class, .type = S_IFDIR, .base_path = "" };
	struct node_table *table = node_table_new();

	assert_int_equal(node_table_set_root(table, &root), 0);
	return table;
}

static struct node *enter(struct node_table *table, struct node *parent, const char *name,
			  mode_t type, uint64_t ino)
{
	const struct node_spec spec = { .class = &some_class, .type = type, .dev = 7, .ino = ino };
	struct node *node;

	assert_int_equal(node_enter(table, parent, name, &spec, &node), 0);
	return node;
}

/* The reference that a request holds ends; the kernel's lookup stays. */
static struct node *known(struct node_table *table, struct node *parent, const char *name,
			  mode_t type, uint64_t ino)
{
	struct node *node = enter(table, parent, name, type, ino);

	node_put(table, node);
	return node;
}

static void assert_path(struct node_table *table, struct node *node, const char *wanted)
{
	char *path = NULL;

	assert_int_equal(node_path(table, node, &path), 0);
	assert_string_equal(path, wanted);
	g_free(path);
}

static uint64_t show(struct node_table *table, struct node *node, uint64_t ino, uint32_t nlink)
{
	const struct sbx_attr attr = { .ino = ino, .dev = 7, .nlink = nlink, .mode = S_IFREG };

	return node_show(table, node, &attr, true);
}

static void test_a_name_is_one_node(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *a = enter(table, root, "a", S_IFREG, 10);
	struct node *again = enter(table, root, "a", S_IFREG, 11);

	(void)state;
	/* A regular file's node is its path, whatever the number is now. */
	assert_ptr_equal(a, again);
	assert_int_equal(a->lookups, 2);
	node_put(table, again);
	node_put(table, a);
	node_forget(table, a->id, 1);
	assert_int_equal(node_count(table), 2);
	node_forget(table, a->id, 1);
	assert_int_equal(node_count(table), 1);
	node_put(table, root);
	node_table_free(table);
}

static void test_ids_are_not_used_again(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	uint64_t last = NODE_ROOT_ID;

	(void)state;
	for (int i = 0; i < 100; i++) {
		uint64_t id = known(table, root, "a", S_IFREG, 10)->id;

		assert_true(id > last);
		last = id;
		node_forget(table, id, 1);
		assert_null(node_get(table, id));
	}
	node_put(table, root);
	node_table_free(table);
}

static void test_forgetting_more_than_there_is(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	uint64_t id = known(table, root, "a", S_IFREG, 10)->id;

	(void)state;
	node_forget(table, id, 1000);
	assert_null(node_get(table, id));
	node_forget(table, 12345, 1);
	/* The root stays. */
	node_put(table, root);
	node_forget(table, NODE_ROOT_ID, 1);
	root = node_get(table, NODE_ROOT_ID);
	assert_non_null(root);
	node_put(table, root);
	node_table_free(table);
}

static void test_parents_live_as_long_as_children(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *dir = known(table, root, "d", S_IFDIR, 10);
	struct node *file = known(table, dir, "f", S_IFREG, 11);

	(void)state;
	node_forget(table, dir->id, 1);
	assert_path(table, file, "d/f");
	assert_int_equal(node_count(table), 3);
	node_forget(table, file->id, 1);
	assert_int_equal(node_count(table), 1);
	node_put(table, root);
	node_table_free(table);
}

static void test_renamed_directory_moves_what_is_below(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *from = known(table, root, "from", S_IFDIR, 10);
	struct node *to = known(table, root, "to", S_IFDIR, 11);
	struct node *file = known(table, from, "f", S_IFREG, 12);
	struct node *found;

	(void)state;
	node_renamed(table, root, "from", to, "x");
	assert_path(table, file, "to/x/f");
	found = node_find(table, to, "x");
	assert_ptr_equal(found, from);
	node_put(table, found);
	assert_null(node_find(table, root, "from"));
	node_put(table, root);
	node_table_free(table);
}

static void test_states_of_nodes_that_lost_their_name(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *old = known(table, root, "f", S_IFREG, 10);
	struct node *gone = known(table, root, "gone", S_IFREG, 11);
	struct node *dir = known(table, root, "d", S_IFDIR, 12);
	struct node *below = known(table, dir, "b", S_IFREG, 13);
	char *path = NULL;

	(void)state;
	known(table, root, "f.new", S_IFREG, 14);
	node_renamed(table, root, "f.new", root, "f");
	/* What was replaced can still be opened: by the path that it had. */
	assert_int_equal(node_state(table, old), NODE_REPLACED);
	assert_path(table, old, "f");

	node_removed(table, root, "gone");
	assert_int_equal(node_path(table, gone, &path), -ENOENT);

	/* Another directory of that name: another node, and what was in the old one is stale. */
	assert_ptr_not_equal(known(table, root, "d", S_IFDIR, 99), dir);
	assert_int_equal(node_path(table, dir, &path), -ESTALE);
	assert_int_equal(node_path(table, below, &path), -ESTALE);

	/* Another type: another node. */
	assert_ptr_not_equal(known(table, root, "f", S_IFDIR, 20), old);
	node_put(table, root);
	node_table_free(table);
}

static void test_another_epoch_keeps_directories(void **state)
{
	struct node_spec spec = { .class = &some_class, .type = S_IFDIR, .dev = 7, .ino = 10 };
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *dir = known(table, root, "d", S_IFDIR, 10);
	struct node *again;

	(void)state;
	spec.ino = 55;
	spec.epoch = 1;
	assert_int_equal(node_enter(table, root, "d", &spec, &again), 0);
	assert_ptr_equal(again, dir);
	node_put(table, again);
	node_put(table, root);
	node_table_free(table);
}

static void test_fresh_nodes_are_found_by_id_only(void **state)
{
	const struct node_spec spec = { .class = &some_class, .type = S_IFREG, .fresh = true };
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *one, *two;

	(void)state;
	assert_int_equal(node_enter(table, root, "control", &spec, &one), 0);
	assert_int_equal(node_enter(table, root, "control", &spec, &two), 0);
	assert_ptr_not_equal(one, two);
	assert_null(node_find(table, root, "control"));
	node_put(table, one);
	node_put(table, two);
	node_put(table, root);
	node_table_free(table);
}

static void test_base_paths(void **state)
{
	const struct node_spec sandbox = { .class = &some_class,
					   .type = S_IFDIR,
					   .base_path = "/" };
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *top, *etc;

	(void)state;
	assert_path(table, root, "");
	assert_int_equal(node_enter(table, root, ".sbxfs-root", &sandbox, &top), 0);
	etc = known(table, top, "etc", S_IFDIR, 3);
	assert_path(table, top, "/");
	assert_path(table, etc, "/etc");
	node_put(table, top);
	node_put(table, root);
	node_table_free(table);
}

static void test_number_of_another_live_file_is_not_shared(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *a = known(table, root, "a", S_IFREG, 10);
	struct node *b = known(table, root, "b", S_IFREG, 10);
	struct node *link = known(table, root, "link", S_IFREG, 10);
	uint64_t number = show(table, a, 10, 1);
	uint64_t other = show(table, b, 10, 1);

	(void)state;
	assert_int_equal((uint32_t)number, 10);
	assert_int_not_equal(number, other);
	/* git compares the low half only. */
	assert_int_equal((uint32_t)other, 10);
	/* It does not change while the node lives. */
	assert_int_equal(show(table, b, 10, 1), other);
	assert_int_equal(show(table, link, 10, 2), number);
	node_put(table, root);
	node_table_free(table);
}

static void test_number_stays_while_open(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *a = known(table, root, "a", S_IFREG, 10);
	struct handle handle = { .refs = 1 };
	uint64_t number = show(table, a, 10, 1);

	(void)state;
	node_handle_add(table, a, &handle);
	assert_int_equal(show(table, a, 11, 1), number);
	assert_true(node_handle_drop(table, a, &handle));
	assert_int_equal((uint32_t)show(table, a, 11, 1), 11);
	/* The first one is free again. */
	assert_int_equal(show(table, known(table, root, "b", S_IFREG, 10), 10, 1), number);
	node_put(table, root);
	node_table_free(table);
}

static void test_number_that_nobody_saw_gives_way(void **state)
{
	const struct sbx_attr attr = { .ino = 10, .dev = 7, .nlink = 1, .mode = S_IFREG };
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct node *a = known(table, root, "a", S_IFREG, 10);
	struct handle handle = { .refs = 1 };

	(void)state;
	/* Created and open, not looked at: the first publish gives it another inode. */
	node_show(table, a, &attr, false);
	node_handle_add(table, a, &handle);
	assert_int_equal((uint32_t)show(table, a, 11, 1), 11);
	assert_true(node_handle_drop(table, a, &handle));
	node_put(table, root);
	node_table_free(table);
}

static void test_handles_are_counted(void **state)
{
	struct node_table *table = table_new();
	struct node *root = node_get(table, NODE_ROOT_ID);
	struct handle handle = { .refs = 1 };

	(void)state;
	assert_null(node_handle_hold(table, root));
	node_handle_add(table, root, &handle);
	assert_true(node_is_open(table, root));
	assert_ptr_equal(node_handle_hold(table, root), &handle);
	assert_false(node_handle_drop(table, root, &handle));
	assert_ptr_equal(node_table_any_handle(table), &handle);
	assert_true(node_handle_drop(table, root, &handle));
	assert_false(node_is_open(table, root));
	assert_null(node_table_any_handle(table));
	node_put(table, root);
	node_table_free(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_name_is_one_node),
		cmocka_unit_test(test_ids_are_not_used_again),
		cmocka_unit_test(test_forgetting_more_than_there_is),
		cmocka_unit_test(test_parents_live_as_long_as_children),
		cmocka_unit_test(test_renamed_directory_moves_what_is_below),
		cmocka_unit_test(test_states_of_nodes_that_lost_their_name),
		cmocka_unit_test(test_another_epoch_keeps_directories),
		cmocka_unit_test(test_fresh_nodes_are_found_by_id_only),
		cmocka_unit_test(test_base_paths),
		cmocka_unit_test(test_number_of_another_live_file_is_not_shared),
		cmocka_unit_test(test_number_stays_while_open),
		cmocka_unit_test(test_number_that_nobody_saw_gives_way),
		cmocka_unit_test(test_handles_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
