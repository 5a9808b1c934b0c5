#include "client/workspace/names.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/apply.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/claims.h"
#include "client/workspace/freshen.h"
#include "client/workspace/late.h"
#include "client/workspace/mutate.h"
#include "client/workspace/names_impl.h"
#include "client/workspace/path.h"
#include "client/workspace/plain.h"
#include "client/workspace/runner.h"

#define ENTRIES_MAX 1100000
/* How often one caller asks until the store answers. Each time the asking brings what was missing,
 * unless the tree is changed at that very place; deep unknown paths take a few. */
#define ASK_MAX	       32
#define STATFS_AGE_US  (30 * INT64_C(1000000))
#define STATFS_WAIT_MS 1000
/* Who waits for a request is woken so often, while it gets on. */
#define TELL_MOVED_MS 100

int64_t names_now_us(void)
{
	return g_get_monotonic_time();
}

int64_t names_awake_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

bool names_path_is_hidden(const char *path)
{
	return sbx_path_is_within(path, SBX_WORK_DIR);
}

const char *names_wire_path(const char *path)
{
	return path[0] == '\0' ? "." : path;
}

void names_check_epoch(struct sbx_names *names)
{
	uint64_t epoch = sbx_session_epoch(names->session);

	pthread_mutex_lock(&names->lock);
	if (epoch != names->epoch) {
		names->epoch = epoch;
		sbx_meta_expire(names->meta, names_now_us());
		names->clock_known = false;
		names->no_exec = false; /* it may be another server by now */
	}
	pthread_mutex_unlock(&names->lock);
}

static void names_moved(void *arg)
{
	struct sbx_names *names = arg;

	pthread_mutex_lock(&names->lock);
	names->moved_ms = sbx_clock_ms();
	if (names->moved_ms >= names->told_moved_ms + TELL_MOVED_MS) {
		names->told_moved_ms = names->moved_ms;
		pthread_cond_broadcast(&names->changed);
	}
	pthread_mutex_unlock(&names->lock);
}

struct sbx_call names_telling(struct sbx_names *names, const struct sbx_call *call)
{
	struct sbx_call telling = *call;

	telling.moved = names_moved;
	telling.moved_arg = names;
	return telling;
}

struct sbx_call names_own_call(struct sbx_names *names, int64_t timeout_ms)
{
	const struct sbx_call call = { .cancel = names->cancel, .stall_timeout_ms = timeout_ms };

	return names_telling(names, &call);
}

int names_task_start_locked(struct sbx_names *names, int (*fn)(void *arg), void *arg)
{
	/* Uploads, which are tasks themselves, wait for what is asked here. */
	int r = sbx_task_start_now(names->pool, fn, arg, NULL, NULL);

	if (r == 0)
		names->n_tasks++;
	return r;
}

void names_task_begin(struct sbx_names *names)
{
	pthread_mutex_lock(&names->lock);
	names->n_tasks++;
	pthread_mutex_unlock(&names->lock);
}

void names_task_end(struct sbx_names *names)
{
	pthread_mutex_lock(&names->lock);
	names->n_tasks--;
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
}

static void probe_free(gpointer probe)
{
	sbx_probe_reply_free(probe);
}

int sbx_names_new(struct sbx_session *session, const struct sbx_workspace_options *options,
		  struct sbx_names **ret_names)
{
	struct sbx_names *names = g_new0(struct sbx_names, 1);

	names->cancel = sbx_cancel_new(NULL);
	if (!names->cancel || sbx_cond_init(&names->changed) < 0) {
		sbx_cancel_unref(names->cancel);
		g_free(names);
		return -ENOMEM;
	}
	pthread_mutex_init(&names->lock, NULL);
	names->session = sbx_session_ref(session);
	names->pool = sbx_session_pool(session);
	names->options = *options;
	names->meta = sbx_meta_new(ENTRIES_MAX);
	names->epoch = sbx_session_epoch(session);
	names->doubted_us = INT64_MIN;
	names->probes = g_ptr_array_new_with_free_func(probe_free);
	names->flights = g_ptr_array_new();
	names->entry_cost_us = 3.0;
	g_queue_init(&names->waiting);
	names->claims = sbx_claims_new();
	names->late = names_late_new(names);
	sbx_program_limits_init(&names->limits);
	*ret_names = names;
	return 0;
}

