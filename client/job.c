#include "client/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/errmap.h"
#include "client/json.h"
#include "client/jobs.h"
#include "client/name.h"

/* A command travels in pieces, since one argument of an exec is bounded. */
#define PIECE_BYTES    (30 * 1024)
#define LOOK_BYTES_MAX (64u << 20)

bool sbx_job_id_is_valid(const char *id)
{
	return sbx_name_valid(id) && strcmp(id, "new") != 0 && strcmp(id, "latest") != 0;
}

/* Requests ------------------------------------------------------------------------------------ */

static bool variable_is_valid(const char *text)
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || g_ascii_isdigit(text[0]))
		return false;
	for (const char *c = text; c < equals; c++)
		if (!g_ascii_isalnum(*c) && *c != '_')
			return false;
	return true;
}

/* What meta.json holds beside what only the sandbox knows: `"key":value,...` without braces. */
static char *job_meta(const struct sbx_job_spec *spec, const char *session)
{
	struct sbx_json *object = sbx_json_new_object();
	char *text, *inner;

	if (spec->process_name)
		(void)sbx_json_set_string(object, "processName", spec->process_name);
	/* A command that is not UTF-8 runs all the same; JSON can't show it. */
	if (spec->command_len < 64 * 1024)
		(void)sbx_json_set_string(object, "command", spec->command);
	if (spec->cwd)
		(void)sbx_json_set_string(object, "cwd", spec->cwd);
	if (spec->timeout_s)
		(void)sbx_json_set_int(object, "timeoutSeconds", spec->timeout_s);
	(void)sbx_json_set_string(object, "session", session);
	(void)sbx_json_set_int(object, "version", 1);
	text = sbx_json_print(object, false);
	sbx_json_free(object);
	if (!text)
		return NULL;
	inner = g_strndup(text + 1, strlen(text) - 2);
	free(text);
	return inner;
}

int sbx_job_run_request(const struct sbx_job_spec *spec, const char *op, const char *session,
			const char *spare_root, bool has_setsid, const struct sbx_tools *tools,
			const struct sbx_program_limits *limits,
			struct sbx_program_request *ret_request)
{
	g_autofree char *meta = job_meta(spec, session);
	unsigned int vars = 0;
	int r;

	r = sbx_program_request_init(ret_request, SBX_PROGRAM_JOBRUN, tools, limits);
	if (r < 0)
		return r;
	if (!meta || memchr(spec->command, '\0', spec->command_len))
		return -EINVAL;
	for (; spec->env && spec->env[vars]; vars++)
		if (!variable_is_valid(spec->env[vars]))
			return -EINVAL;
	if (has_setsid)
		g_ptr_array_insert(ret_request->argv, 0, g_strdup("setsid"));
	r = sbx_program_request_add(ret_request, spec->id);
	if (r == 0)
		r = sbx_program_request_add(ret_request, op);
	if (r == 0)
		r = sbx_program_request_addf(ret_request, "%" G_GINT64_FORMAT, spec->timeout_s);
	if (r == 0)
		r = sbx_program_request_add(ret_request, spare_root);
	if (r == 0)
		r = spec->cwd && spec->cwd[0]
			    ? sbx_program_request_take(
				      ret_request, sbx_program_spell(spec->cwd, strlen(spec->cwd)))
			    : sbx_program_request_add(ret_request, ".");
	if (r == 0)
		r = sbx_program_request_take(ret_request, sbx_program_spell(meta, strlen(meta)));
	if (r == 0)
		r = sbx_program_request_addf(ret_request, "%u", vars);
	for (unsigned int i = 0; r == 0 && i < vars; i++)
		r = sbx_program_request_take(ret_request,
					     sbx_program_spell(spec->env[i], strlen(spec->env[i])));
	for (size_t at = 0; r == 0 && at < spec->command_len; at += PIECE_BYTES)
		r = sbx_program_request_take(
			ret_request, sbx_program_spell(spec->command + at,
						       MIN(PIECE_BYTES, spec->command_len - at)));
	return r;
}

