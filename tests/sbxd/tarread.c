#include "tests/sbxd/tarread.h"
#include "tests/sbxd/errtext.h"
#include "tests/sbxd/tarparse.h"
#include "tests/sbxd/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(char **ret_message, int err, const char *call, const char *path)
{
	*ret_message = errtext_message(err, call, path);
	return -err;
}

/* A link on the way to a member is never followed. */
static int check_no_links(const char *dir, const struct member *member, char **ret_message)
{
	g_autofree char *path = g_strconcat(dir, "/", member->path, NULL);
	char *slash = path + strlen(dir);
	struct stat st;

	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		if (lstat(path, &st) < 0)
			return 0;
		if (S_ISLNK(st.st_mode)) {
			*ret_message = g_strdup_printf(
				"unsafe archive member \"%s\": symlink in parent path: %s",
				member->path, path + strlen(dir) + 1);
			return -EINVAL;
		}
		*slash = '/';
	}
	return 0;
}

static int make_parents(const char *path, char **ret_message)
{
	g_autofree char *parent = g_path_get_dirname(path);
	int err = tree_make_dirs(parent);

	return err ? fail(ret_message, -err, "mkdir", parent) : 0;
}

static int make_directory(const char *path, char **ret_message)
{
	struct stat st;
	int err;

	if (lstat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? 0 : fail(ret_message, EEXIST, "mkdir", path);
	err = tree_make_dirs(path);
	return err ? fail(ret_message, -err, "mkdir", path) : 0;
}

/* Make room for a file or link. */
static int remove_old(const char *path, char **ret_message)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	if (S_ISDIR(st.st_mode)) {
		*ret_message = g_strdup_printf("Path is a directory: rm returned EISDIR (is a "
					       "directory) %s",
					       path);
		return -EISDIR;
	}
	if (unlink(path) < 0 && errno != ENOENT)
		return fail(ret_message, errno, "rm", path);
	return 0;
}

static int write_all(int fd, const unsigned char *data, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t put = write(fd, data, len_bytes);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		data += put;
		len_bytes -= (size_t)put;
	}
	return 0;
}

static int make_file(const char *path, const struct member *member, char **ret_message)
{
	int fd, err = remove_old(path, ret_message);

	if (err)
		return err;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(ret_message, errno, "open", path);
	err = write_all(fd, member->data, member->data_bytes);
	if (!err && fchmod(fd, member->mode) < 0)
		err = -errno;
	close(fd);
	return err ? fail(ret_message, -err, "write", NULL) : 0;
}

static int make_link(const char *path, const struct member *member, char **ret_message)
{
	int err = remove_old(path, ret_message);

	if (err)
		return err;
	if (symlink(member->target, path) < 0) {
		*ret_message = g_strdup_printf("%s: %s, symlink '%s' -> '%s'", errtext_code(errno),
					       errtext_text(errno), member->target, path);
		return -EIO;
	}
	return 0;
}

static int extract_member(const char *dir, const struct member *member, char **ret_message)
{
	g_autofree char *path = g_strconcat(dir, "/", member->path, NULL);
	int err = check_no_links(dir, member, ret_message);

	if (err)
		return err;
	if (member->kind == MEMBER_DIRECTORY)
		return make_directory(path, ret_message);
	err = make_parents(path, ret_message);
	if (err)
		return err;
	return member->kind == MEMBER_SYMLINK ? make_link(path, member, ret_message)
					      : make_file(path, member, ret_message);
}

/* One pass over the members: the links, or all others. */
static int extract_pass(const char *dir, const GPtrArray *members, bool links, char **ret_message)
{
	for (guint i = 0; i < members->len; i++) {
		const struct member *member = members->pdata[i];
		int err;

		if (!*member->path || (member->kind == MEMBER_SYMLINK) != links)
			continue;
		err = extract_member(dir, member, ret_message);
		if (err)
			return err;
	}
	return 0;
}

int tar_extract(const void *archive, size_t len_bytes, const char *dir, char **ret_message)
{
	GPtrArray *members;
	int err = tar_parse(archive, len_bytes, &members, ret_message);

	if (err)
		return err;
	err = tar_check(members, ret_message);
	if (!err)
		err = extract_pass(dir, members, false, ret_message);
	if (!err)
		err = extract_pass(dir, members, true, ret_message);
	g_ptr_array_free(members, TRUE);
	return err;
}
