#include "client/endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

/* A file name has at most 255 bytes; a longer one ends in a digest of the whole. */
#define DIR_NAME_MAX 200

bool sbx_host_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (g_ascii_strcasecmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6) ||
		       (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
	return false;
}

static bool host_valid(const char *host, bool bracketed)
{
	struct in6_addr v6;

	if (bracketed)
		return inet_pton(AF_INET6, host, &v6) == 1;
	if (*host == '\0' || *host == '.' || *host == '-' || strlen(host) > 253)
		return false;
	for (const char *c = host; *c != '\0'; c++) {
		if (!g_ascii_isalnum(*c) && *c != '-' && *c != '.' && *c != '_')
			return false;
		if (c[0] == '.' && c[1] == '.')
			return false;
	}
	return true;
}

/* Each component plain: what a server would normalise away, or decode, can't be meant. */
static bool base_path_valid(const char *path)
{
	g_auto(GStrv) parts = NULL;

	for (const char *c = path; *c != '\0'; c++) {
		if (!g_ascii_isalnum(*c) && strchr("-._~/!$&'()*+,;=:@", *c) == NULL) {
			if (*c != '%' || !g_ascii_isxdigit(c[1]) || !g_ascii_isxdigit(c[2]))
				return false;
		}
	}
	if (*path == '\0')
		return true;
	parts = g_strsplit(path + 1, "/", -1);
	for (char **part = parts; *part != NULL; part++) {
		if (**part == '\0' || strcmp(*part, ".") == 0 || strcmp(*part, "..") == 0)
			return false;
	}
	return true;
}

static int parse_port(const char *text, int *ret_port)
{
	char *end;
	long port;

	if (!g_ascii_isdigit(*text) || strlen(text) > 5)
		return -EINVAL;
	port = strtol(text, &end, 10);
	if (*end != '\0' || port < 1 || port > 65535)
		return -EINVAL;
	*ret_port = (int)port;
	return 0;
}

/* Bytes outside [A-Za-z0-9.-] become _XX, so that two endpoints never share a name. */
static char *make_dir_name(const struct sbx_endpoint *endpoint)
{
	g_autofree char *whole =
		g_strdup_printf("%s-%s-%d%s", endpoint->https ? "https" : "http", endpoint->host,
				endpoint->port, endpoint->base_path);
	GString *name = g_string_new(NULL);

	for (const char *c = whole; *c != '\0'; c++) {
		if (g_ascii_isalnum(*c) || *c == '-' || *c == '.')
			g_string_append_c(name, *c);
		else
			g_string_append_printf(name, "_%02x", (unsigned char)*c);
	}
	if (name->len > DIR_NAME_MAX) {
		g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, whole, -1);

		g_string_truncate(name, DIR_NAME_MAX - 33);
		g_string_append_c(name, '_');
		g_string_append_len(name, sum, 32);
	}
	return g_string_free(name, FALSE);
}

int sbx_endpoint_parse(const char *text, struct sbx_endpoint **ret_endpoint,
		       const char **ret_reason)
{
	g_autofree char *rest = NULL;
	struct sbx_endpoint *endpoint;
	const char *reason = NULL;
	char *authority;
	char *path;
	char *port = NULL;
	bool bracketed = false;
	bool https;
	int port_number;
	size_t len;

	if (g_ascii_strncasecmp(text, "https://", 8) == 0) {
		https = true;
		rest = g_strdup(text + 8);
	} else if (g_ascii_strncasecmp(text, "http://", 7) == 0) {
		https = false;
		rest = g_strdup(text + 7);
	} else {
		reason = "the endpoint must begin with https:// or http://";
		goto invalid;
	}
	port_number = https ? 443 : 80;

	/* A secret is looked for first, so that no other complaint hides it. */
	if (strchr(rest, '?') != NULL || strchr(rest, '#') != NULL) {
		reason = "the endpoint must not have a query or fragment; "
			 "a token belongs in token_file or SBX_TOKEN";
		goto invalid;
	}
	authority = rest;
	len = strcspn(rest, "/");
	if (memchr(rest, '@', len) != NULL) {
		reason = "the endpoint must not hold a user name or password; "
			 "a token belongs in token_file or SBX_TOKEN";
		goto invalid;
	}
	path = g_strdup(rest + len);
	rest[len] = '\0';
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		path[--len] = '\0';

	if (*authority == '[') {
		char *close = strchr(authority, ']');

		bracketed = true;
		authority++;
		if (close != NULL && (close[1] == '\0' || close[1] == ':')) {
			port = close[1] == ':' ? close + 2 : NULL;
			*close = '\0';
		} else {
			authority = (char *)"";
		}
	} else {
		port = strchr(authority, ':');
		if (port != NULL)
			*port++ = '\0';
		len = strlen(authority);
		if (len > 1 && authority[len - 1] == '.')
			authority[len - 1] = '\0';
	}
	if (!host_valid(authority, bracketed))
		reason = "the endpoint has no valid host";
	else if (port != NULL && parse_port(port, &port_number) < 0)
		reason = "the endpoint has no valid port";
	else if (!base_path_valid(path))
		reason = "the endpoint's path has empty, dot or unencoded parts";
	if (reason != NULL) {
		g_free(path);
		goto invalid;
	}

	endpoint = g_new0(struct sbx_endpoint, 1);
	endpoint->https = https;
	endpoint->port = port_number;
	endpoint->host = g_ascii_strdown(authority, -1);
	endpoint->base_path = path;
	endpoint->loopback = sbx_host_is_loopback(endpoint->host);
	{
		g_autofree char *port_text = port_number == (https ? 443 : 80)
						     ? g_strdup("")
						     : g_strdup_printf(":%d", port_number);

		endpoint->text =
			g_strconcat(https ? "https://" : "http://", bracketed ? "[" : "",
				    endpoint->host, bracketed ? "]" : "", port_text, path, NULL);
	}
	endpoint->dir_name = make_dir_name(endpoint);
	*ret_endpoint = endpoint;
	return 0;
invalid:
	if (ret_reason != NULL)
		*ret_reason = reason;
	return -EINVAL;
}

void sbx_endpoint_free(struct sbx_endpoint *endpoint)
{
	if (endpoint == NULL)
		return;
	g_free(endpoint->text);
	g_free(endpoint->host);
	g_free(endpoint->base_path);
	g_free(endpoint->dir_name);
	g_free(endpoint);
}
