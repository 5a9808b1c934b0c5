#include "tests/sbxd/pool.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>

#define PLACES 4

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	int taken;
	bool stopped;
};

struct pool *pool_new(void)
{
	struct pool *pool = g_new0(struct pool, 1);

	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->freed, NULL);
	return pool;
}

void pool_free(struct pool *pool)
{
	pthread_cond_destroy(&pool->freed);
	pthread_mutex_destroy(&pool->lock);
	g_free(pool);
}

int pool_enter(struct pool *pool)
{
	int err;

	pthread_mutex_lock(&pool->lock);
	while (pool->taken == PLACES && !pool->stopped)
		pthread_cond_wait(&pool->freed, &pool->lock);
	err = pool->stopped ? -ECANCELED : 0;
	if (!err)
		pool->taken++;
	pthread_mutex_unlock(&pool->lock);
	return err;
}

void pool_leave(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->taken--;
	pthread_cond_signal(&pool->freed);
	pthread_mutex_unlock(&pool->lock);
}

void pool_stop(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->stopped = true;
	pthread_cond_broadcast(&pool->freed);
	pthread_mutex_unlock(&pool->lock);
}
