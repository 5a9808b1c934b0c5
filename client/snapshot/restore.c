#include "client/snapshot/restore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/probe.h"
#include "client/program.h"
#include "client/provider.h"
#include "client/snapshot/receipt.h"
#include "client/snapshot/tarball.h"
#include "client/workspace/names.h"

/* Setting the times of thousands of files takes the sandbox a while. */
#define STEP_TIMEOUT_MS	  120000
#define DIGEST_TIMEOUT_MS 600000
/* Paths that one chmod or touch is given. */
#define GROUP_MAX	 200
#define STEPS_MAX	 2000
#define DIGEST_MAX	 1000
#define ANSWER_BYTES_MAX (32u << 20)

/* A step as its words, spelled: verb, and what goes with it. */
struct step {
	char verb; /* 'd', 'n', 'l', 'h', 's', 'u', 'r', 'm', 't' */
	char *value; /* of m, t, d: the mode or stamp; of n, l, h, s: the first path or text */
	char *path; /* spelled */
	char *compared[2]; /* of s: both paths as they are */
};

struct sbx_restore {
	GPtrArray *steps;
	GPtrArray *modes;
	GPtrArray *times;
};

static void step_free(void *arg)
{
	struct step *step = arg;

	g_free(step->value);
	g_free(step->path);
	g_free(step->compared[0]);
	g_free(step->compared[1]);
	g_free(step);
}

struct sbx_restore *sbx_restore_new(void)
{
	struct sbx_restore *restore = g_new0(struct sbx_restore, 1);

	restore->steps = g_ptr_array_new_with_free_func(step_free);
	restore->modes = g_ptr_array_new_with_free_func(step_free);
	restore->times = g_ptr_array_new_with_free_func(step_free);
	return restore;
}

void sbx_restore_free(struct sbx_restore *restore)
{
	if (!restore)
		return;
	g_ptr_array_unref(restore->steps);
	g_ptr_array_unref(restore->modes);
	g_ptr_array_unref(restore->times);
	g_free(restore);
}

/* A path that has no form we take is left out (NULL): who compares afterwards finds it missing. */
static struct step *add_step(GPtrArray *steps, char verb, char *value, const char *path)
{
	char *spelled = sbx_program_spell_path(path, NULL);
	struct step *step;

	if (!spelled || !value) {
		g_free(spelled);
		g_free(value);
		return NULL;
	}
	step = g_new0(struct step, 1);
	step->verb = verb;
	step->value = value;
	step->path = spelled;
	g_ptr_array_add(steps, step);
	return step;
}

void sbx_restore_mkdir(struct sbx_restore *restore, const char *path)
{
	add_step(restore->steps, 'd', g_strdup("-"), path);
}

void sbx_restore_move(struct sbx_restore *restore, const char *from, const char *path)
{
	add_step(restore->steps, 'n', sbx_program_spell_path(from, NULL), path);
}

void sbx_restore_symlink(struct sbx_restore *restore, const char *text, const char *path)
{
	add_step(restore->steps, 'l', sbx_program_spell(text, strlen(text)), path);
}

void sbx_restore_hardlink(struct sbx_restore *restore, const char *first, const char *path)
{
	add_step(restore->steps, 'h', sbx_program_spell_path(first, NULL), path);
}

void sbx_restore_same(struct sbx_restore *restore, const char *first, const char *path)
{
	struct step *step =
		add_step(restore->steps, 's', sbx_program_spell_path(first, NULL), path);

	if (!step)
		return;
	step->compared[0] = g_strdup(first);
	step->compared[1] = g_strdup(path);
}

void sbx_restore_unlink(struct sbx_restore *restore, const char *path)
{
	add_step(restore->steps, 'u', g_strdup(""), path);
}

void sbx_restore_rmdir(struct sbx_restore *restore, const char *path)
{
	add_step(restore->steps, 'r', g_strdup(""), path);
}

void sbx_restore_mode(struct sbx_restore *restore, const char *path, mode_t mode)
{
	add_step(restore->modes, 'm', g_strdup_printf("%o", (unsigned int)(mode & 07777)), path);
}

