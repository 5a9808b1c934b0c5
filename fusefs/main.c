/*
 * main - the command sbxfs: parse, check endpoint and token, mount, go into the background, serve,
 * publish what is left.
 *
 * Order: options, token (one thread), fork with a pipe for
 * the report, signals blocked, libcurl and threads in the child, one probe of the server, mount,
 * report, loop.
 */
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <errno.h>
#include <glib.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "client/endpoint.h"
#include "client/errlog.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/statedir.h"
#include "client/task.h"
#include "client/token.h"
#include "fusefs/command.h"
#include "fusefs/daemon.h"
#include "fusefs/fs.h"
#include "fusefs/hush.h"
#include "fusefs/keeper.h"
#include "fusefs/log.h"
#include "fusefs/mountpoint.h"
#include "fusefs/negotiate.h"
#include "fusefs/ops.h"
#include "fusefs/options.h"
#include "fusefs/version.h"

enum exit_status {
	EXIT_OK,
	EXIT_USAGE,
	EXIT_MOUNT,
	EXIT_TOKEN,
	EXIT_SERVER,
};

/* Threads for uploads, mutations and revivals; a session uses a few at a time. */
#define MAX_TASK_THREADS    512
#define MUTATION_TIMEOUT_MS 10000
#define MAINTAIN_MS	    2000
/* What logs may take of the cache's size. */
#define LOGS_PART   4
#define LARGE_BYTES (256 << 10)
#define KEPT_BYTES  (512 << 10)

/* All that one run owns, in the order in which it is made. */
struct run {
	struct options *options;
	struct sbx_endpoint *endpoint;
	struct sbx_token *token;
	struct sbx_statedir *statedir;
	struct daemon daemon;
	struct sbx_provider *provider;
	struct sbx_task_pool *pool;
	struct sbx_errlog *errors;
	struct sbx_sessions *sessions;
	char *token_text;
	char *real_mountpoint;
	struct fs *fs;
	struct fuse_session *fuse;
	struct keeper *keeper; /* NULL: there is none */
	pthread_t main_thread;
	bool told_to_end; /* atomic; the next signal gives up what is done at the end */
	struct sbx_cancel *ending; /* stops the maintainer; NULL: there is none */
	pthread_t maintainer;
};

/* One line that says what is wrong; takes @message over. */
static int run_fail(int status, char *message)
{
	fprintf(stderr, "sbxfs: %s\n", message ? message : "out of memory");
	g_free(message);
	return status;
}

/* Does libfuse know the options that are not ours? */
static int run_check_options(const struct options *options)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *fuse;
	g_autofree char *said = NULL;
	struct hush hush;

	for (int i = 0; i < options->fuse_args->argc; i++)
		if (fuse_opt_add_arg(&args, options->fuse_args->argv[i]) < 0)
			return run_fail(EXIT_MOUNT, NULL);
	hush_begin(&hush);
	fuse = fuse_session_new(&args, ops_table(), sizeof(*ops_table()), NULL);
	said = hush_end(&hush);
	fuse_opt_free_args(&args);
	if (!fuse)
		return run_fail(EXIT_USAGE, g_strdup_printf("%s; see sbxfs -h", said));
	fuse_session_destroy(fuse);
	return EXIT_OK;
}

