#include "tests/sbxd/fuseless.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* Where the old root is, in the new one, until it is let go. */
#define OLD_NAME ".sbxd-old-root"
#define OLD	 "/" OLD_NAME

/* Not fusectl, which is no mount in user space. */
static bool is_fuse(const struct mntent *entry)
{
	return strncmp(entry->mnt_type, "fuse", 4) == 0 && strcmp(entry->mnt_type, "fusectl") != 0;
}

static void unmount_each(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *entry;

	while (mounts && (entry = getmntent(mounts))) {
		if (is_fuse(entry))
			umount2(entry->mnt_dir, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	if (mounts)
		endmntent(mounts);
}

/* Whether a FUSE mount is on the directory, a path in the new root, or below it. */
static bool holds_fuse(const char *dir)
{
	FILE *mounts = setmntent(OLD "/proc/self/mounts", "re");
	size_t len = strlen(dir);
	struct mntent *entry;
	bool found = false;

	while (mounts && !found && (entry = getmntent(mounts))) {
		found = is_fuse(entry) && strncmp(entry->mnt_dir, dir, len) == 0 &&
			(entry->mnt_dir[len] == '/' || entry->mnt_dir[len] == '\0');
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

static bool copy_link(const char *from, const char *to)
{
	char target[PATH_BYTES];
	ssize_t len = readlink(from, target, sizeof(target) - 1);

	if (len < 0)
		return false;
	target[len] = '\0';
	return symlink(target, to) == 0;
}

static bool bind_file(const char *from, const char *to)
{
	int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0)
		return false;
	close(fd);
	return mount(from, to, NULL, MS_BIND, NULL) == 0;
}

static bool is_in(const char *const *list, const char *path)
{
	while (*list && strcmp(*list, path) != 0)
		list++;
	return *list != NULL;
}

/* With all mounts below it, as they are locked to each other; so nothing if one is to go. */
static bool bind_dir(const char *from, const char *to, const char *const *whole)
{
	if (mkdir(to, 0755) < 0)
		return false;
	if (!is_in(whole, to) && holds_fuse(from))
		return true;
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL) == 0;
}

static bool show_entry(const char *name, const char *const *whole)
{
	char from[PATH_BYTES], to[PATH_BYTES];
	struct stat st;

	snprintf(from, sizeof(from), OLD "/%s", name);
	snprintf(to, sizeof(to), "/%s", name);
	/* Another user's FUSE mount can't even be looked at. */
	if (lstat(from, &st) < 0)
		return true;
	if (S_ISLNK(st.st_mode))
		return copy_link(from, to);
	if (S_ISDIR(st.st_mode))
		return bind_dir(from, to, whole);
	return !S_ISREG(st.st_mode) || bind_file(from, to);
}

static bool show_entries(const char *const *whole)
{
	DIR *dir = opendir(OLD);
	struct dirent *entry;
	bool good = dir != NULL;

	while (good && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			good = show_entry(entry->d_name, whole);
	}
	if (dir)
		closedir(dir);
	return good;
}

/* Show a directory that is needed, if it lies where show_entries() has left all out. */
static bool show_needed(const char *path)
{
	char from[PATH_BYTES], part[PATH_BYTES];
	size_t top_len = 1 + strcspn(path + 1, "/");

	snprintf(from, sizeof(from), OLD "%.*s", (int)top_len, path);
	if (!holds_fuse(from))
		return true;
	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return false;
		*slash = '/';
	}
	if (mkdir(part, 0755) < 0 && errno != EEXIST)
		return false;
	snprintf(from, sizeof(from), OLD "%s", path);
	/* Not with the mounts below it: the kernel refuses this if there is one. */
	return mount(from, path, NULL, MS_BIND, NULL) == 0;
}

static bool pivot(const char *new_root, const char *put_old)
{
	return syscall(SYS_pivot_root, new_root, put_old) == 0 && chdir("/") == 0;
}

/* The directory of a path; false if it is the root, or not known. */
static bool cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (path[0] != '/' || slash == path)
		return false;
	*slash = '\0';
	return true;
}

static bool change_root(const char *state, const char *const *whole)
{
	char sessions[PATH_BYTES], programs[PATH_BYTES] = "", old[PATH_BYTES];

	snprintf(sessions, sizeof(sessions), "%s", state);
	if (!cut_name(sessions) || readlink("/proc/self/exe", programs, sizeof(programs) - 1) < 0 ||
	    !cut_name(programs))
		return false;
	/* Over the state, because it is ours; the state is seen again once it is the root. */
	if (mount("tmpfs", state, "tmpfs", 0, "mode=755") < 0)
		return false;
	snprintf(old, sizeof(old), "%s/" OLD_NAME, state);
	if (mkdir(old, 0700) < 0 || !pivot(state, old)) {
		umount2(state, MNT_DETACH);
		return false;
	}
	if (show_entries(whole) && show_needed(sessions) && show_needed(programs) &&
	    umount2(OLD, MNT_DETACH) == 0) {
		rmdir(OLD);
		return true;
	}
	snprintf(old, sizeof(old), OLD "%s", state);
	if (pivot(OLD, old))
		umount2(state, MNT_DETACH);
	return false;
}

void fuseless_make(const char *state, const char *const *whole)
{
	if (geteuid() == 0 || !change_root(state, whole))
		unmount_each();
}
