/*
 * version - what proves that a file's content is unchanged: device, inode, size, mtime, ctime.
 *
 * Two looks at a file that give equal versions saw equal bytes, but for changes within one tick of
 * the sandbox's clock: hence SBX_VERSION_SETTLE_NS, the age that a ctime needs at the first look.
 *
 * Pure functions on plain data.
 */
#ifndef SBX_CLIENT_WORKSPACE_VERSION_H
#define SBX_CLIENT_WORKSPACE_VERSION_H

#include <stdbool.h>
#include <stdint.h>

#define SBX_VERSION_SETTLE_NS 20000000

struct sbx_attr; /* client/attr.h */

struct sbx_version {
	uint64_t dev;
	uint64_t ino;
	uint64_t size_bytes;
	int64_t mtime_ns;
	int64_t ctime_ns;
};

void sbx_version_of(const struct sbx_attr *attr, struct sbx_version *ret_version);
bool sbx_version_equal(const struct sbx_version *a, const struct sbx_version *b);
/* Equal versions give equal numbers; never 0. */
uint64_t sbx_version_hash(const struct sbx_version *version);

#endif
