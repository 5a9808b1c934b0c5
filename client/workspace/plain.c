#include "client/workspace/plain.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/errlog.h"
#include "client/provider.h"
#include "client/record.h"
#include "client/session.h"
#include "client/workspace/names_impl.h"

/* Entries of a listing whose attributes are asked for at once: a program that lists wants them as
 * a rule. The others are asked for one by one. */
#define PREFETCH_MAX 256

static int slot_take(struct sbx_names *names, const struct sbx_call *call)
{
	struct sbx_wait wait;
	int r = sbx_wait_begin(&wait, call, &names->changed, &names->lock);

	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	while (r == 0 && names->n_plain >= PLAIN_PARALLEL)
		r = sbx_wait_moving(&wait, &names->moved_ms);
	if (r == 0)
		names->n_plain++;
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	return r;
}

static void slot_give(struct sbx_names *names)
{
	pthread_mutex_lock(&names->lock);
	names->n_plain--;
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
}

static void attr_of_stat(const struct sbx_stat *st, struct sbx_attr *ret_attr)
{
	struct sbx_attr attr = {
		.size = (uint64_t)MAX(st->size, 0),
		.mtime_ns = sbx_record_time(st->mtime.tv_sec, st->mtime.tv_nsec),
		.nlink = 1,
		.has_ns = true,
	};

	attr.blocks = (attr.size + 511) / 512;
	switch (st->kind) {
	case SBX_KIND_FILE:
		attr.mode = S_IFREG | (st->mode & 07777);
		break;
	case SBX_KIND_DIRECTORY:
		attr.mode = S_IFDIR | (st->mode & 07777);
		attr.nlink = 2;
		break;
	case SBX_KIND_OTHER:
		attr.mode = (st->size > 0 ? S_IFLNK : S_IFIFO) | (st->mode & 07777);
		break;
	}
	*ret_attr = attr;
}

int names_plain_stat(struct sbx_names *names, const struct sbx_call *call, const char *path,
		     struct sbx_attr *ret_attr)
{
	const struct sbx_call telling = names_telling(names, call);
	struct sbx_stat st;
	struct sbx_attr attr;
	int64_t asked_us;
	int r;

	if (path[0] == '/')
		return -EOPNOTSUPP;
	r = slot_take(names, call);
	if (r < 0)
		return r;
	asked_us = names_now_us();
	r = sbx_session_stat(names->session, &telling, names_wire_path(path), &st);
	slot_give(names);
	if (r == 0)
		attr_of_stat(&st, &attr);
	if (r == 0 || r == -ENOENT) {
		pthread_mutex_lock(&names->lock);
		sbx_meta_saw(names->meta, path, r == 0 ? &attr : NULL, NULL, asked_us,
			     names_now_us());
		pthread_mutex_unlock(&names->lock);
	}
	if (r == 0)
		*ret_attr = attr;
	return r == -EILSEQ ? -EOPNOTSUPP : r;
}

void names_plain_doubt(struct sbx_names *names, const char *path)
{
	pthread_mutex_lock(&names->lock);
	sbx_meta_doubt(names->meta, path);
	pthread_mutex_unlock(&names->lock);
}

/* Attributes of many ------------------------------------------------------------------------ */

struct prefetch {
	struct sbx_names *names;
	unsigned int refs; /* the tasks' and the caller's; by names->lock */
	unsigned int n_running;
	GPtrArray *paths; /* fixed */
	guint next;
};

static void prefetch_unref_locked(struct prefetch *prefetch)
{
	if (--prefetch->refs > 0)
		return;
	g_ptr_array_unref(prefetch->paths);
	g_free(prefetch);
}

static int prefetch_run(void *arg)
{
	struct prefetch *prefetch = arg;
	struct sbx_names *names = prefetch->names;
	struct sbx_call call =
		names_own_call(names, sbx_session_options(names->session)->timeout_ms);

	pthread_mutex_lock(&names->lock);
	while (prefetch->next < prefetch->paths->len) {
		const char *path = g_ptr_array_index(prefetch->paths, prefetch->next++);
		struct sbx_attr attr;
		int r;

		pthread_mutex_unlock(&names->lock);
		r = names_plain_stat(names, &call, path, &attr);
		pthread_mutex_lock(&names->lock);
		/* What fails for one may fail for all: who needs them will see. */
		if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP)
			prefetch->next = prefetch->paths->len;
	}
	prefetch->n_running--;
	prefetch_unref_locked(prefetch);
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
	names_task_end(names);
	return 0;
}

