/*
 * Which route a request means, and the way from a request to its reply.
 */
#ifndef SBX_SBXD_ROUTES_H
#define SBX_SBXD_ROUTES_H

#include "tests/sbxd/service.h"

/* Work out route, session id and path parameter of x->req. Does not block, changes nothing. */
void routes_find(struct exchange *x);

/*
 * Do what was asked and fill the reply; a reply with status 0 means that there is no answer.
 * Blocks for as long as it takes.
 */
void routes_serve(struct exchange *x);

/*
 * Read the body for a route. 0, or a negative errno when there is nothing to do but end the
 * connection (a 400 or 408 has been sent where the reference server sends one).
 */
int routes_read_body(struct exchange *x, struct body *ret_body);

/* The name for log and fault rules, by the reference's nine routes: GET and PUT are both "fs". */
const char *routes_name(enum route route);

/* Release what routes_find() and routes_serve() left in the exchange. */
void routes_clear(struct exchange *x);

#endif
