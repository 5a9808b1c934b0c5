/*
 * notify - telling the kernel that what it keeps is old.
 *
 * Freshness rests on timeouts; this only makes a finished `refresh`, `sync` or job visible before
 * they run out. Attributes are dropped node by node, names by raising the connection's epoch
 * (Linux 6.16 on), which needs no directory's lock. So nothing here can wait for a request that is
 * being served. On older kernels names stay believed for ttl.
 *
 * Called from the pool's threads, never from a handler.
 */
#ifndef SBX_FUSEFS_NOTIFY_H
#define SBX_FUSEFS_NOTIFY_H

struct fs;
struct fsession;

/* Forget attributes of the session's nodes (NULL: none), and all names. */
void notify_refresh(struct fs *fs, struct fsession *fsession);

#endif
