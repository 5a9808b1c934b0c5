#include "fusefs/told.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include <glib.h>

#include "client/call.h"

struct told {
	pthread_mutex_t lock;
	struct told_name *first; /* told first, and so over first but for a few */
	struct told_name **last; /* where the next one goes */
	unsigned int n;
	uint64_t takings; /* atomic */
	int64_t lost_until_ms; /* till then a dropped one may be believed */
};

struct told_name *told_name_new(uint64_t dir, const char *name)
{
	size_t size = strlen(name) + 1;
	struct told_name *self = g_malloc(offsetof(struct told_name, name) + size);

	memset(self, 0, offsetof(struct told_name, name));
	self->dir = dir;
	memcpy(self->name, name, size);
	return self;
}

struct told *told_new(void)
{
	struct told *told = g_new0(struct told, 1);

	pthread_mutex_init(&told->lock, NULL);
	told->last = &told->first;
	return told;
}

void told_names_free(struct told_name *names)
{
	struct told_name *next;

	for (; names; names = next) {
		next = names->next;
		g_free(names);
	}
}

void told_free(struct told *told)
{
	if (!told)
		return;
	told_names_free(told->first);
	pthread_mutex_destroy(&told->lock);
	g_free(told);
}

uint64_t told_takings(struct told *told)
{
	return __atomic_load_n(&told->takings, __ATOMIC_ACQUIRE);
}

static void drop_first_locked(struct told *told)
{
	struct told_name *name = told->first;

	told->first = name->next;
	if (!told->first)
		told->last = &told->first;
	told->n--;
	g_free(name);
}

int64_t told_add(struct told *told, uint64_t takings, const void *session, uint64_t dir,
		 const char *name, int64_t valid_ms)
{
	struct told_name *added;
	int64_t now_ms;
	bool added_now;

	if (valid_ms <= 0)
		return 0;
	now_ms = sbx_clock_ms();
	added = told_name_new(dir, name);
	added->session = session;
	added->until_ms = now_ms + valid_ms;
	pthread_mutex_lock(&told->lock);
	while (told->first && told->first->until_ms <= now_ms)
		drop_first_locked(told);
	added_now = told->takings == takings;
	if (added_now) {
		if (told->n == TOLD_MAX) {
			told->lost_until_ms = MAX(told->lost_until_ms, told->first->until_ms);
			drop_first_locked(told);
		}
		*told->last = added;
		told->last = &added->next;
		told->n++;
	}
	pthread_mutex_unlock(&told->lock);
	if (!added_now)
		g_free(added);
	return added_now ? valid_ms : 0;
}

struct told_name *told_take(struct told *told, const void *session, bool *ret_lost)
{
	struct told_name *taken = NULL, *over = NULL, *name, **at;
	int64_t now_ms = sbx_clock_ms();

	pthread_mutex_lock(&told->lock);
	for (at = &told->first; *at;) {
		name = *at;
		if (name->session != session && name->until_ms > now_ms) {
			at = &name->next;
			continue;
		}
		*at = name->next;
		told->n--;
		name->next = name->until_ms > now_ms ? taken : over;
		*(name->until_ms > now_ms ? &taken : &over) = name;
	}
	told->last = at;
	*ret_lost = told->lost_until_ms > now_ms;
	__atomic_add_fetch(&told->takings, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&told->lock);
	told_names_free(over);
	return taken;
}