/* Takes @paths. Waits until they are known, or the call ends. */
static int prefetch_all(struct sbx_names *names, const struct sbx_call *call, GPtrArray *paths)
{
	struct prefetch *prefetch;
	struct sbx_wait wait;
	int r = sbx_wait_begin(&wait, call, &names->changed, &names->lock);

	if (r < 0) {
		g_ptr_array_unref(paths);
		return r;
	}
	prefetch = g_new0(struct prefetch, 1);
	prefetch->names = names;
	prefetch->paths = paths;
	prefetch->refs = 1;
	pthread_mutex_lock(&names->lock);
	for (guint i = 0; i < MIN(paths->len, PLAIN_PARALLEL); i++) {
		if (names_task_start_locked(names, prefetch_run, prefetch) < 0)
			break;
		prefetch->refs++;
		prefetch->n_running++;
	}
	while (r == 0 && prefetch->n_running > 0)
		r = sbx_wait_moving(&wait, &names->moved_ms);
	prefetch_unref_locked(prefetch);
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	return r;
}

/* Listing ---------------------------------------------------------------------------------- */

struct listed {
	struct sbx_names *names;
	const char *path;
	GPtrArray *found; /* char *, names */
};

static int listed_entry(void *arg, const char *name, bool is_directory)
{
	struct listed *listed = arg;

	(void)is_directory;
	if (listed->path[0] != '\0' || !names_path_is_hidden(name))
		g_ptr_array_add(listed->found, g_strdup(name));
	return 0;
}

static void listed_refused(void *arg, const char *escaped_name)
{
	struct listed *listed = arg;
	struct sbx_failure failure = { 0 };

	/* Escaped by the layer below, and not once more by the log. */
	g_snprintf(failure.message, sizeof(failure.message),
		   "a name that can't be one was refused: %s", escaped_name);
	sbx_errlog_failure(sbx_session_errors(listed->names->session), "readdir", listed->path,
			   -EIO, &failure);
}

int names_plain_list(struct sbx_names *names, const struct sbx_call *call, const char *path)
{
	const struct sbx_call telling = names_telling(names, call);
	g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(g_free);
	struct listed listed = { .names = names, .path = path, .found = found };
	struct sbx_dir_sink sink = {
		.entry = listed_entry,
		.refused = listed_refused,
		.arg = &listed,
	};
	static const struct sbx_attr unknown;
	struct sbx_meta_listing *listing;
	struct sbx_attr attr;
	GPtrArray *wanted;
	int64_t asked_us;
	int r;

	r = names_plain_stat(names, call, path, &attr);
	if (r < 0)
		return r;
	if (!S_ISDIR(attr.mode))
		return -ENOTDIR;
	r = slot_take(names, call);
	if (r < 0)
		return r;
	asked_us = names_now_us();
	r = sbx_session_readdir(names->session, &telling, names_wire_path(path), &sink);
	slot_give(names);
	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	listing = sbx_meta_listing_begin(names->meta, path, true, asked_us, names_now_us());
	for (guint i = 0; listing && i < found->len; i++)
		(void)sbx_meta_listing_add(listing, g_ptr_array_index(found, i), &unknown, NULL);
	if (listing)
		sbx_meta_listing_end(listing, 0);
	pthread_mutex_unlock(&names->lock);

	wanted = g_ptr_array_new_with_free_func(g_free);
	for (guint i = 0; i < MIN(found->len, PREFETCH_MAX); i++)
		g_ptr_array_add(wanted, g_strconcat(path, path[0] ? "/" : "",
						    g_ptr_array_index(found, i), NULL));
	/* The names are there; attributes that could not be had are asked for by who needs them. */
	r = prefetch_all(names, call, wanted);
	return r == -EINTR ? r : 0;
}
