#include "fusefs/notify.h"

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

void notify_names(struct fs *fs)
{
	const struct notify_header epoch = { .len = sizeof(epoch), .error = NOTIFY_INC_EPOCH };

	if (!fs->fuse || fuse_session_exited(fs->fuse))
		return;
	/* An old kernel says EINVAL, one without the mount ENODEV. */
	if (write(fuse_session_fd(fs->fuse), &epoch, sizeof(epoch)) < 0)
		g_debug("names stay believed until their time is over");
}

void notify_refresh(struct fs *fs, struct fsession *fsession)
{
	g_autofree uint64_t *ids = NULL;
	size_t n;

	notify_names(fs);
	n = fsession ? node_ids(fs->nodes, fsession, &ids) : 0;
	for (size_t i = 0; i < n && fs->fuse && !fuse_session_exited(fs->fuse); i++)
		(void)fuse_lowlevel_notify_inval_inode(fs->fuse, ids[i], -1, 0);
}

void notify_attr(struct fs *fs, const struct node *node)
{
	if (fs->fuse && !fuse_session_exited(fs->fuse))
		(void)fuse_lowlevel_notify_inval_inode(fs->fuse, node->id, -1, 0);
}
