/*
 * doubt - bytes of which it is not known whether the sandbox has them, or has newer ones.
 *
 * Two questions are answered by looking, because the sandbox does not keep outcomes for long:
 *
 *   - An attempt to append has got no answer, and its outcome may be forgotten by now. Are the
 *     bytes in the file, behind the end that it had before?
 *   - A mount that died has left bytes. Has the sandbox them already; or has it changed the file
 *     since they were written, so that to send them would undo that?
 *
 * No state, no lock. Blocks on the network.
 */
#ifndef SBX_CLIENT_WORKSPACE_DOUBT_H
#define SBX_CLIENT_WORKSPACE_DOUBT_H

#include <stdbool.h>

#include "client/attr.h"
#include "client/workspace/version.h"

/* So long an outcome surely stays in the sandbox (apply.h: ten minutes). */
#define SBX_OUTCOME_MS (8 * 60 * 1000)

struct sbx_call;
struct sbx_names;
struct sbx_session;
struct sbx_spool_view;

struct sbx_doubted {
	struct sbx_session *session;
	struct sbx_names *names;
	const char *path;
	const struct sbx_spool_view *view;
	/* What this mount itself has put there, of changes that are older; zeros: nothing. */
	struct sbx_version older;
};

enum sbx_doubt {
	SBX_DOUBT_SEND, /* it is to be sent */
	SBX_DOUBT_DONE, /* the sandbox has all of the view */
	SBX_DOUBT_NEWER, /* the file was changed after the changes of the view were begun */
};

/* The attempt to append that view->meta tells of is older than outcomes are kept. */
bool sbx_doubt_is_old(const struct sbx_spool_view *view);

/*
 * What came of that attempt: SEND or DONE. The bytes count as there when they stand in one piece
 * anywhere behind the old end, since others may have appended before them. *ret_attr: of DONE, what
 * the file is now. The errno of the request.
 */
int sbx_doubt_appended(const struct sbx_doubted *doubted, const struct sbx_call *call,
		       enum sbx_doubt *ret_doubt, struct sbx_attr *ret_attr);

/*
 * What a mount that died has left. What is only appended harms nothing that is there, and a server
 * without exec can't tell: both are SEND. *ret_attr: of DONE and NEWER.
 */
int sbx_doubt_left(const struct sbx_doubted *doubted, const struct sbx_call *call,
		   enum sbx_doubt *ret_doubt, struct sbx_attr *ret_attr);

#endif
