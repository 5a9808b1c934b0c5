#include "tests/provider/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/provider/check.h"

struct worker {
	struct server *server;
	int fd;
	int conn;
};

static void *worker_main(void *arg)
{
	struct worker worker = *(struct worker *)arg;

	free(arg);
	worker.server->script(worker.server, worker.fd, worker.conn);
	/* The number stays taken until the server stops, so that stopping can't meet another's. */
	shutdown(worker.fd, SHUT_RDWR);
	return NULL;
}

static void *acceptor_main(void *arg)
{
	struct server *server = arg;
	int one = 1;

	for (;;) {
		int fd = accept(server->fd, NULL, NULL);
		struct worker *worker;

		if (fd < 0)
			return NULL;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		pthread_mutex_lock(&server->lock);
		if (atomic_load(&server->stopping) || server->count == 512) {
			close(fd);
		} else {
			worker = malloc(sizeof(*worker));
			worker->server = server;
			worker->fd = fd;
			worker->conn = atomic_fetch_add(&server->connections, 1);
			server->sockets[server->count] = fd;
			CHECK(pthread_create(&server->workers[server->count], NULL, worker_main,
					     worker) == 0);
			server->count++;
		}
		pthread_mutex_unlock(&server->lock);
	}
}

void server_start(struct server *server, server_script script, void *arg)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t len = sizeof(address);

	memset(server, 0, sizeof(*server));
	server->script = script;
	server->arg = arg;
	pthread_mutex_init(&server->lock, NULL);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(server->fd >= 0);
	CHECK(bind(server->fd, (struct sockaddr *)&address, len) == 0);
	CHECK(listen(server->fd, 512) == 0);
	CHECK(getsockname(server->fd, (struct sockaddr *)&address, &len) == 0);
	server->port = ntohs(address.sin_port);
	CHECK(pthread_create(&server->acceptor, NULL, acceptor_main, server) == 0);
}

void server_stop(struct server *server)
{
	atomic_store(&server->stopping, true);
	shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->acceptor, NULL);
	close(server->fd);
	pthread_mutex_lock(&server->lock);
	for (int i = 0; i < server->count; i++)
		shutdown(server->sockets[i], SHUT_RDWR);
	pthread_mutex_unlock(&server->lock);
	for (int i = 0; i < server->count; i++) {
		pthread_join(server->workers[i], NULL);
		close(server->sockets[i]);
	}
	pthread_mutex_destroy(&server->lock);
}

bool server_read_head(struct server *server, int fd, struct request *ret_request)
{
	size_t len = 0;
	const char *line;

	memset(ret_request, 0, sizeof(*ret_request));
	/* Byte by byte: what follows the head is left to others. */
	while (len < sizeof(ret_request->head) - 1 &&
	       strstr(ret_request->head, "\r\n\r\n") == NULL) {
		if (recv(fd, ret_request->head + len, 1, 0) != 1)
			return false;
		len++;
	}
	line = strcasestr(ret_request->head, "\r\nContent-Length:");
	if (line != NULL)
		ret_request->body_len = strtoll(line + 17, NULL, 10);
	atomic_fetch_add(&server->requests, 1);
	return true;
}

bool server_read(struct server *server, int fd, struct request *ret_request)
{
	char buf[65536];
	int64_t left;

	if (!server_read_head(server, fd, ret_request))
		return false;
	for (left = ret_request->body_len; left > 0;) {
		size_t want = left < (int64_t)sizeof(buf) ? (size_t)left : sizeof(buf);
		ssize_t n = recv(fd, buf, want, 0);

		if (n <= 0)
			return false;
		left -= n;
	}
	return true;
}

bool server_send_bytes(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

bool server_send(int fd, const char *text)
{
	return server_send_bytes(fd, text, strlen(text));
}

bool server_answer(int fd, int status, const char *json)
{
	char head[256];

	snprintf(head, sizeof(head),
		 "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		 status, strlen(json));
	return server_send(fd, head) && server_send(fd, json);
}

void server_hang(int fd)
{
	char buf[4096];

	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
}

void script_hang(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	if (server_read(server, fd, &request))
		server_hang(fd);
}

void script_serve(struct server *server, int fd, int conn)
{
	struct request request;

	(void)conn;
	while (server_read(server, fd, &request)) {
		if (!server_answer(fd, 200, STAT_JSON))
			return;
	}
}
