#include "client/call.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <glib.h>

struct sbx_cancel {
	pthread_mutex_t lock; /* hooks, and the change of fired */
	atomic_bool fired;
	atomic_uint refs;
	struct sbx_cancel_hook *hooks;
	struct sbx_cancel *parent;
	struct sbx_cancel_hook parent_hook;
};

static void cancel_fire_child(void *arg)
{
	sbx_cancel_fire(arg);
}

struct sbx_cancel *sbx_cancel_new(struct sbx_cancel *parent)
{
	struct sbx_cancel *cancel = calloc(1, sizeof(*cancel));

	if (cancel == NULL)
		return NULL;
	pthread_mutex_init(&cancel->lock, NULL);
	atomic_init(&cancel->fired, false);
	atomic_init(&cancel->refs, 1);
	if (parent != NULL) {
		cancel->parent = sbx_cancel_ref(parent);
		if (sbx_cancel_hook_add(parent, &cancel->parent_hook, cancel_fire_child, cancel) <
		    0)
			atomic_store(&cancel->fired, true);
	}
	return cancel;
}

struct sbx_cancel *sbx_cancel_ref(struct sbx_cancel *cancel)
{
	atomic_fetch_add_explicit(&cancel->refs, 1, memory_order_relaxed);
	return cancel;
}

void sbx_cancel_unref(struct sbx_cancel *cancel)
{
	if (cancel == NULL || atomic_fetch_sub(&cancel->refs, 1) != 1)
		return;
	if (cancel->parent != NULL) {
		/* After this the parent can't be firing this token any more. */
		sbx_cancel_hook_del(cancel->parent, &cancel->parent_hook);
		sbx_cancel_unref(cancel->parent);
	}
	pthread_mutex_destroy(&cancel->lock);
	free(cancel);
}

static void hook_unlink_locked(struct sbx_cancel_hook *hook)
{
	if (hook->link == NULL)
		return;
	*hook->link = hook->next;
	if (hook->next != NULL)
		hook->next->link = hook->link;
	hook->link = NULL;
	hook->next = NULL;
}

void sbx_cancel_fire(struct sbx_cancel *cancel)
{
	pthread_mutex_lock(&cancel->lock);
	atomic_store(&cancel->fired, true);
	while (cancel->hooks != NULL) {
		struct sbx_cancel_hook *hook = cancel->hooks;

		hook_unlink_locked(hook);
		hook->wake(hook->arg);
	}
	pthread_mutex_unlock(&cancel->lock);
}

bool sbx_cancel_fired(struct sbx_cancel *cancel)
{
	return cancel != NULL && atomic_load(&cancel->fired);
}

int sbx_cancel_hook_add(struct sbx_cancel *cancel, struct sbx_cancel_hook *hook,
			sbx_cancel_wake_fn wake, void *arg)
{
	int r = 0;

	hook->wake = wake;
	hook->arg = arg;
	hook->next = NULL;
	hook->link = NULL;
	if (cancel == NULL)
		return 0;
	pthread_mutex_lock(&cancel->lock);
	if (atomic_load(&cancel->fired)) {
		r = -EINTR;
	} else {
		hook->next = cancel->hooks;
		if (hook->next != NULL)
			hook->next->link = &hook->next;
		hook->link = &cancel->hooks;
		cancel->hooks = hook;
	}
	pthread_mutex_unlock(&cancel->lock);
	return r;
}

void sbx_cancel_hook_del(struct sbx_cancel *cancel, struct sbx_cancel_hook *hook)
{
	if (cancel == NULL)
		return;
	pthread_mutex_lock(&cancel->lock);
	hook_unlink_locked(hook);
	pthread_mutex_unlock(&cancel->lock);
}

int64_t sbx_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int sbx_call_check(const struct sbx_call *call)
{
	if (sbx_cancel_fired(call->cancel))
		return -EINTR;
	if (call->deadline_ms != 0 && sbx_clock_ms() >= call->deadline_ms)
		return -ETIMEDOUT;
	return 0;
}

int sbx_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int r;

	r = pthread_condattr_init(&attr);
	if (r != 0)
		return -r;
	r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (r == 0)
		r = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -r;
}

static void wait_wake(void *arg)
{
	struct sbx_wait *wait = arg;

	/* With the lock taken the wakeup can't fall between a waiter's check and its wait. */
	pthread_mutex_lock(wait->lock);
	pthread_cond_broadcast(wait->cond);
	pthread_mutex_unlock(wait->lock);
}

