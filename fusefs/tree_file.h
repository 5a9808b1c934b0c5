/*
 * tree_file - open files of a sandbox (the part of tree.h that reads and writes), and what both
 * parts share. All content, and when it is sent, is the workspace's (client/workspace/files.h).
 *
 * A FLUSH counts by process: the workspace is told the thread that the kernel names, and finds out
 * where that matters.
 */
#ifndef SBX_FUSEFS_TREE_FILE_H
#define SBX_FUSEFS_TREE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "client/attr.h"

#define TREE_BLOCK_SIZE (128 * 1024)

struct entry;
struct handle;
struct node;
struct op;
struct sbx_file;

/* Slots of tree_class. */
int tree_open(struct op *op, struct node *node, int flags, struct handle **ret_handle);
int tree_create(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
		struct entry *ret_entry, struct handle **ret_handle);

/* The workspace's file behind an open file of tree_class; NULL when @handle is NULL or another. */
struct sbx_file *tree_handle_file(struct handle *handle);
/* The thread that is shown what @op asks for; 0: none, the kernel asks for itself. */
pid_t tree_looker(const struct op *op);
/* Before attributes of @path are shown to @tid (sbx_files_before_stat). @node: of its session. */
int tree_before_stat(struct op *op, struct node *node, const char *path, pid_t tid);

/*
 * What is done by path: do { tree_try(); the path; the request } while (tree_try_again()). Again
 * where the result is -ENOENT and some name has moved here meanwhile. Zeros at first.
 */
struct tree_try {
	uint64_t moves;
	unsigned int n;
};
void tree_try(struct op *op, struct tree_try *try);
bool tree_try_again(struct op *op, struct tree_try *try, int r);

/* tree.c: the node of a name, with its attributes. */
int tree_enter(struct op *op, struct node *dir, const char *name, const struct sbx_attr *attr,
	       int64_t valid_ms, bool told, struct entry *ret_entry);

#endif
