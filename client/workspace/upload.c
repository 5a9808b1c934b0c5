#include "client/workspace/upload.h"

#include <errno.h>
#include <string.h>

#include "client/workspace/content.h"
#include "client/workspace/spool.h"

struct upload_run {
	uint64_t at; /* in the upload */
	struct sbx_extent extent;
};

void sbx_upload_init(struct sbx_upload *upload, const struct sbx_spool_view *view)
{
	*upload = (struct sbx_upload){
		.view = view,
		.runs = g_array_new(FALSE, FALSE, sizeof(struct upload_run)),
	};
}

void sbx_upload_done(struct sbx_upload *upload)
{
	g_array_unref(upload->runs);
	upload->runs = NULL;
}

void sbx_upload_add(struct sbx_upload *upload, uint64_t offset, uint64_t end)
{
	struct upload_run run;

	while (offset < end &&
	       sbx_layout_extent(&upload->view->layout, offset, end - offset, &run.extent)) {
		run.at = upload->len_bytes;
		g_array_append_val(upload->runs, run);
		upload->len_bytes += run.extent.len_bytes;
		offset += run.extent.len_bytes;
	}
}

static const struct upload_run *run_find(const struct sbx_upload *upload, uint64_t at)
{
	guint low = 0;
	guint high = upload->runs->len;

	while (high - low > 1) {
		guint mid = low + (high - low) / 2;

		if (g_array_index(upload->runs, struct upload_run, mid).at <= at)
			low = mid;
		else
			high = mid;
	}
	return &g_array_index(upload->runs, struct upload_run, low);
}

static ssize_t run_read(const struct sbx_upload *upload, const struct sbx_extent *extent,
			uint64_t skip, void *buf, size_t len)
{
	struct sbx_reader reader = { 0 };
	ssize_t n;

	switch (extent->kind) {
	case SBX_EXTENT_ZEROS:
		memset(buf, 0, len);
		return (ssize_t)len;
	case SBX_EXTENT_LOG:
		n = sbx_spool_view_read(upload->view, buf, len, extent->log_pos + skip);
		return n < 0 ? n : (ssize_t)len;
	case SBX_EXTENT_BASE:
		break;
	}
	if (!upload->base)
		return -EIO;
	n = sbx_content_read(upload->base, upload->call, &reader, buf, len, extent->offset + skip);
	return n == 0 ? -ESTALE : n;
}

ssize_t sbx_upload_read(const struct sbx_upload *upload, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	len = (size_t)MIN(len, upload->len_bytes - MIN(offset, upload->len_bytes));
	while (done < len) {
		const struct upload_run *run = run_find(upload, offset + done);
		uint64_t skip = offset + done - run->at;
		size_t part = (size_t)MIN(len - done, run->extent.len_bytes - skip);
		ssize_t n = run_read(upload, &run->extent, skip, (char *)buf + done, part);

		if (n < 0)
			return n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

void *sbx_upload_take(const struct sbx_upload *upload, int *ret_error)
{
	g_autofree void *data = g_try_malloc(MAX(upload->len_bytes, 1));
	ssize_t n;

	if (!data) {
		*ret_error = -ENOMEM;
		return NULL;
	}
	n = sbx_upload_read(upload, data, (size_t)upload->len_bytes, 0);
	if (n < 0) {
		*ret_error = (int)n;
		return NULL;
	}
	return g_steal_pointer(&data);
}
