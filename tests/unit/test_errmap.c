/* Where errnos come from (client/errmap.h), and what is asked twice (client/retry.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/errmap.h"
#include "client/retry.h"

static const struct {
	int status;
	const char *code;
	const char *message;
	int error;
	bool session_not_found;
	bool not_supported;
	bool token_refused;
} replies[] = {
	/* The token of the message, whatever the status. */
	{ 500, "internal_error", "ENOENT: no such file or directory, open '/x'", -ENOENT, 0, 0, 0 },
	{ 403, "path_denied", "ENOTDIR: not a directory, realpath '/x'", -ENOTDIR, 0, 0, 0 },
	{ 403, "path_denied", "ELOOP: too many symbolic links", -ELOOP, 0, 0, 0 },
	{ 500, "internal_error", "EEXIST: file already exists, open 'x'", -EEXIST, 0, 0, 0 },
	{ 500, "internal_error", "ENOSYS: function not implemented", -EOPNOTSUPP, 0, 0, 0 },
	{ 500, "internal_error", "ENOTSUP: x", -EOPNOTSUPP, 0, 0, 0 },
	{ 500, NULL, "EROFS: x", -EROFS, 0, 0, 0 },
	/* Messages with a row of their own. */
	{ 500, "internal_error", "File size (2147483648) is greater than 2 GiB", -EFBIG, 0, 0, 0 },
	{ 500, "internal_error", "Path is a directory: rm returned EISDIR (is a directory) /x",
	  -EISDIR, 0, 0, 0 },
	{ 500, "internal_error", "spawn E2BIG", -E2BIG, 0, 0, 0 },
	{ 500, "internal_error", "spawn ENOTDIR", -ENOTDIR, 0, 0, 0 },
	{ 500, "internal_error", "spawn /etc EACCES", -EACCES, 0, 0, 0 },
	{ 500, "internal_error", "Invalid string length", -EFBIG, 0, 0, 0 },
	{ 500, "internal_error", "The value of \"size\" is out of range. It must be", -EFBIG, 0, 0,
	  0 },
	{ 500, "internal_error", "The argument must be a string without null bytes", -EINVAL, 0, 0,
	  0 },
	{ 500, "internal_error", "Maximum call stack size exceeded", -E2BIG, 0, 0, 0 },
	{ 500, "internal_error", "unsafe archive member \"../x\": path escapes", -EINVAL, 0, 0, 0 },
	{ 500, "internal_error", "archive member count exceeds limit (limit 2, actual 3)", -EFBIG,
	  0, 0, 0 },
	{ 404, "not_found", "no such path: a/b", -ENOENT, 0, 0, 0 },
	{ 404, "not_found", "unknown route GET /sessions/x/stat", -EOPNOTSUPP, 0, 1, 0 },
	/* Codes. */
	{ 404, "session_not_found", "no session x", -ESTALE, 1, 0, 0 },
	{ 401, "unauthorized", "unauthorized", -EACCES, 0, 0, 1 },
	{ 403, "path_denied", "Access denied: \"..\" resolves outside", -EACCES, 0, 0, 0 },
	{ 403, "root_denied", "x", -EACCES, 0, 0, 0 },
	{ 501, "not_supported", "no exec", -EOPNOTSUPP, 0, 1, 0 },
	{ 400, "bad_request", "missing path", -EINVAL, 0, 0, 0 },
	{ 500, "internal_error", "something else", -EIO, 0, 0, 0 },
	/* A 404 that is not the protocol's must not make a file vanish. */
	{ 404, NULL, NULL, -EIO, 0, 0, 0 },
	{ 404, "not_found", "missing session id", -EIO, 0, 0, 0 },
	/* Statuses. */
	{ 400, NULL, NULL, -EINVAL, 0, 0, 0 },
	{ 401, NULL, NULL, -EACCES, 0, 0, 1 },
	{ 403, NULL, NULL, -EACCES, 0, 0, 1 },
	{ 405, NULL, NULL, -EOPNOTSUPP, 0, 1, 0 },
	{ 408, NULL, NULL, -ETIMEDOUT, 0, 0, 0 },
	{ 413, NULL, NULL, -EFBIG, 0, 0, 0 },
	{ 429, NULL, NULL, -EBUSY, 0, 0, 0 },
	{ 431, NULL, NULL, -ENAMETOOLONG, 0, 0, 0 },
	{ 501, NULL, NULL, -EOPNOTSUPP, 0, 1, 0 },
	{ 502, NULL, NULL, -EIO, 0, 0, 0 },
	{ 503, NULL, NULL, -EBUSY, 0, 0, 0 },
	{ 504, NULL, NULL, -ETIMEDOUT, 0, 0, 0 },
	{ 507, NULL, NULL, -ENOSPC, 0, 0, 0 },
	{ 302, NULL, NULL, -EIO, 0, 0, 0 },
	/* What only looks like a token. */
	{ 500, "internal_error", "ENOENT", -EIO, 0, 0, 0 },
	{ 500, "internal_error", "EWHATEVER: x", -EIO, 0, 0, 0 },
	{ 500, "internal_error", "E: x", -EIO, 0, 0, 0 },
	{ 500, "internal_error", "x ENOENT: y", -EIO, 0, 0, 0 },
	{ 500, "internal_error", "spawn ", -EIO, 0, 0, 0 },
	{ 500, "internal_error", "", -EIO, 0, 0, 0 },
};

