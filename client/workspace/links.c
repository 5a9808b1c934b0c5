#include "client/workspace/links.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <glib.h>

/*
 * A path taken apart: @ups leading ".."s, then @names, plain ones. "." and empty components are
 * dropped; of an absolute path the leading ".."s are too, since "/.." is "/".
 */
struct link_parts {
	bool absolute;
	/* A ".." follows a plain name: what it means depends on what that name is. */
	bool tangled;
	unsigned int ups;
	GPtrArray *names; /* of char *, owned */
};

static void parts_parse(struct link_parts *parts, const char *path)
{
	parts->absolute = path[0] == '/';
	parts->tangled = false;
	parts->ups = 0;
	parts->names = g_ptr_array_new_with_free_func(g_free);
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && path[0] == '.' && path[1] == '.') {
			if (parts->names->len > 0)
				parts->tangled = true;
			else
				parts->ups++;
		} else if (len > 0 && !(len == 1 && path[0] == '.')) {
			g_ptr_array_add(parts->names, g_strndup(path, len));
		}
		path += len;
		path += *path == '/';
	}
	if (parts->absolute)
		parts->ups = 0;
}

static void parts_clear(struct link_parts *parts)
{
	g_clear_pointer(&parts->names, g_ptr_array_unref);
}

/* The text of @parts is spelled as parts_text() would: no ".", no empty component. */
static bool parts_is_plain(const char *text)
{
	if (text[0] == '\0' || text[0] == '/')
		return false;
	while (*text) {
		size_t len = strcspn(text, "/");

		if (len == 0 || (len == 1 && text[0] == '.'))
			return false;
		text += len;
		if (*text == '/' && *++text == '\0')
			return false;
	}
	return true;
}

static const char *name_at(const GPtrArray *names, guint i)
{
	return g_ptr_array_index(names, i);
}

static bool names_begin_with(const GPtrArray *names, const GPtrArray *prefix)
{
	if (names->len < prefix->len)
		return false;
	for (guint i = 0; i < prefix->len; i++)
		if (strcmp(name_at(names, i), name_at(prefix, i)) != 0)
			return false;
	return true;
}

/* @ups times "..", then names[from..], joined by slashes; "." when there is nothing. */
static char *text_new(unsigned int ups, const char *middle, const GPtrArray *names, guint from)
{
	GString *text = g_string_new(NULL);

	for (unsigned int i = 0; i < ups; i++)
		g_string_append(text, text->len > 0 ? "/.." : "..");
	if (middle) {
		if (text->len > 0)
			g_string_append_c(text, '/');
		g_string_append(text, middle);
	}
	for (guint i = from; i < names->len; i++) {
		if (text->len > 0)
			g_string_append_c(text, '/');
		g_string_append(text, name_at(names, i));
	}
	if (text->len == 0)
		g_string_append_c(text, '.');
	return g_string_free(text, FALSE);
}

/* The relative text that leads from the directory @from to @to, both of one tree. */
static char *text_between(const GPtrArray *from, const GPtrArray *to)
{
	guint common = 0;

	while (common < from->len && common < to->len &&
	       strcmp(name_at(from, common), name_at(to, common)) == 0)
		common++;
	return text_new(from->len - common, NULL, to, common);
}

/* The place that @target means for a link in directory @dir: names from the tree's root. Climbing
 * above that root is told in *ret_above: how far, the place is then reckoned from there. */
static GPtrArray *place_new(const GPtrArray *dir, const struct link_parts *target,
			    unsigned int *ret_above)
{
	GPtrArray *place = g_ptr_array_new_with_free_func(g_free);
	guint keep = dir->len > target->ups ? dir->len - target->ups : 0;

	*ret_above = target->ups > dir->len ? target->ups - dir->len : 0;
	for (guint i = 0; i < keep; i++)
		g_ptr_array_add(place, g_strdup(name_at(dir, i)));
	for (guint i = 0; i < target->names->len; i++)
		g_ptr_array_add(place, g_strdup(name_at(target->names, i)));
	return place;
}

/* Turn @place, reckoned @above levels over @root, into names from the sandbox's "/". */
static void place_to_sandbox(GPtrArray *place, const GPtrArray *root, unsigned int above)
{
	guint keep = root->len > above ? root->len - above : 0;

	for (guint i = 0; i < keep; i++)
		g_ptr_array_insert(place, (gint)i, g_strdup(name_at(root, i)));
}

/* How .sbxfs-root is reached from the workspace's root, taken apart. */
struct link_view_parts {
	unsigned int depth;
	const struct link_parts *sandbox_root; /* NULL: not reachable */
};

/* Text to @place (names from the sandbox's "/") for a link in @dir of the workspace. */
static int show_outside(const struct link_view_parts *view_parts, const GPtrArray *dir,
			const GPtrArray *place, char **ret_text)
{
	const struct link_parts *root = view_parts->sandbox_root;

	if (!root || root->tangled || root->absolute || root->ups > view_parts->depth)
		return -EPERM;

	g_autofree char *middle = text_new(0, NULL, root->names, 0);

	*ret_text = text_new(dir->len + root->ups, middle, place, 0);
	return 0;
}

