/* Reading a content: what is here, what is coming, what has to be asked for. */
#include "client/workspace/content.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/call.h"
#include "client/session.h"
#include "client/workspace/blob.h"
#include "client/workspace/content_impl.h"
#include "client/workspace/fetch.h"
#include "client/workspace/names.h"

/* Two reads this far apart may still be one sequence: the kernel reads ahead in parallel. */
#define SEQUENCE_SLACK ((uint64_t)256 << 10)
/* A first read of more than this at the beginning of a file wants all of it. */
#define EAGER_BYTES ((size_t)16 << 10)
/* A sequence that begins further in does not fetch all that lies before it. */
#define STREAM_START_MAX ((uint64_t)1 << 20)
#define READ_TRIES	 4
/* After so many reads elsewhere a window grows by a first one. */
#define JUMPS_A_STEP 4
/* So many reads in sequence will be followed by many more. */
#define SEQUENCE_RUN 4

static bool content_no_exec(const struct sbx_content *content)
{
	return __atomic_load_n(&content->owner->no_exec, __ATOMIC_RELAXED);
}

/* @fd: the content's file when it had these bytes. */
static ssize_t content_read_here(int fd, void *buf, size_t size, uint64_t offset)
{
	char *at = buf;
	size_t left = size;

	while (left > 0) {
		ssize_t n = pread(fd, at, left, (off_t)(SBX_CACHE_DATA + offset));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += n;
		offset += (uint64_t)n;
		left -= (size_t)n;
	}
	/* The part is sparse: what lies behind its end, below the file's, is zeros. */
	memset(at, 0, left);
	return (ssize_t)size;
}

static int content_store_proven_locked(struct sbx_content *content, const struct sbx_blob *blob,
				       uint64_t start)
{
	int r = content_store_locked(content, blob->data, blob->len_bytes, start);

	if (r == 0)
		sbx_rangeset_add(&content->present, start, start + blob->len_bytes);
	return r;
}

static void content_moved(void *arg)
{
	struct sbx_content *content = arg;

	pthread_mutex_lock(&content->lock);
	content->moved_ms = sbx_clock_ms();
	pthread_mutex_unlock(&content->lock);
}

/* Fetch [start, end) by pack; the window is marked wanted. Without the lock. */
static int content_fetch_window(struct sbx_content *content, const struct sbx_call *call,
				uint64_t start, uint64_t end)
{
	struct sbx_contents *contents = content->owner;
	struct sbx_fetch_item item = { .offset = start, .len_bytes = end - start };
	struct sbx_call own = *call;
	g_autofree char *path = NULL;
	int64_t clock_ns;
	int64_t asked_ms;
	int r;

	pthread_mutex_lock(&content->lock);
	path = g_strdup(content->path);
	r = content_part_locked(content);
	pthread_mutex_unlock(&content->lock);
	if (r < 0)
		return r;
	item.path = path;
	own.moved = content_moved;
	own.moved_arg = content;
	asked_ms = sbx_clock_ms();
	r = sbx_fetch(contents->session, contents->names, &own, &item, 1, end - start, false,
		      &clock_ns);
	if (r < 0)
		return r;
	if (item.has_attr)
		sbx_names_saw(contents->names, path, &item.attr, asked_ms);
	pthread_mutex_lock(&content->lock);
	/* Where a rename made here crossed the request, it is asked once more. */
	if ((item.has_attr && !content_matches_locked(content, &item.attr)) ||
	    item.error == -ENOENT || item.error == -ENOTDIR || item.error == -ELOOP ||
	    item.error == -EISDIR)
		content->stale |= strcmp(path, content->path) == 0;
	else if (item.error < 0)
		r = item.error;
	else if (!item.has_attr || !item.blob)
		r = -EIO;
	else
		/* Proven. Under the lock, or a stream that is not could write over it. */
		r = content_store_proven_locked(content, item.blob, start);
	if (sbx_rangeset_has(&content->present, 0, content->size))
		content->complete = true;
	pthread_mutex_unlock(&content->lock);
	sbx_fetch_clear(&item, 1);
	return r;
}

static void content_unwant(struct sbx_content *content, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&content->lock);
	sbx_rangeset_remove(&content->wanted, start, end);
	content_signal_locked(content);
	pthread_mutex_unlock(&content->lock);
}

/* By the pool: a window ahead of a reader in sequence. Who needs it and finds it missing asks. */
static void content_fetch_ahead(struct sbx_content *content, uint64_t start, uint64_t end)
{
	struct sbx_call call = {
		.stall_timeout_ms = sbx_session_options(content->owner->session)->timeout_ms,
	};

	(void)content_fetch_window(content, &call, start, end);
	content_unwant(content, start, end);
}

