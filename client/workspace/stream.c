/*
 * A big content by one GET, served from while it arrives. An answer with all of the file is one
 * version, this one or a newer, as long as nothing else is read beside it. Any other is held back
 * until it is proven to be this version, and what is kept for later opens is proven in any case.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/call.h"
#include "client/session.h"
#include "client/workspace/content_impl.h"
#include "client/workspace/fetch.h"
#include "client/workspace/names.h"
#include "client/workspace/plain.h"
#include "client/workspace/workspace.h"

/* A stream that nobody reads from for so long is given up: it keeps a connection. */
#define STREAM_IDLE_MS 2000
/* And so long where another reader waits for its end. */
#define STREAM_BLOCKS_MS 200
/* A server that ignores a range may send as much before it as that. */
#define STREAM_IGNORED_MAX ((uint64_t)1 << 20)

void content_stream_cancel_locked(struct sbx_content *content)
{
	if (content->stream.running && content->stream.cancel)
		sbx_cancel_fire(content->stream.cancel);
	pthread_cond_signal(&content->room);
	content_signal_locked(content);
}

/*
 * The attributes at @path now. Not the store's, which shows bytes that are not sent yet and does
 * not know what was set aside.
 */
static int stream_stat(struct sbx_contents *contents, const struct sbx_call *call, const char *path,
		       struct sbx_attr *ret_attr)
{
	struct sbx_fetch_item item = { .path = path, .len_bytes = 1 };
	int64_t asked_ms = sbx_clock_ms();
	int64_t clock_ns;
	int r;

	r = sbx_fetch(contents->session, contents->names, call, &item, 1, 1, false, &clock_ns);
	if (r == -EOPNOTSUPP)
		return names_plain_stat(contents->names, call, path, ret_attr);
	if (r == 0 && !item.has_attr)
		r = item.error < 0 ? item.error : -EIO;
	if (r == 0) {
		*ret_attr = item.attr;
		sbx_names_saw(contents->names, path, &item.attr, asked_ms);
	}
	sbx_fetch_clear(&item, 1);
	return r;
}

/*
 * What does the file look like now? Whether that is this version; false with *ret_error set where
 * it could not be told.
 */
static bool stream_look(struct sbx_content *content, const struct sbx_call *call, int *ret_error)
{
	struct sbx_contents *contents = content->owner;
	bool same = false;
	bool moved;

	*ret_error = 0;
	do {
		g_autofree char *path = NULL;
		struct sbx_attr attr;
		int r;

		pthread_mutex_lock(&content->lock);
		path = g_strdup(content->path);
		pthread_mutex_unlock(&content->lock);
		r = stream_stat(contents, call, path, &attr);
		pthread_mutex_lock(&content->lock);
		/* A rename made here crossed the look. */
		moved = strcmp(path, content->path) != 0;
		if (r == 0)
			same = content_matches_locked(content, &attr);
		else if (r != -ENOENT && r != -ENOTDIR)
			*ret_error = r;
		pthread_mutex_unlock(&content->lock);
	} while (moved && !same && *ret_error == 0);
	return same;
}

int content_stream_prove_locked(struct sbx_content *content, const struct sbx_call *call)
{
	struct content_stream *stream = &content->stream;
	unsigned int begun = stream->begun;
	bool same;
	int error;

	stream->looking = true;
	pthread_mutex_unlock(&content->lock);
	same = stream_look(content, call, &error);
	pthread_mutex_lock(&content->lock);
	stream->looking = false;
	if (same && begun == stream->begun && stream->part == content->n_parts) {
		stream->proven = true;
		/* What one that is alone has brought was let be read, and may have gone since. */
		if (!stream->alone)
			sbx_rangeset_add(&content->present, stream->start, stream->pos);
		pthread_cond_signal(&content->room);
	} else if (!same && error == 0) {
		content->stale = true;
		content_stream_cancel_locked(content);
	}
	pthread_cond_broadcast(&content->changed);
	return error;
}

