/*
 * ops - libfuse's table of operations: the frame around the classes of nodes (op.h).
 *
 * Left out on purpose (kernel.md "ENOSYS"): getlk, setlk, flock, poll, bmap, lseek, xattrs.
 */
#ifndef SBX_FUSEFS_OPS_H
#define SBX_FUSEFS_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

/* For fuse_session_new(), with the struct fs as userdata. */
const struct fuse_lowlevel_ops *ops_table(void);

/* ops_dir.c */
void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi);
void ops_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ops_file.c */
void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct fuse_file_info *fi);
void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	       struct fuse_file_info *fi);
void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		   struct fuse_file_info *fi);
void ops_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
			 fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
			 int flags);
void ops_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	       struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_size,
	       size_t out_size);

#endif
