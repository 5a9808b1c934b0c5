#include "client/workspace/freshen.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/errlog.h"
#include "client/provider.h"
#include "client/scan.h"
#include "client/session.h"
#include "client/workspace/names_impl.h"
#include "client/workspace/runner.h"

/* File times lag behind the clock, and clocks of filesystems behind that of the system. */
#define SINCE_OVERLAP_NS    INT64_C(1000000000)
#define FLIGHTS_MAX	    8
#define FLIGHTS_OUTSIDE_MAX 4 /* beside those: in the sandbox's own root */
#define WANTED_MAX	    64
#define GROUP_DIRS_MAX	    4000
#define GROUP_LEAST	    2000 /* entries */
#define GROUP_MOST	    60000
#define AHEAD_LEAST	    64 /* directories ahead of a walk */
#define AHEAD_MOST	    512
#define AHEAD_ENTRIES	    20000
#define LOOK_MAX	    10000 /* directories of the store, for one flight */
#define SURVEY_LOOKS	    100 /* the same for a survey */
#define SURVEY_AHEAD	    4
#define TRIES_MAX	    12

enum flight_state {
	FLIGHT_QUEUED,
	FLIGHT_SENT,
	FLIGHT_DONE,
};

struct names_flight {
	struct sbx_names *names;
	unsigned int refs;
	enum flight_state state;
	enum sbx_scan_mode mode;
	bool no_wake; /* nobody who waits wants a sleeping session woken */
	GPtrArray *paths; /* asked for, in the store's form; fixed once sent */
	GHashTable *set; /* of the same strings */
	guint n_wanted; /* the first of them: somebody waits for these */
	GHashTable *errors; /* path -> negative errno, of those that could not be listed */
	int64_t asked_us; /* once sent */
	int64_t since_ns;
	size_t n_entries; /* that the sandbox has to look at, as far as is known */
	struct sbx_scan_request *request; /* of a survey, once encoded; else NULL */
	int result;
};

static void request_free(struct sbx_scan_request *request)
{
	sbx_scan_request_clear(request);
	g_free(request);
}

static struct names_flight *flight_new(struct sbx_names *names, enum sbx_scan_mode mode)
{
	struct names_flight *flight = g_new0(struct names_flight, 1);

	flight->names = names;
	flight->mode = mode;
	flight->refs = 1;
	flight->paths = g_ptr_array_new_with_free_func(g_free);
	flight->errors = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	flight->set = g_hash_table_new(g_str_hash, g_str_equal);
	return flight;
}

static void flight_unref_locked(struct names_flight *flight)
{
	if (--flight->refs > 0)
		return;
	g_hash_table_unref(flight->set);
	g_ptr_array_unref(flight->paths);
	g_hash_table_unref(flight->errors);
	g_clear_pointer(&flight->request, request_free);
	g_free(flight);
}

/* In the sandbox's own root, where anything may hang, as mounts over a network do: each path is
 * asked for by itself, and for those only who want it. */
static bool is_outside(const char *path)
{
	return path[0] == '/';
}

static bool flight_is_outside(const struct names_flight *flight)
{
	return is_outside(g_ptr_array_index(flight->paths, 0));
}

static bool flight_has(const struct names_flight *flight, const char *path)
{
	return g_hash_table_contains(flight->set, path);
}

static void flight_add(struct names_flight *flight, const char *path)
{
	char *copy = g_strdup(path);

	g_ptr_array_add(flight->paths, copy);
	g_hash_table_add(flight->set, copy);
}

/* The paths from the @n-th on are not asked for. */
static void flight_cut_locked(struct names_flight *flight, guint n)
{
	for (guint i = n; i < flight->paths->len; i++)
		g_hash_table_remove(flight->set, g_ptr_array_index(flight->paths, i));
	g_ptr_array_set_size(flight->paths, (gint)n);
}

