/* Decoders of scan, apply, pack and probe: right answers, and every kind of wrong one. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/apply.h"
#include "client/pack.h"
#include "client/probe.h"
#include "client/scan.h"
#include "program_frame.h"

#define FILE_A "af f 644 12 8 1700000000.1234567890 1700000001.5000000000 101 65024 1 "
#define DIR_A  "af d 755 4096 8 -6.5000000000 1700000001.0000000000 100 65024 3 "
#define LINK_A "af l 777 3 0 1.0000000000 1.0000000000 102 65024 1 "
#define LINK_B                                                                               \
	"bf a1ff 3 0 1 1970-01-01 00:00:01.000000000 +0000 1 1970-01-01 00:00:01.000000000 " \
	"+0000 102 65024 1 "

static const struct sbx_tools tools = { "fzntTNkcr,0:0" };

static struct sbx_program_limits no_limits(void)
{
	struct sbx_program_limits limits;

	sbx_program_limits_init(&limits);
	return limits;
}

static void scan_begin(struct sbx_scan_request *req, enum sbx_scan_mode mode, const char *path)
{
	const struct sbx_scan_options options = { .mode = mode };
	const struct sbx_program_limits limits = no_limits();

	assert_int_equal(sbx_scan_request_init(req, &options, &tools, &limits), 0);
	assert_int_equal(sbx_scan_request_add(req, path), 0);
}

static int scan_decode(const struct sbx_scan_request *req, struct payload payload,
		       struct sbx_scan_reply **ret_reply)
{
	g_autoptr(GString) frame = frame_of(req->program.nonce, &payload, 1);

	return sbx_scan_decode(req, frame->str, frame->len, ret_reply);
}

static void test_scan_list(void **state)
{
	const struct payload payload =
		PAYLOAD("t1700000002.5\0"
			"d1\0" DIR_A "./d\0\0" FILE_A "./d/na\nme\0\0" LINK_A "./d/l\0a\nb\0"
			"e\0");
	struct sbx_scan_request req;
	struct sbx_scan_reply *reply;
	const struct sbx_scan_place *place;
	const struct sbx_scan_entry *entry;

	(void)state;
	scan_begin(&req, SBX_SCAN_LIST, "d");
	assert_int_equal(scan_decode(&req, payload, &reply), 0);
	assert_int_equal(reply->clock_ns, INT64_C(1700000002500000000));
	assert_true(reply->clock_has_ns);
	assert_int_equal(reply->places->len, 1);
	place = sbx_scan_reply_place(reply, "d");
	assert_non_null(place);
	assert_int_equal(place->state, SBX_SCAN_LISTED);
	assert_int_equal(place->attr.mtime_ns, INT64_C(-5500000000));
	assert_int_equal(place->attr.mode, S_IFDIR | 0755);
	assert_int_equal(place->entries->len, 2);
	entry = &g_array_index(place->entries, struct sbx_scan_entry, 0);
	assert_string_equal(entry->name, "na\nme");
	assert_null(entry->link);
	assert_int_equal(entry->attr.size, 12);
	assert_int_equal(entry->attr.mtime_ns, INT64_C(1700000000123456789));
	assert_int_equal(entry->attr.ino, 101);
	assert_int_equal(entry->attr.dev, 65024);
	assert_true(entry->attr.has_ns);
	entry = &g_array_index(place->entries, struct sbx_scan_entry, 1);
	assert_string_equal(entry->link, "a\nb");
	sbx_scan_reply_free(reply);
	sbx_scan_request_clear(&req);
}

static void test_scan_stat_flavour(void **state)
{
	const struct payload payload = PAYLOAD("t1\0"
					       "d0\0" LINK_B "./x//'./x' -> 'a//'//\n"
					       "e\0");
	const struct payload literal = PAYLOAD("t1\0"
					       "d0\0" LINK_B "./x//./x -> a////\n"
					       "e\0");
	/* The size says another length than there is: the first end counts. */
	const struct payload short_text = PAYLOAD("t1\0"
						  "d0\0" LINK_B "./x//'./x' -> 'target'//\n"
						  "e\0");
	struct sbx_scan_request req;
	struct sbx_scan_reply *reply;

	(void)state;
	scan_begin(&req, SBX_SCAN_LSTAT, "x");
	assert_int_equal(scan_decode(&req, payload, &reply), 0);
	assert_string_equal(sbx_scan_reply_place(reply, "x")->link, "a//");
	assert_false(sbx_scan_reply_place(reply, "x")->attr.has_ns);
	assert_false(reply->clock_has_ns);
	sbx_scan_reply_free(reply);
	assert_int_equal(scan_decode(&req, literal, &reply), 0);
	assert_string_equal(sbx_scan_reply_place(reply, "x")->link, "a//");
	sbx_scan_reply_free(reply);
	assert_int_equal(scan_decode(&req, short_text, &reply), 0);
	assert_string_equal(sbx_scan_reply_place(reply, "x")->link, "target");
	sbx_scan_reply_free(reply);
	sbx_scan_request_clear(&req);
}

