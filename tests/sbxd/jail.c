#include "tests/sbxd/jail.h"
#include "tests/sbxd/clockskew.h"

#include <string.h>
#include <unistd.h>

static void add(GPtrArray *argv, const char *first, ...) G_GNUC_NULL_TERMINATED;

static void add(GPtrArray *argv, const char *first, ...)
{
	va_list rest;

	va_start(rest, first);
	for (const char *arg = first; arg; arg = va_arg(rest, const char *))
		g_ptr_array_add(argv, g_strdup(arg));
	va_end(rest);
}

/* As root bubblewrap drops every capability; put back all but what reaches out of the jail. */
static void add_capabilities(GPtrArray *argv)
{
	static const char *const dropped[] = {
		"CAP_SYS_ADMIN",  "CAP_MKNOD",	    "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE",
		"CAP_NET_ADMIN",  "CAP_NET_RAW",    "CAP_NET_BROADCAST",   "CAP_SYS_MODULE",
		"CAP_SYS_RAWIO",  "CAP_SYS_BOOT",   "CAP_SYS_TIME",	   "CAP_SYSLOG",
		"CAP_SYS_PACCT",  "CAP_MAC_ADMIN",  "CAP_MAC_OVERRIDE",	   "CAP_BPF",
		"CAP_PERFMON",	  "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",   "CAP_AUDIT_CONTROL",
		"CAP_AUDIT_READ",
	};

	if (getuid() != 0)
		return;
	add(argv, "--cap-add", "ALL", NULL);
	for (size_t i = 0; i < G_N_ELEMENTS(dropped); i++)
		add(argv, "--cap-drop", dropped[i], NULL);
}

static void add_mounts(GPtrArray *argv, const struct session *session,
		       const struct service *service)
{
	g_autofree char *var_tmp = g_build_filename(session->home, "var-tmp", NULL);
	g_autofree char *root = g_build_filename(session->home, "root", NULL);

	add(argv, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", NULL);
	add(argv, "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/home", "--tmpfs", "/mnt",
	    NULL);
	add(argv, "--bind", var_tmp, "/var/tmp", "--bind", root, "/root", NULL);
	add(argv, "--bind", session->dir, session->told_root, NULL);
	/* BusyBox is the whole of /usr/bin then, so that absolute names find nothing else either. */
	if (service->tools_dir)
		add(argv, "--ro-bind", service->tools_dir, "/usr/bin", "--ro-bind",
		    service->tools_dir, "/usr/sbin", "--tmpfs", "/usr/local", NULL);
}

void jail_wrap(GPtrArray *argv, const struct session *session, const char *cwd,
	       const struct service *service)
{
	g_autoptr(GPtrArray) skewed = g_ptr_array_new_with_free_func(g_free);
	GPtrArray *command = g_ptr_array_new();

	/* Move the command aside, without freeing its strings. */
	g_ptr_array_set_free_func(argv, NULL);
	g_ptr_array_extend(command, argv, NULL, NULL);
	g_ptr_array_set_size(argv, 0);
	g_ptr_array_set_free_func(argv, g_free);

	add(argv, "/usr/bin/bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
	    "--unshare-net", "--unshare-cgroup-try", "--die-with-parent", NULL);
	add_capabilities(argv);
	add_mounts(argv, session, service);
	/* Not for bubblewrap itself: only the command's clock is off. */
	if (service->opt->clock_skew_ms != 0)
		clockskew_add_environment(skewed, service->opt->clock_skew_ms);
	for (guint i = 0; i < skewed->len; i++) {
		g_auto(GStrv) pair = g_strsplit(skewed->pdata[i], "=", 2);

		add(argv, "--setenv", pair[0], pair[1], NULL);
	}
	add(argv, "--chdir", cwd, "--", NULL);
	g_ptr_array_extend_and_steal(argv, command);
}
