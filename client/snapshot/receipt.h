/*
 * receipt - what a snapshot holds, entry by entry: the file SNAPSHOT.json beside SNAPSHOT.tar.
 *
 * Content, size and SHA-256 come from the archive itself; modes, times, links and names from the
 * sandbox, looked at before and after the archive was made. An entry that differed between the two
 * looks is `unstable`: later it is compared by content only. An entry that the archive lacks but
 * the looks have is kept with what is known of it; a regular file among those is `missing`.
 *
 * Values and JSON text; no I/O, no lock.
 */
#ifndef SBX_CLIENT_SNAPSHOT_RECEIPT_H
#define SBX_CLIENT_SNAPSHOT_RECEIPT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/snapshot/tarball.h"

struct sbx_walk; /* client/workspace/walk.h */

struct sbx_receipt_entry {
	char *path;
	char *link; /* text of a symbolic link; else NULL */
	char *same_as; /* path of the first name of this file, when that is another; else NULL */
	char *member; /* name in the archive where it is another (100 bytes, cut); else NULL */
	mode_t mode; /* type and 07777 */
	int64_t mtime_ns;
	bool has_ns;
	uint64_t size;
	uint8_t sha256[SBX_SHA256_BYTES]; /* of a regular file */
	bool unstable;
	bool missing; /* a regular file whose content is not in the archive */
};

struct sbx_receipt {
	char *snapshot;
	char *session; /* id */
	char *created; /* ISO 8601 UTC */
	char *how; /* "route", "exec", "import" */
	bool verified; /* hydrate has compared it once, or nothing is missing after persist */
	uint64_t archive_bytes;
	uint8_t archive_sha256[SBX_SHA256_BYTES];
	int64_t clock_ns; /* the sandbox's, when the looking began */
	GPtrArray *entries; /* struct sbx_receipt_entry *, sorted by path */
};

/* 64 hexadecimal digits at @text, whatever follows; false: there are others among them. */
bool sbx_sha256_parse(const char *text, uint8_t bytes[SBX_SHA256_BYTES]);

struct sbx_receipt *sbx_receipt_new(void);
void sbx_receipt_free(struct sbx_receipt *receipt);

/* Entries from what the archive holds and the two looks; @before NULL: from the archive alone. */
void sbx_receipt_fill(struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
		      const struct sbx_walk *before, const struct sbx_walk *after);

unsigned int sbx_receipt_unstable(const struct sbx_receipt *receipt);
unsigned int sbx_receipt_missing(const struct sbx_receipt *receipt);
const struct sbx_receipt_entry *sbx_receipt_find(const struct sbx_receipt *receipt,
						 const char *path);

/* JSON text, free(3); NULL: no memory. */
char *sbx_receipt_print(const struct sbx_receipt *receipt);
/* -EBADMSG: not a receipt. */
int sbx_receipt_parse(const char *text, size_t len, struct sbx_receipt **ret_receipt);

#endif
