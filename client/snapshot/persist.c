#include "client/snapshot/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/errlog.h"
#include "client/localfile.h"
#include "client/probe.h"
#include "client/provider.h"
#include "client/random.h"
#include "client/session.h"
#include "client/snapshot/receipt.h"
#include "client/statedir.h"
#include "client/workspace/blob.h"
#include "client/workspace/fetch.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/walk.h"
#include "client/workspace/workspace.h"

/* The server says nothing while it builds the archive in its memory. */
#define ARCHIVE_STALL_MS 600000
#define PIECE_BYTES	 (8u << 20)
#define EXEC_TRIES	 3
#define RANDOM_CHARS	 16
/* What was not touched in the sandbox for so many minutes is nobody's. */
#define STAGED_OLD_MIN	60
#define OUTCOME_OLD_MIN 10
/* A small file that is written for so long is nobody's. */
#define LEFT_OVER_S 60

void sbx_snapshot_say(const struct sbx_snapshot_progress *progress, const char *format, ...)
{
	g_autofree char *text = NULL;
	va_list args;

	if (!progress)
		return;
	va_start(args, format);
	text = g_strdup_vprintf(format, args);
	va_end(args);
	progress->say(progress->arg, text);
}

/* The archive as it comes in. */
struct spooling {
	int fd;
	uint64_t bytes;
	uint64_t told;
	int64_t len_bytes; /* as announced, -1 unknown */
	GChecksum *sum;
	const struct sbx_snapshot_progress *progress;
};

static int spool_begin(void *arg, int64_t offset, int64_t len_bytes)
{
	struct spooling *spool = arg;

	if (offset != 0)
		return -EIO;
	if (ftruncate(spool->fd, 0) < 0)
		return -errno;
	g_checksum_reset(spool->sum);
	spool->bytes = 0;
	spool->told = 0;
	spool->len_bytes = len_bytes;
	return 0;
}

static int spool_write(void *arg, const void *data, size_t len)
{
	struct spooling *spool = arg;
	int r = sbx_local_write(spool->fd, data, len, spool->bytes);

	if (r < 0)
		return r;
	g_checksum_update(spool->sum, data, (gssize)len);
	spool->bytes += len;
	if (spool->bytes >= spool->told + (4u << 20)) {
		spool->told = spool->bytes;
		sbx_snapshot_say(spool->progress,
				 "receiving the archive: %" G_GUINT64_FORMAT " of %" G_GINT64_FORMAT
				 " bytes",
				 spool->bytes, spool->len_bytes);
	}
	return 0;
}

/* *ret_refused: the server says that it can't, so that another way may be tried. */
static int fetch_by_route(struct sbx_workspace *ws, const struct sbx_call *call,
			  struct spooling *spool, bool *ret_refused)
{
	const struct sbx_sink sink = { spool_begin, spool_write, spool };
	struct sbx_failure failure = { 0 };
	struct sbx_call patient = *call;
	int r;

	patient.failure = &failure;
	patient.stall_timeout_ms = MAX(call->stall_timeout_ms, ARCHIVE_STALL_MS);
	sbx_snapshot_say(spool->progress, "the server builds the archive");
	r = sbx_session_persist(sbx_workspace_session(ws), &patient, &sink);
	if (r == 0 && spool->len_bytes >= 0 && (uint64_t)spool->len_bytes != spool->bytes)
		r = -EIO;
	*ret_refused = r < 0 && failure.kind == SBX_FAIL_REPLY && !failure.token_refused &&
		       !failure.session_not_found;
	if (r < 0 && !*ret_refused && call->failure)
		*call->failure = failure;
	return r;
}

/* Have the sandbox's own tar make an archive as @stage. */
static int stage_archive(struct sbx_workspace *ws, const struct sbx_call *call, const char *stage,
			 uint64_t *ret_size_bytes)
{
	struct sbx_names *names = sbx_workspace_names(ws);
	const struct sbx_probe_reply *probe;
	struct sbx_program_request request;
	struct sbx_program_answer answer = { 0 };
	struct sbx_exec_result result = { 0 };
	struct sbx_program_limits limits;
	uint64_t size = 0;
	int r;

	r = sbx_names_probe(names, call, &probe);
	if (r == 0 && !probe->tar)
		r = -EOPNOTSUPP;
	if (r < 0)
		return r;
	sbx_names_limits(names, &limits);
	r = sbx_program_request_init(&request, SBX_PROGRAM_MKTAR, &probe->tools, &limits);
	if (r == 0)
		r = sbx_program_request_add(&request, stage);
	if (r == 0)
		r = sbx_names_run(names, call, ARCHIVE_STALL_MS, sbx_program_request_argv(&request),
				  false, &result);
	if (r == 0) {
		r = sbx_program_unframe(result.out, result.out_len, request.nonce, 4096, &answer);
		if (r < 0)
			r = sbx_names_bad_answer(names, "mktar", r, &result);
	}
	if (r == 0 && answer.sections == 1 && answer.section[0]->len > 1)
		size = g_ascii_strtoull((const char *)answer.section[0]->data, NULL, 10);
	if (r == 0 && !size) {
		sbx_errlog_note(sbx_session_errors(sbx_workspace_session(ws)), "persist", NULL,
				-EIO, "the sandbox's tar made no archive");
		r = -EIO;
	}
	sbx_program_answer_clear(&answer);
	sbx_exec_result_clear(&result);
	sbx_program_request_clear(&request);
	if (r == 0)
		*ret_size_bytes = size;
	return r;
}

