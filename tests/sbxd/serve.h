/*
 * One connection from its first byte to its last: reads requests, has them served, answers, logs.
 */
#ifndef SBX_SBXD_SERVE_H
#define SBX_SBXD_SERVE_H

#include "tests/sbxd/service.h"

/* Serve requests until the connection ends. Does not close it. Blocks. */
void serve_connection(struct service *service, struct conn *conn);

#endif
