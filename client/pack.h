/*
 * pack.h - the pack program: bytes of several files in one exec.
 *
 * Each item is a range of a regular file, or a whole one; it comes with the attributes seen before
 * and after its bytes were read. Nothing but a regular file is ever opened, links are not followed
 * unless the request says so. A file that is asked for alone is opened once and held, so that its
 * bytes are of one file though its name goes to another meanwhile; has_attr may then show nlink 0.
 *
 * No I/O, no locks.
 */
#ifndef SBX_CLIENT_PACK_H
#define SBX_CLIENT_PACK_H

#include "client/attr.h"
#include "client/program.h"

struct sbx_pack_options {
	/* Bound of all content, 0 and at most 256 MiB; when it is exceeded nothing is stable. */
	uint64_t max_bytes;
	bool compress; /* gzip the content where the sandbox can */
	bool follow; /* follow a symlink in the last component */
};

struct sbx_pack_request {
	struct sbx_program_request program;
	struct sbx_pack_options options;
	GArray *items; /* private */
	GPtrArray *paths;
	GHashTable *path_index;
	size_t args_bytes;
	bool sealed;
};

/* Always to be cleared, also after an error. 0 or -E2BIG. */
int sbx_pack_request_init(struct sbx_pack_request *req, const struct sbx_pack_options *options,
			  const struct sbx_tools *tools, const struct sbx_program_limits *limits);
void sbx_pack_request_clear(struct sbx_pack_request *req);

/* len of sbx_pack_request_add(): from offset 0 to the end. */
#define SBX_PACK_WHOLE UINT64_MAX

/*
 * Adds an item; its index, or -E2BIG (full), -EINVAL, -ENAMETOOLONG. WHOLE goes with offset 0 and
 * costs no process in the sandbox of its own; a range costs one.
 */
int sbx_pack_request_add(struct sbx_pack_request *req, const char *path, uint64_t offset,
			 uint64_t len);

/* argv of the exec; nothing can be added after. NULL with *ret_error when it does not fit. */
const char *const *sbx_pack_request_argv(struct sbx_pack_request *req, int *ret_error);

struct sbx_pack_item {
	int error; /* positive errno: ENOENT, EISDIR, ELOOP, EACCES, EINVAL; 0 */
	bool stable; /* data is whole, and the attributes before and after are the same */
	bool has_attr; /* before is set */
	struct sbx_attr before;
	struct sbx_attr after; /* set when stable */
	const uint8_t *data; /* NULL unless stable; of the reply */
	uint64_t len; /* shorter than asked for only where the file ends */
};

struct sbx_pack_reply {
	struct sbx_pack_item *items; /* one an item, in the request's order */
	unsigned count;
	int64_t clock_ns; /* the sandbox's, before the first look */
	bool clock_has_ns;
	struct sbx_program_answer answer;
};

/*
 * Decodes stdout of the exec that ran req. 0 and a reply to be freed; errors of
 * sbx_program_unframe(), -EBADMSG. An item with error 0 that is not stable was changing: ask again.
 */
int sbx_pack_decode(const struct sbx_pack_request *req, const char *out, size_t out_len,
		    struct sbx_pack_reply **ret_reply);
void sbx_pack_reply_free(struct sbx_pack_reply *reply);

#endif
