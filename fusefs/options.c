#include "fusefs/options.h"

#include <errno.h>
#include <fuse_opt.h>
#include <glib.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session.h"

#define ID_MAX			 64 /* bytes of a session's id */
#define DEFAULT_TIMEOUT_MS	 30000
#define DEFAULT_TTL_MS		 1000
#define DEFAULT_CACHE_SIZE	 (1024ull * 1024 * 1024)
#define DEFAULT_JOBS_KEEP	 200
#define DEFAULT_AUTOPERSIST_KEEP 3
#define DEFAULT_INTERVAL_MS	 300000
#define DEFAULT_QUIET_MS	 600000
#define DEFAULT_RECENT_MS	 300000

/* What -o keys mean; the value, if any, is parsed by hand so that each error can name its
 * option. */
enum option_key {
	KEY_STRING,
	KEY_PATH,
	KEY_SECONDS,
	KEY_COUNT,
	KEY_SIZE,
	KEY_ID,
	KEY_MODE,
	KEY_FLAG,
	KEY_NOFLAG,
	KEY_ATTACH,
	KEY_EXEC,
	KEY_SYMLINKS,
	KEY_KEEPAWAKE,
	KEY_LOG_LEVEL,
	KEY_TOKEN,
	KEY_IGNORED,
	KEY_PASSED, /* ours and libfuse's */
};

struct option_row {
	const char *name;
	enum option_key key;
	size_t offset;
};

#define AT(field) offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "token_file", KEY_PATH, AT(token_file) },
	{ "cacert", KEY_PATH, AT(cacert) },
	{ "cert", KEY_PATH, AT(cert) },
	{ "key", KEY_PATH, AT(key) },
	{ "proxy", KEY_STRING, AT(proxy) },
	{ "noproxy", KEY_STRING, AT(noproxy) },
	{ "insecure_http", KEY_FLAG, AT(insecure_http) },
	{ "delay_connect", KEY_FLAG, AT(delay_connect) },
	{ "max_conn", KEY_COUNT, AT(max_conn) },
	{ "timeout", KEY_SECONDS, AT(timeout_ms) },
	{ "ttl", KEY_SECONDS, AT(ttl_ms) },
	{ "attach", KEY_ATTACH, 0 },
	{ "noprobe", KEY_FLAG, AT(noprobe) },
	{ "exec", KEY_EXEC, 0 },
	{ "subtree", KEY_STRING, AT(subtree) },
	{ "symlinks", KEY_SYMLINKS, 0 },
	{ "state_dir", KEY_STRING, AT(state_dir) },
	{ "cache_dir", KEY_STRING, AT(cache_dir) },
	{ "cache_size", KEY_SIZE, AT(cache_size_bytes) },
	{ "nocache_disk", KEY_NOFLAG, AT(cache_on_disk) },
	{ "uid", KEY_ID, AT(uid) },
	{ "gid", KEY_ID, AT(gid) },
	{ "umask", KEY_MODE, AT(umask) },
	{ "allow_other", KEY_PASSED, AT(allow_other) },
	{ "ro", KEY_PASSED, AT(read_only) },
	{ "jobs_root", KEY_STRING, AT(jobs_root) },
	{ "jobs_keep", KEY_COUNT, AT(jobs_keep) },
	{ "keepawake", KEY_KEEPAWAKE, 0 },
	{ "autopersist", KEY_SECONDS, AT(autopersist_ms) },
	{ "autopersist_keep", KEY_COUNT, AT(autopersist_keep) },
	{ "keepawake_interval", KEY_SECONDS, AT(keepawake_interval_ms) },
	{ "keepawake_quiet", KEY_SECONDS, AT(keepawake_quiet_ms) },
	{ "keepawake_recent", KEY_SECONDS, AT(keepawake_recent_ms) },
	{ "log_level", KEY_LOG_LEVEL, 0 },
	{ "token", KEY_TOKEN, 0 },
	{ "password", KEY_TOKEN, 0 },
	/* Of mount(8) and fstab; they mean nothing to a filesystem. */
	{ "_netdev", KEY_IGNORED, 0 },
	{ "auto", KEY_IGNORED, 0 },
	{ "noauto", KEY_IGNORED, 0 },
	{ "user", KEY_IGNORED, 0 },
	{ "users", KEY_IGNORED, 0 },
	{ "owner", KEY_IGNORED, 0 },
	{ "nouser", KEY_IGNORED, 0 },
	{ "nofail", KEY_IGNORED, 0 },
	{ "defaults", KEY_IGNORED, 0 },
	/* Always nosuid and nodev, whatever is asked. */
	{ "suid", KEY_IGNORED, 0 },
	{ "dev", KEY_IGNORED, 0 },
	{ "nosuid", KEY_IGNORED, 0 },
	{ "nodev", KEY_IGNORED, 0 },
};

