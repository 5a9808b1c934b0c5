#include "tests/sbxd/request.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <strings.h>

/* Node's --max-http-header-size: the target, and all names and values, without delimiters. */
#define HEAD_LIMIT_BYTES 16384

static const char *const methods[] = {
	"DELETE",     "GET",	  "HEAD",	"POST",	    "PUT",    "CONNECT",   "OPTIONS",
	"TRACE",      "COPY",	  "LOCK",	"MKCOL",    "MOVE",   "PROPFIND",  "PROPPATCH",
	"SEARCH",     "UNLOCK",	  "BIND",	"REBIND",   "UNBIND", "ACL",	   "REPORT",
	"MKACTIVITY", "CHECKOUT", "MERGE",	"M-SEARCH", "NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE",
	"PATCH",      "PURGE",	  "MKCALENDAR", "LINK",	    "UNLINK", "SOURCE",	   "QUERY",
};

struct line {
	const unsigned char *text;
	size_t len;
	bool whole; /* ended by CR LF; else all there is so far */
};

/* The line at *at; moves *at behind it. False: a line feed without a carriage return. */
static bool next_line(const unsigned char *bytes, size_t len_bytes, size_t *at, struct line *line)
{
	const unsigned char *from = bytes + *at;
	const unsigned char *end = memchr(from, '\n', len_bytes - *at);

	line->text = from;
	line->whole = end != NULL;
	if (!end) {
		line->len = len_bytes - *at;
		*at = len_bytes;
		return true;
	}
	line->len = (size_t)(end - from);
	*at += line->len + 1;
	if (line->len == 0 || from[line->len - 1] != '\r')
		return false;
	line->len--;
	return true;
}

/* Whether the bytes are a method, or (for a line still growing) may become one. */
static bool method_fits(const unsigned char *text, size_t len, bool whole)
{
	for (size_t i = 0; i < G_N_ELEMENTS(methods); i++) {
		size_t full = strlen(methods[i]);

		if (len <= full && memcmp(text, methods[i], len) == 0 && (!whole || len == full))
			return true;
	}
	return false;
}

/* Check a request line, whole or growing. Counts what of it falls under the head limit. */
static bool take_request_line(const struct line *line, struct request *req, size_t *counted)
{
	const unsigned char *space = memchr(line->text, ' ', line->len);
	const unsigned char *target, *end;
	size_t method_len = space ? (size_t)(space - line->text) : line->len;
	size_t left;

	if (!method_fits(line->text, method_len, space || line->whole))
		return false;
	if (!space)
		return !line->whole;
	target = space + 1;
	left = line->len - method_len - 1;
	for (end = target; end<target + left && * end> 0x20 && *end < 0x7f; end++)
		;
	*counted += (size_t)(end - target);
	if (end > target && *target != '/' && *target != '*' && !g_ascii_isalpha(*target))
		return false;
	left -= (size_t)(end - target);
	if (left == 0)
		return !line->whole;
	if (*end != ' ' || end == target)
		return false;
	if (!line->whole)
		return left <= strlen(" HTTP/1.1\r") &&
		       memcmp(end, " HTTP/1.", MIN(left, strlen(" HTTP/1."))) == 0;
	if (left != strlen(" HTTP/1.1") || memcmp(end, " HTTP/1.", 8) != 0 ||
	    (end[8] != '0' && end[8] != '1'))
		return false;
	req->http10 = end[8] == '0';
	memcpy(req->method, line->text, method_len);
	req->target = g_strndup((const char *)target, (gsize)(end - target));
	return true;
}

