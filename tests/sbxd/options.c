#include "tests/sbxd/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/sbxd/clockskew.h"
#include "tests/sbxd/fault.h"

static const char help_text[] =
	"usage: sbxd --root DIR [option]...\n"
	"\n"
	"A stand-in for a remote sandbox server: it runs real commands in real directories\n"
	"under DIR and answers as the reference server does. It is for tests, and listens on\n"
	"nothing but loopback addresses. DIR/by-id/SESSION is a symbolic link to a session's\n"
	"live files. SIGUSR1 archives at once every session that no request is using; then\n"
	"a line `swept` appears on standard output.\n"
	"\n"
	"  --root DIR                where sessions live; made when missing\n"
	"  --listen ADDRESS:PORT     default 127.0.0.1:0, port 0 takes a free one\n"
	"  --token-file FILE         require the bearer token in FILE\n"
	"  --profile host|overlay    host: commands run directly, the root moves on every thaw;\n"
	"                            overlay: each command in its own namespaces, by bubblewrap\n"
	"  --no-exec                 answer exec with 501 not_supported\n"
	"  --bare-env                commands have the request's variables alone\n"
	"  --tools gnu|busybox       what the commands find in PATH; busybox: its applets only\n"
	"  --idle-ttl-ms N           archive a session idle this long (default 1800000)\n"
	"  --sweep-ms N              how often to look (default a quarter of that, at most 60000)\n"
	"  --archive-dir DIR         where host sessions are archived (default ROOT/.archives)\n"
	"  --archive-ttl-ms N        forget archives after this long (default seven days)\n"
	"  --root-dir-prefix DIR     allow rootDir under DIR; may be repeated (default: nowhere)\n"
	"  --latency-ms N            wait this long before each answer\n"
	"  --clock-skew-ms N         commands and routes live this much ahead (negative: behind);\n"
	"                            works by preloading, so not with the static busybox\n"
	"  --keepalive-ms N          close idle connections after this long (default 6000)\n"
	"  --head-deadline-ms N      408 to a head not whole by then (default 61000)\n"
	"  --request-deadline-ms N   408 to a request not whole by then (default 315000)\n"
	"  --exec-output-limit N     keep N bytes of each output stream, cut silently\n"
	"  --exec-command-limit N    E2BIG for a command whose quoted form is longer\n"
	"  --range                   answer Range with 206, which the reference server does not\n"
	"  --log FILE                append one JSON object a request\n"
	"  --fault RULE              spoil answers; may be repeated\n"
	"  --fault-file FILE         rules, one a line, read again whenever FILE changes; they\n"
	"                            replace all others and their counters start anew\n"
	"  -h, --help                this text\n"
	"\n"
	"RULE is ROUTE[@SESSIONPREFIX]:COUNT:ACTION[=ARGUMENT]\n"
	"  ROUTE   create delete reattach get put fs stat readdir exec persist hydrate unknown *\n"
	"  COUNT   N (the Nth such request, from 1), N-M, N- or *\n"
	"  ACTION  refuse            reset the connection without reading on\n"
	"          blackhole         never answer, never read on\n"
	"          delay=MS          answer later\n"
	"          status=N[/SECS]   this status and nothing done; SECS: with Retry-After\n"
	"          cut=BYTES         close after so many bytes of the body\n"
	"          drop              do the work, then close without an answer\n"
	"          garbage           200 with a body that is no JSON\n"
	"          wrongtype         200 with JSON whose fields have the wrong types\n"
	"          reply=TEXT        200 with TEXT as the body and nothing done\n"
	"          echo-auth         500 whose message holds the Authorization header\n"
	"          close-idle=MS     close this connection after MS idle\n"
	"          trickle=BYTES     send so many bytes of the body a second\n";

enum {
	OPT_ROOT = 256,
	OPT_LISTEN,
	OPT_TOKEN_FILE,
	OPT_PROFILE,
	OPT_NO_EXEC,
	OPT_BARE_ENV,
	OPT_TOOLS,
	OPT_IDLE_TTL,
	OPT_SWEEP,
	OPT_ARCHIVE_DIR,
	OPT_ARCHIVE_TTL,
	OPT_ROOT_PREFIX,
	OPT_LATENCY,
	OPT_SKEW,
	OPT_KEEPALIVE,
	OPT_HEAD_DEADLINE,
	OPT_REQUEST_DEADLINE,
	OPT_OUTPUT_LIMIT,
	OPT_COMMAND_LIMIT,
	OPT_RANGE,
	OPT_LOG,
	OPT_FAULT,
	OPT_FAULT_FILE,
};