/* Will the flight's answer tell what is wanted of @path, young enough? */
static bool flight_serves(const struct names_flight *flight, enum names_ask ask, const char *path,
			  int64_t need_us)
{
	if (flight->state == FLIGHT_DONE ||
	    (flight->state == FLIGHT_SENT && flight->asked_us < need_us))
		return false;
	if (flight_has(flight, path))
		return ask == NAMES_ASK_FILE || flight->mode != SBX_SCAN_LSTAT;
	/* A scan of the whole tree brings most directories. */
	return ask == NAMES_ASK_DIR && flight->mode == SBX_SCAN_TREE && !is_outside(path) &&
	       flight_has(flight, "");
}

/* What is asked --------------------------------------------------------------------------- */

struct group {
	struct names_flight *flight;
	int64_t now_us;
	int64_t budget; /* entries */
	guint n_dirs_max;
	guint n_looks_max;
	guint n_looked_at;
};

static void group_take(struct group *group, const struct sbx_meta_dir_info *info)
{
	struct names_flight *flight = group->flight;

	group->budget -= (int64_t)info->n_entries + 1;
	flight->n_entries += info->n_entries + 1;
	if (flight->mode == SBX_SCAN_SINCE)
		flight->since_ns = MIN(flight->since_ns, info->clock_ns);
	flight_add(flight, info->path);
}

/* Directories of which nothing is known, ahead of a walk. */
static bool group_add_unknown(void *arg, const struct sbx_meta_dir_info *info)
{
	struct group *group = arg;
	struct names_flight *flight = group->flight;

	if (flight->paths->len >= group->n_dirs_max || ++group->n_looked_at > LOOK_MAX) {
		flight->names->walk_next = g_strdup(info->path);
		return false;
	}
	if ((!info->complete || info->validated_us < info->floor_us) &&
	    !flight_has(flight, info->path))
		group_take(group, info);
	return true;
}

/* Is a directory that is known worth being asked for with others? One that was validated only now
 * is not; half of ttl lets loops over two of them fall into step. */
static bool group_may_have(const struct group *group, const struct sbx_meta_dir_info *info)
{
	int64_t half_us = group->flight->names->options.ttl_ms * 500;

	return info->complete && info->clock_ns != 0 &&
	       info->validated_us < group->now_us - half_us &&
	       (int64_t)info->n_entries < group->budget && !flight_has(group->flight, info->path);
}

/* Known directories, as many as there is room for. */
static bool group_add_known(void *arg, const struct sbx_meta_dir_info *info)
{
	struct group *group = arg;

	if (group->flight->paths->len >= group->n_dirs_max || group->budget <= 0 ||
	    ++group->n_looked_at > group->n_looks_max)
		return false;
	if (!is_outside(info->path) && group_may_have(group, info))
		group_take(group, info);
	return true;
}

/* The same ahead of a walk. */
static bool group_add_ahead(void *arg, const struct sbx_meta_dir_info *info)
{
	struct group *group = arg;

	if (group_add_known(arg, info))
		return true;
	group->flight->names->walk_next = g_strdup(info->path);
	return false;
}

/* The same of those alone that are in use now. */
static bool group_add_in_use(void *arg, const struct sbx_meta_dir_info *info)
{
	struct group *group = arg;
	int64_t ttl_us = group->flight->names->options.ttl_ms * 1000;

	return info->used_us >= group->now_us - 2 * ttl_us && group_add_known(arg, info);
}

/* How many entries may be looked at beside what is wanted. */
static int64_t group_budget_locked(const struct sbx_names *names, int64_t now_us)
{
	int64_t pause_us = MIN(now_us - names->group_sent_us, 30 * INT64_C(1000000));
	double afford_us = 0.02 * (double)pause_us + 10000;

	return CLAMP((int64_t)(afford_us / names->entry_cost_us), GROUP_LEAST, GROUP_MOST);
}

