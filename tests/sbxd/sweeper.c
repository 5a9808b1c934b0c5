#include "tests/sbxd/sweeper.h"

#include <poll.h>
#include <pthread.h>

struct sweeper {
	pthread_t thread;
	struct service *service;
};

static void *sweep_loop(void *data)
{
	struct service *service = ((struct sweeper *)data)->service;
	struct pollfd stop = { .fd = service->stop_fd, .events = POLLIN };
	int period_ms = (int)MIN(service->opt->sweep_ms, 24 * 3600 * 1000);

	while (poll(&stop, 1, period_ms) <= 0)
		session_sweep(service->sessions);
	return NULL;
}

int sweeper_start(struct service *service, struct sweeper **ret_sweeper)
{
	struct sweeper *sweeper = g_new0(struct sweeper, 1);
	int err;

	sweeper->service = service;
	err = pthread_create(&sweeper->thread, NULL, sweep_loop, sweeper);
	if (err)
		g_free(sweeper);
	else
		*ret_sweeper = sweeper;
	return -err;
}

void sweeper_join(struct sweeper *sweeper)
{
	pthread_join(sweeper->thread, NULL);
	g_free(sweeper);
}
