#include "tests/sbxd/pathcheck.h"
#include "tests/sbxd/errtext.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

char *path_resolve(const char *base, const char *path)
{
	GString *out = g_string_new(NULL);
	g_autofree char *joined =
		*path == '/' ? g_strdup(path) : g_strconcat(base, "/", path, NULL);

	for (const char *at = joined; *at;) {
		size_t len;

		at += strspn(at, "/");
		len = strcspn(at, "/");
		if (len == 2 && at[0] == '.' && at[1] == '.') {
			const char *slash = strrchr(out->str, '/');

			if (slash)
				g_string_truncate(out, (gsize)(slash - out->str));
		} else if (len > 0 && !(len == 1 && at[0] == '.')) {
			g_string_append_c(out, '/');
			g_string_append_len(out, at, (gssize)len);
		}
		at += len;
	}
	if (out->len == 0)
		g_string_append_c(out, '/');
	return g_string_free(out, FALSE);
}

const char *path_below(const char *base, const char *path)
{
	size_t len = strcmp(base, "/") == 0 ? 0 : strlen(base);

	if (strncmp(base, path, len) != 0)
		return NULL;
	if (path[len] == '\0')
		return path + len;
	return path[len] == '/' ? path + len + 1 : NULL;
}

static enum path_verdict check_lexically(const struct session *session, const char *asked,
					 char **ret_path, char **ret_message)
{
	g_autofree char *path = path_resolve(session->told_root, asked);
	const char *below = path_below(session->told_root, path);

	if (!below)
		below = path_below(session->dir, path);
	/* The reference server's own slip: it takes any name that begins with ".." for a climb. */
	if (!below || strncmp(below, "..", 2) == 0) {
		*ret_message = g_strdup_printf("path escapes workspace: %s", asked);
		return PATH_DENIED;
	}
	*ret_path = *below ? g_strconcat(session->dir, "/", below, NULL) : g_strdup(session->dir);
	return PATH_GOOD;
}

/*
 * The real path of @path's nearest ancestor that exists, with what is missing appended to it.
 * 0, or a negative errno with *ret_failed the ancestor that could not be resolved.
 */
static int real_parent(const char *path, char **ret_path, char **ret_failed)
{
	g_autofree char *parent = g_path_get_dirname(path);
	char *real;

	while (!(real = realpath(parent, NULL))) {
		char *above;

		if (errno != ENOENT || strcmp(parent, "/") == 0) {
			int err = -errno;

			*ret_failed = g_steal_pointer(&parent);
			return err;
		}
		above = g_path_get_dirname(parent);
		g_free(parent);
		parent = above;
	}
	*ret_path = g_strconcat(strcmp(real, "/") == 0 ? "" : real, "/", path_below(parent, path),
				NULL);
	free(real);
	return 0;
}

static enum path_verdict check_physically(const struct session *session, const char *asked,
					  char **ret_path, char **ret_message)
{
	g_autofree char *path = path_resolve(session->dir, asked);
	g_autofree char *real = NULL;
	g_autofree char *failed = NULL;
	int err = real_parent(path, &real, &failed);

	if (err) {
		*ret_message = errtext_message(-err, "realpath", failed);
		return PATH_DENIED;
	}
	if (!path_below(session->dir, real)) {
		*ret_message = g_strdup_printf("Access denied: \"%s\" resolves outside workspace "
					       "root %s",
					       asked, session->dir);
		return PATH_DENIED;
	}
	*ret_path = g_steal_pointer(&real);
	return PATH_GOOD;
}

enum path_verdict path_check(const struct session *session, const GString *asked, char **ret_path,
			     char **ret_message)
{
	if (memchr(asked->str, '\0', asked->len)) {
		*ret_message = g_strdup("The argument 'path' must be a string, Uint8Array, or URL "
					"without null bytes.");
		return PATH_UNUSABLE;
	}
	if (session->profile == PROFILE_OVERLAY)
		return check_lexically(session, asked->str, ret_path, ret_message);
	return check_physically(session, asked->str, ret_path, ret_message);
}
