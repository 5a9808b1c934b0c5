/*
 * mutate - the queue of mutations: those about the same names in order, waiting ones together.
 *
 * The public part is in names.h: sbx_names_apply(), sbx_names_apply_aside().
 *
 * A mutation (the operations of one caller) is waiting, sent, or done. A task on the pool works the
 * queue off: it takes as many as fit a command, sends them under one operation id, and puts what
 * came in the store before it tells the callers. While a request is away for long, other tasks send
 * what comes meanwhile beside it, a few requests in all. A mutation never overtakes one that names
 * the same path, or one above or below it (claims.h): what it left in the sandbox is what the next
 * one finds. Where a request is soon over there is one at a time, and more operations in each.
 *
 * After a lost answer, also when a gateway (502, 504) answers in the server's place, the request is
 * sent again and says so: the sandbox keeps the outcome under the id, or refuses where it can't, so
 * nothing is done twice. When the time is over without an answer, or so long that the outcome may
 * be forgotten, the callers get the error, what they named is asked for anew, and the request is
 * late.h's.
 *
 * Locking: names->lock, taken inside, never held across the request.
 */
#ifndef SBX_CLIENT_WORKSPACE_MUTATE_H
#define SBX_CLIENT_WORKSPACE_MUTATE_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_apply_reply; /* client/apply.h */
struct sbx_apply_request; /* client/apply.h */
struct sbx_call;
struct sbx_names;

/*
 * Send @request until it is answered or @timeout_ms are over. -E2BIG: a shorter command is wanted,
 * nothing was done; others of sbx_apply_decode(). *ret_asked_us: when it was sent first; *ret_lost:
 * it was sent, and maybe taken, without an answer; both set on failure too. Blocks.
 */
int names_mutate_send(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		      struct sbx_apply_request *request, struct sbx_apply_reply **ret_reply,
		      int64_t *ret_asked_us, bool *ret_lost);

/* Take what waits off the queue; it is answered with -ECANCELED. Caller holds names->lock. */
void names_mutate_cancel_locked(struct sbx_names *names);

#endif
