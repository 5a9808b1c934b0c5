#include "client/statedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/localfile.h"

struct sbx_statedir {
	char *path;
	char *cache_path;
	int fd;
	int cache_fd;
	_Atomic uint64_t logs_bytes;
};

/* Home of the user who runs us, by HOME when it is set to an absolute path, else by the
 * database. */
static char *statedir_home(void)
{
	const char *home = getenv("HOME");
	struct passwd pw, *found = NULL;
	char buf[4096];

	if (home && home[0] == '/')
		return g_strdup(home);
	if (getpwuid_r(getuid(), &pw, buf, sizeof(buf), &found) == 0 && found &&
	    found->pw_dir[0] == '/')
		return g_strdup(found->pw_dir);
	return NULL;
}

/* @given, else $@variable/sbxfs, else ~/@below_home/sbxfs, else @system. */
static char *statedir_choose(const char *given, const char *variable, const char *below_home,
			     const char *system_dir)
{
	const char *base = getenv(variable);
	g_autofree char *home = NULL;

	if (given)
		return g_strdup(given);
	if (base && base[0] == '/')
		return g_build_filename(base, "sbxfs", NULL);
	home = statedir_home();
	if (home && strcmp(home, "/") != 0)
		return g_build_filename(home, below_home, "sbxfs", NULL);
	return g_strdup(system_dir);
}

/* A directory of ours that nobody else may write in, or -EPERM. */
static int statedir_check(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 0022))
		return -EPERM;
	return 0;
}