static const struct option long_options[] = {
	{ "root", required_argument, NULL, OPT_ROOT },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "token-file", required_argument, NULL, OPT_TOKEN_FILE },
	{ "profile", required_argument, NULL, OPT_PROFILE },
	{ "no-exec", no_argument, NULL, OPT_NO_EXEC },
	{ "bare-env", no_argument, NULL, OPT_BARE_ENV },
	{ "tools", required_argument, NULL, OPT_TOOLS },
	{ "idle-ttl-ms", required_argument, NULL, OPT_IDLE_TTL },
	{ "sweep-ms", required_argument, NULL, OPT_SWEEP },
	{ "archive-dir", required_argument, NULL, OPT_ARCHIVE_DIR },
	{ "archive-ttl-ms", required_argument, NULL, OPT_ARCHIVE_TTL },
	{ "root-dir-prefix", required_argument, NULL, OPT_ROOT_PREFIX },
	{ "latency-ms", required_argument, NULL, OPT_LATENCY },
	{ "clock-skew-ms", required_argument, NULL, OPT_SKEW },
	{ "keepalive-ms", required_argument, NULL, OPT_KEEPALIVE },
	{ "head-deadline-ms", required_argument, NULL, OPT_HEAD_DEADLINE },
	{ "request-deadline-ms", required_argument, NULL, OPT_REQUEST_DEADLINE },
	{ "exec-output-limit", required_argument, NULL, OPT_OUTPUT_LIMIT },
	{ "exec-command-limit", required_argument, NULL, OPT_COMMAND_LIMIT },
	{ "range", no_argument, NULL, OPT_RANGE },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "fault", required_argument, NULL, OPT_FAULT },
	{ "fault-file", required_argument, NULL, OPT_FAULT_FILE },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static bool fail(const char *what, const char *why)
{
	fprintf(stderr, "sbxd: %s: %s\n", what, why);
	return false;
}

static bool parse_number(const char *name, const char *text, int64_t min, int64_t *ret_number)
{
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno || end == text || *end || number < min)
		return fail(name, "not a number that makes sense here");
	*ret_number = number;
	return true;
}

static bool parse_listen(struct options *opt, const char *text)
{
	const char *colon = strrchr(text, ':');
	g_autofree char *host = NULL;
	int64_t port;

	if (!colon)
		return fail(text, "not ADDRESS:PORT");
	host = g_strndup(text, (gsize)(colon - text));
	if (!parse_number("--listen", colon + 1, 0, &port) || port > 65535)
		return fail(text, "no such port");
	if (strcmp(host, "localhost") == 0)
		opt->listen.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else if (inet_pton(AF_INET, host, &opt->listen.sin_addr) != 1)
		return fail(host, "not an IPv4 address");
	if (ntohl(opt->listen.sin_addr.s_addr) >> 24 != 127)
		return fail(host, "not a loopback address: anyone could run commands here");
	opt->listen.sin_port = htons((uint16_t)port);
	return true;
}

static bool read_token(struct options *opt, const char *path)
{
	g_autofree char *text = NULL;
	g_autoptr(GError) error = NULL;

	if (!g_file_get_contents(path, &text, NULL, &error))
		return fail(path, error->message);
	g_strstrip(text);
	if (!*text)
		return fail(path, "no token in it");
	g_free(opt->token);
	opt->token = g_steal_pointer(&text);
	return true;
}

static bool one_of(const char *name, const char *text, const char *first, const char *second,
		   bool *ret_second)
{
	*ret_second = strcmp(text, second) == 0;
	return *ret_second || strcmp(text, first) == 0 || fail(name, "no such choice");
}

static void set_text(char **field, const char *text)
{
	g_free(*field);
	*field = g_strdup(text);
}

static bool take_limit(const char *name, const char *text, size_t *ret_limit)
{
	int64_t number;

	if (!parse_number(name, text, 0, &number))
		return false;
	*ret_limit = (size_t)number;
	return true;
}

static bool take_fault(struct options *opt, const char *text)
{
	if (!fault_rule_is_valid(text))
		return fail(text, "not a fault rule (see --help)");
	g_ptr_array_add(opt->faults, g_strdup(text));
	return true;
}

