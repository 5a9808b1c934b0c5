#include "client/workspace/walk.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/call.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/scan.h"
#include "client/workspace/names_impl.h"

#define WALK_ENTRIES_MAX 50000
#define WALK_ENTRIES_MIN 500
#define WALK_TIMEOUT_MS	 120000

static void walk_entry_free(void *arg)
{
	struct sbx_walk_entry *entry = arg;

	g_free(entry->path);
	g_free(entry->link);
	g_free(entry);
}

void sbx_walk_free(struct sbx_walk *walk)
{
	if (!walk)
		return;
	g_ptr_array_unref(walk->entries);
	g_free(walk);
}

static int entry_compare(const void *a, const void *b)
{
	const struct sbx_walk_entry *x = *(struct sbx_walk_entry *const *)a;
	const struct sbx_walk_entry *y = *(struct sbx_walk_entry *const *)b;

	return strcmp(x->path, y->path);
}

static void walk_add_place(struct sbx_walk *walk, const struct sbx_scan_reply *reply,
			   const struct sbx_scan_place *place, GQueue *pending)
{
	for (guint i = 0; i < place->entries->len; i++) {
		const struct sbx_scan_entry *seen =
			&g_array_index(place->entries, struct sbx_scan_entry, i);
		struct sbx_walk_entry *entry = g_new0(struct sbx_walk_entry, 1);

		entry->path = place->path[0] ? g_strdup_printf("%s/%s", place->path, seen->name)
					     : g_strdup(seen->name);
		entry->link = g_strdup(seen->link);
		entry->attr = seen->attr;
		g_ptr_array_add(walk->entries, entry);
		if (S_ISDIR(entry->attr.mode) && !sbx_scan_reply_place(reply, entry->path))
			g_queue_push_tail(pending, g_strdup(entry->path));
	}
}

/* Ask for as many of @pending as fit one request. What was left out by its bound comes back. */
static int walk_step(struct sbx_names *names, const struct sbx_call *call, struct sbx_walk *walk,
		     const struct sbx_probe_reply *probe, unsigned int *max_entries,
		     GQueue *pending)
{
	struct sbx_scan_options options = { .mode = SBX_SCAN_TREE, .max_entries = *max_entries };
	g_autoptr(GPtrArray) asked = g_ptr_array_new_with_free_func(g_free);
	struct sbx_exec_result result = { 0 };
	struct sbx_scan_reply *reply = NULL;
	struct sbx_program_limits limits;
	struct sbx_scan_request request;
	int r;

	sbx_names_limits(names, &limits);
	r = sbx_scan_request_init(&request, &options, &probe->tools, &limits);
	while (r == 0 && !g_queue_is_empty(pending)) {
		r = sbx_scan_request_add(&request, g_queue_peek_head(pending));
		if (r == 0)
			g_ptr_array_add(asked, g_queue_pop_head(pending));
	}
	if (r == -E2BIG && asked->len)
		r = 0;
	if (r == 0)
		r = sbx_names_run(names, call, WALK_TIMEOUT_MS,
				  sbx_program_request_argv(&request.program), true, &result);
	if (r == 0) {
		r = sbx_scan_decode(&request, result.out, result.out_len, &reply);
		if (r < 0)
			r = sbx_names_bad_answer(names, "scan", r, &result);
	}
	if (r == -EAGAIN && *max_entries > WALK_ENTRIES_MIN) {
		/* The answer does not fit: ask for less, again for the same. */
		*max_entries /= 2;
		while (asked->len)
			g_queue_push_head(pending, g_ptr_array_steal_index(asked, asked->len - 1));
		r = 0;
	} else if (r == 0) {
		if (!walk->clock_ns)
			walk->clock_ns = reply->clock_ns;
		for (guint i = 0; i < reply->places->len; i++) {
			const struct sbx_scan_place *place = g_ptr_array_index(reply->places, i);

			if (place->state == SBX_SCAN_LISTED)
				walk_add_place(walk, reply, place, pending);
			else if (place->error != ENOENT && place->error != ENOTDIR)
				walk->unreadable++;
		}
	}
	sbx_scan_reply_free(reply);
	sbx_exec_result_clear(&result);
	sbx_scan_request_clear(&request);
	return r;
}

int sbx_names_walk(struct sbx_names *names, const struct sbx_call *call, struct sbx_walk **ret_walk)
{
	struct sbx_walk *walk = g_new0(struct sbx_walk, 1);
	unsigned int max_entries = WALK_ENTRIES_MAX;
	const struct sbx_probe_reply *probe;
	GQueue pending = G_QUEUE_INIT;
	int r;

	walk->entries = g_ptr_array_new_with_free_func(walk_entry_free);
	g_queue_push_tail(&pending, g_strdup(""));
	r = sbx_names_probe(names, call, &probe);
	while (r == 0 && !g_queue_is_empty(&pending))
		r = walk_step(names, call, walk, probe, &max_entries, &pending);
	g_queue_clear_full(&pending, g_free);
	if (r < 0) {
		sbx_walk_free(walk);
		return r;
	}
	g_ptr_array_sort(walk->entries, entry_compare);
	*ret_walk = walk;
	return 0;
}

struct knowing {
	struct sbx_walk *walk;
	int64_t since_us;
};

static void known_add(void *arg, const char *path, const struct sbx_attr *attr, const char *link,
		      int64_t seen_us)
{
	struct knowing *knowing = arg;
	struct sbx_walk_entry *entry;

	if (seen_us < knowing->since_us)
		return;
	entry = g_new0(struct sbx_walk_entry, 1);
	entry->path = g_strdup(path);
	entry->link = g_strdup(link);
	entry->attr = *attr;
	g_ptr_array_add(knowing->walk->entries, entry);
}

struct sbx_walk *sbx_names_walk_known(struct sbx_names *names, bool sure)
{
	struct sbx_walk *walk = g_new0(struct sbx_walk, 1);
	struct knowing knowing = { .walk = walk, .since_us = INT64_MIN };

	walk->entries = g_ptr_array_new_with_free_func(walk_entry_free);
	pthread_mutex_lock(&names->lock);
	if (sure)
		knowing.since_us = names->doubted_us;
	sbx_meta_each_entry(names->meta, known_add, &knowing);
	pthread_mutex_unlock(&names->lock);
	g_ptr_array_sort(walk->entries, entry_compare);
	return walk;
}

uint64_t sbx_names_changes(struct sbx_names *names)
{
	uint64_t changes;

	pthread_mutex_lock(&names->lock);
	changes = sbx_meta_changes(names->meta);
	pthread_mutex_unlock(&names->lock);
	return changes;
}

const struct sbx_walk_entry *sbx_walk_find(const struct sbx_walk *walk, const char *path)
{
	guint low = 0, high = walk->entries->len;

	while (low < high) {
		guint middle = low + (high - low) / 2;
		const struct sbx_walk_entry *entry = g_ptr_array_index(walk->entries, middle);
		int order = strcmp(path, entry->path);

		if (order == 0)
			return entry;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