/* What can be known before the fork: options, endpoint, token, mount point, directories. */
static int run_prepare(struct run *run)
{
	struct options *options = run->options;
	const char *reason = NULL;
	char *message = NULL;
	int r;

	r = run_check_options(options);
	if (r != EXIT_OK)
		return r;

	r = sbx_endpoint_parse(options->endpoint, &run->endpoint, &reason);
	if (r < 0)
		return run_fail(EXIT_USAGE, g_strdup_printf("ENDPOINT: %s", reason ? reason : ""));
	r = sbx_token_new(options->token_file, &run->token);
	if (r == -EINVAL)
		return run_fail(
			EXIT_TOKEN,
			g_strdup_printf("%s: holds no usable token",
					options->token_file ? options->token_file : "SBX_TOKEN"));
	if (r < 0)
		return run_fail(EXIT_TOKEN,
				g_strdup_printf("%s: %s", options->token_file, g_strerror(-r)));
	if (sbx_token_exposed(run->token))
		fprintf(stderr, "sbxfs: warning: %s can be read by others\n", options->token_file);
	r = mountpoint_prepare(options->mountpoint, &run->real_mountpoint, &message);
	if (r < 0)
		return run_fail(EXIT_MOUNT, message);
	r = sbx_statedir_open(options->state_dir, options->cache_dir, run->endpoint->dir_name,
			      &run->statedir, &message);
	if (r < 0)
		return run_fail(EXIT_MOUNT, message);
	run->token_text = options->token_file ? g_strdup_printf("file %s", options->token_file)
			  : sbx_token_present(run->token) ? g_strdup("environment")
							  : g_strdup("none");
	return EXIT_OK;
}

static char *run_describe(const struct sbx_failure *failure, int r)
{
	/* Why there is no connection is told by the message, better than by our errno. */
	if (failure->message[0] && r == -EHOSTUNREACH)
		return g_strdup(failure->message);
	if (failure->message[0])
		return g_strdup_printf("%s (%s)", failure->message, g_strerror(-r));
	return g_strdup(g_strerror(-r));
}

/* Is the server there, and does it take the token? */
static int run_probe(struct run *run)
{
	struct sbx_failure failure = { 0 };
	struct sbx_call call = { .stall_timeout_ms = run->options->timeout_ms,
				 .failure = &failure };
	g_autofree char *why = NULL;
	size_t unsent;
	int r;

	r = run->provider->ops->probe(run->provider, &call);
	if (r == 0)
		return EXIT_OK;
	if (failure.token_refused)
		return run_fail(EXIT_TOKEN, g_strdup_printf("%s: the server refuses the token (%s)",
							    run->endpoint->text, run->token_text));
	why = run_describe(&failure, r);
	unsent = sbx_sessions_unsent(run->sessions);
	return run_fail(EXIT_SERVER,
			g_strdup_printf("%s: %s; -o delay_connect mounts without asking; unsent "
					"files: %zu",
					run->endpoint->text, why, unsent));
}

static int run_attach(struct run *run)
{
	struct sbx_call call = { .stall_timeout_ms = run->options->timeout_ms };

	for (char **spec = run->options->attach; *spec; spec++) {
		g_auto(GStrv) parts = g_strsplit(*spec, ":", 2);
		const char *name = parts[0] && parts[1] ? parts[1] : parts[0];
		struct sbx_session *known = sbx_sessions_find(run->sessions, name);
		g_autofree char *known_id = known ? sbx_session_id(known) : NULL;
		int r = 0;

		sbx_session_unref(known);
		if (!known_id)
			r = sbx_sessions_attach(run->sessions, &call, parts[0], name);
		else if (strcmp(known_id, parts[0]) != 0)
			r = -EEXIST;
		/* The session was renamed since: it is known, by another name. */
		if (!known_id && r == -EEXIST)
			r = 0;
		if (r == -EINVAL)
			return run_fail(EXIT_USAGE,
					g_strdup_printf("-o attach=%s: not ID[:NAME]", *spec));
		if (r == -ENOENT)
			return run_fail(EXIT_MOUNT, g_strdup_printf("-o attach=%s: the server has "
								    "no such session",
								    *spec));
		/* What can't be asked now is told in errors; the mount is wanted all the same. */
		if (r < 0 && !run->options->delay_connect)
			return run_fail(EXIT_MOUNT,
					g_strdup_printf("-o attach=%s: %s", *spec, g_strerror(-r)));
	}
	return EXIT_OK;
}

static int64_t run_mutation_timeout_ms(const struct options *options)
{
	return MIN(options->timeout_ms, MUTATION_TIMEOUT_MS);
}

