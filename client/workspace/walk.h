/*
 * walk - a whole tree, entry by entry, for what must see all of it at once: persist, hydrate, a
 * check. It is asked of the sandbox, and the store of names is left alone; or it is what that store
 * knows, and nobody is asked.
 *
 * sbx_names_walk() blocks in the caller's thread, within the call's limits. No lock.
 */
#ifndef SBX_CLIENT_WORKSPACE_WALK_H
#define SBX_CLIENT_WORKSPACE_WALK_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

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

/* What the store of names knows of it. @sure: but for what was doubted since it was seen, by the
 * end of a job or sbx_names_refresh(). Never asks; clock_ns and unreadable are 0. */
struct sbx_walk *sbx_names_walk_known(struct sbx_names *names, bool sure);
/* Differs from what it was before whenever what the store knows may have changed. Never asks. */
uint64_t sbx_names_changes(struct sbx_names *names);

/* The entry of @path, or NULL. */
const struct sbx_walk_entry *sbx_walk_find(const struct sbx_walk *walk, const char *path);

#endif
