/*
 * park - a read that is answered later, without holding one of the loop's threads.
 *
 * A class that may have to wait for minutes hands its read over: the thread goes back to the loop,
 * and whoever sees the wait's end answers. A parked read ends with any signal that its caller gets
 * (-EINTR), and at shutdown.
 *
 * Locking: one lock a parked read, innermost, for the race between the wait's end and the caller's
 * signal: exactly one of them answers. The kernel keeps the file open until then.
 */
#ifndef SBX_FUSEFS_PARK_H
#define SBX_FUSEFS_PARK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct op;
struct park;
struct parks;

/* What a class does for its parked reads; @arg is its own. */
struct park_wait {
	/*
	 * Begin to wait. When it returns 0, park_done() is called once, from any thread without
	 * locks, maybe before it returns. A negative errno is the read's answer.
	 */
	int (*begin)(void *arg, struct park *park);
	/* The caller is let go. True: park_done() was not called and will not be. At most once. */
	bool (*end)(void *arg);
	/* The wait is over: what the read gives. @result: what park_done() was told. */
	ssize_t (*answer)(void *arg, struct op *op, int result, void *buf, size_t size,
			  off_t offset);
	void (*free)(void *arg);
};

/* The parked reads of a mount. */
struct parks *parks_new(void);
void parks_free(struct parks *parks); /* NULL is allowed */
/* Waits until every parked read is answered. After fs_stop(), before the pool ends. */
void parks_drain(struct parks *parks);

/* Takes @op and @arg over: the read is answered, whatever happens. */
void park_read(struct op *op, const struct park_wait *wait, void *arg, size_t size, off_t offset);
/* The wait of @park is over. */
void park_done(struct park *park, int result);

#endif
