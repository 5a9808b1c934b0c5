/*
 * A mount namespace without FUSE mounts, for sbxd-jail.
 *
 * A namespace has a copy of each mount that was there when it was made. Where mounts don't
 * propagate, a FUSE mount that ends outside lives on in the copy, and its daemon with it, for as
 * long as the namespace is kept. Without GLib, like the program; no locks.
 */
#ifndef SBX_SBXD_FUSELESS_H
#define SBX_SBXD_FUSELESS_H

/*
 * Take the FUSE mounts out of this process's mount namespace, which must be its own and must not
 * propagate. Root unmounts them. Anybody else, in a user namespace, may not: all mounts that were
 * copied are locked there, one to the other (mount_namespaces(7)). So such a process changes to a
 * new root, a tmpfs that shows what "/" did, and lets the old one go as a whole (pivot_root(2)).
 * A directory of "/" with a FUSE mount in it shows only the directory that STATE (a directory's
 * physical path) is in and that of this program; but those that @whole names, up to a NULL, are
 * shown with all that is in them.
 *
 * When that fails, the root stays as it was, and mounts that can't be unmounted stay.
 * The working directory is "/" afterwards if the root is new.
 */
void fuseless_make(const char *state, const char *const *whole);

#endif
