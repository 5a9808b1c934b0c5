/*
 * A server that a test scripts byte by byte, on 127.0.0.1 in a thread of the test: for what no
 * real server does on purpose. One thread a connection, each runs the script.
 */
#ifndef SBX_TESTS_PROVIDER_SERVER_H
#define SBX_TESTS_PROVIDER_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server;

struct request {
	char head[16384];
	int64_t body_len; /* announced */
};

/* Serves one connection, the @conn-th from 0; the socket is closed when it returns. */
typedef void (*server_script)(struct server *server, int fd, int conn);

struct server {
	server_script script;
	void *arg; /* the script's */
	int fd;
	int port;
	atomic_int connections;
	atomic_int requests; /* heads read by server_read() */
	atomic_bool stopping;
	pthread_t acceptor;
	pthread_mutex_t lock; /* workers, sockets */
	pthread_t workers[512];
	int sockets[512];
	int count;
};

void server_start(struct server *server, server_script script, void *arg);
void server_stop(struct server *server);

/* Reads a head, and the body that it announces. False: the client has closed. */
bool server_read(struct server *server, int fd, struct request *ret_request);
/* Only the head. */
bool server_read_head(struct server *server, int fd, struct request *ret_request);

/* False: the client has closed. */
bool server_send(int fd, const char *text);
bool server_send_bytes(int fd, const void *data, size_t len);
/* A whole answer with a JSON body. */
bool server_answer(int fd, int status, const char *json);

/* Answers of stat and exec that the provider takes. */
#define STAT_JSON \
	"{\"size\":5,\"mtimeMs\":1500.25,\"isFile\":true,\"isDirectory\":false,\"mode\":420}"
#define EXEC_JSON "{\"exitCode\":0,\"signal\":null,\"stdout\":\"hi\",\"stderr\":\"\"}"

/* Scripts: reads one request and never answers; answers every request with STAT_JSON. */
void script_hang(struct server *server, int fd, int conn);
void script_serve(struct server *server, int fd, int conn);

/* Until the client closes, or the server is stopped. */
void server_hang(int fd);

#endif
