/* What stands in the frames of scan, apply, pack, probe and the list of jobs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/apply.h"
#include "client/job.h"
#include "client/pack.h"
#include "client/probe.h"
#include "client/scan.h"
#include "tests/fuzz/garble.h"
#include "tests/unit/program_frame.h"

#define ROUNDS 10000

#define FILE_A "af f 644 12 8 1700000000.1234567890 1700000001.5000000000 101 65024 1 "
#define DIR_A  "af d 755 4096 8 -6.5000000000 1700000001.0000000000 100 65024 3 "
#define LINK_A "af l 777 3 0 1.0000000000 1.0000000000 102 65024 1 "
#define LINK_B                                                                               \
	"bf a1ff 3 0 1 1970-01-01 00:00:01.000000000 +0000 1 1970-01-01 00:00:01.000000000 " \
	"+0000 102 65024 1 "
#define SIZED(size, name) "af f 644 " size " 8 1700000000.0 1700000000.0 101 65024 1 ./" name "\0\0"

static const char spice[] = "\0 /.-!0123456789abdefhjrtx\n'\377";
static const struct sbx_tools tools = { "fzntTNkcr,0:0" };

/* @clean, spoilt, in a frame that is whole. */
static GString *garbled_frame(struct garble *garble, const char *nonce, const char *clean,
			      size_t clean_len)
{
	size_t len;
	g_autofree char *text = garble_text(garble, clean, clean_len, &len);
	const struct payload payload = { text, len };

	return frame_of(nonce, &payload, 1);
}

static void garble_begin(struct garble *garble, struct sbx_program_limits *limits)
{
	garble_init(garble, spice, sizeof(spice) - 1);
	sbx_program_limits_init(limits);
}

static void garble_end(struct garble *garble)
{
	garble_check_taken(garble);
	garble_done(garble);
}

/* Attributes are what lstat may say. */
static void check_attr(const struct sbx_attr *attr)
{
	assert_true(attr->size <= INT64_MAX);
	assert_true((attr->mode & ~0177777u) == 0);
}

static void check_scan(const struct sbx_scan_reply *reply)
{
	for (guint i = 0; i < reply->places->len; i++) {
		const struct sbx_scan_place *place = g_ptr_array_index(reply->places, i);

		assert_ptr_equal(sbx_scan_reply_place(reply, place->path), place);
		assert_true((place->state == SBX_SCAN_FAILED) == (place->error > 0));
		if (place->has_attr)
			check_attr(&place->attr);
		for (guint j = 0; place->entries && j < place->entries->len; j++) {
			const struct sbx_scan_entry *entry =
				&g_array_index(place->entries, struct sbx_scan_entry, j);

			assert_true(sbx_program_name_valid(entry->name, strlen(entry->name)));
			check_attr(&entry->attr);
		}
	}
}

static void test_scan(void **state)
{
	static const char clean[] =
		"t1700000002.5\0d2\0" DIR_A ".\0\0" DIR_A "./d\0\0" FILE_A "./d/name\0\0" LINK_A
		"./d/l\0text\0" LINK_B "./b//'./b' -> 'abc'//\n" LINK_B "./c//./c -> abc//\n"
		"x!EACCES\0./d\0e\0";
	static const struct {
		enum sbx_scan_mode mode;
		const char *path;
	} asked[] = { { SBX_SCAN_TREE, "" }, { SBX_SCAN_SINCE, "d" }, { SBX_SCAN_LIST, "d" } };
	struct sbx_scan_request req[G_N_ELEMENTS(asked)];
	struct sbx_program_limits limits;
	struct garble garble;

	(void)state;
	garble_begin(&garble, &limits);
	for (size_t i = 0; i < G_N_ELEMENTS(asked); i++) {
		const struct sbx_scan_options options = { .mode = asked[i].mode };

		assert_int_equal(sbx_scan_request_init(&req[i], &options, &tools, &limits), 0);
		assert_int_equal(sbx_scan_request_add(&req[i], asked[i].path), 0);
	}
	while (garble.rounds < ROUNDS) {
		const struct sbx_scan_request *of = &req[garble.rounds % G_N_ELEMENTS(asked)];
		g_autoptr(GString) frame =
			garbled_frame(&garble, of->program.nonce, clean, sizeof(clean) - 1);
		struct sbx_scan_reply *reply = NULL;
		int r = sbx_scan_decode(of, frame->str, frame->len, &reply);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0)
			continue;
		garble.taken++;
		check_scan(reply);
		sbx_scan_reply_free(reply);
	}
	for (size_t i = 0; i < G_N_ELEMENTS(asked); i++)
		sbx_scan_request_clear(&req[i]);
	garble_end(&garble);
}