/* Directories that are asked for together with those that are wanted. */
static void flight_add_group_locked(struct names_flight *flight, int64_t now_us)
{
	struct sbx_names *names = flight->names;
	const char *path = g_ptr_array_index(flight->paths, flight->n_wanted - 1);
	int64_t budget = group_budget_locked(names, now_us);
	bool is_walk = g_strcmp0(names->walk_next, path) == 0;
	struct group group = { .flight = flight, .now_us = now_us, .n_looks_max = LOOK_MAX };

	if (flight_is_outside(flight))
		return;
	names->walk_ahead = is_walk ? MIN(names->walk_ahead * 2, AHEAD_MOST) : AHEAD_LEAST;
	g_clear_pointer(&names->walk_next, g_free);
	group.n_dirs_max = flight->n_wanted + names->walk_ahead;
	if (flight->mode == SBX_SCAN_TREE) {
		sbx_meta_each_dir_after(names->meta, path, group_add_unknown, &group);
		return;
	}
	/* With ttl 0 an answer serves only those who waited for it. */
	if (names->options.ttl_ms <= 0)
		return;
	/* What a walk will use is not spent in vain. */
	group.budget = is_walk ? MAX(budget, AHEAD_ENTRIES) : budget / 2;
	sbx_meta_each_dir_after(names->meta, path, group_add_ahead, &group);
	group.budget = budget;
	group.n_dirs_max = GROUP_DIRS_MAX;
	group.n_looked_at = 0;
	sbx_meta_each_dir(names->meta, group_add_known, &group);
	names->group_sent_us = now_us;
}

/* How @path is to be asked for. */
static enum sbx_scan_mode mode_for_locked(struct sbx_names *names, enum names_ask ask,
					  const char *path)
{
	struct sbx_meta_dir_info info;
	enum sbx_scan_mode mode;

	if (ask == NAMES_ASK_FILE)
		return SBX_SCAN_LSTAT;
	if (sbx_meta_dir_info(names->meta, path, &info) < 0)
		return is_outside(path) ? SBX_SCAN_LIST : SBX_SCAN_TREE;
	if (!info.complete || info.validated_us < info.floor_us)
		mode = is_outside(path) ? SBX_SCAN_LIST : SBX_SCAN_TREE;
	else
		mode = info.clock_ns == 0 ? SBX_SCAN_LIST : SBX_SCAN_SINCE;
	g_free(info.path);
	return mode;
}

/* Fix what the flight asks for; from now on it is on its way. */
static void flight_plan_locked(struct names_flight *flight)
{
	struct sbx_names *names = flight->names;
	int64_t now_us = names_now_us();

	flight->state = FLIGHT_SENT;
	flight->asked_us = now_us;
	flight->n_wanted = flight->paths->len;
	if (flight->mode == SBX_SCAN_TREE)
		flight_add_group_locked(flight, now_us);
	if (flight->mode != SBX_SCAN_SINCE)
		return;
	/* The store may have been made stale since the flight was queued. */
	flight->since_ns = INT64_MAX;
	for (guint i = 0; i < flight->paths->len; i++) {
		struct sbx_meta_dir_info info;
		const char *path = g_ptr_array_index(flight->paths, i);

		if (mode_for_locked(names, NAMES_ASK_DIR, path) != SBX_SCAN_SINCE ||
		    sbx_meta_dir_info(names->meta, path, &info) < 0) {
			flight->mode = SBX_SCAN_LIST;
			return;
		}
		flight->n_entries += info.n_entries + 1;
		flight->since_ns = MIN(flight->since_ns, info.clock_ns);
		g_free(info.path);
	}
	flight_add_group_locked(flight, now_us);
	flight->since_ns = MAX(flight->since_ns - SINCE_OVERLAP_NS, 1);
}

/* What came -------------------------------------------------------------------------------- */

static const char *store_path(const char *wire_path)
{
	return strcmp(wire_path, ".") == 0 ? "" : wire_path;
}

