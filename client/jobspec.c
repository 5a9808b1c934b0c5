#include "client/jobspec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "client/json.h"

#define TEXT_MAX    (1 << 20)
#define VALUES_MAX  4096
#define TIMEOUT_MAX (100.0 * 365 * 86400)

void sbx_jobspec_free(struct sbx_jobspec *spec)
{
	if (!spec)
		return;
	g_free(spec->command);
	g_free(spec->cwd);
	g_strfreev(spec->env);
	g_free(spec->process_name);
	g_free(spec->id);
	g_free(spec);
}

static bool is_nothing(const char *line, size_t len)
{
	size_t i = 0;

	while (i < len && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r'))
		i++;
	return i == len || line[i] == '#';
}

/* Leave out the lines around the command that say nothing. */
static void trim_lines(const char **text, size_t *len)
{
	const char *at = *text, *end = at + *len;

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *line_end = newline ? newline : end;

		if (!is_nothing(at, (size_t)(line_end - at)))
			break;
		at = newline ? newline + 1 : end;
	}
	while (at < end) {
		const char *stop = end[-1] == '\n' ? end - 1 : end;
		const char *newline = memrchr(at, '\n', (size_t)(stop - at));
		const char *line = newline ? newline + 1 : at;

		if (!is_nothing(line, (size_t)(stop - line))) {
			end = stop;
			break;
		}
		end = line;
	}
	*text = at;
	*len = (size_t)(end - at);
}

static char *without_cr(const char *text, size_t len)
{
	GString *out = g_string_sized_new(len + 1);

	for (size_t i = 0; i < len; i++)
		if (text[i] != '\r' || (i + 1 < len && text[i + 1] != '\n'))
			g_string_append_c(out, text[i]);
	return g_string_free(out, FALSE);
}

static bool looks_like_json(const char *text)
{
	if (*text != '{')
		return false;
	text += 1 + strspn(text + 1, " \t\r\n");
	return *text == '"' || *text == '}';
}

/* A member that may be missing or null. */
static int take_string(const struct sbx_json *object, const char *key, char **ret_text)
{
	const char *text;
	int r;

	if (sbx_json_member_is_null(object, key))
		return 0;
	r = sbx_json_get_string(object, key, TEXT_MAX, &text);
	if (r == 0)
		*ret_text = g_strdup(text);
	return r == -ENOENT ? 0 : r;
}

static int take_env(const struct sbx_json *object, char ***ret_env)
{
	const struct sbx_json *env = sbx_json_member(object, "env"), *each;
	GPtrArray *list;
	int r = 0;

	if (!env || sbx_json_member_is_null(object, "env"))
		return 0;
	if (!sbx_json_is_object(env))
		return -EBADMSG;
	list = g_ptr_array_new_with_free_func(g_free);
	for (each = sbx_json_first(env); each && r == 0; each = sbx_json_next(each)) {
		const char *value;

		r = sbx_json_string(each, TEXT_MAX, &value);
		if (r == 0 && strchr(sbx_json_key(each), '='))
			r = -EBADMSG;
		if (r == 0)
			g_ptr_array_add(list, g_strconcat(sbx_json_key(each), "=", value, NULL));
	}
	if (r < 0) {
		g_ptr_array_unref(list);
		return r;
	}
	g_ptr_array_add(list, NULL);
	*ret_env = (char **)g_ptr_array_free(list, FALSE);
	return 0;
}

/* Whole seconds, a part of one counted as one. */
static int take_timeout(const struct sbx_json *object, int64_t *ret_seconds)
{
	double seconds;
	int r;

	if (sbx_json_member_is_null(object, "timeoutSeconds"))
		return 0;
	r = sbx_json_get_double(object, "timeoutSeconds", &seconds);
	if (r == -ENOENT)
		return 0;
	if (r == 0 && !(seconds >= 0 && seconds <= TIMEOUT_MAX))
		r = -ERANGE;
	if (r == 0)
		*ret_seconds = (int64_t)seconds + ((double)(int64_t)seconds < seconds);
	return r;
}

static int take_object(const struct sbx_json *object, struct sbx_jobspec *spec)
{
	static const char *const known[] = { "command",	    "cwd", "env", "timeoutSeconds",
					     "processName", "id",  NULL };
	const struct sbx_json *each;
	int r;

	for (each = sbx_json_first(object); each; each = sbx_json_next(each))
		if (!g_strv_contains(known, sbx_json_key(each)))
			return -EINVAL;
	r = take_string(object, "command", &spec->command);
	if (r == 0)
		r = take_string(object, "cwd", &spec->cwd);
	if (r == 0)
		r = take_string(object, "processName", &spec->process_name);
	if (r == 0)
		r = take_string(object, "id", &spec->id);
	if (r == 0)
		r = take_env(object, &spec->env);
	if (r == 0)
		r = take_timeout(object, &spec->spec.timeout_s);
	if (r == 0 && (!spec->command || !spec->command[0]))
		r = -EINVAL;
	return r;
}

