/* client/program.h: spelling, limits, frames, errnos. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "client/program.h"
#include "program_frame.h"

#define MAX_BYTES ((size_t)1 << 20)

static void check_spelled(const char *bytes, size_t len, const char *want)
{
	g_autofree char *spelled = sbx_program_spell(bytes, len);

	assert_string_equal(spelled, want);
}

static void test_spell(void **state)
{
	(void)state;
	check_spelled("plain 'x' \\n%", 13, "plain 'x' \\n%");
	check_spelled("", 0, "");
	check_spelled(":x", 2, "::x");
	check_spelled("a\n\t\\", 4, ":a\\n\\t\\\\");
	check_spelled("\0\377\1771", 4, ":\\0000\\0377\\01771");
}

static void check_path(const char *path, const char *want, int want_error)
{
	int error = 0;
	g_autofree char *spelled = sbx_program_spell_path(path, &error);

	if (want != NULL)
		assert_string_equal(spelled, want);
	else
		assert_null(spelled);
	assert_int_equal(error, want_error);
}

static void test_spell_path(void **state)
{
	g_autofree char *name255 = g_strnfill(255, 'x');
	g_autofree char *name256 = g_strnfill(256, 'x');
	g_autofree char *spelled255 = g_strconcat("./", name255, NULL);
	g_autoptr(GString) deep = g_string_new("a");

	(void)state;
	check_path("", ".", 0);
	check_path(".", ".", 0);
	check_path("/", "/", 0);
	check_path("a", "./a", 0);
	check_path("-a/b c", "./-a/b c", 0);
	check_path("/etc/x", "/etc/x", 0);
	check_path("a\n", ":./a\\n", 0);
	check_path("...", "./...", 0);
	check_path("..", NULL, -EINVAL);
	check_path("a/..", NULL, -EINVAL);
	check_path("../a", NULL, -EINVAL);
	check_path("a//b", NULL, -EINVAL);
	check_path("a/", NULL, -EINVAL);
	check_path("//a", NULL, -EINVAL);
	check_path("./a", NULL, -EINVAL);
	check_path("/a/./b", NULL, -EINVAL);
	check_path(name255, spelled255, 0);
	check_path(name256, NULL, -ENAMETOOLONG);
	while (deep->len < 5000)
		g_string_append(deep, "/a");
	check_path(deep->str, NULL, -ENAMETOOLONG);
}

static void test_names(void **state)
{
	g_autofree char *name256 = g_strnfill(256, 'x');

	(void)state;
	assert_true(sbx_program_name_valid("a", 1));
	assert_true(sbx_program_name_valid("...", 3));
	assert_true(sbx_program_name_valid(".a", 2));
	assert_true(sbx_program_name_valid(name256, 255));
	assert_false(sbx_program_name_valid(name256, 256));
	assert_false(sbx_program_name_valid("", 0));
	assert_false(sbx_program_name_valid(".", 1));
	assert_false(sbx_program_name_valid("..", 2));
	assert_false(sbx_program_name_valid("a/b", 3));
	assert_false(sbx_program_name_valid("a\0b", 3));
}

static void test_limits(void **state)
{
	const struct sbx_tools tools = { "fz,0:0" };
	struct sbx_program_limits limits;
	struct sbx_program_request req;
	const char *const *argv;
	size_t bytes = 0;
	unsigned added = 0;

	(void)state;
	sbx_program_limits_init(&limits);
	limits.command_bytes = 20000;
	limits.arg_bytes = 15000;
	assert_int_equal(sbx_program_request_init(&req, SBX_PROGRAM_SCAN, &tools, &limits), 0);
	assert_int_equal(sbx_program_request_take(&req, g_strnfill(15000, 'x')), -E2BIG);
	while (sbx_program_request_add(&req, "argument") == 0)
		added++;
	assert_true(added > 100);
	argv = sbx_program_request_argv(&req);
	assert_ptr_equal(argv, sbx_program_request_argv(&req));
	for (; *argv != NULL; argv++)
		bytes += strlen(*argv) + 1 + 8;
	assert_in_range(bytes, 20000 - 17, 20000);
	assert_string_equal(req.argv->pdata[0], "sh");
	assert_string_equal(req.argv->pdata[3], "sbxfs-scan");
	assert_string_equal(req.argv->pdata[5], "fz,0:0");
	sbx_program_request_clear(&req);
	limits.command_bytes = 100;
	assert_int_equal(sbx_program_request_init(&req, SBX_PROGRAM_SCAN, &tools, &limits), -E2BIG);
	sbx_program_request_clear(&req);
}

static void test_nonces_differ(void **state)
{
	const struct sbx_tools tools = { "," };
	struct sbx_program_limits limits;
	struct sbx_program_request req[2];

	(void)state;
	sbx_program_limits_init(&limits);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(
			sbx_program_request_init(&req[i], SBX_PROGRAM_PACK, &tools, &limits), 0);
		assert_int_equal(strlen(req[i].nonce), SBX_NONCE_CHARS);
	}
	assert_string_not_equal(req[0].nonce, req[1].nonce);
	for (unsigned i = 0; i < 2; i++)
		sbx_program_request_clear(&req[i]);
}

/* Expects the error and an untouched answer. */
static void check_refused(const char *out, size_t len, int want)
{
	struct sbx_program_answer answer = { .sections = 77 };

	assert_int_equal(sbx_program_unframe(out, len, "abc", MAX_BYTES, &answer), want);
	assert_int_equal(answer.sections, 77);
}

