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
#include <stdint.h>

struct sbx_call;
struct sbx_receipt;
struct sbx_tar_list;

/* Would the route take @path as it is? */
bool sbx_upload_path_is_plain(const char *path);

/*
 * The archive in parts, so that no server has to hold all of it at once: each is an archive of its
 * own, of at most @part_bytes of content unless one file alone is bigger; the first has the
 * directories. Borrows what it is given. -EIO: the archive at @in_fd can't be read.
 */
struct sbx_upload;

int sbx_upload_new(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive, int in_fd,
		   uint64_t part_bytes, struct sbx_upload **ret_upload);
void sbx_upload_free(struct sbx_upload *upload); /* NULL is allowed */

/* Write the next part to @out_fd. *ret_more: there is another one. -EINTR, -EIO, -ENOSPC. */
int sbx_upload_next(struct sbx_upload *upload, const struct sbx_call *call, int out_fd,
		    bool *ret_more);

/* path -> staging name of those that have to be moved, so far. Owned by @upload. */
GHashTable *sbx_upload_staged(struct sbx_upload *upload);

#endif
