/* Reading archives as hostile input (client/snapshot/tarball.h), and what thaw.h says of names. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/call.h"
#include "client/snapshot/tarball.h"
#include "client/snapshot/thaw.h"
#include "client/workspace/walk.h"

#define BLOCK 512

static const struct sbx_call no_limits;

/* An archive in memory. */
struct image {
	GByteArray *bytes;
};

static void image_init(struct image *image)
{
	image->bytes = g_byte_array_new();
}

static void put(uint8_t *block, size_t at, const char *text)
{
	memcpy(block + at, text, strlen(text));
}

static void add(struct image *image, char type, const char *name, const char *link,
		const char *data, uint64_t size)
{
	uint8_t block[BLOCK] = { 0 };
	char number[16];
	unsigned int sum = 0;
	size_t len = data ? strlen(data) : 0;

	memcpy(block, name, MIN(strlen(name), 100));
	put(block, 100, "0000644");
	put(block, 108, "0000000");
	put(block, 116, "0000000");
	g_snprintf(number, sizeof(number), "%011llo", (unsigned long long)size);
	put(block, 124, number);
	put(block, 136, "14551434077");
	memset(block + 148, ' ', 8);
	block[156] = (uint8_t)type;
	if (link)
		memcpy(block + 157, link, MIN(strlen(link), 100));
	memcpy(block + 257, "ustar\00000", 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += block[i];
	g_snprintf(number, sizeof(number), "%06o", sum);
	memcpy(block + 148, number, 7);
	block[155] = ' ';
	g_byte_array_append(image->bytes, block, BLOCK);
	memset(block, 0, BLOCK);
	if (len) {
		memcpy(block, data, len);
		g_byte_array_append(image->bytes, block, BLOCK);
	}
}

static void add_file(struct image *image, const char *name, const char *data)
{
	add(image, '0', name, NULL, data, strlen(data));
}

/* Ends the image and reads it; its bytes go. */
static int take(struct image *image, const struct sbx_tar_limits *limits,
		struct sbx_tar_list **ret_list, char **ret_message)
{
	static const uint8_t zeros[2 * BLOCK];
	struct sbx_tar_limits usual;
	int fd = memfd_create("tar", MFD_CLOEXEC), r;

	assert_true(fd >= 0);
	g_byte_array_append(image->bytes, zeros, sizeof(zeros));
	assert_int_equal(write(fd, image->bytes->data, image->bytes->len), image->bytes->len);
	g_byte_array_unref(image->bytes);
	sbx_tar_limits_init(&usual);
	r = sbx_tar_read(fd, &no_limits, limits ? limits : &usual, NULL, NULL, ret_list,
			 ret_message);
	close(fd);
	return r;
}

static void refuses(struct image *image, const struct sbx_tar_limits *limits, int error,
		    const char *why)
{
	struct sbx_tar_list *list = NULL;
	g_autofree char *message = NULL;

	assert_int_equal(take(image, limits, &list, &message), error);
	assert_null(list);
	assert_non_null(message);
	if (!strstr(message, why))
		fail_msg("%s, not %s", message, why);
}

static void test_lists(void **state)
{
	const struct sbx_tar_member *member;
	struct sbx_tar_list *list = NULL;
	g_autofree char *message = NULL;
	g_autofree char *sum = NULL;
	struct image image;
	uint8_t bytes[32];
	size_t len = 32;

	(void)state;
	image_init(&image);
	add(&image, '5', "d/", NULL, NULL, 0);
	add_file(&image, "./d/f", "hello");
	add(&image, '2', "l", "/etc/passwd", NULL, 0);
	add(&image, '1', "d/g", "d/f", NULL, 0);
	add(&image, '1', "d/h", "d/g", NULL, 0);
	add_file(&image, "d/f", "hello again");
	assert_int_equal(take(&image, NULL, &list, &message), 0);
	assert_int_equal(list->members->len, 6);
	member = sbx_tar_find(list, "d");
	assert_true(member && member->type == S_IFDIR && member->index == 0);
	/* Of equal names the last. */
	member = sbx_tar_find(list, "d/f");
	assert_true(member && member->size == 11 && member->index == 5);
	assert_int_equal(member->mode, 0644);
	assert_int_equal(member->mtime_ns, INT64_C(014551434077) * 1000000000);
	{
		g_autoptr(GChecksum) checksum = g_checksum_new(G_CHECKSUM_SHA256);

		g_checksum_update(checksum, (const guchar *)"hello again", 11);
		g_checksum_get_digest(checksum, bytes, &len);
	}
	assert_memory_equal(member->sha256, bytes, 32);
	member = sbx_tar_find(list, "l");
	assert_true(member && member->type == S_IFLNK);
	assert_string_equal(member->link, "/etc/passwd");
	/* A link to a link is one to the file. */
	member = sbx_tar_find(list, "d/h");
	assert_true(member && member->is_hardlink);
	assert_string_equal(member->link, "d/f");
	assert_null(sbx_tar_find(list, "nowhere"));
	assert_int_equal(list->bytes, 16);
	sbx_tar_list_free(list);
}

/* Times beyond the year 2262 are the last that there is, not some of before 1970. */
static void test_far_times(void **state)
{
	const struct sbx_tar_member *member;
	struct sbx_tar_list *list = NULL;
	g_autofree char *message = NULL;
	struct image image;

	(void)state;
	image_init(&image);
	add(&image, 'x', "pax", NULL, "21 mtime=99999999999\n", 21);
	add_file(&image, "f", "x");
	assert_int_equal(take(&image, NULL, &list, &message), 0);
	member = sbx_tar_find(list, "f");
	assert_true(member && member->mtime_ns == INT64_MAX - 1);
	sbx_tar_list_free(list);
}

static void test_empty(void **state)
{
	struct sbx_tar_list *list = NULL;
	g_autofree char *message = NULL;
	struct image image;

	(void)state;
	image_init(&image);
	assert_int_equal(take(&image, NULL, &list, &message), 0);
	assert_int_equal(list->members->len, 0);
	sbx_tar_list_free(list);
	sbx_tar_list_free(NULL);
}

static void test_names(void **state)
{
	static const char *const bad[] = { "../x", "a/../x", "/x",   "a/./b", "a//b",
					   "a/..", "..",     "./..", "/",     "./../x" };

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		struct image image;

		image_init(&image);
		add_file(&image, bad[i], "x");
		refuses(&image, NULL, -EINVAL, "a name that leads out");
	}
}

