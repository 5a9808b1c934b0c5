/*
 * The overlay profile's jail: bubblewrap with namespaces of its own for each command.
 *
 * Inside: the machine's files read-only, but for /usr, /etc, /var, /opt and /srv, which the session
 * may change for itself (see jailer.c; read-only too where overlays can't be mounted), the
 * workspace at /home/agent, the session's own /root and /var/tmp, and fresh /tmp, /run, /home, /mnt
 * and /dev. Works as root and, where user namespaces are allowed, as anybody.
 *
 * struct jail is a session's holder process, started with its first command. Its lock is held
 * while the holder starts or ends, and nothing else is taken under it.
 */
#ifndef SBX_SBXD_JAIL_H
#define SBX_SBXD_JAIL_H

#include <glib.h>

#define JAIL_BWRAP "/usr/bin/bwrap"

struct jail;
struct service;
struct session;

/* @home: the session's directory, where the jail keeps what persists beside the workspace. */
struct jail *jail_new(const char *home);
void jail_free(struct jail *jail);

/* End the holder; the next command starts another. Blocks until its overlays are unmounted. */
void jail_stop(struct jail *jail);

/*
 * Turn a command (the strings of @argv, not NULL-terminated yet) into the one that runs it in the
 * session's jail, in directory @cwd of the jail. 0 or negative errno. Blocks while a holder starts.
 */
int jail_wrap(GPtrArray *argv, const struct session *session, const char *cwd,
	      const struct service *service);

#endif