void sbx_restore_mtime(struct sbx_restore *restore, const char *path, int64_t mtime_ns)
{
	int64_t seconds = mtime_ns / 1000000000, rest = mtime_ns % 1000000000;

	if (rest < 0) {
		rest += 1000000000;
		seconds--;
	}
	add_step(restore->times, 't',
		 rest ? g_strdup_printf("@%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT, seconds, rest)
		      : g_strdup_printf("@%" G_GINT64_FORMAT, seconds),
		 path);
}

size_t sbx_restore_count(const struct sbx_restore *restore)
{
	return restore->steps->len + restore->modes->len + restore->times->len;
}

static int begin(struct sbx_names *names, const struct sbx_probe_reply *probe,
		 enum sbx_program which, struct sbx_program_request *ret_request)
{
	struct sbx_program_limits limits;

	sbx_names_limits(names, &limits);
	return sbx_program_request_init(ret_request, which, &probe->tools, &limits);
}

/* Run it and take its one section. @request is cleared. */
static int run(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
	       struct sbx_program_request *request, GByteArray **ret_section)
{
	struct sbx_program_answer answer = { 0 };
	struct sbx_exec_result result = { 0 };
	int r;

	r = sbx_names_run(names, call, timeout_ms, sbx_program_request_argv(request), true,
			  &result);
	if (r == 0) {
		r = sbx_program_unframe(result.out, result.out_len, request->nonce,
					ANSWER_BYTES_MAX, &answer);
		if (r == 0 && answer.sections != 1)
			r = -EBADMSG;
		if (r == 0)
			*ret_section = g_byte_array_ref(answer.section[0]);
		else
			r = sbx_names_bad_answer(names, "restore", r, &result);
		sbx_program_answer_clear(&answer);
		sbx_exec_result_clear(&result);
	}
	sbx_program_request_clear(request);
	return r;
}

static bool verb_is_grouped(char verb)
{
	return strchr("mtur", verb) != NULL;
}

/*
 * Add steps from @at on to @request as long as they fit; how many were added. Those of one verb and
 * value that follow each other share one command.
 */
static guint add_group(struct sbx_program_request *request, const GPtrArray *steps, guint at)
{
	const struct step *first = g_ptr_array_index(steps, at);
	char verb[2] = { first->verb, '\0' };
	size_t bytes = 64 + strlen(first->value);
	guint n = 0;
	int r;

	if (!verb_is_grouped(first->verb)) {
		/* All three words or none: asked for their room first. */
		if (request->command_bytes + bytes + strlen(first->path) >
		    request->limits.command_bytes)
			return 0;
		r = sbx_program_request_add(request, verb);
		r = r < 0 ? r : sbx_program_request_add(request, first->value);
		r = r < 0 ? r : sbx_program_request_add(request, first->path);
		return r < 0 ? 0 : 1;
	}
	while (at + n < steps->len && n < GROUP_MAX) {
		const struct step *step = g_ptr_array_index(steps, at + n);

		if (step->verb != first->verb || strcmp(step->value, first->value) != 0)
			break;
		if (request->command_bytes + bytes + strlen(step->path) + 16 >
		    request->limits.command_bytes)
			break;
		bytes += strlen(step->path) + 16;
		n++;
	}
	if (!n)
		return 0;
	r = sbx_program_request_add(request, verb);
	if (r == 0 && first->verb != 'u' && first->verb != 'r')
		r = sbx_program_request_add(request, first->value);
	if (r == 0)
		r = sbx_program_request_addf(request, "%u", n);
	for (guint i = 0; r == 0 && i < n; i++)
		r = sbx_program_request_add(
			request, ((struct step *)g_ptr_array_index(steps, at + i))->path);
	return r < 0 ? 0 : n;
}

/* "FAILED\0" and for each step of @first.. that found files unlike its number among those that
 * compare. */
static int take_outcome(const GByteArray *section, struct step *const *first, guint n,
			unsigned int *failed, GHashTable *unlike)
{
	const char *at = (const char *)section->data, *end = at + section->len;
	g_autoptr(GPtrArray) compared = g_ptr_array_new();

	if (!section->len || end[-1])
		return -EIO;
	for (guint i = 0; i < n; i++)
		if (first[i]->verb == 's')
			g_ptr_array_add(compared, first[i]);
	*failed += (unsigned int)strtoul(at, NULL, 10);
	for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) {
		unsigned long number = strtoul(at, NULL, 10);
		struct step *step;

		if (number >= compared->len)
			return -EIO;
		step = g_ptr_array_index(compared, number);
		for (int i = 0; unlike && i < 2; i++)
			g_hash_table_add(unlike, g_strdup(step->compared[i]));
	}
	return 0;
}

