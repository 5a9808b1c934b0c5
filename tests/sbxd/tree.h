/*
 * Whole directory trees, and files without a name. No state, no locks; file work.
 */
#ifndef SBX_SBXD_TREE_H
#define SBX_SBXD_TREE_H

/* Remove a tree as far as it goes, links not followed. What can't be removed stays. */
void tree_remove(const char *path);

/*
 * Make a directory and its missing parents, 0755. 0 or negative errno: -EEXIST where the path
 * itself is no directory, -ENOTDIR where one of its parents is none. As in Node, most errors of
 * mkdir() give way to those of stat(): a dangling link and a read-only file system are -ENOENT.
 */
int tree_make_dirs(const char *path);

/* A new file in @dir that has no name, opened for both. The descriptor or negative errno. */
int tree_open_unnamed(const char *dir);

#endif
