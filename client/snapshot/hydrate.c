#include "client/snapshot/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"
#include "client/errlog.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/random.h"
#include "client/session.h"
#include "client/snapshot/receipt.h"
#include "client/snapshot/restore.h"
#include "client/snapshot/upload.h"
#include "client/statedir.h"
#include "client/workspace/names.h"
#include "client/workspace/walk.h"
#include "client/workspace/workspace.h"

#define ARCHIVE_STALL_MS 600000
/* A server holds in its memory what it is sent. */
#define PART_BYTES (64u << 20)
/* What differs is told by name up to this many. */
#define DIFFERENCES_MAX 8
#define RANDOM_CHARS	16

/* One run of hydrate: everything that its steps share. */
struct laying {
	struct sbx_workspace *ws;
	struct sbx_names *names;
	const struct sbx_call *call;
	const struct sbx_snapshot_progress *progress;
	struct sbx_receipt *receipt;
	struct sbx_tar_list *archive;
	int archive_fd;
	struct sbx_upload *upload;
	GString *differences;
	unsigned int n_differences;
	bool whole_seconds; /* no finer time can be set in this sandbox, though it may show some */
};

static void differs(struct laying *laying, const char *path, const char *how)
{
	char safe[128];

	if (laying->n_differences++ >= DIFFERENCES_MAX)
		return;
	sbx_text_escape(safe, sizeof(safe), path, strlen(path));
	g_string_append_printf(laying->differences, "%s%s: %s",
			       laying->differences->len ? "; " : "", safe, how);
}

static bool times_agree(const struct laying *laying, const struct sbx_receipt_entry *entry,
			const struct sbx_attr *attr)
{
	bool cut = laying->whole_seconds && attr->mtime_ns % 1000000000 == 0;

	if (entry->has_ns && attr->has_ns && !cut)
		return entry->mtime_ns == attr->mtime_ns;
	return entry->mtime_ns / 1000000000 == attr->mtime_ns / 1000000000;
}

/* Is @seen, which is newer than the snapshot, something that would be lost? */
static bool is_changed(const struct laying *laying, const struct sbx_walk_entry *seen)
{
	const struct sbx_receipt_entry *entry;

	if (S_ISDIR(seen->attr.mode) || seen->attr.ctime_ns <= laying->receipt->clock_ns)
		return false;
	entry = sbx_receipt_find(laying->receipt, seen->path);
	if (!entry)
		return false; /* not in the snapshot: it stays */
	if ((entry->mode & S_IFMT) != (seen->attr.mode & S_IFMT))
		return true;
	if (S_ISLNK(entry->mode))
		return g_strcmp0(entry->link, seen->link) != 0;
	return entry->size != seen->attr.size || !times_agree(laying, entry, &seen->attr);
}

/* What stands in the way, found before a byte is sent. */
static int check_in_the_way(struct laying *laying, bool over, char **ret_message)
{
	const struct sbx_probe_reply *probe;
	struct sbx_walk *now = NULL;
	int r;

	sbx_snapshot_say(laying->progress, "looking at the workspace");
	r = sbx_names_probe(laying->names, laying->call, &probe);
	if (r == 0) {
		laying->whole_seconds = !probe->touch_ns;
		r = sbx_names_walk(laying->names, laying->call, &now);
	}
	for (guint i = 0; r == 0 && i < now->entries->len; i++) {
		const struct sbx_walk_entry *seen = g_ptr_array_index(now->entries, i);
		const struct sbx_receipt_entry *entry =
			sbx_receipt_find(laying->receipt, seen->path);
		char safe[128];

		sbx_text_escape(safe, sizeof(safe), seen->path, strlen(seen->path));
		if (entry && S_ISDIR(entry->mode) != S_ISDIR(seen->attr.mode)) {
			r = S_ISDIR(entry->mode) ? -ENOTDIR : -EISDIR;
			*ret_message = g_strdup_printf("%s is %s here and %s in the snapshot", safe,
						       S_ISDIR(seen->attr.mode) ? "a directory"
										: "no directory",
						       S_ISDIR(entry->mode) ? "one" : "none");
		} else if (!over && is_changed(laying, seen)) {
			r = -EEXIST;
			*ret_message = g_strdup_printf("%s is newer than the snapshot; \"over\" "
						       "replaces it",
						       safe);
		}
	}
	sbx_walk_free(now);
	return r;
}

static ssize_t read_upload(void *arg, void *buf, size_t len, int64_t offset)
{
	ssize_t n = pread(*(int *)arg, buf, len, (off_t)offset);

	return n < 0 ? -errno : n;
}

