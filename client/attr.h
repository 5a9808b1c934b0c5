/*
 * attr.h - what is known of one file of a sandbox: its lstat.
 *
 * A value, no lock. Names and link texts travel beside it, because most holders of attributes
 * have their own place for them.
 *
 * Times are the sandbox's own, in nanoseconds since the epoch; where its tools show whole seconds
 * only, has_ns is false and the fractions are 0.
 */
#ifndef SBX_CLIENT_ATTR_H
#define SBX_CLIENT_ATTR_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_attr {
	uint64_t ino;
	uint64_t dev;
	uint64_t size; /* bytes */
	uint64_t blocks; /* allocated, in units of 512 bytes */
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t mode; /* st_mode: type bits and 07777 */
	uint32_t nlink;
	bool has_ns;
};

/*
 * Whether two looks at a path saw the same version of the same file: device, inode, type, mode,
 * size, links and both times agree. The blocks do not count: a filesystem may allocate late.
 */
bool sbx_attr_same(const struct sbx_attr *a, const struct sbx_attr *b);

#endif