/* One component below @dirfd, made when missing, never through a link. */
static int statedir_step(int dirfd, const char *name)
{
	int fd, r;

	if (!name[0] || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
		return -EINVAL;
	if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = statedir_check(fd);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static int statedir_open_one(const char *base, const char *endpoint_dirname, char **ret_path,
			     int *ret_fd, char **ret_message)
{
	int base_fd = -1, fd = -1, r;

	if (base[0] != '/') {
		*ret_message = g_strdup_printf("%s: not an absolute path", base);
		return -EINVAL;
	}
	if (g_mkdir_with_parents(base, 0700) < 0) {
		r = -errno;
		goto fail;
	}
	base_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (base_fd < 0) {
		r = -errno;
		goto fail;
	}
	r = statedir_check(base_fd);
	if (r < 0)
		goto fail;
	fd = statedir_step(base_fd, endpoint_dirname);
	if (fd < 0) {
		r = fd;
		goto fail;
	}
	close(base_fd);
	*ret_path = g_build_filename(base, endpoint_dirname, NULL);
	*ret_fd = fd;
	return 0;
fail:
	if (base_fd >= 0)
		close(base_fd);
	*ret_message = r == -EPERM
			       ? g_strdup_printf("%s: belongs to another user or others may write "
						 "in it",
						 base)
			       : g_strdup_printf("%s: %s", base, g_strerror(-r));
	return r;
}

int sbx_statedir_open(const char *state_dir, const char *cache_dir, const char *endpoint_dirname,
		      struct sbx_statedir **ret_dir, char **ret_message)
{
	g_autofree char *state =
		statedir_choose(state_dir, "XDG_STATE_HOME", ".local/state", "/var/lib/sbxfs");
	g_autofree char *cache =
		statedir_choose(cache_dir, "XDG_CACHE_HOME", ".cache", "/var/cache/sbxfs");
	struct sbx_statedir *dir = g_new0(struct sbx_statedir, 1);
	static const char *const subdirs[] = { "sessions", "snapshots" };
	int r;

	dir->fd = dir->cache_fd = -1;
	r = statedir_open_one(state, endpoint_dirname, &dir->path, &dir->fd, ret_message);
	if (r < 0)
		goto fail;
	r = statedir_open_one(cache, endpoint_dirname, &dir->cache_path, &dir->cache_fd,
			      ret_message);
	if (r < 0)
		goto fail;
	for (size_t i = 0; i < G_N_ELEMENTS(subdirs); i++) {
		int fd = statedir_step(dir->fd, subdirs[i]);

		if (fd < 0) {
			r = fd;
			*ret_message =
				g_strdup_printf("%s/%s: %s", dir->path, subdirs[i], g_strerror(-r));
			goto fail;
		}
		close(fd);
	}
	*ret_dir = dir;
	return 0;
fail:
	sbx_statedir_close(dir);
	return r;
}

void sbx_statedir_close(struct sbx_statedir *dir)
{
	if (!dir)
		return;
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->cache_fd >= 0)
		close(dir->cache_fd);
	g_free(dir->path);
	g_free(dir->cache_path);
	g_free(dir);
}

const char *sbx_statedir_path(const struct sbx_statedir *dir)
{
	return dir->path;
}

const char *sbx_statedir_cache_path(const struct sbx_statedir *dir)
{
	return dir->cache_path;
}

int sbx_statedir_fd(const struct sbx_statedir *dir)
{
	return dir->fd;
}

int sbx_statedir_cache_fd(const struct sbx_statedir *dir)
{
	return dir->cache_fd;
}

static int statedir_opendir_at(int dirfd, const char *relative)
{
	g_auto(GStrv) parts = g_strsplit(relative, "/", -1);
	int fd = dirfd;

	for (char **part = parts; *part; part++) {
		int next = statedir_step(fd, *part);

		if (fd != dirfd)
			close(fd);
		if (next < 0)
			return next;
		fd = next;
	}
	return fd == dirfd ? -EINVAL : fd;
}

uint64_t sbx_statedir_logs_grew(struct sbx_statedir *dir, int64_t bytes)
{
	return atomic_fetch_add(&dir->logs_bytes, (uint64_t)bytes) + (uint64_t)bytes;
}

int sbx_statedir_opendir(const struct sbx_statedir *dir, const char *relative)
{
	return statedir_opendir_at(dir->fd, relative);
}

int sbx_statedir_cache_opendir(const struct sbx_statedir *dir, const char *relative)
{
	return statedir_opendir_at(dir->cache_fd, relative);
}

int sbx_statedir_replace(int dirfd, const char *name, const void *data, size_t len_bytes)
{
	static _Atomic unsigned int counter;
	char temporary[NAME_MAX + 1];
	int fd, r;

	if ((size_t)snprintf(temporary, sizeof(temporary), ".%.200s.%d.%u.tmp", name, (int)getpid(),
			     atomic_fetch_add(&counter, 1)) >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = sbx_local_write(fd, data, len_bytes, 0);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	close(fd);
	if (r == 0 && renameat(dirfd, temporary, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temporary, 0);
		return r;
	}
	return fsync(dirfd) < 0 ? -errno : 0;
}

int sbx_statedir_read(int dirfd, const char *name, size_t max_bytes, char **ret_data,
		      size_t *ret_len_bytes)
{
	g_autofree char *data = NULL;
	struct stat st;
	size_t len = 0;
	int fd, r = 0;

	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		r = -EPERM;
	else if ((uint64_t)st.st_size > max_bytes)
		r = -EFBIG;
	if (r < 0)
		goto out;
	data = g_malloc((size_t)st.st_size + 1);
	r = sbx_local_read_up_to(fd, data, (size_t)st.st_size, &len);
	if (r < 0)
		goto out;
	data[len] = '\0';
	*ret_data = g_steal_pointer(&data);
	if (ret_len_bytes)
		*ret_len_bytes = len;
out:
	close(fd);
	return r;
}

/* Takes @dirfd over. */
static int statedir_empty(int dirfd)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		r = -errno;
		close(dirfd);
		return r;
	}
	while (r == 0 && (e = readdir(d))) {
		int fd;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(dirfd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		fd = openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : statedir_empty(fd);
		if (r == 0 && unlinkat(dirfd, e->d_name, AT_REMOVEDIR) < 0)
			r = -errno;
	}
	closedir(d);
	return r;
}

int sbx_statedir_remove_tree(const struct sbx_statedir *dir, const char *relative)
{
	g_autofree char *parent = g_path_get_dirname(relative);
	g_autofree char *name = g_path_get_basename(relative);
	int parent_fd = !strcmp(parent, ".") ? dup(dir->fd) : statedir_opendir_at(dir->fd, parent);
	int fd, r;

	if (parent_fd < 0)
		return parent_fd;
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		r = errno == ENOENT ? 0 : -errno;
	} else {
		r = statedir_empty(fd);
		if (r == 0 && unlinkat(parent_fd, name, AT_REMOVEDIR) < 0)
			r = -errno;
	}
	close(parent_fd);
	return r;
}

int sbx_statedir_lock(int dirfd, int *ret_fd)
{
	int fd, r;

	fd = openat(dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}