/* The more a reader goes about in a file, the more of it he will come back to. */
static uint64_t reader_window(const struct sbx_reader *reader, size_t size)
{
	uint64_t window = SBX_WINDOW_BYTES << MIN(reader->run, 6u);

	if (reader->run == 0)
		window = MIN(window * (1 + reader->jumps / JUMPS_A_STEP), SBX_WINDOW_ABOUT);
	return MIN(MAX(window, size), SBX_WINDOW_MAX);
}

static void reader_note(struct sbx_reader *reader, uint64_t offset, size_t size)
{
	bool follows =
		offset <= reader->next + SEQUENCE_SLACK && offset + SEQUENCE_SLACK >= reader->next;

	if (reader->next == 0 && reader->run == 0)
		follows = false;
	reader->run = follows ? MIN(reader->run + 1, 100u) : 0;
	reader->jumps = follows ? reader->jumps : MIN(reader->jumps + 1, 100u);
	reader->next = follows ? MAX(reader->next, offset + size) : offset + size;
}

/* Cut [start, *end) to what is neither here nor on its way. */
static uint64_t window_end_locked(struct sbx_content *content, uint64_t start, uint64_t end)
{
	struct sbx_range gap;

	end = MIN(end, content->size);
	if (sbx_rangeset_gap(&content->present, start, end, &gap))
		end = gap.end;
	if (sbx_rangeset_gap(&content->wanted, start, end, &gap))
		end = gap.end;
	return end;
}

/* Is a GET the right thing for the byte at @missing, and of what? */
static bool content_wants_stream_locked(struct sbx_content *content,
					const struct sbx_reader *reader, size_t size,
					uint64_t missing, uint64_t *ret_start, uint64_t *ret_end)
{
	enum content_ranges ranges = __atomic_load_n(&content->owner->ranges, __ATOMIC_RELAXED);

	if (content->no_get)
		return false;
	*ret_start = ranges == RANGES_IGNORED ? 0 : missing;
	*ret_end = content->size;
	if (content_no_exec(content)) {
		if (reader->run == 0 && *ret_start > 0)
			*ret_end = MIN(missing + MAX(size, SBX_WINDOW_BYTES), content->size);
		return true;
	}
	if (missing <= STREAM_START_MAX) {
		*ret_start = ranges == RANGES_WORK ? missing : 0;
		return reader->run > 0 || (missing == 0 && size > EAGER_BYTES);
	}
	/* Whether the server knows ranges is worth a try where much is wanted. */
	return ranges != RANGES_IGNORED && reader->run >= SEQUENCE_RUN &&
	       content->size - missing > SBX_WINDOW_MAX;
}

/* Fetch the window around @missing, and more ahead. Called and returns with the lock held. */
static int content_windows_locked(struct sbx_content *content, const struct sbx_call *call,
				  const struct sbx_reader *reader, size_t size, uint64_t missing)
{
	uint64_t most = MAX(content_window_locked(content), size);
	uint64_t window =
		sbx_fetch_limit(content->owner->names, MIN(reader_window(reader, size), most), 1);
	uint64_t start = missing;
	uint64_t end;
	int r;

	/* A random reader comes back to the neighbourhood: whole windows, aligned. */
	if (reader->run == 0 && window >= SBX_WINDOW_BYTES) {
		uint64_t aligned = missing / window * window;

		if (!sbx_rangeset_run(&content->present, aligned) &&
		    !sbx_rangeset_run(&content->wanted, aligned) &&
		    aligned + window >= MIN(missing + size, content->size))
			start = aligned;
	}
	end = window_end_locked(content, start, start + window);
	if (end <= missing)
		end = window_end_locked(content, start = missing, missing + window);
	sbx_rangeset_add(&content->wanted, start, end);
	for (unsigned int i = 0, n = reader->run >= 3 ? 2 : 0; i < n; i++) {
		uint64_t next = end + i * window;
		uint64_t next_end = window_end_locked(content, next, next + window);

		if (next >= content->size || next_end <= next ||
		    sbx_rangeset_run(&content->present, next) ||
		    sbx_rangeset_run(&content->wanted, next))
			continue;
		sbx_rangeset_add(&content->wanted, next, next_end);
		pthread_mutex_unlock(&content->lock);
		if (content_job_start(content, content_fetch_ahead, next, next_end) < 0)
			content_unwant(content, next, next_end);
		pthread_mutex_lock(&content->lock);
	}
	pthread_mutex_unlock(&content->lock);
	r = content_fetch_window(content, call, start, end);
	content_unwant(content, start, end);
	pthread_mutex_lock(&content->lock);
	return r;
}