int sbx_jobspec_parse(const char *text, size_t len, struct sbx_jobspec **ret_spec)
{
	struct sbx_jobspec *spec;
	struct sbx_json *object = NULL;
	int r = 0;

	trim_lines(&text, &len);
	if (len == 0) {
		*ret_spec = NULL;
		return 0;
	}
	if (len > TEXT_MAX || memchr(text, '\0', len))
		return -EINVAL;
	spec = g_new0(struct sbx_jobspec, 1);
	spec->command = without_cr(text, len);
	text = spec->command + strspn(spec->command, " \t\r\n");
	if (looks_like_json(text)) {
		r = sbx_json_parse(text, strlen(text), VALUES_MAX, &object);
		if (r == 0 && !sbx_json_is_object(object))
			r = -EINVAL;
		g_clear_pointer(&spec->command, g_free);
		if (r == 0)
			r = take_object(object, spec);
		sbx_json_free(object);
	}
	if (r < 0) {
		sbx_jobspec_free(spec);
		return r == -ENOMEM ? r : -EINVAL;
	}
	spec->spec.command = spec->command;
	spec->spec.command_len = strlen(spec->command);
	spec->spec.cwd = spec->cwd && spec->cwd[0] ? spec->cwd : NULL;
	spec->spec.env = (const char *const *)spec->env;
	spec->spec.process_name = spec->process_name;
	spec->spec.id = spec->id;
	*ret_spec = spec;
	return 0;
}

static int put_env(struct sbx_json *object, const char *const *env)
{
	struct sbx_json *members = sbx_json_new_object();
	int r = members ? 0 : -ENOMEM;

	for (; r == 0 && *env; env++) {
		const char *equals = strchr(*env, '=');
		g_autofree char *name = equals ? g_strndup(*env, (size_t)(equals - *env)) : NULL;

		r = equals ? sbx_json_set_string(members, name, equals + 1) : -EINVAL;
	}
	if (r < 0) {
		sbx_json_free(members);
		return r;
	}
	return sbx_json_set_node(object, "env", members);
}

int sbx_jobspec_print(const struct sbx_job_spec *spec, char **ret_text)
{
	struct sbx_json *object = sbx_json_new_object();
	g_autofree char *command = g_strndup(spec->command, spec->command_len);
	char *text = NULL;
	int r = object ? 0 : -ENOMEM;

	if (r == 0)
		r = sbx_json_set_string(object, "command", command);
	if (r == 0 && spec->cwd)
		r = sbx_json_set_string(object, "cwd", spec->cwd);
	if (r == 0 && spec->env)
		r = put_env(object, spec->env);
	if (r == 0 && spec->timeout_s)
		r = sbx_json_set_int(object, "timeoutSeconds", spec->timeout_s);
	if (r == 0 && spec->process_name)
		r = sbx_json_set_string(object, "processName", spec->process_name);
	if (r == 0 && spec->id)
		r = sbx_json_set_string(object, "id", spec->id);
	if (r == 0) {
		text = sbx_json_print(object, false);
		r = text ? 0 : -ENOMEM;
	}
	if (r == 0)
		*ret_text = g_strconcat(text, "\n", NULL);
	free(text);
	sbx_json_free(object);
	return r;
}

/* What no shell takes for anything but itself. */
static bool is_plain(const char *word)
{
	return *word && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					  "0123456789@%+:,./_-")] == '\0';
}

static bool is_reserved(const char *word)
{
	static const char *const words[] = { "if",   "then",   "else", "elif",	   "fi",
					     "do",   "done",   "case", "esac",	   "while",
					     "for",  "until",  "in",   "function", "select",
					     "time", "coproc", NULL };

	return g_strv_contains(words, word);
}

static void quote_word(GString *out, const char *word)
{
	bool is_text = g_utf8_validate(word, -1, NULL);

	g_string_append_c(out, '\'');
	for (const char *at = word; *at; at++) {
		if (*at == '\'')
			g_string_append(out, "'\\''");
		else if (!is_text && (unsigned char)*at >= 0x80)
			g_string_append_printf(out, "'\"$(printf '\\%03o')\"'",
					       (unsigned int)(unsigned char)*at);
		else
			g_string_append_c(out, *at);
	}
	g_string_append_c(out, '\'');
}

char *sbx_jobspec_quote(const char *const *argv)
{
	GString *out = g_string_new(NULL);

	for (size_t i = 0; argv[i]; i++) {
		if (i)
			g_string_append_c(out, ' ');
		if (is_plain(argv[i]) && (i || !is_reserved(argv[i])))
			g_string_append(out, argv[i]);
		else
			quote_word(out, argv[i]);
	}
	return g_string_free(out, FALSE);
}
