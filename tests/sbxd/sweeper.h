/*
 * The thread that archives idle sessions now and then.
 */
#ifndef SBX_SBXD_SWEEPER_H
#define SBX_SBXD_SWEEPER_H

#include "tests/sbxd/service.h"

struct sweeper;

/* 0 or negative errno. */
int sweeper_start(struct service *service, struct sweeper **ret_sweeper);
/* Wait for the thread, which ends once service->stop_fd is readable, and release it. Blocks. */
void sweeper_join(struct sweeper *sweeper);

#endif
