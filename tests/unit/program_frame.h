/*
 * program_frame.h - frames as the sandbox programs print them, made by hand for the tests.
 */
#ifndef SBX_TESTS_UNIT_PROGRAM_FRAME_H
#define SBX_TESTS_UNIT_PROGRAM_FRAME_H

#include <glib.h>
#include <stdarg.h>
#include <stddef.h>

/* A payload with its NULs. */
struct payload {
	const char *bytes;
	size_t len;
};

#define PAYLOAD(text) ((struct payload){ (text), sizeof(text) - 1 })

static inline GString *frame_of(const char *nonce, const struct payload *sections, unsigned count)
{
	GString *frame = g_string_new("SBXFS1 ");
	GString *body = g_string_new(NULL);

	g_string_append(frame, nonce);
	for (unsigned i = 0; i < count; i++) {
		char *text = g_base64_encode((const guchar *)sections[i].bytes, sections[i].len);

		g_string_append_printf(frame, " - %zu", strlen(text));
		g_string_append_printf(body, "%s\n", text);
		g_free(text);
	}
	g_string_append_printf(frame, "\n%sEND %s\n", body->str, nonce);
	g_string_free(body, TRUE);
	return frame;
}

#endif
