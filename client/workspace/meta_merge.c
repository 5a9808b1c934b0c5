/* Answers and mutations put into the store; see meta.h. */
#include "client/workspace/meta.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <glib.h>

#include "client/program.h"
#include "client/workspace/meta_impl.h"
#include "client/workspace/path.h"

/* Names that went away in one directory, above which the oldest are looked for and forgotten. */
#define GONE_MANY 4096

struct sbx_meta_listing {
	struct sbx_meta *meta;
	struct meta_entry *entry; /* the directory; the store does not change until the end */
	GPtrArray *found; /* struct meta_entry *, owned */
	int64_t asked_us;
	bool whole;
	bool names_only; /* attributes of some are not known */
};

/* Names that went away --------------------------------------------------------------------- */

static int64_t gone_at(const struct meta_dir *dir, const char *name)
{
	const int64_t *gone_us = dir->gone ? g_hash_table_lookup(dir->gone, name) : NULL;

	return gone_us ? *gone_us : META_NEVER_US;
}

static void gone_prune(struct meta_dir *dir, int64_t before_us)
{
	GHashTableIter iter;
	gpointer value;

	if (!dir->gone)
		return;
	g_hash_table_iter_init(&iter, dir->gone);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (*(int64_t *)value < before_us)
			g_hash_table_iter_remove(&iter);
	if (g_hash_table_size(dir->gone) == 0)
		g_clear_pointer(&dir->gone, g_hash_table_unref);
}

static void gone_set(struct meta_dir *dir, const char *name, int64_t gone_us)
{
	if (dir->gone && g_hash_table_size(dir->gone) % GONE_MANY == GONE_MANY - 1)
		gone_prune(dir, gone_us - SBX_META_MEMORY_US);
	if (!dir->gone)
		dir->gone = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	g_hash_table_replace(dir->gone, g_strdup(name), g_memdup2(&gone_us, sizeof(gone_us)));
}

static void gone_clear(struct meta_dir *dir, const char *name)
{
	if (dir->gone)
		g_hash_table_remove(dir->gone, name);
}

/* Bounds ----------------------------------------------------------------------------------- */

/* Forget the listing of @dir; what is known below its directories stays. */
static void dir_forget(struct sbx_meta *meta, struct meta_dir *dir)
{
	GPtrArray *kept = g_ptr_array_new();

	for (guint i = 0; i < dir->children->len; i++) {
		struct meta_entry *child = g_ptr_array_index(dir->children, i);

		if (child->dir || child->local)
			g_ptr_array_add(kept, child);
		else
			meta_entry_free(meta, child);
	}
	g_ptr_array_unref(dir->children);
	dir->children = kept;
	dir->complete = false;
	dir->validated_us = META_NEVER_US;
	dir->clock_ns = 0;
}

/* Too many entries: forget listings, those longest unused first, but not @keep. */
static void evict(struct sbx_meta *meta, const struct meta_dir *keep)
{
	struct meta_dir *dir = meta->oldest;

	if (meta->n_entries <= meta->max_entries)
		return;
	while (dir && meta->n_entries > meta->max_entries / 4 * 3) {
		if (dir != keep && dir->complete)
			dir_forget(meta, dir);
		dir = dir->newer;
	}
}

/* Answers --------------------------------------------------------------------------------- */

/* An own mutation brought @entry, or a directory above it, to its path after @asked_us. */
static bool came_later(const struct meta_entry *entry, int64_t asked_us)
{
	for (; entry; entry = entry->parent)
		if (entry->dir && entry->dir->born_us >= asked_us)
			return true;
	return false;
}

struct sbx_meta_listing *sbx_meta_listing_begin(struct sbx_meta *meta, const char *path, bool whole,
						int64_t asked_us, int64_t now_us)
{
	struct meta_entry *entry = meta_path_entry(meta, path);
	struct sbx_meta_listing *listing;

	if (!entry || asked_us < now_us - SBX_META_MEMORY_US || came_later(entry, asked_us) ||
	    (entry->has_remote && entry->attr.mode != 0 && !S_ISDIR(entry->attr.mode)))
		return NULL;
	if (entry->dir ? entry->dir->validated_us > asked_us || (!whole && !entry->dir->complete)
		       : !whole)
		return NULL;
	listing = g_new0(struct sbx_meta_listing, 1);
	listing->meta = meta;
	listing->entry = entry;
	listing->found = g_ptr_array_new();
	listing->asked_us = asked_us;
	listing->whole = whole;
	return listing;
}

