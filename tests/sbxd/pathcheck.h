/*
 * From the path that a client asks for to the one that the server uses, or the refusal.
 *
 * Two checks, as the backends have them: host takes the real path of the parent and tests its
 * prefix; overlay only computes with the text, so that links lead it anywhere.
 *
 * No state, no locks. path_check() looks at the file system, so it is called inside the pool.
 */
#ifndef SBX_SBXD_PATHCHECK_H
#define SBX_SBXD_PATHCHECK_H

#include <glib.h>

#include "tests/sbxd/session.h"

enum path_verdict {
	PATH_GOOD,
	PATH_DENIED, /* 403 path_denied */
	PATH_UNUSABLE, /* 500 internal_error */
};

/*
 * Check what was asked (UTF-8, may hold NUL). On PATH_GOOD *ret_path is the absolute path on this
 * machine, else *ret_message says why not. The caller frees either.
 */
enum path_verdict path_check(const struct session *session, const GString *asked, char **ret_path,
			     char **ret_message);

/* @path resolved against @base (absolute) by its text alone: no "." or "..", no trailing "/". */
char *path_resolve(const char *base, const char *path);

/* The part of @path below @base: "" for @base itself, NULL when it is not inside. In @path. */
const char *path_below(const char *base, const char *path);

#endif
