#include "tests/sbxd/command.h"
#include "tests/sbxd/conn.h"
#include "tests/sbxd/utf8.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK_BYTES (64 * 1024)
/* The longest string of V8, in characters. */
#define STRING_LIMIT 536870888u

struct stream {
	int fd; /* -1 once ended */
	GString *text;
	size_t raw_bytes;
};

static const char *environment_value(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++) {
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return *env + len + 1;
	}
	return NULL;
}

/*
 * Where a program's name leads, by the PATH of its own environment as execvp() goes through it.
 * 0, -ENOENT, or -EACCES when only unusable ones were found.
 */
static int find_program(const struct command *command, char **ret_path)
{
	const char *name = command->argv[0];
	const char *path = environment_value(command->env, "PATH");
	g_auto(GStrv) dirs = NULL;
	int err = -ENOENT;

	if (strchr(name, '/')) {
		*ret_path = g_strdup(name);
		return 0;
	}
	dirs = g_strsplit(path ? path : "/bin:/usr/bin", ":", -1);
	for (char **dir = dirs; *dir; dir++) {
		g_autofree char *candidate =
			**dir == '/' ? g_build_filename(*dir, name, NULL)
				     : g_build_filename(command->cwd, *dir, name, NULL);
		struct stat st;

		if (stat(candidate, &st) < 0) {
			if (errno == EACCES)
				err = -EACCES;
			continue;
		}
		if (!S_ISREG(st.st_mode) || access(candidate, X_OK) < 0) {
			err = -EACCES;
			continue;
		}
		*ret_path = g_steal_pointer(&candidate);
		return 0;
	}
	return err;
}

static int spawn_at(const struct command *command, const char *path, char *const *argv, int out_fd,
		    int err_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int err;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, command->null_fd, 0);
	posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
	posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
	if (command->cwd)
		posix_spawn_file_actions_addchdir_np(&actions, command->cwd);
	err = posix_spawn(ret_pid, path, &actions, &attr, argv, command->env);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -err;
}

/* A text file without "#!" is the shell's, as with execvp(). */
static int spawn_by_shell(const struct command *command, char *path, int out_fd, int err_fd,
			  pid_t *ret_pid)
{
	g_autoptr(GPtrArray) argv = g_ptr_array_new();

	g_ptr_array_add(argv, (char *)"/bin/sh");
	g_ptr_array_add(argv, path);
	for (char *const *arg = command->argv + 1; *arg; arg++)
		g_ptr_array_add(argv, *arg);
	g_ptr_array_add(argv, NULL);
	return spawn_at(command, "/bin/sh", (char *const *)argv->pdata, out_fd, err_fd, ret_pid);
}

static int spawn(const struct command *command, int out_fd, int err_fd, pid_t *ret_pid)
{
	g_autofree char *path = NULL;
	struct stat st;
	int err;

	/* The child changes directory first, so a missing one is what it fails with. */
	if (command->cwd && stat(command->cwd, &st) < 0)
		return -errno;
	err = find_program(command, &path);
	if (!err)
		err = spawn_at(command, path, command->argv, out_fd, err_fd, ret_pid);
	if (err == -ENOEXEC)
		err = spawn_by_shell(command, path, out_fd, err_fd, ret_pid);
	return err;
}

/*
 * Take one chunk from a stream. It is decoded by itself, without what the chunk before it ended
 * with: a character split between two reads is lost, as it is in the reference server.
 */
static int take_chunk(struct stream *stream, char *chunk, size_t limit_bytes)
{
	ssize_t got = read(stream->fd, chunk, CHUNK_BYTES);
	size_t keep;

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0) {
		close(stream->fd);
		stream->fd = -1;
		return 0;
	}
	keep = (size_t)got;
	if (limit_bytes > 0)
		keep = stream->raw_bytes >= limit_bytes
			       ? 0
			       : MIN(keep, limit_bytes - stream->raw_bytes);
	utf8_append_lossy(stream->text, chunk, keep);
	stream->raw_bytes += (size_t)got;
	return limit_bytes == 0 && stream->raw_bytes > STRING_LIMIT ? -EOVERFLOW : 0;
}

/* How long poll() may wait. */
static int poll_timeout(int64_t deadline_ms)
{
	int64_t left_ms;

	if (deadline_ms < 0)
		return -1;
	left_ms = deadline_ms - conn_now_ms();
	return (int)CLAMP(left_ms, 0, 3600 * 1000);
}

