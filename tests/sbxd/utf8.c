#include "tests/sbxd/utf8.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* How many of the bytes at the front are ASCII; eight at a time, for outputs of many megabytes. */
static size_t ascii_run(const unsigned char *bytes, size_t len_bytes)
{
	size_t at = 0;

	while (at + 8 <= len_bytes) {
		uint64_t word;

		memcpy(&word, bytes + at, sizeof(word));
		if (word & UINT64_C(0x8080808080808080))
			break;
		at += 8;
	}
	while (at < len_bytes && bytes[at] < 0x80)
		at++;
	return at;
}

/*
 * The sequence at the front of @bytes, which does not begin with ASCII. Its length is returned;
 * *ret_valid tells whether it is a character, or the maximal ill-formed part that one U+FFFD
 * stands for.
 */
static size_t sequence_length(const unsigned char *bytes, size_t len_bytes, bool *ret_valid)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t need, at;

	*ret_valid = false;
	if (bytes[0] >= 0xc2 && bytes[0] <= 0xdf) {
		need = 2;
	} else if (bytes[0] >= 0xe0 && bytes[0] <= 0xef) {
		need = 3;
		if (bytes[0] == 0xe0)
			low = 0xa0;
		if (bytes[0] == 0xed)
			high = 0x9f;
	} else if (bytes[0] >= 0xf0 && bytes[0] <= 0xf4) {
		need = 4;
		if (bytes[0] == 0xf0)
			low = 0x90;
		if (bytes[0] == 0xf4)
			high = 0x8f;
	} else {
		return 1;
	}
	for (at = 1; at < need; at++) {
		if (at >= len_bytes || bytes[at] < low || bytes[at] > high)
			return at;
		low = 0x80;
		high = 0xbf;
	}
	*ret_valid = true;
	return need;
}

void utf8_append_lossy(GString *out, const void *data, size_t len_bytes)
{
	const unsigned char *bytes = data;
	size_t at = 0;

	while (at < len_bytes) {
		size_t run = ascii_run(bytes + at, len_bytes - at);
		bool valid;

		if (run > 0) {
			g_string_append_len(out, (const char *)bytes + at, (gssize)run);
			at += run;
			continue;
		}
		run = sequence_length(bytes + at, len_bytes - at, &valid);
		if (valid)
			g_string_append_len(out, (const char *)bytes + at, (gssize)run);
		else
			g_string_append(out, REPLACEMENT);
		at += run;
	}
}

void utf8_append_latin1(GString *out, const void *data, size_t len_bytes)
{
	const unsigned char *bytes = data;

	for (size_t at = 0; at < len_bytes; at++)
		utf8_append_char(out, bytes[at]);
}

void utf8_append_char(GString *out, unsigned int code_point)
{
	if (code_point >= 0xd800 && code_point <= 0xdfff)
		g_string_append(out, REPLACEMENT);
	else if (code_point == 0)
		g_string_append_c(out, '\0');
	else
		g_string_append_unichar(out, code_point);
}

bool utf8_is_valid(const void *data, size_t len_bytes)
{
	const unsigned char *bytes = data;
	size_t at = 0;

	while (at < len_bytes) {
		bool valid = true;

		at += ascii_run(bytes + at, len_bytes - at);
		if (at < len_bytes)
			at += sequence_length(bytes + at, len_bytes - at, &valid);
		if (!valid)
			return false;
	}
	return true;
}

size_t utf8_length_utf16(const void *data, size_t len_bytes)
{
	const unsigned char *bytes = data;
	size_t units = 0;

	/* Every byte that is no continuation begins a character; those of four bytes are pairs. */
	for (size_t at = 0; at < len_bytes; at++)
		units += (bytes[at] & 0xc0) != 0x80 ? 1u + (bytes[at] >= 0xf0) : 0u;
	return units;
}