/* The layers below FUSE; threads and libcurl begin here. */
static int run_connect(struct run *run)
{
	const struct options *options = run->options;
	struct sbx_http_options http = {
		.proxy = options->proxy,
		.noproxy = options->noproxy,
		.cert = options->cert,
		.key = options->key,
		.cacert = options->cacert,
		.insecure_http = options->insecure_http,
		.max_conn = options->max_conn,
		.connect_timeout_ms = MIN(options->timeout_ms, 10000),
	};
	struct sbx_sessions_options sessions = {
		.timeout_ms = options->timeout_ms,
		.mutation_timeout_ms = run_mutation_timeout_ms(options),
		.probe_unknown = !options->noprobe,
	};
	const char *reason = NULL;
	int r, status;

	r = sbx_provider_wire_new(run->endpoint, run->token, &http, &run->provider, &reason);
	if (r < 0)
		return run_fail(r == -EACCES   ? EXIT_TOKEN
				: r == -EINVAL ? EXIT_USAGE
					       : EXIT_SERVER,
				g_strdup_printf("%s: %s", run->endpoint->text,
						reason ? reason : g_strerror(-r)));
	run->pool = sbx_task_pool_new(MAX_TASK_THREADS);
	run->errors = sbx_errlog_new();
	r = sbx_sessions_new(run->provider, run->statedir, run->errors, run->pool, &sessions,
			     &run->sessions);
	if (r < 0)
		return run_fail(EXIT_MOUNT,
				g_strdup_printf("%s: %s", sbx_statedir_path(run->statedir),
						g_strerror(-r)));
	if (!options->delay_connect) {
		status = run_probe(run);
		if (status)
			return status;
	}
	return run_attach(run);
}

/* A comma in the source would end the option. */
static char *escape_option(const char *text)
{
	g_auto(GStrv) parts = g_strsplit(text, ",", -1);

	return g_strjoinv("\\,", parts);
}

static int run_mount(struct run *run)
{
	const struct options *options = run->options;
	const uint64_t log_cache_bytes = options->cache_size_bytes / LOGS_PART;
	struct fs_config config = {
		.uid = options->uid,
		.gid = options->gid,
		.umask = options->umask,
		.ttl_ms = options->ttl_ms,
		.timeout_ms = options->timeout_ms,
		.mutation_timeout_ms = run_mutation_timeout_ms(options),
		.allow_other = options->allow_other,
		.read_only = options->read_only,
		.use_exec = options->use_exec,
		.raw_links = options->symlinks_raw,
		.cache_on_disk = options->cache_on_disk,
		.content_cache_bytes = options->cache_size_bytes - log_cache_bytes,
		.log_cache_bytes = log_cache_bytes,
		.endpoint = run->endpoint->text,
		.token = run->token_text,
		.mountpoint = options->mountpoint,
		.real_mountpoint = run->real_mountpoint,
		.jobs_root = options->jobs_root,
		.jobs_keep = options->jobs_keep,
		.subtree = options->subtree,
	};
	struct fs_parts parts = {
		.provider = run->provider,
		.sessions = run->sessions,
		.errors = run->errors,
		.pool = run->pool,
		.statedir = run->statedir,
	};
	g_autofree char *source = escape_option(run->endpoint->text);
	g_autofree char *mount_options =
		g_strdup_printf("-ofsname=%s,subtype=sbxfs,nosuid,nodev%s", source,
				options->allow_other ? ",default_permissions" : "");
	g_autofree char *said = NULL;
	struct hush hush;
	int r;

	r = fs_new(&config, &parts, &run->fs);
	if (r == -ENOENT)
		return run_fail(EXIT_MOUNT,
				g_strdup_printf("-o subtree=%s: no such session is known; make it "
						"in a mount of the whole, or use -o attach",
						options->subtree));
	if (r < 0 && !options->subtree)
		return run_fail(EXIT_MOUNT, g_strdup(g_strerror(-r)));
	if (r < 0)
		return run_fail(
			r == -EINVAL ? EXIT_USAGE : EXIT_MOUNT,
			g_strdup_printf("-o subtree=%s: %s", options->subtree, g_strerror(-r)));
	if (fuse_opt_add_arg(options->fuse_args, mount_options) < 0)
		return run_fail(EXIT_MOUNT, NULL);
	run->fuse =
		fuse_session_new(options->fuse_args, ops_table(), sizeof(*ops_table()), run->fs);
	if (!run->fuse)
		return run_fail(EXIT_USAGE, NULL);
	hush_begin(&hush);
	r = fuse_session_mount(run->fuse, run->real_mountpoint);
	said = hush_end(&hush);
	if (r < 0) {
		fuse_session_destroy(run->fuse);
		run->fuse = NULL;
		return run_fail(EXIT_MOUNT, g_strdup_printf("%s: can't be mounted on: %s",
							    options->mountpoint, said));
	}
	return EXIT_OK;
}

