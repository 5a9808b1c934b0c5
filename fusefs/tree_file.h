/*
 * tree_file - open files of a sandbox (the part of tree.h that reads and writes), and what both
 * parts share. All content, and when it is sent, is the workspace's (client/workspace/files.h).
 *
 * A FLUSH counts by process, so the thread that the kernel names is mapped to its process.
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
/* The process that is shown what @op asks for; 0: none, the kernel asks for itself. */
pid_t tree_looker(const struct op *op);
/* Attributes of the version that the open file has. */
int tree_handle_getattr(struct op *op, struct handle *handle, struct sbx_attr *ret_attr);
/* Before attributes of @path are shown to @pid (sbx_files_before_stat). @node: of its session. */
int tree_before_stat(struct op *op, struct node *node, const char *path, pid_t pid);

/* tree.c: the node of a name, with its attributes. */
int tree_enter(struct op *op, struct node *dir, const char *name, const struct sbx_attr *attr,
	       int64_t valid_ms, bool told, struct entry *ret_entry);

#endif