/* The stall limit counts from @from_ms. */
static int64_t wait_limit_ms(const struct sbx_call *call, int64_t from_ms)
{
	int64_t stall_ms = from_ms + call->stall_timeout_ms;

	if (call->stall_timeout_ms <= 0)
		return call->deadline_ms;
	return call->deadline_ms == 0 ? stall_ms : MIN(stall_ms, call->deadline_ms);
}

int sbx_wait_begin(struct sbx_wait *wait, const struct sbx_call *call, pthread_cond_t *cond,
		   pthread_mutex_t *lock)
{
	wait->call = call;
	wait->cond = cond;
	wait->lock = lock;
	wait->until_ms = wait_limit_ms(call, sbx_clock_ms());
	return sbx_cancel_hook_add(call->cancel, &wait->hook, wait_wake, wait);
}

int sbx_wait_for(struct sbx_wait *wait)
{
	if (sbx_cancel_fired(wait->call->cancel))
		return -EINTR;
	if (wait->until_ms == 0) {
		pthread_cond_wait(wait->cond, wait->lock);
	} else {
		struct timespec until = {
			.tv_sec = wait->until_ms / 1000,
			.tv_nsec = wait->until_ms % 1000 * 1000000,
		};

		if (pthread_cond_timedwait(wait->cond, wait->lock, &until) == ETIMEDOUT)
			return -ETIMEDOUT;
	}
	return sbx_cancel_fired(wait->call->cancel) ? -EINTR : 0;
}

int sbx_wait_moving(struct sbx_wait *wait, const int64_t *moved_ms)
{
	int r = sbx_wait_for(wait);
	int64_t until_ms;

	if (r != -ETIMEDOUT)
		return r;
	until_ms = wait_limit_ms(wait->call, *moved_ms);
	if (until_ms <= sbx_clock_ms())
		return r;
	wait->until_ms = until_ms;
	return 0;
}

void sbx_wait_end(struct sbx_wait *wait)
{
	sbx_cancel_hook_del(wait->call->cancel, &wait->hook);
}

int sbx_call_sleep(const struct sbx_call *call, int64_t ms)
{
	int64_t end_ms = sbx_clock_ms() + ms;
	struct sbx_call nap = { .cancel = call->cancel, .deadline_ms = end_ms };
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;
	struct sbx_wait wait;
	int r;

	r = sbx_call_check(call);
	if (r < 0 || ms <= 0)
		return r;
	if (call->deadline_ms != 0 && end_ms > call->deadline_ms)
		return -ETIMEDOUT;
	r = sbx_cond_init(&cond);
	if (r < 0)
		return r;
	r = sbx_wait_begin(&wait, &nap, &cond, &lock);
	if (r == 0) {
		pthread_mutex_lock(&lock);
		while (r == 0)
			r = sbx_wait_for(&wait);
		pthread_mutex_unlock(&lock);
		if (r == -ETIMEDOUT)
			r = 0;
	}
	sbx_wait_end(&wait);
	pthread_cond_destroy(&cond);
	pthread_mutex_destroy(&lock);
	return r;
}

int sbx_call_fail(const struct sbx_call *call, const char *operation, int error,
		  const char *message)
{
	struct sbx_failure *failure = call->failure;

	if (failure == NULL)
		return error;
	memset(failure, 0, sizeof(*failure));
	failure->error = error;
	failure->kind = SBX_FAIL_LOCAL;
	failure->operation = operation;
	sbx_text_escape(failure->message, sizeof(failure->message), message, strlen(message));
	return error;
}

void sbx_text_escape(char *ret_text, size_t size, const char *text, size_t len)
{
	size_t used = 0;
	size_t i = 0;

	while (i < len) {
		unsigned char c = (unsigned char)text[i];
		gunichar point = c;
		size_t take = 1;
		char escape[5];

		if (c >= 0x80) {
			point = g_utf8_get_char_validated(text + i, (gssize)(len - i));
			if (point < 0x110000)
				take = (size_t)g_unichar_to_utf8(point, NULL);
		}
		/* Also U+0080..U+009F, which terminals take for control sequences. */
		if (point >= 0x20 && point != '\\' && !(point >= 0x7f && point < 0xa0) &&
		    point < 0x110000) {
			if (used + take >= size)
				break;
			memcpy(ret_text + used, text + i, take);
			used += take;
			i += take;
			continue;
		}
		if (used + 4 >= size)
			break;
		snprintf(escape, sizeof(escape), "\\x%02x", c);
		memcpy(ret_text + used, escape, 4);
		used += 4;
		i++;
	}
	ret_text[used] = '\0';
}
