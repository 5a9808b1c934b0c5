/*
 * UTF-8 as the reference server sees it: bytes become text by the WHATWG decoder, which never
 * fails but puts U+FFFD for what is not UTF-8 (one for each maximal ill-formed part).
 *
 * Pure functions, no state, no locks.
 */
#ifndef SBX_SBXD_UTF8_H
#define SBX_SBXD_UTF8_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

/* Append the @len_bytes at @data to @out, ill-formed parts replaced by U+FFFD. NUL bytes stay. */
void utf8_append_lossy(GString *out, const void *data, size_t len_bytes);

/* Append the bytes read as Latin-1: each byte is one character. */
void utf8_append_latin1(GString *out, const void *data, size_t len_bytes);

/* Append one code point; a surrogate becomes U+FFFD. */
void utf8_append_char(GString *out, unsigned int code_point);

/* Whether the bytes are well-formed UTF-8 as a whole. NUL is allowed. */
bool utf8_is_valid(const void *data, size_t len_bytes);

/* The length of well-formed UTF-8 in UTF-16 code units, which is what JavaScript counts. */
size_t utf8_length_utf16(const void *data, size_t len_bytes);

#endif
