#include "tests/sbxd/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)at;
	if (kind == FTW_DNR)
		chmod(path, 0700);
	remove(path);
	return 0;
}

void tree_remove(const char *path)
{
	struct stat st;

	/* Again where a directory could not be read at first, or a command still writes. */
	for (int tries = 0; tries < 4 && lstat(path, &st) == 0; tries++)
		nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

int tree_make_dirs(const char *path)
{
	g_autofree char *parent = NULL;
	struct stat st;
	int err;

	if (mkdir(path, 0755) == 0)
		return 0;
	if (errno == EACCES || errno == EPERM || errno == ENOSPC || errno == ENOTDIR)
		return -errno;
	if (errno != ENOENT)
		return stat(path, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -EEXIST;
	parent = g_path_get_dirname(path);
	if (strcmp(parent, path) == 0)
		return -ENOENT;
	err = tree_make_dirs(parent);
	if (err)
		return err == -EEXIST ? -ENOTDIR : err;
	return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

int tree_open_unnamed(const char *dir)
{
	g_autofree char *path = NULL;
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	/* Not every file system can make one without a name. */
	path = g_build_filename(dir, ".spool-XXXXXX", NULL);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}