static void test_unframe(void **state)
{
	const struct payload sections[] = { PAYLOAD("one\0"), PAYLOAD(""), PAYLOAD("\377\n\0x") };
	g_autoptr(GString) frame = frame_of("abc", sections, 3);
	struct sbx_program_answer answer;

	(void)state;
	assert_int_equal(sbx_program_unframe(frame->str, frame->len, "abc", MAX_BYTES, &answer), 0);
	assert_int_equal(answer.sections, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(answer.section[i]->len, sections[i].len);
		assert_memory_equal(answer.section[i]->data, sections[i].bytes, sections[i].len);
	}
	sbx_program_answer_clear(&answer);
	check_refused("", 0, -EBADMSG);
	assert_int_equal(sbx_program_unframe(frame->str, frame->len, "abd", MAX_BYTES, &answer),
			 -EBADMSG);
	assert_int_equal(sbx_program_unframe(frame->str, frame->len, "abc", 3, &answer), -EMSGSIZE);
}

static void test_unframe_of_every_cut(void **state)
{
	const struct payload sections[] = { PAYLOAD("some bytes\n\n"), PAYLOAD("and more") };
	g_autoptr(GString) frame = frame_of("abc", sections, 2);

	(void)state;
	for (size_t len = 0; len < frame->len; len++)
		check_refused(frame->str, len, -EBADMSG);
}

static void test_unframe_of_foreign_bytes(void **state)
{
	const struct payload section = PAYLOAD("some bytes and some more of them");
	g_autoptr(GString) frame = frame_of("abc", &section, 1);

	(void)state;
	for (size_t at = 0; at <= frame->len; at++) {
		static const char *const foreign[] = { "x", "\n", "A", "\xef\xbf\xbd",
						       "END abc\n" };

		for (unsigned i = 0; i < G_N_ELEMENTS(foreign); i++) {
			g_autoptr(GString) bad = g_string_new_len(frame->str, (gssize)frame->len);

			g_string_insert(bad, (gssize)at, foreign[i]);
			check_refused(bad->str, bad->len, -EBADMSG);
		}
	}
}

static void test_unframe_words(void **state)
{
	static const struct {
		const char *out;
		int error;
	} rows[] = {
		{ "SBXFS1 abc !big\nEND abc\n", -EMSGSIZE },
		{ "SBXFS1 abc !base64\nEND abc\n", -EOPNOTSUPP },
		{ "SBXFS1 abc !busy\nEND abc\n", -EINPROGRESS },
		{ "SBXFS1 abc !lost\nEND abc\n", -EUCLEAN },
		{ "SBXFS1 abc !other\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc !big\nEND abd\n", -EBADMSG },
		{ "SBXFS1 abc !big - 0\n\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc -\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - x\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - -1\n\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 99999999999999999999\n\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 18446744073709551615\n\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc q 0\n\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 3\nQUI\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 4\nQ=I=\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 4\n====\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc z 4\nQUJD\nEND abc\n", -EBADMSG },
		{ "SBXFS2 abc - 4\nQUJD\nEND abc\n", -EBADMSG },
		{ "SBXFS1 abc - 0 - 0 - 0 - 0 - 0 - 0 - 0 - 0 - 0\n\n\n\n\n\n\n\n\n\nEND abc\n",
		  -EBADMSG },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++)
		check_refused(rows[i].out, strlen(rows[i].out), rows[i].error);
}

