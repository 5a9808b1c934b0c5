/*
 * walk - a whole tree as it is now, entry by entry, for what must see all of it at once: persist,
 * hydrate, a check. It asks the sandbox and leaves the store of names alone.
 *
 * Blocks in the caller's thread, within the call's limits. No lock.
 */
#ifndef SBX_CLIENT_WORKSPACE_WALK_H
#define SBX_CLIENT_WORKSPACE_WALK_H

#include <glib.h>

#include "client/attr.h"

struct sbx_call;
struct sbx_names;

struct sbx_walk_entry {
	char *path; /* relative to the workspace's root */
	char *link; /* text of a symbolic link, else NULL */
	struct sbx_attr attr;
};

struct sbx_walk {
	GPtrArray *entries; /* struct sbx_walk_entry *, sorted by path bytewise; without the root */
	int64_t clock_ns; /* the sandbox's, before the first look */
	unsigned int unreadable; /* directories that could not be listed */
};

/* Of everything in the workspace but .sbxfs. -EOPNOTSUPP without exec. */
int sbx_names_walk(struct sbx_names *names, const struct sbx_call *call,
		   struct sbx_walk **ret_walk);
void sbx_walk_free(struct sbx_walk *walk);

/* The entry of @path, or NULL. */
const struct sbx_walk_entry *sbx_walk_find(const struct sbx_walk *walk, const char *path);

#endif
