/* Endpoints (client/endpoint.h) and the way to them (client/http_proxy.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <glib.h>

#include "client/endpoint.h"
#include "client/http.h"
#include "client/http_proxy.h"

static const struct {
	const char *text;
	const char *canonical;
	const char *dir_name;
	bool loopback;
} good[] = {
	{ "https://sbx.example.com", "https://sbx.example.com", "https-sbx.example.com-443",
	  false },
	{ "HTTPS://SBX.Example.com:443///", "https://sbx.example.com", "https-sbx.example.com-443",
	  false },
	{ "http://127.0.0.1:8080/", "http://127.0.0.1:8080", "http-127.0.0.1-8080", true },
	{ "http://127.255.0.9", "http://127.255.0.9", "http-127.255.0.9-80", true },
	{ "http://[::1]:99/a/b/", "http://[::1]:99/a/b", "http-_3a_3a1-99_2fa_2fb", true },
	{ "http://localhost", "http://localhost", "http-localhost-80", true },
	{ "http://localhost.:80", "http://localhost", "http-localhost-80", true },
	{ "https://h/p%20q", "https://h/p%20q", "https-h-443_2fp_2520q", false },
	{ "http://localhost.example.com", "http://localhost.example.com",
	  "http-localhost.example.com-80", false },
	{ "http://128.0.0.1", "http://128.0.0.1", "http-128.0.0.1-80", false },
};

static const char *const bad[] = {
	"",
	"sbx.example.com",
	"ftp://h",
	"file:///etc/passwd",
	"https://",
	"https:///x",
	"https://:80",
	"https://h:0",
	"https://h:65536",
	"https://h:99999999999",
	"https://h:80x",
	"https://h:",
	"https://h/../x",
	"https://h/a//b",
	"https://h/./x",
	"https://h/a b",
	"https://h/%zz",
	"https://h/\xc3\xa4",
	"https://h\n",
	"https://h h",
	"https://.h",
	"https://a..b",
	"https://[::1",
	"https://[::g]",
	"https://[::1]x",
	"https://[127.0.0.1]",
};

static const char *const secret[] = {
	"https://user:hunter2@h", "https://hunter2@h/x",  "https://h/?token=hunter2",
	"https://h/x#hunter2",	  "http://a@b:hunter2@h", "https://h?hunter2",
};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
		struct sbx_endpoint *endpoint = NULL;

		assert_int_equal(sbx_endpoint_parse(good[i].text, &endpoint, NULL), 0);
		assert_string_equal(endpoint->text, good[i].canonical);
		assert_string_equal(endpoint->dir_name, good[i].dir_name);
		assert_int_equal(endpoint->loopback, good[i].loopback);
		sbx_endpoint_free(endpoint);
	}
}

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		struct sbx_endpoint *endpoint = NULL;
		const char *reason = NULL;

		if (sbx_endpoint_parse(bad[i], &endpoint, &reason) != -EINVAL)
			print_error("%s\n", bad[i]);
		assert_int_equal(sbx_endpoint_parse(bad[i], &endpoint, &reason), -EINVAL);
		assert_null(endpoint);
		assert_non_null(reason);
	}
}

static void test_secrets_are_refused_and_not_repeated(void **state)
{
	(void)state;
	for (size_t i = 0; i < G_N_ELEMENTS(secret); i++) {
		struct sbx_endpoint *endpoint = NULL;
		const char *reason = NULL;

		assert_int_equal(sbx_endpoint_parse(secret[i], &endpoint, &reason), -EINVAL);
		assert_non_null(reason);
		assert_non_null(strstr(reason, "token_file"));
		assert_null(strstr(reason, "hunter2"));
	}
}

static void test_long_names_stay_apart(void **state)
{
	struct sbx_endpoint *one = NULL;
	struct sbx_endpoint *two = NULL;
	char text[600] = "https://h/";

	(void)state;
	memset(text + 10, 'a', 500);
	assert_int_equal(sbx_endpoint_parse(text, &one, NULL), 0);
	text[509] = 'b';
	assert_int_equal(sbx_endpoint_parse(text, &two, NULL), 0);
	assert_true(strlen(one->dir_name) <= 200);
	assert_string_not_equal(one->dir_name, two->dir_name);
	sbx_endpoint_free(one);
	sbx_endpoint_free(two);
}

static void test_noproxy(void **state)
{
	(void)state;
	assert_true(http_proxy_excluded("*", "h"));
	assert_true(http_proxy_excluded("a,.example.com", "sbx.example.com"));
	assert_true(http_proxy_excluded("a example.com", "sbx.Example.com"));
	assert_true(http_proxy_excluded("example.com", "example.com"));
	assert_false(http_proxy_excluded("example.com", "badexample.com"));
	assert_false(http_proxy_excluded("", "h"));
	assert_false(http_proxy_excluded(NULL, "h"));
	assert_false(http_proxy_excluded("sbx.example.com", "example.com"));
}

/* The proxy chosen, "-" when it is refused. */
static void check_proxy(const char *url, const char *option, const char *env, bool have_token,
			const char *want)
{
	struct sbx_http_options options = { .proxy = option };
	struct sbx_endpoint *endpoint = NULL;
	const char *reason = NULL;
	char *proxy = NULL;
	int r;

	assert_int_equal(sbx_endpoint_parse(url, &endpoint, NULL), 0);
	if (env != NULL) {
		setenv("http_proxy", env, 1);
		setenv("https_proxy", env, 1);
	}
	r = http_proxy_choose(endpoint, &options, have_token, &proxy, &reason);
	unsetenv("http_proxy");
	unsetenv("https_proxy");
	if (strcmp(want, "-") == 0) {
		assert_true(r < 0);
		assert_non_null(reason);
		assert_null(proxy);
	} else {
		assert_int_equal(r, 0);
		assert_string_equal(proxy, want);
	}
	g_free(proxy);
	sbx_endpoint_free(endpoint);
}

static void test_proxy(void **state)
{
	static const char proxy[] = "http://proxy:3128";

	(void)state;
	check_proxy("http://127.0.0.1:1", NULL, proxy, true, "");
	check_proxy("http://localhost:1", proxy, NULL, true, "");
	check_proxy("https://[::1]", proxy, proxy, true, "");
	check_proxy("https://h", NULL, NULL, true, "");
	check_proxy("https://h", NULL, proxy, true, proxy);
	check_proxy("https://h", proxy, NULL, true, proxy);
	check_proxy("https://h", "", proxy, true, "");
	check_proxy("http://h", NULL, proxy, true, "-");
	check_proxy("http://h", "socks5h://p", NULL, true, "-");
	check_proxy("http://h", NULL, proxy, false, proxy);
	check_proxy("http://h", "https://p", NULL, true, "https://p");
	check_proxy("https://h", "http://user:pass@p", NULL, true, "-");
	setenv("no_proxy", "h", 1);
	check_proxy("http://h", NULL, proxy, true, "");
	unsetenv("no_proxy");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_secrets_are_refused_and_not_repeated),
		cmocka_unit_test(test_long_names_stay_apart),
		cmocka_unit_test(test_noproxy),
		cmocka_unit_test(test_proxy),
	};
	static const char *const clean[] = { "http_proxy", "https_proxy", "HTTPS_PROXY",
					     "all_proxy",  "ALL_PROXY",	  "no_proxy",
					     "NO_PROXY" };

	for (size_t i = 0; i < G_N_ELEMENTS(clean); i++)
		unsetenv(clean[i]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
