#include "fusefs/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "client/jobspec.h"
#include "fusefs/cmd_follow.h"
#include "fusefs/cmd_place.h"

#define WORD	    "exec"
#define ID_LINE_MAX 128

/* What is written into jobs/new. */
static int make_text(const char *cwd, char **argv, char **ret_text)
{
	g_autofree char *command = sbx_jobspec_quote((const char *const *)argv);
	struct sbx_job_spec spec = { .cwd = cwd };
	g_autofree char *with_cd = NULL;

	spec.command = command;
	if (!g_utf8_validate(cwd, -1, NULL)) {
		/* A name that JSON can't hold. */
		g_autofree char *words =
			sbx_jobspec_quote((const char *const[]){ "cd", "--", cwd, NULL });

		with_cd = g_strdup_printf("%s && %s", words, command);
		spec.command = with_cd;
		spec.cwd = NULL;
	}
	spec.command_len = strlen(spec.command);
	return sbx_jobspec_print(&spec, ret_text);
}

/* Write into jobs/new, read the id back. -errno. */
static int start(const char *new_path, const char *text, char *ret_id, size_t size)
{
	size_t len = strlen(text), done = 0;
	ssize_t n = 0;
	int fd;

	fd = open(new_path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (n >= 0 && done < len) {
		n = write(fd, text + done, len - done);
		if (n > 0)
			done += (size_t)n;
	}
	if (n >= 0)
		n = read(fd, ret_id, size - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n <= 0)
		return n < 0 ? (int)n : -EIO;
	ret_id[n] = '\0';
	g_strchomp(ret_id);
	return 0;
}

static int exit_code(const char *job_dir)
{
	g_autofree char *path = g_build_filename(job_dir, "exit", NULL);
	g_autofree char *status = g_build_filename(job_dir, "status", NULL);
	g_autofree char *text = NULL;
	g_autofree char *state = NULL;

	if (g_file_get_contents(path, &text, NULL, NULL))
		return (int)strtol(text, NULL, 10) & 0xff;
	state = cmd_place_value(status, "state");
	return command_fail(WORD, "the job is %s: %s", state ? state : "not there", job_dir);
}

static int follow(const char *job_dir)
{
	int r = cmd_follow(job_dir, true);

	if (r == 0)
		return exit_code(job_dir);
	if (r == -EINTR || r == -EPIPE) {
		fprintf(stderr, "sbxfs " WORD ": the job goes on: sbxfs logs -f %s\n", job_dir);
		return 128 + (r == -EPIPE ? SIGPIPE : cmd_follow_signal());
	}
	return command_fail(WORD, "%s: %s", job_dir, strerror(-r));
}

int cmd_exec(int argc, char **argv)
{
	const char *path = NULL;
	struct cmd_place place = { 0 };
	g_autofree char *new_path = NULL, *text = NULL, *job_dir = NULL;
	char id[ID_LINE_MAX];
	bool detached = false;
	int i, r, status;

	for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (!path && strcmp(argv[i], "-d") == 0)
			detached = true;
		else if (!path && argv[i][0] != '-')
			path = argv[i];
		else
			return command_fail(WORD, "%s: not understood; sbxfs exec -h", argv[i]);
	}
	if (i + 1 >= argc)
		return command_fail(WORD, "no command; it follows a --");
	r = cmd_place_find(path ? path : ".", &place);
	if (r < 0)
		return command_fail(WORD, "%s: %s", path ? path : ".",
				    r == -ENOTTY ? "not in a session of an sbxfs mount"
						 : strerror(-r));
	if (!detached)
		cmd_follow_begin(true);
	new_path = g_build_filename(place.session, "jobs", "new", NULL);
	r = make_text(place.cwd, argv + i + 1, &text);
	if (r == 0)
		r = start(new_path, text, id, sizeof(id));
	if (r < 0) {
		status = command_fail(WORD, "%s: %s; see %s/errors", new_path, strerror(-r),
				      place.session);
	} else if (detached) {
		printf("%s\n", id);
		status = fflush(stdout) == 0 ? 0 : COMMAND_FAILED;
	} else {
		job_dir = g_build_filename(place.session, "jobs", id, NULL);
		status = follow(job_dir);
	}
	cmd_place_done(&place);
	return status;
}
