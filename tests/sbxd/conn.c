#include "tests/sbxd/conn.h"

#include <errno.h>
#include <glib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t conn_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void conn_init(struct conn *conn, int fd, int stop_fd, unsigned long number)
{
	int on = 1;

	*conn = (struct conn){ .fd = fd,
			       .stop_fd = stop_fd,
			       .number = number,
			       .buffer = g_malloc(CONN_BUFFER_BYTES) };
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void conn_close(struct conn *conn)
{
	close(conn->fd);
	g_free(conn->buffer);
}

/* Wait for @events on the socket. 0, -ETIMEDOUT or -ECANCELED. */
static int wait_for(const struct conn *conn, short events, int64_t deadline_ms)
{
	struct pollfd fds[] = { { .fd = conn->fd, .events = events },
				{ .fd = conn->stop_fd, .events = POLLIN } };

	for (;;) {
		int64_t left_ms = deadline_ms - conn_now_ms();
		int ready;

		if (left_ms < 0)
			left_ms = 0;
		ready = poll(fds, 2, (int)MIN(left_ms, 3600 * 1000));
		if (ready > 0 && fds[0].revents)
			return 0;
		if (ready > 0)
			return -ECANCELED;
		if (ready == 0 && conn_now_ms() >= deadline_ms)
			return -ETIMEDOUT;
		if (ready < 0 && errno != EINTR)
			return -errno;
	}
}

static long receive(struct conn *conn, void *data, size_t len_bytes, int64_t deadline_ms)
{
	ssize_t got;
	int err;

	/* Bytes that are there already need no poll: half the system calls of a busy connection. */
	got = recv(conn->fd, data, len_bytes, MSG_DONTWAIT);
	while (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		err = wait_for(conn, POLLIN, deadline_ms);
		if (err)
			return err;
		got = recv(conn->fd, data, len_bytes, MSG_DONTWAIT);
	}
	if (got < 0)
		return -errno;
	conn->bytes_in += (uint64_t)got;
	return got;
}

long conn_fill(struct conn *conn, int64_t deadline_ms)
{
	long got;

	if (conn->start > 0) {
		memmove(conn->buffer, conn->buffer + conn->start, conn->end - conn->start);
		conn->end -= conn->start;
		conn->start = 0;
	}
	if (conn->end == CONN_BUFFER_BYTES)
		return -ENOBUFS;
	got = receive(conn, conn->buffer + conn->end, CONN_BUFFER_BYTES - conn->end, deadline_ms);
	if (got > 0)
		conn->end += (size_t)got;
	return got;
}

long conn_read(struct conn *conn, void *data, size_t len_bytes, int64_t deadline_ms)
{
	size_t have = conn->end - conn->start;

	if (have == 0)
		return receive(conn, data, len_bytes, deadline_ms);
	have = MIN(have, len_bytes);
	memcpy(data, conn->buffer + conn->start, have);
	conn->start += have;
	return (long)have;
}

int conn_write(struct conn *conn, const void *data, size_t len_bytes, bool more)
{
	const char *at = data;

	while (len_bytes > 0) {
		ssize_t sent = send(conn->fd, at, len_bytes, MSG_NOSIGNAL | (more ? MSG_MORE : 0));

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		conn->bytes_out += (uint64_t)sent;
		at += sent;
		len_bytes -= (size_t)sent;
	}
	return 0;
}

int conn_write2(struct conn *conn, const void *head, size_t head_bytes, const void *body,
		size_t body_bytes)
{
	struct iovec parts[] = { { (void *)head, head_bytes }, { (void *)body, body_bytes } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t sent;
	int err;

	do {
		sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	conn->bytes_out += (uint64_t)sent;
	if ((size_t)sent < head_bytes) {
		err = conn_write(conn, (const char *)head + sent, head_bytes - (size_t)sent, false);
		return err ? err : conn_write(conn, body, body_bytes, false);
	}
	sent -= (ssize_t)head_bytes;
	return conn_write(conn, (const char *)body + sent, body_bytes - (size_t)sent, false);
}

int conn_send_file(struct conn *conn, int file_fd, uint64_t offset, uint64_t len_bytes)
{
	off_t at = (off_t)offset;

	while (len_bytes > 0) {
		ssize_t sent = sendfile(conn->fd, file_fd, &at, MIN(len_bytes, 1u << 30));

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		if (sent == 0)
			return -EIO;
		conn->bytes_out += (uint64_t)sent;
		len_bytes -= (uint64_t)sent;
	}
	return 0;
}

void conn_wait_closed(struct conn *conn)
{
	struct pollfd fds[] = { { .fd = conn->fd, .events = POLLRDHUP },
				{ .fd = conn->stop_fd, .events = POLLIN } };

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
}

void conn_sleep(const struct conn *conn, int64_t duration_ms)
{
	struct pollfd stop = { .fd = conn->stop_fd, .events = POLLIN };
	int64_t deadline_ms = conn_now_ms() + duration_ms;
	int64_t left_ms;

	while ((left_ms = deadline_ms - conn_now_ms()) > 0) {
		if (poll(&stop, 1, (int)MIN(left_ms, 3600 * 1000)) > 0)
			return;
	}
}

void conn_finish(struct conn *conn)
{
	int64_t deadline_ms = conn_now_ms() + 1000;
	long got;

	shutdown(conn->fd, SHUT_WR);
	do {
		conn->start = conn->end = 0;
		got = conn_fill(conn, deadline_ms);
	} while (got > 0);
}

void conn_reset(struct conn *conn)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}
