/*
 * Unpacking an archive as the reference server's hydrate does: the whole of it is checked first,
 * then directories and files are made in the archive's order, and links last.
 *
 * Written here and not by a library because what counts is what this reader takes for a name: the
 * bytes of a header as Latin-1, those of a PAX record as UTF-8. No state, no locks; file work.
 */
#ifndef SBX_SBXD_TARREAD_H
#define SBX_SBXD_TARREAD_H

#include <stddef.h>

/*
 * Unpack into @dir, a physical path. 0, or negative errno with *ret_message what the client hears
 * (the caller frees it): -EINVAL where the archive was refused (usually before anything was
 * written), else what the first member that failed failed with.
 */
int tar_extract(const void *archive, size_t len_bytes, const char *dir, char **ret_message);

#endif
