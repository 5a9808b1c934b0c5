/*
 * snapshotdir - MNT/snapshots/: a directory for each session that has, or may get, snapshots.
 *
 * Names come from the sessions known here and from the state directory, where snapshots outlive
 * their session. Nothing here asks the server.
 */
#ifndef SBX_FUSEFS_SNAPSHOTDIR_H
#define SBX_FUSEFS_SNAPSHOTDIR_H

struct fs;
struct node_class;

/* "NAME, AGE s" of the newest snapshot of the session @name; NULL: there is none. g_free(). */
char *snapshot_newest(struct fs *fs, const char *name);

extern const struct node_class snapshots_class;

#endif
