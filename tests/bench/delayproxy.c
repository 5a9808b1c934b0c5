/*
 * delayproxy - a TCP relay that makes a server look as far away as a round trip of RTT_MS.
 *
 *	delayproxy RTT_MS PORT STATS_FILE [MBIT]
 *
 * Listens on 127.0.0.1, prints `listening on 127.0.0.1:N`, and relays each connection to PORT of
 * this machine. Every byte arrives half a round trip later than it was sent; a new connection
 * carries its first byte a whole round trip later, as a handshake would make it. All connections
 * together carry at most MBIT megabits a second each way; 0, or none: as much as there is.
 * STATS_FILE holds three native uint64_t, always up to date: bytes towards the server, bytes from
 * it, connections. Ends on SIGTERM.
 *
 * One thread; a direction keeps what it has read in a queue, each piece with the time when it is
 * due, and reads no more while QUEUE_BYTES wait.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINKS   512
#define PIECE_BYTES (64 * 1024)
#define QUEUE_BYTES (16 * 1024 * 1024)

struct piece {
	struct piece *next;
	int64_t due_ns;
	size_t len;
	size_t sent;
	char data[];
};

struct direction {
	int from;
	int to;
	struct piece *head;
	struct piece *tail;
	size_t queued;
	bool eof; /* `from` has said its last */
	bool shut; /* and `to` was told so */
};

struct link {
	int64_t start_ns; /* no byte leaves before */
	struct direction up;
	struct direction down;
};

