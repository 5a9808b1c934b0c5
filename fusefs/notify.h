/*
 * notify - telling the kernel that what it keeps is old.
 *
 * Freshness rests on timeouts; this only makes a job's end, or a finished `refresh`, visible before
 * they run out. Attributes are dropped node by node; names that were told lately (told.h) are made
 * to expire one by one (Linux 6.2 on; before that they stay believed for ttl): the next use asks
 * again, and as long as the answer is the same node, nobody loses his working directory and nothing
 * that is mounted below goes. Where more names were told than are remembered, all of them are
 * declared old by the connection's epoch (Linux 6.16 on), which does unmount what is mounted below.
 *
 * The kernel takes the lock of a name's directory for this, which a change that hangs may hold. So
 * it is done on the pool, and waited for as long as the names would be believed anyway, a second at
 * most. The names are those of directories of the sandbox: who holds the lock of one in the kernel,
 * the handler of a request about a name in fs/, must not call this.
 */
#ifndef SBX_FUSEFS_NOTIFY_H
#define SBX_FUSEFS_NOTIFY_H

#include <stdint.h>

struct fs;
struct fsession;
struct node;

/* Forget names and attributes of the session's nodes. */
void notify_refresh(struct fs *fs, struct fsession *fsession);

/* Forget names that are in the session's sandbox. */
void notify_names(struct fs *fs, struct fsession *fsession);

/* Forget @name in the directory of ours that has the id @dir, which no request of the caller's has
 * locked. */
void notify_name(struct fs *fs, uint64_t dir, const char *name);

/* Forget attributes of the session's nodes; of one node. Takes no lock but the inodes' own
 * attributes', so may be called anywhere. */
void notify_attrs(struct fs *fs, struct fsession *fsession);
void notify_attr(struct fs *fs, const struct node *node);

#endif
