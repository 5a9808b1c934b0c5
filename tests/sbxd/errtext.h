/*
 * errno values in the words of libuv, which the reference server's messages are made of.
 * Pure functions.
 */
#ifndef SBX_SBXD_ERRTEXT_H
#define SBX_SBXD_ERRTEXT_H

/* "ENOENT" for ENOENT; "UNKNOWN" for what libuv has no name for. Static storage. */
const char *errtext_code(int err);

/* "no such file or directory"; static storage. */
const char *errtext_text(int err);

/*
 * "ENOENT: no such file or directory, open '/path'" for a positive errno. @path may be NULL:
 * operations on an open file name none. The caller frees it with g_free().
 */
char *errtext_message(int err, const char *call, const char *path);

#endif
