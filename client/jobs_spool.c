/*
 * What is kept here of a job's log, and what of an ended job outlives its session. A spool has a
 * name, under which a later mount finds it, where no other mount has it open (flock).
 *
 * The logs that the sessions of a mount have open share one half of the bound. Above it first those
 * of ended jobs that nobody reads are let go of, then the beginnings of others. What earlier mounts
 * left may take the other half; the oldest go when a session's jobs are first used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/errlog.h"
#include "client/jobs_impl.h"
#include "client/localfile.h"
#include "client/session.h"
#include "client/statedir.h"

#define SPOOL_DIRECTORY "jobs"
#define END_BYTES_MAX	(1 << 20)
/* Made free beyond what is needed, so that a growing log does not ask for room each time. */
#define SPARE_PART 8

static const char *const suffixes[] = { "log", "end" };

/* One start of one id: a later job of the same id never gets the bytes of an earlier one. */
static char *spool_name(const struct sbx_job *job, const char *suffix)
{
	return g_strdup_printf("%s.%s.%s", job->id, job->op[0] ? job->op : "x", suffix);
}

static uint64_t spool_kept(const struct sbx_job *job)
{
	return job->spool_fd < 0 || job->spool_dropped || job->spool_forgotten
		       ? 0
		       : job->spooled - job->spool_from;
}

/* Tells how much all logs take with @bytes more. */
static uint64_t spool_count(struct sbx_jobs *jobs, int64_t bytes)
{
	return sbx_statedir_logs_grew(sbx_session_statedir(jobs->session), bytes);
}

