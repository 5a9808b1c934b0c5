/*
 * statedir - what sbxfs keeps on this machine between two mounts.
 *
 *   STATE/ENDPOINT/                     0700, one an endpoint (sbx_endpoint_dirname())
 *     sessions/NAME/session.json        what is known of a session: id, root, create body, …
 *     sessions/NAME/state.json          its SandboxSessionState (wire.md D)
 *     sessions/NAME/lock                flock: its holder sends left-over spools and polls jobs
 *     sessions/NAME/spool/              unsent bytes, one file each that ends in .spool
 *                                       (client/workspace/spool.h); marks of clients (mark.h)
 *     sessions/.gone-X/                 a session that is being forgotten
 *     snapshots/NAME/                   archives and receipts; outlive the session
 *   CACHE/ENDPOINT/                     0700: content and job logs, may be deleted at any time
 *
 * Files are 0600 and replaced by write-temp, fsync, rename, fsync of the directory. Directories
 * that exist must be ours and not writable by others. All paths are reached by directory file
 * descriptors that are opened once, so a later change of the path above does not lead elsewhere.
 *
 * No function here sends a request; all may block on the local disk. Thread safe.
 */
#ifndef SBX_CLIENT_STATEDIR_H
#define SBX_CLIENT_STATEDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_statedir;

/*
 * Open (make) the directories. @state_dir, @cache_dir: absolute paths or NULL for the defaults of
 * design: $XDG_STATE_HOME/sbxfs, ~/.local/state/sbxfs, /var/lib/sbxfs and the same of the cache.
 * @endpoint_dirname: one path component. -EPERM: a directory is not ours or writable by others.
 * *ret_message (g_free) gets one line on failure.
 */
int sbx_statedir_open(const char *state_dir, const char *cache_dir, const char *endpoint_dirname,
		      struct sbx_statedir **ret_dir, char **ret_message);
void sbx_statedir_close(struct sbx_statedir *dir);

/* Absolute paths, owned by @dir. */
const char *sbx_statedir_path(const struct sbx_statedir *dir);
const char *sbx_statedir_cache_path(const struct sbx_statedir *dir);

/* File descriptors of the directories above, owned by @dir. */
int sbx_statedir_fd(const struct sbx_statedir *dir);
int sbx_statedir_cache_fd(const struct sbx_statedir *dir);

/* @bytes more of job logs are kept below the cache directory (fewer, where negative), by whatever
 * session. How much that is now, through this @dir. */
uint64_t sbx_statedir_logs_grew(struct sbx_statedir *dir, int64_t bytes);

/* Open (make, 0700) the directory @relative ("sessions/dev1/spool"); every component is checked
 * to be a real directory of ours. A new O_PATH-less directory descriptor or a negative errno. */
int sbx_statedir_opendir(const struct sbx_statedir *dir, const char *relative);
/* The same below the cache directory. */
int sbx_statedir_cache_opendir(const struct sbx_statedir *dir, const char *relative);

/* Replace @name in @dirfd by @data: temporary file 0600, fsync, rename, fsync of the directory. */
int sbx_statedir_replace(int dirfd, const char *name, const void *data, size_t len_bytes);

/* Read a regular file of ours, at most @max_bytes (else -EFBIG). *ret_data is NUL-terminated. */
int sbx_statedir_read(int dirfd, const char *name, size_t max_bytes, char **ret_data,
		      size_t *ret_len_bytes);

/* Delete @relative and all below it, never following a link. */
int sbx_statedir_remove_tree(const struct sbx_statedir *dir, const char *relative);

/*
 * Try to become the holder of the lock of the session whose directory is @dirfd. 0: *ret_fd holds
 * it until closed; -EWOULDBLOCK: another mount holds it; -ENOENT: the directory was removed.
 */
int sbx_statedir_lock(int dirfd, int *ret_fd);

#endif
