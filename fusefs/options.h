/*
 * options - the command line: sbxfs [-o …] ENDPOINT MOUNTPOINT.
 *
 * Only parses and checks; nothing is opened or sent. Options that are libfuse's or the kernel's own
 * (allow_other, ro, noatime, …) are collected for them in fuse_args; those that /etc/fstab may hold
 * but that mean nothing here (_netdev, noauto, user, x-…) are dropped.
 *
 * A secret does not belong on a command line that `ps` shows: -o token=… is refused, and a URL with
 * a password or query is refused by client/endpoint.h.
 */
#ifndef SBX_FUSEFS_OPTIONS_H
#define SBX_FUSEFS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fuse_args;

enum options_keepawake {
	KEEPAWAKE_RISK,
	KEEPAWAKE_JOBS,
	KEEPAWAKE_ALL,
	KEEPAWAKE_NONE,
};

enum options_log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

struct options {
	char *endpoint; /* as given, or SBX_ENDPOINT */
	char *mountpoint; /* absolute */
	bool foreground;
	bool debug; /* -d: libfuse's debug output, implies foreground */
	bool show_help;
	bool show_version;

	char *token_file; /* it and the next three: absolute or NULL */
	char *cacert, *cert, *key;
	char *proxy, *noproxy;
	bool insecure_http;
	bool delay_connect;
	unsigned int max_conn;
	int64_t timeout_ms;
	int64_t ttl_ms;

	char **attach; /* "ID:NAME" or "ID", NULL-terminated, may be NULL */
	bool noprobe;
	bool use_exec; /* false: exec=no */
	char *subtree; /* NULL, or "dev1", "dev1/fs", "dev1/fs/a" */
	bool symlinks_raw;

	char *state_dir, *cache_dir; /* absolute or NULL */
	uint64_t cache_size_bytes;
	bool cache_on_disk;

	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool allow_other;
	bool read_only;

	char *jobs_root;
	unsigned int jobs_keep;
	enum options_keepawake keepawake;
	int64_t autopersist_ms; /* 0: off */
	unsigned int autopersist_keep;
	/* Of keepawake and autopersist (keeper.h); for tests. */
	int64_t keepawake_interval_ms, keepawake_quiet_ms, keepawake_recent_ms;

	enum options_log_level log_level;
	struct fuse_args *fuse_args; /* argv[0] and -o … for fuse_session_new() */
};

/*
 * Parse @argv. 0, or -EINVAL with one line for the user in *ret_message (g_free). With -h or -V
 * nothing else is required. *ret_options: options_free().
 */
int options_parse(int argc, char **argv, struct options **ret_options, char **ret_message);
void options_free(struct options *options);

/* The text of -h. */
const char *options_help(void);

#endif
