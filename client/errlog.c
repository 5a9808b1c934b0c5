#include "client/errlog.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "client/call.h"
#include "client/errmap.h"

struct errlog_entry {
	int64_t at_ms; /* wall clock, of the last occurrence */
	unsigned int times;
	char *text; /* all but time and count */
};

struct sbx_errlog {
	pthread_mutex_t lock;
	struct errlog_entry ring[SBX_ERRLOG_MAX];
	size_t head; /* the oldest */
	size_t len;
};

struct sbx_errlog *sbx_errlog_new(void)
{
	struct sbx_errlog *log = g_new0(struct sbx_errlog, 1);

	pthread_mutex_init(&log->lock, NULL);
	return log;
}

void sbx_errlog_free(struct sbx_errlog *log)
{
	if (!log)
		return;
	for (size_t i = 0; i < SBX_ERRLOG_MAX; i++)
		g_free(log->ring[i].text);
	pthread_mutex_destroy(&log->lock);
	g_free(log);
}

bool sbx_errno_is_ordinary(int err)
{
	switch (-err) {
	case ENOENT:
	case EEXIST:
	case ENOTEMPTY:
	case ENOTDIR:
	case EISDIR:
	case EINTR:
		return true;
	default:
		return false;
	}
}

static struct errlog_entry *errlog_at(struct sbx_errlog *log, size_t i)
{
	return &log->ring[(log->head + i) % SBX_ERRLOG_MAX];
}

/* An entry of that text is taken out; returns how often it was counted, 0: there is none. */
static unsigned int errlog_take_locked(struct sbx_errlog *log, const char *text)
{
	unsigned int times;
	size_t i = 0;

	while (i < log->len && !g_str_equal(errlog_at(log, i)->text, text))
		i++;
	if (i == log->len)
		return 0;
	times = errlog_at(log, i)->times;
	g_free(errlog_at(log, i)->text);
	for (; i + 1 < log->len; i++)
		*errlog_at(log, i) = *errlog_at(log, i + 1);
	errlog_at(log, i)->text = NULL;
	log->len--;
	return times;
}

/* Takes @text over. Equal ones are one, where the last of them came. */
static void errlog_add(struct sbx_errlog *log, char *text)
{
	int64_t now_ms = g_get_real_time() / 1000;
	struct errlog_entry *entry;
	unsigned int times;

	pthread_mutex_lock(&log->lock);
	times = errlog_take_locked(log, text) + 1;
	if (log->len == SBX_ERRLOG_MAX) {
		g_free(log->ring[log->head].text);
		log->ring[log->head].text = NULL;
		log->head = (log->head + 1) % SBX_ERRLOG_MAX;
		log->len--;
	}
	entry = &log->ring[(log->head + log->len++) % SBX_ERRLOG_MAX];
	entry->at_ms = now_ms;
	entry->times = times;
	entry->text = text;
	pthread_mutex_unlock(&log->lock);
}

/* Appends " @key=@text" with what could break a line or a terminal escaped. */
static void errlog_append(GString *line, const char *key, const char *text)
{
	char safe[SBX_ERRLOG_LINE_MAX];

	sbx_text_escape(safe, sizeof(safe), text, strlen(text));
	g_string_append_printf(line, "%s%s", key, safe);
}

static GString *errlog_begin(const char *op, const char *path, int err)
{
	GString *line = g_string_new(NULL);
	const char *name = sbx_errno_name(-err);

	errlog_append(line, "", op);
	errlog_append(line, " ", path && path[0] ? path : "-");
	if (name)
		g_string_append_printf(line, " %s", name);
	else
		g_string_append_printf(line, " %d", -err);
	return line;
}

static void errlog_end(struct sbx_errlog *log, GString *line)
{
	if (line->len > SBX_ERRLOG_LINE_MAX - 48) {
		gsize len = SBX_ERRLOG_LINE_MAX - 48; /* room for time and count */

		while (len && (line->str[len] & 0xc0) == 0x80)
			len--;
		g_string_truncate(line, len);
	}
	errlog_add(log, g_string_free(line, FALSE));
}

void sbx_errlog_failure(struct sbx_errlog *log, const char *op, const char *path, int err,
			const struct sbx_failure *failure)
{
	GString *line = errlog_begin(op, path, err);

	if (failure && failure->http_status)
		g_string_append_printf(line, " http=%d", failure->http_status);
	if (failure && failure->code[0])
		errlog_append(line, " code=", failure->code);
	/* Already stripped of the token and escaped by the one who filled it in. */
	if (failure && failure->message[0])
		g_string_append_printf(line, " message=\"%s\"", failure->message);
	errlog_end(log, line);
}

void sbx_errlog_note(struct sbx_errlog *log, const char *op, const char *path, int err,
		     const char *text)
{
	GString *line = errlog_begin(op, path, err);

	errlog_append(line, " ", text);
	errlog_end(log, line);
}

char *sbx_errlog_render(struct sbx_errlog *log, size_t *ret_len_bytes)
{
	GString *text = g_string_new(NULL);

	pthread_mutex_lock(&log->lock);
	for (size_t i = 0; i < log->len; i++) {
		const struct errlog_entry *entry = &log->ring[(log->head + i) % SBX_ERRLOG_MAX];
		g_autoptr(GDateTime) at = g_date_time_new_from_unix_utc(entry->at_ms / 1000);
		g_autofree char *stamp = g_date_time_format(at, "%Y-%m-%dT%H:%M:%SZ");

		g_string_append_printf(text, "%s %s", stamp, entry->text);
		if (entry->times > 1)
			g_string_append_printf(text, " times=%u", entry->times);
		g_string_append_c(text, '\n');
	}
	pthread_mutex_unlock(&log->lock);
	if (ret_len_bytes)
		*ret_len_bytes = text->len;
	return g_string_free(text, FALSE);
}
