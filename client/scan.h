/*
 * scan.h - the scan program: directories with the attributes of all they hold.
 *
 * Four ways to ask: a tree breadth first up to a bound; several directories, one level each; the
 * same but only what changed since a time on the sandbox's clock; single paths, by lstat.
 * Links are never followed. ".sbxfs" in the root of the workspace is not listed.
 *
 * Every reply carries the sandbox's clock as it was before anything was looked at. A next "since"
 * is derived from it, minus a second, because file times lag behind the clock.
 *
 * No I/O, no locks.
 */
#ifndef SBX_CLIENT_SCAN_H
#define SBX_CLIENT_SCAN_H

#include "client/attr.h"
#include "client/program.h"

enum sbx_scan_mode {
	SBX_SCAN_TREE, /* recursively, whole levels, as deep as max_entries allows; at least one */
	SBX_SCAN_LIST, /* one level of each path */
	SBX_SCAN_SINCE, /* one level of each path, what changed after since_ns */
	SBX_SCAN_LSTAT, /* the paths themselves */
};

struct sbx_scan_options {
	enum sbx_scan_mode mode;
	unsigned max_entries; /* TREE; 0: 50,000 */
	int64_t since_ns; /* SINCE, on the sandbox's clock */
	bool dirs_only; /* SINCE: look at the directories only, not at their entries */
};

struct sbx_scan_request {
	struct sbx_program_request program;
	struct sbx_scan_options options;
	GPtrArray *paths; /* char *, as given */
};

/* Always to be cleared, also after an error. 0 or -E2BIG. */
int sbx_scan_request_init(struct sbx_scan_request *req, const struct sbx_scan_options *options,
			  const struct sbx_tools *tools, const struct sbx_program_limits *limits);
void sbx_scan_request_clear(struct sbx_scan_request *req);

/*
 * Adds a path; each at most once. 0; -E2BIG when the request is full (send it, begin another);
 * -EINVAL; -ENAMETOOLONG. argv is sbx_program_request_argv(&req->program).
 */
int sbx_scan_request_add(struct sbx_scan_request *req, const char *path);

enum sbx_scan_state {
	SBX_SCAN_FAILED, /* error says why; attr where it was seen (ENOTDIR: not a directory) */
	SBX_SCAN_KNOWN, /* attributes only: asked by LSTAT */
	SBX_SCAN_UNCHANGED, /* the directory itself did not change; entries are those that did */
	SBX_SCAN_LISTED, /* entries are all that it holds */
};

struct sbx_scan_entry {
	struct sbx_attr attr;
	const char *name; /* of the reply */
	const char *link; /* text of a symlink, else NULL; of the reply */
};

/*
 * A path that was asked for, or a directory listed below one. A directory that is an entry of one
 * of them and has no place of its own was left out by the bound.
 */
struct sbx_scan_place {
	const char *path; /* of the reply */
	const char *link; /* text where the path itself is a symlink, else NULL */
	GArray *entries; /* struct sbx_scan_entry; NULL unless UNCHANGED or LISTED */
	struct sbx_attr attr;
	enum sbx_scan_state state;
	int error; /* positive errno where FAILED, else 0 */
	unsigned depth; /* levels below what was asked for */
	bool has_attr;
};

struct sbx_scan_reply {
	GPtrArray *places; /* struct sbx_scan_place *; first those asked for, in their order */
	GPtrArray *refused; /* const char *, of the reply: paths left out, their name is none */
	int64_t clock_ns;
	bool clock_has_ns;
	bool complete; /* TREE: no directory was left out by the bound */
	struct sbx_program_answer answer; /* what the strings point into; and: */
	GStringChunk *strings;
	GHashTable *by_path; /* path to place */
};

/*
 * Decodes stdout of the exec that ran req. 0 and a reply to be freed; errors of
 * sbx_program_unframe(), and -EBADMSG for records that are not as they must be.
 */
int sbx_scan_decode(const struct sbx_scan_request *req, const char *out, size_t out_len,
		    struct sbx_scan_reply **ret_reply);
/* The same of a section of another program's answer, which keeps a reference to it. */
int sbx_scan_decode_section(const struct sbx_scan_request *req, GByteArray *section,
			    struct sbx_scan_reply **ret_reply);
void sbx_scan_reply_free(struct sbx_scan_reply *reply);

/* NULL where the reply has no place of that path. */
const struct sbx_scan_place *sbx_scan_reply_place(const struct sbx_scan_reply *reply,
						  const char *path);

#endif
