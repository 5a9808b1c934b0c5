#include "tests/sbxd/tools.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const system_dirs[] = {
	"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
};

static bool is_system_dir(const char *dir, size_t len)
{
	for (size_t i = 0; i < G_N_ELEMENTS(system_dirs); i++) {
		if (strlen(system_dirs[i]) == len && strncmp(system_dirs[i], dir, len) == 0)
			return true;
	}
	return false;
}

/* A copy, not a link: the directory may be mounted over the one that busybox comes from. */
static int copy_busybox(const char *dir)
{
	g_autofree char *from = g_find_program_in_path("busybox");
	g_autofree char *to = g_build_filename(dir, "busybox", NULL);
	g_autofree char *bytes = NULL;
	gsize len;

	if (!from)
		return -ENOENT;
	if (!g_file_get_contents(from, &bytes, &len, NULL) ||
	    !g_file_set_contents_full(to, bytes, (gssize)len, G_FILE_SET_CONTENTS_CONSISTENT, 0755,
				      NULL))
		return -EIO;
	return chmod(to, 0755) < 0 ? -errno : 0;
}

static int link_applets(const char *dir)
{
	g_autofree char *busybox = g_build_filename(dir, "busybox", NULL);
	char *argv[] = { busybox, (char *)"--list", NULL };
	g_autofree char *text = NULL;
	g_auto(GStrv) names = NULL;
	int status;

	if (!g_spawn_sync(NULL, argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &text, NULL, &status,
			  NULL) ||
	    status != 0)
		return -EIO;
	names = g_strsplit(text, "\n", -1);
	for (char **name = names; *name; name++) {
		g_autofree char *path = g_build_filename(dir, *name, NULL);

		if (!**name || strcmp(*name, "busybox") == 0)
			continue;
		if (symlink("busybox", path) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

int tools_install(const char *root, char **ret_dir)
{
	g_autofree char *dir = g_build_filename(root, ".busybox", NULL);
	int err;

	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	err = copy_busybox(dir);
	if (!err)
		err = link_applets(dir);
	if (!err)
		*ret_dir = g_steal_pointer(&dir);
	return err;
}

static char *confined_path(const char *dir, const char *path)
{
	g_auto(GStrv) parts = g_strsplit(path, ":", -1);
	GString *out = g_string_new(NULL);
	bool placed = false;

	for (char **part = parts; *part; part++) {
		bool ours = is_system_dir(*part, strlen(*part));

		if (ours && placed)
			continue;
		placed |= ours;
		g_string_append_printf(out, "%s%s", out->len > 0 ? ":" : "", ours ? dir : *part);
	}
	return g_string_free(out, FALSE);
}

void tools_confine(const char *dir, GPtrArray *argv, GPtrArray *env)
{
	const char *program = argv->pdata[0];
	const char *slash = strrchr(program, '/');

	for (guint i = 0; i < env->len; i++) {
		char *old = env->pdata[i];

		if (strncmp(old, "PATH=", 5) == 0) {
			g_autofree char *path = confined_path(dir, old + 5);

			env->pdata[i] = g_strconcat("PATH=", path, NULL);
			g_free(old);
		}
	}
	if (slash && is_system_dir(program, (size_t)(slash - program))) {
		char *applet = g_build_filename(dir, slash + 1, NULL);

		g_free(argv->pdata[0]);
		argv->pdata[0] = applet;
	}
}
