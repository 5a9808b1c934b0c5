#include "fusefs/op.h"

#include <string.h>

#include "client/workspace/process.h"
#include "fusefs/text.h"

const char *op_kind_name(enum op_kind kind)
{
	static const char *const names[] = {
		[OP_LOOKUP] = "lookup",
		[OP_FORGET] = "forget",
		[OP_GETATTR] = "getattr",
		[OP_SETATTR] = "setattr",
		[OP_READLINK] = "readlink",
		[OP_MKNOD] = "mknod",
		[OP_MKDIR] = "mkdir",
		[OP_UNLINK] = "unlink",
		[OP_RMDIR] = "rmdir",
		[OP_SYMLINK] = "symlink",
		[OP_RENAME] = "rename",
		[OP_LINK] = "link",
		[OP_OPEN] = "open",
		[OP_CREATE] = "create",
		[OP_READ] = "read",
		[OP_WRITE] = "write",
		[OP_FLUSH] = "flush",
		[OP_FSYNC] = "fsync",
		[OP_RELEASE] = "release",
		[OP_OPENDIR] = "opendir",
		[OP_READDIR] = "readdir",
		[OP_READDIRPLUS] = "readdirplus",
		[OP_RELEASEDIR] = "releasedir",
		[OP_FSYNCDIR] = "fsyncdir",
		[OP_STATFS] = "statfs",
		[OP_FALLOCATE] = "fallocate",
		[OP_COPY_FILE_RANGE] = "copy_file_range",
		[OP_IOCTL] = "ioctl",
		[OP_ACCESS] = "access",
	};

	return (size_t)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

pid_t op_pid(const struct op *op)
{
	return sbx_process_of(op->tid);
}

bool op_closes(const struct op *op, pid_t opener)
{
	return sbx_process_closes(op->tid, opener);
}

void op_entry_undo(struct op *op, struct entry *entry)
{
	if (!entry->node)
		return;
	node_forget(op->fs->nodes, entry->node->id, 1);
	node_put(op->fs->nodes, entry->node);
	entry->node = NULL;
}

void handle_init(struct op *op, struct handle *handle, const struct handle_class *class,
		 struct node *node, int flags)
{
	handle->class = class;
	handle->node = node_ref(op->fs->nodes, node);
	handle->refs = 1;
	handle->flags = flags;
	node_handle_add(op->fs->nodes, node, handle);
}

void handle_put(struct op *op, struct handle *handle)
{
	struct node *node = handle->node;

	if (!node_handle_drop(op->fs->nodes, node, handle))
		return;
	handle->class->release(op, handle);
	node_put(op->fs->nodes, node);
}

uint64_t handle_pass(struct handle *handle)
{
	__atomic_store_n(&handle->passed, true, __ATOMIC_RELEASE);
	return (uint64_t)(uintptr_t)handle;
}

struct handle *handle_take(uint64_t fh)
{
	struct handle *handle = (struct handle *)(uintptr_t)fh;

	(void)__atomic_load_n(&handle->passed, __ATOMIC_ACQUIRE);
	return handle;
}

struct handle *handle_of_node(struct op *op, struct node *node)
{
	return node_handle_hold(op->fs->nodes, node);
}

void op_set_time(struct timespec *time, int64_t ns)
{
	time->tv_sec = (time_t)(ns / 1000000000);
	time->tv_nsec = (long)(ns % 1000000000);
	if (time->tv_nsec < 0) {
		time->tv_sec--;
		time->tv_nsec += 1000000000;
	}
}

void op_own_stat(const struct fs *fs, mode_t mode, uint64_t st_ino, uint64_t size,
		 struct stat *ret_st)
{
	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->st_ino = st_ino;
	ret_st->st_mode = mode;
	ret_st->st_nlink = S_ISDIR(mode) ? 2 : 1;
	ret_st->st_uid = fs->config.uid;
	ret_st->st_gid = fs->config.gid;
	ret_st->st_size = (off_t)size;
	ret_st->st_blksize = 4096;
	ret_st->st_blocks = (blkcnt_t)((size + 511) / 512);
	op_set_time(&ret_st->st_mtim, fs->started_ns);
	ret_st->st_atim = ret_st->st_ctim = ret_st->st_mtim;
}

void op_own_dir(struct op *op, struct node *node, mode_t permissions, uint64_t st_ino,
		struct stat *ret_st)
{
	node_set_ino(op->fs->nodes, node, st_ino);
	op_own_stat(op->fs, S_IFDIR | permissions, st_ino, 0, ret_st);
}

void op_own_statfs(struct statvfs *ret_st)
{
	memset(ret_st, 0, sizeof(*ret_st));
	ret_st->f_bsize = 4096;
	ret_st->f_frsize = 4096;
	ret_st->f_namemax = 255;
}