struct parse_state {
	struct options *options;
	GPtrArray *attach;
	char *message;
	unsigned int n_args;
};

const char *options_help(void)
{
	return "usage: sbxfs [-o OPTION[,OPTION…]] ENDPOINT MOUNTPOINT\n"
	       "       sbxfs exec|logs|ctl|ls|help …   (see sbxfs help; a mount point so named is "
	       "./exec)\n"
	       "\n"
	       "Mounts the sandboxes of a server: each session is a directory.\n"
	       "ENDPOINT may be left out when SBX_ENDPOINT is set; the token comes from\n"
	       "token_file or SBX_TOKEN.\n"
	       "\n"
	       "    -f                     stay in the foreground\n"
	       "    -d                     foreground, with libfuse's debug output\n"
	       "    -h, --help             this text\n"
	       "    -V, --version          version\n"
	       "\n"
	       "server\n"
	       "    -o token_file=FILE     read the token from FILE, again when it changes\n"
	       "    -o cacert=FILE         trust the certificates in FILE\n"
	       "    -o cert=FILE,key=FILE  client certificate and its key\n"
	       "    -o proxy=URL           http proxy; loopback is never asked through one\n"
	       "    -o noproxy=LIST        hosts that are asked directly\n"
	       "    -o insecure_http       send the token over plain http to another host\n"
	       "    -o timeout=SECONDS     longest wait without progress (30)\n"
	       "    -o max_conn=N          connections a session (16)\n"
	       "    -o delay_connect       mount without asking the server first\n"
	       "sessions\n"
	       "    -o attach=ID[:NAME]    show session ID as NAME (may be repeated)\n"
	       "    -o noprobe             never ask the server for names that look like an id\n"
	       "    -o exec=auto|no        no: use the plain file routes only\n"
	       "    -o subtree=PATH        mount only PATH, e.g. dev1/fs\n"
	       "    -o keepawake=risk|jobs|all|none\n"
	       "                           which sessions are kept from sleeping (risk)\n"
	       "    -o autopersist=SECONDS persist a changed session that often\n"
	       "    -o autopersist_keep=N  and keep that many such snapshots (3)\n"
	       "    -o jobs_keep=N         ended jobs kept in the sandbox (200)\n"
	       "    -o jobs_root=DIR       another directory of jobs in the sandbox to show\n"
	       "files\n"
	       "    -o ttl=SECONDS         how old what is shown may be (1)\n"
	       "    -o uid=N,gid=N,umask=M owner shown, permissions taken away\n"
	       "    -o symlinks=contained|raw\n"
	       "                           raw: show a link's text as it is\n"
	       "    -o cache_size=SIZE     bound of the cache on disk (1G)\n"
	       "    -o nocache_disk        keep no content between mounts\n"
	       "    -o state_dir=DIR       unsent bytes, snapshots, what is known of sessions\n"
	       "    -o cache_dir=DIR       cached content and logs\n"
	       "    -o log_level=error|warning|info|debug\n"
	       "    -o allow_other, ro and other options of mount.fuse(8)\n"
	       "\n"
	       "exit status: 1 usage, 2 mount, 3 token, 4 server unreachable or not trusted\n";
}

static int parse_fail(struct parse_state *state, char *message)
{
	if (!state->message)
		state->message = message;
	else
		g_free(message);
	return -1;
}

