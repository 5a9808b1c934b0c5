/*
 * The bearer token: from a file, read again when it changed and once after a 401, or from the
 * environment variable SBX_TOKEN, which is removed and its bytes overwritten.
 *
 * The token is kept in a page of its own that is left out of core dumps and locked where that is
 * allowed. libcurl copies it while a request runs, so main also switches core dumps off.
 *
 * Thread-safe: one inner lock, never held while anything blocks but reading the token file.
 */
#ifndef SBX_CLIENT_TOKEN_H
#define SBX_CLIENT_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_token;

#define SBX_TOKEN_MAX 4096

/*
 * sbx_token_new() - take the token.
 * @file: the token file; NULL: SBX_TOKEN of the environment, and when that is unset there is no
 *	token. SBX_TOKEN is wiped in any case. Call while the process has one thread.
 *
 * 0; -EINVAL: empty, too long, or it holds bytes that no header may carry (outside 0x21..0x7e);
 * errnos of open(2), read(2); -ENOMEM. Line ends at the end of the file are trimmed.
 */
int sbx_token_new(const char *file, struct sbx_token **ret_token);
void sbx_token_free(struct sbx_token *token); /* NULL is allowed; the bytes are wiped */

bool sbx_token_present(struct sbx_token *token);

/* Others than its owner may read the token file: worth a warning. */
bool sbx_token_exposed(struct sbx_token *token);

/*
 * sbx_token_refresh() - read the file again if its stat changed, or anyway when @force.
 * Returns 1 when the token is another one now, 0 when it is the same or comes from the
 * environment, or negative errno when the file can't be read now; the old token then stays.
 */
int sbx_token_refresh(struct sbx_token *token, bool force);

/*
 * Grows by one with each change of the token: how a layer that was refused knows that it is worth
 * asking again. It looks at the file's stat.
 */
uint64_t sbx_token_generation(struct sbx_token *token);

/*
 * sbx_token_header() - "Authorization: Bearer ..." as a new string, NULL without a token.
 * Give it back to sbx_token_header_free(), which wipes it.
 */
char *sbx_token_header(struct sbx_token *token);
void sbx_token_header_free(char *header);

/*
 * sbx_token_strip() - replace each occurrence of the token, and of the one before it, in @text
 * by "[token]"; with "Bearer " before it, both. The result is a new string (free with g_free).
 */
char *sbx_token_strip(struct sbx_token *token, const char *text);

#endif
