/*
 * The archive store of host sessions: one tar file a session in the archive directory, as lossy as
 * the reference server's.
 *
 * No state of its own, no locks; all of it is file work. Ids have been checked by the caller.
 */
#ifndef SBX_SBXD_ARCHIVE_H
#define SBX_SBXD_ARCHIVE_H

#include <stdbool.h>

#include "tests/sbxd/options.h"

bool archive_exists(const struct options *opt, const char *id);

/* Put a tree into the store, whole or not at all. 0, or negative errno for what can't be stored. */
int archive_store(const struct options *opt, const char *id, const char *dir);

/* Lay the archive out in the empty @dir. 0, or negative errno; the archive stays in any case. */
int archive_thaw(const struct options *opt, const char *id, const char *dir);

void archive_remove(const struct options *opt, const char *id);

/* Remove archives that are older than opt->archive_ttl_ms. */
void archive_expire(const struct options *opt);

#endif
