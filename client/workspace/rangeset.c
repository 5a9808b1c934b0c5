#include "client/workspace/rangeset.h"

void sbx_rangeset_init(struct sbx_rangeset *set)
{
	set->ranges = g_array_new(FALSE, FALSE, sizeof(struct sbx_range));
}

void sbx_rangeset_done(struct sbx_rangeset *set)
{
	if (set->ranges)
		g_array_unref(set->ranges);
	set->ranges = NULL;
}

void sbx_rangeset_clear(struct sbx_rangeset *set)
{
	g_array_set_size(set->ranges, 0);
}

static struct sbx_range *range_at(const struct sbx_rangeset *set, unsigned int i)
{
	return &g_array_index(set->ranges, struct sbx_range, i);
}

/* Index of the first range that ends at @offset or behind it. */
static unsigned int range_find(const struct sbx_rangeset *set, uint64_t offset)
{
	unsigned int low = 0;
	unsigned int high = set->ranges->len;

	while (low < high) {
		unsigned int mid = low + (high - low) / 2;

		if (range_at(set, mid)->end < offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void sbx_rangeset_add(struct sbx_rangeset *set, uint64_t start, uint64_t end)
{
	unsigned int first;
	unsigned int last;
	struct sbx_range merged = { start, end };

	if (start >= end)
		return;
	first = range_find(set, start);
	for (last = first; last < set->ranges->len; last++) {
		const struct sbx_range *range = range_at(set, last);

		if (range->start > end)
			break;
		merged.start = MIN(merged.start, range->start);
		merged.end = MAX(merged.end, range->end);
	}
	if (last == first) {
		g_array_insert_val(set->ranges, first, merged);
		return;
	}
	*range_at(set, first) = merged;
	if (last - first > 1)
		g_array_remove_range(set->ranges, first + 1, last - first - 1);
}

void sbx_rangeset_remove(struct sbx_rangeset *set, uint64_t start, uint64_t end)
{
	unsigned int i;

	if (start >= end)
		return;
	i = range_find(set, start);
	while (i < set->ranges->len) {
		struct sbx_range *range = range_at(set, i);
		struct sbx_range rest = { end, range->end };

		if (range->start >= end)
			break;
		if (range->start < start && range->end > end) {
			range->end = start;
			g_array_insert_val(set->ranges, i + 1, rest);
			break;
		}
		if (range->start < start) {
			range->end = MIN(range->end, start);
			i++;
		} else if (range->end > end) {
			range->start = end;
			break;
		} else {
			g_array_remove_index(set->ranges, i);
		}
	}
}

uint64_t sbx_rangeset_run(const struct sbx_rangeset *set, uint64_t start)
{
	unsigned int i = range_find(set, start + 1);

	if (i >= set->ranges->len || range_at(set, i)->start > start)
		return 0;
	return range_at(set, i)->end - start;
}

bool sbx_rangeset_has(const struct sbx_rangeset *set, uint64_t start, uint64_t end)
{
	return start >= end || sbx_rangeset_run(set, start) >= end - start;
}

bool sbx_rangeset_gap(const struct sbx_rangeset *set, uint64_t start, uint64_t end,
		      struct sbx_range *ret_gap)
{
	unsigned int i;

	start += sbx_rangeset_run(set, start);
	if (start >= end)
		return false;
	i = range_find(set, start + 1);
	ret_gap->start = start;
	ret_gap->end = end;
	if (i < set->ranges->len && range_at(set, i)->start < end)
		ret_gap->end = range_at(set, i)->start;
	return true;
}

uint64_t sbx_rangeset_bytes(const struct sbx_rangeset *set)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < set->ranges->len; i++)
		bytes += range_at(set, i)->end - range_at(set, i)->start;
	return bytes;
}
