/*
 * meta_impl - the store's insides, shared by meta.c (the tree, what is read from it) and
 * meta_merge.c (answers and mutations put into it). For no other module.
 *
 * Invariants: children are sorted by name without doubles; meta->n_entries counts all entries but
 * the two roots; a directory is in the list by use exactly while its entry has it.
 */
#ifndef SBX_CLIENT_WORKSPACE_META_IMPL_H
#define SBX_CLIENT_WORKSPACE_META_IMPL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/attr.h"
#include "client/workspace/meta.h"

/* A time before every other. */
#define META_NEVER_US INT64_MIN

/* What is known of a directory's listing. In the list of directories by use. */
struct meta_dir {
	struct meta_entry *entry;
	struct meta_dir *newer, *older;
	GPtrArray *children; /* struct meta_entry *, sorted by name */
	GHashTable *gone; /* names that own mutations took away -> int64_t *, when; or NULL */
	int64_t validated_us;
	int64_t used_us;
	int64_t born_us; /* when an own mutation brought the directory to this path */
	int64_t clock_ns;
	bool complete;
	bool names_only; /* the listing told no attributes: only entries' own answers do */
};

/* Compact: a tree may have a million of them. */
struct meta_entry {
	struct meta_entry *parent; /* NULL: a root */
	struct meta_dir *dir;
	struct sbx_attr *local;
	char *link;
	int64_t seen_us;
	int64_t changed_us; /* when an own mutation of it was done; 0: none */
	struct sbx_attr attr; /* when has_remote */
	bool has_remote;
	char name[];
};

struct sbx_meta {
	struct meta_entry *workspace;
	struct meta_entry *sandbox;
	struct meta_dir *newest, *oldest;
	size_t n_entries;
	size_t max_entries;
	uint64_t changes; /* counts remote sides that were set or went */
	int64_t floor_us; /* what was seen before is not fresh */
	GHashTable *links; /* (dev, ino) of files with several links -> their known names */
};

/* A new entry that is in no directory and does not count. */
struct meta_entry *meta_entry_new(const char *name, size_t len);
/* @entry and all below it; it is no longer in its directory's array. */
void meta_entry_free(struct sbx_meta *meta, struct meta_entry *entry);
/* Take @entry out of its directory's array; it still counts and points to its parent. */
void meta_entry_detach(struct meta_entry *entry);
/* The remote side of @entry is gone, and it with it unless there is a local view in or below it. */
void meta_entry_drop_remote(struct sbx_meta *meta, struct meta_entry *entry);
bool meta_entry_has_local_below(const struct meta_entry *entry);
void meta_entry_set_remote(struct sbx_meta *meta, struct meta_entry *entry,
			   const struct sbx_attr *attr, const char *link);
/* Have @entry, whose attributes were set or are about to go, in or out of meta->links. */
void meta_links_add(struct sbx_meta *meta, struct meta_entry *entry);
void meta_links_remove(struct sbx_meta *meta, struct meta_entry *entry);
/* struct meta_entry * of all known names of the file that @entry names, itself too; NULL: it has
 * one link. Valid until the next change. */
const GPtrArray *meta_links_of(const struct sbx_meta *meta, const struct meta_entry *entry);

/* How old what is known of @entry is. */
int64_t meta_entry_seen_us(const struct meta_entry *entry);
/* For g_ptr_array_sort(), by name. */
int meta_entry_compare(gconstpointer a, gconstpointer b);
char *meta_entry_path(const struct sbx_meta *meta, const struct meta_entry *entry);

/* The directory of @entry, made where there is none. */
struct meta_dir *meta_dir_of(struct sbx_meta *meta, struct meta_entry *entry);
void meta_dir_free(struct sbx_meta *meta, struct meta_dir *dir);
/* Where @name (@len bytes) is in @dir, or where it would be put. */
bool meta_dir_search(const struct meta_dir *dir, const char *name, size_t len, guint *ret_index);
struct meta_entry *meta_dir_child(const struct meta_dir *dir, const char *name, size_t len);
struct meta_entry *meta_dir_child_make(struct sbx_meta *meta, struct meta_dir *dir,
				       const char *name, size_t len);

/* The entry of exactly @path, of any age, or NULL; made, with those above it, by _make. */
struct meta_entry *meta_path_entry(const struct sbx_meta *meta, const char *path);
struct meta_entry *meta_path_entry_make(struct sbx_meta *meta, const char *path);

#endif
