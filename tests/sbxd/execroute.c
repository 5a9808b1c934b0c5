#include "tests/sbxd/execroute.h"
#include "tests/sbxd/clockskew.h"
#include "tests/sbxd/command.h"
#include "tests/sbxd/errtext.h"
#include "tests/sbxd/fsroutes.h"
#include "tests/sbxd/jail.h"
#include "tests/sbxd/json.h"
#include "tests/sbxd/pathcheck.h"
#include "tests/sbxd/pool.h"
#include "tests/sbxd/routes.h"
#include "tests/sbxd/tools.h"
#include "tests/sbxd/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BASE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* V8's longest string: a longer answer can't be built. */
#define ANSWER_LIMIT ((1u << 29) - 24)
/* Timers take 31 bits; more fires at once. */
#define TIMER_LIMIT_MS	  2147483647.0
#define LOG_PROGRAM_CHARS 60
/* About where the reference server's jail runs out of stack, spreading the arguments. */
#define JAIL_ARGUMENT_LIMIT 120000

struct job {
	GPtrArray *argv; /* NULL-terminated once complete */
	GPtrArray *env;
	char *cwd; /* host: on this machine; overlay: in the jail */
	int64_t timeout_ms;
};

static void job_clear(struct job *job)
{
	if (job->argv)
		g_ptr_array_free(job->argv, TRUE);
	if (job->env)
		g_ptr_array_free(job->env, TRUE);
	g_free(job->cwd);
}

static void refuse(struct exchange *x, const char *message)
{
	reply_error(&x->reply, 500, "internal_error", message);
}

/* String(value) as a C string; false when a NUL in it makes that impossible. */
static bool as_c_string(const struct json *value, char **ret_text)
{
	GString *text = g_string_new(NULL);
	bool good;

	json_append_as_text(text, value);
	good = !memchr(text->str, '\0', text->len);
	*ret_text = g_string_free(text, !good);
	return good;
}

static bool take_argv(struct exchange *x, const struct json *argv, struct job *job)
{
	job->argv = g_ptr_array_new_with_free_func(g_free);
	if (x->session->profile == PROFILE_OVERLAY && argv->items->len > JAIL_ARGUMENT_LIMIT) {
		refuse(x, "Maximum call stack size exceeded");
		return false;
	}
	for (guint i = 0; i < argv->items->len; i++) {
		const struct json *item = argv->items->pdata[i];
		char *text;

		if (i == 0 && item->kind != JSON_STRING && x->session->profile == PROFILE_HOST) {
			refuse(x, "The \"file\" argument must be of type string.");
			return false;
		}
		if (i == 0 && item->kind == JSON_STRING && item->string->len == 0 &&
		    x->session->profile == PROFILE_HOST) {
			refuse(x, "The argument 'file' cannot be empty. Received ''");
			return false;
		}
		if (!as_c_string(item, &text)) {
			g_autofree char *message =
				g_strdup_printf("The argument 'args[%u]' must be a string without "
						"null bytes.",
						i);

			refuse(x, message);
			return false;
		}
		g_ptr_array_add(job->argv, text);
	}
	return true;
}

static void set_variable(GPtrArray *env, const char *name, const char *value)
{
	size_t len = strlen(name);

	for (guint i = 0; i < env->len; i++) {
		const char *have = env->pdata[i];

		if (strncmp(have, name, len) == 0 && have[len] == '=') {
			g_free(env->pdata[i]);
			env->pdata[i] = g_strconcat(name, "=", value, NULL);
			return;
		}
	}
	g_ptr_array_add(env, g_strconcat(name, "=", value, NULL));
}

