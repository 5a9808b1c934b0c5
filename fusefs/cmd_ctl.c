#include "fusefs/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include "fusefs/cmd_place.h"

static char *control_in(const char *dir)
{
	g_autofree char *path = g_build_filename(dir, "control", NULL);
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? g_steal_pointer(&path) : NULL;
}

/*
 * The control that @target means: of a directory that has one (a mount, a session, a job), of the
 * session that a path lies in, or of the one session of that name on all mounts. NULL, and a
 * reason.
 */
static char *find_control(const char *target, const char **ret_reason)
{
	g_auto(GStrv) mounts = NULL;
	struct cmd_place place = { 0 };
	char *control = NULL;

	*ret_reason = "no session of that name, and no path in one";
	if (cmd_place_find(target, &place) == 0) {
		/* The workspace may have a control of its own, which is none of ours. */
		control = place.is_ours ? control_in(target) : NULL;
		if (!control)
			control = control_in(place.session);
		cmd_place_done(&place);
		return control;
	}
	mounts = cmd_place_mounts();
	for (char **mount = mounts; *mount; mount++) {
		g_autofree char *dir = NULL;
		char *found;

		if (strcmp(*mount, target) == 0)
			return control_in(target);
		if (strchr(target, '/'))
			continue;
		dir = g_build_filename(*mount, target, NULL);
		found = control_in(dir);
		if (found && control) {
			g_free(found);
			g_free(control);
			*ret_reason = "several mounts have a session of that name: give its path";
			return NULL;
		}
		control = found ? found : control;
	}
	return control;
}

int cmd_ctl(int argc, char **argv)
{
	g_autofree char *control = NULL, *words = NULL, *line = NULL;
	const char *reason;
	int fd, error = 0;

	if (argc < 3)
		return command_fail("ctl", "a session and a command are expected; sbxfs ctl -h");
	control = find_control(argv[1], &reason);
	if (!control)
		return command_fail("ctl", "%s: %s", argv[1], reason);
	words = g_strjoinv(" ", argv + 2);
	if (strchr(words, '\n'))
		return command_fail("ctl", "a command is one line");
	line = g_strconcat(words, "\n", NULL);
	fd = open(control, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		error = errno;
	if (fd >= 0 && close(fd) < 0 && !error)
		error = errno;
	if (error)
		return command_fail("ctl", "%s: %s: %s", control, words, strerror(error));
	return 0;
}

static void list_session(const char *mount, const char *name)
{
	g_autofree char *status = g_build_filename(mount, name, "status", NULL);
	g_autofree char *state = cmd_place_value(status, "state");
	g_autofree char *id = cmd_place_value(status, "id");
	g_autofree char *note = cmd_place_value(status, "note");

	if (id)
		printf("%s/%s\t%s\t%s%s%s\n", mount, name, state ? state : "unknown", id,
		       note && *note ? "\t" : "", note ? note : "");
}

static int list_mount(const char *mount)
{
	GDir *dir = g_dir_open(mount, 0, NULL);
	const char *name;

	if (!dir)
		return command_fail("ls", "%s: can't be listed", mount);
	while ((name = g_dir_read_name(dir)))
		list_session(mount, name);
	g_dir_close(dir);
	return 0;
}

int cmd_ls(int argc, char **argv)
{
	g_auto(GStrv) mounts = NULL;
	int status = 0;

	if (argc <= 1)
		mounts = cmd_place_mounts();
	for (char **mount = argc > 1 ? argv + 1 : mounts; *mount; mount++)
		if (list_mount(*mount) != 0)
			status = COMMAND_FAILED;
	return status;
}
