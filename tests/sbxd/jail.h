/*
 * The overlay profile's jail: bubblewrap with namespaces of its own for each command.
 *
 * Inside: the machine's files read-only, the workspace at /home/agent, the session's own /root and
 * /var/tmp, which persist, and fresh /tmp, /run, /home, /mnt and /dev. Works as root and, where
 * user namespaces are allowed, as anybody.
 */
#ifndef SBX_SBXD_JAIL_H
#define SBX_SBXD_JAIL_H

#include <glib.h>

#include "tests/sbxd/service.h"

/*
 * Turn a command (the strings of @argv, not NULL-terminated yet) into the one that runs it in the
 * session's jail, in directory @cwd of the jail.
 */
void jail_wrap(GPtrArray *argv, const struct session *session, const char *cwd,
	       const struct service *service);

#endif
