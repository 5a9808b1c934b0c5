/*
 * status - the texts of the mount's and a session's `status`: lines `key: value` in a fixed order,
 * new keys at the end; numbers that grow are padded, so that the size seldom changes. Everything is
 * as last seen: nothing is asked of the server.
 */
#ifndef SBX_FUSEFS_STATUS_H
#define SBX_FUSEFS_STATUS_H

#include <glib.h>

struct fs;
struct fsession;

void status_mount(struct fs *fs, GString *out);
void status_session(struct fs *fs, struct fsession *fsession, GString *out);

#endif
