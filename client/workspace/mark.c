#include "client/workspace/mark.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/localfile.h"
#include "client/random.h"

#define MARK_CHARS   16
#define MARK_SUFFIX  ".client"
#define RANDOM_CHARS 16
#define BEGIN_TRIES  3

struct sbx_mark {
	int dirfd;
	pthread_mutex_t lock;
	char digits[MARK_CHARS + 1]; /* "": no name was made yet */
	int fd; /* of the file; -1: none could be made, so only time will sweep */
	bool is_left;
};

static char *file_name(const char *digits)
{
	return g_strconcat(digits, MARK_SUFFIX, NULL);
}

struct sbx_mark *sbx_mark_new(int dirfd)
{
	struct sbx_mark *mark = g_new0(struct sbx_mark, 1);

	mark->dirfd = dirfd;
	mark->fd = -1;
	pthread_mutex_init(&mark->lock, NULL);
	return mark;
}

void sbx_mark_free(struct sbx_mark *mark)
{
	if (!mark)
		return;
	if (mark->fd >= 0) {
		if (!mark->is_left)
			sbx_mark_forget(mark->dirfd, mark->digits);
		close(mark->fd);
	}
	pthread_mutex_destroy(&mark->lock);
	g_free(mark);
}

/* Whether the file @fd was locked before anybody took it for a dead client's and removed it. */
static bool mark_lock(int fd)
{
	struct stat st;

	return flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static void mark_begin_locked(struct sbx_mark *mark)
{
	for (int tries = 0; tries < BEGIN_TRIES && mark->fd < 0; tries++) {
		g_autofree char *name = NULL;

		sbx_random_hex(mark->digits, MARK_CHARS);
		name = file_name(mark->digits);
		mark->fd = openat(mark->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (mark->fd < 0)
			return;
		if (!mark_lock(mark->fd)) {
			close(mark->fd);
			mark->fd = -1;
		}
	}
}

char *sbx_mark_path(struct sbx_mark *mark, const char *dir)
{
	char random[RANDOM_CHARS + 1];

	sbx_random_hex(random, RANDOM_CHARS);
	pthread_mutex_lock(&mark->lock);
	if (mark->digits[0] == '\0')
		mark_begin_locked(mark);
	pthread_mutex_unlock(&mark->lock);
	return g_strdup_printf("%s/%s-%s", dir, mark->digits, random);
}

void sbx_mark_leave(struct sbx_mark *mark)
{
	pthread_mutex_lock(&mark->lock);
	mark->is_left = true;
	pthread_mutex_unlock(&mark->lock);
}

/* The file @name is of a client that no longer lives. */
static bool is_dead(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	bool dead = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

	if (fd >= 0)
		close(fd);
	return dead;
}

static bool is_mark_file(const char *name)
{
	return strlen(name) == MARK_CHARS + strlen(MARK_SUFFIX) &&
	       strspn(name, "0123456789abcdef") == MARK_CHARS &&
	       strcmp(name + MARK_CHARS, MARK_SUFFIX) == 0;
}

GPtrArray *sbx_mark_dead(int dirfd)
{
	GPtrArray *dead = g_ptr_array_new_with_free_func(g_free);
	DIR *dir = sbx_local_opendir(dirfd);
	struct dirent *entry;

	if (!dir)
		return dead;
	while ((entry = readdir(dir))) {
		if (is_mark_file(entry->d_name) && is_dead(dirfd, entry->d_name))
			g_ptr_array_add(dead, g_strndup(entry->d_name, MARK_CHARS));
	}
	closedir(dir);
	return dead;
}

void sbx_mark_forget(int dirfd, const char *dead)
{
	g_autofree char *name = file_name(dead);

	(void)unlinkat(dirfd, name, 0);
}
