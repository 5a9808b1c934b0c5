/* The command line (fusefs/options.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fuse_opt.h>
#include <glib.h>

#include "fusefs/options.h"

#define ARGS_MAX 12

/* "a b c" as argv. */
static int parse(const char *line, struct options **ret_options, char **ret_message)
{
	g_auto(GStrv) words = g_strsplit(line, " ", ARGS_MAX);

	*ret_message = NULL;
	return options_parse((int)g_strv_length(words), words, ret_options, ret_message);
}

static void test_defaults(void **state)
{
	struct options *options = NULL;
	char *message;

	(void)state;
	assert_int_equal(parse("sbxfs http://127.0.0.1:1 /mnt", &options, &message), 0);
	assert_string_equal(options->endpoint, "http://127.0.0.1:1");
	assert_string_equal(options->mountpoint, "/mnt");
	assert_int_equal(options->timeout_ms, 30000);
	assert_int_equal(options->ttl_ms, 1000);
	assert_true(options->use_exec);
	assert_true(options->cache_on_disk);
	assert_int_equal(options->cache_size_bytes, 1ull << 30);
	assert_false(options->foreground);
	options_free(options);
}

static void test_values(void **state)
{
	struct options *options = NULL;
	char *message;

	(void)state;
	assert_int_equal(parse("sbxfs -o timeout=2.5,ttl=0,uid=12345,umask=077,exec=no -o "
			       "cache_size=512M,attach=a:b,attach=c,symlinks=raw -f http://h/ /mnt",
			       &options, &message),
			 0);
	assert_int_equal(options->timeout_ms, 2500);
	assert_int_equal(options->ttl_ms, 0);
	assert_int_equal(options->uid, 12345);
	assert_int_equal(options->umask, 077);
	assert_false(options->use_exec);
	assert_true(options->symlinks_raw);
	assert_true(options->foreground);
	assert_int_equal(options->cache_size_bytes, 512ull << 20);
	assert_string_equal(options->attach[0], "a:b");
	assert_string_equal(options->attach[1], "c");
	assert_null(options->attach[2]);
	options_free(options);
}

/* mount(8) and fstab bring options of their own; libfuse's go on to libfuse, ours do not. */
static void test_mount_options_are_taken(void **state)
{
	struct options *options = NULL;
	g_autofree char *left = NULL;
	char *message;

	(void)state;
	assert_int_equal(parse("sbxfs http://h /mnt -o "
			       "rw,exec,_netdev,noauto,x-systemd.automount,nofail,suid,dev,"
			       "allow_other,noatime,ttl=3",
			       &options, &message),
			 0);
	assert_true(options->use_exec);
	assert_true(options->allow_other);
	assert_int_equal(options->ttl_ms, 3000);
	left = g_strjoinv(" ", options->fuse_args->argv);
	assert_non_null(strstr(left, "allow_other"));
	assert_non_null(strstr(left, "noatime"));
	assert_null(strstr(left, "ttl"));
	assert_null(strstr(left, "suid"));
	assert_null(strstr(left, "_netdev"));
	assert_null(strstr(left, "http://h"));
	options_free(options);
}

static void test_endpoint_from_environment(void **state)
{
	struct options *options = NULL;
	char *message;

	(void)state;
	setenv("SBX_ENDPOINT", "https://from.example", 1);
	assert_int_equal(parse("sbxfs /mnt", &options, &message), 0);
	assert_string_equal(options->endpoint, "https://from.example");
	assert_string_equal(options->mountpoint, "/mnt");
	options_free(options);
	unsetenv("SBX_ENDPOINT");
	assert_int_equal(parse("sbxfs /mnt", &options, &message), -EINVAL);
	g_free(message);
}

/* Each is refused with one line that names what is wrong, and never repeats a secret. */
static void test_refusals(void **state)
{
	static const struct {
		const char *line;
		const char *names;
	} rows[] = {
		{ "sbxfs", "ENDPOINT" },
		{ "sbxfs http://h /a /b", "/b" },
		{ "sbxfs -s http://h /a", "-s" },
		{ "sbxfs -x http://h /a", "-x" },
		{ "sbxfs -o timeout=0 http://h /a", "timeout" },
		{ "sbxfs -o timeout=abc http://h /a", "timeout" },
		{ "sbxfs -o ttl=-1 http://h /a", "ttl" },
		{ "sbxfs -o ttl http://h /a", "ttl" },
		{ "sbxfs -o noprobe=1 http://h /a", "noprobe" },
		{ "sbxfs -o exec=maybe http://h /a", "exec" },
		{ "sbxfs -o symlinks=x http://h /a", "symlinks" },
		{ "sbxfs -o umask=9 http://h /a", "umask" },
		{ "sbxfs -o cache_size=1X http://h /a", "cache_size" },
		{ "sbxfs -o cert=/c http://h /a", "cert" },
		{ "sbxfs -o state_dir=rel http://h /a", "state_dir" },
		{ "sbxfs -o token=geheim http://h /a", "token_file" },
	};

	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		struct options *options = NULL;
		char *message;

		assert_int_equal(parse(rows[i].line, &options, &message), -EINVAL);
		assert_null(options);
		assert_non_null(strstr(message, rows[i].names));
		assert_null(strchr(message, '\n'));
		assert_null(strstr(message, "geheim"));
		g_free(message);
	}
}

static void test_help_needs_nothing_else(void **state)
{
	struct options *options = NULL;
	char *message;

	(void)state;
	assert_int_equal(parse("sbxfs -h", &options, &message), 0);
	assert_true(options->show_help);
	options_free(options);
	assert_int_equal(parse("sbxfs --version", &options, &message), 0);
	assert_true(options->show_version);
	options_free(options);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_mount_options_are_taken),
		cmocka_unit_test(test_endpoint_from_environment),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_help_needs_nothing_else),
	};

	unsetenv("SBX_ENDPOINT");
	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
