#include "client/workspace/meta.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <glib.h>

#include "client/workspace/meta_impl.h"
#include "client/workspace/workspace.h"

/* Entries and directories ------------------------------------------------------------------ */

struct meta_entry *meta_entry_new(const char *name, size_t len)
{
	struct meta_entry *entry = g_malloc0(sizeof(*entry) + len + 1);

	memcpy(entry->name, name, len);
	entry->seen_us = META_NEVER_US;
	return entry;
}

static void dir_unlink(struct sbx_meta *meta, struct meta_dir *dir)
{
	if (dir->newer)
		dir->newer->older = dir->older;
	else
		meta->newest = dir->older;
	if (dir->older)
		dir->older->newer = dir->newer;
	else
		meta->oldest = dir->newer;
	dir->newer = dir->older = NULL;
}

static void dir_link(struct sbx_meta *meta, struct meta_dir *dir)
{
	dir->older = meta->newest;
	if (meta->newest)
		meta->newest->newer = dir;
	else
		meta->oldest = dir;
	meta->newest = dir;
}

struct meta_dir *meta_dir_of(struct sbx_meta *meta, struct meta_entry *entry)
{
	if (!entry->dir) {
		struct meta_dir *dir = g_new0(struct meta_dir, 1);

		dir->entry = entry;
		dir->children = g_ptr_array_new();
		dir->validated_us = META_NEVER_US;
		dir->used_us = META_NEVER_US;
		dir->born_us = META_NEVER_US;
		entry->dir = dir;
		/* Not used yet: the last of the list. */
		dir->newer = meta->oldest;
		if (meta->oldest)
			meta->oldest->older = dir;
		else
			meta->newest = dir;
		meta->oldest = dir;
	}
	return entry->dir;
}

void meta_dir_free(struct sbx_meta *meta, struct meta_dir *dir)
{
	if (!dir)
		return;
	for (guint i = 0; i < dir->children->len; i++)
		meta_entry_free(meta, g_ptr_array_index(dir->children, i));
	g_ptr_array_unref(dir->children);
	g_clear_pointer(&dir->gone, g_hash_table_unref);
	dir_unlink(meta, dir);
	g_free(dir);
}

/* Files with several links ------------------------------------------------------------------ */

static guint link_hash(gconstpointer key)
{
	const struct sbx_attr *attr = key;
	uint64_t mixed = (attr->ino ^ (attr->dev << 40)) * UINT64_C(0x9e3779b97f4a7c15);

	return (guint)(mixed >> 32);
}

static gboolean link_equal(gconstpointer a, gconstpointer b)
{
	const struct sbx_attr *attr_a = a;
	const struct sbx_attr *attr_b = b;

	return attr_a->ino == attr_b->ino && attr_a->dev == attr_b->dev;
}

static void links_unref(gpointer names)
{
	g_ptr_array_unref(names);
}

static bool has_links(const struct meta_entry *entry)
{
	return entry->has_remote && entry->attr.nlink > 1 && entry->attr.ino != 0 &&
	       !S_ISDIR(entry->attr.mode);
}

void meta_links_add(struct sbx_meta *meta, struct meta_entry *entry)
{
	GPtrArray *names;

	if (!has_links(entry))
		return;
	names = g_hash_table_lookup(meta->links, &entry->attr);
	if (!names) {
		names = g_ptr_array_new();
		g_hash_table_insert(meta->links, g_memdup2(&entry->attr, sizeof(entry->attr)),
				    names);
	}
	g_ptr_array_add(names, entry);
}

void meta_links_remove(struct sbx_meta *meta, struct meta_entry *entry)
{
	GPtrArray *names = has_links(entry) ? g_hash_table_lookup(meta->links, &entry->attr) : NULL;

	if (names && g_ptr_array_remove_fast(names, entry) && names->len == 0)
		g_hash_table_remove(meta->links, &entry->attr);
}

