#include <errno.h>
#include <string.h>

#include "client/apply_impl.h"
#include "client/record.h"

#define REPLY_BYTES_MAX ((size_t)64 << 20)
#define TEXT_BYTES_MAX	400

static void result_clear(gpointer data)
{
	struct sbx_apply_result *result = data;

	g_free(result->text);
}

static void path_free(gpointer data)
{
	struct sbx_apply_path *path = data;

	g_free(path->path);
	g_free(path->link);
	g_free(path);
}

/* At most TEXT_BYTES_MAX of it, what is not printable as \\xNN. */
static char *printable(const char *text)
{
	GString *shown = g_string_new(NULL);

	for (; *text != '\0' && shown->len < TEXT_BYTES_MAX; text++) {
		if (*text >= 0x20 && *text <= 0x7e)
			g_string_append_c(shown, *text);
		else
			g_string_append_printf(shown, "\\x%02x", (uint8_t)*text);
	}
	return g_string_free(shown, FALSE);
}

static int take_result(struct sbx_reader *reader, struct sbx_apply_reply *reply)
{
	struct sbx_apply_result result = { .error = 0 };
	char *flags;
	char *why;
	int error = sbx_reader_string(reader, 'r', &flags);

	if (error == 0)
		error = sbx_reader_string(reader, 0, &why);
	if (error < 0)
		return error;
	result.in_place = strchr(flags + 1, 'i') != NULL;
	result.set_aside = strchr(flags + 1, 'h') != NULL;
	if (why[0] != '\0') {
		result.error = sbx_program_errno(why);
		result.text = printable(why);
	}
	g_array_append_val(reply->results, result);
	return 0;
}

static int take_attributes(struct sbx_reader *reader, struct sbx_apply_reply *reply)
{
	struct sbx_record record;
	struct sbx_apply_path *path;
	int error = sbx_reader_record(reader, &record);

	if (error < 0)
		return error;
	path = g_hash_table_lookup(reply->by_path, record.path);
	if (path == NULL)
		return -EBADMSG;
	path->present = true;
	path->attr = record.attr;
	g_free(path->link);
	path->link = g_strdup(record.link);
	return 0;
}

static int take_records(GByteArray *section, struct sbx_apply_reply *reply)
{
	struct sbx_reader reader = { (char *)section->data, (char *)section->data + section->len };
	int error = 0;

	while (error == 0) {
		char *text;

		switch (sbx_reader_peek(&reader)) {
		case 'o':
			error = sbx_reader_string(&reader, 'o', &text);
			reply->not_kept = true;
			break;
		case 'r':
			error = take_result(&reader, reply);
			break;
		case 'a':
		case 'b':
			error = take_attributes(&reader, reply);
			break;
		case 'e':
			error = sbx_reader_string(&reader, 'e', &text);
			if (error == 0 && (text[1] != '\0' || reader.at != reader.end))
				error = -EBADMSG;
			return error;
		default:
			error = -EBADMSG;
		}
	}
	return error;
}

/*
 * Which saves do the attributes prove? They were looked at when all operations were over. A time of
 * modification that was asked for, or one that is not after the moment at which the last content
 * was whole (which only the last save's is compared with), tells that nobody has written since.
 */
static void prove_saves(const struct sbx_apply_request *req, const struct sbx_apply_path *mark,
			struct sbx_apply_reply *reply)
{
	for (guint i = 0; i < req->saves->len; i++) {
		const struct apply_save *save = &g_array_index(req->saves, struct apply_save, i);
		struct sbx_apply_result *result =
			&g_array_index(reply->results, struct sbx_apply_result, save->index);
		const struct sbx_apply_path *path =
			sbx_apply_reply_path(reply, req->paths->pdata[save->path]);

		if (result->error || result->in_place || !path || !path->present ||
		    !path->attr.has_ns || path->attr.size != save->size_bytes)
			continue;
		if (save->mtime_ns != SBX_TIME_OMIT && save->mtime_ns != SBX_TIME_NOW)
			result->proven = path->attr.mtime_ns == save->mtime_ns;
		else
			result->proven = i == req->saves->len - 1 && mark->present &&
					 path->attr.mtime_ns <= mark->attr.mtime_ns;
	}
}

static struct sbx_apply_reply *reply_new(const struct sbx_apply_request *req)
{
	struct sbx_apply_reply *reply = g_new0(struct sbx_apply_reply, 1);

	reply->results = g_array_new(FALSE, FALSE, sizeof(struct sbx_apply_result));
	g_array_set_clear_func(reply->results, result_clear);
	reply->paths = g_ptr_array_new_with_free_func(path_free);
	reply->by_path = g_hash_table_new(g_str_hash, g_str_equal);
	for (guint i = 0; i < req->paths->len; i++) {
		struct sbx_apply_path *path;

		if (!req->reported->data[i])
			continue;
		path = g_new0(struct sbx_apply_path, 1);
		path->path = g_strdup(req->paths->pdata[i]);
		g_ptr_array_add(reply->paths, path);
		g_hash_table_insert(reply->by_path, path->path, path);
	}
	return reply;
}

/* A second section marks the answer of an earlier run, or is a survey. One that is damaged is none:
 * what was done is known from the first. */
static void take_second(const struct sbx_apply_request *req, GByteArray *section,
			struct sbx_apply_reply *reply)
{
	reply->repeated = section->len == 1;
	if (!reply->repeated && req->survey != NULL)
		(void)sbx_scan_decode_section(req->survey, section, &reply->survey);
}

int sbx_apply_decode(const struct sbx_apply_request *req, const char *out, size_t out_len,
		     struct sbx_apply_reply **ret_reply)
{
	g_autofree char *mark_path = g_strconcat(SBX_OPS_DIR "/", req->opid, NULL);
	struct sbx_apply_path mark = { .present = false };
	struct sbx_apply_reply *reply;
	struct sbx_program_answer answer;
	int error = sbx_program_unframe(out, out_len, req->program.nonce, REPLY_BYTES_MAX, &answer);

	if (error < 0)
		return error;
	reply = reply_new(req);
	g_hash_table_insert(reply->by_path, mark_path, &mark);
	error = answer.sections <= 2 ? take_records(answer.section[0], reply) : -EBADMSG;
	if (error == 0 && answer.sections == 2)
		take_second(req, answer.section[1], reply);
	if (error == 0 && reply->results->len != req->count)
		error = -EBADMSG;
	g_hash_table_remove(reply->by_path, mark_path);
	g_free(mark.link);
	if (error == 0)
		prove_saves(req, &mark, reply);
	sbx_program_answer_clear(&answer);
	if (error < 0) {
		sbx_apply_reply_free(reply);
		return error;
	}
	*ret_reply = reply;
	return 0;
}

void sbx_apply_reply_free(struct sbx_apply_reply *reply)
{
	if (reply == NULL)
		return;
	sbx_scan_reply_free(reply->survey);
	g_hash_table_unref(reply->by_path);
	g_ptr_array_unref(reply->paths);
	g_array_unref(reply->results);
	g_free(reply);
}

const struct sbx_apply_path *sbx_apply_reply_path(const struct sbx_apply_reply *reply,
						  const char *path)
{
	return g_hash_table_lookup(reply->by_path, sbx_record_path(path));
}