/* The next bytes of the file @stage. */
static int fetch_piece(struct sbx_workspace *ws, const struct sbx_call *call, const char *stage,
		       uint64_t left_bytes, struct spooling *spool)
{
	struct sbx_fetch_item item = {
		.path = stage,
		.offset = spool->bytes,
		.len_bytes = MIN(PIECE_BYTES, left_bytes),
	};
	int64_t clock_ns;
	int r;

	/* A sandbox whose answers are cut is asked for less. */
	r = sbx_fetch(sbx_workspace_session(ws), sbx_workspace_names(ws), call, &item, 1,
		      PIECE_BYTES, false, &clock_ns);
	if (r == 0)
		r = item.error == -EAGAIN ? -EIO : item.error;
	if (r == 0 && !item.blob->len_bytes)
		r = -EIO;
	if (r == 0)
		r = spool_write(spool, item.blob->data, item.blob->len_bytes);
	sbx_fetch_clear(&item, 1);
	return r;
}

/* Whoever is let go of meanwhile: it is part of no archive, and of nobody's workspace. */
static void unstage(struct sbx_workspace *ws, const char *stage)
{
	int64_t timeout_ms = sbx_session_options(sbx_workspace_session(ws))->mutation_timeout_ms;
	const struct sbx_call own = { .stall_timeout_ms = timeout_ms };
	const struct sbx_op remove = { .kind = SBX_DO_UNLINK, .path = stage };
	struct sbx_op_result removed = { 0 };

	if (sbx_names_apply(sbx_workspace_names(ws), &own, timeout_ms, &remove, 1, &removed) == 0)
		sbx_op_results_clear(&removed, 1);
}

/* An archive that the sandbox's own tar makes, in a staging file, fetched in pieces. */
static int fetch_by_exec(struct sbx_workspace *ws, const struct sbx_call *call,
			 struct spooling *spool)
{
	char random[RANDOM_CHARS + 1];
	g_autofree char *stage = NULL;
	uint64_t size = 0;
	int r;

	sbx_random_hex(random, RANDOM_CHARS);
	stage = g_strdup_printf(SBX_STAGE_DIR "/persist-%s.tar", random);
	sbx_snapshot_say(spool->progress, "the sandbox's tar builds the archive");
	r = stage_archive(ws, call, stage, &size);
	if (r == -EOPNOTSUPP)
		return r;
	if (r == 0)
		r = spool_begin(spool, 0, (int64_t)size);
	while (r == 0 && spool->bytes < size)
		r = fetch_piece(ws, call, stage, size - spool->bytes, spool);
	unstage(ws, stage);
	return r;
}

/*
 * What clients left long ago is not to go into the archive: staged files, and outcomes that nobody
 * asks for any more (design.md, promise 9). What is younger may be in use; what is set aside for
 * open files goes with its client.
 */
static void sweep_old(struct sbx_workspace *ws, const struct sbx_call *call)
{
	const struct sbx_op ops[2] = {
		{ .kind = SBX_DO_SWEEP, .path = "stage", .size = STAGED_OLD_MIN },
		{ .kind = SBX_DO_SWEEP, .path = "ops", .size = OUTCOME_OLD_MIN },
	};
	struct sbx_op_result results[2] = { 0 };

	/* Where it can't be done the archive is only bigger. */
	if (sbx_names_apply(sbx_workspace_names(ws), call,
			    sbx_session_options(sbx_workspace_session(ws))->mutation_timeout_ms,
			    ops, 2, results) == 0)
		sbx_op_results_clear(results, 2);
}

struct making {
	struct sbx_workspace *ws;
	const struct sbx_call *call;
	const struct sbx_snapshot_progress *progress;
	struct spooling spool;
	struct sbx_walk *before;
	struct sbx_walk *after;
	struct sbx_tar_list *archive;
	struct sbx_receipt *receipt;
};

static void making_reset(struct making *making)
{
	sbx_walk_free(making->after);
	sbx_tar_list_free(making->archive);
	making->after = NULL;
	making->archive = NULL;
}

