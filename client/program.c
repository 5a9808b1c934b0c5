#include "client/program.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "client/errmap.h"
#include "client/random.h"

/* A function of a program, or what is always in its text. */
struct program_part {
	const char *name; /* of what is on demand; "" */
	uint64_t bit; /* its own; 0: always there */
	uint64_t needs; /* the bits of all that it calls, its own too */
	const char *text;
};

#include "program_texts.h"

#define PATH_BYTES_MAX	 4095
#define NAME_BYTES_MAX	 255
#define HEADER_BYTES_MAX 512
#define FRAME_WORD	 "SBXFS1"
/* "sh" to REPLY_BYTES; the third is the text. */
#define ARGS_BEFORE 7
#define ARG_TEXT    2

static const struct {
	const char *name; /* $0 of the shell */
	const char *text;
} programs[] = {
	[SBX_PROGRAM_PROBE] = { "sbxfs-probe", program_probe },
	[SBX_PROGRAM_SCAN] = { "sbxfs-scan", program_scan },
	[SBX_PROGRAM_APPLY] = { "sbxfs-apply", program_apply },
	[SBX_PROGRAM_PACK] = { "sbxfs-pack", program_pack },
	[SBX_PROGRAM_JOBRUN] = { "sbxfs-jobrun", program_jobrun },
	[SBX_PROGRAM_JOBLOOK] = { "sbxfs-joblook", program_joblook },
	[SBX_PROGRAM_RESTORE] = { "sbxfs-restore", program_restore },
	[SBX_PROGRAM_DIGEST] = { "sbxfs-digest", program_digest },
	[SBX_PROGRAM_MKTAR] = { "sbxfs-mktar", program_mktar },
	[SBX_PROGRAM_JOBPOLL] = { "sbxfs-jobpoll", program_jobpoll },
};

bool sbx_tools_has(const struct sbx_tools *tools, char letter)
{
	const char *comma = strchr(tools->word, ',');
	const char *found = letter != '\0' ? strchr(tools->word, letter) : NULL;

	return found != NULL && (comma == NULL || found < comma);
}

void sbx_program_limits_init(struct sbx_program_limits *limits)
{
	*limits = (struct sbx_program_limits){
		.arg_bytes = 128 * 1024,
		.command_bytes = 1900 * 1024,
		.reply_bytes = 0,
	};
}

const char *sbx_program_text(enum sbx_program which)
{
	return programs[which].text;
}

const char *const *sbx_program_environment(void)
{
	static const char *const environment[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/",
		"LC_ALL=C",
		NULL,
	};

	return environment;
}

int sbx_program_request_init(struct sbx_program_request *req, enum sbx_program which,
			     const struct sbx_tools *tools, const struct sbx_program_limits *limits)
{
	int error;

	*req = (struct sbx_program_request){
		.argv = g_ptr_array_new_with_free_func(g_free),
		.limits = *limits,
		.tools = *tools,
	};
	/* Only has to differ from that of every other request whose answer could be mistaken. */
	sbx_random_hex(req->nonce, SBX_NONCE_CHARS);
	error = sbx_program_request_add(req, "sh");
	if (error == 0)
		error = sbx_program_request_add(req, "-c");
	if (error == 0)
		error = sbx_program_request_add(req, programs[which].text);
	if (error == 0)
		error = sbx_program_request_add(req, programs[which].name);
	if (error == 0)
		error = sbx_program_request_add(req, req->nonce);
	if (error == 0)
		error = sbx_program_request_add(req, req->tools.word);
	if (error == 0)
		error = sbx_program_request_addf(req, "%zu", limits->reply_bytes);
	return error;
}

void sbx_program_request_clear(struct sbx_program_request *req)
{
	g_clear_pointer(&req->argv, g_ptr_array_unref);
}

uint64_t sbx_program_on_demand(const char *function)
{
	for (size_t i = 0; i < G_N_ELEMENTS(program_apply_parts); i++) {
		if (strcmp(program_apply_parts[i].name, function) == 0)
			return program_apply_parts[i].needs;
	}
	return 0;
}

void sbx_program_request_cut(struct sbx_program_request *req, uint64_t needs)
{
	GString *text = g_string_sized_new(sizeof(program_apply));

	for (size_t i = 0; i < G_N_ELEMENTS(program_apply_parts); i++) {
		const struct program_part *part = &program_apply_parts[i];

		if (part->bit == 0 || part->bit & needs)
			g_string_append(text, part->text);
	}
	req->command_bytes -= strlen(req->argv->pdata[ARG_TEXT]) - text->len;
	g_free(req->argv->pdata[ARG_TEXT]);
	req->argv->pdata[ARG_TEXT] = g_string_free(text, FALSE);
}

