#include "tests/sbxd/request.h"
#include "tests/sbxd/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Up to here a body is kept in memory. */
#define MEMORY_LIMIT_BYTES (UINT64_C(256) << 20)
/* The most that the reference server can hold of one body. */
#define BODY_LIMIT_BYTES (UINT64_C(1) << 32)

/* Room for @len_bytes, in memory or in a file without a name. */
static int body_reserve(struct body *body, uint64_t len_bytes, const char *spool_dir)
{
	void *map;
	int fd, err;

	if (len_bytes <= MEMORY_LIMIT_BYTES) {
		body->data = g_try_malloc(len_bytes);
		return body->data ? 0 : -ENOMEM;
	}
	fd = tree_open_unnamed(spool_dir);
	if (fd < 0)
		return fd;
	err = posix_fallocate(fd, 0, (off_t)len_bytes);
	if (err) {
		close(fd);
		return -err;
	}
	map = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	err = map == MAP_FAILED ? -errno : 0;
	close(fd);
	if (err)
		return err;
	body->data = map;
	body->mapped_bytes = len_bytes;
	return 0;
}

/* The next byte of the framing, by way of the buffer: not a system call for each. */
static int read_byte(struct request *req, struct conn *conn, char *ret_byte)
{
	long got = 1;

	if (conn->start == conn->end)
		got = conn_fill(conn, req->deadline_ms);
	if (got <= 0)
		return got == 0 ? -EPIPE : (int)got;
	*ret_byte = (char)conn->buffer[conn->start++];
	return 0;
}

static int read_exactly(struct request *req, struct conn *conn, unsigned char *data,
			uint64_t len_bytes)
{
	while (len_bytes > 0) {
		size_t want = (size_t)MIN(len_bytes, 8u << 20);
		long got = conn_read(conn, data, want, req->deadline_ms);

		if (got <= 0)
			return got == 0 ? -EPIPE : (int)got;
		data += got;
		len_bytes -= (uint64_t)got;
	}
	return 0;
}

static int skip_exactly(struct request *req, struct conn *conn, uint64_t len_bytes)
{
	g_autofree unsigned char *scratch = g_malloc(256 * 1024);
	int err = 0;

	while (!err && len_bytes > 0) {
		size_t step = (size_t)MIN(len_bytes, 256 * 1024);

		err = read_exactly(req, conn, scratch, step);
		len_bytes -= step;
	}
	return err;
}

/* One line of the chunked framing, without its CR LF. */
static int read_line(struct request *req, struct conn *conn, char *line, size_t size)
{
	size_t len = 0;

	for (;;) {
		char c = 0;
		int err = read_byte(req, conn, &c);

		if (err)
			return err;
		if (c == '\n') {
			if (len == 0 || line[len - 1] != '\r')
				return -EBADMSG;
			line[len - 1] = '\0';
			return 0;
		}
		if (len + 1 >= size)
			return -EBADMSG;
		line[len++] = c;
	}
}

static int read_chunk_size(struct request *req, struct conn *conn, uint64_t *ret_size)
{
	char line[4096];
	char *end;
	int err = read_line(req, conn, line, sizeof(line));

	if (err)
		return err;
	if (!g_ascii_isxdigit(line[0]))
		return -EBADMSG;
	errno = 0;
	*ret_size = g_ascii_strtoull(line, &end, 16);
	return errno || (*end && *end != ';' && *end != ' ') ? -EBADMSG : 0;
}

/* Read a chunked body; once it is too large, or when it is said to be, it is read away. */
static int read_chunked(struct request *req, struct conn *conn, struct body *body)
{
	size_t room = 0;
	uint64_t size = 0;
	char line[4096];
	int err;

	while (!(err = read_chunk_size(req, conn, &size)) && size > 0) {
		bool keep = !body->too_large;

		if (keep &&
		    (size > BODY_LIMIT_BYTES || body->len_bytes + size > BODY_LIMIT_BYTES)) {
			body->too_large = true;
			keep = false;
		}
		if (keep && body->len_bytes + size > room) {
			room = MAX(body->len_bytes + size, room * 2);
			body->data = g_realloc(body->data, room);
		}
		err = keep ? read_exactly(req, conn, body->data + body->len_bytes, size)
			   : skip_exactly(req, conn, size);
		if (keep)
			body->len_bytes += size;
		if (!err)
			err = read_line(req, conn, line, sizeof(line));
		if (!err && line[0])
			err = -EBADMSG;
		if (err)
			return err;
	}
	/* Trailers. */
	while (!err && !(err = read_line(req, conn, line, sizeof(line))) && line[0])
		;
	return err;
}

int request_read_body(struct request *req, struct conn *conn, const char *spool_dir,
		      struct body *ret_body)
{
	struct body body = { 0 };
	int err = 0;

	if (req->body_done) {
		*ret_body = body;
		return 0;
	}
	if (req->chunked) {
		err = read_chunked(req, conn, &body);
	} else if (req->content_length > BODY_LIMIT_BYTES) {
		body.too_large = true;
		err = skip_exactly(req, conn, req->content_length);
	} else {
		err = body_reserve(&body, req->content_length, spool_dir);
		if (!err)
			err = read_exactly(req, conn, body.data, req->content_length);
		body.len_bytes = req->content_length;
	}
	req->body_done = true;
	if (err)
		body_clear(&body);
	else
		*ret_body = body;
	return err;
}

int request_drain(struct request *req, struct conn *conn)
{
	struct body unwanted = { .too_large = true };

	if (req->body_done)
		return 0;
	req->body_done = true;
	return req->chunked ? read_chunked(req, conn, &unwanted)
			    : skip_exactly(req, conn, req->content_length);
}

void body_clear(struct body *body)
{
	if (body->mapped_bytes > 0)
		munmap(body->data, body->mapped_bytes);
	else
		g_free(body->data);
	*body = (struct body){ 0 };
}
