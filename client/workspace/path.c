#include "client/workspace/path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <glib.h>

#include "client/program.h"

int sbx_path_check(const char *path)
{
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	path += path[0] == '/';
	if (path[0] == '\0')
		return 0;
	for (;;) {
		size_t len = strcspn(path, "/");

		if (!sbx_program_name_valid(path, len))
			return -EINVAL;
		if (path[len] == '\0')
			return 0;
		path += len + 1;
	}
}

bool sbx_path_is_within(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 0)
		return path[0] != '/';
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

char *sbx_path_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (path[0] == '\0' || (slash && slash[1] == '\0'))
		return NULL;
	if (!slash)
		return g_strdup("");
	return g_strndup(path, slash == path ? 1 : (gsize)(slash - path));
}
