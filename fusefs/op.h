/*
 * op - one request of the kernel while it is served, and what each kind of node can do.
 *
 * The handlers of libfuse's table (ops_*.c) are a frame: they find the node, register the
 * interrupt, call the node's class, and reply. A class (tree.h, synth.h, root.h, ...) knows no
 * libfuse: its functions return 0 or a negative errno and fill out parameters. So there is one
 * place that replies, and one that takes back what the kernel did not take.
 *
 * Slots of a class that are missing mean -EPERM, but lookup (-ENOENT), access (by mode) and statfs
 * (the mount's).
 * Nodes given to slots are referenced for the length of the call.
 */
#ifndef SBX_FUSEFS_OP_H
#define SBX_FUSEFS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "client/call.h"
#include "fusefs/fs.h"
#include "fusefs/interrupt.h"
#include "fusefs/node.h"

struct fuse_req;

enum op_kind {
	OP_LOOKUP,
	OP_FORGET,
	OP_GETATTR,
	OP_SETATTR,
	OP_READLINK,
	OP_MKNOD,
	OP_MKDIR,
	OP_UNLINK,
	OP_RMDIR,
	OP_SYMLINK,
	OP_RENAME,
	OP_LINK,
	OP_OPEN,
	OP_CREATE,
	OP_READ,
	OP_WRITE,
	OP_FLUSH,
	OP_FSYNC,
	OP_RELEASE,
	OP_OPENDIR,
	OP_READDIR,
	OP_READDIRPLUS,
	OP_RELEASEDIR,
	OP_FSYNCDIR,
	OP_STATFS,
	OP_FALLOCATE,
	OP_COPY_FILE_RANGE,
	OP_IOCTL,
	OP_ACCESS,
	OP_KINDS,
	OP_FAILED = OP_KINDS, /* counts replies with an error other than ENOENT and ENOTTY */
	OP_REFUSED, /* counts requests refused since their session held too many threads */
};

const char *op_kind_name(enum op_kind kind);

struct op {
	struct fs *fs;
	struct fuse_req *req;
	struct sbx_call call; /* what is given to the layers below */
	struct node *node; /* a reference to the node asked for */
	pid_t tid; /* of the calling thread, 0: not known */
	/* A getattr of the kernel's own, for a read or a seek near the end of an open file: the
	 * size is what it needs, and no program is shown the times. */
	bool for_size;
	uint64_t told_takings; /* when it began (told.h) */
	struct fsession *admitted; /* counted in this session's threads */
	struct interrupt interrupt;
};

/* The calling process of @op: the thread's group; the thread's id where it can't be told. */
pid_t op_pid(const struct op *op);
/* @op, a FLUSH of what @opener (a process, op_pid()) has opened, is the close of who is done with
 * it (kernel.md "FLUSH is not close"). */
bool op_closes(const struct op *op, pid_t opener);

/* An answer to lookup, mkdir and the like. */
struct entry {
	struct node *node; /* one counted lookup and one reference; NULL: no such name */
	struct stat st;
	int64_t attr_valid_ms;
	int64_t entry_valid_ms;
};

/* Take back the lookup of an entry that the kernel will not know of, and drop its reference. */
void op_entry_undo(struct op *op, struct entry *entry);

struct handle_class;

/* One open file; the head of what a class keeps of it. */
struct handle {
	const struct handle_class *class;
	struct node *node; /* a reference */
	struct handle *next; /* under the node table's lock */
	unsigned int refs; /* the same */
	bool passed; /* atomic; see handle_pass() */
	int flags; /* of open(2): O_APPEND may have changed since */
	bool direct_io;
	bool keep_cache;
};

struct handle_class {
	/* Bytes, or negative errno. */
	ssize_t (*read)(struct op *op, struct handle *handle, void *buf, size_t size, off_t offset);
	/* Before read: true, the read was handed over (park.h) and is answered later. */
	bool (*park)(struct op *op, struct handle *handle, size_t size, off_t offset);
	/* All of @size, or negative errno. @append: @offset is where the kernel believes the
	 * end. */
	ssize_t (*write)(struct op *op, struct handle *handle, const void *buf, size_t size,
			 off_t offset, bool append);
	int (*flush)(struct op *op, struct handle *handle);
	int (*fsync)(struct op *op, struct handle *handle);
	int (*allocate)(struct op *op, struct handle *handle, off_t offset, off_t len);
	/* @out is of the same class and session. */
	ssize_t (*copy_range)(struct op *op, struct handle *in, off_t in_offset, struct handle *out,
			      off_t out_offset, size_t len);
	/* Ends and frees it, whatever happens. @op may be of any request, or of none. */
	void (*release)(struct op *op, struct handle *handle);
	/* That may ask the server, or take long: it is done by a thread of the pool. */
	bool release_waits;
};

