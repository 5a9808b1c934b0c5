/*
 * A sandbox that has BusyBox only: a directory of its applets, and commands that find nothing else.
 *
 * Made once at start, constant afterwards; no locks.
 */
#ifndef SBX_SBXD_TOOLS_H
#define SBX_SBXD_TOOLS_H

#include <glib.h>

/*
 * Fill a directory under @root with a copy of busybox and a link to it for each applet. 0 with the
 * directory's path (the caller frees it), or negative errno; -ENOENT: no busybox on this machine.
 * Runs busybox, blocks.
 */
int tools_install(const char *root, char **ret_dir);

/*
 * Make a command live with the applets: every directory of the system in its PATH becomes @dir,
 * and a program named absolutely in one of them the applet of that name.
 */
void tools_confine(const char *dir, GPtrArray *argv, GPtrArray *env);

#endif