static void wake_main(int number)
{
	(void)number;
}

/* SIGTERM and its like: free all that wait, then have the loop end. Again: hurry. */
static void run_end(void *arg)
{
	struct run *run = arg;

	if (__atomic_exchange_n(&run->told_to_end, true, __ATOMIC_ACQ_REL)) {
		keeper_give_up(run->keeper);
		return;
	}
	fuse_session_exit(run->fuse);
	fs_stop(run->fs);
	/* The loop's main thread sleeps until a signal is handled in it. */
	(void)pthread_kill(run->main_thread, SIGUSR1);
}

/* Every few seconds connections that are idle are let go of, and logs beyond their bound. */
static void *run_maintain(void *arg)
{
	struct run *run = arg;
	const struct sbx_call call = { .cancel = run->ending };

	while (sbx_call_sleep(&call, MAINTAIN_MS) == 0) {
		run->provider->ops->maintain(run->provider);
		fs_maintain(run->fs);
	}
	return NULL;
}

static void run_unmaintain(struct run *run)
{
	if (!run->ending)
		return;
	sbx_cancel_fire(run->ending);
	(void)pthread_join(run->maintainer, NULL);
	sbx_cancel_unref(run->ending);
}

/* Without it the mount works all the same. */
static void run_keep(struct run *run)
{
	const struct options *options = run->options;
	const struct keeper_options keeper = {
		.keep_risk = options->keepawake == KEEPAWAKE_RISK,
		.keep_jobs = options->keepawake == KEEPAWAKE_RISK ||
			     options->keepawake == KEEPAWAKE_JOBS,
		.keep_all = options->keepawake == KEEPAWAKE_ALL,
		.interval_ms = options->keepawake_interval_ms,
		.quiet_ms = options->keepawake_quiet_ms,
		.recent_ms = options->keepawake_recent_ms,
		.autopersist_ms = options->autopersist_ms,
		.autopersist_keep = options->autopersist_keep,
	};

	if (options->keepawake == KEEPAWAKE_NONE && !options->autopersist_ms)
		return;
	if (keeper_new(run->fs, &keeper, &run->keeper) < 0)
		log_line(LOG_LEVEL_WARNING, "sessions are not kept awake: no thread for it");
}

static int run_serve(struct run *run)
{
	struct sigaction wake = { .sa_handler = wake_main };
	size_t unsent;
	int r;

	run->main_thread = pthread_self();
	(void)sigaction(SIGUSR1, &wake, NULL);
	log_open(run->options->log_level, run->options->foreground, run->token);
	run_keep(run);
	r = daemon_watch_signals(&run->daemon, run_end, run);
	if (r < 0)
		return run_fail(EXIT_MOUNT, g_strdup(g_strerror(-r)));
	run->ending = sbx_cancel_new(NULL);
	if (run->ending && pthread_create(&run->maintainer, NULL, run_maintain, run) != 0) {
		sbx_cancel_unref(run->ending);
		run->ending = NULL;
	}
	/* Who waits for the command may use the mount at once. */
	r = negotiate(run->fuse);
	if (r < 0) {
		daemon_unwatch_signals(&run->daemon);
		return run_fail(EXIT_MOUNT,
				g_strdup_printf("%s: the kernel does not take the mount: %s",
						run->options->mountpoint, g_strerror(-r)));
	}
	daemon_report(&run->daemon, EXIT_OK);
	log_line(LOG_LEVEL_INFO, "%s mounted on %s", run->endpoint->text, run->options->mountpoint);
	r = fs_loop(run->fs, run->fuse);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, "%s: %s", run->options->mountpoint, g_strerror(-r));
	__atomic_store_n(&run->told_to_end, true, __ATOMIC_RELEASE);
	keeper_stop(run->keeper);
	/* Nothing hangs on us while the rest is sent. */
	fuse_session_unmount(run->fuse);
	unsent = fs_sync_all(run->fs, run->options->timeout_ms);
	if (unsent)
		log_line(LOG_LEVEL_WARNING,
			 "%zu files could not be sent; they are kept in %s and sent by the next "
			 "mount",
			 unsent, sbx_statedir_path(run->statedir));
	keeper_unmount(run->keeper);
	daemon_unwatch_signals(&run->daemon);
	log_line(LOG_LEVEL_INFO, "%s unmounted", run->options->mountpoint);
	return r < 0 ? EXIT_MOUNT : EXIT_OK;
}