/* The spool by its name. -1: there is no directory, or another mount has it. */
static int spool_open_named(const struct sbx_job *job)
{
	g_autofree char *name = spool_name(job, "log");
	int fd = openat(job->jobs->spool_dirfd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
			0600);

	/* What gives of its own is read by nobody else. */
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void job_spool_open_locked(struct sbx_job *job)
{
	struct sbx_jobs *jobs = job->jobs;
	struct stat st;

	if (job->spool_fd >= 0)
		return;
	job->spool_fd = spool_open_named(job);
	job->spool_named = job->spool_fd >= 0;
	/* Else the log lives as long as the mount. */
	if (job->spool_fd < 0)
		job->spool_fd =
			openat(jobs->spool_dirfd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (job->spool_fd < 0)
		job->spool_fd = memfd_create("sbxfs-job", MFD_CLOEXEC);
	/* A log without an id of its own may be another's: fetched anew. */
	if (!job->op[0])
		(void)!ftruncate(job->spool_fd, 0);
	if (fstat(job->spool_fd, &st) == 0 && !job->spooled) {
		size_t n = (size_t)MIN(st.st_size, (off_t)sizeof(job->tail));

		job->spooled = (uint64_t)st.st_size;
		spool_count(jobs, st.st_size);
		(void)!pread(job->spool_fd, job->tail + sizeof(job->tail) - n, n,
			     st.st_size - (off_t)n);
	}
}

void job_spool_close(struct sbx_job *job)
{
	if (job->spool_fd < 0)
		return;
	spool_count(job->jobs, -(int64_t)spool_kept(job));
	close(job->spool_fd);
	job->spool_fd = -1;
}

/* No later mount is to find it. */
static void spool_unname_locked(struct sbx_job *job)
{
	if (!job->spool_named)
		return;
	job->spool_named = false;
	for (size_t i = 0; i < G_N_ELEMENTS(suffixes); i++) {
		g_autofree char *name = spool_name(job, suffixes[i]);

		(void)unlinkat(job->jobs->spool_dirfd, name, 0);
	}
}

void job_spool_forget_locked(struct sbx_job *job)
{
	spool_unname_locked(job);
	spool_count(job->jobs, -(int64_t)spool_kept(job));
	job->spool_forgotten = true;
}

/* Nothing of it is kept, now and later. */
static void spool_drop_locked(struct sbx_job *job)
{
	spool_count(job->jobs, -(int64_t)spool_kept(job));
	job->spool_dropped = true;
	(void)!ftruncate(job->spool_fd, 0);
}

/* Its first @bytes make room. What is not whole is of no use to a later mount. */
static void spool_shorten_locked(struct sbx_job *job, uint64_t bytes)
{
	off_t from = (off_t)(job->spool_from + bytes);

	spool_unname_locked(job);
	if (fallocate(job->spool_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, from) < 0) {
		spool_drop_locked(job);
		return;
	}
	job->spool_from = (uint64_t)from;
	spool_count(job->jobs, -(int64_t)bytes);
}

static bool spool_is_read(const struct sbx_job *job)
{
	return job->reader_until_ms > sbx_clock_ms();
}

/* The longest of those kept; NULL: none. */
static struct sbx_job *spools_longest_locked(struct sbx_jobs *jobs, bool also_read)
{
	struct sbx_job *longest = NULL;
	GHashTableIter iter;
	void *value;

	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if ((also_read || !spool_is_read(value)) &&
		    spool_kept(value) > (longest ? spool_kept(longest) : 0))
			longest = value;
	return longest;
}

void sbx_jobs_bound_logs(struct sbx_jobs *jobs, bool also_read)
{
	const uint64_t bound = jobs->options.log_bytes / 2;
	struct sbx_job *longest;
	GHashTableIter iter;
	uint64_t total;
	void *value;

	pthread_mutex_lock(&jobs->lock);
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (spool_count(jobs, 0) > bound && g_hash_table_iter_next(&iter, NULL, &value)) {
		struct sbx_job *job = value;

		if (sbx_job_state_is_final(job->state) && spool_kept(job) && !spool_is_read(job))
			spool_drop_locked(job);
	}
	while ((total = spool_count(jobs, 0)) > bound &&
	       (longest = spools_longest_locked(jobs, also_read)))
		spool_shorten_locked(longest,
				     MIN(spool_kept(longest), total - bound + bound / SPARE_PART));
	pthread_mutex_unlock(&jobs->lock);
}

void job_spool_append_locked(struct sbx_job *job, const void *data, size_t len)
{
	int r = job->spool_dropped ? 0 : sbx_local_write(job->spool_fd, data, len, job->spooled);

	if (r < 0) {
		spool_drop_locked(job);
		sbx_errlog_note(sbx_session_errors(job->jobs->session), "jobs", job->id, r,
				"the cache can't hold its log, which is read from the sandbox");
	}
	job->spooled += len;
	if (!job->spool_dropped && !job->spool_forgotten)
		spool_count(job->jobs, (int64_t)len);
}

bool job_spool_has_locked(const struct sbx_job *job, uint64_t offset)
{
	return job->spool_fd >= 0 && !job->spool_dropped && offset >= job->spool_from;
}

void job_spool_save_end_locked(struct sbx_job *job)
{
	struct sbx_jobs *jobs = job->jobs;
	g_autofree char *name = spool_name(job, "end");
	g_autofree char *text = NULL;

	if (!job->spool_named || !job->op[0] || !job_spool_has_locked(job, 0))
		return;
	text = g_strdup_printf("%d %d %d %" G_GINT64_FORMAT " %" G_GUINT64_FORMAT " %u\n%s\n%s\n%s",
			       (int)job->ended_state, job->has_exit_code, job->exit_code,
			       job->ended_ms, job->remote_bytes, job->left, job->dir, job->op,
			       job->meta ? job->meta : "");
	(void)sbx_statedir_replace(jobs->spool_dirfd, name, text, strlen(text));
}

static void load_end(struct sbx_jobs *jobs, const char *name)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;
	g_autofree char *id = NULL;
	int state, has_exit, code;
	int64_t ended_ms;
	uint64_t bytes;
	unsigned int left;
	struct sbx_job *job;
	char *dot;

	if (sbx_statedir_read(jobs->spool_dirfd, name, END_BYTES_MAX, &text, NULL) < 0)
		return;
	lines = g_strsplit(text, "\n", 4);
	if (g_strv_length(lines) != 4 ||
	    sscanf(lines[0], "%d %d %d %" G_GINT64_FORMAT " %" G_GUINT64_FORMAT " %u", &state,
		   &has_exit, &code, &ended_ms, &bytes, &left) != 6 ||
	    state < SBX_JOB_EXITED || state > SBX_JOB_CRASHED)
		return;
	dot = g_strrstr(name, lines[2]);
	if (!dot || dot <= name)
		return;
	id = g_strndup(name, (size_t)(dot - name - 1));
	if (!sbx_job_id_is_valid(id) || g_hash_table_lookup(jobs->by_id, id))
		return;
	pthread_mutex_lock(&jobs->lock);
	job = job_new_locked(jobs, id, lines[1], lines[2]);
	job->ended = true;
	job->ended_state = job->state = (enum sbx_job_state)state;
	job->has_exit_code = has_exit;
	job->exit_code = code;
	job->ended_ms = ended_ms;
	job->remote_bytes = bytes;
	job->left = left;
	job_spool_open_locked(job);
	job_take_record_locked(job, &(struct sbx_job_record){ .meta = lines[3] });
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_unref(job);
}

/* What earlier mounts left, of whatever session ----------------------------------------------- */

struct left_log {
	char *path; /* below the directory of all sessions', without its suffix */
	uint64_t bytes;
	int64_t used_ns;
};

static void left_log_clear(void *data)
{
	g_free(((struct left_log *)data)->path);
}

static gint left_log_older(gconstpointer a, gconstpointer b)
{
	const struct left_log *left = a, *right = b;

	return (left->used_ns > right->used_ns) - (left->used_ns < right->used_ns);
}

static bool is_in_use(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool used = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;

	if (fd >= 0)
		close(fd);
	return used;
}

/* Adds those of the session @tag that nobody has open. */
static void left_logs_of(int dirfd, const char *tag, GArray *logs)
{
	int fd = openat(dirfd, tag, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? sbx_local_opendir(fd) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct left_log log;
		struct stat st;

		if (!g_str_has_suffix(entry->d_name, ".log") ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    is_in_use(fd, entry->d_name))
			continue;
		log.path = g_strdup_printf("%s/%.*s", tag, (int)strlen(entry->d_name) - 4,
					   entry->d_name);
		log.bytes = (uint64_t)st.st_blocks * 512;
		log.used_ns = st.st_mtim.tv_sec * (int64_t)1000000000 + st.st_mtim.tv_nsec;
		g_array_append_val(logs, log);
	}
	if (dir)
		closedir(dir);
	if (fd >= 0)
		close(fd);
}

/* Removes the oldest beyond the bound. */
static void left_logs_bound(struct sbx_jobs *jobs)
{
	g_autoptr(GArray) logs = g_array_new(FALSE, FALSE, sizeof(struct left_log));
	int dirfd =
		sbx_statedir_cache_opendir(sbx_session_statedir(jobs->session), SPOOL_DIRECTORY);
	DIR *dir = dirfd >= 0 ? sbx_local_opendir(dirfd) : NULL;
	struct dirent *entry;
	uint64_t total = 0;

	g_array_set_clear_func(logs, left_log_clear);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			left_logs_of(dirfd, entry->d_name, logs);
	if (dir)
		closedir(dir);
	g_array_sort(logs, left_log_older);
	for (guint i = 0; i < logs->len; i++)
		total += g_array_index(logs, struct left_log, i).bytes;
	for (guint i = 0; i < logs->len && total > jobs->options.log_bytes / 2; i++) {
		const struct left_log *log = &g_array_index(logs, struct left_log, i);

		for (size_t j = 0; j < G_N_ELEMENTS(suffixes); j++) {
			g_autofree char *path = g_strdup_printf("%s.%s", log->path, suffixes[j]);

			(void)unlinkat(dirfd, path, 0);
		}
		total -= log->bytes;
	}
	if (dirfd >= 0)
		close(dirfd);
}

void jobs_spool_open(struct sbx_jobs *jobs)
{
	g_autofree char *relative =
		g_strdup_printf("%s/%s", SPOOL_DIRECTORY, sbx_session_tag(jobs->session));
	struct dirent *entry;
	DIR *dir;

	left_logs_bound(jobs);
	jobs->spool_dirfd =
		sbx_statedir_cache_opendir(sbx_session_statedir(jobs->session), relative);
	if (jobs->spool_dirfd < 0)
		return;
	dir = sbx_local_opendir(jobs->spool_dirfd);
	while (dir && (entry = readdir(dir)))
		if (g_str_has_suffix(entry->d_name, ".end"))
			load_end(jobs, entry->d_name);
	if (dir)
		closedir(dir);
}