static int parse_seconds(struct parse_state *state, const char *name, const char *value,
			 int64_t *ret_ms)
{
	char *end;
	double seconds = g_ascii_strtod(value, &end);

	if (end == value || *end || !isfinite(seconds) || seconds < 0 || seconds > 1e9)
		return parse_fail(
			state, g_strdup_printf("-o %s=%s: not a number of seconds", name, value));
	*ret_ms = (int64_t)(seconds * 1000 + 0.5);
	return 0;
}

static int parse_unsigned(struct parse_state *state, const char *name, const char *value,
			  unsigned int base, uint64_t max, uint64_t *ret_number)
{
	if (!g_ascii_string_to_unsigned(value, base, 0, max, ret_number, NULL))
		return parse_fail(
			state, g_strdup_printf("-o %s=%s: not %s", name, value,
					       base == 8 ? "an octal mode" : "a number in range"));
	return 0;
}

static int parse_size(struct parse_state *state, const char *name, const char *value,
		      uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	g_autofree char *digits = g_strdup(value);
	size_t len = strlen(digits);
	unsigned int shift = 0;
	uint64_t number;
	const char *suffix;

	if (len && (suffix = strchr(suffixes, g_ascii_toupper(digits[len - 1])))) {
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
		digits[len - 1] = '\0';
	}
	if (!g_ascii_string_to_unsigned(digits, 10, 0, UINT64_MAX >> shift, &number, NULL))
		return parse_fail(
			state, g_strdup_printf("-o %s=%s: not a size such as 512M", name, value));
	*ret_bytes = number << shift;
	return 0;
}

/* Which of @words is @value; -1 and a message that lists them when none. */
static int parse_word(struct parse_state *state, const char *name, const char *value,
		      const char *const *words)
{
	g_autofree char *all = NULL;

	for (int i = 0; words[i]; i++)
		if (!strcmp(value, words[i]))
			return i;
	all = g_strjoinv(", ", (char **)words);
	return parse_fail(state, g_strdup_printf("-o %s=%s: one of %s", name, value, all));
}

static int parse_attach(struct parse_state *state, const char *value)
{
	size_t id_len = strcspn(value, ":");
	const char *name = value[id_len] ? value + id_len + 1 : NULL;
	bool valid = id_len >= 1 && id_len <= ID_MAX;

	for (size_t i = 0; i < id_len && valid; i++)
		valid = g_ascii_isalnum(value[i]) || value[i] == '-';
	if (!valid || (name && !sbx_session_name_is_valid(name)))
		return parse_fail(state, g_strdup_printf("-o attach=%s: not ID[:NAME]", value));
	g_ptr_array_add(state->attach, g_strdup(value));
	return 0;
}

/* What is relative to the directory that we are started in: the background has another. */
static char *absolute_path(const char *path)
{
	g_autofree char *here = NULL;

	/* Behind a link ".." leads elsewhere than the text says. */
	if (!strstr(path, ".."))
		return g_canonicalize_filename(path, NULL);
	here = g_get_current_dir();
	return path[0] == '/' ? g_strdup(path) : g_build_filename(here, path, NULL);
}

