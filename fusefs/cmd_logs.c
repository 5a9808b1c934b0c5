#include "fusefs/command.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "fusefs/cmd_follow.h"

#define WORD "logs"

int cmd_logs(int argc, char **argv)
{
	bool to_end = argc > 1 && strcmp(argv[1], "-f") == 0;
	const char *job_dir;
	int r;

	if (argc != (to_end ? 3 : 2))
		return command_fail(WORD, "one directory of a job is expected; sbxfs logs -h");
	job_dir = argv[argc - 1];
	cmd_follow_begin(false);
	r = cmd_follow(job_dir, to_end);
	if (r == -EINTR)
		return 128 + cmd_follow_signal();
	if (r == -EPIPE)
		return 128 + SIGPIPE;
	return r < 0 ? command_fail(WORD, "%s: %s", job_dir, strerror(-r)) : 0;
}