void sbx_names_free(struct sbx_names *names)
{
	if (!names)
		return;
	sbx_cancel_fire(names->cancel);
	names_late_stop(names->late);
	pthread_mutex_lock(&names->lock);
	names_mutate_cancel_locked(names);
	while (names->n_tasks > 0)
		pthread_cond_wait(&names->changed, &names->lock);
	pthread_mutex_unlock(&names->lock);
	sbx_meta_free(names->meta);
	sbx_claims_free(names->claims);
	names_late_free(names->late);
	g_ptr_array_unref(names->flights);
	g_free(names->walk_next);
	g_ptr_array_unref(names->probes);
	sbx_session_unref(names->session);
	sbx_cancel_unref(names->cancel);
	pthread_cond_destroy(&names->changed);
	pthread_mutex_destroy(&names->lock);
	g_free(names);
}

/* Asking ----------------------------------------------------------------------------------- */

/* How old what is shown may be: ttl, or twice what a look takes where that is more than ttl. */
static int64_t ttl_us(const struct sbx_names *names)
{
	int64_t ttl = MAX(names->options.ttl_ms, 0) * 1000;

	return ttl ? MAX(ttl, 2 * atomic_load(&names->slow_us)) : 0;
}

/* How old an answer to a caller that comes at @now_us may be. */
static int64_t oldest_us(const struct sbx_names *names, enum sbx_stat_how how, int64_t now_us)
{
	switch (how) {
	case SBX_STAT_CACHED:
		return SBX_META_ANY_AGE;
	case SBX_STAT_NOW:
		return now_us;
	case SBX_STAT_TTL:
		break;
	}
	return now_us - ttl_us(names);
}

/* For how long an answer of that age may be believed, milliseconds. */
static int64_t valid_ms(const struct sbx_names *names, int64_t seen_us)
{
	int64_t until_us;

	if (seen_us == INT64_MIN)
		return 0;
	until_us = seen_us + ttl_us(names);
	return MAX(until_us - names_now_us(), 0) / 1000;
}

/* Parts of the sandbox's root that are not shown: they are no files. */
static bool path_is_inert(const char *path)
{
	return sbx_path_is_within(path, "/proc") || sbx_path_is_within(path, "/sys") ||
	       sbx_path_is_within(path, "/dev");
}

/*
 * Have what is missing asked for: the directory that is the first @ask_len bytes of @path. The
 * sandbox's "/" is never listed, what is in it is asked for by name.
 */
static int ask_dir(struct sbx_names *names, const struct sbx_call *call, const char *path,
		   size_t ask_len, int64_t need_us)
{
	g_autofree char *dir = NULL;

	if (path[0] == '/' && ask_len <= 1) {
		dir = g_strndup(path, 1 + strcspn(path + 1, "/"));
		return names_freshen(names, call, NAMES_ASK_FILE, dir, need_us);
	}
	dir = g_strndup(path, ask_len);
	return names_freshen(names, call, NAMES_ASK_DIR, dir, need_us);
}

/*
 * Ask for what the store lacks of @path. A session that is asleep is not woken for what was known
 * of it before: nothing changes there. *asleep: it was found so, any age will do; when the store
 * still lacks something then, the session is woken.
 */
static int ask_round(struct sbx_names *names, const struct sbx_call *call, const char *path,
		     size_t ask_len, int64_t need_us, bool *asleep)
{
	struct sbx_call own = *call;
	bool known = false;
	int r;

	own.no_wake = !*asleep;
	if (own.no_wake) {
		pthread_mutex_lock(&names->lock);
		known = names->asleep_us > 0 && names->asleep_us >= need_us;
		pthread_mutex_unlock(&names->lock);
	}
	r = known ? -ESTALE : ask_dir(names, &own, path, ask_len, need_us);
	*asleep = r == -ESTALE && own.no_wake;
	return *asleep ? 0 : r;
}

