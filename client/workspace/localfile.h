/*
 * localfile - reading and writing at a position of a local file, all bytes or an error.
 *
 * 0 or a negative errno. Goes on after a signal and after a short write.
 */
#ifndef SBX_CLIENT_WORKSPACE_LOCALFILE_H
#define SBX_CLIENT_WORKSPACE_LOCALFILE_H

#include <stddef.h>
#include <stdint.h>

int sbx_local_write(int fd, const void *data, size_t len_bytes, uint64_t pos);
/* -EIO: the file ends before. */
int sbx_local_read(int fd, void *buf, size_t len_bytes, uint64_t pos);
/* copy_file_range() where the filesystem has it, else by hand. */
int sbx_local_copy(int from, uint64_t from_pos, int to, uint64_t to_pos, uint64_t len_bytes);

#endif
