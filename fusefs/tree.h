/*
 * tree - the files of a sandbox: fs/ of a session, and its .sbxfs-root.
 *
 * One class of nodes for both; a node's path (node_path) is what the workspace is asked for, where
 * paths that begin with '/' are the sandbox's own root: read-only, its top can't be listed, and it
 * has no proc, sys, dev.
 *
 * A lookup of a name that was known and can't be asked now is answered with what was known, valid
 * for no time (kernel.md); the operation itself then says what is wrong.
 */
#ifndef SBX_FUSEFS_TREE_H
#define SBX_FUSEFS_TREE_H

#include "client/workspace/links.h"

struct fs;
struct node_class;

extern const struct node_class tree_class;

/* Where a session's workspace stands in this mount, for links. Strings are the fs's. */
void tree_link_view(const struct fs *fs, struct sbx_link_view *ret_view);

#endif