/* A link of the workspace. @dir: names of its directory. */
static int show_in_workspace(const struct sbx_link_view *view, const struct link_parts *ws_root,
			     const GPtrArray *dir, const struct link_parts *target,
			     const char *target_text, char **ret_text)
{
	struct link_parts subtree, sandbox_root;
	g_autoptr(GPtrArray) place = NULL;
	unsigned int above = 0;
	int r;

	parts_parse(&subtree, view->subtree ? view->subtree : "");
	parts_parse(&sandbox_root, view->sandbox_root ? view->sandbox_root : "");

	struct link_view_parts view_parts = {
		.depth = view->depth,
		.sandbox_root = view->sandbox_root ? &sandbox_root : NULL,
	};

	if (target->absolute) {
		if (names_begin_with(target->names, ws_root->names)) {
			place = g_ptr_array_new_with_free_func(g_free);
			for (guint i = ws_root->names->len; i < target->names->len; i++)
				g_ptr_array_add(place, g_strdup(name_at(target->names, i)));
		} else {
			r = show_outside(&view_parts, dir, target->names, ret_text);
			goto out;
		}
	} else {
		place = place_new(dir, target, &above);
		if (above == 0 && parts_is_plain(target_text) &&
		    names_begin_with(place, subtree.names) &&
		    target->ups + subtree.names->len <= dir->len) {
			*ret_text = g_strdup(target_text);
			r = 0;
			goto out;
		}
		if (above > 0) {
			place_to_sandbox(place, ws_root->names, above);
			if (!names_begin_with(place, ws_root->names)) {
				r = show_outside(&view_parts, dir, place, ret_text);
				goto out;
			}
			g_ptr_array_remove_range(place, 0, ws_root->names->len);
		}
	}
	if (!names_begin_with(place, subtree.names)) {
		r = -EPERM;
		goto out;
	}
	*ret_text = text_between(dir, place);
	r = 0;
out:
	parts_clear(&subtree);
	parts_clear(&sandbox_root);
	return r;
}

/* A link of .sbxfs-root: it stays there, wherever it leads. @dir: names from the sandbox's "/". */
static int show_in_sandbox(const GPtrArray *dir, const struct link_parts *target,
			   const char *target_text, char **ret_text)
{
	g_autoptr(GPtrArray) place = NULL;
	unsigned int above = 0;

	if (target->absolute) {
		*ret_text = text_between(dir, target->names);
		return 0;
	}
	place = place_new(dir, target, &above);
	*ret_text = above == 0 && parts_is_plain(target_text) ? g_strdup(target_text)
							      : text_between(dir, place);
	return 0;
}

int sbx_link_show(const struct sbx_link_view *view, const char *ws_root, const char *link_path,
		  const char *target, char **ret_text)
{
	struct link_parts target_parts, root_parts, dir_parts;
	char *text = NULL;
	int r = -EPERM;

	if (view->raw) {
		*ret_text = g_strdup(target);
		return 0;
	}
	parts_parse(&target_parts, target);
	parts_parse(&root_parts, ws_root ? ws_root : "");
	parts_parse(&dir_parts, link_path);

	/* An unknown or odd root of the workspace: nothing absolute can be worked out. */
	bool root_known = root_parts.absolute && !root_parts.tangled;
	bool needs_root = target_parts.absolute ||
			  (link_path[0] != '/' && target_parts.ups >= dir_parts.names->len);

	if (target[0] == '\0' || target_parts.tangled || dir_parts.tangled || dir_parts.ups > 0 ||
	    dir_parts.names->len == 0 || (needs_root && !root_known && link_path[0] != '/'))
		goto out;
	g_ptr_array_remove_index(dir_parts.names, dir_parts.names->len - 1);
	r = link_path[0] == '/' ? show_in_sandbox(dir_parts.names, &target_parts, target, &text)
				: show_in_workspace(view, &root_parts, dir_parts.names,
						    &target_parts, target, &text);
	if (r == 0 && strlen(text) >= PATH_MAX) {
		g_free(text);
		r = -EPERM;
	}
	if (r == 0)
		*ret_text = text;
out:
	parts_clear(&target_parts);
	parts_clear(&root_parts);
	parts_clear(&dir_parts);
	return r;
}

/* Where the rest of @text begins behind @count components, skipping "." and empty ones. */
static const char *text_behind(const char *text, size_t count)
{
	while (*text && count > 0) {
		size_t len = strcspn(text, "/");

		if (len > 0 && !(len == 1 && text[0] == '.'))
			count--;
		text += len;
		text += strspn(text, "/");
	}
	return text;
}

/* A ".." in @rest climbs out of where it begins. */
static bool climbs_out(const char *rest)
{
	long depth = 0;

	while (*rest) {
		size_t len = strcspn(rest, "/");

		if (len == 2 && rest[0] == '.' && rest[1] == '.')
			depth--;
		else if (len > 0 && !(len == 1 && rest[0] == '.'))
			depth++;
		if (depth < 0)
			return true;
		rest += len;
		rest += *rest == '/';
	}
	return false;
}

int sbx_link_store(const struct sbx_link_view *view, const char *ws_root, const char *link_path,
		   const char *text, char **ret_target)
{
	struct link_parts text_parts, root_parts, dir_parts;
	char *target = NULL;

	(void)ws_root; /* where the workspace stands does not matter on the way back */
	parts_parse(&text_parts, text);
	parts_parse(&root_parts, view->sandbox_root ? view->sandbox_root : "");
	parts_parse(&dir_parts, link_path);

	if (!view->raw && view->sandbox_root && !text_parts.absolute && link_path[0] != '/' &&
	    dir_parts.names->len > 0 &&
	    text_parts.ups == dir_parts.names->len - 1 + root_parts.ups &&
	    names_begin_with(text_parts.names, root_parts.names)) {
		const char *rest = text_behind(text, text_parts.ups + root_parts.names->len);

		if (!climbs_out(rest))
			target = g_strconcat("/", rest, NULL);
	}
	*ret_target = target ? target : g_strdup(text);
	parts_clear(&text_parts);
	parts_clear(&root_parts);
	parts_clear(&dir_parts);
	return 0;
}
