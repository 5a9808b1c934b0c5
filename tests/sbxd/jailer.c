/*
 * The steps before bubblewrap that it can't do itself:
 *
 * sbxd-jail hold STATE
 *   Makes a mount namespace in which a writable overlay, with its upper directory under STATE, lies
 *   over each place that persists in a sandbox, without the machine's FUSE mounts (see fuseless.h);
 *   says on standard output which those places are, and keeps the namespace until its standard
 *   input ends. One for each session: mounting takes long, and unmounting an overlay writes the
 *   whole file system out.
 *
 * sbxd-jail enter PID BWRAP ARGUMENT...
 *   Goes into the namespaces of that process, gives up what root has from its number alone, and
 *   becomes BWRAP.
 *
 * A program of its own, without GLib and never sanitized, because it starts with every command.
 * What can't be mounted (an overlay on a file system that can't carry one) is left out: the place
 * is read-only then.
 */
#include "tests/sbxd/fuseless.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096

static const char *const places[] = { "/usr", "/etc", "/var", "/opt", "/srv", NULL };

static int die(const char *what)
{
	fprintf(stderr, "sbxd-jail: %s: %s\n", what, strerror(errno));
	return 1;
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return good;
}

/* Root has the right to all this; anybody else gets it in a user namespace of one's own. */
static bool enter_namespaces(void)
{
	char uid_map[64], gid_map[64];

	if (geteuid() == 0)
		return unshare(CLONE_NEWNS | CLONE_NEWNET) == 0;
	snprintf(uid_map, sizeof(uid_map), "%u %u 1", geteuid(), geteuid());
	snprintf(gid_map, sizeof(gid_map), "%u %u 1", getegid(), getegid());
	return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) == 0 &&
	       write_file("/proc/self/setgroups", "deny") &&
	       write_file("/proc/self/uid_map", uid_map) &&
	       write_file("/proc/self/gid_map", gid_map);
}

static bool mount_overlay(const char *state, const char *place)
{
	char upper[PATH_BYTES], work[PATH_BYTES], options[3 * PATH_BYTES];

	snprintf(upper, sizeof(upper), "%s/upper%s", state, place);
	snprintf(work, sizeof(work), "%s/work%s", state, place);
	if ((mkdir(upper, 0755) < 0 && errno != EEXIST) ||
	    (mkdir(work, 0755) < 0 && errno != EEXIST))
		return false;
	/* A holder's end and its successor's begin may overlap, which an index would refuse. */
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s,index=off%s", place,
		 upper, work, geteuid() == 0 ? "" : ",userxattr");
	return mount("overlay", place, "overlay", 0, options) == 0;
}

static void make_state(const char *state)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/upper", state);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/work", state);
	mkdir(path, 0755);
}

/*
 * Commands run as root but without what root has from its number alone, so that bubblewrap's
 * --cap-drop holds across exec: capabilities come by inheritance only.
 */
static bool keep_capabilities_by_inheritance(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	if (geteuid() != 0)
		return true;
	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	data[0].inheritable = data[0].permitted;
	data[1].inheritable = data[1].permitted;
	if (syscall(SYS_capset, &header, data) < 0)
		return false;
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
	return prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0) == 0;
}

static int hold(const char *state)
{
	char byte;

	if (!enter_namespaces() || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return die("namespaces");
	/* An overlay shows no mounts below its place, so a place has to be one piece. */
	fuseless_make(state, places);
	/* The machine's own /sys tells of its network; one mounted here, of ours. */
	mount("sysfs", "/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	make_state(state);
	for (const char *const *place = places; *place; place++) {
		if (mount_overlay(state, *place))
			printf("%s ", *place);
	}
	putchar('\n');
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
	return 0;
}

static bool join(const char *pid, const char *name, int kind)
{
	char path[64];
	int fd;
	bool good;

	snprintf(path, sizeof(path), "/proc/%s/ns/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	good = fd >= 0 && setns(fd, kind) == 0;
	if (fd >= 0)
		close(fd);
	return good;
}

static int enter(const char *pid, char **command)
{
	if ((geteuid() != 0 && !join(pid, "user", CLONE_NEWUSER)) || !join(pid, "mnt", CLONE_NEWNS))
		return die("namespaces");
	if (!keep_capabilities_by_inheritance())
		return die("capabilities");
	execv(command[0], command);
	return die(command[0]);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "hold") == 0)
		return hold(argv[2]);
	if (argc > 3 && strcmp(argv[1], "enter") == 0)
		return enter(argv[2], argv + 3);
	fputs("usage: sbxd-jail hold STATE | enter PID BWRAP ARGUMENT...\n", stderr);
	return 1;
}
