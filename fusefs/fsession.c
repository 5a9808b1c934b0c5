#include "fusefs/fsession.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <glib.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/snapshot/snapshot.h"
#include "client/snapshot/thaw.h"
#include "client/workspace/workspace.h"
#include "fusefs/fs.h"
#include "fusefs/scratch.h"
#include "fusefs/sessionjobs.h"

struct fsessions {
	struct fs *fs;
	pthread_mutex_t lock;
	pthread_cond_t made; /* one of making */
	GHashTable *by_session; /* struct sbx_session to struct fsession, one reference each */
	GHashTable *making; /* set of struct sbx_session whose fsession some thread makes */
	unsigned int last_index; /* atomic */
};

struct fsessions *fsessions_new(struct fs *fs)
{
	struct fsessions *table = g_new0(struct fsessions, 1);

	table->fs = fs;
	pthread_mutex_init(&table->lock, NULL);
	pthread_cond_init(&table->made, NULL);
	table->by_session = g_hash_table_new(NULL, NULL);
	table->making = g_hash_table_new(NULL, NULL);
	return table;
}

/* The sandbox slept and is back: what that took away is put back before others go on. */
static void thawed(void *arg, const struct sbx_call *call)
{
	struct fsession *fsession = arg;
	g_autofree char *message = NULL;
	int r = sbx_snapshot_mend_thaw(fsession->ws, call, &message);

	if (r < 0)
		sbx_errlog_note(sbx_session_errors(fsession->session), "thaw", NULL, r,
				message ? message : "");
	sbx_session_set_note(fsession->session, message);
}

static int fsession_new(struct fsessions *table, struct sbx_session *session,
			struct fsession **ret_fsession)
{
	const struct fs_config *config = &table->fs->config;
	const struct sbx_workspace_options options = {
		.ttl_ms = config->ttl_ms,
		.use_exec = config->use_exec,
		.read_only = config->read_only,
		.cache_on_disk = config->cache_on_disk,
		.cache_size_bytes = config->content_cache_bytes,
	};
	struct fsession *fsession = g_new0(struct fsession, 1);
	int r;

	r = sbx_workspace_new(session, &options, &fsession->ws);
	if (r < 0) {
		g_free(fsession);
		return r;
	}
	fsession->refs = 1;
	fsession->index = __atomic_add_fetch(&table->last_index, 1, __ATOMIC_RELAXED);
	fsession->fs = table->fs;
	fsession->session = sbx_session_ref(session);
	fsession->jobs = session_jobs_new(fsession);
	fsession->scratch = scratch_set_new();
	verb_slot_init(&fsession->verb);
	fsession->thaw = sbx_thaw_watch_new(fsession->ws);
	if (config->use_exec && !config->read_only)
		sbx_session_on_thaw(session, thawed, fsession);
	*ret_fsession = fsession;
	return 0;
}

struct fsession *fsession_ref(struct fsession *fsession)
{
	if (fsession)
		__atomic_add_fetch(&fsession->refs, 1, __ATOMIC_RELAXED);
	return fsession;
}

void fsession_unref(struct fsession *fsession)
{
	if (!fsession || __atomic_sub_fetch(&fsession->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	sbx_session_on_thaw(fsession->session, NULL, NULL);
	sbx_thaw_watch_free(fsession->thaw);
	session_jobs_free(fsession->jobs);
	sbx_workspace_free(fsession->ws);
	sbx_session_unref(fsession->session);
	scratch_set_unref(fsession->scratch);
	verb_slot_done(&fsession->verb);
	g_free(fsession);
}

void fsessions_free(struct fsessions *table)
{
	GHashTableIter iter;
	gpointer fsession;

	if (!table)
		return;
	g_hash_table_iter_init(&iter, table->by_session);
	while (g_hash_table_iter_next(&iter, NULL, &fsession))
		fsession_unref(fsession);
	g_hash_table_unref(table->by_session);
	g_hash_table_unref(table->making);
	pthread_cond_destroy(&table->made);
	pthread_mutex_destroy(&table->lock);
	g_free(table);
}

/* The one that there is, when it is made; NULL: none. */
static struct fsession *find_locked(struct fsessions *table, struct sbx_session *session)
{
	while (g_hash_table_contains(table->making, session))
		pthread_cond_wait(&table->made, &table->lock);
	return g_hash_table_lookup(table->by_session, session);
}

int fsessions_get(struct fsessions *table, struct sbx_session *session,
		  struct fsession **ret_fsession)
{
	struct fsession *fsession;
	int r = 0;

	pthread_mutex_lock(&table->lock);
	fsession = find_locked(table, session);
	if (!fsession) {
		g_hash_table_add(table->making, session);
		pthread_mutex_unlock(&table->lock);
		r = fsession_new(table, session, &fsession);
		pthread_mutex_lock(&table->lock);
		g_hash_table_remove(table->making, session);
		if (r == 0)
			g_hash_table_insert(table->by_session, session, fsession);
		pthread_cond_broadcast(&table->made);
	}
	if (r == 0)
		*ret_fsession = fsession_ref(fsession);
	pthread_mutex_unlock(&table->lock);
	return r;
}

int fsessions_find(struct fsessions *table, const char *name, struct fsession **ret_fsession)
{
	struct sbx_session *session = sbx_sessions_find(table->fs->parts.sessions, name);
	int r;

	if (!session)
		return -ENOENT;
	r = fsessions_get(table, session, ret_fsession);
	sbx_session_unref(session);
	return r;
}

void fsessions_drop(struct fsessions *table, struct sbx_session *session)
{
	struct fsession *fsession;

	pthread_mutex_lock(&table->lock);
	fsession = find_locked(table, session);
	if (fsession)
		g_hash_table_remove(table->by_session, session);
	pthread_mutex_unlock(&table->lock);
	fsession_unref(fsession);
}

struct fsession **fsessions_all(struct fsessions *table, size_t *ret_n)
{
	struct fsession **all;
	GHashTableIter iter;
	gpointer fsession;
	size_t n = 0;

	pthread_mutex_lock(&table->lock);
	all = g_new0(struct fsession *, g_hash_table_size(table->by_session) + 1);
	g_hash_table_iter_init(&iter, table->by_session);
	while (g_hash_table_iter_next(&iter, NULL, &fsession))
		all[n++] = fsession_ref(fsession);
	pthread_mutex_unlock(&table->lock);
	*ret_n = n;
	return all;
}

unsigned int fsession_index(const struct fsession *fsession)
{
	return fsession ? fsession->index : 0;
}

uint32_t fsession_epoch(const struct fsession *fsession)
{
	return fsession ? (uint32_t)sbx_session_epoch(fsession->session) : 0;
}

bool fsession_admit(struct fsession *fsession)
{
	if (__atomic_add_fetch(&fsession->busy, 1, __ATOMIC_RELAXED) <= FS_MAX_THREADS_SESSION)
		return true;
	fsession_leave(fsession);
	return false;
}

void fsession_leave(struct fsession *fsession)
{
	__atomic_sub_fetch(&fsession->busy, 1, __ATOMIC_RELAXED);
}