static void told_bytes(void *arg, uint64_t bytes)
{
	sbx_snapshot_say(arg, "reading the archive: %" G_GUINT64_FORMAT " bytes", bytes);
}

/* Archive by one of the ways, look again, read it through, fill the receipt in. */
static int make_once(struct making *making, bool by_exec, bool *ret_refused, char **ret_message)
{
	struct sbx_names *names = sbx_workspace_names(making->ws);
	struct sbx_tar_limits limits;
	int r;

	making_reset(making);
	g_free(making->receipt->how);
	making->receipt->how = g_strdup(by_exec ? "exec" : "route");
	r = by_exec ? fetch_by_exec(making->ws, making->call, &making->spool)
		    : fetch_by_route(making->ws, making->call, &making->spool, ret_refused);
	if (r < 0)
		return r;
	sbx_snapshot_say(making->progress, "looking at the workspace again");
	r = sbx_names_walk(names, making->call, &making->after);
	if (r < 0)
		return r;
	sbx_snapshot_say(making->progress, "reading the archive");
	sbx_tar_limits_init(&limits);
	/* The sandbox's tar takes what the server leaves out. */
	limits.skip_special = by_exec;
	r = sbx_tar_read(making->spool.fd, making->call, &limits, told_bytes,
			 (void *)making->progress, &making->archive, ret_message);
	if (r < 0)
		return r == -EINTR ? r : -EIO;
	g_ptr_array_set_size(making->receipt->entries, 0);
	sbx_receipt_fill(making->receipt, making->archive, making->before, making->after);
	return 0;
}

static int make(struct making *making, char **ret_message)
{
	bool refused = false;
	int r;

	sbx_snapshot_say(making->progress, "looking at the workspace");
	r = sbx_names_walk(sbx_workspace_names(making->ws), making->call, &making->before);
	if (r < 0)
		return r;
	making->receipt->clock_ns = making->before->clock_ns;
	r = make_once(making, false, &refused, ret_message);
	/* What came cut or damaged is not asked for by another way. */
	for (int i = 0; i < EXEC_TRIES; i++) {
		int by_exec;

		/* A file that is replaced while tar comes by may be missed. */
		if (!refused && (r < 0 || !sbx_receipt_missing(making->receipt)))
			break;
		g_clear_pointer(ret_message, g_free);
		refused = false;
		by_exec = make_once(making, true, &refused, ret_message);
		/* Where there is no tar either, the first answer tells more. */
		if (by_exec != -EOPNOTSUPP)
			r = by_exec;
	}
	if (r == 0 && sbx_receipt_missing(making->receipt)) {
		*ret_message = g_strdup_printf("%u files are not in the archive",
					       sbx_receipt_missing(making->receipt));
		r = -EIO;
	}
	return r;
}

static char *default_name(void)
{
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();

	return g_date_time_format(now, "%Y%m%dT%H%M%SZ");
}

/* Is @name, of a file that nobody holds, one that is finished under another name? */
static bool is_left_over(int dirfd, const char *name)
{
	struct stat st;
	bool is_free;
	int fd;

	if (g_str_has_suffix(name, ".tmp"))
		return name[0] == '.' && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		       st.st_mtime < time(NULL) - LEFT_OVER_S;
	if (!g_str_has_prefix(name, ".persist-") && !g_str_has_prefix(name, ".upload-") &&
	    !g_str_has_prefix(name, ".import-"))
		return false;
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return is_free;
}

/* What a mount that was killed has left; another one may be at work here. */
static void sweep_temporaries(int dirfd)
{
	g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", dirfd);
	GDir *dir = g_dir_open(path, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir)))
		if (is_left_over(dirfd, name))
			(void)unlinkat(dirfd, name, 0);
	if (dir)
		g_dir_close(dir);
}

static int put_in_place(struct making *making, struct sbx_statedir *dir, const char *session_name,
			int dirfd, const char *temporary, const char *file)
{
	struct sbx_receipt *receipt = making->receipt;
	gsize sum_len = SBX_SHA256_BYTES;
	int r;

	receipt->archive_bytes = making->spool.bytes;
	g_checksum_get_digest(making->spool.sum, receipt->archive_sha256, &sum_len);
	receipt->verified = true;
	if (fsync(making->spool.fd) < 0)
		return -errno;
	r = sbx_snapshots_save_receipt(dir, session_name, receipt);
	if (r < 0)
		return r;
	if (renameat(dirfd, temporary, dirfd, file) < 0 || fsync(dirfd) < 0)
		return -errno;
	return 0;
}