static bool take_env(struct exchange *x, const struct json *env, struct job *job)
{
	job->env = g_ptr_array_new_with_free_func(g_free);
	if (!x->service->opt->bare_env) {
		set_variable(job->env, "PATH", BASE_PATH);
		set_variable(job->env, "HOME", "/root");
	}
	if (!env || env->kind != JSON_OBJECT)
		return true;
	for (guint i = 0; i < env->items->len; i++) {
		const GString *name = env->names->pdata[i];
		char *value;

		if (memchr(name->str, '\0', name->len) ||
		    !as_c_string(env->items->pdata[i], &value)) {
			g_autofree char *message =
				g_strdup_printf("The property 'options.env['%s']' must be a "
						"string without null bytes.",
						name->str);

			refuse(x, message);
			return false;
		}
		set_variable(job->env, name->str, value);
		g_free(value);
	}
	return true;
}

static bool take_cwd(struct exchange *x, const struct json *cwd, struct job *job)
{
	g_autofree char *path = NULL;
	const char *below;

	if (!cwd || cwd->kind == JSON_NULL || (cwd->kind == JSON_STRING && cwd->string->len == 0)) {
		job->cwd = g_strdup(x->session->profile == PROFILE_OVERLAY ? x->session->told_root
									   : x->session->dir);
		return true;
	}
	if (cwd->kind != JSON_STRING) {
		refuse(x, "The \"path\" argument must be of type string.");
		return false;
	}
	x->cwd = g_strdup(cwd->string->str);
	if (pool_enter(x->service->pool))
		return false;
	path = fsroutes_check(x, cwd->string);
	pool_leave(x->service->pool);
	if (!path)
		return false;
	if (x->session->profile == PROFILE_HOST) {
		job->cwd = g_steal_pointer(&path);
	} else {
		below = path_below(x->session->dir, path);
		job->cwd = *below ? g_strconcat(x->session->told_root, "/", below, NULL)
				  : g_strdup(x->session->told_root);
	}
	return true;
}

static int64_t take_timeout(const struct json *value)
{
	double number = value ? json_to_number(value) : 0;

	if (isnan(number) || number == 0)
		return 0;
	if (number > TIMER_LIMIT_MS || number < 1)
		return 1;
	return (int64_t)number;
}

/* Read the request into a job; false when the reply has been decided. */
static bool read_job(struct exchange *x, const struct body *body, struct job *job)
{
	struct json *value = NULL;
	const struct json *argv;
	bool good = false;

	if (body->len_bytes > 0 && json_parse(body->data, body->len_bytes, &value)) {
		reply_error(&x->reply, 400, "bad_request", "invalid JSON body");
		return false;
	}
	argv = json_get(value, "argv");
	if (value && value->kind == JSON_NULL) {
		refuse(x, "Cannot read properties of null (reading 'argv')");
	} else if (!argv || argv->kind != JSON_ARRAY || argv->items->len == 0) {
		reply_error(&x->reply, 400, "bad_request", "argv must be a non-empty array");
	} else {
		good = take_cwd(x, json_get(value, "cwd"), job) && take_argv(x, argv, job) &&
		       take_env(x, json_get(value, "env"), job);
		job->timeout_ms = take_timeout(json_get(value, "timeoutMs"));
	}
	json_free(value);
	return good;
}

/* What a log reader recognises the program by: $0 of `sh -c TEXT $0 ...`. */
static void note_program(struct exchange *x, const struct job *job)
{
	const char *text = job->argv->len > 3 ? job->argv->pdata[3] : "";
	GString *valid = g_string_new(NULL);

	utf8_append_lossy(valid, text, strnlen(text, LOG_PROGRAM_CHARS));
	x->program = g_string_free(valid, FALSE);
}

/* The length of all arguments joined by blanks, each in single quotes where it needs them. */
static size_t quoted_length(const GPtrArray *argv)
{
	size_t len = 0;

	for (guint i = 0; i < argv->len; i++) {
		g_autofree char *quoted = g_shell_quote(argv->pdata[i]);

		len += strlen(quoted) + 1;
	}
	return len;
}

