#include "fusefs/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <glib.h>

#include "client/call.h"
#include "client/task.h"
#include "fusefs/fs.h"
#include "fusefs/node.h"
#include "fusefs/told.h"

/* linux/fuse.h of 6.16; libfuse 3.14 has no function for it. */
#define NOTIFY_INC_EPOCH 8
/* No longer than this for a directory that is locked, whatever ttl is. */
#define WAIT_MAX_MS 1000

struct notify_header {
	uint32_t len;
	int32_t error;
	uint64_t unique; /* 0: a notification */
};

/* The connection, until notify_end(); NULL: there is none any more. */
static struct fuse_session *notify_begin(struct fs *fs)
{
	pthread_rwlock_rdlock(&fs->fuse_lock);
	if (fs->fuse && !fuse_session_exited(fs->fuse))
		return fs->fuse;
	pthread_rwlock_unlock(&fs->fuse_lock);
	return NULL;
}

static void notify_end(struct fs *fs)
{
	pthread_rwlock_unlock(&fs->fuse_lock);
}

/* All names of the mount. */
static void notify_epoch(struct fs *fs)
{
	const struct notify_header epoch = { .len = sizeof(epoch), .error = NOTIFY_INC_EPOCH };
	struct fuse_session *fuse = notify_begin(fs);

	if (!fuse)
		return;
	/* An old kernel says EINVAL, one without the mount ENODEV. */
	if (write(fuse_session_fd(fuse), &epoch, sizeof(epoch)) < 0)
		g_debug("names stay believed until their time is over");
	notify_end(fs);
}

/* False: this kernel can't do it, or the mount is gone. */
static bool notify_expire(struct fs *fs, uint64_t dir, const char *name)
{
	struct fuse_session *fuse = notify_begin(fs);
	int r;

	if (!fuse)
		return false;
	r = fuse_lowlevel_notify_expire_entry(fuse, dir, name, strlen(name), FUSE_LL_EXPIRE_ONLY);
	notify_end(fs);
	return r == 0 || r == -ENOENT;
}

/* What is to expire. */
struct expiry {
	struct fs *fs;
	struct told_name *names;
};

static int expiry_run(void *arg)
{
	const struct expiry *expiry = arg;
	const struct told_name *name = expiry->names;

	while (name && notify_expire(expiry->fs, name->dir, name->name))
		name = name->next;
	return 0;
}

static void expiry_free(void *arg)
{
	struct expiry *expiry = arg;

	told_names_free(expiry->names);
	g_free(expiry);
}

/* Takes @names over. */
static void notify_told(struct fs *fs, struct told_name *names)
{
	const struct sbx_call call = { .cancel = fs->stop };
	struct expiry *expiry;
	struct sbx_task *task;

	if (!names)
		return;
	expiry = g_new(struct expiry, 1);
	*expiry = (struct expiry){ fs, names };
	if (sbx_task_start_now(fs->parts.pool, expiry_run, expiry, expiry_free, &task) < 0) {
		expiry_free(expiry);
		return;
	}
	(void)sbx_task_wait(task, &call, MIN(fs->config.ttl_ms, WAIT_MAX_MS));
	sbx_task_unref(task);
}

void notify_names(struct fs *fs, struct fsession *fsession)
{
	struct told_name *names;
	bool lost;

	names = told_take(fs->told, fsession, &lost);
	names = node_told_names(fs->nodes, fsession, sbx_clock_ms(), names);
	if (lost) {
		told_names_free(names);
		notify_epoch(fs);
		return;
	}
	notify_told(fs, names);
}

void notify_name(struct fs *fs, uint64_t dir, const char *name)
{
	notify_told(fs, told_name_new(dir, name));
}

static void notify_id(struct fs *fs, uint64_t id)
{
	struct fuse_session *fuse = notify_begin(fs);

	if (!fuse)
		return;
	(void)fuse_lowlevel_notify_inval_inode(fuse, id, -1, 0);
	notify_end(fs);
}

void notify_attrs(struct fs *fs, struct fsession *fsession)
{
	g_autofree uint64_t *ids = NULL;
	size_t n = node_ids(fs->nodes, fsession, &ids);

	for (size_t i = 0; i < n; i++)
		notify_id(fs, ids[i]);
}

void notify_refresh(struct fs *fs, struct fsession *fsession)
{
	notify_names(fs, fsession);
	notify_attrs(fs, fsession);
}

void notify_attr(struct fs *fs, const struct node *node)
{
	notify_id(fs, node->id);
}
