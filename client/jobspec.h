/*
 * jobspec - what a program writes into `jobs/new`, as a struct sbx_job_spec, and back.
 *
 * A text is a shell command (several lines are one script) or one JSON object
 * {command, cwd, env, timeoutSeconds, processName, id}. So that the text which `jobs/new` shows may
 * be saved back with a command in it, lines at its beginning and end that are blank or begin with
 * `#` are nothing, and so is a CR at the end of a line. What begins as a JSON object does, a brace
 * and then a quote or a brace, is JSON or an error, never a command.
 *
 * Bytes in, struct out: no I/O, no locks, never block.
 */
#ifndef SBX_CLIENT_JOBSPEC_H
#define SBX_CLIENT_JOBSPEC_H

#include <stddef.h>

#include "client/jobs.h"

struct sbx_jobspec {
	struct sbx_job_spec spec; /* points into what follows */
	char *command;
	char *cwd;
	char **env;
	char *process_name;
	char *id;
};

/*
 * 0, and *ret_spec NULL where the text asks for nothing. -EINVAL: JSON that is broken, has a member
 * that is not known or of another type, or no command; a NUL; text that is not UTF-8 in JSON.
 */
int sbx_jobspec_parse(const char *text, size_t len, struct sbx_jobspec **ret_spec);
void sbx_jobspec_free(struct sbx_jobspec *spec); /* NULL is allowed */

/* The JSON object of @spec, with a newline. g_free(). -EILSEQ: a text that is not UTF-8;
 * -ENOMEM. */
int sbx_jobspec_print(const struct sbx_job_spec *spec, char **ret_text);

/*
 * A shell command that runs exactly @argv (NULL at the end): each word quoted where it has to be.
 * It is UTF-8 whatever the words are. g_free().
 */
char *sbx_jobspec_quote(const char *const *argv);

#endif
