#include "fusefs/cmd_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

#include "fusefs/cmd_place.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 250
#define BUFFER_BYTES (256 * 1024)

static volatile sig_atomic_t ending_signal;
static volatile sig_atomic_t interrupts;

static void on_signal(int number)
{
	if (number == SIGINT)
		interrupts++;
	else
		ending_signal = number;
}

void cmd_follow_begin(bool cancels)
{
	/* Without SA_RESTART: a read that waits ends. */
	struct sigaction action = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
	if (cancels)
		sigaction(SIGINT, &action, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
}

int cmd_follow_signal(void)
{
	return ending_signal;
}

/* One following. */
struct follow {
	const char *job_dir;
	char *buf;
	int log_fd;
	int cancelled; /* of the interrupts those that were passed on */
};

/* Errors leave the job as it is; it may have ended just now. */
static void cancel(const char *job_dir)
{
	g_autofree char *control = g_build_filename(job_dir, "control", NULL);
	int fd = open(control, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "cancel\n", strlen("cancel\n")) < 0) {
		if (errno != ESRCH)
			fprintf(stderr, "sbxfs: %s: %s\n", control, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
}

/* What came by signal since: -EINTR when it ends the following. While a job writes faster than it
 * is copied there is no pause, so this is asked after each piece. */
static int obey(struct follow *self)
{
	if (ending_signal)
		return -EINTR;
	if (interrupts > self->cancelled) {
		self->cancelled = interrupts;
		cancel(self->job_dir);
	}
	return 0;
}

static int write_all(struct follow *self, const char *data, size_t len)
{
	int r;

	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, data, len);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

			(void)poll(&out, 1, -1);
		} else if (n < 0 && errno != EINTR) {
			return -errno;
		} else if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
		r = obey(self);
		if (r < 0)
			return r;
	}
	return 0;
}

/* All that is there. 1: something was; 0. */
static int copy_log(struct follow *self)
{
	int found = 0, r;
	ssize_t n;

	while ((n = read(self->log_fd, self->buf, BUFFER_BYTES)) != 0) {
		int error = errno;

		r = obey(self);
		if (r < 0)
			return r;
		if (n < 0 && error == EINTR)
			continue;
		if (n < 0)
			return -error;
		r = write_all(self, self->buf, (size_t)n);
		if (r < 0)
			return r;
		found = 1;
	}
	return found;
}

static bool has_ended(const char *job_dir)
{
	g_autofree char *status = g_build_filename(job_dir, "status", NULL);
	g_autofree char *state = cmd_place_value(status, "state");

	return state && strcmp(state, "starting") != 0 && strcmp(state, "running") != 0;
}

int cmd_follow(const char *job_dir, bool to_end)
{
	g_autofree char *path = g_build_filename(job_dir, "output.log", NULL);
	g_autofree char *buf = g_malloc(BUFFER_BYTES);
	struct follow self = { .job_dir = job_dir, .buf = buf };
	int pause_ms = PAUSE_MIN_MS, r;
	bool ended = !to_end;

	self.log_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (self.log_fd < 0)
		return -errno;
	for (;;) {
		struct timespec pause;

		r = copy_log(&self);
		if (r < 0 || ended)
			break;
		pause_ms = r ? PAUSE_MIN_MS : MIN(pause_ms * 2, PAUSE_MAX_MS);
		r = obey(&self);
		if (r < 0)
			break;
		/* When it has ended its log is whole, and is read once more. */
		ended = has_ended(job_dir);
		if (ended)
			continue;
		pause.tv_sec = 0;
		pause.tv_nsec = pause_ms * 1000000L;
		(void)nanosleep(&pause, NULL);
	}
	close(self.log_fd);
	return r < 0 ? r : 0;
}
