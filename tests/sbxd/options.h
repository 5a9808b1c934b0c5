/*
 * The command line of sbxd, checked and with its defaults filled in.
 *
 * Read once by main() before the first thread starts, constant afterwards: no locks.
 */
#ifndef SBX_SBXD_OPTIONS_H
#define SBX_SBXD_OPTIONS_H

#include <glib.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum profile { PROFILE_HOST, PROFILE_OVERLAY };

struct options {
	char *root; /* physical path of the directory that everything lives under */
	char *archive_dir;
	char *token; /* NULL: a server without one */
	char *log_path;
	char *fault_path;
	GPtrArray *faults; /* char *, as given */
	GPtrArray *root_prefixes; /* char *, where a rootDir is allowed */
	struct sockaddr_in listen;
	enum profile profile;
	bool exec;
	bool busybox;
	bool bare_env; /* commands have the request's variables alone */
	bool range;
	int64_t idle_ttl_ms;
	int64_t sweep_ms;
	int64_t archive_ttl_ms;
	int64_t latency_ms;
	int64_t clock_skew_ms;
	int64_t keepalive_ms; /* FIN this long after a reply */
	int64_t head_deadline_ms; /* 408 to a head that is not whole by then */
	int64_t request_deadline_ms; /* 408 to a request that is not whole by then */
	size_t exec_output_limit; /* bytes kept of each stream; 0: all */
	size_t exec_command_limit; /* bytes of the whole quoted command; 0: no limit */
};

/*
 * Fill @opt from the arguments; the directories are made. Returns true when the server should
 * start; else *ret_status is what the process should exit with (0 after -h, 1 after a mistake,
 * which has been said on standard error).
 */
bool options_parse(struct options *opt, int argc, char **argv, int *ret_status);
void options_clear(struct options *opt);

#endif
