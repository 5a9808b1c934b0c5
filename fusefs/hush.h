/*
 * hush - what libfuse and fusermount3 say on stderr, kept back so that it becomes a part of the one
 * line that the command says.
 *
 * Swaps descriptor 2 of the whole process: only while no other thread says anything. One at a time.
 */
#ifndef SBX_FUSEFS_HUSH_H
#define SBX_FUSEFS_HUSH_H

struct hush {
	int stderr_fd; /* the real one; -1: nothing is kept back */
	int kept_fd;
};

void hush_begin(struct hush *hush);

/* What was said since, its lines joined by "; "; "" where nothing was. g_free(). */
char *hush_end(struct hush *hush);

#endif
