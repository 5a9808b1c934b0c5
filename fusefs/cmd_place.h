/*
 * cmd_place - where a path is, as seen from outside: mounts, sessions, directories in a sandbox.
 *
 * Only looks at files and at /proc/self/mounts.
 */
#ifndef SBX_FUSEFS_CMD_PLACE_H
#define SBX_FUSEFS_CMD_PLACE_H

#include <stdbool.h>

/* A path in a session of a mount. */
struct cmd_place {
	char *session; /* absolute path of the session's directory */
	bool is_ours; /* outside of what the sandbox names: the session's directory, jobs/, … */
	/* Its directory in the sandbox: relative to the workspace ("." its root), or absolute. */
	char *cwd;
};

/* -errno of a path that can't be walked; -ENOTTY: it is in no session. cmd_place_done(). */
int cmd_place_find(const char *path, struct cmd_place *ret_place);
void cmd_place_done(struct cmd_place *place);

/* Mount points of sbxfs, NULL at the end; g_strfreev(). */
char **cmd_place_mounts(void);

/* The value of @key in a file of "key: value" lines, or NULL. g_free(). */
char *cmd_place_value(const char *file, const char *key);

#endif
