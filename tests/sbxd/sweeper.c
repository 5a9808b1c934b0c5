#include "tests/sbxd/sweeper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct sweeper {
	pthread_t thread;
	struct service *service;
	int signal_fd; /* SIGUSR1 */
};

static void *sweep_loop(void *data)
{
	struct sweeper *sweeper = data;
	struct service *service = sweeper->service;
	struct pollfd fds[] = { { .fd = service->stop_fd, .events = POLLIN },
				{ .fd = sweeper->signal_fd, .events = POLLIN } };
	int period_ms = (int)MIN(service->opt->sweep_ms, 24 * 3600 * 1000);
	struct signalfd_siginfo told;

	for (;;) {
		bool asked;

		poll(fds, G_N_ELEMENTS(fds), period_ms);
		if (fds[0].revents)
			return NULL;
		asked = read(sweeper->signal_fd, &told, sizeof(told)) > 0;
		session_sweep(service->sessions, asked ? 0 : service->opt->idle_ttl_ms);
		if (asked) {
			puts("swept");
			fflush(stdout);
		}
	}
}

int sweeper_start(struct service *service, struct sweeper **ret_sweeper)
{
	struct sweeper *sweeper = g_new0(struct sweeper, 1);
	sigset_t signals;
	int err;

	sweeper->service = service;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sweeper->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	err = sweeper->signal_fd < 0 ? errno
				     : pthread_create(&sweeper->thread, NULL, sweep_loop, sweeper);
	if (!err) {
		*ret_sweeper = sweeper;
		return 0;
	}
	if (sweeper->signal_fd >= 0)
		close(sweeper->signal_fd);
	g_free(sweeper);
	return -err;
}

void sweeper_join(struct sweeper *sweeper)
{
	pthread_join(sweeper->thread, NULL);
	close(sweeper->signal_fd);
	g_free(sweeper);
}
