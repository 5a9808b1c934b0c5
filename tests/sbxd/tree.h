/*
 * Whole directory trees. No state, no locks; file work.
 */
#ifndef SBX_SBXD_TREE_H
#define SBX_SBXD_TREE_H

/* Remove a tree as far as it goes, links not followed. What can't be removed stays. */
void tree_remove(const char *path);

/*
 * Make a directory and its missing parents, 0755. 0 or negative errno: -EEXIST where the path
 * itself is no directory, -ENOTDIR where one of its parents is none.
 */
int tree_make_dirs(const char *path);

#endif