static void merge_entries_locked(struct names_flight *flight, const struct sbx_scan_place *place,
				 const char *path, int64_t clock_ns, int64_t now_us)
{
	struct sbx_names *names = flight->names;
	struct sbx_meta_listing *listing = sbx_meta_listing_begin(
		names->meta, path, place->state == SBX_SCAN_LISTED, flight->asked_us, now_us);

	if (!listing)
		return;
	for (guint i = 0; i < place->entries->len; i++) {
		const struct sbx_scan_entry *entry =
			&g_array_index(place->entries, struct sbx_scan_entry, i);

		if (path[0] == '\0' && names_path_is_hidden(entry->name))
			continue;
		if (sbx_meta_listing_add(listing, entry->name, &entry->attr, entry->link) < 0)
			sbx_errlog_note(sbx_session_errors(names->session), "scan", path, -EIO,
					"a name that can't be one was refused");
	}
	sbx_meta_listing_end(listing, clock_ns);
}

static void merge_locked(struct names_flight *flight, const struct sbx_scan_reply *reply,
			 int64_t now_us)
{
	struct sbx_names *names = flight->names;

	for (guint i = 0; i < reply->refused->len; i++)
		sbx_errlog_note(sbx_session_errors(names->session), "scan",
				g_ptr_array_index(reply->refused, i), -EIO,
				"a name that can't be one was refused");
	for (guint i = 0; i < reply->places->len; i++) {
		const struct sbx_scan_place *place = g_ptr_array_index(reply->places, i);
		const char *path = store_path(place->path);
		bool asked_for = i < flight->paths->len;

		if (!is_outside(path) && names_path_is_hidden(path))
			continue;
		if (asked_for && place->has_attr)
			sbx_meta_saw(names->meta, path, &place->attr, place->link, flight->asked_us,
				     now_us);
		switch (place->state) {
		case SBX_SCAN_KNOWN:
			break;
		case SBX_SCAN_LISTED:
		case SBX_SCAN_UNCHANGED:
			if (place->entries)
				merge_entries_locked(flight, place, path, reply->clock_ns, now_us);
			break;
		case SBX_SCAN_FAILED:
			if (!asked_for || place->error == ENOTDIR)
				break;
			if (place->error == ENOENT)
				sbx_meta_saw(names->meta, path, NULL, NULL, flight->asked_us,
					     now_us);
			else
				g_hash_table_replace(flight->errors, g_strdup(path),
						     GINT_TO_POINTER(-place->error));
			break;
		}
	}
}

/* A look at so many entries at once may take longer than ttl. */
#define SLOW_ENTRIES 20000
#define SLOW_US_MAX  15000000

/* What a look at so many entries costs the sandbox. */
static void learn_cost_locked(struct sbx_names *names, int64_t took_us, size_t n_entries)
{
	double cost_us;

	/* A look that takes longer than ttl would be stale as it comes, and asked for without
	 * end. */
	atomic_store(&names->slow_us, n_entries >= SLOW_ENTRIES ? MIN(took_us, SLOW_US_MAX) : 0);
	names->fastest_us = names->fastest_us == 0 ? took_us : MIN(names->fastest_us, took_us);
	if (n_entries < 1000)
		return;
	cost_us = (double)(took_us - names->fastest_us) / (double)n_entries;
	names->entry_cost_us = CLAMP(0.7 * names->entry_cost_us + 0.3 * cost_us, 0.3, 30.0);
}

static size_t reply_entries(const struct sbx_scan_reply *reply)
{
	size_t n = reply->places->len;

	for (guint i = 0; i < reply->places->len; i++) {
		const struct sbx_scan_place *place = g_ptr_array_index(reply->places, i);

		if (place->entries)
			n += place->entries->len;
	}
	return n;
}

/* Sending ---------------------------------------------------------------------------------- */

/* Encode the flight under the present limits; paths that do not fit, but the first, are dropped:
 * who waits for one of them asks again. */
static int flight_encode(struct names_flight *flight, const struct sbx_tools *tools,
			 struct sbx_scan_request *request)
{
	struct sbx_scan_options options = { .mode = flight->mode, .since_ns = flight->since_ns };
	struct sbx_program_limits limits;
	int r;

