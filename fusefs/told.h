/*
 * told - the names that the kernel was told to believe for a while, so that it can be told when it
 * should not any more (notify.h).
 *
 * Only names in directories of a sandbox: what changes behind the kernel's back
 * (node_class.foreign). A name that is there has a node, which remembers it (node_told()); here are
 * those that are not there. One is forgotten when its time is over. There is room for TOLD_MAX of
 * them; beyond that the oldest are dropped, and told_take() says that some are missing.
 *
 * An answer that was worked out before names were taken, and is given after, must not be believed:
 * an operation carries the number of takings from its begin (told_takings()), and when that has
 * grown the answer is for no time. So told_take() comes before node_told_names(), and a node is
 * told before the number is looked at.
 *
 * Locking: one lock of its own, innermost.
 */
#ifndef SBX_FUSEFS_TOLD_H
#define SBX_FUSEFS_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#define TOLD_MAX 16384

struct told;

struct told_name {
	struct told_name *next;
	const void *session; /* compared, never looked into */
	int64_t until_ms; /* sbx_clock_ms() */
	uint64_t dir; /* the node's id */
	char name[];
};

/* One by itself, of no session, whose time is not told. */
struct told_name *told_name_new(uint64_t dir, const char *name);
void told_names_free(struct told_name *names); /* a list; NULL is allowed */

struct told *told_new(void);
void told_free(struct told *told); /* NULL is allowed */

uint64_t told_takings(struct told *told);

/*
 * The kernel is about to be told of @name in the directory @dir for @valid_ms. Returns for how long
 * it may be: @valid_ms, or 0.
 */
int64_t told_add(struct told *told, uint64_t takings, const void *session, uint64_t dir,
		 const char *name, int64_t valid_ms);

/* The names of @session whose time is not over, out of here. *ret_lost: there were more. */
struct told_name *told_take(struct told *told, const void *session, bool *ret_lost);

#endif
