/*
 * A sandbox whose clock is not ours: commands run with libfaketime and sbxd-clock.so (see
 * clockpreload.c) preloaded, and the routes add the same offset to the times they tell, so that
 * both show one consistent, shifted world.
 *
 * Constant after start; no locks.
 */
#ifndef SBX_SBXD_CLOCKSKEW_H
#define SBX_SBXD_CLOCKSKEW_H

#include <glib.h>
#include <stdint.h>

/* The path of the library, or NULL where it is not installed. Static storage. */
const char *clockskew_library(void);

/*
 * Add to an environment (NAME=VALUE strings) what shifts a command's clock by @skew_ms. @preload:
 * where the command finds sbxd-clock.so.
 */
void clockskew_add_environment(GPtrArray *env, int64_t skew_ms, const char *preload);

#endif
