/*
 * notify - telling the kernel that what it keeps is old.
 *
 * Freshness rests on timeouts; this only makes a finished `refresh`, `sync` or job visible before
 * they run out. Attributes are dropped node by node, names by raising the connection's epoch
 * (Linux 6.16 on), which needs no directory's lock. So nothing here can wait for a request that is
 * being served. On older kernels names stay believed for ttl.
 *
 * notify_refresh() is called from the pool's threads, never from a handler; notify_attr() takes no
 * lock but the inode's own attributes', and notify_names() none, so they may be called anywhere.
 */
#ifndef SBX_FUSEFS_NOTIFY_H
#define SBX_FUSEFS_NOTIFY_H

struct fs;
struct fsession;
struct node;

/* Forget attributes of the session's nodes (NULL: none), and all names. */
void notify_refresh(struct fs *fs, struct fsession *fsession);

/* Forget all names. */
void notify_names(struct fs *fs);

/* Forget the attributes of one node. */
void notify_attr(struct fs *fs, const struct node *node);

#endif