int sbx_meta_listing_add(struct sbx_meta_listing *listing, const char *name,
			 const struct sbx_attr *attr, const char *link)
{
	size_t len = strlen(name);
	struct meta_entry *entry;

	if (!sbx_program_name_valid(name, len))
		return -EIO;
	entry = meta_entry_new(name, len);
	entry->attr = *attr;
	entry->has_remote = true;
	entry->link = g_strdup(link);
	entry->seen_us = listing->asked_us;
	listing->names_only |= attr->mode == 0;
	g_ptr_array_add(listing->found, entry);
	return 0;
}

/* @found belongs to no directory. */
static void found_free(struct meta_entry *found)
{
	g_free(found->link);
	g_free(found);
}

void sbx_meta_listing_drop(struct sbx_meta_listing *listing)
{
	if (!listing)
		return;
	for (guint i = 0; i < listing->found->len; i++)
		found_free(g_ptr_array_index(listing->found, i));
	g_ptr_array_unref(listing->found);
	g_free(listing);
}

/* What the answer says of @entry, which is known, is @found; takes @found. */
static void entry_merge(struct sbx_meta *meta, struct meta_entry *entry, struct meta_entry *found,
			int64_t asked_us)
{
	bool tells = found->attr.mode != 0 || !entry->has_remote;

	if (tells && entry->changed_us < asked_us && entry->seen_us <= asked_us) {
		meta_entry_set_remote(meta, entry, &found->attr, found->link);
		entry->seen_us = asked_us;
	}
	found_free(found);
}

/* Merge the sorted whole listing with the sorted children. */
static void merge_whole(struct sbx_meta_listing *listing, struct meta_dir *dir)
{
	struct sbx_meta *meta = listing->meta;
	GPtrArray *old = dir->children;
	GPtrArray *merged = g_ptr_array_sized_new(listing->found->len);
	GPtrArray *hollow = g_ptr_array_new(); /* gone in the sandbox, with local views */
	guint i = 0, j = 0;

	g_ptr_array_sort(listing->found, meta_entry_compare);
	while (i < old->len || j < listing->found->len) {
		struct meta_entry *entry = i < old->len ? g_ptr_array_index(old, i) : NULL;
		struct meta_entry *found =
			j < listing->found->len ? g_ptr_array_index(listing->found, j) : NULL;
		int order = !entry ? 1 : !found ? -1 : strcmp(entry->name, found->name);

		if (order == 0) {
			entry_merge(meta, entry, found, listing->asked_us);
			g_ptr_array_add(merged, entry);
			i++;
			j++;
		} else if (order > 0) {
			struct meta_entry *last =
				merged->len > 0 ? g_ptr_array_index(merged, merged->len - 1) : NULL;

			j++;
			if (gone_at(dir, found->name) >= listing->asked_us ||
			    (last && strcmp(last->name, found->name) == 0)) {
				found_free(found);
				continue;
			}
			found->parent = listing->entry;
			meta->n_entries++;
			meta_links_add(meta, found);
			g_ptr_array_add(merged, found);
		} else {
			i++;
			if (entry->changed_us >= listing->asked_us) {
				g_ptr_array_add(merged, entry);
			} else if (meta_entry_has_local_below(entry)) {
				g_ptr_array_add(merged, entry);
				g_ptr_array_add(hollow, entry);
			} else {
				meta_entry_free(meta, entry);
			}
		}
	}
	g_ptr_array_unref(old);
	dir->children = merged;
	for (guint k = 0; k < hollow->len; k++)
		meta_entry_drop_remote(meta, g_ptr_array_index(hollow, k));
	g_ptr_array_unref(hollow);
	g_ptr_array_set_size(listing->found, 0);
}

