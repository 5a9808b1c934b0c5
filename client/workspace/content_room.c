/*
 * What of the contents is on the local disk, and how much. The cache can't remove what is open, so
 * contents that are being fetched keep within a bound of their own: of one that would exceed it
 * goes what is not just before one of its last readers, from the beginning on; it is fetched again
 * if it is asked for again. Where the disk has no room even for little, a content goes to memory.
 *
 * What a reader is about to copy out, and what a stream is about to write, stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/localfile.h"
#include "client/workspace/content_impl.h"

/* At least, whatever the cache's bound is. */
#define ROOM_LEAST  ((uint64_t)4 << 20)
#define ROOM_MEMORY ((uint64_t)16 << 20)
/* Of the cache's bound, in fourths; the rest is for contents that nobody reads. */
#define ROOM_PART 3
/* So much at once, and of the cache where the disk is full. */
#define SHED_BYTES ((uint64_t)1 << 20)
/* Reads of one sequence come in any order within this. */
#define BEHIND_SLACK ((uint64_t)1 << 20)
/* A stream writes less at a time. */
#define PIECE_MAX ((uint64_t)1 << 20)

static uint64_t contents_room(const struct sbx_contents *contents)
{
	return MAX(contents->cache_size_bytes / 4 * ROOM_PART, ROOM_LEAST);
}

static uint64_t room_bytes(const struct sbx_content *content)
{
	uint64_t room = content->in_memory ? ROOM_MEMORY : contents_room(content->owner);

	return content->room_bytes > 0 ? MIN(room, content->room_bytes) : room;
}

bool content_fits(const struct sbx_contents *contents, uint64_t size_bytes)
{
	return size_bytes <= contents_room(contents);
}

uint64_t content_ahead_locked(const struct sbx_content *content)
{
	return MIN(SBX_STREAM_AHEAD, room_bytes(content) / 2);
}

void content_held_locked(struct sbx_content *content, uint64_t held_bytes)
{
	if (content->in_memory)
		held_bytes = 0;
	__atomic_add_fetch(&content->owner->held_bytes, held_bytes - content->held_bytes,
			   __ATOMIC_RELAXED);
	content->held_bytes = held_bytes;
}

uint64_t content_window_locked(const struct sbx_content *content)
{
	return room_bytes(content) / 8;
}

void content_recent_locked(struct sbx_content *content, const void *reader, uint64_t offset,
			   uint64_t end)
{
	struct content_recent *recent = content->recent;
	size_t i = 0;

	while (i < CONTENT_RECENT - 1 && recent[i].reader && recent[i].reader != reader)
		i++;
	memmove(&recent[1], &recent[0], i * sizeof(recent[0]));
	recent[0] = (struct content_recent){ reader, offset, end };
}

/* Going -------------------------------------------------------------------------------------- */

/* What of `present` may go. */
static void free_ranges_locked(const struct sbx_content *content, struct sbx_rangeset *ret_free)
{
	const struct content_stream *stream = &content->stream;

	for (guint i = 0; i < content->present.ranges->len; i++) {
		const struct sbx_range *range =
			&g_array_index(content->present.ranges, struct sbx_range, i);

		sbx_rangeset_add(ret_free, range->start, range->end);
	}
	for (const struct content_reading *reading = content->readings; reading;
	     reading = reading->next)
		sbx_rangeset_remove(ret_free, reading->start, reading->end);
	if (stream->running)
		sbx_rangeset_remove(ret_free, stream->pos, stream->pos + PIECE_MAX);
}

static uint64_t shed_range_locked(struct sbx_content *content, uint64_t start, uint64_t end)
{
	sbx_rangeset_remove(&content->present, start, end);
	(void)fallocate(content->part.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)(SBX_CACHE_DATA + start), (off_t)(end - start));
	return end - start;
}

/* Of @may, from the beginning on. */
static uint64_t shed_ranges_locked(struct sbx_content *content, const struct sbx_rangeset *may,
				   uint64_t bytes)
{
	uint64_t shed = 0;

	for (guint i = 0; i < may->ranges->len && shed < bytes; i++) {
		const struct sbx_range *range = &g_array_index(may->ranges, struct sbx_range, i);

		shed += shed_range_locked(content, range->start,
					  MIN(range->end, range->start + (bytes - shed)));
	}
	return shed;
}

