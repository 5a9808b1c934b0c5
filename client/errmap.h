/*
 * Where errnos come from: one table for the server's answers (wire.md B.1 "Errors"), one for the
 * names and texts by which servers and the tools of a sandbox speak of them. Pure functions.
 */
#ifndef SBX_CLIENT_ERRMAP_H
#define SBX_CLIENT_ERRMAP_H

#include <stddef.h>

#include "client/call.h"

/*
 * sbx_errmap_reply() - the errno of an error answer, and the flags that go with it.
 * @code, @message: from its JSON envelope, NULL where there was none.
 * @ret_failure: error, kind, http_status and the flags session_not_found, not_supported and
 *	token_refused are set; code and message are not touched. May be NULL.
 *
 * Order: a leading "EXXX:" token of the message, whatever the status; messages that have a row of
 * their own; the code; the status; else -EIO. Never 0, never -ENOSYS.
 */
int sbx_errmap_reply(int status, const char *code, const char *message,
		     struct sbx_failure *ret_failure);

/* sbx_errmap_transport() - the errno of a failure without an answer, see enum sbx_fail_kind. */
int sbx_errmap_transport(enum sbx_fail_kind kind);

/*
 * sbx_errno_from_name() - "ENOENT" (len bytes) -> ENOENT, a positive number of this machine;
 * 0: not known. ENOSYS becomes EOPNOTSUPP.
 * sbx_errno_name() - the reverse, a constant; NULL: not known.
 * sbx_errno_from_text() - strerror's texts under LC_ALL=C, of glibc and musl, exactly or as the
 * suffix of "tool: path: No such file or directory"; 0: not known. ENOSYS as above.
 */
int sbx_errno_from_name(const char *name, size_t len);
const char *sbx_errno_name(int error);
int sbx_errno_from_text(const char *text, size_t len);

#endif
