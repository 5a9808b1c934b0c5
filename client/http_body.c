#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "client/http_internal.h"

#define ERROR_BODY_MAX (64 * 1024)
/* A file's page cache takes pieces of this size at well under half of what libcurl's cost. */
#define PIECE_BYTES ((size_t)256 * 1024)

/* What the sink said. */
static int sink_taken(struct http_attempt *attempt, int r)
{
	if (r < 0)
		http_attempt_fail(attempt, SBX_FAIL_LOCAL, r, "the answer was not taken");
	return r < 0 ? -1 : 0;
}

/* Makes room in the reply for @len more bytes and a NUL. */
static int reserve(struct http_body *body, struct http_attempt *attempt, size_t len)
{
	struct sbx_http_reply *reply = &attempt->reply;
	size_t room = reply->body_len + len + 1;
	char *data;

	if (room <= body->room)
		return 0;
	room = MAX(room, body->room * 2);
	data = realloc(reply->body, room);
	if (data == NULL) {
		http_attempt_fail(attempt, SBX_FAIL_LOCAL, -ENOMEM, "out of memory");
		return -1;
	}
	reply->body = data;
	body->room = room;
	return 0;
}

static int too_big(struct http_attempt *attempt)
{
	http_attempt_fail(attempt, SBX_FAIL_FOREIGN, -EFBIG, "the answer is too big");
	return -1;
}

int http_body_begin(struct http_body *body, struct http_attempt *attempt, int64_t offset,
		    int64_t length)
{
	const struct sbx_sink *sink = attempt->request->sink;

	if (sink != NULL)
		return sink->begin == NULL
			       ? 0
			       : sink_taken(attempt, sink->begin(sink->arg, offset, length));
	if (length <= 0)
		return 0;
	if ((uint64_t)length > attempt->request->max_reply_bytes)
		return too_big(attempt);
	return reserve(body, attempt, (size_t)length);
}

static int keep(struct http_body *body, struct http_attempt *attempt, const char *data, size_t len)
{
	struct sbx_http_reply *reply = &attempt->reply;
	bool success = http_attempt_succeeded(attempt);
	size_t max = success ? attempt->request->max_reply_bytes : ERROR_BODY_MAX;

	if (len > max - reply->body_len) {
		if (success)
			return too_big(attempt);
		len = max - reply->body_len;
		body->enough = true;
	}
	if (reserve(body, attempt, len) < 0)
		return -1;
	memcpy(reply->body + reply->body_len, data, len);
	reply->body_len += len;
	reply->body[reply->body_len] = '\0';
	return body->enough ? -1 : 0;
}

int http_body_flush(struct http_body *body, struct http_attempt *attempt)
{
	const struct sbx_sink *sink = attempt->request->sink;
	size_t len = body->piece_len;

	body->piece_len = 0;
	return len > 0 ? sink_taken(attempt, sink->write(sink->arg, body->piece, len)) : 0;
}

int http_body_take(struct http_body *body, struct http_attempt *attempt, const char *data,
		   size_t len)
{
	const struct sbx_sink *sink = attempt->request->sink;

	if (sink == NULL || !http_attempt_succeeded(attempt))
		return keep(body, attempt, data, len);
	if (len > PIECE_BYTES - body->piece_len && http_body_flush(body, attempt) < 0)
		return -1;
	if (len > PIECE_BYTES)
		return sink_taken(attempt, sink->write(sink->arg, data, len));
	if (body->piece == NULL)
		body->piece = malloc(PIECE_BYTES);
	if (body->piece == NULL)
		return sink_taken(attempt, -ENOMEM);
	memcpy(body->piece + body->piece_len, data, len);
	body->piece_len += len;
	return 0;
}

void http_body_clear(struct http_body *body)
{
	free(body->piece);
	memset(body, 0, sizeof(*body));
}
