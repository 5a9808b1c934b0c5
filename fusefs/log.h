/*
 * log - the few lines that the daemon says of itself: to stderr in the foreground, to syslog in the
 * background. What went wrong with files is told in the mount's `errors`, not here.
 *
 * Texts pass through the token's stripper when one is set, so a server that echoes the token can't
 * bring it into a log at any level. Thread safe.
 */
#ifndef SBX_FUSEFS_LOG_H
#define SBX_FUSEFS_LOG_H

#include <stdbool.h>

#include "fusefs/options.h"

struct sbx_token;

/* @token may be NULL and must live until log_close(). */
void log_open(enum options_log_level level, bool to_stderr, struct sbx_token *token);
void log_close(void);

void log_line(enum options_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
