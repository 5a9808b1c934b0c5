/*
 * driver - runs the sandbox programs on this machine, for the tests in this directory.
 *
 *     program_driver PATH DIRECTORY
 *
 * PATH is where the programs find sh and their tools, DIRECTORY is the workspace. Requests come as
 * lines on stdin, words separated by spaces, with %XX for what is not plain; "%" alone is an empty
 * word. Each is answered with lines and a last line ".". Requests are made by client/'s encoders
 * and the answers read by its decoders, so what is tested is what sbxfs does.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/pack.h"
#include "client/probe.h"
#include "client/scan.h"

static const char *tool_path;
static const char *workspace;
static struct sbx_tools tools = { "," };
static struct sbx_program_limits limits;
static struct sbx_apply_request *apply;
/* Goes with the next probe, or the next sending of a list. */
static struct sbx_scan_request *survey;

static void put_word(const void *bytes, size_t len)
{
	const uint8_t *byte = bytes;

	if (len == 0)
		fputs(" %", stdout);
	else
		putchar(' ');
	for (size_t i = 0; i < len; i++) {
		if (g_ascii_isalnum(byte[i]) || strchr("./_-:,=", byte[i]) != NULL)
			putchar(byte[i]);
		else
			printf("%%%02x", byte[i]);
	}
}

