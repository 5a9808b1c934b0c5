/*
 * meta - the store of what is known of a session's tree: names, attributes, link texts.
 *
 * A tree of entries. An entry has remote attributes (what the sandbox said), or a local view (the
 * attributes of bytes not sent yet), or both; the local view covers the remote one. A directory
 * whose whole listing is known is `complete` and has been valid at `validated_us`: the time at
 * which the request was *sent* whose answer it is, so that no answer is taken for younger than it
 * is. Every entry knows the same of itself (`seen_us`), since answers also tell of single files.
 * What the store says of a name is as old as the younger of the two.
 *
 * Own mutations and answers that cross them: a mutation marks what it changed with the time at
 * which it was known to be done. An answer that was asked for before that time is not put over it,
 * name by name; the rest of the answer counts. Names that went away are remembered for
 * SBX_META_MEMORY_US, answers that took longer are not taken at all.
 *
 * Files with several links are indexed by their number: what an own mutation shows of one name
 * holds for the others.
 *
 * An entry with attr.mode 0 is known to be there, and nothing else of it (a server without exec).
 *
 * Two roots: "" is the workspace, "/" the sandbox's own root (paths that begin with a slash).
 *
 * Times are microseconds of CLOCK_MONOTONIC, always passed in. Pure: no clock, no I/O, no lock; the
 * caller holds names->lock around every call, and what is borrowed is valid until the next call
 * that changes the store.
 */
#ifndef SBX_CLIENT_WORKSPACE_META_H
#define SBX_CLIENT_WORKSPACE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/attr.h"

struct sbx_listing; /* client/workspace/workspace.h */
struct sbx_meta;
struct sbx_meta_listing;

/* An answer that took longer than this is dropped. */
#define SBX_META_MEMORY_US (120 * INT64_C(1000000))
/* As `need_us`: an answer of any age will do. */
#define SBX_META_ANY_AGE INT64_MIN

/* @max_entries: above it the listings of the directories longest unused are forgotten. */
struct sbx_meta *sbx_meta_new(size_t max_entries);
void sbx_meta_free(struct sbx_meta *meta);

/* What was seen before @now_us is no longer fresh. Local views stay. */
void sbx_meta_expire(struct sbx_meta *meta, int64_t now_us);

size_t sbx_meta_count(const struct sbx_meta *meta); /* entries, for bounds and tests */

struct sbx_meta_found {
	struct sbx_attr attr;
	bool local; /* attr is the local view */
	const char *link; /* borrowed; NULL: no symbolic link, or its text is not known */
	int64_t seen_us; /* how old this is; of a -ENOENT too */
	size_t ask_len; /* with -EAGAIN: the directory to ask for is the first ask_len bytes */
};

/*
 * What is known of @path that was seen at @need_us or later. Directories passed are marked used at
 * @now_us (0: not marked).
 * 0; -ENOENT: known absent; -ENOTDIR: a component before the last is no directory; -EAGAIN: not
 * known, see ask_len.
 */
int sbx_meta_find(struct sbx_meta *meta, const char *path, int64_t need_us, int64_t now_us,
		  struct sbx_meta_found *ret_found);

/* The remote attributes of @path, of any age. 0, -ENOENT (absent or not known). */
int sbx_meta_remote(struct sbx_meta *meta, const char *path, struct sbx_attr *ret_attr);

/*
 * The listing of the directory @path, sorted by bytes, local views included, valid_ms not set.
 * As sbx_meta_find(); -ENOTDIR where @path itself is no directory. *ret_seen_us is its age.
 */
int sbx_meta_list(struct sbx_meta *meta, const char *path, int64_t need_us, int64_t now_us,
		  struct sbx_listing **ret_listing, int64_t *ret_seen_us, size_t *ret_ask_len);

/* Answers --------------------------------------------------------------------------------- */

/*
 * Begin to take in what an answer, asked for at @asked_us, says of the directory @path. @whole: the
 * entries that follow are its whole listing; else those that changed since it was last validated.
 * NULL: the answer is of no use (the directory is not known, was validated later, or came to this
 * path later). Ends with sbx_meta_listing_end() or _drop().
 */
