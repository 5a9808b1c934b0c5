#include "client/localfile.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)256 << 10)

int sbx_local_write(int fd, const void *data, size_t len, uint64_t pos)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, at, len, (off_t)pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		pos += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int sbx_local_read(int fd, void *buf, size_t len, uint64_t pos)
{
	char *at = buf;

	while (len > 0) {
		ssize_t n = pread(fd, at, len, (off_t)pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		at += n;
		pos += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int sbx_local_read_up_to(int fd, void *buf, size_t max_bytes, size_t *ret_len_bytes)
{
	char *at = buf;
	size_t len = 0;

	while (len < max_bytes) {
		ssize_t n = read(fd, at + len, max_bytes - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len_bytes = len;
	return 0;
}

DIR *sbx_local_opendir(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int saved = errno;

	if (!dir && fd >= 0)
		close(fd);
	errno = saved;
	return dir;
}

int sbx_local_copy(int from, uint64_t from_pos, int to, uint64_t to_pos, uint64_t len)
{
	char *buf = NULL;
	int r = 0;

	while (len > 0) {
		off_t in = (off_t)from_pos;
		off_t out = (off_t)to_pos;
		ssize_t n = buf ? -1 : copy_file_range(from, &in, to, &out, len, 0);

		if (n <= 0) {
			n = (ssize_t)MIN(len, COPY_BYTES);
			if (!buf)
				buf = malloc(COPY_BYTES);
			r = buf ? sbx_local_read(from, buf, (size_t)n, from_pos) : -ENOMEM;
			if (r == 0)
				r = sbx_local_write(to, buf, (size_t)n, to_pos);
			if (r < 0)
				break;
		}
		from_pos += (uint64_t)n;
		to_pos += (uint64_t)n;
		len -= (uint64_t)n;
	}
	free(buf);
	return r;
}