static void run_done(struct run *run)
{
	if (run->fs) {
		fs_stop(run->fs);
		fs_end_waits(run->fs);
	}
	if (run->fuse) {
		fuse_session_unmount(run->fuse);
		fuse_session_destroy(run->fuse);
	}
	keeper_free(run->keeper);
	/* What could not be sent in time is kept: nothing is waited for any more. */
	if (run->provider)
		run->provider->ops->end(run->provider);
	/* Running verbs use the fs; what it delayed goes with it; other tasks use all that
	 * follows. */
	if (run->pool)
		sbx_task_pool_quiesce(run->pool);
	run_unmaintain(run);
	fs_free(run->fs);
	sbx_task_pool_free(run->pool);
	sbx_sessions_free(run->sessions);
	sbx_errlog_free(run->errors);
	if (run->provider)
		run->provider->ops->free(run->provider);
	sbx_statedir_close(run->statedir);
	log_close();
	sbx_token_free(run->token);
	sbx_endpoint_free(run->endpoint);
	g_free(run->token_text);
	g_free(run->real_mountpoint);
	options_free(run->options);
}

int main(int argc, char **argv)
{
	const struct rlimit no_core = { 0, 0 };
	struct rlimit files;
	struct run run = { .daemon = { .report_fd = -1 } };
	char *message = NULL;
	int r, status;

	daemon_fix_stdio();
	if (argc > 1 && command_is_name(argv[1]))
		return command_run(argc - 1, argv + 1);
	r = options_parse(argc, argv, &run.options, &message);
	if (r < 0)
		return run_fail(EXIT_USAGE, message);
	if (run.options->show_help || run.options->show_version) {
		if (run.options->show_help)
			fputs(options_help(), stdout);
		else
			printf("sbxfs %s, libfuse %s\n", SBXFS_VERSION, fuse_pkgversion());
		options_free(run.options);
		return EXIT_OK;
	}
	/* A listing of some MiB is gone as soon as it is merged: its memory goes back to the system
	 * instead of staying in a heap that only grows. */
	(void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	/* But the buffers of reads, which follow one another, stay. */
	(void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	/* With a heap for each thread what one frees is of no use to the others: after some
	 * listings of a big tree a process was twice as big. What is small comes from the threads'
	 * own caches. */
	(void)mallopt(M_ARENA_MAX, 1);
	/* The token must not be found in a core dump. */
	(void)setrlimit(RLIMIT_CORE, &no_core);
	/* Each file with unsent bytes, each connection and each cached content that is read is one:
	 * as many as the system lets us have. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	/* Modes of spools and state are given in full. */
	(void)umask(077);
	status = run_prepare(&run);
	if (status == EXIT_OK && !run.options->foreground) {
		r = daemon_detach(&run.daemon, EXIT_MOUNT);
		if (r < 0)
			status = run_fail(EXIT_MOUNT, g_strdup(g_strerror(-r)));
	}
	daemon_block_signals();
	if (status == EXIT_OK)
		status = run_connect(&run);
	if (status == EXIT_OK)
		status = run_mount(&run);
	if (status == EXIT_OK)
		status = run_serve(&run);
	daemon_report(&run.daemon, status);
	run_done(&run);
	return status;
}
