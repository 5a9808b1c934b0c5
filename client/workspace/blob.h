/*
 * blob - bytes that do not change, shared by reference.
 *
 * Counted with atomics of this tree's own (g_bytes does the same where ThreadSanitizer can't see
 * it). Never blocks.
 */
#ifndef SBX_CLIENT_WORKSPACE_BLOB_H
#define SBX_CLIENT_WORKSPACE_BLOB_H

#include <stddef.h>
#include <stdint.h>

struct sbx_blob {
	int refs; /* atomic */
	size_t len_bytes;
	uint8_t data[];
};

/* A new one with one reference; filled by its maker before anybody else sees it. NULL: no
 * memory. */
struct sbx_blob *sbx_blob_new(size_t len_bytes);
/* The same, with a copy of @data. */
struct sbx_blob *sbx_blob_copy(const void *data, size_t len_bytes);
struct sbx_blob *sbx_blob_ref(struct sbx_blob *blob);
void sbx_blob_unref(struct sbx_blob *blob); /* NULL is allowed */

#endif
