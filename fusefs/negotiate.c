#include "fusefs/negotiate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

/* linux/fuse.h: where the flags are, behind the header, in INIT and in its answer. */
#define INIT_OPCODE	    26
#define INIT_OPCODE_OFFSET  4
#define INIT_FLAGS_OFFSET   (40 + 12)
#define ANSWER_ERROR_OFFSET 4
#define ANSWER_FLAGS_OFFSET (16 + 12)
#define ANSWER_MAX	    4096
#define PARALLEL_DIROPS	    (1u << 18)
#define HANDLE_KILLPRIV	    (1u << 19)
#define ADDED_FLAGS	    (PARALLEL_DIROPS | HANDLE_KILLPRIV)

static uint32_t word_at(const char *bytes, size_t offset)
{
	uint32_t word;

	memcpy(&word, bytes + offset, sizeof(word));
	return word;
}

/* Those of the flags that the kernel offers. */
static uint32_t offered_flags(const struct fuse_buf *request)
{
	const char *bytes = request->mem;

	if (!bytes || request->size < INIT_FLAGS_OFFSET + sizeof(uint32_t) ||
	    word_at(bytes, INIT_OPCODE_OFFSET) != INIT_OPCODE)
		return 0;
	return word_at(bytes, INIT_FLAGS_OFFSET) & ADDED_FLAGS;
}

/* Have libfuse answer into a pipe; pass the answer on. */
static int answer_through_pipe(struct fuse_session *se, const struct fuse_buf *request)
{
	int fd = fuse_session_fd(se), pipe_fds[2], real, r = 0;
	char answer[ANSWER_MAX];
	uint32_t flags;
	ssize_t n;

	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	real = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (real < 0 || dup3(pipe_fds[1], fd, O_CLOEXEC) < 0) {
		r = -errno;
		goto out;
	}
	fuse_session_process_buf(se, request);
	n = read(pipe_fds[0], answer, sizeof(answer));
	if (dup3(real, fd, O_CLOEXEC) < 0) {
		r = -errno;
		goto out;
	}
	if (n < (ssize_t)(ANSWER_FLAGS_OFFSET + sizeof(flags))) {
		r = -EIO;
		goto out;
	}
	if (word_at(answer, ANSWER_ERROR_OFFSET) == 0) {
		flags = word_at(answer, ANSWER_FLAGS_OFFSET) | offered_flags(request);
		memcpy(answer + ANSWER_FLAGS_OFFSET, &flags, sizeof(flags));
	}
	if (write(fd, answer, (size_t)n) < 0)
		r = -errno;
	else if (word_at(answer, ANSWER_ERROR_OFFSET) != 0)
		r = -EPROTO;
out:
	if (real >= 0)
		close(real);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return r;
}

int negotiate(struct fuse_session *se)
{
	struct fuse_buf request = { 0 };
	int r;

	do {
		r = fuse_session_receive_buf(se, &request);
	} while (r == -EINTR && !fuse_session_exited(se));
	if (r <= 0) {
		r = r < 0 ? r : -ENODEV;
	} else if (offered_flags(&request) != 0) {
		r = answer_through_pipe(se, &request);
	} else {
		fuse_session_process_buf(se, &request);
		r = 0;
	}
	/* What libfuse can't work with it answers with an error, and ends. */
	if (r == 0 && fuse_session_exited(se))
		r = -EPROTO;
	free(request.mem);
	return r;
}
