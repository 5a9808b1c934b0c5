#include "client/workspace/layout.h"

void sbx_layout_init(struct sbx_layout *layout, uint64_t base_size_bytes)
{
	layout->extents = g_array_new(FALSE, FALSE, sizeof(struct sbx_extent));
	layout->size_bytes = base_size_bytes;
	layout->base_size_bytes = base_size_bytes;
	layout->base_cut_bytes = base_size_bytes;
	layout->append_start = SBX_NO_APPEND;
	layout->log_bytes = 0;
}

void sbx_layout_done(struct sbx_layout *layout)
{
	if (layout->extents)
		g_array_unref(layout->extents);
	layout->extents = NULL;
}

void sbx_layout_copy(const struct sbx_layout *layout, struct sbx_layout *ret_copy)
{
	*ret_copy = *layout;
	ret_copy->extents = g_array_copy(layout->extents);
}

static struct sbx_extent *extent_at(const struct sbx_layout *layout, unsigned int i)
{
	return &g_array_index(layout->extents, struct sbx_extent, i);
}

static uint64_t extent_end(const struct sbx_extent *extent)
{
	return extent->offset + extent->len_bytes;
}

/* Index of the first extent that ends behind @offset. */
static unsigned int extent_find(const struct sbx_layout *layout, uint64_t offset)
{
	unsigned int low = 0;
	unsigned int high = layout->extents->len;

	while (low < high) {
		unsigned int mid = low + (high - low) / 2;

		if (extent_end(extent_at(layout, mid)) <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Take [start, end) out of the extents; returns the index at which one for it belongs. */
static unsigned int extents_clear(struct sbx_layout *layout, uint64_t start, uint64_t end)
{
	unsigned int first = extent_find(layout, start);
	unsigned int last;

	if (first < layout->extents->len) {
		struct sbx_extent *extent = extent_at(layout, first);

		if (extent->offset < start && extent_end(extent) > end) {
			struct sbx_extent tail = *extent;

			tail.offset = end;
			tail.len_bytes = extent_end(extent) - end;
			tail.log_pos += end - extent->offset;
			layout->log_bytes -= end - start;
			extent->len_bytes = start - extent->offset;
			g_array_insert_val(layout->extents, first + 1, tail);
			return first + 1;
		}
		if (extent->offset < start) {
			layout->log_bytes -= extent_end(extent) - start;
			extent->len_bytes = start - extent->offset;
			first++;
		}
	}
	for (last = first; last < layout->extents->len; last++) {
		struct sbx_extent *extent = extent_at(layout, last);

		if (extent->offset >= end)
			break;
		if (extent_end(extent) > end) {
			uint64_t cut = end - extent->offset;

			extent->offset += cut;
			extent->log_pos += cut;
			extent->len_bytes -= cut;
			layout->log_bytes -= cut;
			break;
		}
		layout->log_bytes -= extent->len_bytes;
	}
	if (last > first)
		g_array_remove_range(layout->extents, first, last - first);
	return first;
}

void sbx_layout_write(struct sbx_layout *layout, uint64_t offset, uint64_t len_bytes,
		      uint64_t log_pos)
{
	struct sbx_extent extent = { SBX_EXTENT_LOG, offset, len_bytes, log_pos };
	unsigned int i;

	if (len_bytes == 0)
		return;
	if (offset < layout->append_start && layout->append_start - offset < len_bytes) {
		/* No extent lies on both sides of where the appended bytes begin. */
		uint64_t head = layout->append_start - offset;

		sbx_layout_write(layout, offset, head, log_pos);
		sbx_layout_write(layout, offset + head, len_bytes - head, log_pos + head);
		return;
	}
	i = extents_clear(layout, offset, offset + len_bytes);
	g_array_insert_val(layout->extents, i, extent);
	layout->log_bytes += len_bytes;
	layout->size_bytes = MAX(layout->size_bytes, offset + len_bytes);
}

uint64_t sbx_layout_append(struct sbx_layout *layout, uint64_t len_bytes, uint64_t log_pos)
{
	uint64_t offset = layout->size_bytes;

	if (len_bytes > 0) {
		if (layout->append_start == SBX_NO_APPEND)
			layout->append_start = offset;
		sbx_layout_write(layout, offset, len_bytes, log_pos);
	}
	return offset;
}

void sbx_layout_truncate(struct sbx_layout *layout, uint64_t size_bytes)
{
	if (size_bytes < layout->size_bytes) {
		extents_clear(layout, size_bytes, layout->size_bytes);
		layout->base_cut_bytes = MIN(layout->base_cut_bytes, size_bytes);
		if (layout->append_start != SBX_NO_APPEND && size_bytes <= layout->append_start)
			layout->append_start = SBX_NO_APPEND;
	}
	layout->size_bytes = size_bytes;
}

bool sbx_layout_extent(const struct sbx_layout *layout, uint64_t offset, uint64_t max_bytes,
		       struct sbx_extent *ret_extent)
{
	struct sbx_extent found = { .offset = offset };
	uint64_t end = layout->size_bytes;
	unsigned int i;

	if (offset >= layout->size_bytes || max_bytes == 0)
		return false;
	i = extent_find(layout, offset);
	if (i < layout->extents->len) {
		const struct sbx_extent *extent = extent_at(layout, i);

		if (extent->offset <= offset) {
			found.kind = SBX_EXTENT_LOG;
			found.log_pos = extent->log_pos + (offset - extent->offset);
			found.len_bytes = MIN(extent_end(extent) - offset, max_bytes);
			*ret_extent = found;
			return true;
		}
		end = MIN(end, extent->offset);
	}
	if (offset < layout->base_cut_bytes) {
		found.kind = SBX_EXTENT_BASE;
		end = MIN(end, layout->base_cut_bytes);
	} else {
		found.kind = SBX_EXTENT_ZEROS;
	}
	found.len_bytes = MIN(end - offset, max_bytes);
	*ret_extent = found;
	return true;
}

bool sbx_layout_is_base(const struct sbx_layout *layout)
{
	return layout->log_bytes == 0 && layout->base_cut_bytes == layout->base_size_bytes &&
	       layout->size_bytes == layout->base_size_bytes;
}

bool sbx_layout_needs_base(const struct sbx_layout *layout)
{
	uint64_t offset = 0;
	struct sbx_extent found;

	while (offset < layout->base_cut_bytes &&
	       sbx_layout_extent(layout, offset, layout->base_cut_bytes - offset, &found)) {
		if (found.kind == SBX_EXTENT_BASE)
			return true;
		offset += found.len_bytes;
	}
	return false;
}