	sbx_names_limits(flight->names, &limits);
	r = sbx_scan_request_init(request, &options, tools, &limits);
	for (guint i = 0; r == 0 && i < flight->paths->len; i++) {
		r = sbx_scan_request_add(request,
					 names_wire_path(g_ptr_array_index(flight->paths, i)));
		if (r < 0 && i > 0) {
			pthread_mutex_lock(&flight->names->lock);
			flight_cut_locked(flight, i);
			pthread_mutex_unlock(&flight->names->lock);
			r = 0;
		}
	}
	return r;
}

/* An answer that came at @got_us. @steady: of names_saw_clock(). */
static void flight_land_locked(struct names_flight *flight, const struct sbx_scan_reply *reply,
			       int64_t got_us, bool steady)
{
	struct sbx_names *names = flight->names;

	if (steady || flight->mode != SBX_SCAN_SINCE)
		merge_locked(flight, reply, got_us);
	if (!steady)
		/* The clock was set: no time of before can be compared with one of now. */
		sbx_meta_expire(names->meta,
				flight->mode == SBX_SCAN_SINCE ? got_us : flight->asked_us);
}

/* The answer of a flight of its own has just come. */
static void flight_land(struct names_flight *flight, const struct sbx_scan_reply *reply)
{
	struct sbx_names *names = flight->names;
	int64_t got_us = names_now_us();
	bool steady = names_saw_clock(names, reply->clock_ns, reply->clock_has_ns, flight->asked_us,
				      got_us);

	pthread_mutex_lock(&names->lock);
	flight_land_locked(flight, reply, got_us, steady);
	if (steady || flight->mode != SBX_SCAN_SINCE)
		learn_cost_locked(names, got_us - flight->asked_us,
				  MAX(flight->n_entries, reply_entries(reply)));
	pthread_mutex_unlock(&names->lock);
}

/* One request. -EAGAIN, -E2BIG: the sandbox's limits were learnt, ask again. */
static int flight_send(struct names_flight *flight, const struct sbx_call *call,
		       const struct sbx_tools *tools)
{
	struct sbx_names *names = flight->names;
	struct sbx_scan_request request;
	struct sbx_exec_result result = { 0 };
	struct sbx_scan_reply *reply = NULL;
	int r;

	r = flight_encode(flight, tools, &request);
	if (r < 0)
		goto out;
	pthread_mutex_lock(&names->lock);
	flight->asked_us = names_now_us();
	pthread_mutex_unlock(&names->lock);
	r = sbx_names_run(names, call, sbx_session_options(names->session)->timeout_ms,
			  sbx_program_request_argv(&request.program), true, &result);
	if (r < 0)
		goto out;
	r = sbx_scan_decode(&request, result.out, result.out_len, &reply);
	if (r < 0) {
		r = sbx_names_bad_answer(names, "scan", r, &result);
		/* Ask for half as many; who waits for one of the others asks again. */
		if (r == -EMSGSIZE && flight->paths->len > 1) {
			pthread_mutex_lock(&names->lock);
			flight_cut_locked(flight, flight->paths->len / 2);
			names->walk_ahead = AHEAD_LEAST;
			pthread_mutex_unlock(&names->lock);
			r = -EAGAIN;
		}
		goto out;
	}
	flight_land(flight, reply);
	sbx_scan_reply_free(reply);
out:
	sbx_exec_result_clear(&result);
	sbx_scan_request_clear(&request);
	return r;
}

static void flight_plan(struct names_flight *flight)
{
	pthread_mutex_lock(&flight->names->lock);
	flight_plan_locked(flight);
	pthread_mutex_unlock(&flight->names->lock);
}

