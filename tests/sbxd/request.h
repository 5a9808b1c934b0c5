/*
 * HTTP/1.x requests as Node's parser takes them: what it refuses is refused here, at the same byte.
 * No HTTP library is behind this: those at hand answer for themselves where the reference server's
 * bodyless 400, 408 and 431, its early refusals and its exact headers are what is to be shown.
 *
 * No locks: a request belongs to its connection's thread.
 */
#ifndef SBX_SBXD_REQUEST_H
#define SBX_SBXD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sbxd/conn.h"

enum request_parse {
	REQUEST_WHOLE,
	REQUEST_PARTIAL, /* right so far */
	REQUEST_BAD, /* 400 */
	REQUEST_TOO_LARGE, /* 431 */
};

struct request {
	char method[24];
	char *target;
	char *authorization; /* NULL: none */
	char *range;
	bool http10;
	bool keep_alive;
	bool has_host;
	bool chunked;
	bool expect_continue;
	bool expect_unknown;
	bool body_done; /* the body has been read (or there is none) */
	bool has_length;
	uint64_t content_length;
	int64_t deadline_ms;
};

struct body {
	unsigned char *data;
	size_t len_bytes;
	size_t mapped_bytes; /* not 0: a mapping, not heap */
	bool too_large; /* over 2^32 bytes: read away, not kept */
};

/*
 * Parse the head at the front of the buffer. On REQUEST_WHOLE @req is filled (release it with
 * request_clear()) and *ret_head_bytes is how much of the buffer the head took.
 */
enum request_parse request_parse(const unsigned char *bytes, size_t len_bytes, struct request *req,
				 size_t *ret_head_bytes);
void request_clear(struct request *req);

/*
 * Read the whole body, by the request's deadline. Bodies of a known great length are kept in an
 * unlinked file in @spool_dir, mapped. 0, -EBADMSG (bad chunks: 400), -ETIMEDOUT (408), -EPIPE (the
 * client ended in the middle) or another negative errno. May block.
 */
int request_read_body(struct request *req, struct conn *conn, const char *spool_dir,
		      struct body *ret_body);

/* Read the rest of the body away. Errors as request_read_body(). May block. */
int request_drain(struct request *req, struct conn *conn);
void body_clear(struct body *body);

#endif
