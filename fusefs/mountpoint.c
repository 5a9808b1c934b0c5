#include "fusefs/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void mountinfo_unescape(char *text)
{
	char *out = text;

	for (const char *in = text; *in; in++) {
		if (in[0] == '\\' && in[1] && in[2] && in[3]) {
			*out++ = (char)((in[1] - '0') << 6 | (in[2] - '0') << 3 | (in[3] - '0'));
			in += 3;
		} else {
			*out++ = *in;
		}
	}
	*out = '\0';
}

/* Is what is mounted on @path, topmost, of our type? */
static bool mountpoint_is_ours(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t size = 0;
	bool ours = false;

	if (!f)
		return false;
	while (getline(&line, &size, f) > 0) {
		/* ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [TAGS…] - TYPE SOURCE SUPER */
		char *type = strstr(line, " - ");
		char *at = line;

		for (int field = 0; at && field < 4; field++)
			at = strchr(at + 1, ' ');
		if (!at || !type)
			continue;
		at++;
		at[strcspn(at, " ")] = '\0';
		mountinfo_unescape(at);
		if (!strcmp(at, path))
			ours = g_str_has_prefix(type + 3, "fuse.sbxfs ");
	}
	free(line);
	fclose(f);
	return ours;
}

static int mountpoint_drop(const char *path)
{
	const char *argv[] = { "fusermount3", "-u", "-z", "--", path, NULL };
	int status;

	if (geteuid() == 0)
		return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
	if (!g_spawn_sync(NULL, (char **)argv, NULL,
			  G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL |
				  G_SPAWN_STDERR_TO_DEV_NULL,
			  NULL, NULL, NULL, NULL, &status, NULL) ||
	    !g_spawn_check_wait_status(status, NULL))
		return -EBUSY;
	return 0;
}

/*
 * As mountinfo has it. What is mounted there may be dead, and then it can't be looked at: not a
 * component is but those above it, and what a link itself says.
 */
static char *mountpoint_real(const char *path)
{
	g_autofree char *dir = g_path_get_dirname(path), *name = g_path_get_basename(path);
	g_autofree char *trimmed = g_build_filename(dir, name, NULL);
	char *real = realpath(trimmed, NULL), *copy;

	if (!real) {
		g_autofree char *real_dir = realpath(dir, NULL);

		return real_dir ? g_build_filename(real_dir, name, NULL) : g_strdup(path);
	}
	copy = g_strdup(real);
	free(real);
	return copy;
}

/* stat(2) of the directory to mount on, when a dead mount of ours is out of the way. */
static int mountpoint_stat(const char *path, struct stat *ret_st, char **ret_message)
{
	int r = stat(path, ret_st) < 0 ? -errno : 0;

	/* What the kernel says depends on whether it was dead or was torn down. */
	if ((r == -ENOTCONN || r == -ECONNABORTED) && mountpoint_is_ours(path)) {
		r = mountpoint_drop(path);
		if (r < 0) {
			*ret_message = g_strdup_printf("%s: a dead mount is in the way and "
						       "can't be removed: %s",
						       path, g_strerror(-r));
			return r;
		}
		r = stat(path, ret_st) < 0 ? -errno : 0;
	}
	if (r < 0)
		*ret_message = g_strdup_printf("%s: %s", path, g_strerror(-r));
	return r;
}

int mountpoint_prepare(const char *path, char **ret_real, char **ret_message)
{
	g_autofree char *real = mountpoint_real(path);
	struct stat st;
	int fd, r;

	r = mountpoint_stat(real, &st, ret_message);
	if (r < 0)
		return r;
	if (!S_ISDIR(st.st_mode)) {
		*ret_message = g_strdup_printf("%s: not a directory", real);
		return -ENOTDIR;
	}
	if (mountpoint_is_ours(real)) {
		*ret_message = g_strdup_printf("%s: sbxfs is mounted there already", real);
		return -EBUSY;
	}
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		*ret_message = g_strdup_printf("/dev/fuse: %s%s", g_strerror(-r),
					       r == -ENOENT ? " (modprobe fuse, or give the "
							      "container the device)"
							    : "");
		return r;
	}
	close(fd);
	*ret_real = g_steal_pointer(&real);
	return 0;
}