static void test_replies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		struct sbx_failure failure = { 0 };
		int error = sbx_errmap_reply(replies[i].status, replies[i].code, replies[i].message,
					     &failure);

		if (error != replies[i].error)
			print_error("row %zu\n", i);
		assert_int_equal(error, replies[i].error);
		assert_int_equal(failure.error, error);
		assert_int_equal(failure.kind, SBX_FAIL_REPLY);
		assert_int_equal(failure.http_status, replies[i].status);
		assert_int_equal(failure.session_not_found, replies[i].session_not_found);
		assert_int_equal(failure.not_supported, replies[i].not_supported);
		assert_int_equal(failure.token_refused, replies[i].token_refused);
	}
	assert_int_equal(sbx_errmap_reply(500, NULL, "EPERM: x", NULL), -EPERM);
}

static void test_transport(void **state)
{
	(void)state;
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_CANCEL), -EINTR);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_RESOLVE), -EHOSTUNREACH);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_CONNECT), -EHOSTUNREACH);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_TLS), -EPROTO);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_STALL), -ETIMEDOUT);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_LOST), -EIO);
	assert_int_equal(sbx_errmap_transport(SBX_FAIL_FOREIGN), -EIO);
}

static int from_text(const char *text)
{
	return sbx_errno_from_text(text, strlen(text));
}

static void test_names_and_texts(void **state)
{
	static const int common[] = {
		EPERM,	ENOENT,	   EIO,	   EACCES, EBUSY, EEXIST, EXDEV,	ENOTDIR,
		EISDIR, EINVAL,	   EFBIG,  ENOSPC, EROFS, EMLINK, ENAMETOOLONG, ENOTEMPTY,
		ELOOP,	EOVERFLOW, EDQUOT, ESTALE, E2BIG, ENOMEM, EAGAIN,	ETXTBSY,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
		const char *name = sbx_errno_name(common[i]);
		char line[256];

		assert_non_null(name);
		assert_int_equal(sbx_errno_from_name(name, strlen(name)), common[i]);
		/* The C library of this machine says it in the same words. */
		assert_int_equal(from_text(strerror(common[i])), common[i]);
		snprintf(line, sizeof(line), "rm: cannot remove 'a: b': %s\n", strerror(common[i]));
		assert_int_equal(from_text(line), common[i]);
	}
	assert_int_equal(from_text("mv: can't rename 'a': Cross-device link"), EXDEV);
	assert_int_equal(from_text("ln: x: Symbolic link loop"), ELOOP);
	assert_int_equal(from_text("mkdir: a: File exists (os error 17)"), EEXIST);
	assert_int_equal(from_text("cat: x: Function not implemented"), EOPNOTSUPP);
	assert_int_equal(from_text("xFile exists"), 0);
	assert_int_equal(from_text("File exists: x"), 0);
	assert_int_equal(from_text(""), 0);
	assert_int_equal(sbx_errno_from_name("ENOSYS", 6), EOPNOTSUPP);
	assert_int_equal(sbx_errno_from_name("ENOENTX", 6), ENOENT);
	assert_int_equal(sbx_errno_from_name("ENOENTX", 7), 0);
	assert_string_equal(sbx_errno_name(EOPNOTSUPP), "EOPNOTSUPP");
	assert_null(sbx_errno_name(0));
	assert_null(sbx_errno_name(ENOSYS));
}