/* The first of all flights: the probe takes it along. *ret_landed: it has had its answer. */
static int flight_probe(struct names_flight *flight, const struct sbx_call *call,
			const struct sbx_probe_reply **ret_probe, bool *ret_landed)
{
	static const struct sbx_tools nothing = { "," };
	struct sbx_scan_reply *reply = NULL;
	struct sbx_scan_request request;
	int64_t asked_us;
	int r;

	r = flight_encode(flight, &nothing, &request);
	if (r == 0)
		r = names_probe_surveying(flight->names, call, &request, ret_probe, &reply,
					  &asked_us);
	if (r == 0 && reply) {
		pthread_mutex_lock(&flight->names->lock);
		flight->asked_us = asked_us;
		pthread_mutex_unlock(&flight->names->lock);
		flight_land(flight, reply);
		*ret_landed = true;
	}
	sbx_scan_reply_free(reply);
	sbx_scan_request_clear(&request);
	return r;
}

static int flight_run(void *arg)
{
	struct names_flight *flight = arg;
	struct sbx_names *names = flight->names;
	struct sbx_failure failure = { 0 };
	struct sbx_call call =
		names_own_call(names, sbx_session_options(names->session)->timeout_ms);
	const struct sbx_probe_reply *probe;
	int64_t asked_us = names_now_us();
	g_autofree char *path = NULL;
	bool landed = false;
	int r;

	pthread_mutex_lock(&names->lock);
	path = g_strdup(g_ptr_array_index(flight->paths, 0));
	pthread_mutex_unlock(&names->lock);
	call.operation = "list";
	call.path = path;
	call.failure = &failure;
	call.no_wake = flight->no_wake;
	if (flight->mode == SBX_SCAN_TREE && !sbx_names_probe_cached(names)) {
		flight_plan(flight);
		r = flight_probe(flight, &call, &probe, &landed);
	} else {
		r = sbx_names_probe(names, &call, &probe);
		if (r == 0)
			flight_plan(flight);
	}
	if (r == 0 && !landed) {
		for (int i = 0; i < TRIES_MAX; i++) {
			r = flight_send(flight, &call, &probe->tools);
			/* A lost answer of a scan is simply asked for again, once. */
			if (r != -EAGAIN && r != -E2BIG &&
			    !(r == -EIO && failure.kind == SBX_FAIL_LOST && i == 0))
				break;
		}
		if (r == -EAGAIN || r == -E2BIG)
			r = -EIO;
	}
	pthread_mutex_lock(&names->lock);
	if (r == -ESTALE)
		names->asleep_us = MAX(names->asleep_us, asked_us);
	flight->result = r;
	flight->state = FLIGHT_DONE;
	g_ptr_array_remove_fast(names->flights, flight);
	flight_unref_locked(flight);
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
	names_task_end(names);
	return 0;
}

/* A flight that will serve, new or joined, with a reference; NULL: wait, there are too many. */
static int flight_find_locked(struct sbx_names *names, enum names_ask ask, const char *path,
			      int64_t need_us, bool no_wake, struct names_flight **ret_flight)
{
	enum sbx_scan_mode mode = mode_for_locked(names, ask, path);
	bool outside = is_outside(path);
	struct names_flight *flight;
	unsigned int n_like = 0;
	int r;

	for (guint i = 0; i < names->flights->len; i++) {
		flight = g_ptr_array_index(names->flights, i);
		if (flight_is_outside(flight) != outside)
			continue;
		n_like++;
		if (flight->no_wake && !no_wake)
			continue;
		if (!outside && flight->state == FLIGHT_QUEUED && flight->mode == mode &&
		    flight->paths->len < WANTED_MAX && !flight_has(flight, path))
			flight_add(flight, path);
		if (flight_serves(flight, ask, path, need_us)) {
			flight->refs++;
			*ret_flight = flight;
			return 0;
		}
	}
	if (n_like >= (outside ? FLIGHTS_OUTSIDE_MAX : FLIGHTS_MAX)) {
		*ret_flight = NULL;
		return 0;
	}
	flight = flight_new(names, mode);
	flight->refs = 2; /* the task's and the caller's */
	flight->no_wake = no_wake;
	flight_add(flight, path);
	r = names_task_start_locked(names, flight_run, flight);
	if (r < 0) {
		flight->refs = 1;
		flight_unref_locked(flight);
		return r;
	}
	g_ptr_array_add(names->flights, flight);
	*ret_flight = flight;
	return 0;
}

