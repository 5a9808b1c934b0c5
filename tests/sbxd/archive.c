#include "tests/sbxd/archive.h"
#include "tests/sbxd/tarread.h"
#include "tests/sbxd/tarwrite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char *archive_path(const struct options *opt, const char *id)
{
	return g_strdup_printf("%s/%s.tar", opt->archive_dir, id);
}

bool archive_exists(const struct options *opt, const char *id)
{
	g_autofree char *path = archive_path(opt, id);

	return access(path, F_OK) == 0;
}

int archive_store(const struct options *opt, const char *id, const char *dir)
{
	g_autofree char *path = archive_path(opt, id);
	g_autofree char *fresh = g_strdup_printf("%s/.%s-XXXXXX", opt->archive_dir, id);
	g_autofree char *message = NULL;
	int fd, err;

	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = tar_write(dir, fd, &message);
	close(fd);
	if (!err && rename(fresh, path) < 0)
		err = -errno;
	if (err)
		unlink(fresh);
	return err;
}

int archive_thaw(const struct options *opt, const char *id, const char *dir)
{
	g_autofree char *path = archive_path(opt, id);
	g_autofree char *message = NULL;
	GMappedFile *map = g_mapped_file_new(path, FALSE, NULL);
	int err;

	if (!map)
		return -ENOENT;
	err = tar_extract(g_mapped_file_get_contents(map), g_mapped_file_get_length(map), dir,
			  &message);
	g_mapped_file_unref(map);
	return err;
}

void archive_remove(const struct options *opt, const char *id)
{
	g_autofree char *path = archive_path(opt, id);

	unlink(path);
}

void archive_expire(const struct options *opt)
{
	DIR *dir = opendir(opt->archive_dir);
	const struct dirent *entry;
	struct timespec now;

	if (!dir)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	while ((entry = readdir(dir))) {
		struct stat st;

		if (!g_str_has_suffix(entry->d_name, ".tar") ||
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if ((int64_t)(now.tv_sec - st.st_mtim.tv_sec) * 1000 > opt->archive_ttl_ms)
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	closedir(dir);
}
