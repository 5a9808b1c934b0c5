#include "client/workspace/blob.h"

#include <stdlib.h>
#include <string.h>

struct sbx_blob *sbx_blob_new(size_t len_bytes)
{
	struct sbx_blob *blob = NULL;

	if (len_bytes < SIZE_MAX - sizeof(*blob))
		blob = malloc(sizeof(*blob) + len_bytes);
	if (!blob)
		return NULL;
	blob->refs = 1;
	blob->len_bytes = len_bytes;
	return blob;
}

struct sbx_blob *sbx_blob_copy(const void *data, size_t len_bytes)
{
	struct sbx_blob *blob = sbx_blob_new(len_bytes);

	if (blob && len_bytes > 0)
		memcpy(blob->data, data, len_bytes);
	return blob;
}

struct sbx_blob *sbx_blob_ref(struct sbx_blob *blob)
{
	__atomic_add_fetch(&blob->refs, 1, __ATOMIC_RELAXED);
	return blob;
}

void sbx_blob_unref(struct sbx_blob *blob)
{
	if (blob && __atomic_sub_fetch(&blob->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(blob);
}
