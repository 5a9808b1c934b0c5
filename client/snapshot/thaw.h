/*
 * thaw - what the server's own archive does to a workspace that goes to sleep (wire.md B.2, B.5):
 * what it can't bring back at all, and what is put back after it did.
 *
 * The archive keeps 99 bytes of a name of exactly 100, and its reader takes names and link texts of
 * up to 100 bytes for Latin-1. All times are those of the thaw, directories are 0755, hard links
 * are files of their own. An absolute link, one that climbs out, a name with a backslash, "C:…" in
 * the root, or two names that the cut makes equal: then no thaw succeeds.
 *
 * Values, no lock but where it says so.
 */
#ifndef SBX_CLIENT_SNAPSHOT_THAW_H
#define SBX_CLIENT_SNAPSHOT_THAW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_workspace;
struct sbx_walk;

/* Why the server could archive @walk but not thaw it: the first such path, or NULL. Where something
 * keeps it from being archived at all (a name that is no UTF-8, a file of 2 GiB) it stays live, so
 * there is no risk. g_free(). */
char *sbx_thaw_risk_of(const struct sbx_walk *walk);

/* The name that @path (a directory's, with @is_directory) has after a thaw; NULL: the same. */
char *sbx_thaw_name_after(const char *path, bool is_directory);
/* The same of a link's text. */
char *sbx_thaw_text_after(const char *text);

/*
 * The risk as the store of names knows it, kept until that changes. One lock of its own, outside
 * the store's. Never asks.
 */
struct sbx_thaw_watch;

struct sbx_thaw_watch *sbx_thaw_watch_new(struct sbx_workspace *ws);
void sbx_thaw_watch_free(struct sbx_thaw_watch *watch);
/* *ret_path (may be NULL): the path at risk, or NULL; g_free(). */
bool sbx_thaw_watch_at_risk(struct sbx_thaw_watch *watch, char **ret_path);

#endif
