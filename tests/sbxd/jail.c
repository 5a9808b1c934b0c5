#include "tests/sbxd/jail.h"
#include "tests/sbxd/clockskew.h"
#include "tests/sbxd/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where commands in the jail find the library that skews their clock: its own place is hidden. */
#define JAIL_PRELOAD "/run/sbxd-clock.so"

struct jail {
	pthread_mutex_t lock;
	char *home;
	pid_t holder; /* 0: none */
	int hold_fd; /* the holder lives until this is closed */
	char **places; /* what it has made writable */
};

struct jail *jail_new(const char *home)
{
	struct jail *jail = g_new0(struct jail, 1);

	pthread_mutex_init(&jail->lock, NULL);
	jail->home = g_strdup(home);
	jail->hold_fd = -1;
	return jail;
}

void jail_free(struct jail *jail)
{
	if (!jail)
		return;
	jail_stop(jail);
	pthread_mutex_destroy(&jail->lock);
	g_free(jail->home);
	g_free(jail);
}

void jail_stop(struct jail *jail)
{
	pthread_mutex_lock(&jail->lock);
	if (jail->holder) {
		close(jail->hold_fd);
		while (waitpid(jail->holder, NULL, 0) < 0 && errno == EINTR)
			;
		g_clear_pointer(&jail->places, g_strfreev);
		jail->holder = 0;
		jail->hold_fd = -1;
	}
	pthread_mutex_unlock(&jail->lock);
}

static int spawn_holder(struct jail *jail, const char *program, int stdin_fd, int stdout_fd)
{
	char *argv[] = { (char *)program, (char *)"hold", jail->home, NULL };
	char *env[] = { NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all;
	int err;

	/* Signals stay blocked: what ends the server must not end the holder before it. */
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attr, &all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, stdin_fd, 0);
	posix_spawn_file_actions_adddup2(&actions, stdout_fd, 1);
	err = posix_spawn(&jail->holder, program, &actions, &attr, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -err;
}

/* Read the holder's one line: it has done its mounts then. */
static int read_places(struct jail *jail, int fd)
{
	char line[256] = { 0 };
	size_t len = 0;
	ssize_t got = 1;

	while (got > 0 && len + 1 < sizeof(line) && !memchr(line, '\n', len)) {
		got = read(fd, line + len, sizeof(line) - 1 - len);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got > 0)
			len += (size_t)got;
	}
	line[len] = '\0';
	if (!strchr(line, '\n'))
		return -ENOEXEC;
	jail->places = g_strsplit(g_strstrip(line), " ", -1);
	return 0;
}

