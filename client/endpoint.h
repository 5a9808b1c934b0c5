/*
 * An ENDPOINT: the URL of a sandbox server, parsed once and then only read (no lock).
 * A URL that holds a secret (user:password@, ?query, #fragment) is refused, because the endpoint
 * is shown in ps, mount, status and file names.
 */
#ifndef SBX_CLIENT_ENDPOINT_H
#define SBX_CLIENT_ENDPOINT_H

#include <stdbool.h>

struct sbx_endpoint {
	char *text; /* canonical: scheme://host[:port][/base], no trailing slash */
	char *host; /* lower case, IPv6 without brackets */
	char *base_path; /* "" or "/a/b" */
	char *dir_name; /* one safe path component that stands for the whole endpoint */
	int port; /* always set: 80, 443 or the one given */
	bool https;
	bool loopback; /* 127.0.0.0/8, ::1, localhost */
};

/*
 * sbx_endpoint_parse() - 0; -EINVAL with a constant sentence in *ret_reason (may be NULL);
 * -ENOMEM. Never blocks: no name is looked up. The sentence never repeats the text, which may
 * hold a secret.
 */
int sbx_endpoint_parse(const char *text, struct sbx_endpoint **ret_endpoint,
		       const char **ret_reason);
void sbx_endpoint_free(struct sbx_endpoint *endpoint); /* NULL is allowed */

/*
 * sbx_host_is_loopback() - 127.0.0.0/8, ::1 (and its mapped form), localhost; nothing is resolved.
 */
bool sbx_host_is_loopback(const char *host);

#endif
