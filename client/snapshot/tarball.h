/*
 * tarball - reading an archive of a workspace as hostile input.
 *
 * An archive comes from a server or from whoever copied it into snapshots/. It is read whole, with
 * libarchive, before a byte of it is used: tar only (no other format, no filter), names relative,
 * without empty, "." or ".." components, no member below a member that is not a directory, hard
 * links only to a regular file before them, no devices; the number of members, the declared sizes
 * and the size on disk are bounded. Links are data: nothing here follows one, and nothing is
 * written but the hashes.
 *
 * Blocks on the local disk; no lock, no request.
 */
#ifndef SBX_CLIENT_SNAPSHOT_TARBALL_H
#define SBX_CLIENT_SNAPSHOT_TARBALL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SBX_SHA256_BYTES 32

struct sbx_call;

struct sbx_tar_member {
	char *path; /* as the archive says, trailing slash taken off */
	char *link; /* text of a symbolic link, or path of the hard link's first name; else NULL */
	mode_t type; /* S_IFREG, S_IFDIR, S_IFLNK */
	mode_t mode; /* 07777 */
	bool is_hardlink;
	unsigned int index; /* which of the archive's headers it is, from 0 */
	uint64_t size;
	int64_t mtime_ns;
	uint8_t sha256[SBX_SHA256_BYTES]; /* of a regular file's content */
};

struct sbx_tar_limits {
	size_t max_members;
	uint64_t max_bytes; /* of all files together, as declared */
	bool skip_special; /* FIFOs and devices are left out of the list, not refused */
};

/* 500,000 members, 64 GiB. What is declared may also not be more than the archive can hold (sparse
 * files a thousand times that, and a GiB). */
void sbx_tar_limits_init(struct sbx_tar_limits *limits);

struct sbx_tar_list {
	GPtrArray *members; /* struct sbx_tar_member *, in the archive's order */
	GHashTable *by_path; /* path to member; of equal paths the last */
	uint64_t bytes; /* of all files */
};

/*
 * Read the archive at @fd from its start to its end. 0; -EINVAL: it breaks one of the rules above
 * or is no whole tar, with one line in *ret_message (g_free); -E2BIG: over a bound; -EINTR; errnos
 * of read(2). @progress (may be NULL) is called now and then with the bytes read.
 */
int sbx_tar_read(int fd, const struct sbx_call *call, const struct sbx_tar_limits *limits,
		 void (*progress)(void *arg, uint64_t bytes), void *arg,
		 struct sbx_tar_list **ret_list, char **ret_message);
void sbx_tar_list_free(struct sbx_tar_list *list);

const struct sbx_tar_member *sbx_tar_find(const struct sbx_tar_list *list, const char *path);

#endif