/* A name that can't be one is no entry, and is told of. */
static void test_scan_names(void **state)
{
	static const struct payload payloads[] = {
		PAYLOAD("t1\0d1\0" DIR_A "./d\0\0" FILE_A "./d/\0\0e\0"),
		PAYLOAD("t1\0d1\0" DIR_A "./d\0\0" FILE_A "./d/.\0\0e\0"),
		PAYLOAD("t1\0d1\0" DIR_A "./d\0\0" FILE_A "./d/..\0\0e\0"),
	};
	struct sbx_scan_request req;

	(void)state;
	scan_begin(&req, SBX_SCAN_LIST, "d");
	for (size_t i = 0; i < G_N_ELEMENTS(payloads); i++) {
		struct sbx_scan_reply *reply = NULL;

		assert_int_equal(scan_decode(&req, payloads[i], &reply), 0);
		assert_int_equal(sbx_scan_reply_place(reply, "d")->entries->len, 0);
		assert_int_equal(reply->refused->len, 1);
		sbx_scan_reply_free(reply);
	}
	sbx_scan_request_clear(&req);
}

static void test_scan_refusals(void **state)
{
	static const struct payload bad[] = {
		PAYLOAD(""),
		PAYLOAD("e\0"),
		PAYLOAD("t1\0e\0"),
		PAYLOAD("tx\0d1\0e\0"),
		PAYLOAD("t1\0d\0e\0"),
		PAYLOAD("t1\0d1\0"),
		PAYLOAD("t1\0d1\0e"),
		PAYLOAD("t1\0d1\0e\0e\0"),
		PAYLOAD("t1\0d1\0ex\0"),
		PAYLOAD("t1\0d1\0q\0e\0"),
		PAYLOAD("t1\0d1\0x!ENOENT\0"),
		PAYLOAD("t1\0d1\0af q 644 1 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 8 1 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 17777 1 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 -1 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 9223372036854775808 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 99999999999999999999999 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 1 8 1. 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 1 8 1.0x 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 1 8 -.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 1 8 1.0 1.0 1 1 4294967296 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0af f 644 1 8 1.0 1.0 1 1 1 ./d\0e\0"),
		PAYLOAD("t1\0d1\0az f 644 1 8 1.0 1.0 1 1 1 ./d\0\0e\0"),
		PAYLOAD("t1\0d1\0bf 81a4 1 8 1 2 3 4 1 2 3 4 1 1 1 ./d\ne\0"),
		PAYLOAD("t1\0d1\0bf 81a4 1 8 1 2 3 4 1 2 3 4 1 1 1 ./d//./x//\ne\0"),
		PAYLOAD("t1\0d1\0bf 81a4 1 8 1 2 3.x 4 1 2 3 4 1 1 1 ./d//./d//\ne\0"),
		PAYLOAD("t1\0d1\0bf 281a4 1 8 1 2 3 4 1 2 3 4 1 1 1 ./d//./d//\ne\0"),
		PAYLOAD("t1\0d1\0" LINK_B "./d//'./d' -> 'abc\0"),
		PAYLOAD("t1\0d1\0" LINK_B "./d//./d//\ne\0"),
	};
	struct sbx_scan_request req;
	struct sbx_scan_reply *reply = NULL;

	(void)state;
	scan_begin(&req, SBX_SCAN_LIST, "d");
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		if (scan_decode(&req, bad[i], &reply) != -EBADMSG)
			fail_msg("row %zu was taken", i);
		assert_null(reply);
	}
	sbx_scan_request_clear(&req);
	/* By lstat, a path that was not asked for. */
	scan_begin(&req, SBX_SCAN_LSTAT, "d");
	assert_int_equal(scan_decode(&req, PAYLOAD("t1\0d0\0" FILE_A "./x\0\0e\0"), &reply),
			 -EBADMSG);
	sbx_scan_request_clear(&req);
}

