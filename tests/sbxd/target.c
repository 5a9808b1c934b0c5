#include "tests/sbxd/target.h"
#include "tests/sbxd/utf8.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool is_dot(const char *segment)
{
	return strcmp(segment, ".") == 0 || strcasecmp(segment, "%2e") == 0;
}

static bool is_dot_dot(const char *segment)
{
	return strcmp(segment, "..") == 0 || strcasecmp(segment, "%2e.") == 0 ||
	       strcasecmp(segment, ".%2e") == 0 || strcasecmp(segment, "%2e%2e") == 0;
}

/* Where the path begins behind scheme and host; NULL when the host is missing. */
static const char *skip_host(const char *target)
{
	const char *at = target;

	if (g_ascii_strncasecmp(at, "http://", 7) == 0)
		at += 7;
	else if (g_ascii_strncasecmp(at, "https://", 8) == 0)
		at += 8;
	else if ((at[0] == '/' || at[0] == '\\') && (at[1] == '/' || at[1] == '\\'))
		at += 2;
	else
		return target;
	while (*at == '/' || *at == '\\')
		at++;
	if (!*at || *at == '?' || *at == '#')
		return NULL;
	return at + strcspn(at, "/\\?#");
}

char *target_path(const char *target)
{
	const char *from = skip_host(target);
	g_autofree char *text = NULL;
	g_auto(GStrv) segments = NULL;
	g_autoptr(GPtrArray) kept = g_ptr_array_new();
	GString *path;

	if (!from)
		return NULL;
	text = g_strndup(from, strcspn(from, "?#"));
	g_strdelimit(text, "\\", '/');
	segments = g_strsplit(*text == '/' ? text + 1 : text, "/", -1);
	for (char **at = segments; *at; at++) {
		bool last = !at[1];

		if (is_dot_dot(*at) && kept->len > 0)
			g_ptr_array_remove_index(kept, kept->len - 1);
		if (!is_dot(*at) && !is_dot_dot(*at))
			g_ptr_array_add(kept, *at);
		else if (last)
			g_ptr_array_add(kept, (char *)"");
	}
	path = g_string_new(NULL);
	for (guint i = 0; i < kept->len; i++)
		g_string_append_printf(path, "/%s", (const char *)kept->pdata[i]);
	if (path->len == 0)
		g_string_append_c(path, '/');
	return g_string_free(path, FALSE);
}

char **target_segments(const char *path)
{
	g_auto(GStrv) parts = g_strsplit(path, "/", -1);
	GPtrArray *kept = g_ptr_array_new();

	for (char **at = parts; *at; at++) {
		if (**at)
			g_ptr_array_add(kept, g_strdup(*at));
	}
	g_ptr_array_add(kept, NULL);
	return (char **)g_ptr_array_free(kept, FALSE);
}

/* One name or value of a form. */
static GString *decode(const char *text, size_t len)
{
	GString *bytes = g_string_sized_new(len);
	GString *out = g_string_sized_new(len);

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '%' && i + 2 < len && g_ascii_isxdigit(text[i + 1]) &&
		    g_ascii_isxdigit(text[i + 2])) {
			g_string_append_c(bytes, (char)(g_ascii_xdigit_value(text[i + 1]) << 4 |
							g_ascii_xdigit_value(text[i + 2])));
			i += 2;
		} else {
			g_string_append_c(bytes, (char)(text[i] == '+' ? ' ' : text[i]));
		}
	}
	utf8_append_lossy(out, bytes->str, bytes->len);
	g_string_free(bytes, TRUE);
	return out;
}

GString *target_parameter(const char *target, const char *name)
{
	const char *at = target + strcspn(target, "?#");
	const char *end;

	if (*at != '?')
		return NULL;
	at++;
	end = at + strcspn(at, "#");
	while (at < end) {
		size_t len = MIN(strcspn(at, "&"), (size_t)(end - at));
		const char *equals = memchr(at, '=', len);
		size_t name_len = equals ? (size_t)(equals - at) : len;
		GString *found = decode(at, name_len);
		bool hit = strcmp(found->str, name) == 0;

		g_string_free(found, TRUE);
		if (hit && equals)
			return decode(equals + 1, len - name_len - 1);
		if (hit)
			return g_string_new(NULL);
		at += len;
		if (at < end)
			at++;
	}
	return NULL;
}
