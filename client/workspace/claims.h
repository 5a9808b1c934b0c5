/*
 * claims - the names that changes under way are about, so that others can pass them by.
 *
 * Two changes may be under way at once where neither names what the other names, nor a directory
 * above it. Entries of one directory do not meet: the sandbox's own kernel keeps them apart.
 *
 * Paths as in workspace.h. A multiset: what is claimed twice is given back twice. No locks, the
 * caller sees to that.
 */
#ifndef SBX_CLIENT_WORKSPACE_CLAIMS_H
#define SBX_CLIENT_WORKSPACE_CLAIMS_H

#include <stdbool.h>

struct sbx_claims;

struct sbx_claims *sbx_claims_new(void);
void sbx_claims_free(struct sbx_claims *claims); /* NULL is fine */

void sbx_claims_add(struct sbx_claims *claims, const char *path);
/* @path was added before. */
void sbx_claims_remove(struct sbx_claims *claims, const char *path);

/* @path is claimed, or something below it, or a directory above it. */
bool sbx_claims_meet(const struct sbx_claims *claims, const char *path);

#endif
