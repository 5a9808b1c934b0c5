/* Receipts (client/snapshot/receipt.h), as whoever may write the state directory leaves them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/snapshot/receipt.h"
#include "tests/fuzz/garble.h"

#define ROUNDS 8000

#define ZEROS "00000000000000000000000000000000"
#define SHA   "\"sha256\":\"" ZEROS ZEROS "\""
#define TIME  "\"mtimeNs\":\"1234567890123456789\""

static const char clean[] =
	"{\"version\":1,\"snapshot\":\"one\",\"session\":\"id\",\"createdAt\":"
	"\"2026-11-30T08:30:00Z\",\"how\":\"route\",\"verified\":true,\"unstable\":1,"
	"\"clockNs\":\"42\",\"archive\":{\"size\":5," SHA "},\"entries\":[\n"
	"{\"path\":\"a\",\"type\":\"file\",\"mode\":\"0644\"," TIME ",\"size\":5," SHA "},\n"
	"{\"path\":\"b\",\"type\":\"file\",\"mode\":\"0644\"," TIME ",\"size\":5," SHA
	",\"sameAs\":\"a\"},\n"
	"{\"path\":\"d\",\"type\":\"directory\",\"mode\":\"1777\"," TIME "},\n"
	"{\"path\":\"d/f\",\"type\":\"file\",\"mode\":\"4755\"," TIME ",\"size\":0," SHA
	",\"unstable\":true},\n"
	"{\"path\":\"d/l\",\"type\":\"link\",\"mode\":\"0777\"," TIME
	",\"link\":\"../../etc\"}\n]}\n";

static const char spice[] = "{}[]\",:\\/.0123456789abcdeflunk \n\0\377";

/* A path that is followed below a directory. */
static void check_path(const char *path)
{
	g_auto(GStrv) parts = g_strsplit(path, "/", -1);

	assert_true(path[0]);
	for (char **part = parts; *part; part++)
		assert_true(**part && strcmp(*part, ".") && strcmp(*part, "..") &&
			    strlen(*part) <= 255);
	assert_string_not_equal(parts[0], ".sbxfs");
}

static void check_receipt(const struct sbx_receipt *receipt)
{
	for (guint i = 0; i < receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry = g_ptr_array_index(receipt->entries, i);

		check_path(entry->path);
		assert_true(S_ISREG(entry->mode) || S_ISDIR(entry->mode) || S_ISLNK(entry->mode));
		assert_true(S_ISLNK(entry->mode) == (entry->link != NULL));
		assert_ptr_equal(sbx_receipt_find(receipt, entry->path), entry);
		if (entry->same_as) {
			const struct sbx_receipt_entry *first =
				sbx_receipt_find(receipt, entry->same_as);

			assert_true(first && first != entry && S_ISREG(first->mode));
			assert_null(first->same_as);
		}
	}
}

static void test_receipts(void **state)
{
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		struct sbx_receipt *receipt = NULL;
		size_t len;
		g_autofree char *text = garble_text(&garble, clean, sizeof(clean) - 1, &len);
		int r = sbx_receipt_parse(text, len, &receipt);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0) {
			assert_null(receipt);
			continue;
		}
		garble.taken++;
		check_receipt(receipt);
		sbx_receipt_free(receipt);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receipts),
	};

	return cmocka_run_group_tests_name("fuzz_receipt", tests, NULL, NULL);
}
