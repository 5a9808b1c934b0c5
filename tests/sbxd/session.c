#include "tests/sbxd/session.h"
#include "tests/sbxd/archive.h"
#include "tests/sbxd/conn.h"
#include "tests/sbxd/tree.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

struct session_table {
	const struct options *opt;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a pin was released, or an archiving ended */
	GHashTable *live; /* id -> struct session *, one reference each */
	GHashTable *archiving; /* set of ids */
};

static void session_unref_locked(struct session *session)
{
	if (--session->refs > 0)
		return;
	jail_free(session->jail);
	g_free(session->id);
	g_free(session->told_root);
	g_free(session->dir);
	g_free(session->home);
	g_free(session);
}

struct session_table *session_table_new(const struct options *opt)
{
	struct session_table *table = g_new0(struct session_table, 1);
	pthread_condattr_t attr;

	table->opt = opt;
	pthread_mutex_init(&table->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&table->changed, &attr);
	pthread_condattr_destroy(&attr);
	table->live = g_hash_table_new(g_str_hash, g_str_equal);
	table->archiving = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	return table;
}

void session_table_free(struct session_table *table)
{
	GHashTableIter iter;
	gpointer session;

	g_hash_table_iter_init(&iter, table->live);
	while (g_hash_table_iter_next(&iter, NULL, &session)) {
		g_hash_table_iter_steal(&iter);
		session_unref_locked(session);
	}
	g_hash_table_destroy(table->live);
	g_hash_table_destroy(table->archiving);
	pthread_cond_destroy(&table->changed);
	pthread_mutex_destroy(&table->lock);
	g_free(table);
}

/* Ids come from URLs and become file names: everything else was never one of ours. */
static bool id_is_plausible(const char *id)
{
	size_t len = strlen(id);

	return len > 0 && len <= 64 && strspn(id, ID_CHARS) == len;
}

static char *overlay_home(const struct session_table *table, const char *id)
{
	return g_build_filename(table->opt->root, id, NULL);
}

/* In the home of an overlay session that is archived: its modification time says since when. */
static char *archived_mark(const char *home)
{
	return g_build_filename(home, "archived", NULL);
}

/* Point ROOT/by-id/ID at the workspace, so that tests find it wherever it moved. */
static void link_by_id(const struct session_table *table, const struct session *session)
{
	g_autofree char *links = g_build_filename(table->opt->root, "by-id", NULL);
	g_autofree char *path = g_build_filename(links, session->id, NULL);
	g_autofree char *fresh = g_strdup_printf("%s.%lx", path, (unsigned long)g_random_int());

	mkdir(links, 0755);
	if (symlink(session->dir, fresh) == 0 && rename(fresh, path) < 0)
		unlink(fresh);
}

static void unlink_by_id(const struct session_table *table, const char *id)
{
	g_autofree char *path = g_build_filename(table->opt->root, "by-id", id, NULL);

	unlink(path);
}

static struct session *session_new(const struct session_table *table, const char *id)
{
	struct session *session = g_new0(struct session, 1);

	session->id = g_strdup(id);
	session->profile = table->opt->profile;
	session->refs = 1;
	session->last_used_ms = conn_now_ms();
	return session;
}

/* A new empty directory for a host session; another one on every thaw. */
static int make_host_dir(const struct session_table *table, const char *id, char **ret_dir)
{
	g_autofree char *dir = g_strdup_printf("%s/%s-XXXXXX", table->opt->root, id);

	if (!mkdtemp(dir))
		return -errno;
	*ret_dir = g_steal_pointer(&dir);
	return 0;
}

static int open_given_root(struct session *session, const char *root_dir)
{
	char *real;

	if (g_mkdir_with_parents(root_dir, 0755) < 0)
		return -errno;
	real = realpath(root_dir, NULL);
	if (!real)
		return -errno;
	session->dir = g_strdup(real);
	session->given_root = true;
	free(real);
	return 0;
}

