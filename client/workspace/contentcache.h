/*
 * contentcache - bytes of files, kept across opens and mounts under the version that proves them.
 *
 * Two tiers: small contents (up to SBX_SMALL_BYTES) in memory, least recently used first out; and
 * files of the cache directory, one a content, shared by all sessions of the endpoint:
 *
 *   NAME        sha256 of session tag and version, in hex: a whole content
 *   part-XXXX   one that is still being fetched, flock'ed by its owner; it becomes NAME by a rename
 *               when it is whole and proven; what dead owners left is removed
 *
 * A file is believed only when its header names this tag and version and its length is right. Small
 * ones carry a checksum of their bytes; big ones are believed only in the boot in which they were
 * written, since they were not synced.
 *
 * The directory is bounded: when it may have outgrown the limit it is looked through, and files
 * longest unused are removed until 90 % are left. Whoever has one open keeps it.
 *
 * Who puts a content in vouches for it (content.h has the rule). Nothing here is needed: failures
 * of the local disk only cost a later request. Small contents are written by the pool, behind the
 * back of who puts them in, and those that a slow disk can't keep up with are not.
 *
 * Locking: one lock for the memory tier and the counters; inside it, the pool's. Blocks on the
 * local disk only.
 */
#ifndef SBX_CLIENT_WORKSPACE_CONTENTCACHE_H
#define SBX_CLIENT_WORKSPACE_CONTENTCACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/workspace/version.h"

#define SBX_SMALL_BYTES ((uint64_t)128 << 10)
/* Where the content begins in a file of the cache. */
#define SBX_CACHE_DATA 4096

struct sbx_blob; /* blob.h */
struct sbx_cache;
struct sbx_statedir;
struct sbx_task_pool; /* client/task.h */

/* @on_disk false: nothing is kept in the directory, parts have no name. */
int sbx_cache_new(struct sbx_statedir *dir, struct sbx_task_pool *pool, const char *tag,
		  bool on_disk, uint64_t limit_bytes, struct sbx_cache **ret_cache);
/* Waits until what was put in is written. */
void sbx_cache_free(struct sbx_cache *cache);

/* The content of a small version: a new reference, or NULL. */
struct sbx_blob *sbx_cache_get(struct sbx_cache *cache, const struct sbx_version *version);
void sbx_cache_put(struct sbx_cache *cache, const struct sbx_version *version,
		   struct sbx_blob *blob);
/* Likely there, without reading it. */
bool sbx_cache_has(struct sbx_cache *cache, const struct sbx_version *version);

/* A whole content as an open file (at SBX_CACHE_DATA); the caller closes it. -ENOENT. */
int sbx_cache_open(struct sbx_cache *cache, const struct sbx_version *version, int *ret_fd);

/* A content under way. */
struct sbx_cache_part {
	int fd; /* content at SBX_CACHE_DATA; closed by sbx_cache_part_done() */
	char name[32]; /* "": it has none */
};
int sbx_cache_part_new(struct sbx_cache *cache, struct sbx_cache_part *ret_part);
/* It is whole and proven: others may find it. The file stays open. */
void sbx_cache_part_commit(struct sbx_cache *cache, struct sbx_cache_part *part,
			   const struct sbx_version *version);
/* Close it; what was not committed is removed. */
void sbx_cache_part_done(struct sbx_cache *cache, struct sbx_cache_part *part);

/* There is no room on the disk: files longest unused go, @bytes of them. False: there were none. */
bool sbx_cache_evict(struct sbx_cache *cache, uint64_t bytes);

/* @len_bytes were written to a part: looks through the directory when it may be too full. */
void sbx_cache_grew(struct sbx_cache *cache, uint64_t len_bytes);

#endif