static void merge_changed(struct sbx_meta_listing *listing, struct meta_dir *dir)
{
	for (guint i = 0; i < listing->found->len; i++) {
		struct meta_entry *found = g_ptr_array_index(listing->found, i);
		struct meta_entry *entry;

		if (gone_at(dir, found->name) >= listing->asked_us) {
			found_free(found);
			continue;
		}
		entry = meta_dir_child_make(listing->meta, dir, found->name, strlen(found->name));
		entry_merge(listing->meta, entry, found, listing->asked_us);
	}
	g_ptr_array_set_size(listing->found, 0);
}

void sbx_meta_listing_end(struct sbx_meta_listing *listing, int64_t clock_ns)
{
	struct meta_dir *dir = meta_dir_of(listing->meta, listing->entry);

	if (listing->whole)
		merge_whole(listing, dir);
	else
		merge_changed(listing, dir);
	gone_prune(dir, listing->asked_us);
	dir->complete = true;
	dir->names_only = listing->names_only;
	dir->validated_us = listing->asked_us;
	dir->clock_ns = clock_ns;
	evict(listing->meta, dir);
	sbx_meta_listing_drop(listing);
}

static const char *path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The entry of the directory that holds @path, or NULL; also for a root. */
static struct meta_entry *path_parent(const struct sbx_meta *meta, const char *path)
{
	g_autofree char *parent = sbx_path_parent(path);

	return parent ? meta_path_entry(meta, parent) : NULL;
}

void sbx_meta_saw(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
		  const char *link, int64_t asked_us, int64_t now_us)
{
	struct meta_entry *entry = meta_path_entry(meta, path);
	struct meta_entry *parent = path_parent(meta, path);

	if (asked_us < now_us - SBX_META_MEMORY_US || (parent && came_later(parent, asked_us)))
		return;
	if (entry && (entry->changed_us >= asked_us || meta_entry_seen_us(entry) > asked_us ||
		      (entry->dir && entry->dir->born_us >= asked_us)))
		return;
	if (parent && parent->dir &&
	    (gone_at(parent->dir, path_name(path)) >= asked_us ||
	     (!entry && parent->dir->complete && parent->dir->validated_us > asked_us)))
		return;
	if (attr) {
		entry = meta_path_entry_make(meta, path);
		meta_entry_set_remote(meta, entry, attr, link);
		entry->seen_us = asked_us;
		if (entry->parent)
			gone_clear(entry->parent->dir, entry->name);
	} else if (parent &&
		   (!parent->parent || (parent->has_remote && S_ISDIR(parent->attr.mode)))) {
		if (entry)
			meta_entry_drop_remote(meta, entry);
		gone_set(meta_dir_of(meta, parent), path_name(path), asked_us);
	}
}

/* What this mount did ---------------------------------------------------------------------- */

/* The other names of the file that @entry names have the same attributes. That they are still there
 * is not shown by this, so they get no younger. */
static void did_set_links(struct sbx_meta *meta, const struct meta_entry *entry, int64_t done_us)
{
	const GPtrArray *names = meta_links_of(meta, entry);

	for (guint i = 0; names && i < names->len; i++) {
		struct meta_entry *other = g_ptr_array_index(names, i);

		if (other == entry)
			continue;
		/* dev, ino and what has several links stay as they are indexed. */
		other->attr = entry->attr;
		other->changed_us = done_us;
	}
}

static struct meta_entry *did_set(struct sbx_meta *meta, const char *path,
				  const struct sbx_attr *attr, const char *link, int64_t asked_us,
				  int64_t done_us)
{
	struct meta_entry *entry = meta_path_entry_make(meta, path);
	/* Two mutations in one directory were under way at once, and this one was answered last:
	 * the later look at the directory is the other's. */
	bool older = entry->changed_us >= asked_us && entry->has_remote &&
		     entry->attr.ino == attr->ino && entry->attr.dev == attr->dev &&
		     entry->attr.ctime_ns > attr->ctime_ns;

	if (!older)
		meta_entry_set_remote(meta, entry, attr, link);
	entry->seen_us = MAX(entry->seen_us, asked_us);
	entry->changed_us = done_us;
	did_set_links(meta, entry, done_us);
	if (entry->parent)
		gone_clear(entry->parent->dir, entry->name);
	return entry;
}