/* The directories of an overlay session; those that are there stay as they are. */
static int open_overlay_dirs(const struct session_table *table, struct session *session)
{
	static const char *const parts[] = { "workspace", "var-tmp", "root" };

	session->home = overlay_home(table, session->id);
	session->jail = jail_new(session->home);
	session->dir = g_build_filename(session->home, "workspace", NULL);
	if (mkdir(session->home, 0700) < 0 && errno != EEXIST)
		return -errno;
	for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
		g_autofree char *part = g_build_filename(session->home, parts[i], NULL);
		mode_t mode = strcmp(parts[i], "var-tmp") == 0 ? 01777 : 0700;

		if (mkdir(part, mode) == 0)
			chmod(part, mode);
		else if (errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Enter into the table; whoever is there under the id loses its place. */
static void register_live(struct session_table *table, struct session *session)
{
	struct session *old;

	if (!session->told_root)
		session->told_root = g_strdup(session->profile == PROFILE_OVERLAY ? "/home/agent"
										  : session->dir);
	link_by_id(table, session);
	pthread_mutex_lock(&table->lock);
	session->last_used_ms = conn_now_ms();
	old = g_hash_table_lookup(table->live, session->id);
	if (old) {
		g_hash_table_remove(table->live, session->id);
		session_unref_locked(old);
	}
	g_hash_table_insert(table->live, session->id, session);
	pthread_mutex_unlock(&table->lock);
}

static void session_discard(struct session *session)
{
	session_unref_locked(session);
}

int session_create(struct session_table *table, const char *root_dir, struct session **ret_session)
{
	g_autofree char *id = g_uuid_string_random();
	struct session *session = session_new(table, id);
	int err;

	if (table->opt->profile == PROFILE_OVERLAY)
		err = open_overlay_dirs(table, session);
	else if (root_dir)
		err = open_given_root(session, root_dir);
	else
		err = make_host_dir(table, id, &session->dir);
	if (err) {
		session_discard(session);
		return err;
	}
	session->refs++;
	session->pins++;
	register_live(table, session);
	*ret_session = session;
	return 0;
}

struct session *session_acquire(struct session_table *table, const char *id)
{
	struct session *session;

	pthread_mutex_lock(&table->lock);
	session = g_hash_table_lookup(table->live, id);
	if (session) {
		session->refs++;
		session->pins++;
	}
	pthread_mutex_unlock(&table->lock);
	return session;
}

void session_release(struct session_table *table, struct session *session)
{
	pthread_mutex_lock(&table->lock);
	session->pins--;
	session->last_used_ms = conn_now_ms();
	session_unref_locked(session);
	pthread_cond_broadcast(&table->changed);
	pthread_mutex_unlock(&table->lock);
}

void session_delete(struct session_table *table, const char *id)
{
	struct session *session;

	if (!id_is_plausible(id))
		return;
	pthread_mutex_lock(&table->lock);
	while (g_hash_table_contains(table->archiving, id))
		pthread_cond_wait(&table->changed, &table->lock);
	session = g_hash_table_lookup(table->live, id);
	if (session)
		g_hash_table_remove(table->live, id);
	pthread_mutex_unlock(&table->lock);

	archive_remove(table->opt, id);
	unlink_by_id(table, id);
	if (table->opt->profile == PROFILE_OVERLAY) {
		g_autofree char *home = overlay_home(table, id);

		if (session)
			jail_stop(session->jail);
		tree_remove(home);
	} else if (session && !session->given_root) {
		tree_remove(session->dir);
	}
	if (session) {
		pthread_mutex_lock(&table->lock);
		session_unref_locked(session);
		pthread_mutex_unlock(&table->lock);
	}
}

/* Bring an archived session back; NULL when there is none or it can't be. */
static struct session *thaw(struct session_table *table, const char *id)
{
	struct session *session;
	int err;

	if (table->opt->profile == PROFILE_OVERLAY) {
		g_autofree char *home = overlay_home(table, id);

		if (!g_file_test(home, G_FILE_TEST_IS_DIR))
			return NULL;
		session = session_new(table, id);
		err = open_overlay_dirs(table, session);
		if (!err) {
			g_autofree char *mark = archived_mark(home);

			unlink(mark);
		}
	} else {
		if (!archive_exists(table->opt, id))
			return NULL;
		session = session_new(table, id);
		err = make_host_dir(table, id, &session->dir);
		if (!err)
			err = archive_thaw(table->opt, id, session->dir);
		if (err && session->dir)
			tree_remove(session->dir);
	}
	if (err) {
		session_discard(session);
		return NULL;
	}
	session->refs++;
	register_live(table, session);
	return session;
}

static bool live_root(struct session_table *table, const char *id, char **ret_root)
{
	struct session *session;

	pthread_mutex_lock(&table->lock);
	while (g_hash_table_contains(table->archiving, id))
		pthread_cond_wait(&table->changed, &table->lock);
	session = g_hash_table_lookup(table->live, id);
	if (session) {
		session->last_used_ms = conn_now_ms();
		*ret_root = g_strdup(session->told_root);
	}
	pthread_mutex_unlock(&table->lock);
	return session != NULL;
}

bool session_reattach(struct session_table *table, const char *id, char **ret_root)
{
	struct session *session;

	if (!id_is_plausible(id))
		return false;
	if (live_root(table, id, ret_root))
		return true;
	session = thaw(table, id);
	if (!session) /* another thaw may have been quicker, and the archive is gone by now */
		return live_root(table, id, ret_root);
	archive_remove(table->opt, id);
	*ret_root = g_strdup(session->told_root);
	pthread_mutex_lock(&table->lock);
	session_unref_locked(session);
	pthread_mutex_unlock(&table->lock);
	return true;
}

/* Archive a session that has left the table, and whose id stands in the archiving set. */
static void archive_one(struct session_table *table, struct session *session)
{
	bool is_tar = session->profile == PROFILE_HOST && !session->given_root;
	bool keep_live = false;

	if (session->jail)
		jail_stop(session->jail);
	/* A tree that can't be archived stays live. */
	if (is_tar)
		keep_live = archive_store(table->opt, session->id, session->dir) != 0;
	if (!keep_live)
		unlink_by_id(table, session->id);
	if (is_tar && !keep_live)
		tree_remove(session->dir);
	if (session->profile == PROFILE_OVERLAY) {
		g_autofree char *mark = archived_mark(session->home);

		(void)g_file_set_contents(mark, "", 0, NULL);
	}
	pthread_mutex_lock(&table->lock);
	g_hash_table_remove(table->archiving, session->id);
	if (keep_live) {
		session->last_used_ms = conn_now_ms();
		g_hash_table_insert(table->live, session->id, session);
	} else {
		session_unref_locked(session);
	}
	pthread_cond_broadcast(&table->changed);
	pthread_mutex_unlock(&table->lock);
}

/* Take out of the table what may be archived: unpinned and idle since @before_ms. */
static GPtrArray *claim_idle(struct session_table *table, int64_t before_ms)
{
	GPtrArray *claimed = g_ptr_array_new();
	GHashTableIter iter;
	gpointer value;

	pthread_mutex_lock(&table->lock);
	g_hash_table_iter_init(&iter, table->live);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct session *session = value;

		if (session->pins > 0 || session->last_used_ms > before_ms)
			continue;
		g_hash_table_iter_steal(&iter);
		g_hash_table_add(table->archiving, g_strdup(session->id));
		g_ptr_array_add(claimed, session);
	}
	pthread_mutex_unlock(&table->lock);
	return claimed;
}

/* Remove the home of an overlay session that has been archived for too long. */
static void expire_home(struct session_table *table, const char *id)
{
	g_autofree char *home = overlay_home(table, id);
	g_autofree char *mark = archived_mark(home);
	struct timespec now;
	struct stat st;
	bool mine;

	clock_gettime(CLOCK_REALTIME, &now);
	if (stat(mark, &st) < 0 ||
	    (now.tv_sec - st.st_mtim.tv_sec) * INT64_C(1000) <= table->opt->archive_ttl_ms)
		return;
	/* Who wants it back waits meanwhile. */
	pthread_mutex_lock(&table->lock);
	mine = !g_hash_table_contains(table->live, id) &&
	       g_hash_table_add(table->archiving, g_strdup(id));
	pthread_mutex_unlock(&table->lock);
	if (!mine)
		return;
	if (stat(mark, &st) == 0)
		tree_remove(home);
	pthread_mutex_lock(&table->lock);
	g_hash_table_remove(table->archiving, id);
	pthread_cond_broadcast(&table->changed);
	pthread_mutex_unlock(&table->lock);
}

static void expire_homes(struct session_table *table)
{
	GDir *dir = g_dir_open(table->opt->root, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir)))
		if (id_is_plausible(name))
			expire_home(table, name);
	if (dir)
		g_dir_close(dir);
}