static void test_types(void **state)
{
	(void)state;
	for (const char *type = "346"; *type; type++) {
		struct sbx_tar_limits lenient;
		struct sbx_tar_list *list = NULL;
		g_autofree char *message = NULL;
		struct image image;

		image_init(&image);
		add(&image, *type, "x", NULL, NULL, 0);
		refuses(&image, NULL, -EINVAL, "neither file");
		sbx_tar_limits_init(&lenient);
		lenient.skip_special = true;
		image_init(&image);
		add(&image, *type, "x", NULL, NULL, 0);
		add_file(&image, "f", "x");
		assert_int_equal(take(&image, &lenient, &list, &message), 0);
		assert_int_equal(list->members->len, 1);
		assert_int_equal(sbx_tar_find(list, "f")->index, 1);
		sbx_tar_list_free(list);
	}
}

static void test_ways(void **state)
{
	struct image image;

	(void)state;
	image_init(&image);
	add(&image, '2', "l", "/tmp", NULL, 0);
	add_file(&image, "l/x", "x");
	refuses(&image, NULL, -EINVAL, "no directory");
	image_init(&image);
	add_file(&image, "f", "x");
	add_file(&image, "f/a/b", "x");
	refuses(&image, NULL, -EINVAL, "no directory");
	image_init(&image);
	add(&image, '5', "d", NULL, NULL, 0);
	add_file(&image, "d", "x");
	refuses(&image, NULL, -EINVAL, "is a directory before");
	image_init(&image);
	add(&image, '1', "x", "nowhere", NULL, 0);
	refuses(&image, NULL, -EINVAL, "no file before it");
	image_init(&image);
	add(&image, '2', "l", "f", NULL, 0);
	add(&image, '1', "x", "l", NULL, 0);
	refuses(&image, NULL, -EINVAL, "no file before it");
	image_init(&image);
	add(&image, '2', "l", "", NULL, 0);
	refuses(&image, NULL, -EINVAL, "without a text");
}