void sbx_meta_did_set(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
		      const char *link, int64_t asked_us, int64_t done_us)
{
	did_set(meta, path, attr, link, asked_us, done_us);
}

void sbx_meta_did_make_dir(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
			   int64_t clock_ns, int64_t asked_us, int64_t done_us)
{
	struct meta_entry *entry = did_set(meta, path, attr, NULL, asked_us, done_us);
	struct meta_dir *dir = meta_dir_of(meta, entry);

	for (guint i = dir->children->len; i > 0; i--)
		meta_entry_drop_remote(meta, g_ptr_array_index(dir->children, i - 1));
	dir->complete = true;
	dir->names_only = false;
	dir->validated_us = asked_us;
	dir->clock_ns = clock_ns;
	dir->born_us = done_us;
}

void sbx_meta_did_remove(struct sbx_meta *meta, const char *path, int64_t done_us)
{
	struct meta_entry *entry = meta_path_entry(meta, path);
	struct meta_entry *parent = path_parent(meta, path);

	if (entry && entry->parent)
		meta_entry_drop_remote(meta, entry);
	if (parent)
		gone_set(meta_dir_of(meta, parent), path_name(path), done_us);
}

/* @entry under another name; the old pointer is void. */
static struct meta_entry *entry_renamed(struct sbx_meta *meta, struct meta_entry *entry,
					const char *name)
{
	struct meta_entry *copy = meta_entry_new(name, strlen(name));

	meta_links_remove(meta, entry);
	memcpy(copy, entry, offsetof(struct meta_entry, name));
	meta_links_add(meta, copy);
	if (copy->dir) {
		copy->dir->entry = copy;
		for (guint i = 0; i < copy->dir->children->len; i++) {
			struct meta_entry *child = g_ptr_array_index(copy->dir->children, i);

			child->parent = copy;
		}
	}
	g_free(entry);
	return copy;
}

void sbx_meta_did_rename(struct sbx_meta *meta, const char *from, const char *to, int64_t done_us)
{
	struct meta_entry *entry = meta_path_entry(meta, from);
	struct meta_entry *target = meta_path_entry(meta, to);
	struct meta_entry *parent;
	guint i;

	if (strcmp(from, to) == 0 || (entry && entry == target))
		return;
	if (target && target->parent) {
		meta_entry_detach(target);
		meta_entry_free(meta, target);
		entry = meta_path_entry(meta, from); /* it may have been below */
	}
	if (!entry || !entry->parent) {
		sbx_meta_did_remove(meta, from, done_us);
		return;
	}
	meta_entry_detach(entry);
	gone_set(entry->parent->dir, entry->name, done_us);
	entry = entry_renamed(meta, entry, path_name(to));
	entry->changed_us = done_us;
	if (entry->dir)
		entry->dir->born_us = done_us;
	meta->n_entries--;
	/* The target's entry is made by its path, then the renamed one put in its place. */
	parent = meta_path_entry_make(meta, to)->parent;
	meta_dir_search(parent->dir, entry->name, strlen(entry->name), &i);
	meta_entry_free(meta, g_ptr_array_index(parent->dir->children, i));
	parent->dir->children->pdata[i] = entry;
	entry->parent = parent;
	meta->n_entries++;
	gone_clear(parent->dir, entry->name);
}

char *sbx_meta_other_name(struct sbx_meta *meta, const char *path, struct sbx_attr *ret_attr)
{
	const struct meta_entry *entry = meta_path_entry(meta, path);
	const GPtrArray *names = entry ? meta_links_of(meta, entry) : NULL;

	for (guint i = 0; names && i < names->len; i++) {
		const struct meta_entry *other = g_ptr_array_index(names, i);

		if (other != entry) {
			*ret_attr = other->attr;
			return meta_entry_path(meta, other);
		}
	}
	return NULL;
}

