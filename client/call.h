/*
 * What every blocking function of client/ is given: who may stop it, how long it may stand
 * still, and where it may say what went wrong.
 *
 * A call belongs to one operation of one caller and is only read by the layers it passes through,
 * so it may live on the caller's stack. The same call serves several requests one after another.
 *
 * Locks: a token has one lock. Wake functions run with it held, so the order is
 * token lock -> the lock a wake function takes. Hence a hook is added and removed without
 * holding the lock that its wake function takes. A child's lock is taken under its parent's.
 */
#ifndef SBX_CLIENT_CALL_H
#define SBX_CLIENT_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_cancel;

/* Runs once, in the thread that fires, with the token's lock held: it only wakes somebody. */
typedef void (*sbx_cancel_wake_fn)(void *arg);

/* Storage for one registration, usually on the stack of the one who waits. */
struct sbx_cancel_hook {
	sbx_cancel_wake_fn wake;
	void *arg;
	struct sbx_cancel_hook *next; /* owned by the token */
	struct sbx_cancel_hook **link;
};

/*
 * sbx_cancel_new() - a token that has not fired, with one reference. NULL: out of memory.
 * @parent: may be NULL; when it fires, so does the new token. The new token holds a reference.
 */
struct sbx_cancel *sbx_cancel_new(struct sbx_cancel *parent);
struct sbx_cancel *sbx_cancel_ref(struct sbx_cancel *cancel);
void sbx_cancel_unref(struct sbx_cancel *cancel); /* NULL is allowed */

/*
 * sbx_cancel_fire() - stop everything that waits under this token; later calls return -EINTR at
 * once. From any thread, also from libfuse's interrupt callback; not from a signal handler.
 * Never blocks on a request. Firing twice is nothing.
 */
void sbx_cancel_fire(struct sbx_cancel *cancel);
bool sbx_cancel_fired(struct sbx_cancel *cancel); /* NULL: false */

/*
 * sbx_cancel_hook_add() - have wake(arg) called when the token fires.
 * 0; or -EINTR when it has fired already, and then nothing is registered.
 * sbx_cancel_hook_del() - after it has returned the hook runs no more. Also right after a failed
 * add, or when the token fired. Neither blocks longer than a wake function takes.
 */
int sbx_cancel_hook_add(struct sbx_cancel *cancel, struct sbx_cancel_hook *hook,
			sbx_cancel_wake_fn wake, void *arg);
void sbx_cancel_hook_del(struct sbx_cancel *cancel, struct sbx_cancel_hook *hook);

/* Why a call failed, beside its errno. */
enum sbx_fail_kind {
	SBX_FAIL_NONE,
	SBX_FAIL_LOCAL, /* refused or broken on this machine, nothing was sent */
	SBX_FAIL_CANCEL, /* the token fired: -EINTR */
	SBX_FAIL_RESOLVE, /* the host has no address: -EHOSTUNREACH */
	SBX_FAIL_CONNECT, /* no connection: -EHOSTUNREACH */
	SBX_FAIL_TLS, /* no trusted connection: -EPROTO */
	SBX_FAIL_STALL, /* no progress for stall_timeout_ms, or past the deadline: -ETIMEDOUT */
	SBX_FAIL_LOST, /* the connection broke, or the body was short: -EIO */
	SBX_FAIL_FOREIGN, /* an answer that is not the protocol's, or is too big: -EIO, -EFBIG */
	SBX_FAIL_REPLY, /* the server answered with an error: errno from client/errmap.h */
};

#define SBX_FAILURE_TEXT_MAX 500

/*
 * One failure, told so that the errors file can show it: texts hold neither the token nor control
 * bytes (those are \xNN) and end with NUL. Filled only by a function that fails.
 */
struct sbx_failure {
	int error; /* negative errno, as returned */
	enum sbx_fail_kind kind;
	int http_status; /* 0: no answer */
	bool retryable; /* the server said so */
	bool maybe_done; /* false: provably nothing happened on the server */
	bool session_not_found; /* no live session of that id: reattach may revive it */
	bool not_supported; /* the server has no such route or no exec */
	bool token_refused; /* 401 (or 403 without a path's reason): state `denied` */
	const char *operation; /* a constant: "get", "exec", ... */
	char code[64];
	char message[SBX_FAILURE_TEXT_MAX + 1];
};

