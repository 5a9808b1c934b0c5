/*
 * negotiate - the first exchange with the kernel, INIT, before the loop.
 *
 * libfuse before 3.17 forgets to tell the kernel FUSE_CAP_PARALLEL_DIROPS (its pull request 861).
 * Without it the kernel looks names up one at a time in a directory, and a lookup that waits for a
 * server stops every other in that directory, also of files that ask no server. Nor does it tell it
 * FUSE_CAP_HANDLE_KILLPRIV: without that the kernel stats a file before each chown, which looks
 * like a program's fstat before close and would publish. It promises nothing here, for no setuid or
 * setgid bit is ever shown. So INIT is served alone, its answer is caught on its way, and the flags
 * are put in.
 */
#ifndef SBX_FUSEFS_NEGOTIATE_H
#define SBX_FUSEFS_NEGOTIATE_H

struct fuse_session;

/*
 * Serve the INIT of @se, which is mounted and has no thread yet. Blocks until the kernel sends it,
 * which it does at once. 0, or a negative errno: -ENODEV, unmounted meanwhile; -EPROTO, libfuse
 * and the kernel don't agree.
 */
int negotiate(struct fuse_session *se);

#endif