void sbx_meta_doubt(struct sbx_meta *meta, const char *path)
{
	struct meta_entry *parent = path_parent(meta, path);
	struct meta_entry *entry = meta_path_entry(meta, path);

	for (int i = 0; i < 2; i++, entry = parent) {
		if (!entry)
			continue;
		entry->seen_us = META_NEVER_US;
		if (entry->dir) {
			entry->dir->validated_us = META_NEVER_US;
			entry->dir->clock_ns = 0;
		}
	}
}

void sbx_meta_set_local(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr)
{
	struct meta_entry *entry = meta_path_entry_make(meta, path);

	if (!entry->local)
		entry->local = g_new(struct sbx_attr, 1);
	*entry->local = *attr;
}

void sbx_meta_clear_local(struct sbx_meta *meta, const char *path)
{
	struct meta_entry *entry = meta_path_entry(meta, path);

	if (!entry)
		return;
	g_clear_pointer(&entry->local, g_free);
	/* Entries that stood only for the view, or on the way to it, go. */
	while (entry->parent && !entry->has_remote && !entry->local &&
	       (!entry->dir || entry->dir->children->len == 0)) {
		struct meta_entry *parent = entry->parent;

		meta_entry_detach(entry);
		meta_entry_free(meta, entry);
		entry = parent;
	}
}

/* What to ask ------------------------------------------------------------------------------- */

static void dir_info_fill(struct sbx_meta *meta, const struct meta_entry *entry,
			  struct sbx_meta_dir_info *ret_info)
{
	const struct meta_dir *dir = entry->dir;

	*ret_info = (struct sbx_meta_dir_info){
		.path = meta_entry_path(meta, entry),
		.validated_us = META_NEVER_US,
		.used_us = META_NEVER_US,
		.floor_us = meta->floor_us,
	};
	if (!dir)
		return;
	ret_info->complete = dir->complete;
	ret_info->validated_us = dir->validated_us;
	ret_info->used_us = dir->used_us;
	ret_info->clock_ns = dir->validated_us >= meta->floor_us ? dir->clock_ns : 0;
	ret_info->n_entries = dir->children->len;
}

void sbx_meta_each_dir(struct sbx_meta *meta, sbx_meta_dir_fn fn, void *arg)
{
	bool go_on = true;

	for (struct meta_dir *dir = meta->newest; dir && go_on; dir = dir->older) {
		struct sbx_meta_dir_info info;

		dir_info_fill(meta, dir->entry, &info);
		go_on = fn(arg, &info);
		g_free(info.path);
	}
}

/* The first directory among the children of @entry from @i on. */
static struct meta_entry *child_dir_from(const struct meta_entry *entry, guint i)
{
	for (; entry->dir && i < entry->dir->children->len; i++) {
		struct meta_entry *child = g_ptr_array_index(entry->dir->children, i);

		if (child->has_remote && S_ISDIR(child->attr.mode))
			return child;
	}
	return NULL;
}

/* What comes after @entry when parents come before their children. */
static struct meta_entry *dir_after(struct meta_entry *entry)
{
	struct meta_entry *next = child_dir_from(entry, 0);
	guint i;

	while (!next && entry->parent) {
		if (!meta_dir_search(entry->parent->dir, entry->name, strlen(entry->name), &i))
			return NULL;
		next = child_dir_from(entry->parent, i + 1);
		entry = entry->parent;
	}
	return next;
}

void sbx_meta_each_dir_after(struct sbx_meta *meta, const char *path, sbx_meta_dir_fn fn, void *arg)
{
	struct meta_entry *entry = meta_path_entry(meta, path);
	bool go_on = true;

	while (go_on && entry && (entry = dir_after(entry))) {
		struct sbx_meta_dir_info info;

		dir_info_fill(meta, entry, &info);
		go_on = fn(arg, &info);
		g_free(info.path);
	}
}

int sbx_meta_dir_info(struct sbx_meta *meta, const char *path, struct sbx_meta_dir_info *ret_info)
{
	struct meta_entry *entry = meta_path_entry(meta, path);

	if (!entry || !entry->dir)
		return -ENOENT;
	dir_info_fill(meta, entry, ret_info);
	return 0;
}
