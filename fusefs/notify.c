#include "fusefs/notify.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <glib.h>

#include "fusefs/fs.h"
#include "fusefs/node.h"

/* linux/fuse.h of 6.16; libfuse 3.14 has no function for it. */
#define NOTIFY_INC_EPOCH 8

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

void notify_names(struct fs *fs)
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

static void notify_id(struct fs *fs, uint64_t id)
{
	struct fuse_session *fuse = notify_begin(fs);

	if (!fuse)
		return;
	(void)fuse_lowlevel_notify_inval_inode(fuse, id, -1, 0);
	notify_end(fs);
}

void notify_refresh(struct fs *fs, struct fsession *fsession)
{
	g_autofree uint64_t *ids = NULL;
	size_t n;

	notify_names(fs);
	n = fsession ? node_ids(fs->nodes, fsession, &ids) : 0;
	for (size_t i = 0; i < n; i++)
		notify_id(fs, ids[i]);
}

void notify_attr(struct fs *fs, const struct node *node)
{
	notify_id(fs, node->id);
}
