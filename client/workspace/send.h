/*
 * send - one state of a spool to the sandbox: staged and renamed into place, or applied in place.
 *
 *   whole   up to SBX_INLINE_BYTES in the request itself (save); else a PUT to a staging name and a
 *           save from there; content that is mostly holes, or that no PUT can carry, as its written
 *           parts, put together in the sandbox
 *           Where nothing was cut (SBX_SPOOL_ADDS) and the sandbox has come to have a file with
 *           content of that name: as a patch of that
 *   patch   truncation, writes, growth, appends: in one request that has all bytes before it
 *           starts; up to SBX_INLINE_BYTES in the request, else from a staged file
 *   no exec a PUT onto the path itself; a patch is made whole here first
 *
 * Mode and times that were set ride along. -ECANCELED: place_begin() did not want it, the path is
 * as it was.
 *
 * No state, no lock. Blocks on the network.
 */
#ifndef SBX_CLIENT_WORKSPACE_SEND_H
#define SBX_CLIENT_WORKSPACE_SEND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/attr.h"

#define SBX_INLINE_BYTES ((uint64_t)64 << 10)
/* One staged file: less than what a PUT carries, and kind to a server that holds it in memory. */
#define SBX_STAGE_BYTES ((uint64_t)1 << 30)

struct sbx_call;
struct sbx_content;
struct sbx_mark; /* mark.h */
struct sbx_names;
struct sbx_session;
struct sbx_spool_view;

struct sbx_sending {
	struct sbx_session *session;
	struct sbx_names *names;
	struct sbx_mark *mark; /* of what is staged */
	const char *path;
	const struct sbx_spool_view *view;
	struct sbx_content *base; /* NULL where no byte of the base is needed without exec */
	const char *stage; /* a staged file that has all of a whole view; NULL: none */
	const char *opid; /* of the request that appends; NULL: nothing is appended */
	bool asked_before; /* under that id */
	/* Round each request that changes the path itself. begin() false: not now, -ECANCELED. */
	bool (*place_begin)(void *arg);
	void (*place_end)(void *arg);
	/* So long the sandbox may work on what it is asked for now, and nothing moves. */
	void (*works)(void *arg, int64_t work_ms);
	void *arg;
};

struct sbx_sent {
	bool whole; /* attr describes a file that holds what the view says, and nothing else */
	bool known; /* attr is what the sandbox has now */
	bool proven; /* attr is that of what was saved (apply.h) */
	struct sbx_attr attr;
	bool answered; /* of a failure: the sandbox said so; else it may have done it after all */
};

/* The attempt @opid, that was sent and not answered, will not be made again: nor is it to be done
 * late. Never blocks. */
void sbx_send_give_up(struct sbx_names *names, const char *opid);

/* *ret_sent is set in any case. -EUCLEAN: it is not known whether what was sent under the id before
 * was done. */
int sbx_send(const struct sbx_sending *sending, const struct sbx_call *call,
	     struct sbx_sent *ret_sent);

#endif
