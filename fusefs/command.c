#include "fusefs/command.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int cmd_help(int argc, char **argv);

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;
	const char *help;
} commands[] = {
	{ "exec", cmd_exec, "exec [-d] [PATH] -- COMMAND [ARG...]",
	  "run COMMAND in the sandbox, in the directory of PATH (default .): its output is\n"
	  "    printed, Ctrl-C cancels it, its exit code is this program's; -d: print the\n"
	  "    job's id and end" },
	{ "logs", cmd_logs, "logs [-f] JOBDIR",
	  "print the output of a job; -f: until it has ended" },
	{ "ctl", cmd_ctl, "ctl NAME|PATH VERB [ARG...]",
	  "have a session, a mount or a job do what its file `control` lists" },
	{ "ls", cmd_ls, "ls [MOUNT...]", "list the sessions of the mounts" },
	{ "help", cmd_help, "help", "this text; sbxfs -h tells how to mount" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int cmd_help(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("sbxfs %s\n    %s\n", commands[i].usage, commands[i].help);
	return 0;
}

static const struct command *find(const char *word)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, word) == 0)
			return &commands[i];
	return NULL;
}

bool command_is_name(const char *word)
{
	return find(word);
}

int command_run(int argc, char **argv)
{
	const struct command *command = find(argv[0]);

	if (argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
		printf("sbxfs %s\n    %s\n", command->usage, command->help);
		return 0;
	}
	return command->run(argc, argv);
}

int command_fail(const char *word, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "sbxfs %s: ", word);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return COMMAND_FAILED;
}
