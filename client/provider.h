/*
 * The seam at which sandbox services plug in: one vtable of what a service can do to sessions,
 * files and commands. Nothing above it knows a route or a status. client/provider_wire.c is the
 * provider for the wire protocol (wire.md).
 *
 * For all slots:
 * - They block within the limits of @call and return 0 or negative errno; out parameters are set
 *   on 0 only; call->failure tells more on failure. They are thread-safe and hold no lock while
 *   they wait. None ever returns -ENOSYS.
 * - Common errnos: -EINTR (cancelled), -EHOSTUNREACH, -ETIMEDOUT, -EPROTO (TLS), -EACCES (token
 *   refused: failure.token_refused; or path denied), -ESTALE (failure.session_not_found: no live
 *   session of that id), -EOPNOTSUPP (failure.not_supported), -EBUSY (429/503 to the end),
 *   -EIO (lost, short, foreign or unparsable answer), -ENOMEM, and errnos of the sandbox.
 * - failure.maybe_done tells whether what was asked may have happened nevertheless. Slots marked
 *   "repeatable" may be asked again at once; the others only when maybe_done is false.
 * - Stale kept connections are dealt with below (wire.md A6). Every other retry, reviving a
 *   session and failing fast while a server is away are the caller's.
 * - Paths are relative to the workspace root, "." is the root (wire.md A1). Refused before anything
 *   is sent, with -EILSEQ: what is not UTF-8, has an empty, "." or ".." component, or at root
 *   level a name that begins with "..": routes would touch another file. These go through exec.
 *   Over 4095 bytes: -ENAMETOOLONG.
 */
#ifndef SBX_CLIENT_PROVIDER_H
#define SBX_CLIENT_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "client/call.h"
#include "client/http.h"
#include "client/json.h"
#include "client/name.h"
#include "client/stats.h"

#define SBX_ID_MAX   64
#define SBX_ROOT_MAX 4096

/* What a service offers at all; a sandbox may still lack it (failure.not_supported). */
enum sbx_provider_cap {
	SBX_CAP_EXEC = 1 << 0,
	SBX_CAP_ARCHIVE = 1 << 1, /* persist, hydrate */
	SBX_CAP_REATTACH = 1 << 2, /* an idle session can be revived by its id */
	SBX_CAP_RANGE = 1 << 3, /* get honours a range; else it may send the whole file */
};

/* A session as the service names it. root: where it lies in the sandbox; may change on a thaw. */
struct sbx_session_ref {
	char id[SBX_ID_MAX + 1];
	char root[SBX_ROOT_MAX];
};

/* The wire can't tell a symlink from a FIFO, socket or device. */
enum sbx_kind {
	SBX_KIND_FILE,
	SBX_KIND_DIRECTORY,
	SBX_KIND_OTHER,
};

struct sbx_stat {
	enum sbx_kind kind;
	int64_t size;
	mode_t mode; /* 07777 */
	struct timespec mtime; /* to about 0.25 us */
};

/*
 * Takes a listing, entry by entry. entry: 0 to go on, or negative errno, which ends it and is its
 * result. Names are valid (no "/", NUL, ".", "..", 1 to 255 bytes, UTF-8). A U+FFFD in a name may
 * stand for a byte that JSON could not carry: such a name is only believed when exec confirms it.
 * refused: a name that is not valid, escaped for people; may be NULL.
 */
struct sbx_dir_sink {
	int (*entry)(void *arg, const char *name, bool is_directory);
	void (*refused)(void *arg, const char *escaped_name);
	void *arg;
};

struct sbx_exec_spec {
	const char *const *argv; /* NULL at the end; valid UTF-8, else -EILSEQ; each under 128 KiB,
				    2 MiB in all, else -E2BIG */
	const char *const *env; /* "NAME=value", NULL at the end; may be NULL */
	const char *cwd; /* relative to the workspace or absolute in it; NULL: the root */
	int64_t timeout_ms; /* 0: none; else 1,000 to 2^31 - 1, -EINVAL outside */
	size_t max_reply_bytes; /* of the JSON; 0: 64 MiB. More is -EFBIG */
	bool repeatable; /* reads only, or carries an id whose outcome is kept */
};

/* out and err end with a NUL beyond their length; they may hold NULs. Their bytes are the
 * sandbox's text, damaged where it was not ASCII (wire.md 4.6). */
struct sbx_exec_result {
	bool has_exit; /* false: killed by a signal, timed out, or never started */
	int exit_code;
	char signal[16]; /* "" or "SIGTERM" */
	bool timed_out;
	char *out;
	size_t out_len;
	char *err;
	size_t err_len;
};

void sbx_exec_result_clear(struct sbx_exec_result *result);

