/*
 * snapshotdir - MNT/snapshots/: a directory for each session that has, or may get, snapshots, and
 * in it SNAPSHOT.tar with its receipt SNAPSHOT.json.
 *
 * Names come from the sessions known here and from the state directory, where snapshots outlive
 * their session; mkdir makes the directory of a session that is not there (yet), rmdir takes an
 * empty one away. Files are read from this machine; rm deletes (with an archive its receipt goes).
 * What is copied in is kept aside and checked at its writer's close: EINVAL, and nothing is left,
 * where it is no archive that could be laid over a workspace. Nothing here asks the server.
 *
 * Locking: one lock for all files that are being copied in, never held while one is checked.
 */
#ifndef SBX_FUSEFS_SNAPSHOTDIR_H
#define SBX_FUSEFS_SNAPSHOTDIR_H

struct fs;
struct node_class;

/* "NAME, AGE s" of the newest snapshot of the session @name; NULL: there is none. g_free(). */
char *snapshot_newest(struct fs *fs, const char *name);

extern const struct node_class snapshots_class;

#endif
