/*
 * links - what a symbolic link of the sandbox may show to a local program.
 *
 * The sandbox chooses a link's text; the local kernel follows it. So (design promise 7) readlink
 * gives only texts of the form "leading ..s that do not climb above the mount's own root, then
 * plain names". A relative target that has that form and stays in the workspace is shown as it is;
 * any other is worked out to the place it means in the sandbox and shown as the relative path to
 * it, in the workspace or in .sbxfs-root; symlink() maps such a text back. What can't be worked
 * out, or lies outside of what the mount shows, is -EPERM.
 *
 * Lexical: nothing is asked of the sandbox, so a link that the sandbox swaps between two calls
 * gains nothing: the text that was given is safe by itself, wherever the components it walks
 * through lead, because each of those components is again a link that was contained, or a
 * directory. A `..` behind a plain name is never shown: what it means depends on what the name is.
 *
 * Pure functions, no locks, never block.
 */
#ifndef SBX_CLIENT_WORKSPACE_LINKS_H
#define SBX_CLIENT_WORKSPACE_LINKS_H

#include <stdbool.h>

/* Where the workspace stands in the mount. */
struct sbx_link_view {
	/* Directories between the mount's root and the workspace's root: 2 for MNT/dev1/fs, 0 where
	 * the mount's root is the workspace's. */
	unsigned int depth;
	/* Part of the workspace that is the mount's root (`subtree=dev1/fs/a`: "a"); "" none. Links
	 * to outside of it are -EPERM. */
	const char *subtree;
	/* How the mount reaches .sbxfs-root from the workspace's root: "../.sbxfs-root"; NULL: it
	 * is not reachable (subtree). */
	const char *sandbox_root;
	bool raw; /* symlinks=raw: show the text */
};

/*
 * @link_path: path of the link, relative to the workspace, or absolute in the sandbox when it lies
 * in .sbxfs-root. @ws_root: the workspace's absolute path as the sandbox's commands see it.
 * @target: the text in the sandbox. *ret_text: what to show (g_free). -EPERM as above.
 */
int sbx_link_show(const struct sbx_link_view *view, const char *ws_root, const char *link_path,
		  const char *target, char **ret_text);

/*
 * The reverse for symlink(): @text as a local program gave it, to be stored at @link_path. A text
 * that leads through .sbxfs-root becomes the absolute path in the sandbox; every other text is
 * stored as given. *ret_target: g_free.
 */
int sbx_link_store(const struct sbx_link_view *view, const char *ws_root, const char *link_path,
		   const char *text, char **ret_target);

#endif
