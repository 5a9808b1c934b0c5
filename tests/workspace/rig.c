#include "tests/workspace/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>

#include "client/endpoint.h"
#include "client/errlog.h"
#include "client/provider.h"
#include "client/statedir.h"
#include "client/task.h"
#include "client/token.h"

/* Start sbxd; its address is the last word of its first line. */
static char *server_start(struct rig *rig, const char *const *args)
{
	g_autoptr(GPtrArray) argv = g_ptr_array_new();
	g_autofree char *root = g_strconcat(rig->dir, "/root", NULL);
	const char *path = getenv("SBXD");
	char line[256] = "";
	int out[2];
	char *url;

	assert_non_null(path);
	g_ptr_array_add(argv, (gpointer)path);
	g_ptr_array_add(argv, (gpointer) "--root");
	g_ptr_array_add(argv, root);
	g_ptr_array_add(argv, (gpointer) "--log");
	g_ptr_array_add(argv, rig->log);
	g_ptr_array_add(argv, (gpointer) "--fault-file");
	g_ptr_array_add(argv, rig->faults);
	for (; args && *args; args++)
		g_ptr_array_add(argv, (gpointer)*args);
	g_ptr_array_add(argv, NULL);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	rig->sbxd = fork();
	assert_true(rig->sbxd >= 0);
	if (rig->sbxd == 0) {
		/* A test that fails leaves its rig open. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		dup2(out[1], STDOUT_FILENO);
		execv(path, (char *const *)argv->pdata);
		_exit(127);
	}
	close(out[1]);
	rig->said = fdopen(out[0], "r");
	assert_non_null(rig->said);
	assert_non_null(fgets(line, sizeof(line), rig->said));
	url = strstr(line, "http://");
	assert_non_null(url);
	return g_strdup(g_strstrip(url));
}

void rig_open(struct rig *rig, const char *const *args)
{
	static const struct sbx_http_options http_options = { .proxy = "" };
	static const struct sbx_sessions_options options = { .timeout_ms = 30000,
							     .mutation_timeout_ms = 10000 };
	g_autofree char *state = NULL;
	g_autofree char *cache = NULL;
	g_autofree char *message = NULL;
	g_autofree char *url = NULL;
	g_autofree char *id = NULL;
	const char *reason = NULL;

	memset(rig, 0, sizeof(*rig));
	rig->call.stall_timeout_ms = 60000;
	rig->dir = g_dir_make_tmp("sbxfs-test.XXXXXX", NULL);
	assert_non_null(rig->dir);
	rig->log = g_strconcat(rig->dir, "/log", NULL);
	rig->faults = g_strconcat(rig->dir, "/faults", NULL);
	state = g_strconcat(rig->dir, "/state", NULL);
	cache = g_strconcat(rig->dir, "/cache", NULL);
	rig_fault(rig, "");
	url = server_start(rig, args);
	assert_int_equal(sbx_endpoint_parse(url, &rig->endpoint, &reason), 0);
	assert_int_equal(sbx_token_new(NULL, &rig->token), 0);
	assert_int_equal(sbx_provider_wire_new(rig->endpoint, rig->token, &http_options,
					       &rig->provider, &reason),
			 0);
	assert_int_equal(
		sbx_statedir_open(state, cache, rig->endpoint->dir_name, &rig->statedir, &message),
		0);
	rig->errors = sbx_errlog_new();
	rig->pool = sbx_task_pool_new(64);
	assert_int_equal(sbx_sessions_new(rig->provider, rig->statedir, rig->errors, rig->pool,
					  &options, &rig->sessions),
			 0);
	assert_int_equal(sbx_sessions_create(rig->sessions, &rig->call, "dev", NULL, &rig->session),
			 0);
	id = sbx_session_id(rig->session);
	rig->files = g_strconcat(rig->dir, "/root/by-id/", id, NULL);
}

static void shell(char *command)
{
	char name[] = "sh", option[] = "-c";
	char *argv[] = { name, option, command, NULL };
	int status;

	assert_true(g_spawn_sync(NULL, argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL,
				 &status, NULL));
	assert_int_equal(status, 0);
}

void rig_close(struct rig *rig)
{
	g_autofree char *command = g_strdup_printf("rm -rf -- '%s'", rig->dir);
	int status;

	sbx_session_unref(rig->session);
	sbx_sessions_free(rig->sessions);
	sbx_task_pool_free(rig->pool);
	sbx_errlog_free(rig->errors);
	sbx_statedir_close(rig->statedir);
	rig->provider->ops->free(rig->provider);
	sbx_token_free(rig->token);
	sbx_endpoint_free(rig->endpoint);
	kill(rig->sbxd, SIGTERM);
	assert_int_equal(waitpid(rig->sbxd, &status, 0), rig->sbxd);
	assert_int_equal(status, 0);
	fclose(rig->said);
	shell(command);
	g_free(rig->dir);
	g_free(rig->files);
	g_free(rig->log);
	g_free(rig->faults);
}

struct sbx_workspace_options rig_options(int64_t ttl_ms)
{
	return (struct sbx_workspace_options){ .ttl_ms = ttl_ms,
					       .use_exec = true,
					       .cache_size_bytes = 1 << 30 };
}

size_t rig_requests(struct rig *rig, const char *route)
{
	g_autofree char *text = NULL;
	g_autofree char *wanted = route ? g_strdup_printf("\"route\":\"%s\"", route) : NULL;
	size_t n = 0;

	assert_true(g_file_get_contents(rig->log, &text, NULL, NULL));
	for (char *line = text; line && *line;) {
		char *end = strchr(line, '\n');

		if (end)
			*end++ = '\0';
		n += !wanted || strstr(line, wanted);
		line = end;
	}
	return n;
}

void rig_fault(struct rig *rig, const char *rules)
{
	/* Another file takes its place, by which the server knows that there is something new. */
	assert_true(g_file_set_contents(rig->faults, rules, -1, NULL));
}

void rig_sleep(struct rig *rig)
{
	char line[16];
	struct stat st;

	/* A request that was answered just now may hold the session for another moment. */
	while (lstat(rig->files, &st) == 0) {
		assert_int_equal(kill(rig->sbxd, SIGUSR1), 0);
		assert_non_null(fgets(line, sizeof(line), rig->said));
		assert_string_equal(line, "swept\n");
	}
}

void rig_sh(struct rig *rig, const char *text)
{
	g_autofree char *quoted = g_shell_quote(rig->files);
	g_autofree char *command = g_strdup_printf("cd %s && { %s\n}", quoted, text);

	shell(command);
}
