/*
 * fs - one mount: what main decided, the parts below it, and the loop that serves the kernel.
 *
 * fs holds no cache: names, attributes and content are asked of the workspace of each session
 * (client/workspace), whose freshness rules are the mount's. What fusefs keeps is what the kernel
 * knows: nodes (node.h), open files (op.h), inode numbers (ino.h), and the synthetic files' state.
 *
 * Locks of fusefs are all innermost: while one is held none other of fusefs is taken, nothing of
 * client/ is called that waits or takes a lock, and no reply is given. They are
 *   fsessions->lock (fsession.h), the node table's (node.h), jobs->lock of a session
 *   (sessionjobs.h), a scratch set's (scratch.h), a verb slot's and a verb input's (verb.h), told's
 *   (told.h), parks' and a parked read's (park.h), interrupts' (interrupt.h), and one of each open
 *   file that has a state (jobs/new, wait, an import, a file of ours).
 * Two things are done under one all the same: fs->fuse_lock is held, for reading, while the kernel
 * is notified (notify.h), and interrupts->lock while a token is fired.
 */
#ifndef SBX_FUSEFS_FS_H
#define SBX_FUSEFS_FS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fsessions;
struct fuse_session;
struct interrupts;
struct node;
struct node_table;
struct parks;
struct sbx_cancel;
struct sbx_errlog;
struct sbx_provider;
struct sbx_sessions;
struct sbx_statedir;
struct sbx_task_pool;
struct scratch_set;
struct told;

/* What main decided. Strings are borrowed for the life of the fs. Times in milliseconds. */
struct fs_config {
	uid_t uid; /* whom everything shows as owned by */
	gid_t gid;
	mode_t umask; /* taken from every mode under fs/ */
	int64_t ttl_ms;
	int64_t timeout_ms; /* longest wait without progress */
	int64_t mutation_timeout_ms; /* the same of what locks a directory in the kernel */
	bool allow_other;
	bool read_only;
	bool use_exec;
	bool raw_links; /* symlinks=raw */
	bool cache_on_disk;
	uint64_t content_cache_bytes; /* of all sessions together */
	uint64_t log_cache_bytes; /* and what is kept of their jobs' logs */
	const char *endpoint; /* as status shows it: never with a secret */
	const char
		*token; /* how the token is told of in status: "file PATH", "environment", "none" */
	const char *mountpoint; /* absolute, as given */
	const char *real_mountpoint; /* the same without symbolic links */
	const char *jobs_root; /* -o jobs_root=; NULL */
	unsigned int jobs_keep;
	const char *subtree; /* "dev1/fs": the mount's root is that directory; NULL or "": all */
};

/* The layers below, made by main and freed by it after fs_free(). */
struct fs_parts {
	struct sbx_provider *provider;
	struct sbx_sessions *sessions;
	struct sbx_errlog *errors;
	struct sbx_task_pool *pool; /* verbs, what is sent, last closes that wait */
	struct sbx_statedir *statedir;
};

#define FS_COUNTERS 48

struct fs {
	struct fs_config config;
	struct fs_parts parts;
	struct node_table *nodes;
	struct fsessions *fsessions;
	struct interrupts *interrupts;
	struct parks *parks;
	struct told *told; /* names that the kernel believes */
	struct scratch_set *root_scratch; /* scratch files of the root directory */
	struct sbx_cancel *stop; /* fires at shutdown: parent of every operation's token */
	pthread_rwlock_t fuse_lock; /* for fuse; held for reading while it is notified */
	struct fuse_session *fuse; /* while fs_loop() runs, for notifications */
	int64_t started_ns; /* wall clock; the times of static files */
	unsigned int root_verbs; /* atomic; commands of the root's control that run now (verb.h) */
	uint64_t counters[FS_COUNTERS]; /* atomic; by enum op_kind (op.h) */
};

/*
 * Make the fs. Nothing is asked of the server, except that a subtree in an unknown session is
 * -ENOENT, and one that names no directory of a mount is -EINVAL. -ENOMEM.
 */
int fs_new(const struct fs_config *config, const struct fs_parts *parts, struct fs **ret_fs);

/* Frees nodes, workspaces and open files that are left. The loop has ended. NULL is allowed. */
void fs_free(struct fs *fs);

/*
 * Stop every waiting operation at once (-EINTR), so that the loop's threads come back; operations
 * that begin afterwards are answered -EINTR too. From any thread, not from a signal handler.
 */
void fs_stop(struct fs *fs);

/*
 * After fs_stop() and the loop's end, before the pool's: wait until all parked reads are answered,
 * and end the polls of jobs. The jobs run on.
 */
void fs_end_waits(struct fs *fs);

/*
 * Publish unsent bytes of all sessions, waiting at most @timeout_ms in all. Returns how many files
 * stay unsent.
 */
size_t fs_sync_all(struct fs *fs, int64_t timeout_ms);

/* Keeps what sessions share in its bounds. Call every few seconds; blocks on the local disk
 * only. */
void fs_maintain(struct fs *fs);

/* How many files, and bytes, are unsent in all sessions. Asks nothing. */
void fs_pending(struct fs *fs, size_t *ret_files, uint64_t *ret_bytes);

/*
 * Serve @se, which is mounted and negotiated (negotiate.h), until it ends: 1,024 threads at most,
 * started as they are needed. Call with the signals that end the program blocked. Returns what
 * fuse_session_loop_mt() does, when all that waited is answered; fs_stop() was called then.
 */
int fs_loop(struct fs *fs, struct fuse_session *se);

/* Bytes of stack of each thread of the loop, as fs_loop() sets it. */
#define FS_THREAD_STACK_BYTES (512 * 1024)
#define FS_MAX_THREADS	      1024
/* No session holds more of the threads than this. */
#define FS_MAX_THREADS_SESSION (FS_MAX_THREADS * 3 / 4)

#endif