static int look_begin(const char *mode, const struct sbx_tools *tools,
		      const struct sbx_program_limits *limits,
		      struct sbx_program_request *ret_request)
{
	int r = sbx_program_request_init(ret_request, SBX_PROGRAM_JOBLOOK, tools, limits);

	return r < 0 ? r : sbx_program_request_add(ret_request, mode);
}

static int look_add_roots(struct sbx_program_request *request, const char *const *roots)
{
	int r = 0;

	for (; r == 0 && *roots; roots++)
		r = sbx_program_request_add(request, *roots);
	return r;
}

int sbx_job_list_request(const char *const *roots, const struct sbx_tools *tools,
			 const struct sbx_program_limits *limits,
			 struct sbx_program_request *ret_request)
{
	int r = look_begin("list", tools, limits, ret_request);

	return r < 0 ? r : look_add_roots(ret_request, roots);
}

int sbx_job_started_request(const char *id, const char *op, unsigned int looks,
			    const char *const *roots, const struct sbx_tools *tools,
			    const struct sbx_program_limits *limits,
			    struct sbx_program_request *ret_request)
{
	int r = look_begin("start", tools, limits, ret_request);

	if (r == 0)
		r = sbx_program_request_addf(ret_request, "%u", looks);
	if (r == 0)
		r = sbx_program_request_add(ret_request, id);
	if (r == 0)
		r = sbx_program_request_add(ret_request, op);
	return r < 0 ? r : look_add_roots(ret_request, roots);
}

static bool words_are_valid(const char *words)
{
	if (!strcmp(words, "cancel"))
		return true;
	if (!g_str_has_prefix(words, "signal ") || !words[7])
		return false;
	for (const char *c = words + 7; *c; c++)
		if (!g_ascii_isupper(*c) && !g_ascii_isdigit(*c))
			return false;
	return true;
}

int sbx_job_ask_request(const char *dir, const char *ask_id, const char *words,
			const struct sbx_tools *tools, const struct sbx_program_limits *limits,
			struct sbx_program_request *ret_request)
{
	int r = look_begin(words ? "ask" : "remove", tools, limits, ret_request);

	if (r == 0 && words && !words_are_valid(words))
		r = -EINVAL;
	if (r == 0)
		r = sbx_program_request_add(ret_request, dir);
	if (r == 0 && words)
		r = sbx_program_request_add(ret_request, ask_id);
	if (r == 0 && words)
		r = sbx_program_request_add(ret_request, words);
	return r;
}

/* Replies ------------------------------------------------------------------------------------- */

static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
	return g_ascii_string_to_signed(text, 10, min, max, ret_value, NULL);
}

int sbx_job_end_parse(const char *text, struct sbx_job_end *ret_end)
{
	g_auto(GStrv) words = g_strsplit(text, " ", 6);
	struct sbx_job_end end = { .known = true };
	int64_t code, bytes, ended_s, left;

	if (g_strv_length(words) != 5 || strlen(words[0]) >= sizeof(end.state) ||
	    !parse_int(words[1], 0, 255, &code) || !parse_int(words[2], 0, INT64_MAX, &bytes) ||
	    !parse_int(words[3], 0, INT64_MAX / 2000, &ended_s) ||
	    !parse_int(words[4], 0, 1 << 30, &left))
		return -EBADMSG;
	if (strcmp(words[0], "exited") && strcmp(words[0], "cancelled") &&
	    strcmp(words[0], "timedout"))
		return -EBADMSG;
	g_strlcpy(end.state, words[0], sizeof(end.state));
	end.code = (int)code;
	end.log_bytes = (uint64_t)bytes;
	end.ended_s = ended_s;
	end.left = (unsigned int)left;
	*ret_end = end;
	return 0;
}