/* A file that nobody else has to see, and that goes with us. */
static int open_scratch(int dirfd)
{
	char random[RANDOM_CHARS + 1];
	g_autofree char *name = NULL;
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	sbx_random_hex(random, RANDOM_CHARS);
	name = g_strdup_printf(".upload-%s", random);
	fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)unlinkat(dirfd, name, 0);
	return fd;
}

static int send_part(struct laying *laying, int fd)
{
	struct sbx_source source = { .read_at = read_upload, .arg = &fd };
	struct sbx_call patient = *laying->call;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	source.len_bytes = st.st_size;
	patient.stall_timeout_ms = MAX(laying->call->stall_timeout_ms, ARCHIVE_STALL_MS);
	return sbx_session_hydrate(sbx_workspace_session(laying->ws), &patient, &source);
}

static int send_archive(struct laying *laying, int dirfd)
{
	unsigned int part = 0;
	bool more = true;
	int fd, r;

	fd = open_scratch(dirfd);
	if (fd < 0)
		return fd;
	r = sbx_upload_new(laying->receipt, laying->archive, laying->archive_fd, PART_BYTES,
			   &laying->upload);
	while (r == 0 && more) {
		sbx_snapshot_say(laying->progress, "sending the archive, part %u", ++part);
		if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
			r = -errno;
		if (r == 0)
			r = sbx_upload_next(laying->upload, laying->call, fd, &more);
		if (r == 0)
			r = send_part(laying, fd);
	}
	close(fd);
	return r;
}

/* Names that the route could not take, links, other names of one file. */
static int put_structure(struct laying *laying)
{
	GHashTable *staged = sbx_upload_staged(laying->upload);
	struct sbx_restore *restore = sbx_restore_new();
	int r = 0;

	for (guint i = 0; i < laying->receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry =
			g_ptr_array_index(laying->receipt->entries, i);
		const char *name = g_hash_table_lookup(staged, entry->path);

		if (S_ISDIR(entry->mode)) {
			if (!sbx_upload_path_is_plain(entry->path))
				sbx_restore_mkdir(restore, entry->path);
		} else if (S_ISLNK(entry->mode)) {
			sbx_restore_symlink(restore, entry->link, entry->path);
		} else if (entry->same_as) {
			sbx_restore_hardlink(restore, entry->same_as, entry->path);
		} else if (name) {
			sbx_restore_move(restore, name, entry->path);
		}
	}
	sbx_snapshot_say(laying->progress, "putting back links and names");
	if (sbx_restore_count(restore))
		r = sbx_restore_run(restore, laying->names, laying->call, NULL, NULL);
	sbx_restore_free(restore);
	return r;
}

/* Modes and times that differ from the receipt's, what lies deep first. */
static int put_attributes(struct laying *laying)
{
	struct sbx_restore *restore = sbx_restore_new();
	struct sbx_walk *walk = NULL;
	int r;

	sbx_snapshot_say(laying->progress, "putting back modes and times");
	r = sbx_names_walk(laying->names, laying->call, &walk);
	for (guint i = laying->receipt->entries->len; r == 0 && i > 0; i--) {
		const struct sbx_receipt_entry *entry =
			g_ptr_array_index(laying->receipt->entries, i - 1);
		const struct sbx_walk_entry *seen = sbx_walk_find(walk, entry->path);

		if (!seen)
			continue;
		if (!S_ISLNK(entry->mode) && (entry->mode & 07777) != (seen->attr.mode & 07777))
			sbx_restore_mode(restore, entry->path, entry->mode);
		if (!times_agree(laying, entry, &seen->attr))
			sbx_restore_mtime(restore, entry->path, entry->mtime_ns);
	}
	if (r == 0 && sbx_restore_count(restore))
		r = sbx_restore_run(restore, laying->names, laying->call, NULL, NULL);
	sbx_restore_free(restore);
	sbx_walk_free(walk);
	return r;
}

static void told_files(void *arg, uint64_t files)
{
	const struct laying *laying = arg;

	sbx_snapshot_say(laying->progress, "comparing: %" G_GUINT64_FORMAT " files", files);
}