static int parse_row(struct parse_state *state, const struct option_row *row, const char *value)
{
	static const char *const exec_words[] = { "no", "auto", NULL };
	static const char *const symlink_words[] = { "contained", "raw", NULL };
	static const char *const keepawake_words[] = { "risk", "jobs", "all", "none", NULL };
	static const char *const level_words[] = { "error", "warning", "info", "debug", NULL };
	struct options *options = state->options;
	char *field = (char *)options + row->offset;
	uint64_t number;
	int word;

	switch (row->key) {
	case KEY_STRING:
		g_free(*(char **)field);
		*(char **)field = g_strdup(value);
		break;
	case KEY_PATH:
		g_free(*(char **)field);
		*(char **)field = absolute_path(value);
		break;
	case KEY_SECONDS:
		return parse_seconds(state, row->name, value, (int64_t *)field);
	case KEY_COUNT:
	case KEY_ID:
	case KEY_MODE:
		if (parse_unsigned(state, row->name, value, row->key == KEY_MODE ? 8 : 10,
				   row->key == KEY_MODE	   ? 07777
				   : row->key == KEY_COUNT ? 1000000
							   : UINT32_MAX - 1,
				   &number) < 0)
			return -1;
		*(unsigned int *)field = (unsigned int)number;
		break;
	case KEY_SIZE:
		return parse_size(state, row->name, value, (uint64_t *)field);
	case KEY_FLAG:
	case KEY_PASSED:
		*(bool *)field = true;
		break;
	case KEY_NOFLAG:
		*(bool *)field = false;
		break;
	case KEY_ATTACH:
		return parse_attach(state, value);
	case KEY_EXEC:
		word = parse_word(state, row->name, value, exec_words);
		options->use_exec = word != 0;
		return word < 0 ? -1 : 0;
	case KEY_SYMLINKS:
		word = parse_word(state, row->name, value, symlink_words);
		options->symlinks_raw = word == 1;
		return word < 0 ? -1 : 0;
	case KEY_KEEPAWAKE:
		word = parse_word(state, row->name, value, keepawake_words);
		options->keepawake = (enum options_keepawake)word;
		return word < 0 ? -1 : 0;
	case KEY_LOG_LEVEL:
		word = parse_word(state, row->name, value, level_words);
		options->log_level = (enum options_log_level)word;
		return word < 0 ? -1 : 0;
	case KEY_TOKEN:
		return parse_fail(
			state, g_strdup_printf("-o %s: a secret on the command line can be read by "
					       "everybody; use -o token_file=FILE or SBX_TOKEN",
					       row->name));
	case KEY_IGNORED:
		break;
	}
	return 0;
}

static bool key_takes_value(enum option_key key)
{
	switch (key) {
	case KEY_FLAG:
	case KEY_NOFLAG:
	case KEY_PASSED:
	case KEY_IGNORED:
		return false;
	default:
		return true;
	}
}

/* fuse_opt_proc_t: 1 keeps the argument for libfuse, 0 drops it, -1 fails. */
static int parse_option(struct parse_state *state, const char *arg)
{
	const char *equals = strchr(arg, '=');
	size_t len = equals ? (size_t)(equals - arg) : strlen(arg);

	for (size_t i = 0; i < G_N_ELEMENTS(option_rows); i++) {
		const struct option_row *row = &option_rows[i];

		if (strlen(row->name) != len || strncmp(row->name, arg, len) != 0)
			continue;
		/* "exec" without a value is mount(8)'s. */
		if (row->key == KEY_EXEC && !equals)
			return 0;
		if (row->key == KEY_TOKEN)
			return parse_row(state, row, NULL);
		if (key_takes_value(row->key) && (!equals || !equals[1]))
			return parse_fail(state, g_strdup_printf("-o %s needs a value", row->name));
		if (!key_takes_value(row->key) && equals && row->key != KEY_IGNORED)
			return parse_fail(state,
					  g_strdup_printf("-o %s takes no value", row->name));
		if (parse_row(state, row, equals ? equals + 1 : NULL) < 0)
			return -1;
		return row->key == KEY_PASSED ? 1 : 0;
	}
	return g_str_has_prefix(arg, "x-") || g_str_has_prefix(arg, "comment=") ? 0 : 1;
}

static int parse_arg(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct parse_state *state = data;
	struct options *options = state->options;

	(void)outargs;
	if (key == FUSE_OPT_KEY_OPT && arg[0] == '-') {
		if (!strcmp(arg, "-h") || !strcmp(arg, "--help"))
			options->show_help = true;
		else if (!strcmp(arg, "-V") || !strcmp(arg, "--version"))
			options->show_version = true;
		else if (!strcmp(arg, "-f"))
			options->foreground = true;
		else if (!strcmp(arg, "-d"))
			options->foreground = options->debug = true;
		else if (!strcmp(arg, "-s"))
			return parse_fail(state,
					  g_strdup("-s: sbxfs always runs with several threads"));
		else
			return parse_fail(state, g_strdup_printf("%s: no such option", arg));
		return !strcmp(arg, "-d");
	}
	if (key == FUSE_OPT_KEY_OPT)
		return parse_option(state, arg);
	if (key != FUSE_OPT_KEY_NONOPT)
		return 1;
	state->n_args++;
	if (state->n_args == 1) {
		options->endpoint = g_strdup(arg);
	} else if (state->n_args == 2) {
		options->mountpoint = g_strdup(arg);
	} else {
		return parse_fail(state, g_strdup_printf("%s: one ENDPOINT and one MOUNTPOINT are "
							 "expected",
							 arg));
	}
	return 0;
}

