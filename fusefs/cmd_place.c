#include "fusefs/cmd_place.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <glib.h>

#define FUSE_MAGIC 0x65735546

static bool has(const char *dir, const char *name, mode_t type)
{
	g_autofree char *path = g_build_filename(dir, name, NULL);
	struct stat st;

	return lstat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

/* A workspace may hold directories of any name, but not of these that no listing shows. */
static bool is_session(const char *dir)
{
	struct statfs st;

	return statfs(dir, &st) == 0 && st.f_type == FUSE_MAGIC &&
	       has(dir, ".sbxfs-root", S_IFDIR) && has(dir, "fs", S_IFDIR) &&
	       has(dir, "jobs/new", S_IFREG);
}

/* @path is @top or below it. */
static bool is_at(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

int cmd_place_find(const char *path, struct cmd_place *ret_place)
{
	g_autofree char *dir = realpath(path, NULL);
	g_autofree char *session = NULL;
	const char *inside;
	struct stat st;

	if (!dir || stat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		*strrchr(dir, '/') = '\0';
	session = g_strdup(dir);
	while (!is_session(session)) {
		char *slash = strrchr(session, '/');

		if (!slash)
			return -ENOTTY;
		*slash = '\0';
	}
	inside = dir + strlen(session);
	ret_place->is_ours = !is_at(inside, "/fs") && !is_at(inside, "/.sbxfs-root");
	if (strncmp(inside, "/fs/", 4) == 0)
		ret_place->cwd = g_strdup(inside + 4);
	else if (is_at(inside, "/.sbxfs-root"))
		ret_place->cwd = g_strdup(inside[12] ? inside + 12 : "/");
	else
		ret_place->cwd = g_strdup(".");
	ret_place->session = g_steal_pointer(&session);
	return 0;
}

void cmd_place_done(struct cmd_place *place)
{
	g_free(place->session);
	g_free(place->cwd);
}

char **cmd_place_mounts(void)
{
	GPtrArray *mounts = g_ptr_array_new();
	struct mntent *entry;
	FILE *table = setmntent("/proc/self/mounts", "re");

	while (table && (entry = getmntent(table)))
		if (strcmp(entry->mnt_type, "fuse.sbxfs") == 0)
			g_ptr_array_add(mounts, g_strdup(entry->mnt_dir));
	if (table)
		endmntent(table);
	g_ptr_array_add(mounts, NULL);
	return (char **)g_ptr_array_free(mounts, FALSE);
}

char *cmd_place_value(const char *file, const char *key)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;
	size_t len = strlen(key);

	if (!g_file_get_contents(file, &text, NULL, NULL))
		return NULL;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++)
		if (strncmp(*line, key, len) == 0 && (*line)[len] == ':')
			return g_strdup(g_strstrip(*line + len + 1));
	return NULL;
}
