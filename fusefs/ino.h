/*
 * ino - the numbers that stat shows (kernel.md "st_ino").
 *
 * The low 32 bits are the sandbox's inode number, the high 32 bits a tag of (session, device), so
 * two sessions, or two devices of one, never share a number. git compares the low half only.
 *
 *  - A number that a program has seen stays while the file is open; after the last close the
 *    sandbox's own is shown.
 *  - A newcomer whose number is taken by a live node that is not its link gets a private one: the
 *    same low half under a tag of its own.
 *  - Where the sandbox's number is not known, the number is private.
 *
 * Tags: 0 is the files of sbxfs itself, 1 … 2^31-1 pairs of session and device in the order in
 * which they were seen, the rest is private numbers.
 *
 * Locking: none of its own; every function is called with the node table's lock held.
 */
#ifndef SBX_FUSEFS_INO_H
#define SBX_FUSEFS_INO_H

#include <stdbool.h>
#include <stdint.h>

struct ino_table;

struct ino_table *ino_table_new(void);
void ino_table_free(struct ino_table *table);

/* The number that (@session, @dev, @ino) shows as when nothing is in the way. */
uint64_t ino_number(struct ino_table *table, unsigned int session, uint64_t dev, uint64_t ino);

/*
 * Take the number of (@session, @dev, @ino) for a node that holds @held (0: none) and give that one
 * back. @has_links: the file has more than one name, so it may share. @ino 0: not known.
 * Returns the number that the node now holds; *ret_private tells what kind it is.
 */
uint64_t ino_take(struct ino_table *table, uint64_t held, bool held_private, unsigned int session,
		  uint64_t dev, uint64_t ino, bool has_links, bool *ret_private);

/* A node that holds @held ends. 0: nothing. */
void ino_give(struct ino_table *table, uint64_t held);

/* Jobs and their files, by number (sessionjobs.h). */
#define INO_JOB_BITS UINT64_C(0xfffffffc00000000)
/* Files and directories in snapshots/, by a hash of their names (snapshotdir.h). */
#define INO_SNAPSHOT_BITS UINT64_C(0xfffffffd00000000)
/* Above what private numbers reach: files in memory (scratch.h), and names without a node. */
#define INO_SCRATCH_BITS UINT64_C(0xfffffffe00000000)
#define INO_NAME_BITS	 UINT64_C(0xffffffff00000000)

/* The number of a file of ours: @group (a session's index, 0 the mount), @index in it. */
static inline uint64_t ino_own(unsigned int group, unsigned int index)
{
	return ((uint64_t)group << 12 | index) & 0xffffffff;
}

#endif
