#include "fusefs/snapshotdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "client/session.h"
#include "client/statedir.h"
#include "fusefs/ino.h"
#include "fusefs/op.h"
#include "fusefs/synth.h"

#define SNAPSHOTS "snapshots"

/* A tag of its own for names in snapshots/. */
static uint64_t number_of(const char *name)
{
	return UINT64_C(0xfffffffd00000000) | g_str_hash(name);
}

/* A directory of the state directory; NULL when there is none. */
static DIR *open_directory(struct fs *fs, const char *relative)
{
	int fd = openat(sbx_statedir_fd(fs->parts.statedir), relative,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

char *snapshot_newest(struct fs *fs, const char *name)
{
	g_autofree char *relative = g_strconcat(SNAPSHOTS "/", name, NULL);
	g_autofree char *newest = NULL;
	time_t newest_time = 0;
	struct dirent *dirent;
	struct stat st;
	DIR *dir = open_directory(fs, relative);

	while (dir && (dirent = readdir(dir))) {
		size_t len = strlen(dirent->d_name);

		if (dirent->d_name[0] == '.' || !g_str_has_suffix(dirent->d_name, ".tar") ||
		    fstatat(dirfd(dir), dirent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (newest && st.st_mtime < newest_time))
			continue;
		g_free(newest);
		newest = g_strndup(dirent->d_name, len - 4);
		newest_time = st.st_mtime;
	}
	if (dir)
		closedir(dir);
	if (!newest)
		return NULL;
	return g_strdup_printf("%s, %8lld s old", newest, (long long)(time(NULL) - newest_time));
}

/* Names in the state directory's @relative, as a set. Empty when there is no such directory. */
static GHashTable *names_in(struct op *op, const char *relative)
{
	GHashTable *names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	DIR *dir = open_directory(op->fs, relative);
	struct dirent *dirent;

	if (!dir)
		return names;
	while ((dirent = readdir(dir)))
		if (dirent->d_name[0] != '.')
			g_hash_table_add(names, g_strdup(dirent->d_name));
	closedir(dir);
	return names;
}

static GHashTable *session_names(struct op *op)
{
	GHashTable *names = names_in(op, SNAPSHOTS);
	g_auto(GStrv) sessions = sbx_sessions_list(op->fs->parts.sessions);

	for (char **name = sessions; *name; name++)
		g_hash_table_add(names, g_strdup(*name));
	return names;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_names(GHashTable *names, mode_t type, struct dirsnap **ret_snap)
{
	g_autofree char **sorted = NULL;
	struct synth_snap *snap = synth_snap_new();
	guint n;

	sorted = (char **)g_hash_table_get_keys_as_array(names, &n);
	if (n > 0)
		qsort(sorted, n, sizeof(*sorted), compare_names);
	for (guint i = 0; i < n; i++)
		synth_snap_add(snap, sorted[i], type, number_of(sorted[i]));
	*ret_snap = synth_snap_done(snap);
	return 0;
}

static int snapshot_getattr(struct op *op, struct node *node, struct stat *ret_st,
			    int64_t *ret_valid_ms)
{
	op_own_dir(op, node, 0700, number_of(node->name), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int snapshot_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_autoptr(GHashTable) names = NULL;
	g_autofree char *relative = g_strconcat(SNAPSHOTS "/", dir->name, NULL);

	names = names_in(op, relative);
	return list_names(names, S_IFREG, ret_snap);
}

/* snapshots/NAME. It follows the name, not the session, so it is never renamed. */
static const struct node_class snapshot_class = {
	.getattr = snapshot_getattr,
	.list = snapshot_list,
};

static int snapshots_getattr(struct op *op, struct node *node, struct stat *ret_st,
			     int64_t *ret_valid_ms)
{
	op_own_dir(op, node, 0700, ino_own(0, 7), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int snapshots_lookup(struct op *op, struct node *dir, const char *name,
			    struct entry *ret_entry)
{
	const struct node_spec spec = { .class = &snapshot_class, .type = S_IFDIR };
	g_autoptr(GHashTable) names = session_names(op);
	struct entry entry = { .entry_valid_ms = op->fs->config.ttl_ms };
	int r;

	if (!g_hash_table_contains(names, name))
		return -ENOENT;
	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	(void)snapshot_getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	*ret_entry = entry;
	return 0;
}

static int snapshots_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_autoptr(GHashTable) names = session_names(op);

	(void)dir;
	return list_names(names, S_IFDIR, ret_snap);
}

const struct node_class snapshots_class = {
	.lookup = snapshots_lookup,
	.getattr = snapshots_getattr,
	.list = snapshots_list,
};