static void put_text(const char *text)
{
	put_word(text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

static void put_attr(const struct sbx_attr *attr)
{
	printf(" %o %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64
	       " %" PRIu32 " %d",
	       attr->mode, attr->size, attr->blocks, attr->mtime_ns, attr->ctime_ns, attr->ino,
	       attr->dev, attr->nlink, attr->has_ns);
}

/* Decodes a word in place; its length goes to *ret_len. */
static char *unescape(char *word, size_t *ret_len)
{
	char *to = word;

	if (strcmp(word, "%") == 0)
		*word = '\0';
	for (char *from = word; *from != '\0'; to++) {
		if (*from == '%') {
			*to = (char)(g_ascii_xdigit_value(from[1]) * 16 +
				     g_ascii_xdigit_value(from[2]));
			from += 3;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
	*ret_len = (size_t)(to - word);
	return word;
}

static void child(const char *const *argv, int out)
{
	const char *const *environment = sbx_program_environment();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	clearenv();
	for (; *environment != NULL; environment++)
		putenv((char *)*environment);
	setenv("PATH", tool_path, 1);
	if (chdir(workspace) != 0 || null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 ||
	    dup2(null, 2) < 0)
		_exit(125);
	execvp(argv[0], (char *const *)argv);
	_exit(126);
}

/* stdout of the command, whole. */
static GString *run(const char *const *argv)
{
	GString *out = g_string_new(NULL);
	int pipes[2];
	int status;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) != 0)
		exit(2);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		child(argv, pipes[1]);
	close(pipes[1]);
	while (true) {
		char chunk[65536];
		ssize_t got = read(pipes[0], chunk, sizeof(chunk));

		if (got <= 0)
			break;
		g_string_append_len(out, chunk, got);
	}
	close(pipes[0]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(2);
	return out;
}

static uint64_t number(const char *word)
{
	return strtoull(word, NULL, 10);
}

static void put_error(int error)
{
	printf("error %d\n", -error);
}

static void put_place(const struct sbx_scan_place *place)
{
	fputs("place", stdout);
	put_text(place->path);
	printf(" %d %d %d", place->state, place->error, place->has_attr);
	put_attr(&place->attr);
	put_text(place->link);
	putchar('\n');
	for (guint i = 0; place->entries != NULL && i < place->entries->len; i++) {
		const struct sbx_scan_entry *entry =
			&g_array_index(place->entries, struct sbx_scan_entry, i);

		fputs("entry", stdout);
		put_text(entry->name);
		put_attr(&entry->attr);
		put_text(entry->link);
		putchar('\n');
	}
}

static void put_scan(const struct sbx_scan_reply *reply, size_t bytes)
{
	printf("scan %" PRId64 " %d complete %d bytes %zu\n", reply->clock_ns, reply->clock_has_ns,
	       reply->complete, bytes);
	for (guint i = 0; i < reply->places->len; i++)
		put_place(reply->places->pdata[i]);
}

/* MODE MAX_ENTRIES SINCE_NS DIRS_ONLY PATH... To be cleared, also after an error. */
static int scan_begin(char **word, struct sbx_scan_request *req)
{
	static const char *const modes[] = { "tree", "list", "since", "lstat" };
	struct sbx_scan_options options = { .max_entries = (unsigned)number(word[1]),
					    .since_ns = strtoll(word[2], NULL, 10),
					    .dirs_only = number(word[3]) != 0 };
	int error;

	for (unsigned i = 0; i < G_N_ELEMENTS(modes); i++) {
		if (strcmp(modes[i], word[0]) == 0)
			options.mode = (enum sbx_scan_mode)i;
	}
	error = sbx_scan_request_init(req, &options, &tools, &limits);
	for (word += 4; *word != NULL && error == 0; word++) {
		size_t len;

		error = sbx_scan_request_add(req, unescape(*word, &len));
	}
	return error;
}

static void survey_drop(void)
{
	if (survey != NULL)
		sbx_scan_request_clear(survey);
	g_clear_pointer(&survey, g_free);
}

static void do_survey(char **word)
{
	int error;

	survey_drop();
	survey = g_new0(struct sbx_scan_request, 1);
	error = scan_begin(word, survey);
	if (error < 0)
		put_error(error);
}

/* MAKE_DIR [BYTES]: the answer is cut to so many. */
static void do_probe(char **word)
{
	struct sbx_probe_options options = { .no_work_dir = number(word[0]) == 0,
					     .survey = survey };
	struct sbx_probe_request req;
	struct sbx_probe_reply *reply;
	g_autoptr(GString) out = NULL;
	int error = sbx_probe_request_init(&req, &options, &limits);

	if (error == 0) {
		out = run(sbx_program_request_argv(&req.program));
		if (word[1] != NULL)
			g_string_truncate(out, MIN(out->len, number(word[1])));
		error = sbx_probe_decode(&req, out->str, out->len, &reply);
	}
	sbx_probe_request_clear(&req);
	if (error < 0) {
		survey_drop();
		put_error(error);
		return;
	}
	tools = reply->tools;
	printf("tools %s\n", tools.word);
	printf("ids %u %u\n", reply->uid, reply->gid);
	printf("flags %d %d %d\n", reply->busybox, reply->work_dir, reply->statfs.known);
	printf("clock %" PRId64 " %d\n", reply->clock_ns, reply->clock_has_ns);
	printf("statfs %" PRIu64 " %" PRIu64 " %u\n", reply->statfs.block_bytes,
	       reply->statfs.blocks, reply->statfs.name_max);
	fputs("cwd", stdout);
	put_text(reply->cwd);
	putchar('\n');
	if (reply->survey != NULL)
		put_scan(reply->survey, 0);
	survey_drop();
	sbx_probe_reply_free(reply);
}

static void do_statfs(void)
{
	struct sbx_probe_request req;
	struct sbx_statfs found;
	g_autoptr(GString) out = NULL;
	int error = sbx_statfs_request_init(&req, &tools, &limits);

	if (error == 0) {
		out = run(sbx_program_request_argv(&req.program));
		error = sbx_statfs_decode(&req, out->str, out->len, &found);
	}
	sbx_probe_request_clear(&req);
	if (error < 0)
		put_error(error);
	else
		printf("statfs %" PRIu64 " %" PRIu64 " %u\n", found.block_bytes, found.blocks,
		       found.name_max);
}

static void do_scan(char **word)
{
	struct sbx_scan_request req;
	struct sbx_scan_reply *reply;
	g_autoptr(GString) out = NULL;
	int error = scan_begin(word, &req);

	if (error == 0) {
		out = run(sbx_program_request_argv(&req.program));
		error = sbx_scan_decode(&req, out->str, out->len, &reply);
	}
	if (error == 0) {
		put_scan(reply, out->len);
		sbx_scan_reply_free(reply);
	} else {
		put_error(error);
	}
	sbx_scan_request_clear(&req);
}

static void do_pack(char **word)
{
	struct sbx_pack_options options = { .max_bytes = number(word[0]),
					    .compress = number(word[1]) != 0,
					    .follow = number(word[2]) != 0 };
	struct sbx_pack_request req;
	struct sbx_pack_reply *reply;
	g_autoptr(GString) out = NULL;
	const char *const *argv = NULL;
	int error = sbx_pack_request_init(&req, &options, &tools, &limits);

	for (word += 3; *word != NULL && error >= 0; word += 3) {
		size_t len;
		uint64_t bytes = strcmp(word[2], "whole") == 0 ? SBX_PACK_WHOLE : number(word[2]);

		error = sbx_pack_request_add(&req, unescape(word[0], &len), number(word[1]), bytes);
	}
	if (error >= 0)
		argv = sbx_pack_request_argv(&req, &error);
	if (argv != NULL) {
		out = run(argv);
		error = sbx_pack_decode(&req, out->str, out->len, &reply);
	}
	if (error >= 0) {
		for (unsigned i = 0; i < reply->count; i++) {
			const struct sbx_pack_item *item = &reply->items[i];

			printf("item %d %d %d", item->error, item->stable, item->has_attr);
			put_attr(&item->before);
			put_word(item->data, item->len);
			putchar('\n');
		}
		sbx_pack_reply_free(reply);
	} else {
		put_error(error);
	}
	sbx_pack_request_clear(&req);
}

static void do_send(void)
{
	struct sbx_apply_reply *reply;
	g_autoptr(GString) out = NULL;
	const char *const *argv;
	int error = 0;

	/* Without room for it, or sent once more, the list goes as it is. */
	if (survey != NULL)
		(void)sbx_apply_survey(apply, survey);
	argv = sbx_apply_argv(apply, &error);
	if (argv != NULL) {
		out = run(argv);
		error = sbx_apply_decode(apply, out->str, out->len, &reply);
	}
	if (error < 0) {
		put_error(error);
		return;
	}
	printf("reply %d %d\n", reply->repeated, reply->not_kept);
	for (guint i = 0; i < reply->results->len; i++) {
		const struct sbx_apply_result *result =
			&g_array_index(reply->results, struct sbx_apply_result, i);

		printf("result %d %d %d", result->error, result->in_place, result->set_aside);
		put_text(result->text);
		printf(" %d\n", result->proven);
	}
	for (guint i = 0; i < reply->paths->len; i++) {
		const struct sbx_apply_path *path = reply->paths->pdata[i];

		fputs("path", stdout);
		put_text(path->path);
		printf(" %d", path->present);
		put_attr(&path->attr);
		put_text(path->link);
		putchar('\n');
	}
	if (reply->survey != NULL)
		put_scan(reply->survey, out->len);
	sbx_apply_reply_free(reply);
}

static int64_t time_word(const char *word)
{
	if (strcmp(word, "now") == 0)
		return SBX_TIME_NOW;
	if (strcmp(word, "omit") == 0)
		return SBX_TIME_OMIT;
	return strtoll(word, NULL, 10);
}

static const char *path_or_null(char *word)
{
	size_t len;

	return strcmp(word, "none") == 0 ? NULL : unescape(word, &len);
}

/* save PATH FLAGS MODE|keep ATIME MTIME HELD|none data BYTES, or stage PATH LENGTH */
static int add_save(char **word)
{
	struct sbx_apply_how how = {
		.flags = (unsigned)number(word[1]),
		.mode = strcmp(word[2], "keep") == 0 ? SBX_MODE_KEEP
						     : (uint32_t)strtoul(word[2], NULL, 8),
		.atime_ns = time_word(word[3]),
		.mtime_ns = time_word(word[4]),
		.held = path_or_null(word[5]),
	};
	struct sbx_apply_content content = { .data = NULL };
	size_t len;

	if (strcmp(word[6], "stage") == 0) {
		content.stage = unescape(word[7], &len);
		content.len = number(word[8]);
	} else {
		content.data = unescape(word[7], &len);
		content.len = len;
	}
	return sbx_apply_save(apply, unescape(word[0], &len), &content, &how);
}

/* patch PATH FLAGS then groups of five: KIND OFFSET BYTES|- STAGE|- STAGE_OFFSET:LENGTH */
static int add_patch(char **word)
{
	struct sbx_apply_piece pieces[256] = { 0 };
	unsigned count = 0;
	size_t len;

	for (char **group = word + 2; *group != NULL && count < 256; group += 5, count++) {
		struct sbx_apply_piece *piece = &pieces[count];

		piece->kind = strcmp(group[0], "write") == 0	? SBX_PIECE_WRITE
			      : strcmp(group[0], "append") == 0 ? SBX_PIECE_APPEND
								: SBX_PIECE_TRUNCATE;
		piece->offset = number(group[1]);
		if (strcmp(group[3], "-") != 0) {
			piece->content.stage = unescape(group[3], &len);
			piece->content.stage_offset = number(group[4]);
			piece->content.len = strtoull(strchr(group[4], ':') + 1, NULL, 10);
		} else {
			piece->content.data = unescape(group[2], &len);
			piece->content.len = len;
		}
	}
	return sbx_apply_patch(apply, unescape(word[0], &len), pieces, count,
			       (unsigned)number(word[1]));
}

/* VERB PATH FLAGS ARG...; the operation's index or a negative errno. */
static int add_operation(const char *verb, char **word)
{
	size_t len;
	char *path;
	unsigned flags;

	if (strcmp(verb, "save") == 0)
		return add_save(word);
	if (strcmp(verb, "patch") == 0)
		return add_patch(word);
	path = unescape(word[0], &len);
	flags = (unsigned)number(word[1]);
	word += 2;
	if (strcmp(verb, "mkdir") == 0)
		return sbx_apply_mkdir(apply, path, (uint32_t)strtoul(word[0], NULL, 8), flags);
	if (strcmp(verb, "rmdir") == 0)
		return sbx_apply_rmdir(apply, path, flags);
	if (strcmp(verb, "unlink") == 0)
		return sbx_apply_unlink(apply, path, path_or_null(word[0]), flags);
	if (strcmp(verb, "rename") == 0)
		return sbx_apply_rename(apply, path, unescape(word[0], &len), path_or_null(word[1]),
					flags);
	if (strcmp(verb, "link") == 0)
		return sbx_apply_link(apply, path, unescape(word[0], &len), flags);
	if (strcmp(verb, "symlink") == 0)
		return sbx_apply_symlink(apply, unescape(word[0], &len), path, flags);
	if (strcmp(verb, "chmod") == 0)
		return sbx_apply_chmod(apply, path, (uint32_t)strtoul(word[0], NULL, 8), flags);
	if (strcmp(verb, "utimens") == 0)
		return sbx_apply_utimens(apply, path, time_word(word[0]), time_word(word[1]),
					 flags);
	if (strcmp(verb, "truncate") == 0)
		return sbx_apply_truncate(apply, path, number(word[0]), flags);
	if (strcmp(verb, "extend") == 0)
		return sbx_apply_extend(apply, path, number(word[0]), flags);
	if (strcmp(verb, "create") == 0)
		return sbx_apply_create(apply, path, (uint32_t)strtoul(word[0], NULL, 8), flags);
	if (strcmp(verb, "expect") == 0)
		return sbx_apply_expect(apply, path, number(word[0]), number(word[1]), flags);
	if (strcmp(verb, "sweep") == 0)
		return sbx_apply_sweep(apply, path, (unsigned)number(word[0]),
				       path_or_null(word[1]), flags);
	if (strcmp(verb, "void") == 0)
		return sbx_apply_void(apply, path, flags);
	if (strcmp(verb, "copy") == 0)
		return sbx_apply_copy(
			apply, path, number(word[0]), unescape(word[1], &len), number(word[2]),
			strcmp(word[3], "whole") == 0 ? SBX_COPY_WHOLE : number(word[3]), flags);
	return -ENOSYS;
}

/* NAME ARG...: a program whose answer is sections only. Arguments are spelled here. */
static void do_program(char **word)
{
	static const struct {
		const char *name;
		enum sbx_program program;
	} programs[] = {
		{ "restore", SBX_PROGRAM_RESTORE },
		{ "digest", SBX_PROGRAM_DIGEST },
		{ "mktar", SBX_PROGRAM_MKTAR },
	};
	struct sbx_program_answer answer = { 0 };
	struct sbx_program_request req;
	g_autoptr(GString) out = NULL;
	size_t which = 0;
	int error;

	while (which + 1 < G_N_ELEMENTS(programs) && strcmp(programs[which].name, word[0]) != 0)
		which++;
	error = sbx_program_request_init(&req, programs[which].program, &tools, &limits);
	for (word++; error == 0 && *word != NULL; word++) {
		size_t len;
		char *bytes = unescape(*word, &len);

		error = sbx_program_request_take(&req, sbx_program_spell(bytes, len));
	}
	if (error == 0) {
		out = run(sbx_program_request_argv(&req));
		error = sbx_program_unframe(out->str, out->len, req.nonce, 64 << 20, &answer);
	}
	if (error < 0) {
		put_error(error);
	} else {
		for (unsigned i = 0; i < answer.sections; i++) {
			fputs("section", stdout);
			put_word(answer.section[i]->data, answer.section[i]->len);
			putchar('\n');
		}
		sbx_program_answer_clear(&answer);
	}
	sbx_program_request_clear(&req);
}

static void command(char **word)
{
	if (strcmp(word[0], "probe") == 0) {
		do_probe(word + 1);
	} else if (strcmp(word[0], "statfs") == 0) {
		do_statfs();
	} else if (strcmp(word[0], "tools") == 0) {
		g_strlcpy(tools.word, word[1], sizeof(tools.word));
	} else if (strcmp(word[0], "limits") == 0) {
		limits.arg_bytes = number(word[1]);
		limits.command_bytes = number(word[2]);
		limits.reply_bytes = number(word[3]);
	} else if (strcmp(word[0], "scan") == 0) {
		do_scan(word + 1);
	} else if (strcmp(word[0], "pack") == 0) {
		do_pack(word + 1);
	} else if (strcmp(word[0], "survey") == 0) {
		do_survey(word + 1);
	} else if (strcmp(word[0], "begin") == 0) {
		sbx_apply_free(apply);
		survey_drop();
		apply = sbx_apply_new(&tools, &limits, strcmp(word[1], "-") != 0 ? word[1] : NULL);
	} else if (strcmp(word[0], "send") == 0) {
		do_send();
	} else if (strcmp(word[0], "program") == 0) {
		do_program(word + 1);
	} else {
		printf("index %d\n", add_operation(word[0], word + 1));
	}
	puts(".");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	if (argc != 3)
		return 1;
	tool_path = argv[1];
	workspace = argv[2];
	sbx_program_limits_init(&limits);
	while ((len = getline(&line, &size, stdin)) > 0) {
		g_auto(GStrv) words = NULL;

		line[len - 1] = '\0';
		words = g_strsplit(line, " ", -1);
		command(words);
	}
	free(line);
	sbx_apply_free(apply);
	return 0;
}
