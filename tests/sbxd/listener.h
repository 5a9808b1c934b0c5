/*
 * The listening socket and its connections, one thread each.
 *
 * One lock guards the set of connections, a leaf. listener_run() belongs to the main thread.
 */
#ifndef SBX_SBXD_LISTENER_H
#define SBX_SBXD_LISTENER_H

#include "tests/sbxd/service.h"

struct listener;

/* Bind and listen. 0 or negative errno. */
int listener_open(const struct options *opt, struct listener **ret_listener);
void listener_free(struct listener *listener);

/* ADDRESS:PORT as bound; lives as long as the listener. */
const char *listener_address(const struct listener *listener);

/* Accept until @signal_fd is readable, then stop accepting. Blocks. */
void listener_run(struct listener *listener, struct service *service, int signal_fd);

/* End every connection and wait for their threads. Blocks. */
void listener_end_connections(struct listener *listener);

#endif
