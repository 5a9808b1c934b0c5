#include "fusefs/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "client/call.h"

struct interrupts {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct interrupt *watched;
	bool ends;
};

static uint64_t signal_bit(int number)
{
	return UINT64_C(1) << (number - 1);
}

/* The mask behind "@key:" of a /proc/PID/status. */
static bool status_mask(const char *status, const char *key, uint64_t *ret_mask)
{
	const char *at = strstr(status, key);

	if (!at)
		return false;
	*ret_mask = strtoull(at + strlen(key), NULL, 16);
	return true;
}

bool interrupt_status_is_fatal(const char *status)
{
	uint64_t ends =
		signal_bit(SIGINT) | signal_bit(SIGTERM) | signal_bit(SIGQUIT) | signal_bit(SIGHUP);
	uint64_t of_thread, of_process, blocked, ignored, caught, pending;

	if (!status_mask(status, "\nSigPnd:", &of_thread) ||
	    !status_mask(status, "\nShdPnd:", &of_process) ||
	    !status_mask(status, "\nSigBlk:", &blocked) ||
	    !status_mask(status, "\nSigIgn:", &ignored) ||
	    !status_mask(status, "\nSigCgt:", &caught))
		return true;
	pending = of_thread | of_process;
	return (pending & signal_bit(SIGKILL)) || (pending & ends & ~(blocked | ignored | caught));
}

bool interrupt_is_fatal(pid_t tid)
{
	char path[64], status[8192];
	size_t len = 0;
	ssize_t n;
	int fd;

	if (tid <= 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%ld/status", (long)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	while (len < sizeof(status) - 1 &&
	       (n = read(fd, status + len, sizeof(status) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	status[len] = '\0';
	return interrupt_status_is_fatal(status);
}

static void unwatch_locked(struct interrupt *interrupt)
{
	if (!interrupt->watched)
		return;
	*interrupt->link = interrupt->next;
	if (interrupt->next)
		interrupt->next->link = interrupt->link;
	interrupt->watched = false;
}

/* Runs with libfuse's lock of the request held: only fires or hands over to the watcher. */
static void interrupt_callback(fuse_req_t req, void *arg)
{
	struct interrupt *interrupt = arg;
	struct interrupts *interrupts = interrupt->interrupts;

	(void)req;
	if (interrupt->any_signal || interrupt_is_fatal(interrupt->tid)) {
		sbx_cancel_fire(interrupt->cancel);
		return;
	}
	pthread_mutex_lock(&interrupts->lock);
	if (!interrupt->watched) {
		interrupt->watched = true;
		interrupt->next = interrupts->watched;
		interrupt->link = &interrupts->watched;
		if (interrupt->next)
			interrupt->next->link = &interrupt->next;
		interrupts->watched = interrupt;
		pthread_cond_signal(&interrupts->changed);
	}
	pthread_mutex_unlock(&interrupts->lock);
}

static void *watch_thread(void *arg)
{
	struct interrupts *interrupts = arg;
	struct interrupt *each, *next;
	struct timespec until;

	pthread_mutex_lock(&interrupts->lock);
	while (!interrupts->ends) {
		if (!interrupts->watched) {
			pthread_cond_wait(&interrupts->changed, &interrupts->lock);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += INTERRUPT_WATCH_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		while (!interrupts->ends &&
		       pthread_cond_timedwait(&interrupts->changed, &interrupts->lock, &until) == 0)
			;
		for (each = interrupts->watched; each; each = next) {
			next = each->next;
			if (interrupt_is_fatal(each->tid)) {
				unwatch_locked(each);
				sbx_cancel_fire(each->cancel);
			}
		}
	}
	pthread_mutex_unlock(&interrupts->lock);
	return NULL;
}

struct interrupts *interrupts_new(void)
{
	struct interrupts *interrupts = calloc(1, sizeof(*interrupts));

	if (!interrupts)
		return NULL;
	pthread_mutex_init(&interrupts->lock, NULL);
	sbx_cond_init(&interrupts->changed);
	if (pthread_create(&interrupts->thread, NULL, watch_thread, interrupts) != 0) {
		pthread_cond_destroy(&interrupts->changed);
		pthread_mutex_destroy(&interrupts->lock);
		free(interrupts);
		return NULL;
	}
	return interrupts;
}

void interrupts_free(struct interrupts *interrupts)
{
	if (!interrupts)
		return;
	pthread_mutex_lock(&interrupts->lock);
	interrupts->ends = true;
	pthread_cond_signal(&interrupts->changed);
	pthread_mutex_unlock(&interrupts->lock);
	pthread_join(interrupts->thread, NULL);
	pthread_cond_destroy(&interrupts->changed);
	pthread_mutex_destroy(&interrupts->lock);
	free(interrupts);
}

int interrupt_begin(struct interrupts *interrupts, struct interrupt *interrupt,
		    struct fuse_req *req, pid_t tid, bool any_signal, struct sbx_cancel *parent)
{
	memset(interrupt, 0, sizeof(*interrupt));
	interrupt->cancel = sbx_cancel_new(parent);
	if (!interrupt->cancel)
		return -ENOMEM;
	interrupt->interrupts = interrupts;
	interrupt->req = req;
	interrupt->tid = tid;
	interrupt->any_signal = any_signal;
	if (req)
		fuse_req_interrupt_func(req, interrupt_callback, interrupt);
	return 0;
}

void interrupt_end(struct interrupt *interrupt)
{
	if (!interrupt->cancel)
		return;
	if (interrupt->req)
		fuse_req_interrupt_func(interrupt->req, NULL, NULL);
	pthread_mutex_lock(&interrupt->interrupts->lock);
	unwatch_locked(interrupt);
	pthread_mutex_unlock(&interrupt->interrupts->lock);
	sbx_cancel_unref(interrupt->cancel);
	interrupt->cancel = NULL;
}
