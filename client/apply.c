#include "client/apply.h"

#include <errno.h>
#include <string.h>

#include "client/apply_impl.h"
#include "client/record.h"

#define NS_PER_S INT64_C(1000000000)
/* One request in so many sweeps old outcomes away. */
#define SWEEP_EVERY 64
/* Text that escapes make longer than this part of its size goes as base64. */
#define ESCAPED_GROWTH_NUM 4
#define ESCAPED_GROWTH_DEN 3
/* Base64 pieces; a multiple of four below every sandbox's bound of one argument. */
#define ARMOUR_PIECE_CHARS (96 * 1024)
/* One append is one write of this size at most. */
#define APPEND_BYTES_MAX ((uint64_t)8 << 20)

/* An operation as it is put together; joins the request whole or not at all. */
struct draft {
	struct sbx_apply_request *req;
	GPtrArray *words;
	guint paths_before;
	size_t paths_bytes_before;
	int error;
};

static bool opid_valid(const char *opid)
{
	size_t len = strlen(opid);

	if (len == 0 || len > SBX_OPID_CHARS)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!g_ascii_isalnum(opid[i]) && opid[i] != '-')
			return false;
	}
	return true;
}

struct sbx_apply_request *sbx_apply_new(const struct sbx_tools *tools,
					const struct sbx_program_limits *limits, const char *opid)
{
	struct sbx_apply_request *req;

	if (opid != NULL && !opid_valid(opid))
		return NULL;
	req = g_new0(struct sbx_apply_request, 1);
	req->error = sbx_program_request_init(&req->program, SBX_PROGRAM_APPLY, tools, limits);
	/* A nonce is as random as an id has to be. */
	g_strlcpy(req->opid, opid != NULL ? opid : req->program.nonce, sizeof(req->opid));
	req->words = g_ptr_array_new_with_free_func(g_free);
	req->paths = g_ptr_array_new_with_free_func(g_free);
	req->path_index = g_hash_table_new(g_str_hash, g_str_equal);
	req->saves = g_array_new(FALSE, FALSE, sizeof(struct apply_save));
	req->reported = g_byte_array_new();
	return req;
}

void sbx_apply_free(struct sbx_apply_request *req)
{
	if (req == NULL)
		return;
	sbx_program_request_clear(&req->program);
	g_ptr_array_unref(req->words);
	g_array_unref(req->saves);
	g_hash_table_unref(req->path_index);
	g_ptr_array_unref(req->paths);
	g_byte_array_unref(req->reported);
	g_free(req);
}

void sbx_apply_asked_before(struct sbx_apply_request *req)
{
	req->asked_before = true;
	if (req->id_word)
		req->id_word[0] = '+';
}

const char *sbx_apply_opid(const struct sbx_apply_request *req)
{
	return req->opid;
}

unsigned sbx_apply_count(const struct sbx_apply_request *req)
{
	return req->count;
}

static void draft_begin(struct draft *draft, struct sbx_apply_request *req)
{
	*draft = (struct draft){
		.req = req,
		.words = g_ptr_array_new_with_free_func(g_free),
		.paths_before = req->paths->len,
		.paths_bytes_before = req->paths_bytes,
		.error = req->sealed ? -E2BIG : req->error,
	};
}

static void draft_take(struct draft *draft, char *word)
{
	g_ptr_array_add(draft->words, word);
}

static void draft_add(struct draft *draft, const char *word)
{
	draft_take(draft, g_strdup(word));
}

static void draft_number(struct draft *draft, uint64_t number)
{
	draft_take(draft, g_strdup_printf("%" G_GUINT64_FORMAT, number));
}

static void draft_octal(struct draft *draft, uint32_t number)
{
	draft_take(draft, g_strdup_printf("%o", number));
}

/* The index of a path in the request's table, counted from 1; 0 on error. */
static unsigned draft_index(struct draft *draft, const char *path, bool reported)
{
	struct sbx_apply_request *req = draft->req;
	g_autofree char *spelled = NULL;
	gpointer known;
	uint8_t flag = 0;
	char *copy;

	if (draft->error < 0)
		return 0;
	spelled = sbx_program_spell_path(path, &draft->error);
	if (spelled == NULL)
		return 0;
	path = sbx_record_path(path);
	known = g_hash_table_lookup(req->path_index, path);
	if (known == NULL) {
		copy = g_strdup(path);
		g_ptr_array_add(req->paths, copy);
		g_byte_array_append(req->reported, &flag, 1);
		req->paths_bytes += strlen(spelled) + 2 + 8;
		known = GUINT_TO_POINTER(req->paths->len);
		g_hash_table_insert(req->path_index, copy, known);
	}
	if (reported)
		req->reported->data[GPOINTER_TO_UINT(known) - 1] = 1;
	return GPOINTER_TO_UINT(known);
}

