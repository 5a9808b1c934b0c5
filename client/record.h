/*
 * record.h - the records in the answers of the sandbox programs (client/programs/prelude.sh).
 *
 * A parser walks over a buffer that it may change: strings are given out as pointers into it,
 * NUL-terminated in place. Nothing beyond the buffer is read, whatever it holds. No locks.
 */
#ifndef SBX_CLIENT_RECORD_H
#define SBX_CLIENT_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "client/attr.h"

struct sbx_reader {
	char *at;
	char *end;
};

/* One file's attributes. */
struct sbx_record {
	const char *path; /* as in program.h: without "./", "" for the root */
	const char *link; /* text of a symlink, else NULL */
	struct sbx_attr attr;
	char kind;
};

/* The letter that the next record begins with, 0 at the end of the buffer. */
char sbx_reader_peek(const struct sbx_reader *reader);

/*
 * Takes the string up to the next NUL, that of the letter included. -EBADMSG without a NUL, or when
 * it does not begin with letter (0: any).
 */
int sbx_reader_string(struct sbx_reader *reader, char letter, char **ret_string);

/* Takes an attribute record, one that begins with "a" or "b". 0 or -EBADMSG. */
int sbx_reader_record(struct sbx_reader *reader, struct sbx_record *ret_record);

/* Takes the clock record. 0 or -EBADMSG. */
int sbx_reader_clock(struct sbx_reader *reader, int64_t *ret_clock_ns, bool *ret_has_ns);

/* Parses a whole string as an unsigned decimal number of at most max. 0 or -EBADMSG. */
int sbx_record_number(const char *text, uint64_t max, uint64_t *ret_number);

/* Nanoseconds of a time; what 64 bits can't hold becomes the nearest that they can, and neither of
 * the values that mean something else in apply.h. */
int64_t sbx_record_time(int64_t seconds, int64_t ns);

/* A path as the programs spell it ("./a", ".") in the form of program.h. */
const char *sbx_record_path(const char *path);

#endif
