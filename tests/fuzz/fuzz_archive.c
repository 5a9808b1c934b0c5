/*
 * Archives (client/snapshot/tarball.h): fields of headers and records spoilt under a checksum that
 * is right, and whole archives spoilt as they are.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/call.h"
#include "client/snapshot/tarball.h"
#include "tests/fuzz/garble.h"

#define ROUNDS 3000
#define BLOCK  512

static const char spice[] = "../ 0123457xgLK=\n\0\200\377abcdef";

struct field {
	const char *text;
	size_t len;
};

#define FIELD(text)                    \
	{                              \
		text, sizeof(text) - 1 \
	}

/* A member; its fields one after the other in a header, of those widths. */
struct member {
	char type;
	struct field name, size, link, data;
};

static const struct member members[] = {
	{ '5', FIELD("d/"), FIELD("00000000000"), FIELD(""), FIELD("") },
	{ '0', FIELD("d/f"), FIELD("00000000005"), FIELD(""), FIELD("hello") },
	{ 'x', FIELD("PaxHeader"), FIELD("00000000070"), FIELD(""),
	  FIELD("17 path=d/longer\n17 mtime=12.5000\n9 size=5\n13 uname=xyz\n") },
	{ '0', FIELD("short"), FIELD("00000000005"), FIELD(""), FIELD("bytes") },
	{ '2', FIELD("l"), FIELD("00000000000"), FIELD("/etc/passwd"), FIELD("") },
	{ '1', FIELD("d/g"), FIELD("00000000000"), FIELD("d/f"), FIELD("") },
	{ 'L', FIELD("././@LongLink"), FIELD("00000000014"), FIELD(""), FIELD("d/long/name\0") },
	{ '0', FIELD("cut"), FIELD("00000000002"), FIELD(""), FIELD("xy") },
};

/* Into @ret at @at, @room bytes at most; spoilt in some of the rounds. */
static void field_write(struct garble *garble, const struct field *field, uint8_t *ret, size_t at,
			size_t room)
{
	if (garble_pick(garble, 8) == 0) {
		size_t len;
		g_autofree char *text = garble_text(garble, field->text, field->len, &len);

		garble->rounds--;
		memcpy(ret + at, text, MIN(len, room));
	} else {
		memcpy(ret + at, field->text, MIN(field->len, room));
	}
}

static void member_write(struct garble *garble, const struct member *member, GByteArray *image)
{
	uint8_t head[BLOCK] = { 0 };
	uint8_t data[BLOCK] = { 0 };
	unsigned int sum = 0;
	char number[16];

	field_write(garble, &member->name, head, 0, 100);
	memcpy(head + 100, "0000644", 7);
	memcpy(head + 108, "0000000", 7);
	memcpy(head + 116, "0000000", 7);
	field_write(garble, &member->size, head, 124, 12);
	memcpy(head + 136, "14551434077", 11);
	memset(head + 148, ' ', 8);
	head[156] =
		(uint8_t)(garble_pick(garble, 40) == 0 ? "01234567xgLKS"[garble_pick(garble, 13)]
						       : member->type);
	field_write(garble, &member->link, head, 157, 100);
	memcpy(head + 257, "ustar\00000", 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += head[i];
	g_snprintf(number, sizeof(number), "%06o", sum);
	memcpy(head + 148, number, 7);
	g_byte_array_append(image, head, BLOCK);
	if (member->data.len) {
		field_write(garble, &member->data, data, 0, BLOCK);
		g_byte_array_append(image, data, BLOCK);
	}
}

/* Nothing that is taken leads out, and all of it was read. */
static void check_list(const struct sbx_tar_list *list)
{
	uint64_t bytes = 0;

	for (guint i = 0; i < list->members->len; i++) {
		const struct sbx_tar_member *member = g_ptr_array_index(list->members, i);
		g_auto(GStrv) parts = g_strsplit(member->path, "/", -1);

		for (char **part = parts; *part; part++)
			assert_true(**part && strcmp(*part, ".") && strcmp(*part, "..") &&
				    strlen(*part) <= 255);
		assert_non_null(sbx_tar_find(list, member->path));
		assert_true((member->mode & ~(mode_t)07777) == 0);
		assert_true(S_ISREG(member->type) || S_ISDIR(member->type) ||
			    S_ISLNK(member->type));
		if (S_ISLNK(member->type))
			assert_true(member->link && member->link[0]);
		if (member->is_hardlink) {
			const struct sbx_tar_member *first = sbx_tar_find(list, member->link);

			assert_true(S_ISREG(member->type) && first && S_ISREG(first->type));
		} else {
			bytes += member->size;
		}
	}
	assert_int_equal(bytes, list->bytes);
}

static void read_archive(struct garble *garble, const void *bytes, size_t len)
{
	static const struct sbx_call no_limits;
	struct sbx_tar_limits limits;
	struct sbx_tar_list *list = NULL;
	g_autofree char *message = NULL;
	int fd = memfd_create("tar", MFD_CLOEXEC), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	sbx_tar_limits_init(&limits);
	limits.skip_special = garble_pick(garble, 2);
	r = sbx_tar_read(fd, &no_limits, &limits, NULL, NULL, &list, &message);
	close(fd);
	assert_true(r == 0 || r == -EINVAL || r == -E2BIG);
	if (r < 0) {
		/* One line for people. */
		assert_true(!list && message && !strchr(message, '\n'));
		return;
	}
	garble->taken++;
	check_list(list);
	sbx_tar_list_free(list);
}

static void build(struct garble *garble, GByteArray *image)
{
	static const uint8_t zeros[2 * BLOCK];

	g_byte_array_set_size(image, 0);
	for (size_t i = 0; i < G_N_ELEMENTS(members); i++)
		member_write(garble, &members[i], image);
	g_byte_array_append(image, zeros, sizeof(zeros));
}

static void test_fields(void **state)
{
	g_autoptr(GByteArray) image = g_byte_array_new();
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	for (; garble.rounds < ROUNDS; garble.rounds++) {
		build(&garble, image);
		read_archive(&garble, image->data, image->len);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

static void test_whole_archives(void **state)
{
	g_autoptr(GByteArray) image = g_byte_array_new();
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		g_autofree char *bytes = NULL;
		size_t len;

		build(&garble, image);
		bytes = garble_text(&garble, (const char *)image->data, image->len, &len);
		read_archive(&garble, bytes, len);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_whole_archives),
	};

	return cmocka_run_group_tests_name("fuzz_archive", tests, NULL, NULL);
}
