/*
 * files_impl - the insides of files.h, shared by files.c (table, names), file_open.c, file_io.c
 * (reading, writing, attributes), publish.c and recover.c. For no other module.
 *
 * A node (struct sbx_node_file) is in files->nodes while its path names it. When the file is
 * removed or replaced here the node leaves the table ("detached"): its open files go on with what
 * was set aside, what they write is never published.
 *
 * Invariants, under node->lock:
 *   spool != NULL     some bytes are in it; sent_seq < write_seq: some of them are unsent
 *   owed              a publish was wanted while the path was held: it begins when it is let go
 *   content           the version that open files without a pin read; NULL: not opened yet
 *
 * References: node->refs counts open files, tasks, and 1 while bytes are unsent. files->lock.
 */
#ifndef SBX_CLIENT_WORKSPACE_FILES_IMPL_H
#define SBX_CLIENT_WORKSPACE_FILES_IMPL_H

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/call.h"
#include "client/workspace/content.h"
#include "client/workspace/files.h"
#include "client/workspace/spool.h"
#include "client/workspace/workspace.h"

struct early;
struct sbx_mark; /* mark.h */
struct sbx_task_pool;

struct sbx_files {
	struct sbx_session *session;
	struct sbx_names *names;
	struct sbx_contents *contents;
	struct sbx_task_pool *pool;
	struct sbx_workspace_options options;
	int spool_dirfd;
	struct sbx_mark *mark;

	pthread_mutex_t lock;
	pthread_cond_t idle; /* n_tasks became 0 */
	GHashTable *nodes; /* path (of the node) -> struct sbx_node_file */
	unsigned int n_tasks; /* of the pool, that use this */
	unsigned int n_unsent; /* nodes that keep a reference for unsent bytes */
	bool closing;

	/* recover.c */
	struct files_retry *retry;
};

struct sbx_node_file {
	struct sbx_files *files;
	int refs; /* files->lock */
	bool in_table; /* files->lock */
	char *path; /* changed under both locks */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* publishing, placing, sent_seq, n_holds */
	GQueue handles; /* struct sbx_file by link */

	struct sbx_content *content;
	struct sbx_attr attr; /* the sandbox's, as last seen here; with has_attr */
	bool has_attr; /* the sandbox has the file */
	bool fresh; /* made by an exclusive creation and empty: the first write is of a new file */
	bool detached;
	char *held; /* where a detached file was set aside; NULL: nowhere */

	struct sbx_spool *spool;
	uint64_t write_seq; /* counts changes */
	uint64_t sent_seq; /* the sandbox has all up to this one */
	bool written; /* some unsent change is a write */
	int64_t written_ns; /* wall clock of the last change */
	bool keeps_ref; /* the reference for unsent bytes is held */

	bool publishing;
	bool publish_again; /* once more when that has succeeded: something may have come since */
	bool placing; /* a request that changes the path is under way */
	unsigned int n_holds; /* the path is about to change: no such request may begin */
	bool owed; /* one was wanted meanwhile */
	unsigned int attempts; /* that have ended */
	uint64_t attempt_seq; /* what the last one covered */
	int attempt_error;
	unsigned int n_waiting; /* for a publish */
	int64_t moved_ms; /* when a publish last got on, or surely will have */
	bool failed; /* the last attempt failed: a retry is due */
	unsigned int stat_run; /* publications caused by fstat since the file was opened */
	struct early *early; /* an upload under way (early.h); NULL: none */
	bool early_tried; /* since the last publish */
	bool left; /* a dead mount has left what is unsent, and nobody has changed it here since */

	int64_t append_due_ms; /* monotonic: when appended bytes are to be sent; 0: none */
};

struct sbx_file {
	struct sbx_node_file *node;
	GList link; /* in node->handles; data is the file */
	pid_t opener; /* the process of one for writing */
	bool writable;
	bool readable;
	bool wrote; /* since the last publish */
	bool closed; /* by its opener, and nothing was written since: its release is on its way,
		      * unless there are other copies of the descriptor */
	struct sbx_content *pinned; /* an older version than the node's; NULL: follows the node */
	struct sbx_reader reader;
};

#define APPEND_DELAY_MS 2000
/* After so many publications by fstat its times are estimated. */
#define STAT_RUN_MAX 3

/* files.c ------------------------------------------------------------------------------------ */

int64_t files_sandbox_now_ns(struct sbx_files *files);
struct sbx_node_file *nfile_ref(struct sbx_node_file *node);
void nfile_unref(struct sbx_node_file *node);
/* A new reference of the node of @path, or NULL. */
struct sbx_node_file *files_find(struct sbx_files *files, const char *path);
/* The same; made when there is none. */
struct sbx_node_file *files_obtain(struct sbx_files *files, const char *path);