static int stream_begin(void *arg, int64_t offset, int64_t len_bytes)
{
	struct sbx_content *content = arg;
	struct sbx_contents *contents = content->owner;
	struct content_stream *stream = &content->stream;
	int r = 0;

	pthread_mutex_lock(&content->lock);
	if (stream->asked > 0)
		__atomic_store_n(&contents->ranges, offset > 0 ? RANGES_WORK : RANGES_IGNORED,
				 __ATOMIC_RELAXED);
	if (offset == 0 && (len_bytes < 0 || (uint64_t)len_bytes == content->size))
		stream->end = content->size;
	if (stream->asked > STREAM_IGNORED_MAX && offset == 0 &&
	    !__atomic_load_n(&contents->no_exec, __ATOMIC_RELAXED)) {
		/* All of it, where a part was wanted: windows bring that cheaper. */
		r = -ECANCELED;
	} else if (offset < 0 || (uint64_t)offset > stream->end ||
		   (len_bytes >= 0 && (uint64_t)len_bytes != stream->end - (uint64_t)offset)) {
		/* Of another length: it was replaced. */
		content->stale = true;
		r = -ESTALE;
	} else {
		/* Sent again after a stale connection it begins anew; so must the proof. */
		stream->start = stream->pos = (uint64_t)offset;
		stream->proven = false;
		stream->alone = offset == 0 && len_bytes >= 0 && stream->end == content->size &&
				sbx_rangeset_bytes(&content->present) == 0 &&
				sbx_rangeset_bytes(&content->wanted) == 0;
		stream->begun++;
		r = content_part_locked(content);
		stream->part = content->n_parts;
	}
	pthread_mutex_unlock(&content->lock);
	return r;
}

/* Where the furthest of those readers is whom the stream serves: none before it is proven. */
static uint64_t stream_reader_pos_locked(const struct sbx_content *content)
{
	const struct content_stream *stream = &content->stream;
	bool serves_all = __atomic_load_n(&content->owner->no_exec, __ATOMIC_RELAXED);
	uint64_t pos = stream->start;

	if (!stream->proven && !stream->alone)
		return pos;
	for (size_t i = 0; i < CONTENT_RECENT && content->recent[i].reader; i++) {
		const struct content_recent *recent = &content->recent[i];

		if (serves_all || recent->offset <= stream->pos + SBX_STREAM_REACH)
			pos = MAX(pos, recent->end);
	}
	return pos;
}

/* Let a reader catch up. Called and returns with the lock held. */
static int stream_throttle_locked(struct sbx_content *content)
{
	struct content_stream *stream = &content->stream;
	int64_t idle_ms = sbx_clock_ms();
	uint64_t ahead = content_ahead_locked(content);
	uint64_t reader_pos = stream_reader_pos_locked(content);
	uint64_t last_pos = reader_pos;

	if (stream->pos <= reader_pos + ahead)
		return 0;
	/* Not for each piece anew. */
	while (stream->pos > reader_pos + ahead - MIN(SBX_WINDOW_MAX, ahead / 2)) {
		int64_t give_up_ms;
		struct timespec until;

		if (sbx_cancel_fired(stream->cancel))
			return -EINTR;
		if (reader_pos != last_pos || stream->looking) {
			last_pos = reader_pos;
			idle_ms = sbx_clock_ms();
		}
		give_up_ms = idle_ms + (stream->blocks ? STREAM_BLOCKS_MS : STREAM_IDLE_MS);
		if (sbx_clock_ms() >= give_up_ms)
			return -ECANCELED;
		until.tv_sec = give_up_ms / 1000;
		until.tv_nsec = give_up_ms % 1000 * 1000000;
		stream->held = true;
		pthread_cond_timedwait(&content->room, &content->lock, &until);
		stream->held = false;
		reader_pos = stream_reader_pos_locked(content);
	}
	return 0;
}

/* Bytes that may be of another version go only where nothing is yet. */
static int stream_store_unproven_locked(struct sbx_content *content, const char *data,
					uint64_t start, uint64_t end)
{
	struct sbx_range gap;
	int r = 0;

	for (uint64_t at = start; r == 0 && sbx_rangeset_gap(&content->present, at, end, &gap);
	     at = gap.end)
		r = content_store_locked(content, data + (gap.start - start), gap.end - gap.start,
					 gap.start);
	return r;
}

