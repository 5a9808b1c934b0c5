/*
 * freshen - how what the store of names knows becomes fresh: scans, shared by all who wait.
 *
 * A flight is one scan request on its way. Who needs a directory fresh joins the flight that asks
 * for it, if that is sent late enough to be young enough, or starts one. A flight runs on the pool:
 * a waiting caller that is cancelled leaves, the others still get their answer.
 *
 * What a flight asks:
 *   nothing known of the directory   its whole tree, breadth first, bounded, and with it those that
 *                                    a walk would come to next of which nothing is known either
 *   known                            what changed since, of it and of a group: directories that a
 *                                    walk would come to next, and others that are known, those
 *                                    used last first, as long as that is cheap
 *   known, but not since when        its listing
 * Those ahead of a walk are more with each flight that turns out to have been part of one. The
 * group is bounded by what looking at it costs the sandbox, measured as the time of an answer less
 * that of the quickest one: about 3 % of its time. A directory that did not fit is asked for by
 * itself when somebody needs it, so ttl holds for it as for every other.
 * A path of the sandbox's own root is asked for by itself, and only when somebody needs it: what
 * hangs there, such as a mount over a network, hangs nobody else.
 *
 * Locking: names->lock, taken inside, never held across a request.
 */
#ifndef SBX_CLIENT_WORKSPACE_FRESHEN_H
#define SBX_CLIENT_WORKSPACE_FRESHEN_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct names_flight;
struct sbx_call;
struct sbx_names;
struct sbx_scan_reply; /* client/scan.h */
struct sbx_scan_request; /* client/scan.h */
struct sbx_tools; /* client/program.h */

enum names_ask {
	NAMES_ASK_DIR, /* the listing of the directory, and its own attributes */
	NAMES_ASK_FILE, /* attributes of the path alone */
};

/*
 * Have @path asked for by a request that is sent at @need_us (CLOCK_MONOTONIC) or later, and its
 * answer put in the store. 0; errno of the request; or of the directory itself: -EACCES, -EIO;
 * -EMSGSIZE where its listing is longer than any answer may be.
 * -ENOENT and -ENOTDIR are no failure: the store knows then. Blocks, at most the call's timeout.
 * call->no_wake: -ESTALE where the session is asleep.
 */
int names_freshen(struct sbx_names *names, const struct sbx_call *call, enum names_ask ask,
		  const char *path, int64_t need_us);

/*
 * A survey is a flight that travels with a request of mutations: it asks what changed in the
 * directories that these name, when they were validated a while ago, and in a group. So a program
 * that makes many files pays no request beside those for them. Nobody waits for it.
 *
 * names_survey_plan(): @dirs are paths (char *). NULL: there is nothing worth asking. Never blocks.
 * names_survey_encode(): the scan to send, owned by the survey; NULL: it does not fit.
 * names_survey_land_locked(): put its answer in the store; what the mutations of the same request
 * did must be there already. @steady: of names_saw_clock(). Caller holds names->lock.
 */
struct names_flight *names_survey_plan(struct sbx_names *names, const GPtrArray *dirs);
const struct sbx_scan_request *names_survey_encode(struct names_flight *survey,
						   const struct sbx_tools *tools);
void names_survey_land_locked(struct names_flight *survey, const struct sbx_scan_reply *reply,
			      int64_t asked_us, int64_t got_us, bool steady);
void names_survey_free(struct names_flight *survey); /* NULL is fine */

#endif
