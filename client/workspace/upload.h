/*
 * upload - bytes of a spool on their way: as a source of a PUT, or in memory for an argument.
 *
 * A list of runs that follow each other: of the spool's log, of the base content, zeros. Built from
 * a view; read without any lock.
 */
#ifndef SBX_CLIENT_WORKSPACE_UPLOAD_H
#define SBX_CLIENT_WORKSPACE_UPLOAD_H

#include <glib.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/workspace/layout.h"

struct sbx_call;
struct sbx_content;
struct sbx_spool_view;

struct sbx_upload {
	const struct sbx_spool_view *view; /* borrowed */
	struct sbx_content *base; /* borrowed; needed where a run is the base's */
	const struct sbx_call *call; /* for reads of the base */
	GArray *runs; /* struct upload_run */
	uint64_t len_bytes;
};

void sbx_upload_init(struct sbx_upload *upload, const struct sbx_spool_view *view);
void sbx_upload_done(struct sbx_upload *upload);

/* Add the bytes [offset, end) of the file; they come at the upload's end. */
void sbx_upload_add(struct sbx_upload *upload, uint64_t offset, uint64_t end);

/* 1..len bytes at @offset of the upload, 0 at its end, or a negative errno. */
ssize_t sbx_upload_read(const struct sbx_upload *upload, void *buf, size_t len, uint64_t offset);

/* All of it (it has to be small). NULL with *ret_error. g_free(). */
void *sbx_upload_take(const struct sbx_upload *upload, int *ret_error);

#endif
