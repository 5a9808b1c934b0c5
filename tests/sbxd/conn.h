/*
 * One accepted connection: buffered reading with deadlines, counted writing.
 *
 * A connection belongs to its thread; nothing here is locked. Waiting for the network also ends
 * when the stop event (see service.h) becomes readable or the socket is shut down.
 */
#ifndef SBX_SBXD_CONN_H
#define SBX_SBXD_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More raw head than this is never kept; the limit that a client sees is in request.c. */
#define CONN_BUFFER_BYTES (80 * 1024)

struct conn {
	int fd;
	int stop_fd;
	unsigned long number;
	uint64_t bytes_in;
	uint64_t bytes_out;
	unsigned char *buffer; /* CONN_BUFFER_BYTES; read but unused: [start, end) */
	size_t start;
	size_t end;
};

/* Takes @fd. @number tells connections apart in the log. */
void conn_init(struct conn *conn, int fd, int stop_fd, unsigned long number);
void conn_close(struct conn *conn);

/* Milliseconds of the monotonic clock. */
int64_t conn_now_ms(void);

/*
 * Wait until @deadline_ms (monotonic) for more bytes and append them to the buffer. The number of
 * new bytes, 0 at the end of the stream, -ETIMEDOUT, -ENOBUFS (buffer full), -ECANCELED (the server
 * stops), or another negative errno. May block.
 */
long conn_fill(struct conn *conn, int64_t deadline_ms);

/* Take up to @len_bytes from the buffer, else straight from the socket. As conn_fill(). */
long conn_read(struct conn *conn, void *data, size_t len_bytes, int64_t deadline_ms);

/* Send everything; with @more the kernel waits for what follows. 0 or negative errno. May block. */
int conn_write(struct conn *conn, const void *data, size_t len_bytes, bool more);

/* Send two pieces in one system call where possible. 0 or negative errno. May block. */
int conn_write2(struct conn *conn, const void *head, size_t head_bytes, const void *body,
		size_t body_bytes);

/* Send @len_bytes of a file from @offset. -EIO when the file ends before. May block. */
int conn_send_file(struct conn *conn, int file_fd, uint64_t offset, uint64_t len_bytes);

/* Block until the peer has closed or the server stops. */
void conn_wait_closed(struct conn *conn);

/* Sleep, but not beyond the server's stop. */
void conn_sleep(const struct conn *conn, int64_t duration_ms);

/*
 * End the stream so that the peer still reads what was sent: FIN, then read away what it sends for
 * up to a second. Closing with unread bytes would reset the connection under the last answer.
 */
void conn_finish(struct conn *conn);

/* Make close() reset the connection. */
void conn_reset(struct conn *conn);

#endif