/* gzip of len zeros, as a frame. */
static GString *packed_zeros(size_t len)
{
	g_autofree uint8_t *zeros = g_malloc0(len);
	size_t room = compressBound(len) + 32;
	g_autofree uint8_t *packed = g_malloc(room);
	z_stream stream = {
		.next_in = zeros, .avail_in = (uInt)len, .next_out = packed, .avail_out = (uInt)room
	};
	g_autofree char *text = NULL;
	GString *frame = g_string_new(NULL);

	assert_int_equal(
		deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
	text = g_base64_encode(packed, stream.total_out);
	deflateEnd(&stream);
	g_string_printf(frame, "SBXFS1 abc z %zu\n%s\nEND abc\n", strlen(text), text);
	return frame;
}

static void test_gzip_and_its_bound(void **state)
{
	g_autoptr(GString) frame = packed_zeros(200000);
	struct sbx_program_answer answer;

	(void)state;
	assert_int_equal(sbx_program_unframe(frame->str, frame->len, "abc", 200000, &answer), 0);
	assert_int_equal(answer.section[0]->len, 200000);
	sbx_program_answer_clear(&answer);
	assert_int_equal(sbx_program_unframe(frame->str, frame->len, "abc", 199999, &answer),
			 -EMSGSIZE);
}

static void test_line_breaks_in_base64(void **state)
{
	static const char out[] = "SBXFS1 abc - 10\nQUJD\nREVG\n\nEND abc\n";
	struct sbx_program_answer answer;

	(void)state;
	assert_int_equal(sbx_program_unframe(out, sizeof(out) - 1, "abc", MAX_BYTES, &answer), 0);
	assert_int_equal(answer.section[0]->len, 6);
	assert_memory_equal(answer.section[0]->data, "ABCDEF", 6);
	sbx_program_answer_clear(&answer);
}

/* Lines of text beside what is armoured, and sections that are as long as a line. */
static void test_text(void **state)
{
	static const char out[] = "SBXFS1 abc t 10 - 4\nr\n\naf ~ x\n\nQUJD\nEND abc\n";
	static const char *const bad[] = {
		"SBXFS1 abc - .\nQUJD",
		"SBXFS1 abc - . - .\nQUJD\nEND abc\n",
		"SBXFS1 abc - .\nQU\nJD\nEND abc\n",
		"SBXFS1 abc - ..\nQUJD\nEND abc\n",
		"SBXFS1 abc t 3\nr\v\n\nEND abc\n",
		"SBXFS1 abc t 3\nr\x7f\n\nEND abc\n",
		"SBXFS1 abc t 3\nr\x80\n\nEND abc\n",
		"SBXFS1 abc t 4\nr\n\nEND abc\n",
		"SBXFS1 abc tt 3\nr\n\n\nEND abc\n",
	};
	static const char flowing[] = "SBXFS1 abc t 2 - . t .\nx\n\n\ny\t\te\nEND abc\n";
	struct sbx_program_answer answer;

	(void)state;
	assert_int_equal(sbx_program_unframe(out, sizeof(out) - 1, "abc", MAX_BYTES, &answer), 0);
	assert_int_equal(answer.sections, 2);
	assert_int_equal(answer.section[0]->len, 10);
	assert_memory_equal(answer.section[0]->data, "r\0\0af ~ x\0", 10);
	assert_memory_equal(answer.section[1]->data, "ABC", 3);
	sbx_program_answer_clear(&answer);
	assert_int_equal(sbx_program_unframe(out, sizeof(out) - 1, "abc", 9, &answer), -EMSGSIZE);
	assert_int_equal(
		sbx_program_unframe(flowing, sizeof(flowing) - 1, "abc", MAX_BYTES, &answer), 0);
	assert_int_equal(answer.sections, 3);
	assert_memory_equal(answer.section[0]->data, "x\0", 2);
	assert_int_equal(answer.section[1]->len, 0);
	assert_int_equal(answer.section[2]->len, 4);
	assert_memory_equal(answer.section[2]->data, "y\0\0e", 4);
	sbx_program_answer_clear(&answer);
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		check_refused(bad[i], strlen(bad[i]), -EBADMSG);
}

static void test_errno(void **state)
{
	static const struct {
		const char *text;
		int error;
	} rows[] = {
		{ "", 0 },
		{ "\n", 0 },
		{ "!EISDIR", EISDIR },
		{ "!NOSUCH", EIO },
		{ "mkdir: cannot create directory './a': File exists", EEXIST },
		{ "mv: cannot move 'a: No such file or directory' to 'b': Directory not empty\n",
		  ENOTEMPTY },
		{ "rm: can't remove 'x': Not a directory", ENOTDIR },
		{ "ln: ./d: hard link not allowed for directory", EPERM },
		{ "sh: 1: cannot create ./a/b: Directory nonexistent", ENOENT },
		{ "dd: error writing './f': No space left on device\n1+0 records in\n0+0 out",
		  ENOSPC },
		{ "base64: write error: No space left on device\nbase64: write error", ENOSPC },
		{ "mv: can't stat './f/x': Path has non-directory component", ENOTDIR },
		{ "cat: x: Filename too long", ENAMETOOLONG },
		{ "read error: Input/output error", EIO },
		{ "nobody knows", EIO },
		{ "x: Function not implemented", EOPNOTSUPP },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++)
		assert_int_equal(sbx_program_errno(rows[i].text), rows[i].error);
}

static void test_tools(void **state)
{
	const struct sbx_tools tools = { "fz,12:34" };

	(void)state;
	assert_true(sbx_tools_has(&tools, 'f'));
	assert_true(sbx_tools_has(&tools, 'z'));
	assert_false(sbx_tools_has(&tools, 'k'));
	assert_false(sbx_tools_has(&tools, '1'));
	assert_false(sbx_tools_has(&tools, '\0'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spell),
		cmocka_unit_test(test_spell_path),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_nonces_differ),
		cmocka_unit_test(test_unframe),
		cmocka_unit_test(test_unframe_of_every_cut),
		cmocka_unit_test(test_unframe_of_foreign_bytes),
		cmocka_unit_test(test_unframe_words),
		cmocka_unit_test(test_gzip_and_its_bound),
		cmocka_unit_test(test_line_breaks_in_base64),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_tools),
	};

	return cmocka_run_group_tests_name("program_frame", tests, NULL, NULL);
}