static void draft_path(struct draft *draft, const char *path, bool reported)
{
	draft_number(draft, draft_index(draft, path, reported));
}

/* A name that an operation makes or removes changes the directory that holds it as well. */
static void draft_name(struct draft *draft, const char *path)
{
	const char *slash = strrchr(path, '/');
	g_autofree char *parent = NULL;

	draft_path(draft, path, true);
	if (slash == NULL)
		parent = g_strdup("");
	else
		parent = g_strndup(path, slash == path ? 1 : (size_t)(slash - path));
	draft_index(draft, parent, true);
}

static void draft_held(struct draft *draft, const char *held)
{
	if (held == NULL)
		draft_number(draft, 0);
	else
		draft_path(draft, held, true);
}

/* The umask that gives a new directory or file exactly these permissions; and a chmod, or "-". */
static void draft_mode(struct draft *draft, uint32_t mode, uint32_t made)
{
	if (mode > 07777)
		draft->error = -EINVAL;
	draft_octal(draft, ~mode & 0777);
	if ((mode & made) == mode)
		draft_add(draft, "-");
	else
		draft_take(draft, g_strdup_printf("0%04o", mode));
}

static void draft_time(struct draft *draft, int64_t time_ns)
{
	uint64_t magnitude = time_ns < 0 ? -(uint64_t)time_ns : (uint64_t)time_ns;
	uint64_t seconds = magnitude / NS_PER_S;
	uint64_t ns = magnitude % NS_PER_S;
	const char *sign = time_ns < 0 ? "-" : "";

	if (time_ns == SBX_TIME_OMIT) {
		draft_add(draft, "-");
	} else if (time_ns == SBX_TIME_NOW) {
		draft_add(draft, "now");
	} else if (sbx_tools_has(&draft->req->program.tools, 't')) {
		draft_take(draft, g_strdup_printf("@%s%" G_GUINT64_FORMAT ".%09u", sign, seconds,
						  (unsigned)ns));
	} else if (time_ns >= 0) {
		draft_take(draft, g_strdup_printf("@%" G_GUINT64_FORMAT, seconds));
	} else {
		/* Down to the whole second, as filesystems do; BusyBox knows no "@-1". */
		g_autoptr(GDateTime) date =
			g_date_time_new_from_unix_utc(-(gint64)seconds - (ns > 0));

		draft_take(draft, g_date_time_format(date, "%Y-%m-%d %H:%M:%S"));
	}
}

/* "p" and one spelled argument, or "b" and base64 in pieces. */
static void draft_bytes(struct draft *draft, const void *data, size_t len)
{
	const struct sbx_program_limits *limits = &draft->req->program.limits;
	g_autofree char *armoured = NULL;
	char *spelled = NULL;
	size_t chars;

	if (len > limits->command_bytes) {
		draft->error = -E2BIG;
		return;
	}
	if (len <= ARMOUR_PIECE_CHARS)
		spelled = sbx_program_spell(data, len);
	if (spelled != NULL && strlen(spelled) < limits->arg_bytes &&
	    strlen(spelled) <= len * ESCAPED_GROWTH_NUM / ESCAPED_GROWTH_DEN + 16) {
		draft_add(draft, "p");
		draft_take(draft, spelled);
		return;
	}
	g_free(spelled);
	draft_add(draft, "b");
	armoured = g_base64_encode(data, len);
	chars = strlen(armoured);
	for (size_t at = 0; at < chars; at += ARMOUR_PIECE_CHARS)
		draft_take(draft, g_strndup(armoured + at, MIN(chars - at, ARMOUR_PIECE_CHARS)));
}

/* Takes back the paths that only this operation named. */
static void draft_undo(struct draft *draft)
{
	struct sbx_apply_request *req = draft->req;

	while (req->paths->len > draft->paths_before) {
		g_hash_table_remove(req->path_index, req->paths->pdata[req->paths->len - 1]);
		g_ptr_array_set_size(req->paths, (gint)req->paths->len - 1);
		g_byte_array_set_size(req->reported, req->paths->len);
	}
	req->paths_bytes = draft->paths_bytes_before;
}

