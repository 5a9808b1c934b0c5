/*
 * Request targets, read as a WHATWG URL: pure functions of the text.
 */
#ifndef SBX_SBXD_TARGET_H
#define SBX_SBXD_TARGET_H

#include <glib.h>

/*
 * The path of a target, with "." and ".." worked out. A target that begins with two slashes names
 * a host, as an absolute one does. NULL for what is no URL ("//"). The caller frees it.
 */
char *target_path(const char *target);

/* The non-empty segments of a path, not percent-decoded. Free with g_strfreev(). */
char **target_segments(const char *path);

/*
 * The first query parameter @name, decoded as a form is: '+' is a space, malformed escapes stay,
 * what is not UTF-8 becomes U+FFFD. NULL when absent.
 */
GString *target_parameter(const char *target, const char *name);

#endif