const GPtrArray *meta_links_of(const struct sbx_meta *meta, const struct meta_entry *entry)
{
	return has_links(entry) ? g_hash_table_lookup(meta->links, &entry->attr) : NULL;
}

/* Trees ------------------------------------------------------------------------------------- */

/* @entry is no longer in its directory's array. */
void meta_entry_free(struct sbx_meta *meta, struct meta_entry *entry)
{
	/* Recursion is as deep as the tree, which paths of 4,096 bytes bound at 2,048 levels. */
	meta->changes++;
	meta_dir_free(meta, entry->dir);
	meta_links_remove(meta, entry);
	if (entry->parent)
		meta->n_entries--;
	g_free(entry->local);
	g_free(entry->link);
	g_free(entry);
}

int meta_entry_compare(gconstpointer a, gconstpointer b)
{
	const struct meta_entry *ea = *(const struct meta_entry *const *)a;
	const struct meta_entry *eb = *(const struct meta_entry *const *)b;

	return strcmp(ea->name, eb->name);
}

/* memcmp of a name that has no NUL with one that has. */
static int name_compare(const char *name, size_t len, const char *other)
{
	int r = strncmp(name, other, len);

	return r != 0 ? r : (other[len] == '\0' ? 0 : -1);
}

/* Where @name is in @dir, or where it would be put. */
bool meta_dir_search(const struct meta_dir *dir, const char *name, size_t len, guint *ret_index)
{
	guint low = 0, high = dir->children->len;

	while (low < high) {
		guint middle = low + (high - low) / 2;
		const struct meta_entry *entry = g_ptr_array_index(dir->children, middle);
		int r = name_compare(name, len, entry->name);

		if (r == 0) {
			*ret_index = middle;
			return true;
		}
		if (r < 0)
			high = middle;
		else
			low = middle + 1;
	}
	*ret_index = low;
	return false;
}

struct meta_entry *meta_dir_child(const struct meta_dir *dir, const char *name, size_t len)
{
	guint i;

	return dir && meta_dir_search(dir, name, len, &i) ? g_ptr_array_index(dir->children, i)
							  : NULL;
}

struct meta_entry *meta_dir_child_make(struct sbx_meta *meta, struct meta_dir *dir,
				       const char *name, size_t len)
{
	struct meta_entry *entry;
	guint i;

	if (meta_dir_search(dir, name, len, &i))
		return g_ptr_array_index(dir->children, i);
	entry = meta_entry_new(name, len);
	entry->parent = dir->entry;
	g_ptr_array_insert(dir->children, (gint)i, entry);
	meta->n_entries++;
	return entry;
}

/* Take @entry out of its directory's array; it still counts and points to its parent. */
void meta_entry_detach(struct meta_entry *entry)
{
	guint i;

	if (meta_dir_search(entry->parent->dir, entry->name, strlen(entry->name), &i))
		g_ptr_array_remove_index(entry->parent->dir->children, i);
}

bool meta_entry_has_local_below(const struct meta_entry *entry)
{
	if (entry->local)
		return true;
	for (guint i = 0; entry->dir && i < entry->dir->children->len; i++)
		if (meta_entry_has_local_below(g_ptr_array_index(entry->dir->children, i)))
			return true;
	return false;
}

/* The remote side of @entry is gone. Local views stay, and the entries on the way to them. */
void meta_entry_drop_remote(struct sbx_meta *meta, struct meta_entry *entry)
{
	struct meta_dir *dir = entry->dir;

	if (!meta_entry_has_local_below(entry)) {
		meta_entry_detach(entry);
		meta_entry_free(meta, entry);
		return;
	}
	meta_links_remove(meta, entry);
	meta->changes++;
	entry->has_remote = false;
	g_clear_pointer(&entry->link, g_free);
	if (!dir)
		return;
	dir->complete = false;
	dir->validated_us = META_NEVER_US;
	for (guint i = dir->children->len; i > 0; i--)
		meta_entry_drop_remote(meta, g_ptr_array_index(dir->children, i - 1));
}

