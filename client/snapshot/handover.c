#include "client/snapshot/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"
#include "client/json.h"
#include "client/localfile.h"
#include "client/snapshot/snapshot.h"

#define STATE_BYTES_MAX (64 * 1024)
#define COPY_BYTES	(16u << 20)

static int refuse(const char *path, const char *why, char **ret_message)
{
	char safe[256];

	sbx_text_escape(safe, sizeof(safe), path, strlen(path));
	*ret_message = g_strdup_printf("%s: %s", safe, why);
	return -EINVAL;
}

/* The number of the mount that the open file is on; -1: it can't be told. */
static int mount_of(int fd)
{
	g_autofree char *path = g_strdup_printf("/proc/self/fdinfo/%d", fd);
	g_autofree char *text = NULL;
	const char *line;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return -1;
	line = strstr(text, "mnt_id:");
	return line ? (int)strtol(line + strlen("mnt_id:"), NULL, 10) : -1;
}

/* Is that a mount of sbxfs? What can't be told is. */
static bool mount_is_ours(int mount)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (mount < 0 || !g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL))
		return true;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++) {
		const char *type;

		if (strtol(*line, NULL, 10) != mount)
			continue;
		type = strstr(*line, " - ");
		return !type || g_str_has_prefix(type + 3, "fuse.sbxfs ");
	}
	return true;
}

/* Open a file that may be believed to be its owner's. */
static int open_own(const char *path, uid_t owner, int *ret_fd, char **ret_message)
{
	g_autofree char *again = NULL;
	struct stat st;
	int fd, r = 0;

	if (path[0] != '/')
		return refuse(path, "not an absolute path", ret_message);
	/* Without reading from it, before it is known where it lies. */
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (mount_is_ours(mount_of(fd)))
		r = refuse(path, "lies on a mount of sbxfs", ret_message);
	else if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = refuse(path, S_ISLNK(st.st_mode) ? "is a link" : "is no regular file",
			   ret_message);
	else if (st.st_uid != owner)
		r = refuse(path, "is another user's", ret_message);
	else if (st.st_mode & 022)
		r = refuse(path, "can be written by others", ret_message);
	if (r == 0) {
		again = g_strdup_printf("/proc/self/fd/%d", fd);
		*ret_fd = open(again, O_RDONLY | O_CLOEXEC);
		if (*ret_fd < 0)
			r = -errno;
	}
	close(fd);
	return r;
}

static int parse_state(const struct sbx_json *object, struct sbx_handover *handover)
{
	const char *backend, *id, *archive, *created;
	const struct sbx_json *snapshot;

	if (!sbx_json_is_object(object) ||
	    sbx_json_get_string(object, "backend", 64, &backend) < 0 ||
	    strcmp(backend, "remote") != 0 || sbx_json_get_id(object, "ref", &id) < 0)
		return -EINVAL;
	snapshot = sbx_json_member(object, "snapshot");
	if (snapshot && sbx_json_is_object(snapshot)) {
		if (sbx_json_get_string(snapshot, "backend", 64, &backend) < 0 ||
		    strcmp(backend, "remote-tar") != 0 ||
		    sbx_json_get_string(snapshot, "ref", 4095, &archive) < 0)
			return -EINVAL;
		handover->archive = g_strdup(archive);
		handover->created = g_strdup(
			sbx_json_get_string(snapshot, "createdAt", 64, &created) == 0 ? created
										      : "");
	}
	handover->id = g_strdup(id);
	return 0;
}

int sbx_handover_read(const char *file, uid_t owner, struct sbx_handover *ret_handover,
		      char **ret_message)
{
	struct sbx_handover handover = { 0 };
	struct sbx_json *object = NULL;
	char text[STATE_BYTES_MAX + 1];
	ssize_t n;
	int fd, r;

	r = open_own(file, owner, &fd, ret_message);
	if (r < 0)
		return r;
	n = pread(fd, text, sizeof(text), 0);
	r = n < 0 ? -errno : n > STATE_BYTES_MAX ? -EINVAL : 0;
	close(fd);
	if (r == 0 && (sbx_json_parse(text, (size_t)n, SBX_JSON_VALUES_DEFAULT, &object) < 0 ||
		       parse_state(object, &handover) < 0))
		r = -EINVAL;
	sbx_json_free(object);
	if (r == -EINVAL)
		refuse(file, "holds no state of a remote session", ret_message);
	if (r < 0)
		sbx_handover_clear(&handover);
	else
		*ret_handover = handover;
	return r;
}

void sbx_handover_clear(struct sbx_handover *handover)
{
	g_clear_pointer(&handover->id, g_free);
	g_clear_pointer(&handover->created, g_free);
	g_clear_pointer(&handover->archive, g_free);
}

static int copy_archive(int from, int to, const struct sbx_call *call)
{
	struct stat st;
	uint64_t at = 0, size;
	int r = fstat(from, &st) < 0 ? -errno : 0;

	size = r == 0 ? (uint64_t)st.st_size : 0;
	while (r == 0 && at < size) {
		uint64_t n = MIN(size - at, COPY_BYTES);

		r = sbx_call_check(call);
		if (r == 0)
			r = sbx_local_copy(from, at, to, at, n);
		at += n;
	}
	return r;
}

int sbx_handover_import(const struct sbx_handover *handover, uid_t owner, struct sbx_statedir *dir,
			const char *session_name, const struct sbx_call *call, char **ret_name,
			char **ret_message)
{
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();
	g_autofree char *name = g_date_time_format(now, "%Y%m%dT%H%M%SZ");
	g_autofree char *file = g_strdup_printf("%s.tar", name);
	int from, to, r;

	if (!handover->archive)
		return -ENODATA;
	r = open_own(handover->archive, owner, &from, ret_message);
	if (r < 0)
		return r;
	r = sbx_snapshots_import_begin(dir, session_name, file, &to);
	if (r < 0) {
		close(from);
		return r;
	}
	r = copy_archive(from, to, call);
	if (r == 0)
		r = sbx_snapshots_import_end(dir, session_name, file, call, ret_message);
	else
		sbx_snapshots_import_drop(dir, session_name, file);
	close(from);
	close(to);
	if (r == 0)
		*ret_name = g_steal_pointer(&name);
	return r;
}
