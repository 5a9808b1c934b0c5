/*
 * job - the programs of jobs: requests encoded, answers decoded (programs/jobrun.sh, joblook.sh,
 * jobpoll.sh). What the answers mean for a job's state is client/jobs.h's.
 *
 * Bytes in, structs out: no I/O, no locks, never block. Every text of a reply is checked: ids are
 * [A-Za-z0-9][A-Za-z0-9._-]{0,63}, numbers in range; anything else is -EBADMSG.
 */
#ifndef SBX_CLIENT_JOB_H
#define SBX_CLIENT_JOB_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/program.h"

struct sbx_job_spec; /* client/jobs.h */
struct sbx_tools;

#define SBX_JOB_OP_CHARS 32

/* [A-Za-z0-9][A-Za-z0-9._-]{0,63}, and not "new" or "latest". */
bool sbx_job_id_is_valid(const char *id);

/*
 * argv of the exec that becomes the job's leader. @spec->id is set; @op: the start's own id;
 * @spare_root: absolute, for a workspace that can't be written; @session: the session's id, kept in
 * meta.json; @has_setsid: the sandbox has the tool. The exec wants no environment: the job's is the
 * backend's. 0, -EINVAL (a text with NUL, a name of a variable that is none), -E2BIG.
 * *ret_request is to be cleared by sbx_program_request_clear() also on failure.
 */
int sbx_job_run_request(const struct sbx_job_spec *spec, const char *op, const char *session,
			const char *spare_root, bool has_setsid, const struct sbx_tools *tools,
			const struct sbx_program_limits *limits,
			struct sbx_program_request *ret_request);

/* What joblook.sh is asked. @roots: NULL at the end. */
int sbx_job_list_request(const char *const *roots, const struct sbx_tools *tools,
			 const struct sbx_program_limits *limits,
			 struct sbx_program_request *ret_request);
/* @looks: how often it looks for a trace of the start @op, 50 ms apart. */
int sbx_job_started_request(const char *id, const char *op, unsigned int looks,
			    const char *const *roots, const struct sbx_tools *tools,
			    const struct sbx_program_limits *limits,
			    struct sbx_program_request *ret_request);
/* @words: "cancel" or "signal NAME" (A-Z0-9 only in NAME, else -EINVAL); NULL: remove. @ask_id: of
 * this request alone, [0-9a-f-]; what is asked is done once, in the order of the ids. */
int sbx_job_ask_request(const char *dir, const char *ask_id, const char *words,
			const struct sbx_tools *tools, const struct sbx_program_limits *limits,
			struct sbx_program_request *ret_request);

enum sbx_job_life {
	SBX_JOB_LIFE_UNKNOWN, /* no leader of ours */
	SBX_JOB_LIFE_ALIVE,
	SBX_JOB_LIFE_DEAD,
};

/* How a job of ours ended, from its file `end`. */
struct sbx_job_end {
	bool known;
	char state[12]; /* "exited", "cancelled", "timedout" */
	int code;
	uint64_t log_bytes; /* what the log held then */
	int64_t ended_s; /* sandbox clock */
	unsigned int left; /* processes that could not be ended */
};

struct sbx_job_record {
	char *root;
	char *id;
	char *op; /* "" for a job that was not started by us */
	char *meta; /* JSON text, "" none */
	bool has_exit;
	int exit_code;
	struct sbx_job_end end;
	enum sbx_job_life life; /* means something without exit only */
	uint64_t log_bytes; /* 0 when end.known, which has it */
	int64_t age_s; /* since its directory changed; 0 with meta */
};

struct sbx_job_look {
	int error; /* positive errno that the program gave instead of records, 0 */
	GPtrArray *records; /* struct sbx_job_record */
};

/* Errors of sbx_program_unframe(), -EBADMSG. Records whose id or root is not valid are left out. */
int sbx_job_look_decode(const char *nonce, const char *out, size_t out_len,
			struct sbx_job_look **ret_look);
void sbx_job_look_free(struct sbx_job_look *look);

/* The poll: what is new in logs. ------------------------------------------------------------- */

struct sbx_job_poll_item {
	/* asked */
	const char *dir; /* borrowed */
	uint64_t offset;
	/* answered */
	uint64_t log_bytes;
	bool has_exit;
	int exit_code;
	struct sbx_job_end end;
	enum sbx_job_life life;
	bool is_gone; /* there is no such directory */
	GByteArray *bytes; /* from offset on; NULL: none */
};

/* argv (g_strfreev) and nonce of a poll; each log gives at most @max_bytes. */
char **sbx_job_poll_argv(const struct sbx_job_poll_item *items, size_t n_items, size_t max_bytes,
			 char nonce[SBX_NONCE_CHARS + 1]);
/* Fills in what was answered; all items or, with -EBADMSG, none. -EMSGSIZE: the answer was cut. */
int sbx_job_poll_decode(struct sbx_job_poll_item *items, size_t n_items, const char *nonce,
			size_t max_bytes, const char *out, size_t out_len);
void sbx_job_poll_item_clear(struct sbx_job_poll_item *item);

/* "exited 0 12 1796036392 0" */
int sbx_job_end_parse(const char *text, struct sbx_job_end *ret_end);

#endif