int sbx_names_stat(struct sbx_names *names, const struct sbx_call *call, const char *path,
		   enum sbx_stat_how how, struct sbx_attr *ret_attr, char **ret_link,
		   int64_t *ret_valid_ms)
{
	int64_t now_us = names_now_us();
	int64_t need_us = oldest_us(names, how, now_us);
	bool asleep = false;
	struct sbx_meta_found found;
	char *link = NULL;
	int r;

	if (path[0] == '/' ? path_is_inert(path) : names_path_is_hidden(path)) {
		if (ret_valid_ms)
			*ret_valid_ms = MAX(names->options.ttl_ms, 0);
		return -ENOENT;
	}
	names_check_epoch(names);
	for (int i = 0;; i++) {
		pthread_mutex_lock(&names->lock);
		r = sbx_meta_find(names->meta, path, asleep ? SBX_META_ANY_AGE : need_us,
				  how == SBX_STAT_CACHED ? 0 : now_us, &found);
		if (r == 0 && ret_link)
			link = g_strdup(found.link);
		if (asleep)
			found.seen_us = MAX(found.seen_us, names->asleep_us);
		pthread_mutex_unlock(&names->lock);
		if (r != -EAGAIN || how == SBX_STAT_CACHED)
			break;
		if (i == ASK_MAX)
			return -EIO;
		if (!sbx_names_has_exec(names)) {
			r = names_plain_stat(names, call, path, &found.attr);
			found.seen_us = now_us;
			found.local = false;
			break;
		}
		r = ask_round(names, call, path, found.ask_len, need_us, &asleep);
		if (r == -EACCES || r == -EMSGSIZE)
			/* A directory that can be searched, not listed. */
			r = names_freshen(names, call, NAMES_ASK_FILE, path, need_us);
		/* It may just have shown that it has no exec. */
		if (r < 0 && !(r == -EOPNOTSUPP && !sbx_names_has_exec(names)))
			return r;
	}
	if (ret_valid_ms && (r == 0 || r == -ENOENT || r == -ENOTDIR))
		*ret_valid_ms = r == 0 && found.local ? 0 : valid_ms(names, found.seen_us);
	if (r == 0) {
		*ret_attr = found.attr;
		if (ret_link)
			*ret_link = link;
	}
	return r;
}

int sbx_names_list(struct sbx_names *names, const struct sbx_call *call, const char *path,
		   struct sbx_listing **ret_listing)
{
	int64_t now_us = names_now_us();
	int64_t need_us = oldest_us(names, SBX_STAT_TTL, now_us);
	bool asleep = false;
	struct sbx_listing *listing = NULL;
	int64_t seen_us = INT64_MIN;
	size_t ask_len = 0;
	int r;

	if (path[0] == '/' ? path_is_inert(path) : names_path_is_hidden(path))
		return -ENOENT;
	if (strcmp(path, "/") == 0)
		return -EACCES;
	names_check_epoch(names);
	for (int i = 0;; i++) {
		pthread_mutex_lock(&names->lock);
		r = sbx_meta_list(names->meta, path, asleep ? SBX_META_ANY_AGE : need_us, now_us,
				  &listing, &seen_us, &ask_len);
		if (asleep)
			seen_us = MAX(seen_us, names->asleep_us);
		pthread_mutex_unlock(&names->lock);
		if (r != -EAGAIN)
			break;
		if (i == ASK_MAX)
			return -EIO;
		if (sbx_names_has_exec(names)) {
			r = ask_round(names, call, path, ask_len, need_us, &asleep);
			if (r == -EOPNOTSUPP && !sbx_names_has_exec(names))
				r = 0;
			else if (r == -EMSGSIZE && path[0] != '/')
				r = names_plain_list(names, call, path);
		} else {
			r = names_plain_list(names, call, path);
		}
		if (r < 0)
			return r;
	}
	if (r == 0) {
		listing->valid_ms = valid_ms(names, seen_us);
		*ret_listing = listing;
	}
	return r;
}

int sbx_names_list_known(struct sbx_names *names, const char *path,
			 struct sbx_listing **ret_listing)
{
	int64_t seen_us;
	size_t ask_len;
	int r;

	if (path[0] == '/' || names_path_is_hidden(path))
		return -ENOENT;
	pthread_mutex_lock(&names->lock);
	r = sbx_meta_list(names->meta, path, SBX_META_ANY_AGE, 0, ret_listing, &seen_us, &ask_len);
	pthread_mutex_unlock(&names->lock);
	return r;
}

int sbx_names_remote_attr(struct sbx_names *names, const char *path, struct sbx_attr *ret_attr)
{
	int r;

	pthread_mutex_lock(&names->lock);
	r = sbx_meta_remote(names->meta, path, ret_attr);
	pthread_mutex_unlock(&names->lock);
	return r;
}

char *sbx_names_other_name(struct sbx_names *names, const char *path, struct sbx_attr *ret_attr)
{
	char *other;

	pthread_mutex_lock(&names->lock);
	other = sbx_meta_other_name(names->meta, path, ret_attr);
	pthread_mutex_unlock(&names->lock);
	return other;
}

