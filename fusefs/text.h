/*
 * text - how status, errors and the like spell values. Pure but for the clock.
 */
#ifndef SBX_FUSEFS_TEXT_H
#define SBX_FUSEFS_TEXT_H

#include <stdint.h>

#include <glib.h>

/* Wall clock, nanoseconds since 1970. */
int64_t text_now_ns(void);

/* RFC 3339 in UTC, whole seconds: 2026-11-30T08:30:00Z. g_free(). */
char *text_time(int64_t ns);

/* "ok" or the name: "EBUSY". A constant. @error: 0 or a negative errno. */
const char *text_errno(int error);

/* "key: value\n"; @value NULL or empty: "key:\n". Line ends in @value become blanks. */
void text_line(GString *out, const char *key, const char *value);
/* The same with a formatted value. */
void text_linef(GString *out, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