static void test_stale_connections(void **state)
{
	struct sbx_attempt kept = { .connected = true, .reused_connection = true };

	(void)state;
	/* Nothing of the body has left. */
	assert_true(sbx_retry_stale(&kept, SBX_HTTP_ONCE));
	assert_false(sbx_retry_maybe_done(&kept));
	kept.body_whole = true;
	assert_true(sbx_retry_maybe_done(&kept));
	assert_false(sbx_retry_stale(&kept, SBX_HTTP_ONCE));
	assert_true(sbx_retry_stale(&kept, SBX_HTTP_IDEMPOTENT));
	/* A byte came back: the connection was not stale. */
	kept.reply_started = true;
	assert_false(sbx_retry_stale(&kept, SBX_HTTP_IDEMPOTENT));
	kept.reply_started = false;
	kept.reused_connection = false;
	assert_false(sbx_retry_stale(&kept, SBX_HTTP_IDEMPOTENT));
	/* Never connected: nothing can have been done. */
	kept.connected = false;
	assert_false(sbx_retry_maybe_done(&kept));
}

static void test_retry_after(void **state)
{
	const int64_t now = 1785000000; /* Sat, 25 Jul 2026 17:20:00 GMT */

	(void)state;
	assert_int_equal(sbx_retry_wait_ms(429, "2", now, SBX_HTTP_ONCE, 1), 2000);
	assert_int_equal(sbx_retry_wait_ms(503, " 3", now, SBX_HTTP_ONCE, 1), 3000);
	assert_int_equal(
		sbx_retry_wait_ms(503, "Sat, 25 Jul 2026 17:20:10 GMT", now, SBX_HTTP_ONCE, 1),
		10000);
	assert_int_equal(sbx_retry_wait_ms(503, NULL, now, SBX_HTTP_ONCE, 1), -1);
	assert_int_equal(sbx_retry_wait_ms(503, "soon", now, SBX_HTTP_FRESH, 1), -1);
	assert_int_equal(sbx_retry_wait_ms(503, NULL, now, SBX_HTTP_IDEMPOTENT, 1), 250);
	assert_int_equal(sbx_retry_wait_ms(503, NULL, now, SBX_HTTP_IDEMPOTENT, 3), 1000);
	assert_int_equal(sbx_retry_wait_ms(429, NULL, now, SBX_HTTP_ONCE, 100), 8000);
	/* Never a busy loop. */
	assert_int_equal(sbx_retry_wait_ms(429, "0", now, SBX_HTTP_ONCE, 1), 250);
	assert_int_equal(
		sbx_retry_wait_ms(503, "Sat, 25 Jul 2026 00:00:00 GMT", now, SBX_HTTP_ONCE, 1),
		250);
	assert_int_equal(sbx_retry_wait_ms(429, "99999999999999999999", now, SBX_HTTP_ONCE, 1),
			 3600000);
	assert_int_equal(sbx_retry_wait_ms(500, "1", now, SBX_HTTP_IDEMPOTENT, 1), -1);
	assert_int_equal(sbx_retry_wait_ms(200, "1", now, SBX_HTTP_IDEMPOTENT, 1), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies),		cmocka_unit_test(test_transport),
		cmocka_unit_test(test_names_and_texts), cmocka_unit_test(test_stale_connections),
		cmocka_unit_test(test_retry_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
