#include "tests/sbxd/reply.h"
#include "tests/sbxd/errtext.h"
#include "tests/sbxd/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JSON_TYPE  "application/json"
#define BYTES_TYPE "application/octet-stream"

void reply_init(struct reply *reply)
{
	*reply = (struct reply){ .fd = -1 };
}

void reply_clear(struct reply *reply)
{
	if (reply->text)
		g_string_free(reply->text, TRUE);
	if (reply->headers)
		g_string_free(reply->headers, TRUE);
	if (reply->fd >= 0)
		close(reply->fd);
	reply_init(reply);
}

static void set_text(struct reply *reply, int status, const char *type, GString *text)
{
	reply_clear(reply);
	reply->status = status;
	reply->type = type;
	reply->text = text;
}

void reply_json(struct reply *reply, GString *json)
{
	set_text(reply, 200, JSON_TYPE, json);
}

void reply_bytes(struct reply *reply, GString *bytes)
{
	set_text(reply, 200, BYTES_TYPE, bytes);
}

void reply_file(struct reply *reply, int fd, uint64_t offset, uint64_t len_bytes)
{
	set_text(reply, 200, BYTES_TYPE, NULL);
	reply->fd = fd;
	reply->fd_offset = offset;
	reply->fd_bytes = len_bytes;
}

void reply_ok(struct reply *reply)
{
	reply_json(reply, g_string_new("{\"ok\":true}"));
}

void reply_error(struct reply *reply, int status, const char *code, const char *message)
{
	GString *json = g_string_new("{");

	json_append_member(json, "code", code);
	json_append_member(json, "message", message);
	g_string_append(json, strcmp(code, "internal_error") == 0 ? ",\"retryable\":null}"
								  : ",\"retryable\":false}");
	set_text(reply, status, JSON_TYPE, json);
}

void reply_errno(struct reply *reply, int err, const char *call, const char *path)
{
	g_autofree char *message = errtext_message(err, call, path);

	reply_error(reply, 500, "internal_error", message);
}

void reply_header(struct reply *reply, const char *name, const char *value)
{
	if (!reply->headers)
		reply->headers = g_string_new(NULL);
	g_string_append_printf(reply->headers, "%s: %s\r\n", name, value);
}

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} reasons[] = {
		{ 200, "OK" },
		{ 206, "Partial Content" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 408, "Request Timeout" },
		{ 417, "Expectation Failed" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
	};

	for (size_t i = 0; i < G_N_ELEMENTS(reasons); i++) {
		if (reasons[i].status == status)
			return reasons[i].text;
	}
	return "unknown";
}

static void append_date(GString *head)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	g_string_append_printf(head, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n",
			       days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon,
			       tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static void append_connection(GString *head, bool keep_alive)
{
	g_string_append(head, keep_alive ? "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n"
					 : "Connection: close\r\n");
}

static uint64_t body_bytes(const struct reply *reply)
{
	return reply->fd >= 0 ? reply->fd_bytes : reply->text ? reply->text->len : 0;
}

/* Send a stretch of the body. */
static int send_stretch(const struct reply *reply, struct conn *conn, uint64_t at,
			uint64_t len_bytes)
{
	if (reply->fd >= 0)
		return conn_send_file(conn, reply->fd, reply->fd_offset + at, len_bytes);
	return conn_write(conn, reply->text->str + at, len_bytes, false);
}

static int send_damaged(const struct reply *reply, struct conn *conn,
			const struct reply_damage *damage)
{
	uint64_t whole = body_bytes(reply), at = 0;
	uint64_t end = damage->cut_bytes >= 0 ? MIN(whole, (uint64_t)damage->cut_bytes) : whole;
	int err = 0;

	if (damage->trickle_per_s <= 0) {
		err = send_stretch(reply, conn, 0, end);
	} else {
		/* Twenty steps a second, at least one byte each. */
		uint64_t step = MAX(1, (uint64_t)damage->trickle_per_s / 20);
		int64_t pause_ms = MAX(1, (int64_t)(step * 1000 / (uint64_t)damage->trickle_per_s));

		for (; !err && at < end; at += step) {
			err = send_stretch(reply, conn, at, MIN(step, end - at));
			if (!err)
				conn_sleep(conn, pause_ms);
		}
	}
	return err ? err : damage->cut_bytes >= 0 ? -ECONNABORTED : 0;
}

int reply_send(const struct reply *reply, struct conn *conn, bool keep_alive, bool head_only,
	       const struct reply_damage *damage, const struct reply_watch *watch)
{
	uint64_t len_bytes = body_bytes(reply);
	GString *head = g_string_sized_new(256);
	int err;

	g_string_append_printf(
		head, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %" PRIu64 "\r\n",
		reply->status, reason(reply->status), reply->type, len_bytes);
	if (reply->headers)
		g_string_append_len(head, reply->headers->str, (gssize)reply->headers->len);
	append_date(head);
	append_connection(head, keep_alive);
	g_string_append(head, "\r\n");
	if (head_only || len_bytes == 0) {
		watch->ends(watch->arg, head->len);
		err = conn_write(conn, head->str, head->len, false);
	} else if (damage->cut_bytes >= 0 || damage->trickle_per_s > 0) {
		err = conn_write(conn, head->str, head->len, false);
		if (!err)
			err = send_damaged(reply, conn, damage);
	} else if (reply->fd >= 0) {
		err = conn_write(conn, head->str, head->len, true);
		if (!err)
			err = send_stretch(reply, conn, 0, len_bytes - 1);
		if (!err) {
			watch->ends(watch->arg, 1);
			err = send_stretch(reply, conn, len_bytes - 1, 1);
		}
	} else {
		watch->ends(watch->arg, head->len + len_bytes);
		err = conn_write2(conn, head->str, head->len, reply->text->str, len_bytes);
	}
	g_string_free(head, TRUE);
	return err;
}

int reply_send_bare(struct conn *conn, int status, bool chunked, bool keep_alive)
{
	GString *head = g_string_new(NULL);
	int err;

	g_string_append_printf(head, "HTTP/1.1 %d %s\r\n", status, reason(status));
	if (!chunked) {
		g_string_append(head, "Connection: close\r\n\r\n");
	} else {
		append_date(head);
		append_connection(head, keep_alive);
		g_string_append(head, "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
	}
	err = conn_write(conn, head->str, head->len, false);
	g_string_free(head, TRUE);
	return err;
}