static void check_apply(const struct sbx_apply_reply *reply)
{
	assert_int_equal(reply->results->len, 3);
	for (guint i = 0; i < reply->results->len; i++) {
		const struct sbx_apply_result *result =
			&g_array_index(reply->results, struct sbx_apply_result, i);

		assert_true(result->error >= 0);
		assert_true(result->error || !result->text);
		for (const char *c = result->text; c && *c; c++)
			assert_true(g_ascii_isprint(*c));
	}
	for (guint i = 0; i < reply->paths->len; i++) {
		const struct sbx_apply_path *path = g_ptr_array_index(reply->paths, i);

		assert_ptr_equal(sbx_apply_reply_path(reply, path->path), path);
		if (path->present)
			check_attr(&path->attr);
	}
}

static void test_apply(void **state)
{
	static const char clean[] = "rh\0\0r\0rm: x: Is a directory\0r\0!ENOSPC\0" FILE_A
				    "./d/g\0\0" LINK_A "./d/l\0text\0" DIR_A "./d\0\0e\0";
	struct sbx_apply_request *req;
	struct sbx_program_limits limits;
	const char *const *argv;
	struct garble garble;
	int error = 0;

	(void)state;
	garble_begin(&garble, &limits);
	req = sbx_apply_new(&tools, &limits, "id");
	assert_int_equal(sbx_apply_rename(req, "d/f", "d/g", ".sbxfs/held/1", 0), 0);
	assert_int_equal(sbx_apply_unlink(req, "d", NULL, 0), 1);
	assert_int_equal(sbx_apply_symlink(req, "text", "d/l", SBX_APPLY_AND), 2);
	argv = sbx_apply_argv(req, &error);
	assert_non_null(argv);
	while (garble.rounds < ROUNDS) {
		g_autoptr(GString) frame =
			garbled_frame(&garble, argv[4], clean, sizeof(clean) - 1);
		struct sbx_apply_reply *reply = NULL;
		int r = sbx_apply_decode(req, frame->str, frame->len, &reply);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0)
			continue;
		garble.taken++;
		check_apply(reply);
		sbx_apply_reply_free(reply);
	}
	sbx_apply_free(req);
	garble_end(&garble);
}

/* The two sections of a pack's answer, spoilt in turn: looks and content, and the looks after. */
static GString *garbled_pack(struct garble *garble, const char *nonce)
{
	static const char first[] =
		"t1\0" SIZED("3", "a") SIZED("4", "b") SIZED("2", "c") "e\0aaabbbbcc0";
	static const char second[] = SIZED("3", "a") SIZED("4", "b") SIZED("2", "c") "e\0";
	struct payload sections[2] = { PAYLOAD(first), PAYLOAD(second) };
	unsigned int which = garble_pick(garble, 2);
	size_t len;
	g_autofree char *text =
		garble_text(garble, sections[which].bytes, sections[which].len, &len);

	sections[which] = (struct payload){ text, len };
	return frame_of(nonce, sections, 2);
}