static void record_free(void *arg)
{
	struct sbx_job_record *record = arg;

	g_free(record->root);
	g_free(record->id);
	g_free(record->op);
	g_free(record->meta);
	g_free(record);
}

/* NUL-terminated fields, one after the other. */
struct fields {
	const char *at;
	const char *end;
};

static const char *fields_next(struct fields *fields)
{
	const char *field = fields->at;
	const char *nul = fields->at < fields->end
				  ? memchr(field, '\0', (size_t)(fields->end - field))
				  : NULL;

	if (!nul)
		return NULL;
	fields->at = nul + 1;
	return field;
}

static enum sbx_job_life parse_life(const char *text)
{
	return !strcmp(text, "1")   ? SBX_JOB_LIFE_ALIVE
	       : !strcmp(text, "0") ? SBX_JOB_LIFE_DEAD
				    : SBX_JOB_LIFE_UNKNOWN;
}

/* Job directories are written by whatever runs in the sandbox: what is not a job's is no record. */
static int record_decode(const char *root, struct fields *fields, GPtrArray *records)
{
	enum { ID, OP, META, EXIT, END, LIFE, BYTES, AGE, N_FIELDS };
	const char *field[N_FIELDS];
	struct sbx_job_record *record;
	int64_t number, bytes, age_s;

	for (int i = 0; i < N_FIELDS; i++) {
		field[i] = fields_next(fields);
		if (!field[i])
			return -EBADMSG;
	}
	if (!parse_int(field[BYTES], 0, INT64_MAX, &bytes) ||
	    !parse_int(field[AGE], INT64_MIN, INT64_MAX, &age_s))
		return -EBADMSG;
	if (!sbx_job_id_is_valid(field[ID]))
		return 0;
	record = g_new0(struct sbx_job_record, 1);
	record->root = g_strdup(root);
	record->id = g_strdup(field[ID]);
	record->op = g_strdup(field[OP]);
	record->meta = g_strdup(field[META]);
	record->has_exit = parse_int(field[EXIT], 0, 255, &number);
	if (record->has_exit)
		record->exit_code = (int)number;
	(void)sbx_job_end_parse(field[END], &record->end);
	record->life = parse_life(field[LIFE]);
	record->log_bytes = (uint64_t)bytes;
	record->age_s = age_s;
	g_ptr_array_add(records, record);
	return 0;
}

int sbx_job_look_decode(const char *nonce, const char *out, size_t out_len,
			struct sbx_job_look **ret_look)
{
	struct sbx_program_answer answer = { 0 };
	struct sbx_job_look *look;
	struct fields fields;
	const char *field;
	int r;

	r = sbx_program_unframe(out, out_len, nonce, LOOK_BYTES_MAX, &answer);
	if (r < 0)
		return r;
	if (answer.sections != 1) {
		sbx_program_answer_clear(&answer);
		return -EBADMSG;
	}
	look = g_new0(struct sbx_job_look, 1);
	look->records = g_ptr_array_new_with_free_func(record_free);
	fields.at = (const char *)answer.section[0]->data;
	fields.end = fields.at + answer.section[0]->len;
	while (r == 0 && (field = fields_next(&fields))) {
		if (field[0] == 'j') {
			r = record_decode(field + 1, &fields, look->records);
		} else if (field[0] == 'r' && field[1] == '!') {
			look->error = sbx_errno_from_name(field + 2, strlen(field + 2));
			if (!look->error)
				look->error = EIO;
		} else {
			r = -EBADMSG;
		}
	}
	if (fields.at != fields.end)
		r = -EBADMSG;
	sbx_program_answer_clear(&answer);
	if (r < 0) {
		sbx_job_look_free(look);
		return r;
	}
	*ret_look = look;
	return 0;
}

void sbx_job_look_free(struct sbx_job_look *look)
{
	if (!look)
		return;
	g_ptr_array_unref(look->records);
	g_free(look);
}

/* The poll ------------------------------------------------------------------------------------ */

