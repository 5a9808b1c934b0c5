/*
 * probe.h - the probe program: once a session, what its sandbox can.
 *
 * Makes SBX_WORK_DIR (apply.h) and its subdirectories unless told not to. Its answer gives the
 * tools word that every other request carries.
 *
 * No I/O, no locks.
 */
#ifndef SBX_CLIENT_PROBE_H
#define SBX_CLIENT_PROBE_H

#include "client/program.h"
#include "client/scan.h"

struct sbx_probe_options {
	bool no_work_dir; /* look only, make nothing */
	/* Done by the same exec, so that a first look at a session is one request; its answer is in
	 * the reply, unless that were longer than a reply may be. Borrowed. NULL: none. */
	const struct sbx_scan_request *survey;
};

struct sbx_probe_request {
	struct sbx_program_request program;
	struct sbx_probe_options options;
};

/* Always to be cleared. 0 or -E2BIG. argv is sbx_program_request_argv(&req->program). */
int sbx_probe_request_init(struct sbx_probe_request *req, const struct sbx_probe_options *options,
			   const struct sbx_program_limits *limits);
void sbx_probe_request_clear(struct sbx_probe_request *req);

struct sbx_statfs {
	uint64_t block_bytes;
	uint64_t blocks;
	uint64_t blocks_free;
	uint64_t blocks_avail;
	uint64_t files;
	uint64_t files_free;
	uint32_t name_max;
	bool known;
};

struct sbx_probe_reply {
	struct sbx_tools tools;
	bool busybox; /* the coreutils are BusyBox's */
	bool base64_w; /* base64 -w0 */
	bool find_printf; /* and so on: what `tools` says, and more, for people and status */
	bool stat_ns;
	bool touch_ns;
	bool gzip;
	bool flock;
	bool setsid;
	bool dd_bytes;
	bool mv_exact; /* mv -T */
	bool mv_noreplace; /* a directory can be renamed without replacing */
	bool mv_no_copy;
	bool reflink; /* cp --reflink */
	bool truncate;
	bool date_ns;
	bool sha256sum;
	bool tar;
	bool timeout;
	bool work_dir; /* SBX_WORK_DIR is there and can be written */
	uint32_t uid;
	uint32_t gid;
	int64_t clock_ns;
	bool clock_has_ns;
	char *cwd; /* bytes */
	struct sbx_statfs statfs;
	struct sbx_scan_reply *survey; /* NULL: none came; who takes it over sets that */
};

/*
 * Decodes stdout of the exec that ran req. 0 and a reply to be freed; errors of
 * sbx_program_unframe(): -EOPNOTSUPP where there is no base64, -EBADMSG.
 */
int sbx_probe_decode(const struct sbx_probe_request *req, const char *out, size_t out_len,
		     struct sbx_probe_reply **ret_reply);
void sbx_probe_reply_free(struct sbx_probe_reply *reply);

/* A request for statfs alone, cheap, later in the session; decoded by sbx_statfs_decode(). */
int sbx_statfs_request_init(struct sbx_probe_request *req, const struct sbx_tools *tools,
			    const struct sbx_program_limits *limits);
/* Like sbx_probe_decode(); -EOPNOTSUPP where the sandbox can't say. */
int sbx_statfs_decode(const struct sbx_probe_request *req, const char *out, size_t out_len,
		      struct sbx_statfs *ret_statfs);

#endif