static bool take(struct options *opt, int which, const char *arg)
{
	bool second;

	switch (which) {
	case OPT_ROOT:
		set_text(&opt->root, arg);
		return true;
	case OPT_LISTEN:
		return parse_listen(opt, arg);
	case OPT_TOKEN_FILE:
		return read_token(opt, arg);
	case OPT_PROFILE:
		if (!one_of("--profile", arg, "host", "overlay", &second))
			return false;
		opt->profile = second ? PROFILE_OVERLAY : PROFILE_HOST;
		return true;
	case OPT_NO_EXEC:
		opt->exec = false;
		return true;
	case OPT_BARE_ENV:
		opt->bare_env = true;
		return true;
	case OPT_TOOLS:
		return one_of("--tools", arg, "gnu", "busybox", &opt->busybox);
	case OPT_IDLE_TTL:
		return parse_number("--idle-ttl-ms", arg, 1, &opt->idle_ttl_ms);
	case OPT_SWEEP:
		return parse_number("--sweep-ms", arg, 1, &opt->sweep_ms);
	case OPT_ARCHIVE_DIR:
		set_text(&opt->archive_dir, arg);
		return true;
	case OPT_ARCHIVE_TTL:
		return parse_number("--archive-ttl-ms", arg, 1, &opt->archive_ttl_ms);
	case OPT_ROOT_PREFIX:
		g_ptr_array_add(opt->root_prefixes, g_strdup(arg));
		return true;
	case OPT_LATENCY:
		return parse_number("--latency-ms", arg, 0, &opt->latency_ms);
	case OPT_SKEW:
		return parse_number("--clock-skew-ms", arg, INT64_MIN, &opt->clock_skew_ms);
	case OPT_KEEPALIVE:
		return parse_number("--keepalive-ms", arg, 1, &opt->keepalive_ms);
	case OPT_HEAD_DEADLINE:
		return parse_number("--head-deadline-ms", arg, 1, &opt->head_deadline_ms);
	case OPT_REQUEST_DEADLINE:
		return parse_number("--request-deadline-ms", arg, 1, &opt->request_deadline_ms);
	case OPT_OUTPUT_LIMIT:
		return take_limit("--exec-output-limit", arg, &opt->exec_output_limit);
	case OPT_COMMAND_LIMIT:
		return take_limit("--exec-command-limit", arg, &opt->exec_command_limit);
	case OPT_RANGE:
		opt->range = true;
		return true;
	case OPT_LOG:
		set_text(&opt->log_path, arg);
		return true;
	case OPT_FAULT:
		return take_fault(opt, arg);
	case OPT_FAULT_FILE:
		set_text(&opt->fault_path, arg);
		return true;
	default:
		fputs("try sbxd --help\n", stderr);
		return false;
	}
}

/* Make the directory and replace the path by its physical form. */
static bool make_dir(char **path)
{
	char *real;

	if (g_mkdir_with_parents(*path, 0755) < 0)
		return fail(*path, g_strerror(errno));
	real = realpath(*path, NULL);
	if (!real)
		return fail(*path, g_strerror(errno));
	g_free(*path);
	*path = g_strdup(real);
	free(real);
	return true;
}

static bool complete(struct options *opt)
{
	if (!opt->root)
		return fail("--root", "missing (see --help)");
	if (!make_dir(&opt->root))
		return false;
	if (!opt->archive_dir)
		opt->archive_dir = g_build_filename(opt->root, ".archives", NULL);
	if (!make_dir(&opt->archive_dir))
		return false;
	if (opt->sweep_ms == 0)
		opt->sweep_ms = CLAMP(opt->idle_ttl_ms / 4, 1, 60 * 1000);
	if (opt->bare_env && opt->profile == PROFILE_OVERLAY)
		return fail("--bare-env", "the jail gives PATH and HOME");
	if (opt->clock_skew_ms != 0 && opt->busybox)
		return fail("--clock-skew-ms", "the static busybox can't be preloaded");
	if (opt->clock_skew_ms != 0 && !clockskew_library())
		return fail("--clock-skew-ms", "libfaketime is not installed");
	return true;
}

bool options_parse(struct options *opt, int argc, char **argv, int *ret_status)
{
	int which;

	*opt = (struct options){
		.faults = g_ptr_array_new_with_free_func(g_free),
		.root_prefixes = g_ptr_array_new_with_free_func(g_free),
		.listen = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
		.exec = true,
		.idle_ttl_ms = 30 * 60 * 1000,
		.archive_ttl_ms = INT64_C(7) * 24 * 3600 * 1000,
		.keepalive_ms = 6000,
		.head_deadline_ms = 61 * 1000,
		.request_deadline_ms = 315 * 1000,
	};
	*ret_status = 1;
	while ((which = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (which == 'h') {
			fputs(help_text, stdout);
			*ret_status = 0;
			return false;
		}
		if (!take(opt, which, optarg))
			return false;
	}
	if (optind < argc)
		return fail(argv[optind], "no argument is taken (see --help)");
	return complete(opt);
}

void options_clear(struct options *opt)
{
	g_free(opt->root);
	g_free(opt->archive_dir);
	g_free(opt->token);
	g_free(opt->log_path);
	g_free(opt->fault_path);
	g_ptr_array_free(opt->faults, TRUE);
	g_ptr_array_free(opt->root_prefixes, TRUE);
}
