/*
 * localfile - reading and writing local files, all bytes or an error, and looking into directories.
 *
 * 0 or a negative errno. Goes on after a signal and after a short read or write. No state, no lock;
 * blocks on the local disk.
 */
#ifndef SBX_CLIENT_LOCALFILE_H
#define SBX_CLIENT_LOCALFILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

int sbx_local_write(int fd, const void *data, size_t len_bytes, uint64_t pos);
/* -EIO: the file ends before. */
int sbx_local_read(int fd, void *buf, size_t len_bytes, uint64_t pos);
/* From where @fd stands, which may be a pipe, to the end, but @max_bytes at most: how many. */
int sbx_local_read_up_to(int fd, void *buf, size_t max_bytes, size_t *ret_len_bytes);
/* copy_file_range() where the filesystem has it, else by hand. */
int sbx_local_copy(int from, uint64_t from_pos, int to, uint64_t to_pos, uint64_t len_bytes);

/* The directory @dirfd, to be read from its beginning; @dirfd stays as it is. NULL with errno. */
DIR *sbx_local_opendir(int dirfd);

#endif