/* References of the nodes at @path and below it (NULL: all). */
GPtrArray *files_collect(struct sbx_files *files, const char *path);

bool nfile_is_unsent_locked(const struct sbx_node_file *node);
bool nfile_has_writer_locked(const struct sbx_node_file *node);
/* Attributes with the unsent changes. */
void nfile_local_attr_locked(struct sbx_node_file *node, struct sbx_attr *ret_attr);
/* Tell the store of names what shows here. */
void nfile_show_locked(struct sbx_node_file *node);
/* A change was recorded in the spool. */
void nfile_changed_locked(struct sbx_node_file *node, bool is_write);
/* Hold or drop the reference for unsent bytes, as is due. Without locks. */
void nfile_settle_ref(struct sbx_node_file *node);
/* Begin unsent bytes: the spool a change goes to. @attr_only: of mode and times, which leaves a
 * file that was just made the one that it is. */
int nfile_spool_locked(struct sbx_node_file *node, bool attr_only);
/* All content is new from here on. @flags: SBX_SPOOL_NEW, SBX_SPOOL_ADDS, @mode of a new file. */
int nfile_restart_locked(struct sbx_node_file *node, unsigned int flags, mode_t mode);
/* @attr was seen. Where that is another version, those that read the old one keep it. */
void nfile_set_attr_locked(struct sbx_node_file *node, const struct sbx_attr *attr);
/* The store of names knows that the same file has changed in place since: its open files see that.
 * Returns whether it was so. */
bool nfile_follow_locked(struct sbx_node_file *node);
/* The sandbox has no such file any more. */
void nfile_forget_attr_locked(struct sbx_node_file *node);
/* The content that @file reads (a reference). Lets go of node->lock, which the caller holds, while
 * it asks. */
int nfile_content_locked(struct sbx_node_file *node, const struct sbx_call *call,
			 struct sbx_content **ret_content);

/* file_io.c ---------------------------------------------------------------------------------- */

/* @attr of @path was seen: publish what is unsent of another name of that file. @left: only where
 * its last writer has closed it. Without locks. */
int files_publish_links(struct sbx_files *files, const struct sbx_call *call, const char *path,
			const struct sbx_attr *attr, bool left);

/* publish.c ---------------------------------------------------------------------------------- */

/* Have what is unsent sent by the pool, if that is not under way. Without locks. */
int publish_start(struct sbx_node_file *node);
/* The same, and wait until all changes up to now are in the sandbox. Without locks. */
int publish_wait(struct sbx_node_file *node, const struct sbx_call *call);
/* sbx_call.moved, of what sends a node's bytes; @arg: the node. */
void nfile_moved(void *arg);
/* As publish_start(), and when an attempt is under way another after it. */
int publish_after(struct sbx_node_file *node);

/* recover.c ---------------------------------------------------------------------------------- */

struct files_retry *retry_new(struct sbx_files *files);
/* The files are going: no delayed task will touch them. */
void retry_stop(struct files_retry *retry);
void retry_free(struct files_retry *retry);
/* Take over the spools of dead owners, now and, until retry_stop(), from time to time. */
void retry_begin(struct sbx_files *files);
/* The bytes of a node were sent: those that another spool has for the same path are next. */
void retry_sent(struct sbx_files *files);
/* Left-over bytes of @path, begun at @begun_ns, are in the sandbox and have made it *attr; and what
 * older ones have made it (zeros: there were none), which is not a change of somebody else's. */
void recover_note(struct sbx_files *files, const char *path, int64_t begun_ns,
		  const struct sbx_attr *attr);
void recover_older(struct sbx_files *files, const char *path, int64_t begun_ns,
		   struct sbx_version *ret_version);
/*
 * The sandbox has changed the file @path, which is *attr now, since the left-over bytes of @node
 * were written: they get a name of their own beside it, and are sent there. Nothing is lost of
 * either. -ECANCELED when that has begun, or is no longer wanted. Without locks.
 */
int recover_aside(struct sbx_node_file *node, const struct sbx_call *call, const char *path,
		  const struct sbx_attr *attr);
/* Some publish has failed: try again later. */
void retry_arm(struct sbx_files *files);

/* In @delay_ms at the latest send what was appended to files that stay open (append_due_ms). */
void append_arm(struct sbx_files *files, int64_t delay_ms);

/* A task of the pool that uses @files; ends with files_task_end(). -ECANCELED: closing. */
int files_task_begin(struct sbx_files *files);
void files_task_end(struct sbx_files *files);

#endif
