#include "client/http_internal.h"

#include <errno.h>

#include <glib.h>

/* Who waits for a place looks so often, in the time that he may stand still, whether others get on,
 * and tells who waits for him. */
#define LOOKS 4

struct http_lanes {
	pthread_mutex_t lock; /* everything in this file */
	unsigned int max;
	uint32_t busy;
	GHashTable *by_name; /* name -> struct http_lane */
};

struct http_lanes *http_lanes_new(unsigned int max)
{
	struct http_lanes *lanes = g_new0(struct http_lanes, 1);

	pthread_mutex_init(&lanes->lock, NULL);
	lanes->max = max;
	lanes->by_name = g_hash_table_new(g_str_hash, g_str_equal);
	return lanes;
}

void http_lanes_free(struct http_lanes *lanes)
{
	if (lanes == NULL)
		return;
	g_hash_table_unref(lanes->by_name);
	pthread_mutex_destroy(&lanes->lock);
	g_free(lanes);
}

static struct http_lane *lane_get_locked(struct http_lanes *lanes, const char *name)
{
	struct http_lane *lane = g_hash_table_lookup(lanes->by_name, name);

	if (lane == NULL) {
		lane = g_new0(struct http_lane, 1);
		if (sbx_cond_init(&lane->freed) < 0) {
			g_free(lane);
			return NULL;
		}
		lane->name = g_strdup(name);
		g_hash_table_insert(lanes->by_name, lane->name, lane);
	}
	lane->users++;
	return lane;
}

static void lane_put_locked(struct http_lanes *lanes, struct http_lane *lane)
{
	if (--lane->users > 0)
		return;
	g_hash_table_remove(lanes->by_name, lane->name);
	pthread_cond_destroy(&lane->freed);
	g_free(lane->name);
	g_free(lane);
}

static int wait_for_place_locked(struct http_lanes *lanes, struct http_lane *lane,
				 const struct sbx_call *call, struct sbx_wait *wait)
{
	int64_t begun_ms = sbx_clock_ms();
	int64_t seen_ms = atomic_load(&lane->progress_ms);
	int r = 0;

	while (r == 0 && lane->busy >= lanes->max) {
		int64_t progress_ms;

		if (call->stall_timeout_ms > 0)
			wait->until_ms = sbx_clock_ms() + MAX(call->stall_timeout_ms / LOOKS, 1);
		if (call->deadline_ms != 0)
			wait->until_ms = MIN(wait->until_ms, call->deadline_ms);
		r = sbx_wait_for(wait);
		if (r != -ETIMEDOUT || sbx_call_check(call) < 0)
			continue;
		/* The others in the lane may have got on: then it is full, but not stuck. */
		progress_ms = atomic_load(&lane->progress_ms);
		if (MAX(progress_ms, begun_ms) + call->stall_timeout_ms > sbx_clock_ms())
			r = 0;
		if (progress_ms > seen_ms && call->moved != NULL) {
			seen_ms = progress_ms;
			pthread_mutex_unlock(&lanes->lock);
			call->moved(call->moved_arg);
			pthread_mutex_lock(&lanes->lock);
		}
	}
	return r;
}

int http_lane_enter(struct http_lanes *lanes, const struct sbx_call *call, const char *name,
		    int64_t *since_ms, struct http_lane **ret_lane)
{
	struct http_lane *lane;
	struct sbx_wait wait;
	int r;

	pthread_mutex_lock(&lanes->lock);
	lane = lane_get_locked(lanes, name != NULL ? name : "");
	pthread_mutex_unlock(&lanes->lock);
	if (lane == NULL)
		return -ENOMEM;

	r = sbx_wait_begin(&wait, call, &lane->freed, &lanes->lock);
	pthread_mutex_lock(&lanes->lock);
	if (r == 0)
		r = wait_for_place_locked(lanes, lane, call, &wait);
	if (r == 0) {
		lane->busy++;
		lanes->busy++;
		*since_ms = MAX(*since_ms, atomic_load(&lane->progress_ms));
	} else {
		/* A wakeup that came together with the end of the wait is another's. */
		pthread_cond_signal(&lane->freed);
	}
	pthread_mutex_unlock(&lanes->lock);
	/* The hook uses the lane, so the lane goes last. */
	sbx_wait_end(&wait);
	if (r < 0) {
		pthread_mutex_lock(&lanes->lock);
		lane_put_locked(lanes, lane);
		pthread_mutex_unlock(&lanes->lock);
		return r;
	}
	*ret_lane = lane;
	return 0;
}

void http_lane_leave(struct http_lanes *lanes, struct http_lane *lane)
{
	pthread_mutex_lock(&lanes->lock);
	lane->busy--;
	lanes->busy--;
	pthread_cond_signal(&lane->freed);
	lane_put_locked(lanes, lane);
	pthread_mutex_unlock(&lanes->lock);
}

uint32_t http_lanes_busy(struct http_lanes *lanes)
{
	uint32_t busy;

	pthread_mutex_lock(&lanes->lock);
	busy = lanes->busy;
	pthread_mutex_unlock(&lanes->lock);
	return busy;
}