static void close_all(int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static int start_locked(struct jail *jail, const char *program)
{
	int fds[4] = { -1, -1, -1, -1 }; /* its stdin: 0 and 1, its stdout: 2 and 3 */
	int err;

	if (jail->holder)
		return 0;
	if (pipe2(fds, O_CLOEXEC) < 0 || pipe2(fds + 2, O_CLOEXEC) < 0) {
		err = -errno;
		close_all(fds, 4);
		return err;
	}
	err = spawn_holder(jail, program, fds[0], fds[3]);
	close(fds[0]);
	close(fds[3]);
	jail->hold_fd = fds[1];
	if (!err) {
		err = read_places(jail, fds[2]);
		if (err) {
			close(jail->hold_fd);
			waitpid(jail->holder, NULL, 0);
		}
	} else {
		close(jail->hold_fd);
	}
	close(fds[2]);
	if (err) {
		jail->holder = 0;
		jail->hold_fd = -1;
	}
	return err;
}

static void add(GPtrArray *argv, const char *first, ...) G_GNUC_NULL_TERMINATED;

static void add(GPtrArray *argv, const char *first, ...)
{
	va_list rest;

	va_start(rest, first);
	for (const char *arg = first; arg; arg = va_arg(rest, const char *))
		g_ptr_array_add(argv, g_strdup(arg));
	va_end(rest);
}

/* What reaches out of the jail. All else root keeps; see jailer.c for why this holds. */
static void drop_capabilities(GPtrArray *argv)
{
	static const char *const dropped[] = {
		"CAP_SYS_ADMIN",  "CAP_MKNOD",	    "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE",
		"CAP_NET_ADMIN",  "CAP_NET_RAW",    "CAP_NET_BROADCAST",   "CAP_SYS_MODULE",
		"CAP_SYS_RAWIO",  "CAP_SYS_BOOT",   "CAP_SYS_TIME",	   "CAP_SYSLOG",
		"CAP_SYS_PACCT",  "CAP_MAC_ADMIN",  "CAP_MAC_OVERRIDE",	   "CAP_BPF",
		"CAP_PERFMON",	  "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",   "CAP_AUDIT_CONTROL",
		"CAP_AUDIT_READ",
	};

	if (getuid() != 0)
		return;
	for (size_t i = 0; i < G_N_ELEMENTS(dropped); i++)
		add(argv, "--cap-drop", dropped[i], NULL);
}

static void add_mounts(GPtrArray *argv, char **places, const struct session *session,
		       const struct service *service)
{
	g_autofree char *var_tmp = g_build_filename(session->home, "var-tmp", NULL);
	g_autofree char *root = g_build_filename(session->home, "root", NULL);

	add(argv, "--ro-bind", "/", "/", NULL);
	for (char **place = places; *place; place++) {
		if (**place)
			add(argv, "--bind", *place, *place, NULL);
	}
	add(argv, "--dev", "/dev", "--proc", "/proc", NULL);
	add(argv, "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/home", "--tmpfs", "/mnt",
	    NULL);
	add(argv, "--bind", var_tmp, "/var/tmp", "--bind", root, "/root", NULL);
	add(argv, "--bind", session->dir, session->told_root, NULL);
	if (service->opt->clock_skew_ms != 0)
		add(argv, "--ro-bind", service->clock_library, JAIL_PRELOAD, NULL);
	/* BusyBox is all of /usr/bin then: absolute names find nothing else either. */
	if (service->tools_dir)
		add(argv, "--ro-bind", service->tools_dir, "/usr/bin", "--ro-bind",
		    service->tools_dir, "/usr/sbin", "--tmpfs", "/usr/local", NULL);
}

static void add_environment(GPtrArray *argv, int64_t skew_ms)
{
	g_autoptr(GPtrArray) skewed = g_ptr_array_new_with_free_func(g_free);

	if (skew_ms == 0)
		return;
	/* Not for bubblewrap itself: only the command's clock is off. */
	clockskew_add_environment(skewed, skew_ms, JAIL_PRELOAD);
	for (guint i = 0; i < skewed->len; i++) {
		g_auto(GStrv) pair = g_strsplit(skewed->pdata[i], "=", 2);

		add(argv, "--setenv", pair[0], pair[1], NULL);
	}
}

int jail_wrap(GPtrArray *argv, const struct session *session, const char *cwd,
	      const struct service *service)
{
	struct jail *jail = session->jail;
	g_autofree char *holder = NULL;
	g_auto(GStrv) places = NULL;
	GPtrArray *command;
	int err;

	pthread_mutex_lock(&jail->lock);
	err = start_locked(jail, service->jail_program);
	if (!err) {
		holder = g_strdup_printf("%d", (int)jail->holder);
		places = g_strdupv(jail->places);
	}
	pthread_mutex_unlock(&jail->lock);
	if (err)
		return err;

	/* Move the command aside, without freeing its strings. */
	command = g_ptr_array_new();
	g_ptr_array_set_free_func(argv, NULL);
	g_ptr_array_extend(command, argv, NULL, NULL);
	g_ptr_array_set_size(argv, 0);
	g_ptr_array_set_free_func(argv, g_free);

	add(argv, service->jail_program, "enter", holder, JAIL_BWRAP, NULL);
	add_mounts(argv, places, session, service);
	add(argv, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
	    "--unshare-cgroup-try", "--die-with-parent", NULL);
	drop_capabilities(argv);
	add_environment(argv, service->opt->clock_skew_ms);
	add(argv, "--chdir", cwd, "--", NULL);
	g_ptr_array_extend_and_steal(argv, command);
	return 0;
}