static int options_check(struct options *options, unsigned int n_args, char **ret_message)
{
	const char *endpoint = getenv("SBX_ENDPOINT");
	g_autofree char *given = NULL;

	if (n_args == 1 && endpoint && endpoint[0]) {
		options->mountpoint = g_steal_pointer(&options->endpoint);
		options->endpoint = g_strdup(endpoint);
	} else if (n_args < 2) {
		*ret_message =
			g_strdup(n_args ? "MOUNTPOINT is missing (or SBX_ENDPOINT is not "
					  "set); see sbxfs -h"
					: "ENDPOINT and MOUNTPOINT are missing; see sbxfs -h");
		return -EINVAL;
	}
	given = options->mountpoint;
	options->mountpoint = absolute_path(given);
	if (!options->timeout_ms) {
		*ret_message = g_strdup("-o timeout=0: must be more than zero");
		return -EINVAL;
	}
	if (!options->cert != !options->key) {
		*ret_message = g_strdup("-o cert and -o key go together");
		return -EINVAL;
	}
	if ((options->state_dir && options->state_dir[0] != '/') ||
	    (options->cache_dir && options->cache_dir[0] != '/')) {
		*ret_message = g_strdup("-o state_dir and cache_dir: absolute paths are expected");
		return -EINVAL;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options **ret_options, char **ret_message)
{
	struct options *options = g_new0(struct options, 1);
	struct parse_state state = { .options = options };
	int r = 0;

	options->timeout_ms = DEFAULT_TIMEOUT_MS;
	options->ttl_ms = DEFAULT_TTL_MS;
	options->use_exec = true;
	options->cache_on_disk = true;
	options->cache_size_bytes = DEFAULT_CACHE_SIZE;
	options->jobs_keep = DEFAULT_JOBS_KEEP;
	options->autopersist_keep = DEFAULT_AUTOPERSIST_KEEP;
	options->keepawake_interval_ms = DEFAULT_INTERVAL_MS;
	options->keepawake_quiet_ms = DEFAULT_QUIET_MS;
	options->keepawake_recent_ms = DEFAULT_RECENT_MS;
	options->log_level = LOG_LEVEL_WARNING;
	options->uid = getuid();
	options->gid = getgid();
	options->fuse_args = g_new0(struct fuse_args, 1);
	state.attach = g_ptr_array_new();
	for (int i = 0; i < argc; i++)
		fuse_opt_add_arg(options->fuse_args, argv[i]);
	if (fuse_opt_parse(options->fuse_args, &state, NULL, parse_arg) < 0) {
		if (!state.message)
			state.message = g_strdup("the options can't be read; see sbxfs -h");
		r = -EINVAL;
	}
	g_ptr_array_add(state.attach, NULL);
	options->attach = (char **)g_ptr_array_free(state.attach, FALSE);
	if (r == 0 && !options->show_help && !options->show_version)
		r = options_check(options, state.n_args, &state.message);
	if (r < 0) {
		options_free(options);
		*ret_message = state.message;
		return r;
	}
	*ret_options = options;
	return 0;
}

void options_free(struct options *options)
{
	if (!options)
		return;
	fuse_opt_free_args(options->fuse_args);
	g_free(options->fuse_args);
	g_strfreev(options->attach);
	g_free(options->endpoint);
	g_free(options->mountpoint);
	g_free(options->token_file);
	g_free(options->cacert);
	g_free(options->cert);
	g_free(options->key);
	g_free(options->proxy);
	g_free(options->noproxy);
	g_free(options->subtree);
	g_free(options->state_dir);
	g_free(options->cache_dir);
	g_free(options->jobs_root);
	g_free(options);
}