static void test_scan_tree_depth(void **state)
{
	const struct payload payload =
		PAYLOAD("t1\0d2\0" DIR_A ".\0\0" DIR_A "./a\0\0" DIR_A "./a/b\0\0" FILE_A "./f\0\0"
			"x!EACCES\0./a\0"
			"e\0");
	struct sbx_scan_request req;
	struct sbx_scan_reply *reply;

	(void)state;
	scan_begin(&req, SBX_SCAN_TREE, "");
	assert_int_equal(scan_decode(&req, payload, &reply), 0);
	assert_false(reply->complete);
	assert_int_equal(reply->places->len, 2);
	assert_int_equal(sbx_scan_reply_place(reply, "")->entries->len, 2);
	assert_int_equal(sbx_scan_reply_place(reply, "a")->state, SBX_SCAN_FAILED);
	assert_int_equal(sbx_scan_reply_place(reply, "a")->error, EACCES);
	assert_null(sbx_scan_reply_place(reply, "a/b"));
	sbx_scan_reply_free(reply);
	sbx_scan_request_clear(&req);
}

static void test_apply_reply(void **state)
{
	const struct sbx_program_limits limits = no_limits();
	struct sbx_apply_request *req = sbx_apply_new(&tools, &limits, "id");
	struct sbx_apply_reply *reply = NULL;
	const char *const *argv;
	const struct sbx_apply_result *result;
	g_autoptr(GString) frame = NULL;
	const struct payload good[] = {
		PAYLOAD("rh\0\0r\0rm: x: Is a directory\0" FILE_A "./d/g\0\0e\0"), PAYLOAD("r")
	};
	const struct payload bad[] = {
		PAYLOAD("r\0\0e\0"),	      PAYLOAD("r\0\0r\0\0r\0\0e\0"),
		PAYLOAD("r\0\0r\0\0"),	      PAYLOAD("r\0\0r\0\0" FILE_A "./other\0\0e\0"),
		PAYLOAD("r\0\0r\0\0t1\0e\0"), PAYLOAD(""),
	};
	int error = 0;

	(void)state;
	assert_int_equal(sbx_apply_rename(req, "d/f", "d/g", ".sbxfs/held/1", 0), 0);
	assert_int_equal(sbx_apply_unlink(req, "d", NULL, SBX_APPLY_AND), 1);
	argv = sbx_apply_argv(req, &error);
	assert_non_null(argv);
	assert_int_equal(sbx_apply_unlink(req, "late", NULL, 0), -E2BIG);
	frame = frame_of(argv[4], good, 2);
	assert_int_equal(sbx_apply_decode(req, frame->str, frame->len, &reply), 0);
	assert_true(reply->repeated);
	assert_false(reply->not_kept);
	result = &g_array_index(reply->results, struct sbx_apply_result, 0);
	assert_int_equal(result->error, 0);
	assert_true(result->set_aside);
	assert_null(result->text);
	result = &g_array_index(reply->results, struct sbx_apply_result, 1);
	assert_int_equal(result->error, EISDIR);
	assert_string_equal(result->text, "rm: x: Is a directory");
	assert_true(sbx_apply_reply_path(reply, "d/g")->present);
	assert_false(sbx_apply_reply_path(reply, "d/f")->present);
	assert_non_null(sbx_apply_reply_path(reply, ""));
	assert_null(sbx_apply_reply_path(reply, "x"));
	sbx_apply_reply_free(reply);
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		g_autoptr(GString) wrong = frame_of(argv[4], &bad[i], 1);

		reply = NULL;
		if (sbx_apply_decode(req, wrong->str, wrong->len, &reply) != -EBADMSG)
			fail_msg("row %zu was taken", i);
		assert_null(reply);
	}
	sbx_apply_free(req);
	assert_null(sbx_apply_new(&tools, &limits, "../x"));
	assert_null(sbx_apply_new(&tools, &limits, ""));
}

