/*
 * synth - files that sbxfs makes up: text out, text in.
 *
 * A directory of ours has a table of rows {name, mode, show, ...}. show() renders the whole text.
 *
 *  - A file is rendered when it is opened; one open file sees one rendering. fstat carries no file
 *    handle, so the node's size is that of its newest rendering, and every lookup makes a node of
 *    its own (entry timeout 0): what a program opened is not resized by another's open. A getattr
 *    renders anew only when nobody has the node open. Reading goes past the kernel's pages
 *    (direct_io).
 *  - A writable file takes verbs (verb.h). Offsets mean nothing there: an open file has an input
 *    buffer, and when it was opened for both, reading goes on where the last read ended. Each open
 *    has its node, so a writer that waits blocks no other. O_TRUNC, chmod, utimens and fsync do
 *    nothing and succeed.
 *  - A row may bring an open of its own (jobs/new, wait), and a directory or link row its class or
 *    text.
 *
 * No lock of its own; an open file's cursor is under its own lock. Never holds one while it calls
 * show() or runs a verb.
 */
#ifndef SBX_FUSEFS_SYNTH_H
#define SBX_FUSEFS_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <glib.h>

struct dirsnap;
struct entry;
struct fsession;
struct handle;
struct node;
struct node_class;
struct op;
struct scratch_set;
struct verb_table;

struct synth_row {
	const char *name;
	mode_t mode; /* type and permissions */
	unsigned int index; /* numbers it in its directory, from 2 (ino_own) */
	bool hidden; /* found by name, not listed */
	bool fixed; /* its text never changes: its times are the mount's */
	bool waits; /* show, open or verbs may ask the server: as node_class.waits */
	/* Its number, where the directory's own group and index do not tell it; NULL: they do. */
	uint64_t (*st_ino)(const struct node *dir, const struct synth_row *row);
	/* Append the text; of a link its target. @dir: the directory's node. */
	int (*show)(struct op *op, struct node *dir, GString *out);
	const struct verb_table *verbs; /* what may be written */
	/* Instead of verbs: take a whole text, as when a file is renamed onto it. */
	int (*store)(struct op *op, struct node *dir, const char *data, size_t len);
	/* Instead of the common open file. @node's parent is the directory. */
	int (*open)(struct op *op, struct node *node, int flags, struct handle **ret_handle);
	const struct node_class *class; /* of a directory */
	const char *base_path; /* as node_spec.base_path */
	/* NULL: it is always there. */
	bool (*exists)(struct op *op, struct node *dir);
};

struct synth_table {
	const struct synth_row *rows;
	size_t n;
};

extern const struct node_class synth_file_class; /* node->data: the row */
extern const struct node_class synth_waiting_file_class; /* the same, of a row that waits */
extern const struct node_class synth_link_class; /* the same of a link */
extern const struct node_class synth_waiting_link_class;

/* The row of @name, or NULL. */
const struct synth_row *synth_find(const struct synth_table *table, const char *name);

/* The node of a row. -ENOENT: none of that name. */
int synth_lookup(struct op *op, const struct synth_table *table, struct node *dir, const char *name,
		 struct entry *ret_entry);

/* A directory of rows, with scratch files beside them (@scratch may be NULL: none can be made). The
 * errnos are those of a local directory; -EPERM: that can't be done to a file of ours. */
int synth_create(struct op *op, const struct synth_table *table, struct scratch_set *scratch,
		 struct node *dir, const char *name, int flags, mode_t mode,
		 struct entry *ret_entry, struct handle **ret_handle);
int synth_unlink(const struct synth_table *table, struct scratch_set *scratch, const char *name);
/* A scratch file renamed onto a writable row is written to it; a row renamed to a free name leaves
 * a scratch file with its text there, and stays. */
int synth_rename(struct op *op, const struct synth_table *table, struct scratch_set *scratch,
		 struct node *dir, const char *from, const char *to, unsigned int flags);

/* Listings. */
struct synth_snap *synth_snap_new(void);
void synth_snap_add(struct synth_snap *snap, const char *name, mode_t type, uint64_t st_ino);
/* The rows that are listed, and the scratch files. */
void synth_snap_add_rows(struct synth_snap *snap, struct op *op, const struct synth_table *table,
			 struct scratch_set *scratch, struct node *dir);
/* Takes @snap over. */
struct dirsnap *synth_snap_done(struct synth_snap *snap);

#endif
