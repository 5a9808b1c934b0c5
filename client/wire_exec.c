#include "client/wire_exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#define EXEC_ARG_MAX	    131071
#define EXEC_ARGS_TOTAL_MAX 2000000
#define EXEC_TIMEOUT_MIN_MS 1000
#define EXEC_TIMEOUT_MAX_MS INT32_MAX

void sbx_exec_result_clear(struct sbx_exec_result *result)
{
	free(result->out);
	free(result->err);
	memset(result, 0, sizeof(*result));
}

static int add_argument(struct sbx_json *array, const char *text, size_t *total)
{
	size_t len = strlen(text);

	/* As execve(2) counts: the bytes, their NUL and a pointer. */
	*total += len + 1 + sizeof(char *);
	if (len > EXEC_ARG_MAX || *total > EXEC_ARGS_TOTAL_MAX)
		return -E2BIG;
	return sbx_json_append_string(array, text);
}

static int add_variable(struct sbx_json *object, const char *text, size_t *total)
{
	const char *equals = strchr(text, '=');
	size_t len = strlen(text);
	g_autofree char *name = NULL;

	if (equals == NULL || equals == text)
		return -EINVAL;
	*total += len + 1 + sizeof(char *);
	if (len > EXEC_ARG_MAX || *total > EXEC_ARGS_TOTAL_MAX)
		return -E2BIG;
	name = g_strndup(text, (gsize)(equals - text));
	return sbx_json_set_string(object, name, equals + 1);
}

int wire_exec_body(const struct sbx_exec_spec *spec, char **ret_text)
{
	struct sbx_json *object = sbx_json_new_object();
	struct sbx_json *argv = sbx_json_new_array();
	struct sbx_json *env = NULL;
	size_t total = 0;
	char *text;
	int r = 0;

	if (object == NULL || argv == NULL)
		r = -ENOMEM;
	else if (spec->argv[0] == NULL || spec->argv[0][0] == '\0' ||
		 (spec->timeout_ms != 0 && (spec->timeout_ms < EXEC_TIMEOUT_MIN_MS ||
					    spec->timeout_ms > EXEC_TIMEOUT_MAX_MS)))
		r = -EINVAL;
	for (size_t i = 0; r == 0 && spec->argv[i] != NULL; i++)
		r = add_argument(argv, spec->argv[i], &total);
	if (r == 0) {
		r = sbx_json_set_node(object, "argv", argv);
		argv = NULL;
	}
	if (r == 0 && spec->cwd != NULL)
		r = sbx_json_set_string(object, "cwd", spec->cwd);
	if (r == 0 && spec->env != NULL) {
		env = sbx_json_new_object();
		r = env != NULL ? 0 : -ENOMEM;
		for (size_t i = 0; r == 0 && spec->env[i] != NULL; i++)
			r = add_variable(env, spec->env[i], &total);
		if (r == 0) {
			r = sbx_json_set_node(object, "env", env);
			env = NULL;
		}
	}
	if (r == 0 && spec->timeout_ms != 0)
		r = sbx_json_set_int(object, "timeoutMs", spec->timeout_ms);
	if (r == 0) {
		text = sbx_json_print(object, false);
		if (text == NULL)
			r = -ENOMEM;
		else
			*ret_text = text;
	}
	sbx_json_free(env);
	sbx_json_free(argv);
	sbx_json_free(object);
	return r;
}

static bool signal_valid(const char *name)
{
	for (const char *c = name; *c != '\0'; c++) {
		if (!g_ascii_isupper(*c) && !g_ascii_isdigit(*c))
			return false;
	}
	return *name != '\0';
}

int wire_exec_read(const char *text, size_t len, struct sbx_exec_result *ret_result)
{
	struct sbx_exec_result result = { 0 };
	struct sbx_json *object;
	const char *signal_name;
	int64_t code;
	int r;

	r = sbx_json_parse(text != NULL ? text : "", len, SBX_JSON_VALUES_DEFAULT, &object);
	if (r < 0)
		return r;
	if (!sbx_json_member_is_null(object, "exitCode")) {
		r = sbx_json_get_int(object, "exitCode", INT32_MIN, INT32_MAX, &code);
		if (r < 0)
			goto out;
		result.has_exit = true;
		result.exit_code = (int)code;
	}
	if (!sbx_json_member_is_null(object, "signal")) {
		r = sbx_json_get_string(object, "signal", sizeof(result.signal) - 1, &signal_name);
		if (r == 0 && !signal_valid(signal_name))
			r = -EBADMSG;
		if (r < 0)
			goto out;
		g_strlcpy(result.signal, signal_name, sizeof(result.signal));
	}
	r = sbx_json_get_bool(object, "timedOut", &result.timed_out);
	if (r < 0 && r != -ENOENT)
		goto out;
	r = sbx_json_steal_bytes(object, "stdout", &result.out, &result.out_len);
	if (r == 0)
		r = sbx_json_steal_bytes(object, "stderr", &result.err, &result.err_len);
out:
	sbx_json_free(object);
	if (r < 0)
		sbx_exec_result_clear(&result);
	else
		*ret_result = result;
	return r;
}
