/*
 * POST /exec: from the JSON of the request to a command, and from its outcome to JSON.
 */
#ifndef SBX_SBXD_EXECROUTE_H
#define SBX_SBXD_EXECROUTE_H

#include "tests/sbxd/service.h"

/* Fill the exchange's reply. Blocks until the command and all holders of its output have ended. */
void execroute_serve(struct exchange *x);

#endif
