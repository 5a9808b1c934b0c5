#include "client/workspace/doubt.h"

#include <errno.h>
#include <string.h>

#include <glib.h>

#include "client/call.h"
#include "client/workspace/blob.h"
#include "client/workspace/fetch.h"
#include "client/workspace/names.h"
#include "client/workspace/spool.h"
#include "client/workspace/upload.h"
#include "client/workspace/version.h"

/* Asked for at a time. */
#define LOOK_BYTES ((uint64_t)1 << 20)
/* Appended bytes are looked for so far behind the end that the file had. */
#define SEARCH_BYTES ((uint64_t)4 << 20)
/* So many of them, from the first on, and as many up to the last. */
#define NEEDLE_BYTES ((uint64_t)64 << 10)
#define SLACK_NS     (100 * INT64_C(1000000))
/* The same where its times come in whole seconds. */
#define SLACK_SECONDS_NS (2 * INT64_C(1000000000))

/*
 * [offset, offset + len) of the file as it is now, less at its end, at least one byte asked for.
 * *ret_attr is what it was then; *ret_blob is the caller's. A file that is gone is -ENOENT.
 */
static int doubt_fetch(const struct sbx_doubted *doubted, const struct sbx_call *call,
		       uint64_t offset, uint64_t len, struct sbx_attr *ret_attr,
		       struct sbx_blob **ret_blob)
{
	struct sbx_fetch_item item = {
		.path = doubted->path,
		.offset = offset,
		.len_bytes = MAX(len, 1),
	};
	int64_t clock_ns;
	int r;

	r = sbx_fetch(doubted->session, doubted->names, call, &item, 1, item.len_bytes, false,
		      &clock_ns);
	if (r == 0)
		r = item.error;
	if (r == 0 && (!item.has_attr || !item.blob))
		r = -EIO;
	if (r == 0) {
		*ret_attr = item.attr;
		if (ret_blob)
			*ret_blob = g_steal_pointer(&item.blob);
	}
	sbx_fetch_clear(&item, 1);
	return r;
}

/* No file, or one that the sandbox would not have taken the bytes into. */
static bool is_no_file(int error)
{
	return error == -ENOENT || error == -ENOTDIR || error == -EISDIR || error == -ELOOP ||
	       error == -ENXIO || error == -EINVAL;
}

/* Does the file, described by *attr, hold the bytes of @upload's [at, end) at @offset? */
static int doubt_compare(const struct sbx_doubted *doubted, const struct sbx_call *call,
			 const struct sbx_attr *attr, const struct sbx_upload *upload, uint64_t at,
			 uint64_t end, uint64_t offset, bool *ret_same)
{
	uint64_t most = sbx_fetch_limit(doubted->names, LOOK_BYTES, 1);
	struct sbx_version version;
	bool same = true;
	int r = 0;

	sbx_version_of(attr, &version);
	while (r == 0 && same && at < end) {
		uint64_t len = MIN(end - at, most);
		g_autofree char *ours = g_malloc(len);
		struct sbx_blob *theirs = NULL;
		struct sbx_version seen;
		struct sbx_attr now;
		ssize_t n = sbx_upload_read(upload, ours, len, at);

		if (n < 0)
			return (int)n;
		r = doubt_fetch(doubted, call, offset, len, &now, &theirs);
		if (r == 0) {
			sbx_version_of(&now, &seen);
			same = sbx_version_equal(&seen, &version) && theirs->len_bytes == len &&
			       memcmp(theirs->data, ours, len) == 0;
		}
		sbx_blob_unref(theirs);
		at += len;
		offset += len;
	}
	if (r == 0)
		*ret_same = same;
	return r;
}

bool sbx_doubt_is_old(const struct sbx_spool_view *view)
{
	int64_t age_ns = sbx_spool_now_ns() - view->meta.attempt_ns;

	return view->meta.attempt_id[0] &&
	       (age_ns < 0 || age_ns > SBX_OUTCOME_MS * INT64_C(1000000));
}

/* @needle in the file from @offset on. *ret_at is behind the file's end when it is not there. */
static int doubt_search(const struct sbx_doubted *doubted, const struct sbx_call *call,
			const void *needle, size_t len, uint64_t offset, struct sbx_attr *ret_attr,
			uint64_t *ret_at)
{
	uint64_t most = sbx_fetch_limit(doubted->names, LOOK_BYTES, 1);
	uint64_t end = offset + SEARCH_BYTES;
	uint64_t found = UINT64_MAX;
	int r = 0;

	while (r == 0 && found == UINT64_MAX && offset < end) {
		struct sbx_blob *blob = NULL;
		const uint8_t *at;

		r = doubt_fetch(doubted, call, offset, most, ret_attr, &blob);
		if (r < 0)
			break;
		at = memmem(blob->data, blob->len_bytes, needle, len);
		if (at)
			found = offset + (uint64_t)(at - blob->data);
		/* One that lies on the border of two pieces is whole in the second. */
		if (blob->len_bytes < most)
			end = 0;
		else
			offset += most - (len - 1);
		sbx_blob_unref(blob);
	}
	if (r == 0)
		*ret_at = found;
	return r;
}