int sbx_program_request_take(struct sbx_program_request *req, char *arg)
{
	size_t bytes = strlen(arg) + 1;

	if (bytes > req->limits.arg_bytes || bytes + 8 > req->limits.command_bytes ||
	    req->command_bytes > req->limits.command_bytes - bytes - 8) {
		g_free(arg);
		return -E2BIG;
	}
	req->command_bytes += bytes + 8;
	g_ptr_array_add(req->argv, arg);
	return 0;
}

int sbx_program_request_add(struct sbx_program_request *req, const char *arg)
{
	return sbx_program_request_take(req, g_strdup(arg));
}

int sbx_program_request_addf(struct sbx_program_request *req, const char *format, ...)
{
	va_list args;
	char *arg;

	va_start(args, format);
	arg = g_strdup_vprintf(format, args);
	va_end(args);
	return sbx_program_request_take(req, arg);
}

int sbx_program_request_add_path(struct sbx_program_request *req, const char *path)
{
	int error;
	char *arg = sbx_program_spell_path(path, &error);

	return arg == NULL ? error : sbx_program_request_take(req, arg);
}

size_t sbx_program_request_args(const struct sbx_program_request *req, const char *const **ret_args)
{
	size_t n = req->argv->len - ARGS_BEFORE;

	*ret_args = (const char *const *)req->argv->pdata + ARGS_BEFORE;
	return n > 0 && !(*ret_args)[n - 1] ? n - 1 : n;
}

int sbx_program_request_add_args(struct sbx_program_request *req,
				 const struct sbx_program_request *from)
{
	const char *const *args;
	size_t n = sbx_program_request_args(from, &args);
	int error = 0;

	for (size_t i = 0; i < n && error == 0; i++)
		error = sbx_program_request_add(req, args[i]);
	return error;
}

const char *const *sbx_program_request_argv(struct sbx_program_request *req)
{
	GPtrArray *argv = req->argv;

	if (argv->len == 0 || argv->pdata[argv->len - 1] != NULL)
		g_ptr_array_add(argv, NULL);
	return (const char *const *)argv->pdata;
}

static bool is_plain(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] < 0x20 || bytes[i] > 0x7e)
			return false;
	}
	return len == 0 || bytes[0] != ':';
}

char *sbx_program_spell(const void *bytes, size_t len)
{
	const uint8_t *byte = bytes;
	GString *arg;

	if (is_plain(byte, len))
		return g_strndup(bytes, len);
	arg = g_string_sized_new(len + len / 8 + 16);
	g_string_append_c(arg, ':');
	for (size_t i = 0; i < len; i++) {
		if (byte[i] == '\\')
			g_string_append(arg, "\\\\");
		else if (byte[i] == '\n')
			g_string_append(arg, "\\n");
		else if (byte[i] == '\t')
			g_string_append(arg, "\\t");
		else if (byte[i] < 0x20 || byte[i] > 0x7e)
			g_string_append_printf(arg, "\\0%03o", byte[i]);
		else
			g_string_append_c(arg, (char)byte[i]);
	}
	return g_string_free(arg, FALSE);
}

bool sbx_program_name_valid(const char *name, size_t len)
{
	if (len == 0 || len > NAME_BYTES_MAX)
		return false;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return false;
	return memchr(name, '/', len) == NULL && memchr(name, '\0', len) == NULL;
}

static int check_components(const char *path)
{
	while (true) {
		size_t len = strcspn(path, "/");

		if (len > NAME_BYTES_MAX)
			return -ENAMETOOLONG;
		if (!sbx_program_name_valid(path, len))
			return -EINVAL;
		if (path[len] == '\0')
			return 0;
		path += len + 1;
	}
}

char *sbx_program_spell_path(const char *path, int *ret_error)
{
	g_autofree char *relative = NULL;
	int error = 0;

	if (path[0] == '\0' || strcmp(path, ".") == 0)
		return g_strdup(".");
	if (strcmp(path, "/") == 0)
		return g_strdup("/");
	if (strlen(path) > PATH_BYTES_MAX - 2)
		error = -ENAMETOOLONG;
	else
		error = check_components(path[0] == '/' ? path + 1 : path);
	if (error < 0) {
		if (ret_error != NULL)
			*ret_error = error;
		return NULL;
	}
	if (path[0] == '/')
		return sbx_program_spell(path, strlen(path));
	relative = g_strconcat("./", path, NULL);
	return sbx_program_spell(relative, strlen(relative));
}