struct proxy {
	int listener;
	uint16_t port;
	int64_t rtt_ns;
	int64_t mbit; /* 0: without bound */
	int64_t free_ns[2]; /* up, down: when what was taken so far has gone out at that rate */
	uint64_t *stats;
	struct link *links[MAX_LINKS];
	size_t n_links;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void make_ready(int fd)
{
	int one = 1;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int connect_local(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void accept_one(struct proxy *proxy)
{
	struct link *link;
	int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
	int server;

	if (client < 0)
		return;
	server = proxy->n_links < MAX_LINKS ? connect_local(proxy->port) : -1;
	link = server < 0 ? NULL : calloc(1, sizeof(*link));
	if (!link) {
		if (server >= 0)
			close(server);
		close(client);
		return;
	}
	make_ready(client);
	make_ready(server);
	link->start_ns = now_ns() + proxy->rtt_ns;
	link->up = (struct direction){ .from = client, .to = server };
	link->down = (struct direction){ .from = server, .to = client };
	proxy->links[proxy->n_links++] = link;
	proxy->stats[2]++;
}

static void free_direction(struct direction *dir)
{
	while (dir->head) {
		struct piece *piece = dir->head;

		dir->head = piece->next;
		free(piece);
	}
}

static void free_link(struct link *link)
{
	close(link->up.from);
	close(link->up.to);
	free_direction(&link->up);
	free_direction(&link->down);
	free(link);
}

/* When @len bytes of that way, there at @now_ns, have gone out. */
static int64_t gone_ns(struct proxy *proxy, size_t way, size_t len, int64_t at_ns)
{
	int64_t *free_ns = &proxy->free_ns[way];

	if (proxy->mbit == 0)
		return at_ns;
	*free_ns = (*free_ns > at_ns ? *free_ns : at_ns) + (int64_t)len * 8000 / proxy->mbit;
	return *free_ns;
}

/* Takes what there is; false when the connection broke. */
static bool take(struct proxy *proxy, struct direction *dir, size_t way, int64_t now,
		 int64_t due_ns)
{
	struct piece *piece = malloc(sizeof(*piece) + PIECE_BYTES);
	ssize_t got;

	if (!piece)
		return false;
	got = recv(dir->from, piece->data, PIECE_BYTES, 0);
	if (got <= 0) {
		int error = errno;

		free(piece);
		if (got == 0)
			dir->eof = true;
		return got == 0 || error == EAGAIN || error == EINTR;
	}
	*piece = (struct piece){
		.due_ns = gone_ns(proxy, way, (size_t)got, now) + due_ns - now,
		.len = (size_t)got,
	};
	if (dir->tail && dir->head)
		dir->tail->next = piece;
	else
		dir->head = piece;
	dir->tail = piece;
	dir->queued += (size_t)got;
	proxy->stats[way] += (uint64_t)got;
	return true;
}

/* Sends what is due; false when the connection broke. */
static bool give(struct direction *dir, int64_t now)
{
	while (dir->head && dir->head->due_ns <= now) {
		struct piece *piece = dir->head;
		ssize_t sent = send(dir->to, piece->data + piece->sent, piece->len - piece->sent,
				    MSG_NOSIGNAL);

		if (sent < 0)
			return errno == EAGAIN || errno == EINTR;
		piece->sent += (size_t)sent;
		dir->queued -= (size_t)sent;
		if (piece->sent < piece->len)
			return true;
		dir->head = piece->next;
		free(piece);
	}
	if (dir->eof && !dir->head && !dir->shut) {
		shutdown(dir->to, SHUT_WR);
		dir->shut = true;
	}
	return true;
}

/* What to wait for on both ends of one direction, and until when. */
static void want(const struct direction *dir, int64_t now, short *from, short *to, int64_t *wake_ns)
{
	if (!dir->eof && dir->queued < QUEUE_BYTES)
		*from |= POLLIN;
	if (!dir->head)
		return;
	if (dir->head->due_ns <= now)
		*to |= POLLOUT;
	else if (dir->head->due_ns < *wake_ns)
		*wake_ns = dir->head->due_ns;
}

static bool serve(struct proxy *proxy, struct link *link, const struct pollfd *client,
		  const struct pollfd *server)
{
	int64_t now = now_ns();
	int64_t due = (now > link->start_ns ? now : link->start_ns) + proxy->rtt_ns / 2;
	const short readable = POLLIN | POLLHUP | POLLERR;

	if ((client->events & POLLIN) && (client->revents & readable) &&
	    !take(proxy, &link->up, 0, now, due))
		return false;
	if ((server->events & POLLIN) && (server->revents & readable) &&
	    !take(proxy, &link->down, 1, now, due))
		return false;
	if (!give(&link->up, now) || !give(&link->down, now))
		return false;
	return !(link->up.shut && link->down.shut);
}

static int run(struct proxy *proxy)
{
	static struct pollfd fds[1 + 2 * MAX_LINKS];

	for (;;) {
		int64_t now = now_ns();
		int64_t wake_ns = INT64_MAX;
		struct timespec wait = { 0, 0 };
		size_t kept = 0;
		size_t n_polled = proxy->n_links;

		fds[0] = (struct pollfd){ .fd = proxy->listener, .events = POLLIN };
		for (size_t i = 0; i < n_polled; i++) {
			struct link *link = proxy->links[i];
			struct pollfd *client = &fds[1 + 2 * i];
			struct pollfd *server = client + 1;

			*client = (struct pollfd){ .fd = link->up.from };
			*server = (struct pollfd){ .fd = link->up.to };
			want(&link->up, now, &client->events, &server->events, &wake_ns);
			want(&link->down, now, &server->events, &client->events, &wake_ns);
			/* POLLHUP is told unasked: don't spin on it while nothing can be done. */
			if (client->events == 0)
				client->fd = -1;
			if (server->events == 0)
				server->fd = -1;
		}
		if (wake_ns != INT64_MAX && wake_ns > now) {
			wait.tv_sec = (wake_ns - now) / 1000000000;
			wait.tv_nsec = (wake_ns - now) % 1000000000;
		}
		if (ppoll(fds, 1 + 2 * n_polled, wake_ns == INT64_MAX ? NULL : &wait, NULL) < 0 &&
		    errno != EINTR)
			return -errno;
		for (size_t i = 0; i < n_polled; i++) {
			struct link *link = proxy->links[i];

			if (serve(proxy, link, &fds[1 + 2 * i], &fds[2 + 2 * i]))
				proxy->links[kept++] = link;
			else
				free_link(link);
		}
		proxy->n_links = kept;
		if (fds[0].revents & POLLIN)
			accept_one(proxy);
	}
}

static bool parse(const char *text, long max, long *ret_value)
{
	char *end;

	errno = 0;
	*ret_value = strtol(text, &end, 10);
	return errno == 0 && *text && !*end && *ret_value >= 0 && *ret_value <= max;
}

int main(int argc, char **argv)
{
	static struct proxy proxy;
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);
	long rtt_ms;
	long port;
	long mbit = 0;
	int fd;

	if (argc < 4 || argc > 5 || !parse(argv[1], 10000, &rtt_ms) ||
	    !parse(argv[2], UINT16_MAX, &port) || (argc == 5 && !parse(argv[4], 1000000, &mbit))) {
		fputs("usage: delayproxy RTT_MS PORT STATS_FILE [MBIT]\n", stderr);
		return 1;
	}
	proxy.mbit = mbit;
	proxy.rtt_ns = rtt_ms * 1000000;
	proxy.port = (uint16_t)port;
	fd = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 3 * sizeof(uint64_t)) < 0) {
		perror(argv[3]);
		return 1;
	}
	proxy.stats = mmap(NULL, 3 * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	proxy.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (proxy.stats == MAP_FAILED || proxy.listener < 0 ||
	    bind(proxy.listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(proxy.listener, 256) < 0 ||
	    getsockname(proxy.listener, (struct sockaddr *)&address, &len) < 0) {
		perror("delayproxy");
		return 1;
	}
	printf("listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
	fflush(stdout);
	if (run(&proxy) < 0)
		perror("delayproxy");
	return 1;
}