static void test_bounds(void **state)
{
	struct sbx_tar_limits limits;
	struct image image;

	(void)state;
	sbx_tar_limits_init(&limits);
	limits.max_members = 2;
	image_init(&image);
	for (int i = 0; i < 3; i++) {
		g_autofree char *name = g_strdup_printf("f%d", i);

		add_file(&image, name, "x");
	}
	refuses(&image, &limits, -E2BIG, "more than 2 members");
	sbx_tar_limits_init(&limits);
	limits.max_bytes = 10;
	image_init(&image);
	add_file(&image, "a", "12345678");
	add_file(&image, "b", "123");
	refuses(&image, &limits, -E2BIG, "unpacks to more");
	image_init(&image);
	add(&image, '0', "x", NULL, NULL, UINT64_C(100) << 20);
	refuses(&image, NULL, -EINVAL, "cut");
	image_init(&image);
	add(&image, '0', "x", NULL, NULL, (UINT64_C(1) << 33) - 1);
	refuses(&image, NULL, -E2BIG, "unpacks to more");
}

static void test_cut(void **state)
{
	struct image image;

	(void)state;
	image_init(&image);
	add_file(&image, "f", "hello");
	add_file(&image, "g", "hello");
	for (guint len = 1; len < image.bytes->len; len += 100) {
		struct sbx_tar_list *list = NULL;
		struct sbx_tar_limits limits;
		g_autofree char *message = NULL;
		int fd = memfd_create("tar", MFD_CLOEXEC);

		sbx_tar_limits_init(&limits);
		assert_int_equal(write(fd, image.bytes->data, len), len);
		assert_int_equal(sbx_tar_read(fd, &no_limits, &limits, NULL, NULL, &list, &message),
				 -EINVAL);
		assert_non_null(strstr(message, "its end is missing"));
		close(fd);
	}
	/* An end put behind what was cut does not help. */
	g_byte_array_set_size(image.bytes, 2 * BLOCK + 100);
	refuses(&image, NULL, -EINVAL, "its end is missing");
	image_init(&image);
	add_file(&image, "f", "hello");
	add_file(&image, "g", "hello");
	image.bytes->data[2 * BLOCK + 124 + 7] = '7';
	refuses(&image, NULL, -EINVAL, "damaged");
}

static void test_cancelled(void **state)
{
	struct sbx_cancel *cancel = sbx_cancel_new(NULL);
	struct sbx_call call = { .cancel = cancel };
	struct sbx_tar_list *list = NULL;
	struct sbx_tar_limits limits;
	g_autofree char *message = NULL;
	static const uint8_t zeros[2 * BLOCK];
	struct image image;
	int fd = memfd_create("tar", MFD_CLOEXEC);

	(void)state;
	image_init(&image);
	add_file(&image, "f", "x");
	g_byte_array_append(image.bytes, zeros, sizeof(zeros));
	assert_int_equal(write(fd, image.bytes->data, image.bytes->len), image.bytes->len);
	sbx_tar_limits_init(&limits);
	sbx_cancel_fire(cancel);
	assert_int_equal(sbx_tar_read(fd, &call, &limits, NULL, NULL, &list, &message), -EINTR);
	g_byte_array_unref(image.bytes);
	sbx_cancel_unref(cancel);
	close(fd);
}

/* Thaw ----------------------------------------------------------------------------------------- */