/* At least @bytes go, if there are as many that may: how many did. */
static uint64_t shed_locked(struct sbx_content *content, uint64_t bytes)
{
	uint64_t ahead = content_ahead_locked(content);
	struct sbx_rangeset may;
	uint64_t shed;

	if (content->complete)
		return 0;
	sbx_rangeset_init(&may);
	free_ranges_locked(content, &may);
	for (size_t i = 0; i < CONTENT_RECENT && content->recent[i].reader; i++) {
		uint64_t at = content->recent[i].offset;

		/* The last one may have a stream before him. */
		sbx_rangeset_remove(&may, at - MIN(at, BEHIND_SLACK),
				    at + (i == 0 ? ahead : content_window_locked(content)));
	}
	shed = shed_ranges_locked(content, &may, bytes);
	if (shed < bytes) {
		sbx_rangeset_clear(&may);
		free_ranges_locked(content, &may);
		shed += shed_ranges_locked(content, &may, bytes - shed);
	}
	sbx_rangeset_done(&may);
	if (shed > 0)
		content_held_locked(content, sbx_rangeset_bytes(&content->present));
	return shed;
}

void content_room_locked(struct sbx_content *content, uint64_t len_bytes)
{
	uint64_t own = sbx_rangeset_bytes(&content->present);
	uint64_t all, room = room_bytes(content);

	content_held_locked(content, own);
	all = __atomic_load_n(&content->owner->held_bytes, __ATOMIC_RELAXED);
	if (content->in_memory)
		all = own;
	if (all + len_bytes > room && own + len_bytes > ROOM_LEAST / 2)
		(void)shed_locked(content, MAX(all + len_bytes - room, SHED_BYTES));
}

/* Where it is -------------------------------------------------------------------------------- */

/* From now on in memory. What was fetched is forgotten; who copies out of the old file goes on. */
static int room_to_memory_locked(struct sbx_content *content)
{
	int fd = memfd_create("sbxfs-content", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	content_held_locked(content, 0);
	content->room_bytes = 0;
	content->left = content->part;
	content->part = (struct sbx_cache_part){ .fd = fd };
	content->n_parts++;
	content->in_memory = true;
	sbx_rangeset_clear(&content->present);
	content_stream_cancel_locked(content);
	return 0;
}

int content_part_locked(struct sbx_content *content)
{
	if (content->part.fd >= 0)
		return 0;
	if (sbx_cache_part_new(content->owner->cache, &content->part) == 0)
		return 0;
	content->part.fd = -1;
	return room_to_memory_locked(content);
}

int content_store(struct sbx_content *content, int fd, const void *data, size_t len,
		  uint64_t offset)
{
	int r = sbx_local_write(fd, data, len, SBX_CACHE_DATA + offset);

	if (r == 0)
		sbx_cache_grew(content->owner->cache, len);
	return r;
}

/* The disk is full, or broken: is it worth another try? */
static bool room_relieve_locked(struct sbx_content *content, int error)
{
	if (content->in_memory)
		return false;
	if (error == -ENOSPC || error == -EDQUOT) {
		if (sbx_cache_evict(content->owner->cache, SHED_BYTES))
			return true;
		/* So much there is; with less than that memory does better. */
		if (sbx_rangeset_bytes(&content->present) > ROOM_MEMORY &&
		    shed_locked(content, SHED_BYTES) > 0) {
			content->room_bytes = MAX(content->held_bytes, ROOM_MEMORY);
			return true;
		}
	}
	return room_to_memory_locked(content) == 0;
}

int content_store_locked(struct sbx_content *content, const void *data, size_t len, uint64_t offset)
{
	int r;

	content_room_locked(content, len);
	do
		r = content_store(content, content->part.fd, data, len, offset);
	while (r < 0 && room_relieve_locked(content, r));
	return r;
}