struct sbx_call {
	struct sbx_cancel *cancel; /* NULL: can't be stopped */
	int64_t stall_timeout_ms; /* longest time without progress; 0: no limit */
	int64_t deadline_ms; /* sbx_clock_ms() past which it fails; 0: none */
	struct sbx_failure *failure; /* NULL: not wanted. Untouched on success */
	/* Bytes of its request crossed the wire, either way: told in the request's thread, for
	 * those who wait for what it brings (sbx_wait_moving()). NULL: nobody does. */
	void (*moved)(void *arg);
	void *moved_arg;
	/* What `errors` names a failure after, where the request's own do not tell; both borrowed.
	 * NULL: they do. */
	const char *operation;
	const char *path;
	bool background; /* no program waits for it: it is not a use that keeps a session awake */
	bool no_wake; /* a session that is asleep is left so: -ESTALE */
	bool mending; /* part of what revives a session: goes on while others wait for that */
};

/* CLOCK_MONOTONIC in milliseconds. */
int64_t sbx_clock_ms(void);

/*
 * sbx_call_check() - may the call go on? 0, -EINTR when fired, -ETIMEDOUT past the deadline.
 * Never blocks.
 */
int sbx_call_check(const struct sbx_call *call);

/*
 * sbx_call_sleep() - wait @ms milliseconds. 0 when they are over, -EINTR at once when the token
 * fires, -ETIMEDOUT when the deadline comes first (told at once, without the wait).
 */
int sbx_call_sleep(const struct sbx_call *call, int64_t ms);

/*
 * Waiting for a condition variable (of CLOCK_MONOTONIC, see sbx_cond_init) under a call:
 *
 *	struct sbx_wait wait;
 *	r = sbx_wait_begin(&wait, call, &cond, &lock);     lock not held
 *	if (r < 0) return r;
 *	pthread_mutex_lock(&lock);
 *	while (!ready && r == 0) r = sbx_wait_for(&wait);
 *	...
 *	pthread_mutex_unlock(&lock);
 *	sbx_wait_end(&wait);                               lock not held
 *
 * sbx_wait_for() returns 0 after any wakeup, -EINTR when the token fired, -ETIMEDOUT when
 * stall_timeout_ms have passed since sbx_wait_begin() or the deadline has come.
 *
 * sbx_wait_moving() - the same, for what a request of another thread brings: stall_timeout_ms count
 * from *@moved_ms, to which that thread sets sbx_clock_ms() under the lock as its request gets on.
 */
struct sbx_wait {
	const struct sbx_call *call;
	pthread_cond_t *cond;
	pthread_mutex_t *lock;
	int64_t until_ms; /* 0: for ever */
	struct sbx_cancel_hook hook;
};

int sbx_cond_init(pthread_cond_t *cond);
int sbx_wait_begin(struct sbx_wait *wait, const struct sbx_call *call, pthread_cond_t *cond,
		   pthread_mutex_t *lock);
int sbx_wait_for(struct sbx_wait *wait);
int sbx_wait_moving(struct sbx_wait *wait, const int64_t *moved_ms);
void sbx_wait_end(struct sbx_wait *wait);

/*
 * sbx_call_fail() - fill call->failure (if wanted) for a failure found on this machine: kind
 * SBX_FAIL_LOCAL, nothing sent. The message is cut and escaped. Returns @error, so that
 * `return sbx_call_fail(call, "get", -EILSEQ, "...")` reads well.
 */
int sbx_call_fail(const struct sbx_call *call, const char *operation, int error,
		  const char *message);

/*
 * sbx_text_escape() - copy @len bytes to @ret_text (of @size bytes, NUL included), with control
 * bytes, backslashes and invalid UTF-8 as \xNN, never cutting inside an escape or a character.
 */
void sbx_text_escape(char *ret_text, size_t size, const char *text, size_t len);

#endif