int sbx_snapshot_persist(struct sbx_workspace *ws, const struct sbx_call *call, const char *name,
			 const struct sbx_snapshot_progress *progress, char **ret_message)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	struct sbx_statedir *dir = sbx_session_statedir(session);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *made_name = name ? g_strdup(name) : default_name();
	g_autofree char *file = g_strdup_printf("%s.tar", made_name);
	g_autofree char *temporary = g_strdup_printf(".persist-%s", file);
	g_autofree char *relative = g_strdup_printf("snapshots/%s", session_name);
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();
	struct making making = { .ws = ws, .call = call, .progress = progress };
	struct stat st;
	int dirfd, r;

	*ret_message = NULL;
	if (!sbx_snapshot_name_is_valid(made_name))
		return -EINVAL;
	dirfd = sbx_statedir_opendir(dir, relative);
	if (dirfd < 0)
		return dirfd;
	if (fstatat(dirfd, file, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		close(dirfd);
		return -EEXIST;
	}
	sweep_temporaries(dirfd);
	making.spool.fd = openat(dirfd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (making.spool.fd < 0 || flock(making.spool.fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		if (making.spool.fd >= 0)
			close(making.spool.fd);
		close(dirfd);
		return r;
	}
	making.spool.progress = progress;
	making.spool.sum = g_checksum_new(G_CHECKSUM_SHA256);
	making.receipt = sbx_receipt_new();
	making.receipt->snapshot = g_strdup(made_name);
	making.receipt->session = sbx_session_id(session);
	making.receipt->created = g_date_time_format(now, "%Y-%m-%dT%H:%M:%SZ");
	sbx_snapshot_say(progress, "sending what is not sent yet");
	r = sbx_ws_sync(ws, call);
	if (r == 0)
		sweep_old(ws, call);
	if (r == 0)
		r = make(&making, ret_message);
	if (r == 0)
		r = put_in_place(&making, dir, session_name, dirfd, temporary, file);
	if (r == 0) {
		g_autofree char *path =
			g_strdup_printf("%s/%s/%s", sbx_statedir_path(dir), relative, file);
		unsigned int unstable = sbx_receipt_unstable(making.receipt);

		(void)sbx_session_set_snapshot(session, path, making.receipt->created);
		*ret_message = g_strdup_printf("snapshot %s: %u entries, %" G_GUINT64_FORMAT
					       " bytes, by %s, unstable: %u",
					       made_name, making.receipt->entries->len,
					       making.spool.bytes, making.receipt->how, unstable);
	} else {
		(void)unlinkat(dirfd, temporary, 0);
	}
	making_reset(&making);
	sbx_walk_free(making.before);
	sbx_receipt_free(making.receipt);
	g_checksum_free(making.spool.sum);
	close(making.spool.fd);
	close(dirfd);
	return r;
}

/* Is all as the receipt says, as far as attributes tell? */
static bool agrees(const struct sbx_receipt *receipt, const struct sbx_walk *walk)
{
	unsigned int n = 0;

	for (guint i = 0; i < walk->entries->len; i++) {
		const struct sbx_walk_entry *seen = g_ptr_array_index(walk->entries, i);
		const struct sbx_receipt_entry *entry;

		if (!S_ISREG(seen->attr.mode) && !S_ISDIR(seen->attr.mode) &&
		    !S_ISLNK(seen->attr.mode))
			continue;
		entry = sbx_receipt_find(receipt, seen->path);
		if (!entry || entry->unstable ||
		    entry->mode != (seen->attr.mode & (S_IFMT | 07777)) ||
		    entry->mtime_ns != seen->attr.mtime_ns ||
		    (S_ISREG(entry->mode) && entry->size != seen->attr.size) ||
		    g_strcmp0(entry->link, seen->link) != 0)
			return false;
		n++;
	}
	return n == receipt->entries->len;
}

int sbx_snapshot_is_due(struct sbx_workspace *ws, const struct sbx_call *call, bool *ret_is_due)
{
	struct sbx_session *session = sbx_workspace_session(ws);
	struct sbx_statedir *dir = sbx_session_statedir(session);
	g_autofree char *session_name = sbx_session_name(session);
	g_autofree char *message = NULL;
	g_autofree char *newest = NULL;
	struct sbx_receipt *receipt = NULL;
	struct sbx_walk *walk = NULL;
	int r;

	r = sbx_names_walk(sbx_workspace_names(ws), call, &walk);
	if (r < 0)
		return r;
	if (sbx_snapshots_newest_verified(dir, session_name, &newest) == 0 &&
	    sbx_snapshots_receipt(dir, session_name, newest, &receipt, &message) == 0)
		*ret_is_due = !agrees(receipt, walk);
	else
		*ret_is_due = walk->entries->len > 0;
	sbx_receipt_free(receipt);
	sbx_walk_free(walk);
	return 0;
}
