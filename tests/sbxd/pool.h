/*
 * The four threads that the reference server does all file work on. Work here holds one of four
 * places for as long as it takes; a read from a FIFO that nobody writes holds it for good, and four
 * of those stop every file route of every session.
 *
 * The lock is a leaf: nothing is taken under it.
 */
#ifndef SBX_SBXD_POOL_H
#define SBX_SBXD_POOL_H

struct pool;

struct pool *pool_new(void);
void pool_free(struct pool *pool);

/* Wait for a place. 0, or -ECANCELED once pool_stop() was called. Blocks. */
int pool_enter(struct pool *pool);
void pool_leave(struct pool *pool);

/* Let everybody who waits go with -ECANCELED. */
void pool_stop(struct pool *pool);

#endif