#define FILE_OF(size, name) \
	"af f 644 " size " 8 1700000000.0 1700000000.0 101 65024 1 ./" name "\0\0"

/* Three files of 3, 4 and 2 bytes. */
static void pack_begin(struct sbx_pack_request *req, const char **ret_nonce)
{
	const struct sbx_pack_options options = { .max_bytes = 100 };
	const struct sbx_program_limits limits = no_limits();
	int error = 0;

	assert_int_equal(sbx_pack_request_init(req, &options, &tools, &limits), 0);
	assert_int_equal(sbx_pack_request_add(req, "a", 0, SBX_PACK_WHOLE), 0);
	assert_int_equal(sbx_pack_request_add(req, "b", 0, SBX_PACK_WHOLE), 1);
	assert_int_equal(sbx_pack_request_add(req, "c", 0, SBX_PACK_WHOLE), 2);
	assert_non_null(sbx_pack_request_argv(req, &error));
	*ret_nonce = req->program.nonce;
}

/* Attributes, content, attributes: the first two are one section. */
static GString *pack_frame_of(const char *nonce, const struct payload parts[3])
{
	g_autoptr(GString) first = g_string_new_len(parts[0].bytes, (gssize)parts[0].len);
	struct payload sections[2] = { [1] = parts[2] };

	g_string_append_len(first, parts[1].bytes, (gssize)parts[1].len);
	sections[0] = (struct payload){ first->str, first->len };
	return frame_of(nonce, sections, 2);
}

static void check_pack(const struct payload parts[3], const char *want[3])
{
	struct sbx_pack_request req;
	struct sbx_pack_reply *reply;
	const char *nonce;
	g_autoptr(GString) frame = NULL;

	pack_begin(&req, &nonce);
	frame = pack_frame_of(nonce, parts);
	assert_int_equal(sbx_pack_decode(&req, frame->str, frame->len, &reply), 0);
	for (unsigned i = 0; i < 3; i++) {
		const struct sbx_pack_item *item = &reply->items[i];

		assert_int_equal(item->stable, want[i] != NULL);
		if (want[i] == NULL) {
			assert_null(item->data);
			continue;
		}
		assert_int_equal(item->len, strlen(want[i]));
		assert_memory_equal(item->data, want[i], item->len);
	}
	sbx_pack_reply_free(reply);
	sbx_pack_request_clear(&req);
}

static void test_pack_content(void **state)
{
	const struct payload before =
		PAYLOAD("t1\0" FILE_OF("3", "a") FILE_OF("4", "b") FILE_OF("2", "c") "e\0");
	const struct payload after =
		PAYLOAD(FILE_OF("3", "a") FILE_OF("4", "b") FILE_OF("2", "c") "e\0");
	const struct payload grown =
		PAYLOAD(FILE_OF("3", "a") FILE_OF("5", "b") FILE_OF("2", "c") "e\0");
	const struct payload gone = PAYLOAD(FILE_OF("3", "a") FILE_OF("2", "c") "e\0");
	const struct {
		struct payload content;
		struct payload after;
		const char *want[3];
	} rows[] = {
		{ PAYLOAD("aaabbbbcc0"), after, { "aaa", "bbbb", "cc" } },
		/* Not all could be read, and yet it adds up. */
		{ PAYLOAD("aaabbbbcc1"), after, { "aaa", "bbbb", "cc" } },
		{ PAYLOAD("aaabbbbbcc0"), grown, { "aaa", NULL, "cc" } },
		{ PAYLOAD("aaabbbbbcc1"), grown, { NULL, NULL, NULL } },
		{ PAYLOAD("aaacc0"), gone, { "aaa", NULL, "cc" } },
		{ PAYLOAD("aa0"), gone, { NULL, NULL, NULL } },
		{ PAYLOAD("aaabbbbc0"), after, { NULL, NULL, NULL } },
		{ PAYLOAD("aaabbbbccc0"), after, { NULL, NULL, NULL } },
		{ PAYLOAD("0"), after, { NULL, NULL, NULL } },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		const struct payload parts[3] = { before, rows[i].content, rows[i].after };
		const char *want[3] = { rows[i].want[0], rows[i].want[1], rows[i].want[2] };

		check_pack(parts, want);
	}
}

