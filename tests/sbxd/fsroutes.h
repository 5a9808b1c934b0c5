/*
 * GET and PUT /fs, GET /stat, GET /readdir. Each takes the session and path of the exchange and
 * fills its reply; PUT reads the body. May block; see pool.h.
 */
#ifndef SBX_SBXD_FSROUTES_H
#define SBX_SBXD_FSROUTES_H

#include "tests/sbxd/service.h"

void fsroutes_get(struct exchange *x);
void fsroutes_put(struct exchange *x);
void fsroutes_stat(struct exchange *x);
void fsroutes_readdir(struct exchange *x);

/*
 * The absolute path that was asked for, checked; NULL when the reply has been filled with the
 * refusal. Call it inside the pool.
 */
char *fsroutes_check(struct exchange *x, const GString *asked);

#endif
