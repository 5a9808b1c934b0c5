/*
 * name - what ids and names of ours may be, and the order that names are listed in.
 *
 * Pure functions.
 */
#ifndef SBX_CLIENT_NAME_H
#define SBX_CLIENT_NAME_H

#include <stdbool.h>

/*
 * A session id, [A-Za-z0-9-]{1,64} (wire.md A10): all that may stand in a URL or a file name as
 * one.
 */
#define SBX_ID_MAX 64
bool sbx_id_valid(const char *id);

/* What sessions, snapshots and jobs may be called: [A-Za-z0-9][A-Za-z0-9._-]{0,63}. */
bool sbx_name_valid(const char *name);

/* strcmp() of two strings that @a and @b point to: sorts arrays of names. */
int sbx_name_compare(const void *a, const void *b);

#endif