/* The operation's index, or why it could not be added. */
static int draft_end(struct draft *draft, const char *verb, unsigned flags)
{
	struct sbx_apply_request *req = draft->req;
	const struct sbx_program_limits *limits = &req->program.limits;
	g_autofree char *function = g_strconcat("do_", verb, NULL);
	size_t bytes = 0;

	g_ptr_array_insert(draft->words, 0,
			   g_strconcat(flags & SBX_APPLY_AND ? "&" : "", verb, NULL));
	g_ptr_array_insert(draft->words, 1, g_strdup_printf("%u", draft->words->len - 1));
	for (guint i = 0; i < draft->words->len; i++) {
		size_t word_bytes = strlen(draft->words->pdata[i]) + 1;

		if (word_bytes > limits->arg_bytes && draft->error == 0)
			draft->error = -E2BIG;
		bytes += word_bytes + 8;
	}
	/* 128: the id, the counts and what else sealing adds. */
	if (draft->error == 0 &&
	    req->program.command_bytes + req->paths_bytes + req->words_bytes + bytes + 128 >
		    limits->command_bytes)
		draft->error = -E2BIG;
	if (draft->error < 0) {
		draft_undo(draft);
		g_ptr_array_unref(draft->words);
		return draft->error;
	}
	req->words_bytes += bytes;
	req->needs |= sbx_program_on_demand(function);
	g_ptr_array_extend_and_steal(req->words, draft->words);
	return (int)req->count++;
}

int sbx_apply_mkdir(struct sbx_apply_request *req, const char *path, uint32_t mode, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_mode(&draft, mode, 0777);
	draft_name(&draft, path);
	return draft_end(&draft, "mkdir", flags);
}

int sbx_apply_rmdir(struct sbx_apply_request *req, const char *path, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_name(&draft, path);
	return draft_end(&draft, "rmdir", flags);
}

int sbx_apply_unlink(struct sbx_apply_request *req, const char *path, const char *held,
		     unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_name(&draft, path);
	draft_held(&draft, held);
	return draft_end(&draft, "unlink", flags);
}

int sbx_apply_rename(struct sbx_apply_request *req, const char *from, const char *to,
		     const char *held, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_add(&draft, flags & SBX_APPLY_NOREPLACE ? "1" : "0");
	draft_held(&draft, held);
	draft_name(&draft, from);
	draft_name(&draft, to);
	return draft_end(&draft, "rename", flags);
}

int sbx_apply_link(struct sbx_apply_request *req, const char *from, const char *to, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_path(&draft, from, true);
	draft_name(&draft, to);
	return draft_end(&draft, "link", flags);
}

int sbx_apply_symlink(struct sbx_apply_request *req, const char *text, const char *path,
		      unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_take(&draft, sbx_program_spell(text, strlen(text)));
	draft_name(&draft, path);
	return draft_end(&draft, "symlink", flags);
}

int sbx_apply_chmod(struct sbx_apply_request *req, const char *path, uint32_t mode, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	/* Five digits: GNU chmod keeps a directory's setgid bit when there are fewer. */
	draft_take(&draft, g_strdup_printf("0%04o", mode & 07777));
	draft_path(&draft, path, true);
	return draft_end(&draft, "chmod", flags);
}

int sbx_apply_utimens(struct sbx_apply_request *req, const char *path, int64_t atime_ns,
		      int64_t mtime_ns, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_time(&draft, atime_ns);
	draft_time(&draft, mtime_ns);
	draft_path(&draft, path, true);
	return draft_end(&draft, "utimens", flags);
}

static int add_size(struct sbx_apply_request *req, const char *verb, const char *path,
		    uint64_t size, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	if (size > INT64_MAX)
		draft.error = -EINVAL;
	draft_number(&draft, size);
	draft_path(&draft, path, true);
	return draft_end(&draft, verb, flags);
}

int sbx_apply_truncate(struct sbx_apply_request *req, const char *path, uint64_t size,
		       unsigned flags)
{
	return add_size(req, "truncate", path, size, flags);
}

int sbx_apply_extend(struct sbx_apply_request *req, const char *path, uint64_t size, unsigned flags)
{
	return add_size(req, "extend", path, size, flags);
}

int sbx_apply_create(struct sbx_apply_request *req, const char *path, uint32_t mode, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_mode(&draft, mode, 0666);
	draft_name(&draft, path);
	return draft_end(&draft, "create", flags);
}