/* Somebody is about to bring the byte at @missing. */
static bool content_is_coming_locked(struct sbx_content *content, uint64_t missing)
{
	struct content_stream *stream = &content->stream;

	if (sbx_rangeset_run(&content->wanted, missing))
		return true;
	if (!stream->running || missing < stream->start || missing >= stream->end)
		return false;
	/* It was here and has gone, unless it is held back until it is proven. */
	if (missing < stream->pos && (stream->proven || stream->alone)) {
		stream->blocks = true;
		if (!content_no_exec(content))
			return false;
		pthread_cond_signal(&content->room);
	}
	return missing < stream->pos + SBX_STREAM_REACH || content_no_exec(content) ||
	       sbx_rangeset_run(&content->present, missing) > 0;
}

/* One step towards having the bytes of @gap. Called and returns with the lock held. */
static int content_step_locked(struct sbx_content *content, const struct sbx_call *call,
			       struct sbx_wait *wait, const struct sbx_reader *reader, size_t size,
			       const struct sbx_range *gap, unsigned int first_stream)
{
	struct sbx_contents *contents = content->owner;
	uint64_t missing = gap->start;
	uint64_t start;
	uint64_t end;
	int r;

	if (content->stale)
		return -ESTALE;
	if (content_is_coming_locked(content, missing)) {
		const struct content_stream *stream = &content->stream;

		if (stream->running && !stream->proven && !stream->alone && !stream->looking &&
		    stream->pos > stream->start && stream->part == content->n_parts)
			return content_stream_prove_locked(content, call);
		/* Those who were woken say anew what they wait for. */
		content->wake_pos =
			content->n_waiting > 0 ? MIN(content->wake_pos, gap->end) : gap->end;
		content->n_waiting++;
		r = sbx_wait_moving(wait, &content->moved_ms);
		content->n_waiting--;
		return r;
	}
	/* The stream that was waited for has failed. */
	if (content->stream.error < 0 && content->stream.count != first_stream &&
	    !content->stream.running)
		return content->stream.error;
	if (!content->stream.running &&
	    content_wants_stream_locked(content, reader, size, missing, &start, &end))
		return content_stream_start_locked(content, start, end);
	r = content_windows_locked(content, call, reader, size, missing);
	if (r == -EOPNOTSUPP && !content->no_get) {
		/* From now on the plain route brings everything. */
		__atomic_store_n(&contents->no_exec, true, __ATOMIC_RELAXED);
		r = 0;
	}
	return r;
}

static void reading_begin_locked(struct sbx_content *content, struct content_reading *reading,
				 const struct sbx_reader *reader, uint64_t offset, size_t size)
{
	*reading = (struct content_reading){ offset, offset + size, content->readings };
	content->readings = reading;
	content_recent_locked(content, reader, offset, offset + size);
}

static void reading_end_locked(struct sbx_content *content, const struct content_reading *reading)
{
	struct content_reading **link = &content->readings;

	while (*link != reading)
		link = &(*link)->next;
	*link = reading->next;
}

ssize_t sbx_content_read(struct sbx_content *content, const struct sbx_call *call,
			 struct sbx_reader *reader, void *buf, size_t size, uint64_t offset)
{
	struct content_reading reading;
	unsigned int first_stream;
	unsigned int tries = 0;
	struct sbx_range gap;
	struct sbx_wait wait;
	ssize_t n;
	int fd, r;

	if (offset >= content->size)
		return 0;
	size = (size_t)MIN(size, content->size - offset);
	if (content->blob) {
		memcpy(buf, content->blob->data + offset, size);
		return (ssize_t)size;
	}
	r = sbx_wait_begin(&wait, call, &content->changed, &content->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&content->lock);
	reading_begin_locked(content, &reading, reader, offset, size);
	reader_note(reader, offset, size);
	if (content->stream.held)
		pthread_cond_signal(&content->room);
	first_stream = content->stream.count;
	while (r == 0 && sbx_rangeset_gap(&content->present, offset, offset + size, &gap)) {
		r = content_step_locked(content, call, &wait, reader, size, &gap, first_stream);
		/* It was changing, or more was asked for than the sandbox carries. */
		if (r == -EAGAIN)
			r = ++tries < READ_TRIES ? 0 : -EIO;
	}
	fd = content->part.fd;
	pthread_mutex_unlock(&content->lock);
	sbx_wait_end(&wait);
	n = r < 0 ? r : content_read_here(fd, buf, size, offset);
	pthread_mutex_lock(&content->lock);
	reading_end_locked(content, &reading);
	pthread_mutex_unlock(&content->lock);
	return n;
}
