/*
 * garble.h - texts spoilt by a chance that is always the same, for tests of what reads a server's
 * words.
 *
 * A round takes a text that is right and cuts, doubles, swaps and replaces parts of it, so that
 * most of what is right about it stays: what is read then gets far before it meets what is wrong.
 * The decoder under test must answer 0 or an errno that it promises, and read nothing that is not
 * there: the text stands in memory of its own size, so that the sanitizers see a byte too many.
 * What it takes has to keep its promises too; each test looks at those.
 *
 * No state but the struct; one thread.
 */
#ifndef SBX_TESTS_FUZZ_GARBLE_H
#define SBX_TESTS_FUZZ_GARBLE_H

#include <glib.h>
#include <stddef.h>

struct garble {
	GRand *chance;
	const char *spice; /* bytes that mean something in these texts */
	size_t spice_len;
	unsigned int rounds;
	unsigned int taken; /* by the decoder, as the test counts */
};

/* @spice: as of a string literal, its last NUL left out. */
void garble_init(struct garble *garble, const char *spice, size_t spice_len);
void garble_done(struct garble *garble);

/* 0 to @limit - 1. */
unsigned int garble_pick(struct garble *garble, size_t limit);

/*
 * One round's text, made of @clean; exactly *ret_len bytes of memory of its own (one where that is
 * 0); g_free().
 */
char *garble_text(struct garble *garble, const char *clean, size_t len, size_t *ret_len);

/* Some rounds are taken, but not nearly all: else the texts were not spoilt, or not right. */
void garble_check_taken(const struct garble *garble);

#endif