void meta_entry_set_remote(struct sbx_meta *meta, struct meta_entry *entry,
			   const struct sbx_attr *attr, const char *link)
{
	bool same_file =
		entry->has_remote && entry->attr.ino == attr->ino && entry->attr.dev == attr->dev;

	if (entry->dir && attr->mode != 0 && !S_ISDIR(attr->mode)) {
		for (guint i = entry->dir->children->len; i > 0; i--)
			meta_entry_drop_remote(meta,
					       g_ptr_array_index(entry->dir->children, i - 1));
		if (entry->dir->children->len == 0) {
			meta_dir_free(meta, entry->dir);
			entry->dir = NULL;
		}
	} else if (entry->dir && entry->has_remote && !same_file && attr->ino != 0) {
		/* Another directory of that name: of its listing nothing is known, and that it did
		 * not change lately says nothing of what was in the one before it. */
		entry->dir->complete = false;
		entry->dir->validated_us = META_NEVER_US;
		entry->dir->clock_ns = 0;
	}
	meta_links_remove(meta, entry);
	if (!entry->has_remote || !sbx_attr_same(&entry->attr, attr))
		meta->changes++;
	entry->attr = *attr;
	entry->has_remote = true;
	meta_links_add(meta, entry);
	if (g_strcmp0(entry->link, link) != 0) {
		meta->changes++;
		g_free(entry->link);
		entry->link = g_strdup(link);
	}
}

static void each_below(struct meta_entry *entry, GString *path, sbx_meta_entry_fn fn, void *arg)
{
	gsize len = path->len;

	for (guint i = 0; entry->dir && i < entry->dir->children->len; i++) {
		struct meta_entry *child = g_ptr_array_index(entry->dir->children, i);

		if (len > 0)
			g_string_append_c(path, '/');
		g_string_append(path, child->name);
		if (child->has_remote && child->attr.mode != 0)
			fn(arg, path->str, &child->attr, child->link, meta_entry_seen_us(child));
		each_below(child, path, fn, arg);
		g_string_truncate(path, len);
	}
}

void sbx_meta_each_entry(struct sbx_meta *meta, sbx_meta_entry_fn fn, void *arg)
{
	GString *path = g_string_new(NULL);

	each_below(meta->workspace, path, fn, arg);
	g_string_free(path, TRUE);
}

uint64_t sbx_meta_changes(const struct sbx_meta *meta)
{
	return meta->changes;
}

/* Paths ------------------------------------------------------------------------------------- */

static struct meta_entry *path_root(const struct sbx_meta *meta, const char **path)
{
	if (**path == '/') {
		(*path)++;
		return meta->sandbox;
	}
	return meta->workspace;
}

/* The entry of exactly @path, of any age, or NULL. */
struct meta_entry *meta_path_entry(const struct sbx_meta *meta, const char *path)
{
	struct meta_entry *entry = path_root(meta, &path);

	while (entry && *path) {
		size_t len = strcspn(path, "/");

		entry = meta_dir_child(entry->dir, path, len);
		path += len;
		path += *path == '/';
	}
	return entry;
}

/* The same, made where it is not there: entries of which nothing is known. */
struct meta_entry *meta_path_entry_make(struct sbx_meta *meta, const char *path)
{
	struct meta_entry *entry = path_root(meta, &path);

	while (*path) {
		size_t len = strcspn(path, "/");

		entry = meta_dir_child_make(meta, meta_dir_of(meta, entry), path, len);
		path += len;
		path += *path == '/';
	}
	return entry;
}