struct sbx_meta_listing *sbx_meta_listing_begin(struct sbx_meta *meta, const char *path, bool whole,
						int64_t asked_us, int64_t now_us);
/* @attr: of one entry; @link may be NULL. -EIO: no valid name. */
int sbx_meta_listing_add(struct sbx_meta_listing *listing, const char *name,
			 const struct sbx_attr *attr, const char *link);
/* Put it in the store. @clock_ns: the sandbox's clock when the listing was made, 0: not known. */
void sbx_meta_listing_end(struct sbx_meta_listing *listing, int64_t clock_ns);
void sbx_meta_listing_drop(struct sbx_meta_listing *listing);

/* An answer asked for at @asked_us says that @path has @attr (NULL: is not there). */
void sbx_meta_saw(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
		  const char *link, int64_t asked_us, int64_t now_us);

/* What this mount did ---------------------------------------------------------------------- */

/* Done at @done_us, by a request sent at @asked_us: @path has @attr now. @link: its text, NULL
 * where it is none. */
void sbx_meta_did_set(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
		      const char *link, int64_t asked_us, int64_t done_us);
/* The same of a directory that was made: it is known to be empty. @clock_ns: the sandbox's clock
 * then, rather too early than too late; 0: not known. */
void sbx_meta_did_make_dir(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr,
			   int64_t clock_ns, int64_t asked_us, int64_t done_us);
void sbx_meta_did_remove(struct sbx_meta *meta, const char *path, int64_t done_us);
/* @to takes over everything that is known of @from and below it, local views included. */
void sbx_meta_did_rename(struct sbx_meta *meta, const char *from, const char *to, int64_t done_us);
/* Another known name of the file that @path names, which has several links; NULL: none is known.
 * g_free(). */
char *sbx_meta_other_name(struct sbx_meta *meta, const char *path, struct sbx_attr *ret_attr);
/* A change below @path whose outcome is not known: ask again. */
void sbx_meta_doubt(struct sbx_meta *meta, const char *path);

/* Local view of unsent bytes. */
void sbx_meta_set_local(struct sbx_meta *meta, const char *path, const struct sbx_attr *attr);
void sbx_meta_clear_local(struct sbx_meta *meta, const char *path);

/*
 * All entries of the workspace whose remote attributes are known, of any age, a directory before
 * what is in it. @link: borrowed; NULL where it is no link, or its text is not known.
 */
typedef void (*sbx_meta_entry_fn)(void *arg, const char *path, const struct sbx_attr *attr,
				  const char *link, int64_t seen_us);
void sbx_meta_each_entry(struct sbx_meta *meta, sbx_meta_entry_fn fn, void *arg);
/* Differs from what it was before whenever an entry's remote side was set or went. */
uint64_t sbx_meta_changes(const struct sbx_meta *meta);

/* What to ask ------------------------------------------------------------------------------- */

/* A directory. */
struct sbx_meta_dir_info {
	char *path; /* g_free() */
	bool complete;
	int64_t validated_us;
	int64_t floor_us; /* of sbx_meta_expire(): validated before is as good as not known */
	int64_t used_us;
	int64_t clock_ns; /* the sandbox's clock at its last validation; 0: ask for all of it */
	size_t n_entries;
};

/* Directories with a listing known, most recently used first, while @fn returns true. */
typedef bool (*sbx_meta_dir_fn)(void *arg, const struct sbx_meta_dir_info *info);
void sbx_meta_each_dir(struct sbx_meta *meta, sbx_meta_dir_fn fn, void *arg);
/* Directories that a walk of the tree in order of names comes to after @path, known or not. */
void sbx_meta_each_dir_after(struct sbx_meta *meta, const char *path, sbx_meta_dir_fn fn,
			     void *arg);
/* The same of one directory. -ENOENT: it is not known or has no listing. */
int sbx_meta_dir_info(struct sbx_meta *meta, const char *path, struct sbx_meta_dir_info *ret_info);

#endif