void sbx_program_answer_clear(struct sbx_program_answer *answer)
{
	for (unsigned i = 0; i < answer->sections; i++)
		g_clear_pointer(&answer->section[i], g_byte_array_unref);
	answer->sections = 0;
}

/* Strict: g_base64_decode() by itself would skip what is foreign. Line breaks are allowed. */
static int unarmour(const char *text, size_t len, GByteArray **ret_bytes)
{
	gint state = 0;
	guint save = 0;
	size_t symbols = 0;
	size_t padding = 0;
	GByteArray *bytes;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '\n')
			continue;
		symbols++;
		if (c == '=') {
			padding++;
			continue;
		}
		if (padding > 0 || !(g_ascii_isalnum(c) || c == '+' || c == '/'))
			return -EBADMSG;
	}
	if (symbols % 4 != 0 || padding > 2 || len > G_MAXUINT / 2)
		return -EBADMSG;
	bytes = g_byte_array_new();
	g_byte_array_set_size(bytes, (guint)(symbols / 4 * 3 + 3));
	g_byte_array_set_size(bytes,
			      (guint)g_base64_decode_step(text, len, bytes->data, &state, &save));
	*ret_bytes = bytes;
	return 0;
}

static int gunzip(const GByteArray *packed, size_t max_bytes, GByteArray **ret_bytes)
{
	z_stream stream = { .next_in = packed->data, .avail_in = packed->len };
	GByteArray *bytes = g_byte_array_new();
	int error = 0;
	int state = Z_OK;

	if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) {
		g_byte_array_unref(bytes);
		return -ENOMEM;
	}
	while (state == Z_OK && error == 0) {
		uint8_t chunk[32 * 1024];

		stream.next_out = chunk;
		stream.avail_out = sizeof(chunk);
		state = inflate(&stream, Z_NO_FLUSH);
		if (bytes->len + (sizeof(chunk) - stream.avail_out) > max_bytes)
			error = -EMSGSIZE;
		else
			g_byte_array_append(bytes, chunk,
					    (guint)(sizeof(chunk) - stream.avail_out));
	}
	if (error == 0 && (state != Z_STREAM_END || stream.avail_in > 0))
		error = state == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	inflateEnd(&stream);
	if (error < 0) {
		g_byte_array_unref(bytes);
		return error;
	}
	*ret_bytes = bytes;
	return 0;
}

static int take_text(const char *text, size_t len, GByteArray **ret_bytes)
{
	GByteArray *bytes;

	for (size_t i = 0; i < len; i++) {
		if (text[i] != '\n' && text[i] != '\t' && (text[i] < 0x20 || text[i] > 0x7e))
			return -EBADMSG;
	}
	bytes = g_byte_array_sized_new((guint)len);
	g_byte_array_append(bytes, (const guint8 *)text, (guint)len);
	for (guint i = 0; i < bytes->len; i++) {
		if (bytes->data[i] == '\n' || bytes->data[i] == '\t')
			bytes->data[i] = '\0';
	}
	*ret_bytes = bytes;
	return 0;
}

static int unpack_section(char form, const char *text, size_t len, size_t max_bytes,
			  GByteArray **ret_bytes)
{
	GByteArray *packed;
	int error;

	if (len > G_MAXUINT / 2)
		return -EBADMSG;
	error = form == 't' ? take_text(text, len, &packed) : unarmour(text, len, &packed);
	if (error < 0)
		return error;
	if (form == 'z') {
		error = gunzip(packed, max_bytes, ret_bytes);
		g_byte_array_unref(packed);
		return error;
	}
	if (packed->len > max_bytes) {
		g_byte_array_unref(packed);
		return -EMSGSIZE;
	}
	*ret_bytes = packed;
	return 0;
}

static int refusal_errno(const char *word)
{
	static const struct {
		const char *word;
		int error;
	} refusals[] = {
		{ "!big", -EMSGSIZE }, { "!base64", -EOPNOTSUPP }, { "!busy", -EINPROGRESS },
		{ "!lost", -EUCLEAN }, { "!void", -ECANCELED },
	};

	for (size_t i = 0; i < G_N_ELEMENTS(refusals); i++) {
		if (strcmp(refusals[i].word, word) == 0)
			return refusals[i].error;
	}
	return -EBADMSG;
}

