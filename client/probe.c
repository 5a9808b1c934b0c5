#include "client/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/record.h"

#define REPLY_BYTES_MAX ((size_t)1 << 30)
/* GNU mv asks the kernel for RENAME_NOREPLACE since this version of coreutils. */
#define NOREPLACE_MAJOR 8
#define NOREPLACE_MINOR 30
/* And knows --no-copy since this one. */
#define NO_COPY_MAJOR 9
#define NO_COPY_MINOR 2

int sbx_probe_request_init(struct sbx_probe_request *req, const struct sbx_probe_options *options,
			   const struct sbx_program_limits *limits)
{
	static const struct sbx_tools nothing = { "," };
	int error;

	req->options = *options;
	error = sbx_program_request_init(&req->program, SBX_PROGRAM_PROBE, &nothing, limits);
	if (error == 0)
		error = sbx_program_request_add(&req->program, "probe");
	if (error == 0)
		error = sbx_program_request_add(&req->program, options->no_work_dir ? "0" : "1");
	if (error == 0 && options->survey != NULL)
		error = sbx_program_request_add_args(&req->program, &options->survey->program);
	return error;
}

int sbx_statfs_request_init(struct sbx_probe_request *req, const struct sbx_tools *tools,
			    const struct sbx_program_limits *limits)
{
	int error;

	req->options = (struct sbx_probe_options){ .no_work_dir = true };
	error = sbx_program_request_init(&req->program, SBX_PROGRAM_PROBE, tools, limits);
	return error < 0 ? error : sbx_program_request_add(&req->program, "statfs");
}

void sbx_probe_request_clear(struct sbx_probe_request *req)
{
	sbx_program_request_clear(&req->program);
}

static int parse_u32(const char *text, uint32_t *ret_number)
{
	uint64_t number;
	int error = sbx_record_number(text, UINT32_MAX, &number);

	if (error == 0)
		*ret_number = (uint32_t)number;
	return error;
}

/* Some filesystems have no such numbers; then the tools show nothing or "?". */
static void parse_statfs(const char *text, struct sbx_statfs *ret_statfs)
{
	g_auto(GStrv) words = g_strsplit(text, " ", 8);
	struct sbx_statfs found = { .known = true };
	uint64_t name_max;

	if (g_strv_length(words) != 7 ||
	    sbx_record_number(words[0], UINT32_MAX, &found.block_bytes) < 0 ||
	    sbx_record_number(words[1], INT64_MAX, &found.blocks) < 0 ||
	    sbx_record_number(words[2], INT64_MAX, &found.blocks_free) < 0 ||
	    sbx_record_number(words[3], INT64_MAX, &found.blocks_avail) < 0 ||
	    sbx_record_number(words[4], INT64_MAX, &found.files) < 0 ||
	    sbx_record_number(words[5], INT64_MAX, &found.files_free) < 0 ||
	    sbx_record_number(words[6], UINT32_MAX, &name_max) < 0 || found.block_bytes == 0)
		return;
	found.name_max = (uint32_t)name_max;
	*ret_statfs = found;
}

static bool is_since(int major, int minor, int since_major, int since_minor)
{
	return major > since_major || (major == since_major && minor >= since_minor);
}

/* What mv --version says decides what GNU's can. */
static void take_mv(struct sbx_probe_reply *reply, const char *version)
{
	const char *words = strstr(version, "(GNU coreutils) ");
	int major;
	int minor;

	if (words == NULL || sscanf(words, "(GNU coreutils) %d.%d", &major, &minor) != 2)
		return;
	reply->mv_noreplace = is_since(major, minor, NOREPLACE_MAJOR, NOREPLACE_MINOR);
	reply->mv_no_copy = is_since(major, minor, NO_COPY_MAJOR, NO_COPY_MINOR);
}

static int take_flag(struct sbx_probe_reply *reply, const char *key)
{
	const struct {
		const char *key;
		bool *flag;
	} flags[] = {
		{ "busybox", &reply->busybox },
		{ "find_printf", &reply->find_printf },
		{ "stat_ns", &reply->stat_ns },
		{ "touch_ns", &reply->touch_ns },
		{ "gzip", &reply->gzip },
		{ "flock", &reply->flock },
		{ "setsid", &reply->setsid },
		{ "dd_bytes", &reply->dd_bytes },
		{ "mv_exact", &reply->mv_exact },
		{ "reflink", &reply->reflink },
		{ "truncate", &reply->truncate },
		{ "date_ns", &reply->date_ns },
		{ "sha256sum", &reply->sha256sum },
		{ "base64_w", &reply->base64_w },
		{ "tar", &reply->tar },
		{ "timeout", &reply->timeout },
		{ "work_dir", &reply->work_dir },
	};

	for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
		if (strcmp(flags[i].key, key) == 0) {
			*flags[i].flag = true;
			return 0;
		}
	}
	/* A newer program may say more. */
	return 0;
}