static void test_pack(void **state)
{
	const struct sbx_pack_options options = { .max_bytes = 100 };
	struct sbx_program_limits limits;
	struct sbx_pack_request req;
	unsigned int stable = 0;
	struct garble garble;
	int error = 0;

	(void)state;
	garble_begin(&garble, &limits);
	assert_int_equal(sbx_pack_request_init(&req, &options, &tools, &limits), 0);
	assert_int_equal(sbx_pack_request_add(&req, "a", 0, SBX_PACK_WHOLE), 0);
	assert_int_equal(sbx_pack_request_add(&req, "b", 0, SBX_PACK_WHOLE), 1);
	assert_int_equal(sbx_pack_request_add(&req, "c", 0, SBX_PACK_WHOLE), 2);
	assert_non_null(sbx_pack_request_argv(&req, &error));
	while (garble.rounds < ROUNDS) {
		g_autoptr(GString) frame = garbled_pack(&garble, req.program.nonce);
		struct sbx_pack_reply *reply = NULL;
		int r = sbx_pack_decode(&req, frame->str, frame->len, &reply);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0)
			continue;
		garble.taken++;
		assert_int_equal(reply->count, 3);
		for (unsigned int i = 0; i < reply->count; i++) {
			const struct sbx_pack_item *item = &reply->items[i];
			uint8_t sum = 0;

			assert_true(item->stable == (item->data != NULL));
			if (!item->stable)
				continue;
			/* Believed only when it is as long as both looks say. */
			stable++;
			assert_true(item->error == 0 && item->len == item->before.size);
			assert_true(sbx_attr_same(&item->before, &item->after));
			for (uint64_t at = 0; at < item->len; at++)
				sum = (uint8_t)(sum + item->data[at]);
			(void)sum;
		}
		sbx_pack_reply_free(reply);
	}
	assert_true(stable > ROUNDS / 2);
	sbx_pack_request_clear(&req);
	garble_end(&garble);
}

static void test_probe(void **state)
{
	static const char clean[] = "t5.000000001\0uid 7\0gid 8\0cwd /w\n\0mv mv (GNU "
				    "coreutils) 9.4\0find_printf 1\0later 1\0boot 1-2\0"
				    "statfs 4096 10 5 4 100 50 255\0end 1\0";
	const struct sbx_probe_options options = { .no_work_dir = true };
	struct sbx_program_limits limits;
	struct sbx_probe_request req;
	struct garble garble;

	(void)state;
	garble_begin(&garble, &limits);
	assert_int_equal(sbx_probe_request_init(&req, &options, &limits), 0);
	while (garble.rounds < ROUNDS) {
		g_autoptr(GString) frame =
			garbled_frame(&garble, req.program.nonce, clean, sizeof(clean) - 1);
		struct sbx_probe_reply *reply = NULL;
		int r = sbx_probe_decode(&req, frame->str, frame->len, &reply);

		assert_true(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
		if (r < 0)
			continue;
		garble.taken++;
		/* It goes into every later request as an argument. */
		assert_true(strlen(reply->tools.word) <= SBX_TOOLS_CHARS);
		for (const char *c = reply->tools.word; *c; c++)
			assert_true(g_ascii_isalnum(*c) || *c == ',' || *c == ':');
		assert_true(reply->cwd);
		sbx_probe_reply_free(reply);
	}
	sbx_probe_request_clear(&req);
	garble_end(&garble);
}

static void test_job_looks(void **state)
{
	static const char clean[] = "j/w/.sbxfs/jobs\0one-1\0op1\0{\"jobId\":\"one-1\"}\0"
				    "3\0exited 3 7 1796036392 0\0"
				    "0\0"
				    "7\0"
				    "0\0"
				    "j/tmp/sandbox-jobs\0two.2\0\0{}\0\0\0"
				    "1\0"
				    "12\0"
				    "-3\0";
	struct garble garble;

	(void)state;
	garble_init(&garble, spice, sizeof(spice) - 1);
	while (garble.rounds < ROUNDS) {
		g_autoptr(GString) frame = garbled_frame(&garble, "abc", clean, sizeof(clean) - 1);
		struct sbx_job_look *look = NULL;
		int r = sbx_job_look_decode("abc", frame->str, frame->len, &look);

		assert_true(r == 0 || r == -EBADMSG);
		if (r < 0)
			continue;
		garble.taken++;
		assert_true(look->error >= 0);
		for (guint i = 0; i < look->records->len; i++) {
			const struct sbx_job_record *record = g_ptr_array_index(look->records, i);

			/* A name in a directory of the mount. */
			assert_true(sbx_job_id_is_valid(record->id));
			assert_true(!record->has_exit ||
				    (record->exit_code >= 0 && record->exit_code <= 255));
		}
		sbx_job_look_free(look);
	}
	garble_end(&garble);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan),	  cmocka_unit_test(test_apply),
		cmocka_unit_test(test_pack),	  cmocka_unit_test(test_probe),
		cmocka_unit_test(test_job_looks),
	};

	return cmocka_run_group_tests_name("fuzz_programs", tests, NULL, NULL);
}
