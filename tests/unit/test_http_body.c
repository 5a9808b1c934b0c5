/*
 * What a sink is given: every byte once, in order, together where it came together. And what is
 * kept where there is none.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "client/http_internal.h"

#define CHUNK 16384

struct taken {
	GByteArray *all;
	unsigned int calls;
	int error; /* of the next call */
};

static int take(void *arg, const void *data, size_t len)
{
	struct taken *taken = arg;

	taken->calls++;
	if (taken->error < 0)
		return taken->error;
	g_byte_array_append(taken->all, data, (guint)len);
	return 0;
}

static void test_pieces(void **state)
{
	g_autoptr(GByteArray) sent = g_byte_array_new();
	struct taken taken = { .all = g_byte_array_new() };
	const struct sbx_sink sink = { .write = take, .arg = &taken };
	const struct sbx_http_request request = { .sink = &sink };
	struct http_attempt attempt = { .request = &request, .reply.status = 200 };
	struct http_body body = { 0 };
	const size_t lens[] = { 1, CHUNK, CHUNK - 1, 0, 7, 4 * CHUNK, 100 * CHUNK, 3 };

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(lens); i++)
		for (size_t j = 0; j < lens[i]; j++)
			g_byte_array_append(sent, &(guint8){ (guint8)(i + j * 7 / 3) }, 1);
	for (size_t i = 0, at = 0; i < G_N_ELEMENTS(lens); at += lens[i++])
		assert_int_equal(
			http_body_take(&body, &attempt, (const char *)sent->data + at, lens[i]), 0);
	assert_int_equal(http_body_flush(&body, &attempt), 0);
	assert_int_equal(taken.all->len, sent->len);
	assert_memory_equal(taken.all->data, sent->data, sent->len);
	/* What came before the long one, that one, what came after it. */
	assert_int_equal(taken.calls, 3);
	/* There is nothing left to hand on. */
	assert_int_equal(http_body_flush(&body, &attempt), 0);
	assert_int_equal(taken.calls, 3);
	http_body_clear(&body);
	g_byte_array_unref(taken.all);
}

static void test_gathered(void **state)
{
	static const char chunk[CHUNK];
	struct taken taken = { .all = g_byte_array_new() };
	const struct sbx_sink sink = { .write = take, .arg = &taken };
	const struct sbx_http_request request = { .sink = &sink };
	struct http_attempt attempt = { .request = &request, .reply.status = 200 };
	struct http_body body = { 0 };

	(void)state;
	for (int i = 0; i < 64; i++)
		assert_int_equal(http_body_take(&body, &attempt, chunk, sizeof(chunk)), 0);
	/* 1 MiB: not a call for each. */
	assert_in_range(taken.calls, 1, 8);
	assert_int_equal(http_body_flush(&body, &attempt), 0);
	assert_int_equal(taken.all->len, 64 * CHUNK);
	http_body_clear(&body);
	g_byte_array_unref(taken.all);
}

/* Whoever refuses one is given nothing more of it. */
static void test_refused(void **state)
{
	static const char chunk[CHUNK];
	struct taken taken = { .all = g_byte_array_new(), .error = -ENOSPC };
	const struct sbx_sink sink = { .write = take, .arg = &taken };
	const struct sbx_http_request request = { .sink = &sink };
	struct http_attempt attempt = { .request = &request, .reply.status = 200 };
	struct http_body body = { 0 };

	(void)state;
	assert_int_equal(http_body_take(&body, &attempt, chunk, sizeof(chunk)), 0);
	assert_int_equal(http_body_flush(&body, &attempt), -1);
	assert_int_equal(attempt.error, -ENOSPC);
	assert_int_equal(taken.calls, 1);
	assert_int_equal(http_body_flush(&body, &attempt), 0);
	assert_int_equal(taken.calls, 1);
	assert_int_equal(taken.all->len, 0);
	http_body_clear(&body);
	g_byte_array_unref(taken.all);
}

/* Up to what the request allows; of an error's body as much as tells what went wrong. */
static void test_kept(void **state)
{
	static const char chunk[CHUNK];
	const struct sbx_http_request request = { .max_reply_bytes = 2 * CHUNK };
	struct http_attempt attempt = { .request = &request, .reply.status = 200 };
	struct http_attempt failed = { .request = &request, .reply.status = 500 };
	struct http_body body = { 0 };
	int taken = 0;

	(void)state;
	assert_int_equal(http_body_begin(&body, &attempt, 0, 2 * CHUNK), 0);
	assert_int_equal(http_body_take(&body, &attempt, chunk, CHUNK), 0);
	assert_int_equal(http_body_take(&body, &attempt, chunk, CHUNK), 0);
	assert_int_equal(attempt.reply.body_len, 2 * CHUNK);
	assert_int_equal(attempt.kind, SBX_FAIL_NONE);
	assert_int_equal(http_body_take(&body, &attempt, chunk, 1), -1);
	assert_int_equal(attempt.error, -EFBIG);
	sbx_http_reply_clear(&attempt.reply);
	http_body_clear(&body);
	while (taken < 64 && http_body_take(&body, &failed, chunk, CHUNK) == 0)
		taken++;
	assert_in_range(taken, 1, 8);
	assert_true(body.enough);
	assert_int_equal(failed.kind, SBX_FAIL_NONE);
	sbx_http_reply_clear(&failed.reply);
	http_body_clear(&body);
	assert_int_equal(http_body_begin(&body, &attempt, 0, 2 * CHUNK + 1), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_gathered),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
