/*
 * runner - one run of a program in the sandbox: what a command and an answer may carry, what its
 * tools can, what its clock shows.
 *
 * The public part is in names.h: sbx_names_run(), _bad_answer(), _limits(), _probe(). The sandbox's
 * limits are learnt where a command is refused as too long or an answer is found cut.
 *
 * Clock: an answer that carries the sandbox's clock was made between its request and its arrival,
 * so each narrows the distance to our clock from both sides. A clock that leaves these bounds was
 * set: then nothing may be asked by "changed since" an older time.
 *
 * Locking: names->lock, taken inside, never held across the request.
 */
#ifndef SBX_CLIENT_WORKSPACE_RUNNER_H
#define SBX_CLIENT_WORKSPACE_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_call;
struct sbx_names;
struct sbx_probe_reply; /* client/probe.h */
struct sbx_scan_reply; /* client/scan.h */
struct sbx_scan_request; /* client/scan.h */

/*
 * As sbx_names_probe(), and where the sandbox has to be asked @survey goes along: *ret_seen is its
 * answer, asked for at *ret_asked_us, to be freed. Both untouched where none came.
 */
int names_probe_surveying(struct sbx_names *names, const struct sbx_call *call,
			  const struct sbx_scan_request *survey,
			  const struct sbx_probe_reply **ret_probe,
			  struct sbx_scan_reply **ret_seen, int64_t *ret_asked_us);

/* An answer, asked for at @asked_us and here at @got_us, showed the sandbox's clock, cut to seconds
 * unless @has_ns. False: the clock was set since the last one. Takes names->lock. */
bool names_saw_clock(struct sbx_names *names, int64_t clock_ns, bool has_ns, int64_t asked_us,
		     int64_t got_us);

/* The sandbox's clock at @when_us of ours, rather too early than too late; 0: not known. */
int64_t names_clock_at_locked(const struct sbx_names *names, int64_t when_us);

#endif
