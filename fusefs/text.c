#include "fusefs/text.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

int64_t text_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

char *text_time(int64_t ns)
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[32];

	if (!gmtime_r(&seconds, &tm) ||
	    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return g_strdup("?");
	return g_strdup(text);
}

const char *text_errno(int error)
{
	const char *name = error ? strerrorname_np(-error) : "ok";

	return name ? name : "error";
}

void text_line(GString *out, const char *key, const char *value)
{
	size_t from;

	g_string_append_printf(out, "%s:", key);
	if (value && *value) {
		g_string_append_c(out, ' ');
		from = out->len;
		g_string_append(out, value);
		for (; from < out->len; from++)
			if ((unsigned char)out->str[from] < ' ')
				out->str[from] = ' ';
	}
	g_string_append_c(out, '\n');
}

void text_linef(GString *out, const char *key, const char *format, ...)
{
	g_autofree char *value = NULL;
	va_list args;

	va_start(args, format);
	value = g_strdup_vprintf(format, args);
	va_end(args);
	text_line(out, key, value);
}
