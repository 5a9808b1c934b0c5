#include "client/retry.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <glib.h>

#define FIRST_WAIT_MS 250
#define MAX_WAIT_MS   (3600 * INT64_C(1000))

bool sbx_retry_maybe_done(const struct sbx_attempt *attempt)
{
	return attempt->connected && (attempt->body_whole || attempt->reply_started);
}

bool sbx_retry_stale(const struct sbx_attempt *attempt, enum sbx_http_repeat repeat)
{
	if (!attempt->reused_connection || attempt->reply_started)
		return false;
	return repeat == SBX_HTTP_IDEMPOTENT || !sbx_retry_maybe_done(attempt);
}

/* Seconds, or an HTTP date; -1: neither. */
static int64_t parse_retry_after(const char *text, int64_t now)
{
	struct tm date = { 0 };
	const char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (g_ascii_isdigit(*text)) {
		/* A number too big for the type is as good as the greatest. */
		int64_t seconds = g_ascii_strtoll(text, NULL, 10);

		return MIN(seconds, MAX_WAIT_MS / 1000) * 1000;
	}
	end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date);
	if (end == NULL)
		return -1;
	return CLAMP((int64_t)timegm(&date) - now, 0, MAX_WAIT_MS / 1000) * 1000;
}

int64_t sbx_retry_wait_ms(int status, const char *retry_after, int64_t now,
			  enum sbx_http_repeat repeat, unsigned int tries)
{
	int64_t wait_ms = retry_after != NULL ? parse_retry_after(retry_after, now) : -1;
	/* Never at once, so that "Retry-After: 0" can't become a busy loop. */
	int64_t least_ms = (int64_t)FIRST_WAIT_MS << MIN(tries - 1, 5U);

	if (status != 429 && status != 503)
		return -1;
	if (status == 503 && wait_ms < 0 && repeat != SBX_HTTP_IDEMPOTENT)
		return -1;
	return MAX(wait_ms, least_ms);
}
