/* The token: where it comes from, and that it leaves no trace (client/token.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include "client/token.h"

static char *dir;

static int setup(void **state)
{
	(void)state;
	dir = g_dir_make_tmp("sbx-token-XXXXXX", NULL);
	return dir == NULL;
}

static int teardown(void **state)
{
	(void)state;
	rmdir(dir);
	g_free(dir);
	return 0;
}

static char *write_file(const char *text, size_t len, mode_t mode)
{
	char *path = g_strdup_printf("%s/token", dir);
	char *fresh = g_strdup_printf("%s/token.new", dir);
	int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	close(fd);
	assert_int_equal(rename(fresh, path), 0);
	g_free(fresh);
	return path;
}

static void check_header(struct sbx_token *token, const char *want)
{
	char *header = sbx_token_header(token);

	if (want == NULL)
		assert_null(header);
	else
		assert_string_equal(header, want);
	sbx_token_header_free(header);
}

static void check_strip(struct sbx_token *token, const char *text, const char *want)
{
	char *got = sbx_token_strip(token, text);

	assert_string_equal(got, want);
	g_free(got);
}

static void test_file(void **state)
{
	struct sbx_token *token = NULL;
	char *path = write_file("s3cret\r\n", 8, 0600);

	(void)state;
	assert_int_equal(sbx_token_new(path, &token), 0);
	assert_true(sbx_token_present(token));
	assert_false(sbx_token_exposed(token));
	check_header(token, "Authorization: Bearer s3cret");
	assert_int_equal(sbx_token_refresh(token, false), 0);
	assert_int_equal(sbx_token_refresh(token, true), 0);
	assert_int_equal(sbx_token_generation(token), 0);

	g_free(write_file("other\n", 6, 0644));
	assert_int_equal(sbx_token_generation(token), 1);
	check_header(token, "Authorization: Bearer other");
	assert_true(sbx_token_exposed(token));
	assert_int_equal(sbx_token_refresh(token, false), 0);
	/* The one before may still be echoed. */
	check_strip(token, "x s3cret y other", "x [token] y [token]");

	/* A file that went away or went bad leaves the token as it was. */
	g_free(write_file("ba d\n", 5, 0600));
	assert_int_equal(sbx_token_refresh(token, false), -EINVAL);
	unlink(path);
	assert_int_equal(sbx_token_refresh(token, true), -ENOENT);
	check_header(token, "Authorization: Bearer other");
	sbx_token_free(token);
	g_free(path);
}

static void test_bad_files(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = { { "", 0 },	   { "\n\n", 2 }, { "a b", 3 },	     { "a\nb", 3 },
		    { "a\0b", 3 }, { "a\tb", 3 }, { "\xc3\xa4", 2 }, { "a\r\nX: y\n", 8 } };
	struct sbx_token *token = NULL;
	char *path = NULL;
	char *big;

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		g_free(path);
		path = write_file(bad[i].text, bad[i].len, 0600);
		assert_int_equal(sbx_token_new(path, &token), -EINVAL);
	}
	big = g_strnfill(SBX_TOKEN_MAX + 1, 'a');
	g_free(write_file(big, SBX_TOKEN_MAX + 1, 0600));
	assert_int_equal(sbx_token_new(path, &token), -EINVAL);
	g_free(write_file(big, SBX_TOKEN_MAX, 0600));
	assert_int_equal(sbx_token_new(path, &token), 0);
	sbx_token_free(token);
	token = NULL;
	g_free(big);
	unlink(path);
	assert_int_equal(sbx_token_new(path, &token), -ENOENT);
	assert_int_equal(sbx_token_new(dir, &token), -EISDIR);
	assert_null(token);
	g_free(path);
}

static void test_environment(void **state)
{
	char variable[] = "SBX_TOKEN=env-s3cret";
	struct sbx_token *token = NULL;

	(void)state;
	/* putenv() keeps these very bytes in the environment, as at the start of a process. */
	assert_int_equal(putenv(variable), 0);
	assert_int_equal(sbx_token_new(NULL, &token), 0);
	assert_null(getenv("SBX_TOKEN"));
	assert_string_equal(variable, "SBX_TOKEN=");
	for (size_t i = 10; i < sizeof(variable); i++)
		assert_int_equal(variable[i], 0);
	check_header(token, "Authorization: Bearer env-s3cret");
	assert_int_equal(sbx_token_refresh(token, true), 0);
	sbx_token_free(token);

	assert_int_equal(sbx_token_new(NULL, &token), 0);
	assert_false(sbx_token_present(token));
	check_header(token, NULL);
	check_strip(token, "text", "text");
	sbx_token_free(token);
}

/* With a file the variable is not used, but wiped all the same. */
static void test_file_wins_and_environment_is_wiped(void **state)
{
	char variable[] = "SBX_TOKEN=env-s3cret";
	char *path = write_file("file-s3cret", 11, 0600);
	struct sbx_token *token = NULL;

	(void)state;
	assert_int_equal(putenv(variable), 0);
	assert_int_equal(sbx_token_new(path, &token), 0);
	assert_null(getenv("SBX_TOKEN"));
	assert_string_equal(variable, "SBX_TOKEN=");
	check_header(token, "Authorization: Bearer file-s3cret");
	sbx_token_free(token);
	unlink(path);
	g_free(path);
}

static void test_strip(void **state)
{
	char *path = write_file("abc", 3, 0600);
	struct sbx_token *token = NULL;

	(void)state;
	assert_int_equal(sbx_token_new(path, &token), 0);
	check_strip(token, "", "");
	check_strip(token, "abc", "[token]");
	check_strip(token, "Authorization: Bearer abc.", "Authorization: [token].");
	check_strip(token, "bearer abcabc", "[token][token]");
	check_strip(token, "ab c", "ab c");
	sbx_token_free(token);
	unlink(path);
	g_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_file_wins_and_environment_is_wiped),
		cmocka_unit_test(test_strip),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
