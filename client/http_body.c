#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/http_internal.h"

/* A file's page cache takes pieces of this size at well under half of what libcurl's cost. */
#define PIECE_BYTES ((size_t)256 * 1024)

int http_piece_end(struct http_piece *piece, const struct sbx_sink *sink)
{
	size_t len = piece->len;

	piece->len = 0;
	return len > 0 ? sink->write(sink->arg, piece->data, len) : 0;
}

int http_piece_add(struct http_piece *piece, const struct sbx_sink *sink, const char *data,
		   size_t len)
{
	int r = 0;

	if (len > PIECE_BYTES - piece->len)
		r = http_piece_end(piece, sink);
	if (r < 0)
		return r;
	if (len > PIECE_BYTES)
		return sink->write(sink->arg, data, len);
	if (piece->data == NULL)
		piece->data = malloc(PIECE_BYTES);
	if (piece->data == NULL)
		return -ENOMEM;
	memcpy(piece->data + piece->len, data, len);
	piece->len += len;
	return 0;
}

void http_piece_clear(struct http_piece *piece)
{
	free(piece->data);
	memset(piece, 0, sizeof(*piece));
}