static int take_fact(struct sbx_probe_reply *reply, const char *key, const char *value)
{
	if (strcmp(key, "uid") == 0)
		return parse_u32(value, &reply->uid);
	if (strcmp(key, "gid") == 0)
		return parse_u32(value, &reply->gid);
	if (strcmp(key, "cwd") == 0) {
		g_free(reply->cwd);
		reply->cwd = g_strdup(value);
	} else if (strcmp(key, "statfs") == 0) {
		parse_statfs(value, &reply->statfs);
	} else if (strcmp(key, "mv") == 0) {
		take_mv(reply, value);
	} else {
		return take_flag(reply, key);
	}
	return 0;
}

static void make_word(struct sbx_probe_reply *reply)
{
	const struct {
		char letter;
		bool can;
	} letters[] = {
		{ 'f', reply->find_printf }, { 'z', reply->gzip },     { 'n', reply->stat_ns },
		{ 't', reply->touch_ns },    { 'T', reply->mv_exact }, { 'N', reply->mv_noreplace },
		{ 'k', reply->dd_bytes },    { 'c', reply->date_ns },  { 'C', reply->mv_no_copy },
		{ 'R', reply->reflink },     { 'l', reply->flock },    { 'r', reply->truncate },
		{ 'w', reply->base64_w },
	};
	char *word = reply->tools.word;
	size_t len = 0;

	for (size_t i = 0; i < G_N_ELEMENTS(letters); i++) {
		if (letters[i].can)
			word[len++] = letters[i].letter;
	}
	snprintf(word + len, sizeof(reply->tools.word) - len, ",%u:%u", reply->uid, reply->gid);
}

/* Walks over the facts; -EBADMSG unless they end as they must. */
static int take_facts(GByteArray *section, struct sbx_probe_reply *reply)
{
	struct sbx_reader reader = { (char *)section->data, (char *)section->data + section->len };
	int error = sbx_reader_clock(&reader, &reply->clock_ns, &reply->clock_has_ns);

	while (error == 0) {
		char *key;
		char *space;

		error = sbx_reader_string(&reader, 0, &key);
		if (error < 0)
			break;
		space = strchr(key, ' ');
		if (space == NULL)
			return -EBADMSG;
		*space = '\0';
		if (strcmp(key, "end") == 0)
			return reader.at == reader.end ? 0 : -EBADMSG;
		error = take_fact(reply, key, space + 1);
	}
	return error;
}

int sbx_probe_decode(const struct sbx_probe_request *req, const char *out, size_t out_len,
		     struct sbx_probe_reply **ret_reply)
{
	struct sbx_probe_reply *reply;
	struct sbx_program_answer answer;
	int error = sbx_program_unframe(out, out_len, req->program.nonce, REPLY_BYTES_MAX, &answer);

	if (error < 0)
		return error;
	reply = g_new0(struct sbx_probe_reply, 1);
	error = take_facts(answer.section[0], reply);
	/* Without its survey an answer is as good; what it was to tell is asked for again. */
	if (error == 0 && answer.sections == 2 && req->options.survey != NULL)
		(void)sbx_scan_decode_section(req->options.survey, answer.section[1],
					      &reply->survey);
	sbx_program_answer_clear(&answer);
	if (error == 0 && reply->cwd == NULL)
		error = -EBADMSG;
	if (error < 0) {
		sbx_probe_reply_free(reply);
		return error;
	}
	make_word(reply);
	*ret_reply = reply;
	return 0;
}

void sbx_probe_reply_free(struct sbx_probe_reply *reply)
{
	if (reply == NULL)
		return;
	sbx_scan_reply_free(reply->survey);
	g_free(reply->cwd);
	g_free(reply);
}

int sbx_statfs_decode(const struct sbx_probe_request *req, const char *out, size_t out_len,
		      struct sbx_statfs *ret_statfs)
{
	struct sbx_probe_reply reply = { 0 };
	struct sbx_program_answer answer;
	struct sbx_reader reader;
	char *text;
	int error = sbx_program_unframe(out, out_len, req->program.nonce, REPLY_BYTES_MAX, &answer);

	if (error < 0)
		return error;
	reader.at = (char *)answer.section[0]->data;
	reader.end = reader.at + answer.section[0]->len;
	error = sbx_reader_clock(&reader, &reply.clock_ns, &reply.clock_has_ns);
	if (error == 0)
		error = sbx_reader_string(&reader, 's', &text);
	if (error == 0 && !g_str_has_prefix(text, "statfs "))
		error = -EBADMSG;
	if (error == 0) {
		parse_statfs(text + strlen("statfs "), &reply.statfs);
		error = reply.statfs.known ? 0 : -EOPNOTSUPP;
	}
	if (error == 0)
		*ret_statfs = reply.statfs;
	sbx_program_answer_clear(&answer);
	return error;
}
