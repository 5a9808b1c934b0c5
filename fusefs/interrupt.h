/*
 * interrupt - a caller that can be let go: from the kernel's INTERRUPT to a cancelled sbx_call.
 *
 * The kernel says once that a signal came, not which, and says nothing of later ones. Most signals
 * must not end a file operation: programs do not expect EINTR of a regular file. So the calling
 * thread's /proc/PID/status decides: the operation is cancelled when a signal is pending that ends
 * the caller (KILL, or INT, TERM, QUIT, HUP that it neither catches nor ignores), or when that file
 * can't be read (the caller is gone). Otherwise the caller is looked at again every
 * INTERRUPT_WATCH_MS until the operation ends. Parked reads (@any_signal) end with any signal.
 *
 * Protocol (libfuse): the callback runs with the request's lock held, on another thread. It only
 * fires a token. interrupt_end() waits for a running callback, so after it the request may be
 * replied to.
 *
 * Locking: one lock for the list of what is watched; innermost but for the tokens' own locks.
 */
#ifndef SBX_FUSEFS_INTERRUPT_H
#define SBX_FUSEFS_INTERRUPT_H

#include <stdbool.h>
#include <sys/types.h>

#define INTERRUPT_WATCH_MS 250

struct fuse_req;
struct interrupts;
struct sbx_cancel;

struct interrupt {
	struct interrupts *interrupts;
	struct fuse_req *req;
	struct sbx_cancel *cancel; /* a reference */
	pid_t tid;
	bool any_signal;
	bool watched; /* under the list's lock */
	struct interrupt *next; /* the same */
	struct interrupt **link;
};

/* Starts the thread that watches. NULL: no memory or no thread. */
struct interrupts *interrupts_new(void);
void interrupts_free(struct interrupts *interrupts);

/*
 * Make a token under @parent that fires when the caller of @req has to be let go, and listen. May
 * fire before it returns. @interrupt may live on the stack until interrupt_end(). -ENOMEM.
 */
int interrupt_begin(struct interrupts *interrupts, struct interrupt *interrupt,
		    struct fuse_req *req, pid_t tid, bool any_signal, struct sbx_cancel *parent);

/* Stop listening and drop the token. Before the reply, and outside of all locks. */
void interrupt_end(struct interrupt *interrupt);

/*
 * A signal that ends the thread @tid is pending, or it can't be looked at. Reads @tid's status in
 * /proc; exported for tests.
 */
bool interrupt_is_fatal(pid_t tid);
/* The same on the text of such a file. */
bool interrupt_status_is_fatal(const char *status);

#endif
