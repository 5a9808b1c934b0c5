/*
 * The thread that archives idle sessions now and then. When SIGUSR1 comes it archives all that no
 * request is using, and says so on standard output: so a test puts a session to sleep without
 * waiting. A request uses its session until a moment after its answer: who wants one to sleep asks
 * again while its link in ROOT/by-id is there.
 */
#ifndef SBX_SBXD_SWEEPER_H
#define SBX_SBXD_SWEEPER_H

#include "tests/sbxd/service.h"

struct sweeper;

/* 0 or negative errno. SIGUSR1 is blocked in all threads by then. */
int sweeper_start(struct service *service, struct sweeper **ret_sweeper);
/* Wait for the thread, which ends once service->stop_fd is readable, and release it. Blocks. */
void sweeper_join(struct sweeper *sweeper);

#endif
