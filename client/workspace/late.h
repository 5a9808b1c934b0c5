/*
 * late - requests to change something whose answer never came. Whatever held one up (a server that
 * stood still, a gateway) may let go of it when its callers have long been told an error, and have
 * done something else since: what is late must not undo that.
 *
 * So the ids of such requests are kept, as sbx_names_give_up() of names.h is told them, and the
 * next request to the sandbox that changes something has them voided before anything else: what has
 * not begun by then is never done. Where no such request comes one is made, as soon as the server
 * answers again, so that a change of names that was answered with an error does not show up later.
 *
 * The sandbox keeps what was voided as long as outcomes (client/apply.h); nor is an id kept longer
 * here. The ids of attempts to append have an owner who asks again under the same one; they come
 * here when he gives them up.
 *
 * Locking: a lock of its own, never held across a request; inside it names->lock and the pool's.
 */
#ifndef SBX_CLIENT_WORKSPACE_LATE_H
#define SBX_CLIENT_WORKSPACE_LATE_H

#include <glib.h>

struct sbx_apply_reply; /* client/apply.h */
struct sbx_apply_request; /* client/apply.h */
struct sbx_names;
struct names_late;

struct names_late *names_late_new(struct sbx_names *names);
/* No request is begun from now on; one that is under way is a task of the names. */
void names_late_stop(struct names_late *late);
void names_late_free(struct names_late *late);

/*
 * Put what voids them before all else into @req, which is empty. Returns the ids, char *, one an
 * operation; empty: there are none. What does not fit is left for the next.
 */
GPtrArray *names_late_encode(struct names_late *late, struct sbx_apply_request *req);

/* @reply, whose first operations were for @opids: those that are over are kept no longer. */
void names_late_done(struct names_late *late, const GPtrArray *opids,
		     const struct sbx_apply_reply *reply);

#endif