int sbx_doubt_appended(const struct sbx_doubted *doubted, const struct sbx_call *call,
		       enum sbx_doubt *ret_doubt, struct sbx_attr *ret_attr)
{
	const struct sbx_layout *layout = &doubted->view->layout;
	uint64_t start = MIN(layout->append_start, layout->size_bytes);
	g_autofree char *needle = NULL;
	struct sbx_upload upload;
	struct sbx_attr attr;
	uint64_t len;
	uint64_t at;
	bool same = false;
	ssize_t n;
	int r;

	sbx_upload_init(&upload, doubted->view);
	sbx_upload_add(&upload, start, layout->size_bytes);
	/* A piece of what one request brings holds it easily. */
	len = MIN(MIN(upload.len_bytes, NEEDLE_BYTES),
		  MAX(sbx_fetch_limit(doubted->names, LOOK_BYTES, 1) / 4, 1));
	needle = g_malloc(MAX(len, 1));
	n = sbx_upload_read(&upload, needle, len, 0);
	r = n < 0 ? (int)n : 0;
	if (r == 0)
		r = doubt_search(doubted, call, needle, len, doubted->view->meta.attempt_size_bytes,
				 &attr, &at);
	if (r == 0 && at != UINT64_MAX)
		r = doubt_compare(doubted, call, &attr, &upload, MAX(len, upload.len_bytes - len),
				  upload.len_bytes, at + MAX(len, upload.len_bytes - len), &same);
	sbx_upload_done(&upload);
	if (is_no_file(r))
		r = 0; /* it went after that, if it was there */
	if (r < 0)
		return r;
	*ret_doubt = same ? SBX_DOUBT_DONE : SBX_DOUBT_SEND;
	if (same)
		*ret_attr = attr;
	return 0;
}

/* Are the bytes of the view, but for the base's, where they are to be? */
static int doubt_has_all(const struct sbx_doubted *doubted, const struct sbx_call *call,
			 const struct sbx_attr *attr, bool *ret_all)
{
	const struct sbx_layout *layout = &doubted->view->layout;
	struct sbx_extent extent;
	uint64_t offset = 0;
	bool all = attr->size == layout->size_bytes;
	int r = 0;

	while (r == 0 && all &&
	       sbx_layout_extent(layout, offset, layout->size_bytes - offset, &extent)) {
		struct sbx_upload upload;

		if (extent.kind != SBX_EXTENT_BASE) {
			sbx_upload_init(&upload, doubted->view);
			sbx_upload_add(&upload, offset, offset + extent.len_bytes);
			r = doubt_compare(doubted, call, attr, &upload, 0, extent.len_bytes, offset,
					  &all);
			sbx_upload_done(&upload);
		}
		offset += extent.len_bytes;
	}
	if (r == 0)
		*ret_all = all;
	return r;
}

static bool view_only_appends(const struct sbx_spool_view *view)
{
	const struct sbx_layout *layout = &view->layout;

	if (view->meta.kind == SBX_SPOOL_WHOLE && !(view->meta.flags & SBX_SPOOL_ADDS))
		return false;
	if (sbx_layout_is_base(layout))
		return true;
	return layout->base_cut_bytes == layout->base_size_bytes &&
	       layout->append_start == layout->base_size_bytes &&
	       g_array_index(layout->extents, struct sbx_extent, 0).offset >= layout->append_start;
}

/* May the file have been changed after the changes of the view were begun? */
static bool changed_since(const struct sbx_doubted *doubted, const struct sbx_attr *attr)
{
	/* As far as the two clocks are known to each other. */
	int64_t slack_ns = attr->has_ns ? SLACK_NS : SLACK_SECONDS_NS;

	return attr->ctime_ns + slack_ns >=
	       doubted->view->meta.begun_ns + sbx_names_clock_least_ns(doubted->names);
}

int sbx_doubt_left(const struct sbx_doubted *doubted, const struct sbx_call *call,
		   enum sbx_doubt *ret_doubt, struct sbx_attr *ret_attr)
{
	const struct sbx_spool_meta *meta = &doubted->view->meta;
	const struct sbx_version *base = &meta->base;
	struct sbx_version seen;
	struct sbx_attr attr;
	bool all = false;
	int r;

	*ret_doubt = SBX_DOUBT_SEND;
	if (view_only_appends(doubted->view))
		return 0;
	r = doubt_fetch(doubted, call, 0, 1, &attr, NULL);
	if (r == -EOPNOTSUPP || is_no_file(r))
		return 0;
	if (r < 0)
		return r;
	sbx_version_of(&attr, &seen);
	/* The version that they began with, maybe under another name or mode; or an older one. */
	if ((attr.dev == base->dev && attr.ino == base->ino && attr.size == base->size_bytes &&
	     attr.mtime_ns == base->mtime_ns) ||
	    !changed_since(doubted, &attr) || sbx_version_equal(&seen, &doubted->older))
		return 0;
	r = doubt_has_all(doubted, call, &attr, &all);
	if (r < 0)
		return r;
	*ret_doubt = all ? SBX_DOUBT_DONE : SBX_DOUBT_NEWER;
	*ret_attr = attr;
	return 0;
}