/* Sets the head up with one reference, and adds it to the node's open files. */
void handle_init(struct op *op, struct handle *handle, const struct handle_class *class,
		 struct node *node, int flags);
/* The last one takes it off the node's open files and calls release. */
void handle_put(struct op *op, struct handle *handle);
/*
 * What the kernel keeps of an open file, and the open file back. The kernel carries it from the
 * thread that opened to the one that uses it, which is an order that tools don't see: so the value
 * goes out behind a release, and comes back behind an acquire.
 */
uint64_t handle_pass(struct handle *handle);
struct handle *handle_take(uint64_t fh);
/* An open file of @node that can't go away until handle_put(), or NULL. */
struct handle *handle_of_node(struct op *op, struct node *node);

/* A directory as it was at one moment. Freed by free. */
struct dirsnap {
	size_t n;
	void (*get)(const struct dirsnap *snap, struct op *op, struct node *dir, size_t index,
		    const char **ret_name, mode_t *ret_type, uint64_t *ret_ino);
	/* The entry with its attributes as they are now; NULL, or an error: the kernel asks when it
	 * wants to know. */
	int (*plus)(const struct dirsnap *snap, struct op *op, struct node *dir, size_t index,
		    struct entry *ret_entry);
	void (*free)(struct dirsnap *snap);
};

enum {
	OP_SET_MODE = 1 << 0,
	OP_SET_UID = 1 << 1,
	OP_SET_GID = 1 << 2,
	OP_SET_SIZE = 1 << 3,
	OP_SET_ATIME = 1 << 4,
	OP_SET_MTIME = 1 << 5,
	OP_SET_ATIME_NOW = 1 << 6,
	OP_SET_MTIME_NOW = 1 << 7,
};

struct op_setattr {
	unsigned int set;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	uint64_t size;
	int64_t atime_ns;
	int64_t mtime_ns;
};

struct node_class {
	bool waits; /* its operations ask the server, so they count as the session's threads */
	bool foreign; /* of the sandbox: names in its directories change behind the kernel's back */
	int (*lookup)(struct op *op, struct node *dir, const char *name, struct entry *ret_entry);
	int (*getattr)(struct op *op, struct node *node, struct stat *ret_st,
		       int64_t *ret_valid_ms);
	/* @handle may be NULL. */
	int (*setattr)(struct op *op, struct node *node, struct handle *handle,
		       const struct op_setattr *change, struct stat *ret_st, int64_t *ret_valid_ms);
	/* access(2), and entering a directory: may it be had as @mask (R_OK, W_OK, X_OK) says? 0,
	 * or what open or exec would fail with. Missing: by the permission bits that getattr
	 * shows. */
	int (*access)(struct op *op, struct node *node, int mask);
	int (*readlink)(struct op *op, struct node *node, char **ret_text);
	int (*mknod)(struct op *op, struct node *dir, const char *name, mode_t mode,
		     struct entry *ret_entry);
	int (*mkdir)(struct op *op, struct node *dir, const char *name, mode_t mode,
		     struct entry *ret_entry);
	int (*unlink)(struct op *op, struct node *dir, const char *name);
	int (*rmdir)(struct op *op, struct node *dir, const char *name);
	int (*symlink)(struct op *op, struct node *dir, const char *name, const char *text,
		       struct entry *ret_entry);
	/* Both directories are of this class and of one session; else the frame says -EXDEV. */
	int (*rename)(struct op *op, struct node *from_dir, const char *from, struct node *to_dir,
		      const char *to, unsigned int flags);
	int (*link)(struct op *op, struct node *node, struct node *dir, const char *name,
		    struct entry *ret_entry);
	int (*open)(struct op *op, struct node *node, int flags, struct handle **ret_handle);
	int (*create)(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
		      struct entry *ret_entry, struct handle **ret_handle);
	int (*list)(struct op *op, struct node *dir, struct dirsnap **ret_snap);
	int (*fsyncdir)(struct op *op, struct node *dir);
	int (*statfs)(struct op *op, struct node *node, struct statvfs *ret_st);
	/* The first of a node: takes what node->data borrowed so far. Under the table's lock. */
	void (*began)(struct node *node);
	/* The last of a node: frees node->data. */
	void (*ended)(struct node *node);
};

void op_set_time(struct timespec *time, int64_t ns);
/* Attributes of something of ours: @type and permission bits, number, size. */
void op_own_stat(const struct fs *fs, mode_t mode, uint64_t st_ino, uint64_t size,
		 struct stat *ret_st);
/* Those of a directory of ours. */
void op_own_dir(struct op *op, struct node *node, mode_t permissions, uint64_t st_ino,
		struct stat *ret_st);
/* statfs of the mount itself: from memory. */
void op_own_statfs(struct statvfs *ret_st);

#endif