static void test_pack_refusals(void **state)
{
	static const struct payload good = PAYLOAD("t1\0e\0");
	static const struct payload end = PAYLOAD("e\0");
	static const struct payload zero = PAYLOAD("0");
	const struct payload rows[][3] = {
		{ PAYLOAD("e\0"), zero, end },
		{ PAYLOAD("t1\0"), zero, end },
		{ PAYLOAD("t1\0x!EIO\0"
			  "0\0e\0"),
		  zero, end },
		{ PAYLOAD("t1\0x!EIO\0"
			  "4\0e\0"),
		  zero, end },
		{ PAYLOAD("t1\0" FILE_OF("1", "z") "e\0"), zero, end },
		{ good, PAYLOAD(""), end },
		{ good, zero,
		  PAYLOAD("x!EIO\0"
			  "1\0e\0") },
		{ good, zero, PAYLOAD("") },
	};
	struct sbx_pack_request req;
	struct sbx_pack_reply *reply = NULL;
	const char *nonce;

	(void)state;
	pack_begin(&req, &nonce);
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		g_autoptr(GString) frame = pack_frame_of(nonce, rows[i]);

		if (sbx_pack_decode(&req, frame->str, frame->len, &reply) != -EBADMSG)
			fail_msg("row %zu was taken", i);
		assert_null(reply);
	}
	assert_int_equal(sbx_pack_request_add(&req, "late", 0, 1), -E2BIG);
	sbx_pack_request_clear(&req);
}

static void test_probe_reply(void **state)
{
	static const struct payload payload = PAYLOAD(
		"t5.000000001\0uid 7\0gid 8\0cwd /w\n\0mv mv (GNU "
		"coreutils) 9.4\0find_printf 1\0later 1\0statfs 4096 10 5 4 100 50 255\0end 1\0");
	static const struct payload bad[] = {
		PAYLOAD(""),
		PAYLOAD("t1\0cwd /\0"),
		PAYLOAD("t1\0end 1\0"),
		PAYLOAD("t1\0cwd /\0uid x\0end 1\0"),
		PAYLOAD("t1\0cwd /\0uid 4294967296\0end 1\0"),
		PAYLOAD("t1\0cwd /\0word\0end 1\0"),
		PAYLOAD("t1\0cwd /\0end 1\0more 1\0"),
	};
	const struct sbx_probe_options options = { .no_work_dir = true };
	const struct sbx_program_limits limits = no_limits();
	struct sbx_probe_request req;
	struct sbx_probe_reply *reply = NULL;
	g_autoptr(GString) frame = NULL;

	(void)state;
	assert_int_equal(sbx_probe_request_init(&req, &options, &limits), 0);
	frame = frame_of(req.program.nonce, &payload, 1);
	assert_int_equal(sbx_probe_decode(&req, frame->str, frame->len, &reply), 0);
	assert_string_equal(reply->tools.word, "fNC,7:8");
	assert_string_equal(reply->cwd, "/w\n");
	assert_true(reply->mv_noreplace);
	assert_true(reply->statfs.known);
	assert_int_equal(reply->statfs.blocks_avail, 4);
	sbx_probe_reply_free(reply);
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		g_autoptr(GString) wrong = frame_of(req.program.nonce, &bad[i], 1);

		reply = NULL;
		if (sbx_probe_decode(&req, wrong->str, wrong->len, &reply) != -EBADMSG)
			fail_msg("row %zu was taken", i);
		assert_null(reply);
	}
	sbx_probe_request_clear(&req);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan_list),	cmocka_unit_test(test_scan_stat_flavour),
		cmocka_unit_test(test_scan_names),	cmocka_unit_test(test_scan_refusals),
		cmocka_unit_test(test_scan_tree_depth), cmocka_unit_test(test_apply_reply),
		cmocka_unit_test(test_pack_content),	cmocka_unit_test(test_pack_refusals),
		cmocka_unit_test(test_probe_reply),
	};

	return cmocka_run_group_tests_name("program_decode", tests, NULL, NULL);
}