static void append_outcome(GString *json, const struct outcome *outcome)
{
	if (outcome->signal)
		g_string_append(json, "{\"exitCode\":null");
	else
		g_string_append_printf(json, "{\"exitCode\":%d", outcome->exit_code);
	json_append_member(json, "signal",
			   outcome->signal ? command_signal_name(outcome->signal) : NULL);
	g_string_append(json, ",\"stdout\":");
	json_append_string(json, outcome->out->str, outcome->out->len);
	g_string_append(json, ",\"stderr\":");
	json_append_string(json, outcome->err->str, outcome->err->len);
	g_string_append(json, outcome->timed_out ? ",\"timedOut\":true}" : "}");
}

static void reply_outcome(struct exchange *x, const struct outcome *outcome)
{
	GString *json = g_string_sized_new(128 + outcome->out->len + outcome->err->len +
					   (outcome->out->len + outcome->err->len) / 32);

	append_outcome(json, outcome);
	if (json->len > ANSWER_LIMIT && utf8_length_utf16(json->str, json->len) > ANSWER_LIMIT) {
		g_string_free(json, TRUE);
		refuse(x, "Invalid string length");
		return;
	}
	reply_json(&x->reply, json);
}

/* The start failed: some errors are an outcome without an exit code, others a server error. */
static void reply_spawn_error(struct exchange *x, int err, const char *program)
{
	if (err == ENOENT || err == EACCES || err == EAGAIN || err == EMFILE || err == ENFILE) {
		GString *json = g_string_new("{\"exitCode\":null,\"signal\":null,\"stdout\":\"\"");
		g_autofree char *text =
			g_strdup_printf("Error: spawn %s %s", program, errtext_code(err));

		json_append_member(json, "stderr", text);
		g_string_append_c(json, '}');
		reply_json(&x->reply, json);
	} else {
		g_autofree char *message = g_strdup_printf("spawn %s", errtext_code(err));

		refuse(x, message);
	}
}

static void run(struct exchange *x, struct job *job)
{
	const struct options *opt = x->service->opt;
	bool jailed = x->session->profile == PROFILE_OVERLAY;
	g_autofree char *program = g_strdup(job->argv->pdata[0]);
	struct command command = { .timeout_ms = job->timeout_ms,
				   .limit_bytes = opt->exec_output_limit,
				   .null_fd = x->service->null_fd,
				   .stop_fd = x->service->stop_fd,
				   .kill_on_stop = jailed };
	struct outcome outcome;
	int err;

	if (jailed) {
		err = jail_wrap(job->argv, x->session, job->cwd, x->service);
		if (err) {
			reply_spawn_error(x, -err, "bwrap");
			return;
		}
	} else {
		if (x->service->tools_dir)
			tools_confine(x->service->tools_dir, job->argv, job->env);
		if (opt->clock_skew_ms != 0)
			clockskew_add_environment(job->env, opt->clock_skew_ms,
						  x->service->clock_library);
		command.cwd = job->cwd;
	}
	g_ptr_array_add(job->argv, NULL);
	g_ptr_array_add(job->env, NULL);
	command.argv = (char *const *)job->argv->pdata;
	command.env = (char *const *)job->env->pdata;
	err = command_run(&command, &outcome);
	if (err == -ECANCELED)
		return;
	if (err == -EOVERFLOW) {
		/* The reference server dies of this too. */
		fputs("sbxd: RangeError: Invalid string length\n", stderr);
		_exit(7);
	}
	if (err) {
		reply_spawn_error(x, -err, program);
		return;
	}
	reply_outcome(x, &outcome);
	outcome_clear(&outcome);
}

void execroute_serve(struct exchange *x)
{
	const struct options *opt = x->service->opt;
	struct job job = { 0 };
	struct body body;

	if (!opt->exec) {
		reply_error(&x->reply, 501, "not_supported", "exec is not supported");
		return;
	}
	if (routes_read_body(x, &body))
		return;
	if (read_job(x, &body, &job)) {
		note_program(x, &job);
		body_clear(&body);
		if (opt->exec_command_limit > 0 &&
		    quoted_length(job.argv) > opt->exec_command_limit)
			refuse(x, "spawn E2BIG");
		else
			run(x, &job);
	}
	body_clear(&body);
	job_clear(&job);
}
