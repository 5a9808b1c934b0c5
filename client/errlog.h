/*
 * errlog - the last failures that a local disk would not have had.
 *
 * A ring of SBX_ERRLOG_MAX entries, one for the mount and one a session; fusefs shows it as the
 * file `errors`. Equal entries that follow each other are counted, not repeated. Texts are made
 * safe when they come in: the token stripped, control bytes as \xNN, at most 500 bytes a line.
 *
 * Not logged, since a local disk says them too: ENOENT, EEXIST, ENOTEMPTY, ENOTDIR, EISDIR, EINTR
 * that came from the sandbox as the plain outcome of an operation.
 *
 * Locking: one lock inside; every function may be called from any thread and never blocks on more.
 */
#ifndef SBX_CLIENT_ERRLOG_H
#define SBX_CLIENT_ERRLOG_H

#include <stdbool.h>
#include <stddef.h>

#define SBX_ERRLOG_MAX	    64
#define SBX_ERRLOG_LINE_MAX 500

struct sbx_errlog;
struct sbx_failure; /* client/call.h */

struct sbx_errlog *sbx_errlog_new(void);
void sbx_errlog_free(struct sbx_errlog *log);

/*
 * Record that @op on @path (may be NULL) failed with the negative errno @err. @failure, when not
 * NULL, adds the HTTP status, the server's code and message.
 */
void sbx_errlog_failure(struct sbx_errlog *log, const char *op, const char *path, int err,
			const struct sbx_failure *failure);

/* Record a refusal or a note of our own, e.g. op "lookup", text "name with a slash refused". */
void sbx_errlog_note(struct sbx_errlog *log, const char *op, const char *path, int err,
		     const char *text);

/* True when @err is one that a local disk gives in everyday use (the list above). */
bool sbx_errno_is_ordinary(int err);

/*
 * The log as text, oldest first, one line an entry:
 * TIME OP PATH ERRNO [http=STATUS] [code=CODE] [message="..."] [times=N]
 * Never NULL; free with g_free(). @ret_len_bytes may be NULL.
 */
char *sbx_errlog_render(struct sbx_errlog *log, size_t *ret_len_bytes);

#endif
