#include "fusefs/log.h"

#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

#include "client/token.h"

static struct {
	enum options_log_level level;
	bool to_stderr;
	struct sbx_token *token;
} log_state = { .level = LOG_LEVEL_WARNING, .to_stderr = true };

void log_open(enum options_log_level level, bool to_stderr, struct sbx_token *token)
{
	log_state.level = level;
	log_state.to_stderr = to_stderr;
	log_state.token = token;
	if (!to_stderr)
		openlog("sbxfs", LOG_PID, LOG_DAEMON);
}

void log_close(void)
{
	if (!log_state.to_stderr)
		closelog();
	log_state.to_stderr = true;
	log_state.token = NULL;
}

void log_line(enum options_log_level level, const char *format, ...)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	g_autofree char *text = NULL;
	va_list args;

	if (level > log_state.level)
		return;
	va_start(args, format);
	text = g_strdup_vprintf(format, args);
	va_end(args);
	if (log_state.token) {
		char *stripped = sbx_token_strip(log_state.token, text);

		g_free(text);
		text = stripped;
	}
	if (!text)
		return;
	if (log_state.to_stderr)
		fprintf(stderr, "sbxfs: %s\n", text);
	else
		syslog(priorities[level], "%s", text);
}
