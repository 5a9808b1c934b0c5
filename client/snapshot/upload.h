/*
 * upload - the archive that is sent to hydrate: what a snapshot holds, in the form that the route
 * understands (wire.md B.5): directories and regular files only, names as PAX where they need it.
 *
 * A file whose name the route would refuse or change (not UTF-8, a backslash, "C:", a leading ".."
 * in the root) goes under a staging name, to be moved into place by exec. Links, modes of
 * directories and times are not in it: restore.h puts them back.
 *
 * Blocks on the local disk; no request, no lock.
 */
#ifndef SBX_CLIENT_SNAPSHOT_UPLOAD_H
#define SBX_CLIENT_SNAPSHOT_UPLOAD_H

#include <glib.h>
#include <stdbool.h>

struct sbx_call;
struct sbx_receipt;
struct sbx_tar_list;

/* Would the route take @path as it is? */
bool sbx_upload_path_is_plain(const char *path);

/*
 * Write the archive to @out_fd, content from the archive at @in_fd. *ret_staged: path -> staging
 * name of those that have to be moved (g_hash_table_unref). -EIO: the archive can't be read.
 */
int sbx_upload_write(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
		     int in_fd, int out_fd, const struct sbx_call *call, GHashTable **ret_staged);

#endif