static int stream_write(void *arg, const void *data, size_t len)
{
	struct sbx_content *content = arg;
	struct content_stream *stream = &content->stream;
	bool proven;
	int r = 0;

	pthread_mutex_lock(&content->lock);
	if (len > stream->end - stream->pos) {
		content->stale = true;
		pthread_mutex_unlock(&content->lock);
		return -ESTALE;
	}
	proven = stream->proven;
	if (proven)
		content_room_locked(content, len);
	else
		r = stream_store_unproven_locked(content, data, stream->pos, stream->pos + len);
	if (proven) {
		int fd = content->part.fd;

		pthread_mutex_unlock(&content->lock);
		r = content_store(content, fd, data, len, stream->pos);
		pthread_mutex_lock(&content->lock);
		/* No room after all. */
		if (r < 0)
			r = content_store_locked(content, data, len, stream->pos);
	}
	/* It is elsewhere now, without what this has brought: who misses that asks. */
	if (r == 0 && stream->part != content->n_parts)
		r = -ECANCELED;
	if (r < 0) {
		pthread_mutex_unlock(&content->lock);
		return r;
	}
	stream->pos += len;
	content->moved_ms = sbx_clock_ms();
	if (stream->proven || stream->alone) {
		sbx_rangeset_add(&content->present, stream->pos - len, stream->pos);
		if (stream->pos >= content->wake_pos) {
			content->wake_pos = UINT64_MAX;
			content_signal_locked(content);
		}
	} else if (stream->pos == stream->start + len) {
		/* The first bytes: whoever waits has the version looked at. */
		content_signal_locked(content);
	}
	r = stream_throttle_locked(content);
	pthread_mutex_unlock(&content->lock);
	return r;
}

/* All has come: may it be kept for later opens? @looked: it was proven after that. */
static void stream_keep(struct sbx_content *content, const struct sbx_call *call, bool looked)
{
	bool whole;
	int error;

	pthread_mutex_lock(&content->lock);
	whole = content->settled && !content->stale &&
		sbx_rangeset_has(&content->present, 0, content->size);
	pthread_mutex_unlock(&content->lock);
	if (!whole || !(looked || stream_look(content, call, &error)))
		return;
	pthread_mutex_lock(&content->lock);
	content->complete = true;
	content_held_locked(content, 0);
	sbx_cache_part_commit(content->owner->cache, &content->part, &content->version);
	pthread_mutex_unlock(&content->lock);
}

static void stream_run(struct sbx_content *content, uint64_t start, uint64_t end)
{
	struct sbx_contents *contents = content->owner;
	struct content_stream *stream = &content->stream;
	const struct sbx_sink sink = { stream_begin, stream_write, content };
	struct sbx_call call = {
		.cancel = sbx_cancel_ref(stream->cancel),
		.stall_timeout_ms = sbx_session_options(contents->session)->timeout_ms,
	};
	g_autofree char *path = NULL;
	bool looked = false;
	bool moved;
	int r;

	pthread_mutex_lock(&content->lock);
	path = g_strdup(content->path);
	pthread_mutex_unlock(&content->lock);
	r = sbx_session_get(contents->session, &call, path, (int64_t)start,
			    end < content->size ? (int64_t)(end - start) : -1, &sink);
	pthread_mutex_lock(&content->lock);
	while (stream->looking)
		pthread_cond_wait(&content->changed, &content->lock);
	if (r == 0 && stream->pos != stream->end)
		r = -EIO;
	if (r == 0 && !stream->proven) {
		r = content_stream_prove_locked(content, &call);
		looked = stream->proven;
	}
	moved = strcmp(path, content->path) != 0;
	if (r == -EILSEQ || r == -EFBIG) {
		/* This route can't carry it; windows can. */
		content->no_get = true;
		r = 0;
	} else if (r == -ENOENT || r == -ENOTDIR || r == -EISDIR) {
		content->stale = content->stale || !moved;
		r = moved ? 0 : -ESTALE;
	} else if (r == -ECANCELED || r == -EINTR) {
		/* Given up for want of readers: whoever comes asks anew. */
		r = 0;
	}
	stream->error = r;
	stream->running = false;
	pthread_cond_broadcast(&content->changed);
	pthread_mutex_unlock(&content->lock);
	if (r == 0)
		stream_keep(content, &call, looked);
	sbx_cancel_unref(call.cancel);
}

int content_stream_start_locked(struct sbx_content *content, uint64_t start, uint64_t end)
{
	struct content_stream *stream = &content->stream;
	struct sbx_cancel *old = stream->cancel;
	int r;

	stream->cancel = sbx_cancel_new(NULL);
	sbx_cancel_unref(old);
	if (!stream->cancel)
		return -ENOMEM;
	stream->running = true;
	stream->error = 0;
	stream->start = stream->pos = stream->asked = start;
	stream->end = end;
	stream->proven = stream->alone = stream->looking = stream->blocks = false;
	stream->count++;
	pthread_mutex_unlock(&content->lock);
	r = content_job_start(content, stream_run, start, end);
	pthread_mutex_lock(&content->lock);
	if (r < 0) {
		stream->running = false;
		pthread_cond_broadcast(&content->changed);
	}
	return r;
}