/* Collect both streams until they have ended and the program too. */
static int collect(const struct command *command, pid_t pid, int pid_fd, struct stream *streams,
		   bool *ret_timed_out)
{
	int64_t deadline_ms = command->timeout_ms > 0 ? conn_now_ms() + command->timeout_ms : -1;
	g_autofree char *chunk = g_malloc(CHUNK_BYTES);
	bool ended = false;
	int err = 0;

	while (!err && (!ended || streams[0].fd >= 0 || streams[1].fd >= 0)) {
		struct pollfd fds[] = { { .fd = streams[0].fd, .events = POLLIN },
					{ .fd = streams[1].fd, .events = POLLIN },
					{ .fd = ended ? -1 : pid_fd, .events = POLLIN },
					{ .fd = command->stop_fd, .events = POLLIN } };

		if (poll(fds, 4, poll_timeout(deadline_ms)) < 0 && errno != EINTR)
			return -errno;
		if (fds[3].revents)
			return -ECANCELED;
		for (int i = 0; i < 2 && !err; i++) {
			if (fds[i].revents)
				err = take_chunk(&streams[i], chunk, command->limit_bytes);
		}
		if (fds[2].revents) {
			ended = true;
			deadline_ms = -1;
		}
		if (deadline_ms >= 0 && conn_now_ms() >= deadline_ms) {
			/* Only the program itself; what it started lives on. Not reaped yet, so
			 * the number is still its own. */
			kill(pid, SIGKILL);
			*ret_timed_out = true;
			deadline_ms = -1;
		}
	}
	return err;
}

static int make_pair(int *ret_ours, int *ret_theirs)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ret_ours = fds[0];
	*ret_theirs = fds[1];
	return 0;
}

static void close_valid(int fd)
{
	if (fd >= 0)
		close(fd);
}

static int start(const struct command *command, struct stream *streams, pid_t *ret_pid)
{
	int theirs[2] = { -1, -1 };
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = make_pair(&streams[i].fd, &theirs[i]);
	if (!err)
		err = spawn(command, theirs[0], theirs[1], ret_pid);
	close_valid(theirs[0]);
	close_valid(theirs[1]);
	return err;
}

static void set_status(struct outcome *outcome, int status)
{
	if (WIFSIGNALED(status))
		outcome->signal = WTERMSIG(status);
	else
		outcome->exit_code = WEXITSTATUS(status);
}

int command_run(const struct command *command, struct outcome *ret_outcome)
{
	struct stream streams[2] = { { .fd = -1, .text = g_string_new(NULL) },
				     { .fd = -1, .text = g_string_new(NULL) } };
	struct outcome outcome = { .out = streams[0].text, .err = streams[1].text };
	int pid_fd = -1, status = 0;
	pid_t pid;
	int err = start(command, streams, &pid);

	if (err)
		goto out;
	pid_fd = pidfd_open(pid, 0);
	if (pid_fd < 0)
		err = -errno;
	else
		err = collect(command, pid, pid_fd, streams, &outcome.timed_out);
	if (err && (command->kill_on_stop || err != -ECANCELED))
		kill(pid, SIGKILL);
	/* When the server stops, a program on the host lives on as an orphan. */
	if (!err || command->kill_on_stop || err != -ECANCELED) {
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	set_status(&outcome, status);
out:
	close_valid(streams[0].fd);
	close_valid(streams[1].fd);
	close_valid(pid_fd);
	if (err)
		outcome_clear(&outcome);
	else
		*ret_outcome = outcome;
	return err;
}

void outcome_clear(struct outcome *outcome)
{
	g_string_free(outcome->out, TRUE);
	g_string_free(outcome->err, TRUE);
	*outcome = (struct outcome){ 0 };
}

const char *command_signal_name(int number)
{
	static const struct {
		int number;
		const char *name;
	} names[] = {
		{ SIGHUP, "SIGHUP" },	    { SIGINT, "SIGINT" },   { SIGQUIT, "SIGQUIT" },
		{ SIGILL, "SIGILL" },	    { SIGTRAP, "SIGTRAP" }, { SIGABRT, "SIGABRT" },
		{ SIGBUS, "SIGBUS" },	    { SIGFPE, "SIGFPE" },   { SIGKILL, "SIGKILL" },
		{ SIGUSR1, "SIGUSR1" },	    { SIGSEGV, "SIGSEGV" }, { SIGUSR2, "SIGUSR2" },
		{ SIGPIPE, "SIGPIPE" },	    { SIGALRM, "SIGALRM" }, { SIGTERM, "SIGTERM" },
		{ SIGSTKFLT, "SIGSTKFLT" }, { SIGXCPU, "SIGXCPU" }, { SIGXFSZ, "SIGXFSZ" },
		{ SIGVTALRM, "SIGVTALRM" }, { SIGPROF, "SIGPROF" }, { SIGIO, "SIGIO" },
		{ SIGPWR, "SIGPWR" },	    { SIGSYS, "SIGSYS" },
	};

	for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
		if (names[i].number == number)
			return names[i].name;
	}
	return NULL;
}