char **sbx_job_poll_argv(const struct sbx_job_poll_item *items, size_t n_items, size_t max_bytes,
			 char nonce[SBX_NONCE_CHARS + 1])
{
	GPtrArray *argv = g_ptr_array_new();

	/* Short: it travels with every poll, and only one poll is under way. */
	g_snprintf(nonce, SBX_NONCE_CHARS + 1, "%08x", g_random_int());
	g_ptr_array_add(argv, g_strdup("sh"));
	g_ptr_array_add(argv, g_strdup("-c"));
	g_ptr_array_add(argv, g_strdup(sbx_program_text(SBX_PROGRAM_JOBPOLL)));
	g_ptr_array_add(argv, g_strdup("sbxfs-jobpoll"));
	g_ptr_array_add(argv, g_strdup(nonce));
	g_ptr_array_add(argv, g_strdup_printf("%zu", max_bytes));
	for (size_t i = 0; i < n_items; i++) {
		g_ptr_array_add(argv, g_strdup(items[i].dir));
		g_ptr_array_add(argv, g_strdup_printf("%" G_GUINT64_FORMAT, items[i].offset));
	}
	g_ptr_array_add(argv, NULL);
	return (char **)g_ptr_array_free(argv, FALSE);
}

void sbx_job_poll_item_clear(struct sbx_job_poll_item *item)
{
	if (item->bytes)
		g_byte_array_unref(item->bytes);
	item->bytes = NULL;
}

/* "BYTES LIFE EXIT END..." and a line of base64. */
static int poll_item_decode(struct sbx_job_poll_item *item, char *facts, char *armoured,
			    size_t max_bytes)
{
	g_auto(GStrv) words = g_strsplit(facts, " ", 4);
	int64_t bytes, code;
	gsize len;

	if (g_strv_length(words) != 4 || !parse_int(words[0], 0, INT64_MAX, &bytes))
		return -EBADMSG;
	item->log_bytes = (uint64_t)bytes;
	item->life = parse_life(words[1]);
	item->is_gone = !strcmp(words[1], "x");
	item->has_exit = parse_int(words[2], 0, 255, &code);
	if (item->has_exit)
		item->exit_code = (int)code;
	item->end = (struct sbx_job_end){ 0 };
	(void)sbx_job_end_parse(g_strstrip(words[3]), &item->end);
	if (!armoured[0])
		return 0;
	if (strlen(armoured) % 4 || strspn(armoured, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
						     "abcdefghijklmnopqrstuvwxyz"
						     "0123456789+/=") != strlen(armoured))
		return -EBADMSG;
	g_base64_decode_inplace(armoured, &len);
	if (len > max_bytes)
		return -EBADMSG;
	item->bytes = g_byte_array_sized_new((guint)len);
	g_byte_array_append(item->bytes, (const guint8 *)armoured, (guint)len);
	return 0;
}

int sbx_job_poll_decode(struct sbx_job_poll_item *items, size_t n_items, const char *nonce,
			size_t max_bytes, const char *out, size_t out_len)
{
	g_autofree char *text = g_strndup(out, out_len);
	g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
	size_t n_lines = g_strv_length(lines);
	int r = 0;

	if (strlen(text) != out_len || !n_lines || lines[0][0] != 'P' ||
	    strcmp(lines[0] + 1, nonce) != 0)
		return -EBADMSG;
	/* A line each for head and foot, two an item, and the empty one behind the last newline. */
	if (n_lines != 2 * n_items + 3 || lines[n_lines - 2][0] != 'E' ||
	    strcmp(lines[n_lines - 2] + 1, nonce) != 0)
		return -EMSGSIZE;
	for (size_t i = 0; r == 0 && i < n_items; i++)
		r = poll_item_decode(&items[i], lines[1 + 2 * i], lines[2 + 2 * i], max_bytes);
	if (r < 0)
		for (size_t i = 0; i < n_items; i++)
			sbx_job_poll_item_clear(&items[i]);
	return r;
}
