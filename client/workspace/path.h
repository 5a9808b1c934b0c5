/*
 * path - the form of paths in a workspace (workspace.h), checked and compared.
 *
 * Pure functions.
 */
#ifndef SBX_CLIENT_WORKSPACE_PATH_H
#define SBX_CLIENT_WORKSPACE_PATH_H

#include <stdbool.h>

/*
 * 0 for a path in the form of workspace.h: "" or components that are not empty, "." or "..", or the
 * same behind a "/", or "/" itself. -EINVAL: another form, a component over 255 bytes;
 * -ENAMETOOLONG: as long as PATH_MAX.
 */
int sbx_path_check(const char *path);

/* @path is @dir, or below it. */
bool sbx_path_is_within(const char *path, const char *dir);

/* The directory that holds @path: "" holds "a", "/" holds "/usr". NULL: it is a root. g_free(). */
char *sbx_path_parent(const char *path);

#endif
