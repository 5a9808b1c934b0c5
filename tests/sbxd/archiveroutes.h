/*
 * POST /persist and POST /hydrate. Each fills the exchange's reply; they block for the whole of
 * the work.
 */
#ifndef SBX_SBXD_ARCHIVEROUTES_H
#define SBX_SBXD_ARCHIVEROUTES_H

#include "tests/sbxd/service.h"

void archiveroutes_persist(struct exchange *x);
void archiveroutes_hydrate(struct exchange *x);

#endif