static void compare_entry(struct laying *laying, const struct sbx_receipt_entry *entry,
			  const struct sbx_walk_entry *seen, GHashTable *sums)
{
	const uint8_t *sum;

	if (!seen) {
		differs(laying, entry->path, "is not there");
		return;
	}
	if ((entry->mode & S_IFMT) != (seen->attr.mode & S_IFMT)) {
		differs(laying, entry->path, "is of another type");
		return;
	}
	if (S_ISREG(entry->mode)) {
		sum = g_hash_table_lookup(sums, entry->path);
		if (seen->attr.size != entry->size)
			differs(laying, entry->path, "has another size");
		else if (!sum || memcmp(sum, entry->sha256, SBX_SHA256_BYTES) != 0)
			differs(laying, entry->path, "has another content");
	}
	if (S_ISLNK(entry->mode) && g_strcmp0(entry->link, seen->link) != 0)
		differs(laying, entry->path, "leads elsewhere");
	if (entry->unstable)
		return;
	if (!S_ISLNK(entry->mode) && (entry->mode & 07777) != (seen->attr.mode & 07777))
		differs(laying, entry->path, "has another mode");
	if (!times_agree(laying, entry, &seen->attr))
		differs(laying, entry->path, "has another mtime");
}

/* Compare all with the receipt. *ret_extra: entries that are not in it. */
static int verify(struct laying *laying, unsigned int *ret_extra)
{
	g_autoptr(GPtrArray) files = g_ptr_array_new();
	g_autoptr(GHashTable) sums = NULL;
	struct sbx_walk *walk = NULL;
	unsigned int known = 0;
	int r;

	for (guint i = 0; i < laying->receipt->entries->len; i++) {
		struct sbx_receipt_entry *entry = g_ptr_array_index(laying->receipt->entries, i);

		if (S_ISREG(entry->mode))
			g_ptr_array_add(files, entry->path);
	}
	r = sbx_digest_files(laying->names, laying->call, files, told_files, laying, &sums);
	if (r == 0)
		r = put_attributes(laying);
	if (r == 0)
		r = sbx_names_walk(laying->names, laying->call, &walk);
	for (guint i = 0; r == 0 && i < laying->receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry =
			g_ptr_array_index(laying->receipt->entries, i);
		const struct sbx_walk_entry *seen = sbx_walk_find(walk, entry->path);

		known += seen != NULL;
		compare_entry(laying, entry, seen, sums);
	}
	if (r == 0)
		*ret_extra = walk->entries->len - known;
	sbx_walk_free(walk);
	return r;
}

static int lay(struct laying *laying, int dirfd, bool over, char **ret_message)
{
	unsigned int extra = 0;
	int r;

	r = check_in_the_way(laying, over, ret_message);
	if (r < 0)
		return r;
	r = send_archive(laying, dirfd);
	if (r == 0)
		r = put_structure(laying);
	if (r == 0)
		r = verify(laying, &extra);
	sbx_session_refresh(sbx_workspace_session(laying->ws));
	sbx_ws_refresh(laying->ws);
	if (r < 0)
		return r;
	if (laying->n_differences) {
		*ret_message = g_strdup_printf("%u differences: %s", laying->n_differences,
					       laying->differences->str);
		sbx_errlog_note(sbx_session_errors(sbx_workspace_session(laying->ws)), "hydrate",
				laying->receipt->snapshot, -EIO, *ret_message);
		return -EIO;
	}
	*ret_message = g_strdup_printf("snapshot %s verified: %u entries, extra: %u, unstable: %u",
				       laying->receipt->snapshot, laying->receipt->entries->len,
				       extra, sbx_receipt_unstable(laying->receipt));
	return 0;
}

/* Read the snapshot @name, checked; laying_done() in any case. */
static int laying_load(struct laying *laying, struct sbx_workspace *ws, const char *name,
		       const struct sbx_call *call, const struct sbx_snapshot_progress *progress,
		       char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	g_autofree char *session_name = sbx_session_name(session);

	*laying = (struct laying){ .ws = ws,
				   .names = sbx_workspace_names(ws),
				   .call = call,
				   .progress = progress,
				   .archive_fd = -1,
				   .differences = g_string_new(NULL) };
	sbx_snapshot_say(laying->progress, "reading the snapshot");
	return sbx_snapshots_load(sbx_session_statedir(session), session_name, name, call,
				  &laying->archive_fd, &laying->receipt, &laying->archive,
				  ret_message);
}

static void laying_done(struct laying *laying)
{
	sbx_upload_free(laying->upload);
	if (laying->archive_fd >= 0)
		close(laying->archive_fd);
	sbx_tar_list_free(laying->archive);
	sbx_receipt_free(laying->receipt);
	g_string_free(laying->differences, TRUE);
}

