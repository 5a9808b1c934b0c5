/*
 * mountpoint - the directory that is mounted on: is it there, and is a dead mount of ours in the
 * way.
 *
 * Never waits for a living filesystem: what is mounted is read from /proc/self/mountinfo.
 */
#ifndef SBX_FUSEFS_MOUNTPOINT_H
#define SBX_FUSEFS_MOUNTPOINT_H

/*
 * Make sure that @path (absolute) is a directory that can be mounted on, and that FUSE is there. A
 * mount of type fuse.sbxfs on it whose daemon is gone (-ENOTCONN) is unmounted lazily. 0 and the
 * path without symbolic links, as mountinfo has it, or a negative errno with one line for the user
 * in *ret_message. g_free() either.
 */
int mountpoint_prepare(const char *path, char **ret_real, char **ret_message);

#endif
