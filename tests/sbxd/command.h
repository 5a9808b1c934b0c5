/*
 * Running one program to its end: started as Node starts it, its output collected as Node decodes
 * it. No state, no locks; command_run() blocks until the program has ended and every holder of its
 * output is gone.
 */
#ifndef SBX_SBXD_COMMAND_H
#define SBX_SBXD_COMMAND_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command {
	char *const *argv;
	char *const *env; /* whole: nothing of ours is added */
	const char *cwd;
	int64_t timeout_ms; /* 0: none */
	size_t limit_bytes; /* kept of each stream; 0: all */
	int null_fd;
	int stop_fd; /* give up waiting when this is readable */
	bool kill_on_stop;
};

struct outcome {
	int exit_code;
	int signal; /* not 0: killed by it, and there is no exit code */
	bool timed_out;
	GString *out; /* UTF-8, decoded read by read */
	GString *err;
};

/*
 * 0 with *ret_outcome filled (outcome_clear() it), or what hindered the start as a negative errno,
 * -ECANCELED when the server stops, -EOVERFLOW when a stream grew beyond what a JavaScript string
 * can hold.
 */
int command_run(const struct command *command, struct outcome *ret_outcome);
void outcome_clear(struct outcome *outcome);

/* "SIGKILL" for 9; static storage, NULL for what has no name. */
const char *command_signal_name(int number);

#endif