static int laying_run(struct laying *laying, bool over, char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(laying->ws);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *relative = g_strdup_printf("snapshots/%s", session_name);
	int dirfd = sbx_statedir_opendir(sbx_session_statedir(session), relative), r = 0;

	if (dirfd < 0)
		return dirfd;
	/* In a new session what is unsent comes last, over what the snapshot has. */
	if (!laying->call->mending)
		r = sbx_ws_sync(laying->ws, laying->call);
	if (r == 0)
		r = lay(laying, dirfd, over, ret_message);
	close(dirfd);
	return r;
}

int sbx_snapshot_hydrate(struct sbx_workspace *ws, const struct sbx_call *call, const char *name,
			 bool over, const struct sbx_snapshot_progress *progress,
			 char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *chosen = g_strdup(name);
	struct laying laying;
	int r = 0;

	*ret_message = NULL;
	if (!chosen)
		r = sbx_snapshots_newest_verified(sbx_session_statedir(session), session_name,
						  &chosen);
	if (r < 0)
		return r;
	r = laying_load(&laying, ws, chosen, call, progress, ret_message);
	if (r == 0)
		r = laying_run(&laying, over, ret_message);
	laying_done(&laying);
	return r;
}

/* Resume -------------------------------------------------------------------------------------- */

/* A session that lives. One that was made in place of one that this mount forgot is not what the
 * name stands for, as long as it is empty. */
static int resume_live(struct sbx_workspace *ws, const struct sbx_call *call, bool empty,
		       const struct sbx_snapshot_progress *progress, char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *name = NULL;
	struct sbx_walk *walk = NULL;
	bool is_empty;
	int r;

	*ret_message = g_strdup("the session lives; nothing was done");
	if (empty || !sbx_session_is_new(session) ||
	    sbx_snapshots_newest_verified(sbx_session_statedir(session), session_name, &name) < 0)
		return 0;
	r = sbx_names_walk(sbx_workspace_names(ws), call, &walk);
	if (r < 0)
		return r == -EOPNOTSUPP ? 0 : r;
	is_empty = walk->entries->len == 0;
	sbx_walk_free(walk);
	if (!is_empty)
		return 0;
	g_clear_pointer(ret_message, g_free);
	return sbx_snapshot_hydrate(ws, call, name, false, progress, ret_message);
}

/* The session is gone: a new one, with what @laying has read (NULL: empty). */
static int resume_gone(struct sbx_workspace *ws, const struct sbx_call *call, struct laying *laying,
		       char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	struct sbx_call mending = *call;
	int r;

	r = sbx_session_renew(session, call);
	if (r < 0)
		return r;
	sbx_ws_refresh(ws);
	/* Requests of others wait until all is there. */
	mending.mending = true;
	if (laying) {
		/* cppcheck-suppress autoVariables ; taken back below */
		laying->call = &mending;
		r = laying_run(laying, true, ret_message);
		laying->call = call;
	}
	if (r < 0) {
		sbx_session_renew_undo(session, call);
		sbx_ws_refresh(ws);
		return r;
	}
	if (!*ret_message)
		*ret_message =
			g_strdup(sbx_session_has_root_dir(session) ? "made again from its rootDir"
								   : "made again, empty");
	sbx_session_renew_done(session);
	sbx_session_set_note(session, NULL);
	/* What waited for the session goes to the new one. */
	(void)sbx_ws_sync(ws, call);
	return 0;
}

int sbx_snapshot_resume(struct sbx_workspace *ws, const struct sbx_call *call, bool empty,
			const struct sbx_snapshot_progress *progress, char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *name = NULL;
	struct laying laying;
	int r;

	*ret_message = NULL;
	r = sbx_session_reattach(session, call);
	if (r != -ESTALE)
		return r < 0 ? r : resume_live(ws, call, empty, progress, ret_message);
	if (sbx_session_has_root_dir(session))
		return resume_gone(ws, call, NULL, ret_message);
	r = sbx_snapshots_newest_verified(sbx_session_statedir(session), session_name, &name);
	if (r == -ENODATA && empty)
		return resume_gone(ws, call, NULL, ret_message);
	if (r < 0)
		return r;
	/* Read before anything is made: what can't be used must not cost a session. */
	r = laying_load(&laying, ws, name, call, progress, ret_message);
	if (r == 0)
		r = resume_gone(ws, call, &laying, ret_message);
	else if (r != -EINTR)
		r = empty ? resume_gone(ws, call, NULL, ret_message) : -ENODATA;
	laying_done(&laying);
	return r;
}
