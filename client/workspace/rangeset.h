/*
 * rangeset - which bytes of a file are here: a sorted list of [start, end) that do not touch.
 *
 * Pure data, no lock: the owner's lock protects it. Nothing blocks. Memory is 16 bytes a range.
 */
#ifndef SBX_CLIENT_WORKSPACE_RANGESET_H
#define SBX_CLIENT_WORKSPACE_RANGESET_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_range {
	uint64_t start;
	uint64_t end; /* past the last byte */
};

struct sbx_rangeset {
	GArray *ranges; /* of struct sbx_range */
};

void sbx_rangeset_init(struct sbx_rangeset *set);
void sbx_rangeset_done(struct sbx_rangeset *set);
void sbx_rangeset_clear(struct sbx_rangeset *set);

/* [start, end) is in the set from now on. An empty one changes nothing. */
void sbx_rangeset_add(struct sbx_rangeset *set, uint64_t start, uint64_t end);
/* [start, end) is in the set no more. */
void sbx_rangeset_remove(struct sbx_rangeset *set, uint64_t start, uint64_t end);

/* Every byte of [start, end) is in the set; true for an empty one. */
bool sbx_rangeset_has(const struct sbx_rangeset *set, uint64_t start, uint64_t end);

/* How many bytes from @start on are in the set without a gap; 0: the byte at @start is not. */
uint64_t sbx_rangeset_run(const struct sbx_rangeset *set, uint64_t start);

/* The first part of [start, end) that is not in the set. False: all of it is. */
bool sbx_rangeset_gap(const struct sbx_rangeset *set, uint64_t start, uint64_t end,
		      struct sbx_range *ret_gap);

uint64_t sbx_rangeset_bytes(const struct sbx_rangeset *set);

#endif
