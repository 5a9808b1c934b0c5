#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/sbxd/fault.h"
#include "tests/sbxd/jail.h"
#include "tests/sbxd/listener.h"
#include "tests/sbxd/pool.h"
#include "tests/sbxd/reqlog.h"
#include "tests/sbxd/sweeper.h"
#include "tests/sbxd/tools.h"

/* How long a graceful end waits for sessions that are in use. */
#define STOP_PATIENCE_MS 5000

static int complain(const char *what, int err)
{
	fprintf(stderr, "sbxd: %s: %s\n", what, strerror(-err));
	return 1;
}

static int make_signal_fd(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t ends, blocked;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	blocked = ends;
	sigaddset(&blocked, SIGUSR1); /* the sweeper's */
	/* Before any thread starts: all of them inherit it. Commands get an empty mask. */
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	return signalfd(-1, &ends, SFD_CLOEXEC);
}

/* A thousand connections and their commands need more than the usual 1024 files. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = MIN(limit.rlim_max, 65536);
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* A file of ours that lies beside this program; NULL after a complaint when it is not there. */
static char *find_beside(const char *name)
{
	g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
	g_autofree char *dir = self ? g_path_get_dirname(self) : g_strdup(".");
	g_autofree char *path = g_build_filename(dir, name, NULL);

	if (access(path, R_OK) == 0)
		return g_steal_pointer(&path);
	complain(path, -errno);
	return NULL;
}

/* What commands need: the jail, the applets, the other clock. */
static bool find_helpers(struct service *service)
{
	const struct options *opt = service->opt;
	int err;

	if (opt->profile == PROFILE_OVERLAY) {
		service->jail_program = find_beside("sbxd-jail");
		if (!service->jail_program)
			return false;
		if (access(JAIL_BWRAP, X_OK) < 0)
			return complain(JAIL_BWRAP, -errno) == 0;
	}
	if (opt->clock_skew_ms != 0) {
		service->clock_library = find_beside("sbxd-clock.so");
		if (!service->clock_library)
			return false;
	}
	if (opt->busybox) {
		err = tools_install(opt->root, &service->tools_dir);
		if (err)
			return complain("busybox", err) == 0;
	}
	return true;
}

static int open_service(struct service *service)
{
	const struct options *opt = service->opt;
	int err;

	service->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	service->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (service->null_fd < 0 || service->stop_fd < 0)
		return complain("/dev/null", -errno);
	err = reqlog_open(opt->log_path, &service->log);
	if (err)
		return complain(opt->log_path, err);
	if (!find_helpers(service))
		return 1;
	service->sessions = session_table_new(opt);
	service->pool = pool_new();
	service->faults = fault_set_new(opt->faults, opt->fault_path);
	return 0;
}

static void close_service(struct service *service)
{
	if (service->faults)
		fault_set_free(service->faults);
	if (service->pool)
		pool_free(service->pool);
	if (service->sessions)
		session_table_free(service->sessions);
	if (service->log)
		reqlog_close(service->log);
	g_free(service->tools_dir);
	g_free(service->jail_program);
	g_free(service->clock_library);
	if (service->null_fd >= 0)
		close(service->null_fd);
	if (service->stop_fd >= 0)
		close(service->stop_fd);
}

/* Serve until a signal; then archive what there is, and end. */
static int run(struct service *service, struct listener *listener, int signal_fd)
{
	struct sweeper *sweeper;
	uint64_t one = 1;
	int err = sweeper_start(service, &sweeper);

	if (err)
		return complain("thread", err);
	printf("listening on http://%s\n", listener_address(listener));
	fflush(stdout);
	listener_run(listener, service, signal_fd);
	session_archive_all(service->sessions, STOP_PATIENCE_MS);
	if (write(service->stop_fd, &one, sizeof(one)) < 0)
		complain("eventfd", -errno);
	pool_stop(service->pool);
	listener_end_connections(listener);
	sweeper_join(sweeper);
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt;
	struct service service = { .opt = &opt, .null_fd = -1, .stop_fd = -1 };
	struct listener *listener = NULL;
	int status, signal_fd = -1, err;

	if (!options_parse(&opt, argc, argv, &status))
		goto out;
	umask(022);
	raise_file_limit();
	signal_fd = make_signal_fd();
	status = open_service(&service);
	if (status)
		goto out;
	err = listener_open(&opt, &listener);
	status = err ? complain("listen", err) : run(&service, listener, signal_fd);
out:
	if (listener)
		listener_free(listener);
	close_service(&service);
	if (signal_fd >= 0)
		close(signal_fd);
	options_clear(&opt);
	return status;
}
