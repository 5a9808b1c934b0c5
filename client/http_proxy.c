#include "client/http_proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "client/endpoint.h"
#include "client/http.h"

bool http_proxy_excluded(const char *noproxy, const char *host)
{
	g_auto(GStrv) names = NULL;
	size_t host_len = strlen(host);

	if (noproxy == NULL)
		return false;
	names = g_strsplit_set(noproxy, ", \t", -1);
	for (char **name = names; *name != NULL; name++) {
		const char *tail = **name == '.' ? *name + 1 : *name;
		size_t len = strlen(tail);

		if (strcmp(*name, "*") == 0)
			return true;
		if (len == 0 || len > host_len ||
		    g_ascii_strcasecmp(host + host_len - len, tail) != 0)
			continue;
		if (len == host_len || host[host_len - len - 1] == '.')
			return true;
	}
	return false;
}

static const char *first_env(const char *const *names)
{
	for (; *names != NULL; names++) {
		const char *value = getenv(*names);

		if (value != NULL && *value != '\0')
			return value;
	}
	return NULL;
}

static bool has_userinfo(const char *url)
{
	const char *authority = strstr(url, "://");

	authority = authority != NULL ? authority + 3 : url;
	return memchr(authority, '@', strcspn(authority, "/")) != NULL;
}

int http_proxy_choose(const struct sbx_endpoint *endpoint, const struct sbx_http_options *options,
		      bool have_token, char **ret_proxy, const char **ret_reason)
{
	/* As curl: HTTP_PROXY in capitals is left alone, a CGI request could set it. */
	static const char *const http_names[] = { "http_proxy", "all_proxy", "ALL_PROXY", NULL };
	static const char *const https_names[] = { "https_proxy", "HTTPS_PROXY", "all_proxy",
						   "ALL_PROXY", NULL };
	static const char *const no_names[] = { "no_proxy", "NO_PROXY", NULL };
	const char *proxy = options->proxy;
	const char *noproxy = options->noproxy;

	if (proxy != NULL && has_userinfo(proxy)) {
		*ret_reason = "proxy must not hold a user name or password";
		return -EINVAL;
	}
	if (proxy == NULL)
		proxy = first_env(endpoint->https ? https_names : http_names);
	if (noproxy == NULL)
		noproxy = first_env(no_names);
	if (endpoint->loopback || proxy == NULL || http_proxy_excluded(noproxy, endpoint->host))
		proxy = "";
	/* An https endpoint is reached by CONNECT: the proxy sees no header of ours. */
	if (*proxy != '\0' && !endpoint->https && have_token &&
	    g_ascii_strncasecmp(proxy, "https://", 8) != 0) {
		*ret_reason = "the token must not go to a plain-http proxy; "
			      "use an https endpoint, or name the host in noproxy";
		return -EACCES;
	}
	*ret_proxy = g_strdup(proxy);
	return 0;
}
