#include "tests/sbxd/listener.h"
#include "tests/sbxd/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* Enough for the JSON reader at its deepest; a thousand of them are address space only. */
#define STACK_BYTES (1024 * 1024)

struct listener {
	int fd;
	char address[INET_ADDRSTRLEN + 8];
	unsigned long accepted;
	struct service *service;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	GHashTable *open; /* set of struct work, whose connections live */
	GPtrArray *finished; /* struct work whose threads have nothing left to do but end */
};

struct work {
	struct listener *listener;
	struct conn conn;
	pthread_t thread;
};

int listener_open(const struct options *opt, struct listener **ret_listener)
{
	struct sockaddr_in address = opt->listen;
	socklen_t len = sizeof(address);
	struct listener *listener;
	char host[INET_ADDRSTRLEN];
	int on = 1, fd, err;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	listener = g_new0(struct listener, 1);
	listener->fd = fd;
	inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
	g_snprintf(listener->address, sizeof(listener->address), "%s:%u", host,
		   ntohs(address.sin_port));
	listener->open = g_hash_table_new(NULL, NULL);
	listener->finished = g_ptr_array_new();
	pthread_mutex_init(&listener->lock, NULL);
	pthread_cond_init(&listener->ended, NULL);
	*ret_listener = listener;
	return 0;
}

void listener_free(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	g_hash_table_destroy(listener->open);
	g_ptr_array_free(listener->finished, TRUE);
	pthread_cond_destroy(&listener->ended);
	pthread_mutex_destroy(&listener->lock);
	g_free(listener);
}

const char *listener_address(const struct listener *listener)
{
	return listener->address;
}

static void *work_run(void *data)
{
	struct work *work = data;
	struct listener *listener = work->listener;

	serve_connection(listener->service, &work->conn);
	/* Under the lock, so that nobody shuts down a number that is somebody else's by now. */
	pthread_mutex_lock(&listener->lock);
	g_hash_table_remove(listener->open, work);
	conn_close(&work->conn);
	g_ptr_array_add(listener->finished, work);
	pthread_cond_broadcast(&listener->ended);
	pthread_mutex_unlock(&listener->lock);
	return NULL;
}

/* Join the threads that have finished: not detached, so that none outlives the listener. */
static void reap(struct listener *listener)
{
	GPtrArray *finished;

	pthread_mutex_lock(&listener->lock);
	finished = listener->finished;
	listener->finished = g_ptr_array_new();
	pthread_mutex_unlock(&listener->lock);
	for (guint i = 0; i < finished->len; i++) {
		struct work *work = finished->pdata[i];

		pthread_join(work->thread, NULL);
		g_free(work);
	}
	g_ptr_array_free(finished, TRUE);
}

static void start_work(struct listener *listener, int fd)
{
	struct work *work = g_new0(struct work, 1);
	pthread_attr_t attr;
	int err;

	work->listener = listener;
	conn_init(&work->conn, fd, listener->service->stop_fd, ++listener->accepted);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	/* Under the lock, so that the thread can't be joined before its number is stored. */
	pthread_mutex_lock(&listener->lock);
	err = pthread_create(&work->thread, &attr, work_run, work);
	if (!err)
		g_hash_table_add(listener->open, work);
	pthread_mutex_unlock(&listener->lock);
	pthread_attr_destroy(&attr);
	if (err) {
		conn_close(&work->conn);
		g_free(work);
	}
}

void listener_run(struct listener *listener, struct service *service, int signal_fd)
{
	struct pollfd fds[] = { { .fd = listener->fd, .events = POLLIN },
				{ .fd = signal_fd, .events = POLLIN } };

	listener->service = service;
	for (;;) {
		int fd;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			break;
		reap(listener);
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			start_work(listener, fd);
		else if (errno == EMFILE || errno == ENFILE)
			poll(fds + 1, 1, 10); /* until some are free again */
	}
	close(listener->fd);
	listener->fd = -1;
}

void listener_end_connections(struct listener *listener)
{
	GHashTableIter iter;
	gpointer work;

	pthread_mutex_lock(&listener->lock);
	g_hash_table_iter_init(&iter, listener->open);
	while (g_hash_table_iter_next(&iter, &work, NULL))
		shutdown(((struct work *)work)->conn.fd, SHUT_RDWR);
	while (g_hash_table_size(listener->open) > 0)
		pthread_cond_wait(&listener->ended, &listener->lock);
	pthread_mutex_unlock(&listener->lock);
	reap(listener);
}
