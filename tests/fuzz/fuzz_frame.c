/* Frames (client/program.h), and answers that stand in them without one (client/job.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/job.h"
#include "client/program.h"
#include "tests/fuzz/garble.h"

#define ROUNDS	  10000
#define MAX_BYTES 4096

/* Of "some bytes, and some more of them" below gzip. */
#define PACKED "H4sIAAAAAAACAyvOz01VSKosSS3WUUjMS1EoBvFz84tSFfLTFEoyUnO5ANR3vg8iAAAA"

static const char spice[] = "SBXFSEND -tz.!0123456789=\n\t abc\0\177\377";

/* A section that is taken is as long as it says, and all of them within the bound. */
static void check_answer(struct sbx_program_answer *answer)
{
	size_t total = 0;

	assert_in_range(answer->sections, 1, SBX_PROGRAM_SECTIONS_MAX);
	for (unsigned int i = 0; i < answer->sections; i++) {
		assert_non_null(answer->section[i]);
		total += answer->section[i]->len;
	}
	assert_true(total <= MAX_BYTES);
	sbx_program_answer_clear(answer);
}

static void test_frames(void **state)
{
	static const char *const clean[] = {
		"SBXFS1 abc - 8\nc29tZQo=\nEND abc\n",
		"SBXFS1 abc - 8 - . t 7\nc29tZQo=\nQUJDRA==\nx\ny\tz\n\n\nEND abc\n",
		"SBXFS1 abc z 68\n" PACKED "\nEND abc\n",
		"SBXFS1 abc t . - 10 z 68\nline\tof\ttext\nQUJD\nREVG\n\n" PACKED "\nEND abc\n",
		"SBXFS1 abc !big\nEND abc\n",
	};
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		const char *text = clean[garble_pick(&garble, G_N_ELEMENTS(clean))];
		struct sbx_program_answer answer = { .sections = 77 };
		size_t len;
		g_autofree char *out = garble_text(&garble, text, strlen(text), &len);
		int r = sbx_program_unframe(out, len, "abc", MAX_BYTES, &answer);

		if (r == 0) {
			garble.taken++;
			check_answer(&answer);
			continue;
		}
		assert_true(r == -EBADMSG || r == -EMSGSIZE || r == -EOPNOTSUPP ||
			    r == -EINPROGRESS || r == -EUCLEAN);
		assert_int_equal(answer.sections, 77);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

/* What a small gzip text unpacks to is bounded, whatever its bytes are. */
static void test_packed(void **state)
{
	struct garble garble;
	gsize packed_len;
	g_autofree guchar *packed = g_base64_decode(PACKED, &packed_len);

	(void)state;
	garble_init(&garble, "\0\377\1\177", 4);
	while (garble.rounds < ROUNDS) {
		struct sbx_program_answer answer;
		size_t len;
		g_autofree char *bytes =
			garble_text(&garble, (const char *)packed, packed_len, &len);
		g_autofree char *text = g_base64_encode((const guchar *)bytes, len);
		g_autofree char *out =
			g_strdup_printf("SBXFS1 abc z %zu\n%s\nEND abc\n", strlen(text), text);

		if (sbx_program_unframe(out, strlen(out), "abc", MAX_BYTES, &answer) < 0)
			continue;
		garble.taken++;
		check_answer(&answer);
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

static void test_polls(void **state)
{
	static const char clean[] = "Pabc\n12 1 - \nc29tZSBieXRlcwo=\n"
				    "7 0 3 exited 3 7 1796036392 0\n\n"
				    "9 - - \nQUJD\nEabc\n";
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		struct sbx_job_poll_item items[3] = { 0 };
		size_t len;
		g_autofree char *out = garble_text(&garble, clean, sizeof(clean) - 1, &len);
		int r = sbx_job_poll_decode(items, 3, "abc", 64, out, len);

		assert_true(r == 0 || r == -EBADMSG || r == -EMSGSIZE);
		garble.taken += r == 0;
		for (unsigned int i = 0; i < 3; i++) {
			assert_true(r == 0 || !items[i].bytes);
			assert_true(!items[i].bytes || items[i].bytes->len <= 64);
			assert_true(items[i].log_bytes <= INT64_MAX);
			sbx_job_poll_item_clear(&items[i]);
		}
	}
	garble_check_taken(&garble);
	garble_done(&garble);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_packed),
		cmocka_unit_test(test_polls),
	};

	return cmocka_run_group_tests_name("fuzz_frame", tests, NULL, NULL);
}