char *meta_entry_path(const struct sbx_meta *meta, const struct meta_entry *entry)
{
	GPtrArray *names = g_ptr_array_new();
	GString *path = g_string_new(NULL);

	for (; entry->parent; entry = entry->parent)
		g_ptr_array_add(names, (gpointer)entry->name);
	if (entry == meta->sandbox)
		g_string_append_c(path, '/');
	for (guint i = names->len; i > 0; i--) {
		g_string_append(path, g_ptr_array_index(names, i - 1));
		if (i > 1)
			g_string_append_c(path, '/');
	}
	g_ptr_array_unref(names);
	return g_string_free(path, FALSE);
}

/* The store -------------------------------------------------------------------------------- */

struct sbx_meta *sbx_meta_new(size_t max_entries)
{
	struct sbx_meta *meta = g_new0(struct sbx_meta, 1);

	meta->workspace = meta_entry_new("", 0);
	meta->sandbox = meta_entry_new("", 0);
	meta->max_entries = max_entries;
	meta->floor_us = META_NEVER_US;
	meta->links = g_hash_table_new_full(link_hash, link_equal, g_free, links_unref);
	return meta;
}

void sbx_meta_free(struct sbx_meta *meta)
{
	if (!meta)
		return;
	meta_entry_free(meta, meta->workspace);
	meta_entry_free(meta, meta->sandbox);
	g_hash_table_unref(meta->links);
	g_free(meta);
}

void sbx_meta_expire(struct sbx_meta *meta, int64_t now_us)
{
	meta->floor_us = MAX(meta->floor_us, now_us);
}

size_t sbx_meta_count(const struct sbx_meta *meta)
{
	return meta->n_entries;
}

static int64_t need_floor(const struct sbx_meta *meta, int64_t need_us)
{
	return need_us == SBX_META_ANY_AGE ? need_us : MAX(need_us, meta->floor_us);
}

static void dir_used(struct sbx_meta *meta, struct meta_dir *dir, int64_t now_us)
{
	if (now_us == 0 || !dir || dir->used_us >= now_us)
		return;
	dir->used_us = now_us;
	dir_unlink(meta, dir);
	dir_link(meta, dir);
}

/* How old what is known of @entry is. */
int64_t meta_entry_seen_us(const struct meta_entry *entry)
{
	const struct meta_dir *dir = entry->parent ? entry->parent->dir : NULL;
	bool listed = dir && dir->complete && !dir->names_only;

	return MAX(entry->seen_us, listed ? dir->validated_us : META_NEVER_US);
}

/* When @name was last known not to be in @dir. */
static int64_t dir_absent(const struct meta_dir *dir, const char *name)
{
	int64_t seen_us = META_NEVER_US;

	if (!dir)
		return seen_us;
	if (dir->complete)
		seen_us = dir->validated_us;
	if (dir->gone) {
		const int64_t *gone_us = g_hash_table_lookup(dir->gone, name);

		if (gone_us)
			seen_us = MAX(seen_us, *gone_us);
	}
	return seen_us;
}

/* Walk @path. 0 with *ret_entry as fresh as needed, else as sbx_meta_find(). */
static int walk(struct sbx_meta *meta, const char *path, int64_t need_us, int64_t now_us,
		struct meta_entry **ret_entry, int64_t *ret_seen_us, size_t *ret_ask_len)
{
	const char *p = path;
	struct meta_entry *entry = path_root(meta, &p);
	size_t dir_len = p - path; /* of the path of @entry's directory */