static int run_steps(struct sbx_names *names, const struct sbx_call *call,
		     const struct sbx_probe_reply *probe, const GPtrArray *steps,
		     unsigned int *failed, GHashTable *unlike)
{
	guint at = 0;

	while (at < steps->len) {
		struct sbx_program_request request;
		GByteArray *section = NULL;
		guint in_request = 0, n;
		int r;

		r = begin(names, probe, SBX_PROGRAM_RESTORE, &request);
		while (r == 0 && at < steps->len && in_request < STEPS_MAX &&
		       (n = add_group(&request, steps, at)) > 0) {
			at += n;
			in_request += n;
		}
		if (r < 0 || !in_request) {
			sbx_program_request_clear(&request);
			return r < 0 ? r : -E2BIG;
		}
		r = run(names, call, STEP_TIMEOUT_MS, &request, &section);
		if (r < 0)
			return r;
		r = take_outcome(section, (struct step *const *)steps->pdata + at - in_request,
				 in_request, failed, unlike);
		g_byte_array_unref(section);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Equal values side by side, so that one command serves many; a stable order within. */
static int group_compare(const void *a, const void *b)
{
	const struct step *x = *(struct step *const *)a, *y = *(struct step *const *)b;

	return strcmp(x->value, y->value);
}

int sbx_restore_run(struct sbx_restore *restore, struct sbx_names *names,
		    const struct sbx_call *call, unsigned int *ret_failed, GHashTable *unlike)
{
	const struct sbx_probe_reply *probe;
	unsigned int failed = 0;
	int r;

	r = sbx_names_probe(names, call, &probe);
	if (r == 0)
		r = run_steps(names, call, probe, restore->steps, &failed, unlike);
	/* Tools that know whole seconds only take no fraction. */
	for (guint i = 0; r == 0 && !probe->touch_ns && i < restore->times->len; i++) {
		struct step *step = g_ptr_array_index(restore->times, i);

		step->value[strcspn(step->value, ".")] = '\0';
	}
	g_ptr_array_sort(restore->times, group_compare);
	/* Modes last: they may take away the way to what is below. */
	if (r == 0)
		r = run_steps(names, call, probe, restore->times, &failed, NULL);
	if (r == 0)
		r = run_steps(names, call, probe, restore->modes, &failed, NULL);
	if (r == 0 && ret_failed)
		*ret_failed = failed;
	return r;
}

/* Digests ------------------------------------------------------------------------------------- */

static void take_sum(GHashTable *sums, const char *path, const char *hex)
{
	uint8_t *bytes = g_malloc(SBX_SHA256_BYTES);

	if (sbx_sha256_parse(hex, bytes))
		g_hash_table_replace(sums, g_strdup(path), bytes);
	else
		g_free(bytes);
}

/* "HEX  ./NAME\n"… NUL, then a line for each of @odd in their order. */
static int digest_decode(const GByteArray *section, const GPtrArray *odd, GHashTable *sums)
{
	g_autofree char *text = g_strndup((const char *)section->data, section->len);
	const char *nul = memchr(section->data, '\0', section->len);
	g_autofree char *rest = NULL;
	g_auto(GStrv) plain_lines = NULL;
	g_auto(GStrv) odd_lines = NULL;
	const size_t name_at = 2 * SBX_SHA256_BYTES + strlen("  ./");

	if (!nul)
		return -EBADMSG;
	plain_lines = g_strsplit(text, "\n", -1);
	for (char **line = plain_lines; *line; line++)
		if (strlen(*line) > name_at && g_str_has_prefix(*line + name_at - 2, "./"))
			take_sum(sums, *line + name_at, *line);
	rest = g_strndup(nul + 1, section->len - (gsize)(nul + 1 - (const char *)section->data));
	odd_lines = g_strsplit(rest, "\n", -1);
	if (g_strv_length(odd_lines) < odd->len)
		return -EBADMSG;
	for (guint i = 0; i < odd->len; i++)
		take_sum(sums, g_ptr_array_index(odd, i), odd_lines[i]);
	return 0;
}

int sbx_digest_files(struct sbx_names *names, const struct sbx_call *call, GPtrArray *paths,
		     void (*progress)(void *arg, uint64_t files), void *arg, GHashTable **ret_sums)
{
	GHashTable *sums = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	const struct sbx_probe_reply *probe;
	guint at = 0;
	int r;

	r = sbx_names_probe(names, call, &probe);
	if (r == 0 && !probe->sha256sum)
		r = -EOPNOTSUPP;
	while (r == 0 && at < paths->len) {
		g_autoptr(GPtrArray) plain = g_ptr_array_new();
		g_autoptr(GPtrArray) odd = g_ptr_array_new();
		struct sbx_program_request request;
		GByteArray *section = NULL;
		size_t bytes = 0;

		r = begin(names, probe, SBX_PROGRAM_DIGEST, &request);
		while (r == 0 && at < paths->len && plain->len + odd->len < DIGEST_MAX) {
			char *path = g_ptr_array_index(paths, at);

			/* Spelled, a byte may become four. */
			bytes += 4 * strlen(path) + 16;
			if (request.command_bytes + bytes > request.limits.command_bytes)
				break;
			g_ptr_array_add(strpbrk(path, "\n\\\r") ? odd : plain, path);
			at++;
		}
		if (r == 0 && !plain->len && !odd->len)
			r = -E2BIG;
		if (r == 0)
			r = sbx_program_request_addf(&request, "%u", plain->len);
		for (guint i = 0; r == 0 && i < plain->len; i++)
			r = sbx_program_request_add_path(&request, g_ptr_array_index(plain, i));
		for (guint i = 0; r == 0 && i < odd->len; i++)
			r = sbx_program_request_add_path(&request, g_ptr_array_index(odd, i));
		if (r < 0) {
			sbx_program_request_clear(&request);
			break;
		}
		r = run(names, call, DIGEST_TIMEOUT_MS, &request, &section);
		if (r == 0) {
			r = digest_decode(section, odd, sums);
			g_byte_array_unref(section);
		}
		if (progress)
			progress(arg, at);
	}
	if (r < 0) {
		g_hash_table_destroy(sums);
		return r == -EBADMSG ? -EIO : r;
	}
	*ret_sums = sums;
	return 0;
}