int names_freshen(struct sbx_names *names, const struct sbx_call *call, enum names_ask ask,
		  const char *path, int64_t need_us)
{
	struct names_flight *flight = NULL;
	struct sbx_call own = *call;
	struct sbx_wait wait;
	int r;

	own.stall_timeout_ms = NAMES_WAIT_MS(call->stall_timeout_ms);
	r = sbx_wait_begin(&wait, &own, &names->changed, &names->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	while (r == 0 && !flight) {
		r = flight_find_locked(names, ask, path, need_us, call->no_wake, &flight);
		if (r == 0 && !flight)
			r = sbx_wait_moving(&wait, &names->moved_ms);
	}
	while (r == 0 && flight->state != FLIGHT_DONE)
		r = sbx_wait_moving(&wait, &names->moved_ms);
	if (r == 0)
		r = flight->result;
	if (r == 0)
		r = GPOINTER_TO_INT(g_hash_table_lookup(flight->errors, path));
	if (flight)
		flight_unref_locked(flight);
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	return r;
}

/* Surveys ---------------------------------------------------------------------------------- */

struct names_flight *names_survey_plan(struct sbx_names *names, const GPtrArray *dirs)
{
	struct names_flight *flight = flight_new(names, SBX_SCAN_SINCE);
	struct group group = { .flight = flight,
			       .now_us = names_now_us(),
			       .n_dirs_max = GROUP_DIRS_MAX,
			       .n_looks_max = SURVEY_LOOKS };

	flight->since_ns = INT64_MAX;
	pthread_mutex_lock(&names->lock);
	group.budget = group_budget_locked(names, group.now_us);
	for (guint i = 0; i < dirs->len && names->options.ttl_ms > 0; i++) {
		const char *path = g_ptr_array_index(dirs, i);
		struct sbx_meta_dir_info info;

		if (is_outside(path) || sbx_meta_dir_info(names->meta, path, &info) < 0)
			continue;
		if (info.validated_us >= info.floor_us && group_may_have(&group, &info))
			group_take(&group, &info);
		g_free(info.path);
	}
	flight->n_wanted = flight->paths->len;
	if (flight->n_wanted > 0) {
		sbx_meta_each_dir(names->meta, group_add_in_use, &group);
		/* Where a walk that removes or fills a tree goes on. */
		group.n_dirs_max = MIN(flight->paths->len + SURVEY_AHEAD, GROUP_DIRS_MAX);
		group.n_looked_at = 0;
		sbx_meta_each_dir_after(names->meta,
					g_ptr_array_index(flight->paths, flight->n_wanted - 1),
					group_add_known, &group);
		names->group_sent_us = group.now_us;
		flight->since_ns = MAX(flight->since_ns - SINCE_OVERLAP_NS, 1);
	}
	pthread_mutex_unlock(&names->lock);
	if (flight->n_wanted == 0)
		g_clear_pointer(&flight, names_survey_free);
	return flight;
}

const struct sbx_scan_request *names_survey_encode(struct names_flight *survey,
						   const struct sbx_tools *tools)
{
	if (!survey->request) {
		survey->request = g_new0(struct sbx_scan_request, 1);
		if (flight_encode(survey, tools, survey->request) < 0)
			g_clear_pointer(&survey->request, request_free);
	}
	return survey->request;
}

void names_survey_land_locked(struct names_flight *survey, const struct sbx_scan_reply *reply,
			      int64_t asked_us, int64_t got_us, bool steady)
{
	survey->asked_us = asked_us;
	flight_land_locked(survey, reply, got_us, steady);
}

void names_survey_free(struct names_flight *survey)
{
	if (survey)
		flight_unref_locked(survey);
}