static void name_becomes(const char *name, bool is_directory, const char *expected)
{
	g_autofree char *after = sbx_thaw_name_after(name, is_directory);

	if (expected)
		assert_string_equal(after, expected);
	else
		assert_null(after);
}

static void test_names_after(void **state)
{
	g_autofree char *n99 = g_strnfill(99, 'n');
	g_autofree char *n100 = g_strnfill(100, 'n');
	g_autofree char *n101 = g_strnfill(101, 'n');
	g_autofree char *long_accent = g_strconcat("é", n99, NULL);

	(void)state;
	name_becomes("plain", false, NULL);
	name_becomes("é", false, "Ã©");
	name_becomes("é/plain", true, "Ã©/plain");
	name_becomes(n99, false, NULL);
	name_becomes(n100, false, n99);
	name_becomes(n101, false, NULL);
	/* Of a directory it is the slash that is lost, or PAX that keeps all. */
	name_becomes(n99, true, NULL);
	name_becomes(n100, true, NULL);
	name_becomes(long_accent, false, NULL);
}

static char *risk_of(const char *const *paths, const char *link)
{
	struct sbx_walk walk = { .entries = g_ptr_array_new() };
	struct sbx_walk_entry entries[4] = { 0 };
	char *risk;

	for (size_t i = 0; paths[i]; i++) {
		entries[i].path = (char *)paths[i];
		entries[i].attr.mode = S_IFREG | 0644;
		g_ptr_array_add(walk.entries, &entries[i]);
	}
	if (link) {
		entries[0].link = (char *)link;
		entries[0].attr.mode = S_IFLNK | 0777;
	}
	risk = sbx_thaw_risk_of(&walk);
	g_ptr_array_unref(walk.entries);
	return risk;
}

static void is_at_risk(const char *const *paths, const char *link, const char *expected)
{
	g_autofree char *risk = risk_of(paths, link);

	if (expected)
		assert_string_equal(risk, expected);
	else
		assert_null(risk);
}

static void test_risk(void **state)
{
	g_autofree char *n99 = g_strnfill(99, 'n');
	g_autofree char *a = g_strconcat(n99, "a", NULL);
	g_autofree char *b = g_strconcat(n99, "b", NULL);
	g_autofree char *b_longer = g_strconcat(n99, "bb", NULL);

	(void)state;
	is_at_risk((const char *[]){ "a", "b/c", NULL }, NULL, NULL);
	is_at_risk((const char *[]){ "l", NULL }, "/usr", "l");
	is_at_risk((const char *[]){ "l", NULL }, "../x", "l");
	is_at_risk((const char *[]){ "d/l", NULL }, "../x", NULL);
	is_at_risk((const char *[]){ "d/l", NULL }, "../x/../../y", "d/l");
	is_at_risk((const char *[]){ "d/l", NULL }, "x/../../y", NULL);
	is_at_risk((const char *[]){ "l", NULL }, "C:x", "l");
	is_at_risk((const char *[]){ "C:x", NULL }, NULL, "C:x");
	is_at_risk((const char *[]){ "d/C:x", NULL }, NULL, NULL);
	is_at_risk((const char *[]){ "d/a\\b", NULL }, NULL, "d/a\\b");
	is_at_risk((const char *[]){ a, NULL }, NULL, NULL);
	is_at_risk((const char *[]){ a, b, NULL }, NULL, a);
	is_at_risk((const char *[]){ n99, a, NULL }, NULL, a);
	is_at_risk((const char *[]){ a, b_longer, NULL }, NULL, NULL);
	/* What can't be archived is not put to sleep. */
	is_at_risk((const char *[]){ "C:x", "\xff", NULL }, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),	  cmocka_unit_test(test_empty),
		cmocka_unit_test(test_names),	  cmocka_unit_test(test_types),
		cmocka_unit_test(test_ways),	  cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_cut),	  cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_far_times), cmocka_unit_test(test_names_after),
		cmocka_unit_test(test_risk),
	};

	return cmocka_run_group_tests_name("tarball", tests, NULL, NULL);
}