static bool is_token_char(unsigned char c)
{
	return g_ascii_isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool has_word(const char *value, const char *word)
{
	g_auto(GStrv) words = g_strsplit(value, ",", -1);

	for (char **at = words; *at; at++) {
		if (strcasecmp(g_strstrip(*at), word) == 0)
			return true;
	}
	return false;
}

static bool take_length(struct request *req, const char *value)
{
	char *end;

	if (req->has_length || req->chunked || !g_ascii_isdigit(*value))
		return false;
	errno = 0;
	req->content_length = g_ascii_strtoull(value, &end, 10);
	req->has_length = true;
	return !*end && !errno;
}

static bool keep_header(struct request *req, const char *name, const char *value)
{
	if (strcasecmp(name, "host") == 0) {
		req->has_host = true;
	} else if (strcasecmp(name, "content-length") == 0) {
		return take_length(req, value);
	} else if (strcasecmp(name, "transfer-encoding") == 0) {
		req->chunked = has_word(value, "chunked");
		return req->chunked && !req->has_length;
	} else if (strcasecmp(name, "connection") == 0) {
		if (has_word(value, "close"))
			req->keep_alive = false;
		else if (has_word(value, "keep-alive"))
			req->keep_alive = true;
	} else if (strcasecmp(name, "expect") == 0) {
		req->expect_continue = strcasecmp(value, "100-continue") == 0;
		req->expect_unknown = !req->expect_continue;
	} else if (strcasecmp(name, "authorization") == 0 && !req->authorization) {
		req->authorization = g_strdup(value);
	} else if (strcasecmp(name, "range") == 0 && !req->range) {
		req->range = g_strdup(value);
	}
	return true;
}

static bool take_header(const struct line *line, struct request *req, size_t *counted)
{
	g_autofree char *name = NULL;
	g_autofree char *value = NULL;
	size_t name_len = 0, at;

	while (name_len < line->len && is_token_char(line->text[name_len]))
		name_len++;
	*counted += name_len;
	if (name_len == line->len)
		return !line->whole;
	if (name_len == 0 || line->text[name_len] != ':')
		return false;
	at = name_len + 1;
	while (at < line->len && (line->text[at] == ' ' || line->text[at] == '\t'))
		at++;
	for (size_t i = at; i < line->len; i++) {
		unsigned char c = line->text[i];

		if ((c < 0x20 && c != '\t' && (line->whole || c != '\r')) || c == 0x7f)
			return false;
	}
	*counted += line->len - at;
	if (!line->whole)
		return true;
	name = g_strndup((const char *)line->text, name_len);
	value = g_strndup((const char *)line->text + at, line->len - at);
	return keep_header(req, name, g_strchomp(value));
}

static enum request_parse parse_lines(const unsigned char *bytes, size_t len_bytes,
				      struct request *req, size_t *ret_head_bytes)
{
	size_t at = 0, counted = 0;
	struct line line;

	/* Empty lines before a request are let pass. */
	while (at < len_bytes && (bytes[at] == '\r' || bytes[at] == '\n'))
		at++;
	if (at == len_bytes)
		return REQUEST_PARTIAL;
	if (!next_line(bytes, len_bytes, &at, &line) || !take_request_line(&line, req, &counted))
		return REQUEST_BAD;
	req->keep_alive = !req->http10;
	while (line.whole && at < len_bytes && counted < HEAD_LIMIT_BYTES) {
		if (!next_line(bytes, len_bytes, &at, &line))
			return REQUEST_BAD;
		if (line.whole && line.len == 0) {
			*ret_head_bytes = at;
			return REQUEST_WHOLE;
		}
		if (!line.whole && line.len == 1 && line.text[0] == '\r')
			break;
		if (!take_header(&line, req, &counted))
			return REQUEST_BAD;
	}
	return counted >= HEAD_LIMIT_BYTES ? REQUEST_TOO_LARGE : REQUEST_PARTIAL;
}

enum request_parse request_parse(const unsigned char *bytes, size_t len_bytes, struct request *req,
				 size_t *ret_head_bytes)
{
	enum request_parse result;

	*req = (struct request){ .keep_alive = true };
	result = parse_lines(bytes, len_bytes, req, ret_head_bytes);
	if (result != REQUEST_WHOLE) {
		request_clear(req);
		return result;
	}
	req->body_done = !req->chunked && req->content_length == 0;
	return result;
}

void request_clear(struct request *req)
{
	g_clear_pointer(&req->target, g_free);
	g_clear_pointer(&req->authorization, g_free);
	g_clear_pointer(&req->range, g_free);
}