void session_sweep(struct session_table *table, int64_t idle_ms)
{
	GPtrArray *claimed = claim_idle(table, conn_now_ms() - idle_ms);

	for (guint i = 0; i < claimed->len; i++)
		archive_one(table, claimed->pdata[i]);
	g_ptr_array_free(claimed, TRUE);
	archive_expire(table->opt);
	if (table->opt->profile == PROFILE_OVERLAY)
		expire_homes(table);
}

/* Take one out of the table, the idle ones first; NULL: it is empty. Waits for one that is used. */
static struct session *claim_patiently(struct session_table *table, int64_t patience_ms)
{
	int64_t deadline_ms = conn_now_ms() + patience_ms;
	struct timespec until = { .tv_sec = deadline_ms / 1000,
				  .tv_nsec = deadline_ms % 1000 * 1000000 };
	struct session *session = NULL;
	GHashTableIter iter;
	gpointer value;
	int err = 0;

	pthread_mutex_lock(&table->lock);
	for (;;) {
		bool idle = false;

		session = NULL;
		g_hash_table_iter_init(&iter, table->live);
		while (!idle && g_hash_table_iter_next(&iter, NULL, &value)) {
			session = value;
			idle = session->pins == 0;
		}
		if (!session || idle || err)
			break;
		err = pthread_cond_timedwait(&table->changed, &table->lock, &until);
	}
	if (session) {
		g_hash_table_remove(table->live, session->id);
		g_hash_table_add(table->archiving, g_strdup(session->id));
	}
	pthread_mutex_unlock(&table->lock);
	return session;
}

void session_archive_all(struct session_table *table, int64_t patience_ms)
{
	guint tries = 0, most;
	struct session *session;

	pthread_mutex_lock(&table->lock);
	most = g_hash_table_size(table->live) + g_hash_table_size(table->archiving);
	pthread_mutex_unlock(&table->lock);
	/* One that can't be archived comes back into the table, and is left there. */
	while (tries++ < most && (session = claim_patiently(table, patience_ms)))
		archive_one(table, session);
	pthread_mutex_lock(&table->lock);
	while (g_hash_table_size(table->archiving) > 0)
		pthread_cond_wait(&table->changed, &table->lock);
	pthread_mutex_unlock(&table->lock);
}
