/*
 * names - the one metadata store of a session, how it becomes fresh, and the queue of mutations.
 *
 * The store is a tree of entries: name, attributes, link text, for directories the children. A
 * directory is `complete` when its whole listing is known; it is fresh until `validated + ttl`.
 * How a listing becomes fresh, stale and fresh again:
 *
 *   unknown ──scan──▶ fresh ──ttl──▶ stale ──"changed since" (one request for a group of
 *   directories, those used last first, whatever number of callers wait)──▶ fresh
 *
 * First use of a session scans the whole tree in one request, breadth first, bounded; what the
 * bound left out is scanned by directory when touched. A complete, fresh directory answers stat,
 * lookup and failed lookup without a request. Answers of apply update the store at once.
 *
 * Where a look at what is in use takes longer than ttl (a directory of 200,000 files), what is
 * shown is as old as twice that look at most: it would be stale as it comes, and asked for without
 * end.
 *
 * Write epoch: an answer that was asked for before a mutation of the same directory was applied is
 * not put over what the mutation said.
 *
 * Local view: an entry may carry attributes of unsent bytes (files.h sets and clears them); they
 * cover the remote ones in every answer, also when the remote has no such entry yet.
 *
 * The queue: mutations about the same names go to the sandbox in the order in which they were
 * asked. Those that wait while a request is under way go together in the next (bounded by what the
 * sandbox takes); one that takes long is not waited for by the others. Each request carries an
 * operation id, so a lost answer is asked for again (promise 9). A caller that is cancelled
 * leaves: what was not sent is not done.
 *
 * Where the server has no exec, the store is filled by the plain routes (plain.h).
 *
 * Locking: names->lock protects store and queue; never held across a request.
 */
#ifndef SBX_CLIENT_WORKSPACE_NAMES_H
#define SBX_CLIENT_WORKSPACE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/attr.h"
#include "client/workspace/workspace.h"

struct sbx_call;
struct sbx_exec_result; /* client/provider.h */
struct sbx_names;
struct sbx_op; /* op.h */
struct sbx_op_result; /* op.h */
struct sbx_probe_reply; /* client/probe.h */
struct sbx_program_limits; /* client/program.h */
struct sbx_session;

int sbx_names_new(struct sbx_session *session, const struct sbx_workspace_options *options,
		  struct sbx_names **ret_names);
void sbx_names_free(struct sbx_names *names);

/* As sbx_ws_stat(). *ret_link (may be NULL; g_free): the raw text of a symbolic link, else NULL. */
int sbx_names_stat(struct sbx_names *names, const struct sbx_call *call, const char *path,
		   enum sbx_stat_how how, struct sbx_attr *ret_attr, char **ret_link,
		   int64_t *ret_valid_ms);
int sbx_names_list(struct sbx_names *names, const struct sbx_call *call, const char *path,
		   struct sbx_listing **ret_listing);

/* As sbx_names_list() of whatever age, never asks and is no use of the directory; -EAGAIN:
 * unknown. */
int sbx_names_list_known(struct sbx_names *names, const char *path,
			 struct sbx_listing **ret_listing);

/* The remote attributes alone, local view left aside; never asks. */
int sbx_names_remote_attr(struct sbx_names *names, const char *path, struct sbx_attr *ret_attr);

/* Another known name of the file @path, which has several links, with its attributes; NULL: none is
 * known. g_free(). Never asks. */
char *sbx_names_other_name(struct sbx_names *names, const char *path, struct sbx_attr *ret_attr);

/* Local view of unsent bytes: set covers, clear uncovers. Never ask, never block. */
void sbx_names_set_local(struct sbx_names *names, const char *path, const struct sbx_attr *attr);
void sbx_names_clear_local(struct sbx_names *names, const char *path);

/* Attributes of @path that an answer to a request sent at @asked_ms (monotonic) has shown; NULL: it
 * has shown that there is no such file. Ignored when a mutation came between, of a path below
 * SBX_WORK_DIR, and without links, which what was looked at has then lost. */
void sbx_names_saw(struct sbx_names *names, const char *path, const struct sbx_attr *attr,
		   int64_t asked_ms);

/*
 * Run @n_ops operations (at most a few; they stay together, in order) in the sandbox, in one
 * request together with those of other callers. Blocks until the outcome is known. Returns 0 when
 * the request was answered: then results[i] tells each operation's errno and attributes
 * (sbx_op_results_clear()), and the store is up to date; else the negative errno of the request
 * (-EOPNOTSUPP without exec, -E2BIG: they do not fit one command), and no result is set.
 * A caller that is cancelled leaves with -EINTR: what was not sent is taken back, what was sent
 * goes on. @timeout_ms: without an answer. @ops is copied.
 */
int sbx_names_apply(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		    const struct sbx_op *ops, size_t n_ops, struct sbx_op_result *ret_results);

/* As sbx_names_apply() but beside the queue, for operations that may take long (copying a big file
 * within the sandbox). Blocks in the caller's thread. */
int sbx_names_apply_aside(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
			  const struct sbx_op *ops, size_t n_ops,
			  struct sbx_op_result *ret_results);

/* The request @opid was sent, got no answer and will not be sent again: it is not to be done late.
 * Never blocks. */
void sbx_names_give_up(struct sbx_names *names, const char *opid);

/* There may be exec here, as far as is known: the options allow it and no answer has denied it. */
bool sbx_names_has_exec(struct sbx_names *names);

/* What the sandbox's tools can; asks once an epoch. *ret_probe is owned by @names and stays valid
 * as long as @names. -EOPNOTSUPP without exec. */
int sbx_names_probe(struct sbx_names *names, const struct sbx_call *call,
		    const struct sbx_probe_reply **ret_probe);
/* The same, never asks; NULL when not known. */
const struct sbx_probe_reply *sbx_names_probe_cached(struct sbx_names *names);

/*
 * Run one of the fixed programs: @argv as its encoder gave it. *ret_result is the exec's, with an
 * answer that the program's decoder has to take apart (sbx_exec_result_clear()). @repeatable: may
 * be sent again after a lost answer. Blocks in the caller's thread, at most @timeout_ms without an
 * answer. -EIO: the program did not run to its end; -E2BIG: the command is too long for this
 * sandbox, which has been learnt: encode it again under sbx_names_limits().
 */
int sbx_names_run(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		  const char *const *argv, bool repeatable, struct sbx_exec_result *ret_result);

/*
 * What to do about the negative errno of a decoder: -EAGAIN where the answer was cut and it has
 * been learnt at what length (ask for less, under sbx_names_limits()); else what the caller shows,
 * -EIO as a rule, and it is in errors. @what: "scan", "pack", …
 */
int sbx_names_bad_answer(struct sbx_names *names, const char *what, int error,
			 const struct sbx_exec_result *result);

/* What one command and one answer may carry here, as far as it is known. */
void sbx_names_limits(struct sbx_names *names, struct sbx_program_limits *ret_limits);

/* Drop what is known: everything is asked again. Local views stay. */
void sbx_names_refresh(struct sbx_names *names);

/* The sandbox's clock minus ours, nanoseconds, as last seen; and the least that it may be: where
 * the sandbox tells whole seconds the one is half a second wrong at most. 0: not known. */
int64_t sbx_names_clock_offset_ns(struct sbx_names *names);
int64_t sbx_names_clock_least_ns(struct sbx_names *names);

int sbx_names_statfs(struct sbx_names *names, const struct sbx_call *call, struct statvfs *ret_st);

#endif