/*
 * Called once when a detached exec is over, in a thread of the provider: @error 0 with the result
 * (valid during the call), or why there is none. Must not block on requests.
 */
typedef void (*sbx_exec_done_fn)(void *arg, int error, const struct sbx_exec_result *result);

struct sbx_provider;

struct sbx_provider_ops {
	/* SBX_CAP_... as far as it is known without asking. Never blocks. */
	unsigned int (*capabilities)(struct sbx_provider *provider);

	/*
	 * Is a server of this service there, and does it take the token? Changes nothing, wakes
	 * nothing. Repeatable.
	 */
	int (*probe)(struct sbx_provider *provider, const struct sbx_call *call);

	/*
	 * Make a session. @body: JSON object text, NULL: {}; -EINVAL when it is no JSON object,
	 * nothing sent. NOT repeatable: after maybe_done a session may be left to expire.
	 */
	int (*create)(struct sbx_provider *provider, const struct sbx_call *call, const char *body,
		      struct sbx_session_ref *ret_ref);

	/* End a session and its archive. 0 too when there is none. Repeatable. */
	int (*destroy)(struct sbx_provider *provider, const struct sbx_call *call, const char *id);

	/*
	 * Revive. *ret_alive false: no such session. root is set when alive. One caller at a time
	 * per session: parallel thaws lose writes. After a lost answer ask again only when the
	 * first must have ended.
	 */
	int (*reattach)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			bool *ret_alive, struct sbx_session_ref *ret_ref);

	/*
	 * Read a file that is known to be regular (a FIFO hangs the server, a link is followed).
	 * @offset, @len: a wish, 0 and -1 for the whole; sink->begin is told what comes. Content
	 * may have reached the sink before a failure. Repeatable.
	 */
	int (*get)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		   const char *path, int64_t offset, int64_t len, const struct sbx_sink *sink);

	/*
	 * Write a whole file: it is unlinked and made anew with mode 0600, missing parents are
	 * made; not atomic. One at a time per path. Repeatable.
	 */
	int (*put)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		   const char *path, const struct sbx_source *source);

	/* lstat. Repeatable. */
	int (*stat)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    const char *path, struct sbx_stat *ret_stat);

	/*
	 * List a directory (known to be one: a final link is followed). Entries may have reached
	 * the sink before a failure. Repeatable.
	 */
	int (*readdir)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		       const char *path, const struct sbx_dir_sink *sink);

	/*
	 * Run a command to its end; any outcome of it is 0. Waits timeout_ms longer than the
	 * call's stall limit. Cancelling does not stop the command. Repeatable as the spec says.
	 */
	int (*exec)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    const struct sbx_exec_spec *spec, struct sbx_exec_result *ret_result);

	/*
	 * Start a command whose answer nobody waits for. 0 once the request was handed whole to
	 * the connection, which stays open (and keeps the session awake) until the command ends;
	 * then @done (may be NULL) is told, exactly once. The server may still refuse: done is
	 * told. On failure done is never called; maybe_done tells whether it may run.
	 * -EAGAIN: too many at once. NOT repeatable.
	 */
	int (*exec_detached)(struct sbx_provider *provider, const struct sbx_call *call,
			     const char *id, const struct sbx_exec_spec *spec,
			     sbx_exec_done_fn done, void *arg);

	/* The workspace as a tar (wire.md 5.1), not consistent between files. Repeatable. */
	int (*persist)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		       const struct sbx_sink *sink);

	/*
	 * Lay a tar over the workspace (wire.md 5.2). 0 proves nothing: compare. A failure may
	 * leave a part of it. Repeatable.
	 */
	int (*hydrate)(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		       const struct sbx_source *source);

	/* End all requests, also those that no caller waits for; later ones are -EINTR. */
	void (*end)(struct sbx_provider *provider);

	/* Let go of what is idle. Call every few seconds. Never blocks long. */
	void (*maintain)(struct sbx_provider *provider);

	void (*stats)(struct sbx_provider *provider, struct sbx_wire_stats *ret_stats);

	/* All calls have returned. Detached execs are let go of (done: -ECANCELED), not stopped. */
	void (*free)(struct sbx_provider *provider);
};

/* The head of every provider. */
struct sbx_provider {
	const struct sbx_provider_ops *ops;
};

/*
 * sbx_provider_wire_new() - the provider of wire.md. Errors and *ret_reason as sbx_http_new().
 * endpoint and token must live longer.
 */
int sbx_provider_wire_new(const struct sbx_endpoint *endpoint, struct sbx_token *token,
			  const struct sbx_http_options *options,
			  struct sbx_provider **ret_provider, const char **ret_reason);

#endif
