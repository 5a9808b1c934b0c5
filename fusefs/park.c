#include "fusefs/park.h"

#include <errno.h>
#include <pthread.h>

#include <glib.h>

#include "client/call.h"
#include "client/task.h"
#include "fusefs/reply.h"

struct parks {
	pthread_mutex_t lock;
	pthread_cond_t fewer;
	unsigned int n;
};

/* References: park_read(), the one who calls park_done(), a task that lets the caller go. */
struct park {
	struct op *op;
	const struct park_wait *wait;
	void *arg;
	size_t size;
	off_t offset;
	struct sbx_cancel_hook hook;
	unsigned int refs; /* atomic */
	pthread_mutex_t lock; /* for what follows */
	bool armed; /* park_read() is through: others may answer */
	bool cancelled;
	bool has_result;
	int result;
};

struct parks *parks_new(void)
{
	struct parks *parks = g_new0(struct parks, 1);

	pthread_mutex_init(&parks->lock, NULL);
	pthread_cond_init(&parks->fewer, NULL);
	return parks;
}

void parks_free(struct parks *parks)
{
	if (!parks)
		return;
	pthread_cond_destroy(&parks->fewer);
	pthread_mutex_destroy(&parks->lock);
	g_free(parks);
}

void parks_drain(struct parks *parks)
{
	pthread_mutex_lock(&parks->lock);
	while (parks->n > 0)
		pthread_cond_wait(&parks->fewer, &parks->lock);
	pthread_mutex_unlock(&parks->lock);
}

static void parks_count(struct parks *parks, int change)
{
	pthread_mutex_lock(&parks->lock);
	parks->n += (unsigned int)change;
	pthread_cond_broadcast(&parks->fewer);
	pthread_mutex_unlock(&parks->lock);
}

static void park_unref(struct park *park)
{
	struct parks *parks;

	if (__atomic_sub_fetch(&park->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	parks = park->op->fs->parks;
	park->wait->free(park->arg);
	pthread_mutex_destroy(&park->lock);
	g_free(park->op);
	g_free(park);
	parks_count(parks, -1);
}

/* Once a read, without locks. */
static void park_answer(struct park *park, int result)
{
	g_autofree char *buf = NULL;
	ssize_t r;

	sbx_cancel_hook_del(park->op->call.cancel, &park->hook);
	buf = g_try_malloc(park->size);
	r = !buf ? -ENOMEM
		 : park->wait->answer(park->arg, park->op, result, buf, park->size, park->offset);
	op_reply_read(park->op, r, buf);
}

void park_done(struct park *park, int result)
{
	bool armed;

	pthread_mutex_lock(&park->lock);
	park->has_result = true;
	park->result = result;
	armed = park->armed;
	pthread_mutex_unlock(&park->lock);
	if (armed)
		park_answer(park, result);
	park_unref(park);
}

/* The caller has a signal: unless the wait has ended at this moment, that is the answer. */
static int park_let_go(void *arg)
{
	struct park *park = arg;

	if (park->wait->end(park->arg)) {
		park_answer(park, -EINTR);
		park_unref(park); /* that of park_done(), which is not called */
	}
	park_unref(park);
	return 0;
}

/* References and state allowing, to be let go by the pool: locks may be held here. */
static void park_start_let_go(struct park *park)
{
	__atomic_add_fetch(&park->refs, 1, __ATOMIC_RELAXED);
	/* Without a thread for it, it ends when the wait does. */
	if (sbx_task_start(park->op->fs->parts.pool, park_let_go, park, NULL, NULL) < 0)
		__atomic_sub_fetch(&park->refs, 1, __ATOMIC_ACQ_REL);
}

/* Runs with the token's lock and libfuse's lock of the request held. */
static void park_wake(void *arg)
{
	struct park *park = arg;
	bool go;

	pthread_mutex_lock(&park->lock);
	go = park->armed && !park->has_result && !park->cancelled;
	park->cancelled = true;
	pthread_mutex_unlock(&park->lock);
	if (go)
		park_start_let_go(park);
}

void park_read(struct op *op, const struct park_wait *wait, void *arg, size_t size, off_t offset)
{
	struct park *park = g_new0(struct park, 1);
	bool cancelled, has_result;
	int r;

	park->wait = wait;
	park->arg = arg;
	park->size = size;
	park->offset = offset;
	park->refs = 2;
	pthread_mutex_init(&park->lock, NULL);
	parks_count(op->fs->parks, 1);
	r = op_detach(op, &park->op);
	if (r == 0)
		r = sbx_cancel_hook_add(park->op->call.cancel, &park->hook, park_wake, park);
	if (r == 0)
		r = wait->begin(arg, park);
	if (r < 0) {
		/* What park_answer() gives is what the class makes of the error. */
		park_answer(park, r);
		park_unref(park);
		park_unref(park);
		return;
	}
	pthread_mutex_lock(&park->lock);
	park->armed = true;
	has_result = park->has_result;
	r = park->result;
	cancelled = park->cancelled;
	pthread_mutex_unlock(&park->lock);
	if (has_result)
		park_answer(park, r);
	else if (cancelled)
		park_start_let_go(park);
	park_unref(park);
}
