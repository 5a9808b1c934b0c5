/*
 * mutate - the queue of mutations: in order, one request at a time, waiting ones together.
 *
 * The public part is in names.h: sbx_names_apply(), sbx_names_apply_aside().
 *
 * A mutation (the operations of one caller) is waiting, sent, or done. One task on the pool works
 * the queue off: it takes as many as fit a command, sends them under one operation id, and puts
 * what came in the store before it tells the callers. After a lost answer the identical request is
 * sent again: the sandbox keeps the outcome under the id, so nothing is done twice. When the time
 * is over without an answer the callers get the error, and what they named is asked for anew.
 *
 * Locking: names->lock, taken inside, never held across the request.
 */
#ifndef SBX_CLIENT_WORKSPACE_MUTATE_H
#define SBX_CLIENT_WORKSPACE_MUTATE_H

struct sbx_names;

/* Take what waits off the queue; it is answered with -ECANCELED. Caller holds names->lock. */
void names_mutate_cancel_locked(struct sbx_names *names);

#endif
