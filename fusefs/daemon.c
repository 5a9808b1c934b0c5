#include "fusefs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void daemon_fix_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* The parent: end as the child says. */
static void daemon_wait_report(int fd, pid_t child, int lost_status)
{
	unsigned char status;
	ssize_t n;

	do {
		n = read(fd, &status, 1);
	} while (n < 0 && errno == EINTR);
	/* Where it failed nothing of it is left when the shell goes on. */
	if (n != 1 || status != 0)
		(void)waitpid(child, NULL, 0);
	_exit(n == 1 ? status : lost_status);
}

int daemon_detach(struct daemon *daemon, int lost_status)
{
	int fds[2];
	pid_t child;

	daemon->report_fd = -1;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child < 0) {
		int r = -errno;

		close(fds[0]);
		close(fds[1]);
		return r;
	}
	if (child > 0) {
		close(fds[1]);
		daemon_wait_report(fds[0], child, lost_status);
	}
	close(fds[0]);
	daemon->report_fd = fds[1];
	(void)setsid();
	/* The directory that we were started in can be unmounted while we run. */
	return chdir("/") < 0 ? -errno : 0;
}

void daemon_report(struct daemon *daemon, int status)
{
	unsigned char byte = (unsigned char)status;
	int fd;

	if (daemon->report_fd < 0)
		return;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		(void)dup2(fd, STDIN_FILENO);
		(void)dup2(fd, STDOUT_FILENO);
		(void)dup2(fd, STDERR_FILENO);
		close(fd);
	}
	while (write(daemon->report_fd, &byte, 1) < 0 && errno == EINTR)
		;
	close(daemon->report_fd);
	daemon->report_fd = -1;
}

static void ending_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, SIGHUP);
}

void daemon_block_signals(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;

	ending_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)sigaction(SIGPIPE, &ignore, NULL);
}

static void *daemon_take_signals(void *arg)
{
	struct daemon *daemon = arg;
	sigset_t set;
	int number;

	ending_signals(&set);
	sigaddset(&set, SIGUSR2); /* sent by daemon_unwatch_signals() */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (;;) {
		if (sigwait(&set, &number) != 0)
			continue;
		if (number == SIGUSR2)
			return NULL;
		daemon->on_end(daemon->arg);
	}
}

int daemon_watch_signals(struct daemon *daemon, void (*on_end)(void *arg), void *arg)
{
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	daemon->on_end = on_end;
	daemon->arg = arg;
	r = pthread_create(&daemon->signals, NULL, daemon_take_signals, daemon);
	daemon->has_signals = !r;
	return -r;
}

void daemon_unwatch_signals(struct daemon *daemon)
{
	if (!daemon->has_signals)
		return;
	(void)pthread_kill(daemon->signals, SIGUSR2);
	(void)pthread_join(daemon->signals, NULL);
	daemon->has_signals = 0;
}
