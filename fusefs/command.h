/*
 * command - the subcommands of sbxfs: exec, logs, ctl, ls, help.
 *
 * They work through mounted files alone: no token, no request, no state of a mount is theirs, so
 * they do what any program could. A first argument that is one of these words is a subcommand; a
 * mount point or endpoint so named is written with a leading "./".
 *
 * Only for main: they print, and change signal handlers of the process. One thread.
 */
#ifndef SBX_FUSEFS_COMMAND_H
#define SBX_FUSEFS_COMMAND_H

#include <stdbool.h>

/* What a subcommand itself fails with; a job's own exit codes are passed on. */
#define COMMAND_FAILED 125

bool command_is_name(const char *word);
/* Run argv[0], one of the words. Returns the exit status. */
int command_run(int argc, char **argv);

/* "sbxfs WORD: …" on stderr. Returns COMMAND_FAILED. */
int command_fail(const char *word, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* exec [-d] [PATH] -- CMD…: run CMD as a job, follow its log, exit with its code. */
int cmd_exec(int argc, char **argv);
/* logs [-f] JOBDIR: the log of a job; -f: until the job ends. */
int cmd_logs(int argc, char **argv);
/* ctl NAME-or-PATH VERB…: write a line into the control file that is meant. */
int cmd_ctl(int argc, char **argv);
/* ls [MOUNT…]: the sessions of these mounts, or of all. */
int cmd_ls(int argc, char **argv);

#endif