	need_us = need_floor(meta, need_us);
	*ret_ask_len = p - path;
	while (*p) {
		size_t len = strcspn(p, "/");
		struct meta_entry *child;
		char name[256];

		if (entry->has_remote && entry->attr.mode != 0 && !S_ISDIR(entry->attr.mode)) {
			*ret_seen_us = meta_entry_seen_us(entry);
			*ret_ask_len = dir_len;
			return *ret_seen_us >= need_us ? -ENOTDIR : -EAGAIN;
		}
		if (len >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, p, len);
		name[len] = '\0';
		dir_len = p > path && p[-1] == '/' && p - 1 > path ? (size_t)(p - 1 - path)
								   : (size_t)(p - path);
		*ret_ask_len = dir_len;
		dir_used(meta, entry->dir, now_us);
		child = meta_dir_child(entry->dir, name, len);
		if (!child || (!child->has_remote && !child->local && !child->dir)) {
			*ret_seen_us = dir_absent(entry->dir, name);
			return *ret_seen_us >= need_us && *ret_seen_us != META_NEVER_US ? -ENOENT
											: -EAGAIN;
		}
		entry = child;
		p += len;
		p += *p == '/';
	}
	*ret_seen_us = meta_entry_seen_us(entry);
	if (!entry->local &&
	    (!entry->has_remote || entry->attr.mode == 0 || *ret_seen_us < need_us)) {
		if (!entry->has_remote && entry->parent) {
			*ret_seen_us = dir_absent(entry->parent->dir, entry->name);
			if (*ret_seen_us >= need_us && *ret_seen_us != META_NEVER_US)
				return -ENOENT;
		}
		return -EAGAIN;
	}
	*ret_entry = entry;
	return 0;
}

int sbx_meta_find(struct sbx_meta *meta, const char *path, int64_t need_us, int64_t now_us,
		  struct sbx_meta_found *ret_found)
{
	struct meta_entry *entry = NULL;
	struct sbx_meta_found found = { .seen_us = META_NEVER_US };
	int r = walk(meta, path, need_us, now_us, &entry, &found.seen_us, &found.ask_len);

	if (r == 0) {
		found.local = entry->local != NULL;
		found.attr = entry->local ? *entry->local : entry->attr;
		found.link = S_ISLNK(found.attr.mode) ? entry->link : NULL;
	}
	*ret_found = found;
	return r;
}

int sbx_meta_remote(struct sbx_meta *meta, const char *path, struct sbx_attr *ret_attr)
{
	struct meta_entry *entry = meta_path_entry(meta, path);

	if (!entry || !entry->has_remote)
		return -ENOENT;
	*ret_attr = entry->attr;
	return 0;
}

int sbx_meta_list(struct sbx_meta *meta, const char *path, int64_t need_us, int64_t now_us,
		  struct sbx_listing **ret_listing, int64_t *ret_seen_us, size_t *ret_ask_len)
{
	struct meta_entry *entry = meta_path_entry(meta, path);
	struct meta_dir *dir = entry ? entry->dir : NULL;
	struct sbx_listing *listing;
	size_t n = 0;
	int r;

	need_us = need_floor(meta, need_us);
	if (!dir || !dir->complete || dir->validated_us < need_us) {
		/* The directory itself may be known to be absent, or something else. */
		r = walk(meta, path, need_us, now_us, &entry, ret_seen_us, ret_ask_len);
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0 && !S_ISDIR(entry->local ? entry->local->mode : entry->attr.mode))
			return -ENOTDIR;
		if (r == 0 || meta_path_entry(meta, path))
			*ret_ask_len = strlen(path);
		return -EAGAIN;
	}
	dir_used(meta, dir, now_us);
	listing = g_new0(struct sbx_listing, 1);
	listing->refs = 1;
	listing->entries = g_new0(struct sbx_dirent, MAX(dir->children->len, 1));
	for (guint i = 0; i < dir->children->len; i++) {
		const struct meta_entry *child = g_ptr_array_index(dir->children, i);

		if (!child->has_remote && !child->local)
			continue;
		listing->entries[n].name = g_strdup(child->name);
		listing->entries[n].attr = child->local ? *child->local : child->attr;
		n++;
	}
	listing->n_entries = n;
	*ret_listing = listing;
	*ret_seen_us = dir->validated_us;
	return 0;
}

void sbx_listing_unref(struct sbx_listing *listing)
{
	if (!listing || __atomic_sub_fetch(&listing->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (size_t i = 0; i < listing->n_entries; i++)
		g_free(listing->entries[i].name);
	g_free(listing->entries);
	g_free(listing);
}
