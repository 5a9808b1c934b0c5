/*
 * scratch - small files in memory beside the writable synthetic files.
 *
 * Editors and `sed -i` save by writing a temporary file, a backup or a swap file beside the real
 * one, and by renaming. So a program may create files in the directories that hold a `control`:
 * at most VERB_INPUT_MAX bytes each, SCRATCH_FILES_MAX in a directory, gone SCRATCH_LIFE_MS after
 * their last close. Renamed onto a synthetic file, their content is written to it (synth.h).
 *
 * A scratch_set is the scratch files of one directory. Each lookup of one makes a new node, with
 * the same file behind it.
 *
 * Locking: one lock a set, for the names and all contents of the set. Innermost.
 */
#ifndef SBX_FUSEFS_SCRATCH_H
#define SBX_FUSEFS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCRATCH_LIFE_MS	  60000
#define SCRATCH_FILES_MAX 64

struct entry;
struct handle;
struct node;
struct node_class;
struct op;
struct scratch;
struct scratch_set;

extern const struct node_class scratch_class;

struct scratch_set *scratch_set_new(void);
/* Files that are open live on until they are closed. NULL is allowed. */
void scratch_set_unref(struct scratch_set *set);

/* The node of the file @name. -ENOENT. */
int scratch_lookup(struct op *op, struct scratch_set *set, struct node *dir, const char *name,
		   struct entry *ret_entry);
/* Open it, and make it when it is not there (O_EXCL: -EEXIST when it is). -ENOSPC: too many. */
int scratch_create(struct op *op, struct scratch_set *set, struct node *dir, const char *name,
		   int flags, mode_t mode, struct entry *ret_entry, struct handle **ret_handle);
/* Make or replace a file of that content. -ENOSPC. */
int scratch_put(struct scratch_set *set, const char *name, const char *data, size_t len);
int scratch_unlink(struct scratch_set *set, const char *name);
/* -ENOENT: no such file; -EEXIST with RENAME_NOREPLACE; -EINVAL: other flags. */
int scratch_rename(struct scratch_set *set, const char *from, const char *to, unsigned int flags);
/* A copy of the content. -ENOENT. *ret_data: g_free(). */
int scratch_read(struct scratch_set *set, const char *name, char **ret_data, size_t *ret_len);
/* Names, sorted, NULL-terminated; g_strfreev(). */
char **scratch_list(struct scratch_set *set);
/* st_ino of the file of that name; 0: there is none. */
uint64_t scratch_ino(struct scratch_set *set, const char *name);

#endif