int sbx_apply_expect(struct sbx_apply_request *req, const char *path, uint64_t dev, uint64_t ino,
		     unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	draft_take(&draft, g_strdup_printf("%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT, dev, ino));
	draft_path(&draft, path, true);
	return draft_end(&draft, "expect", flags);
}

int sbx_apply_sweep(struct sbx_apply_request *req, const char *dir, unsigned minutes,
		    const char *mark, unsigned flags)
{
	static const char *const dirs[] = { SBX_STAGE_DIR, SBX_HELD_DIR, SBX_OPS_DIR };
	struct draft draft;

	draft_begin(&draft, req);
	draft.error = -EINVAL;
	for (size_t i = 0; i < G_N_ELEMENTS(dirs); i++) {
		if (strcmp(dirs[i] + strlen(SBX_WORK_DIR "/"), dir) == 0)
			draft.error = req->sealed ? -E2BIG : req->error;
	}
	for (const char *c = mark; c && *c && draft.error == 0; c++) {
		if (!g_ascii_isalnum(*c))
			draft.error = -EINVAL;
	}
	draft_add(&draft, dir);
	draft_number(&draft, minutes);
	draft_add(&draft, mark ? mark : "");
	return draft_end(&draft, "sweep", flags);
}

int sbx_apply_void(struct sbx_apply_request *req, const char *opid, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	if (!opid_valid(opid))
		draft.error = -EINVAL;
	draft_add(&draft, opid);
	return draft_end(&draft, "void", flags);
}

int sbx_apply_save(struct sbx_apply_request *req, const char *path,
		   const struct sbx_apply_content *content, const struct sbx_apply_how *how)
{
	struct apply_save save = { .size_bytes = content->len, .mtime_ns = how->mtime_ns };
	struct draft draft;
	int index;

	draft_begin(&draft, req);
	if (how->mode != SBX_MODE_KEEP && how->mode > 0777)
		draft.error = -EINVAL;
	draft_name(&draft, path);
	draft_add(&draft, how->flags & SBX_APPLY_EXCL	 ? "1"
			  : how->flags & SBX_APPLY_EMPTY ? "2"
							 : "0");
	draft_add(&draft, how->flags & SBX_APPLY_IN_PLACE ? "1" : "0");
	if (how->mode == SBX_MODE_KEEP)
		draft_add(&draft, "-");
	else
		draft_octal(&draft, how->mode);
	draft_time(&draft, how->atime_ns);
	draft_time(&draft, how->mtime_ns);
	draft_held(&draft, how->held);
	draft_number(&draft, content->len);
	if (content->data != NULL || content->stage == NULL) {
		draft_number(&draft, 0);
		draft_bytes(&draft, content->data, content->len);
	} else {
		draft_path(&draft, content->stage, false);
	}
	index = draft_end(&draft, "save", how->flags);
	if (index >= 0) {
		save.index = (unsigned)index;
		save.path = GPOINTER_TO_UINT(
				    g_hash_table_lookup(req->path_index, sbx_record_path(path))) -
			    1;
		g_array_append_val(req->saves, save);
	}
	return index;
}

/*
 * The words of one piece. What the request itself carries is gathered in inlined, in which a piece
 * then has an offset.
 */
static void draft_piece(struct draft *draft, const struct sbx_apply_piece *piece, GString *words,
			GByteArray *inlined)
{
	const struct sbx_apply_content *content = &piece->content;
	uint64_t source_offset = content->stage_offset;
	uint64_t left = content->len;
	unsigned source = 0;

	if (piece->offset > INT64_MAX || left > INT64_MAX - piece->offset) {
		draft->error = -EINVAL;
		return;
	}
	if (piece->kind == SBX_PIECE_TRUNCATE) {
		g_string_append_printf(words, "t %" G_GUINT64_FORMAT " 0 0 0 ", piece->offset);
		return;
	}
	if (left == 0)
		return;
	if (content->data == NULL) {
		source = content->stage != NULL ? draft_index(draft, content->stage, false) : 0;
		if (source == 0 && draft->error == 0)
			draft->error = -EINVAL;
	} else if (left > draft->req->program.limits.command_bytes - inlined->len) {
		draft->error = -E2BIG;
	} else {
		source_offset = inlined->len;
		g_byte_array_append(inlined, content->data, (guint)left);
	}
	if (draft->error < 0)
		return;
	if (piece->kind == SBX_PIECE_WRITE) {
		g_string_append_printf(words,
				       "w %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT
				       " %u %" G_GUINT64_FORMAT " ",
				       piece->offset, left, source, source_offset);
		return;
	}
	while (left > 0) {
		uint64_t part = MIN(left, APPEND_BYTES_MAX);

		g_string_append_printf(words, "a 0 %" G_GUINT64_FORMAT " %u %" G_GUINT64_FORMAT " ",
				       part, source, source_offset);
		source_offset += part;
		left -= part;
	}
}

int sbx_apply_patch(struct sbx_apply_request *req, const char *path,
		    const struct sbx_apply_piece *pieces, unsigned count, unsigned flags)
{
	g_autoptr(GByteArray) inlined = g_byte_array_new();
	g_autoptr(GString) words = g_string_new(NULL);
	struct draft draft;

	draft_begin(&draft, req);
	draft_path(&draft, path, true);
	for (unsigned i = 0; i < count && draft.error == 0; i++)
		draft_piece(&draft, &pieces[i], words, inlined);
	if (words->len > 0)
		g_string_truncate(words, words->len - 1);
	draft_add(&draft, words->str);
	if (inlined->len > 0 && draft.error == 0)
		draft_bytes(&draft, inlined->data, inlined->len);
	return draft_end(&draft, "patch", flags);
}

int sbx_apply_copy(struct sbx_apply_request *req, const char *source, uint64_t source_offset,
		   const char *target, uint64_t target_offset, uint64_t len, unsigned flags)
{
	struct draft draft;

	draft_begin(&draft, req);
	if (len != SBX_COPY_WHOLE && (source_offset > INT64_MAX || target_offset > INT64_MAX ||
				      len > INT64_MAX - MAX(source_offset, target_offset)))
		draft.error = -EINVAL;
	if (len == SBX_COPY_WHOLE && (source_offset != 0 || target_offset != 0))
		draft.error = -EINVAL;
	/* As copy_file_range(2): the two parts of one file may not overlap. */
	if (strcmp(sbx_record_path(source), sbx_record_path(target)) == 0 &&
	    MAX(source_offset, target_offset) - MIN(source_offset, target_offset) < len)
		draft.error = -EINVAL;
	draft_path(&draft, source, true);
	draft_number(&draft, source_offset);
	draft_name(&draft, target);
	draft_number(&draft, target_offset);
	if (len == SBX_COPY_WHOLE)
		draft_add(&draft, "-");
	else
		draft_number(&draft, len);
	return draft_end(&draft, "copy", flags);
}

int sbx_apply_survey(struct sbx_apply_request *req, const struct sbx_scan_request *scan)
{
	const char *const *args;
	size_t n = sbx_program_request_args(&scan->program, &args);
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += strlen(args[i]) + 1 + 8;
	if (req->sealed || req->survey != NULL ||
	    req->program.command_bytes + req->paths_bytes + req->words_bytes + bytes + 128 >
		    req->program.limits.command_bytes)
		return -E2BIG;
	req->words_bytes += bytes;
	req->survey = scan;
	return 0;
}

/* "-" before a path: its attributes are not wanted. */
static char *path_word(const struct sbx_apply_request *req, guint i)
{
	g_autofree char *spelled = sbx_program_spell_path(req->paths->pdata[i], NULL);

	return g_strconcat(req->reported->data[i] ? "" : "-", spelled, NULL);
}

static int seal(struct sbx_apply_request *req)
{
	struct sbx_program_request *program = &req->program;
	bool sweep = g_str_hash(req->opid) % SWEEP_EVERY == 0;
	const char *const *words;
	size_t n_words = 0;
	int error = req->error;

	if (error == 0)
		error = sbx_program_request_addf(program, "%c%s", req->asked_before ? '+' : '-',
						 req->opid);
	if (error == 0)
		req->id_word = program->argv->pdata[program->argv->len - 1];
	if (error == 0)
		error = sbx_program_request_add(program, sweep ? "1" : "0");
	if (req->survey != NULL) {
		n_words = sbx_program_request_args(&req->survey->program, &words);
		req->needs |= sbx_program_on_demand("survey");
	}
	if (error == 0)
		sbx_program_request_cut(program, req->needs);
	if (error == 0)
		error = sbx_program_request_addf(program, "%zu", n_words);
	if (error == 0 && req->survey != NULL)
		error = sbx_program_request_add_args(program, &req->survey->program);
	if (error == 0)
		error = sbx_program_request_addf(program, "%u", req->paths->len);
	for (guint i = 0; i < req->paths->len && error == 0; i++)
		error = sbx_program_request_take(program, path_word(req, i));
	for (guint i = 0; i < req->words->len && error == 0; i++)
		error = sbx_program_request_add(program, req->words->pdata[i]);
	return error;
}

const char *const *sbx_apply_argv(struct sbx_apply_request *req, int *ret_error)
{
	if (!req->sealed) {
		req->error = seal(req);
		req->sealed = true;
	}
	if (req->error < 0) {
		*ret_error = req->error;
		return NULL;
	}
	return sbx_program_request_argv(&req->program);
}
