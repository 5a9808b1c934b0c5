/*
 * Which proxy an endpoint is asked through, and whether the token may go that way (design.md,
 * promise 8). Pure but for reading the environment; what curl would do by itself is decided here,
 * so that the rules hold also for http_proxy and its kin.
 */
#ifndef SBX_CLIENT_HTTP_PROXY_H
#define SBX_CLIENT_HTTP_PROXY_H

#include <stdbool.h>

struct sbx_endpoint;
struct sbx_http_options;

/*
 * http_proxy_choose() - *ret_proxy is "" for none, else the proxy's URL; free with g_free.
 * -EINVAL: `proxy` holds a user name or password; -EACCES: the token would cross plain http to
 * the proxy. *ret_reason is then a constant sentence.
 */
int http_proxy_choose(const struct sbx_endpoint *endpoint, const struct sbx_http_options *options,
		      bool have_token, char **ret_proxy, const char **ret_reason);

/* http_proxy_excluded() - does curl's @noproxy list (hosts, .domains, "*") name this host? */
bool http_proxy_excluded(const char *noproxy, const char *host);

#endif