/* "FORM LENGTH" pairs; the sections follow at *pos, each with a newline. */
static int unpack_sections(char **word, const char *out, size_t out_len, size_t *pos,
			   size_t max_bytes, struct sbx_program_answer *answer)
{
	for (; word[0] != NULL; word += 2) {
		const char *newline = memchr(out + *pos, '\n', out_len - *pos);
		guint64 len = newline ? (guint64)(newline - out) - *pos : out_len;
		GByteArray *bytes;
		int error;

		if (word[1] == NULL || strlen(word[0]) != 1 || !strchr("-zt", word[0][0]) ||
		    answer->sections == SBX_PROGRAM_SECTIONS_MAX ||
		    (strcmp(word[1], ".") != 0 &&
		     !g_ascii_string_to_unsigned(word[1], 10, 0, G_MAXSSIZE, &len, NULL)))
			return -EBADMSG;
		if (len >= out_len - *pos || out[*pos + len] != '\n')
			return -EBADMSG;
		error = unpack_section(word[0][0], out + *pos, len, max_bytes, &bytes);
		if (error < 0)
			return error;
		answer->section[answer->sections++] = bytes;
		max_bytes -= bytes->len;
		*pos += len + 1;
	}
	return answer->sections > 0 ? 0 : -EBADMSG;
}

int sbx_program_unframe(const char *out, size_t out_len, const char *nonce, size_t max_bytes,
			struct sbx_program_answer *ret_answer)
{
	struct sbx_program_answer answer = { .sections = 0 };
	const char *newline = memchr(out, '\n', MIN(out_len, HEADER_BYTES_MAX));
	g_autofree char *tail = g_strdup_printf("END %s\n", nonce);
	g_autofree char *header = NULL;
	g_auto(GStrv) words = NULL;
	size_t pos;
	int error = 0;

	if (newline == NULL || memchr(out, '\0', (size_t)(newline - out)) != NULL)
		return -EBADMSG;
	header = g_strndup(out, (size_t)(newline - out));
	words = g_strsplit(header, " ", 2 * SBX_PROGRAM_SECTIONS_MAX + 4);
	if (g_strv_length(words) < 3 || strcmp(words[0], FRAME_WORD) != 0 ||
	    strcmp(words[1], nonce) != 0)
		return -EBADMSG;
	pos = (size_t)(newline - out) + 1;
	if (words[2][0] == '!')
		error = words[3] == NULL ? refusal_errno(words[2]) : -EBADMSG;
	else
		error = unpack_sections(words + 2, out, out_len, &pos, max_bytes, &answer);
	if (error != -EBADMSG &&
	    (out_len - pos != strlen(tail) || memcmp(out + pos, tail, strlen(tail)) != 0)) {
		/* A section that was too big was not walked over, so its end is not known. */
		if (error != -EMSGSIZE || words[2][0] == '!')
			error = -EBADMSG;
	}
	if (error < 0) {
		sbx_program_answer_clear(&answer);
		return error;
	}
	*ret_answer = answer;
	return 0;
}

/* 0 when the line says nothing that is known. */
static int line_errno(const char *line, size_t len)
{
	/* What tools and shells say in words of their own. */
	static const struct {
		const char *suffix;
		int error;
	} sayings[] = {
		{ "hard link not allowed for directory", EPERM },
		{ "Directory nonexistent", ENOENT },
		{ "nonexistent directory", ENOENT },
		{ "cannot overwrite existing file", EEXIST },
		{ "are the same file", EINVAL },
		{ "is a directory", EISDIR },
		{ "Path has non-directory component", ENOTDIR },
	};

	for (size_t i = 0; i < G_N_ELEMENTS(sayings); i++) {
		size_t suffix_len = strlen(sayings[i].suffix);

		if (len >= suffix_len &&
		    memcmp(line + len - suffix_len, sayings[i].suffix, suffix_len) == 0)
			return sayings[i].error;
	}
	return sbx_errno_from_text(line, len);
}

int sbx_program_errno(const char *text)
{
	size_t len = strlen(text);
	int error;

	while (len > 0 && text[len - 1] == '\n')
		len--;
	if (len == 0)
		return 0;
	if (text[0] == '!') {
		error = sbx_errno_from_name(text + 1, len - 1);
		return error != 0 ? error : EIO;
	}
	/* From the last line back: some tools say more after the reason, or less. */
	while (true) {
		const char *newline = memrchr(text, '\n', len);
		size_t start = newline != NULL ? (size_t)(newline - text) + 1 : 0;

		error = line_errno(text + start, len - start);
		if (error != 0 && error != EIO)
			return error;
		if (newline == NULL)
			return EIO;
		len = start - 1;
	}
}