void sbx_names_set_local(struct sbx_names *names, const char *path, const struct sbx_attr *attr)
{
	pthread_mutex_lock(&names->lock);
	sbx_meta_set_local(names->meta, path, attr);
	pthread_mutex_unlock(&names->lock);
}

void sbx_names_clear_local(struct sbx_names *names, const char *path)
{
	pthread_mutex_lock(&names->lock);
	sbx_meta_clear_local(names->meta, path);
	pthread_mutex_unlock(&names->lock);
}

void sbx_names_saw(struct sbx_names *names, const char *path, const struct sbx_attr *attr,
		   int64_t asked_ms)
{
	/* What was set aside has no name here, nor has what lost it while it was looked at. */
	if (names_path_is_hidden(path) || (attr && attr->nlink == 0))
		return;
	pthread_mutex_lock(&names->lock);
	sbx_meta_saw(names->meta, path, attr, NULL, asked_ms * 1000, names_now_us());
	pthread_mutex_unlock(&names->lock);
}

void sbx_names_refresh(struct sbx_names *names)
{
	pthread_mutex_lock(&names->lock);
	names->doubted_us = names_now_us();
	sbx_meta_expire(names->meta, names->doubted_us);
	names->statfs_us = 0;
	pthread_mutex_unlock(&names->lock);
}

/* statfs ----------------------------------------------------------------------------------- */

static int statfs_ask(struct sbx_names *names, struct sbx_statfs *ret_statfs)
{
	struct sbx_call call =
		names_own_call(names, sbx_session_options(names->session)->timeout_ms);
	const struct sbx_probe_reply *probe;
	struct sbx_program_limits limits;
	struct sbx_probe_request request;
	struct sbx_exec_result result = { 0 };
	int r = sbx_names_probe(names, &call, &probe);

	if (r < 0)
		return r;
	sbx_names_limits(names, &limits);
	r = sbx_statfs_request_init(&request, &probe->tools, &limits);
	if (r == 0)
		r = sbx_names_run(names, &call, call.stall_timeout_ms,
				  sbx_program_request_argv(&request.program), true, &result);
	if (r == 0) {
		r = sbx_statfs_decode(&request, result.out, result.out_len, ret_statfs);
		if (r < 0)
			r = sbx_names_bad_answer(names, "statfs", r, &result);
	}
	sbx_exec_result_clear(&result);
	sbx_probe_request_clear(&request);
	return r;
}

static int statfs_run(void *arg)
{
	struct sbx_names *names = arg;
	struct sbx_statfs statfs = { 0 };
	int64_t asked_us = names_now_us();
	int r = statfs_ask(names, &statfs);

	pthread_mutex_lock(&names->lock);
	if (r == 0 && statfs.known)
		names->statfs = statfs;
	/* Also after a failure: it is not asked for at every call. */
	names->statfs_us = asked_us;
	names->statfs_asking = false;
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
	names_task_end(names);
	return 0;
}

static bool session_is_live(struct sbx_session *session)
{
	struct sbx_session_info info;
	bool live;

	sbx_session_info(session, &info);
	live = info.state == SBX_SESSION_LIVE;
	sbx_session_info_done(&info);
	return live;
}

int sbx_names_statfs(struct sbx_names *names, const struct sbx_call *call, struct statvfs *ret_st)
{
	struct statvfs st = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255 };
	bool live = session_is_live(names->session) && sbx_names_has_exec(names);
	struct sbx_call own = *call;
	struct sbx_wait wait;
	int r;

	own.stall_timeout_ms = STATFS_WAIT_MS;
	r = sbx_wait_begin(&wait, &own, &names->changed, &names->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	if (live && !names->statfs_asking &&
	    (names->statfs_us == 0 || names_now_us() - names->statfs_us > STATFS_AGE_US))
		names->statfs_asking = names_task_start_locked(names, statfs_run, names) == 0;
	while (r == 0 && names->statfs_asking)
		r = sbx_wait_for(&wait);
	if (r == -ETIMEDOUT)
		r = 0; /* what is known will do */
	if (r == 0 && names->statfs.known) {
		st.f_bsize = st.f_frsize = names->statfs.block_bytes;
		st.f_blocks = names->statfs.blocks;
		st.f_bfree = names->statfs.blocks_free;
		st.f_bavail = names->statfs.blocks_avail;
		st.f_files = names->statfs.files;
		st.f_ffree = st.f_favail = names->statfs.files_free;
		if (names->statfs.name_max > 0)
			st.f_namemax = names->statfs.name_max;
	}
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	if (r == 0)
		*ret_st = st;
	return r;
}
