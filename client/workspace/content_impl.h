/*
 * content_impl - the insides of contents, shared by content.c (life), content_read.c,
 * content_room.c (what is kept of them), stream.c (GET) and smallfiles.c (pack at open). For no
 * other module.
 */
#ifndef SBX_CLIENT_WORKSPACE_CONTENT_IMPL_H
#define SBX_CLIENT_WORKSPACE_CONTENT_IMPL_H

#include <glib.h>
#include <pthread.h>

#include "client/workspace/content.h"
#include "client/workspace/contentcache.h"
#include "client/workspace/rangeset.h"

#define SBX_WINDOW_BYTES ((uint64_t)64 << 10)
/* Of a reader who goes about: its base64 stays below 256 KiB. */
#define SBX_WINDOW_ABOUT ((uint64_t)184 << 10)
#define SBX_WINDOW_MAX	 ((uint64_t)4 << 20)
#define SBX_STREAM_AHEAD ((uint64_t)32 << 20)
/* A reader this far in front of a stream waits for it. */
#define SBX_STREAM_REACH ((uint64_t)4 << 20)
/* From here on the server's GET refuses. */
#define SBX_GET_LIMIT ((uint64_t)1 << 31)

struct sbx_cancel;
struct small_files;

/* Does the server's GET know ranges? */
enum content_ranges {
	RANGES_UNKNOWN,
	RANGES_WORK,
	RANGES_IGNORED,
};

struct sbx_contents {
	struct sbx_session *session;
	struct sbx_names *names;
	struct sbx_cache *cache;
	int64_t ttl_ms;
	struct small_files *small;

	pthread_mutex_t lock;
	pthread_cond_t idle; /* n_jobs became 0 */
	GQueue big; /* struct sbx_content by link: in use, and a few that were, newest first */
	unsigned int n_idle; /* of these, not in use */
	uint64_t idle_bytes; /* of those, what they hold on the local disk at most */
	uint64_t idle_limit_bytes;
	uint64_t cache_size_bytes; /* the cache's bound */
	uint64_t held_bytes; /* atomic: what those that are no files of the cache have there */
	unsigned int n_jobs; /* of all contents */
	enum content_ranges ranges; /* atomic */
	bool no_exec; /* atomic: pack can't be had */
	bool closing;
};

/* A GET under way. All under content->lock; `running` ends last. */
struct content_stream {
	bool running;
	uint64_t asked; /* from where on it was asked for */
	uint64_t start; /* first byte of what comes */
	uint64_t end; /* past the last byte that comes */
	uint64_t pos; /* next byte that comes */
	unsigned int begun; /* how often an answer has begun */
	unsigned int part; /* content->n_parts at the last of these: what it brings goes there */
	bool proven; /* what comes is of this version */
	bool alone; /* one answer brings all there is: it may be read before it is proven */
	bool looking; /* somebody looks at the attributes to prove it */
	bool held; /* it waits on room */
	bool blocks; /* somebody waits for its end: it has passed what he wants */
	int error; /* of the last one that ended */
	unsigned int count; /* how many were started */
	struct sbx_cancel *cancel;
};

/* Bytes that a reader waits for or copies out: they stay. On his stack, under content->lock. */
struct content_reading {
	uint64_t start;
	uint64_t end;
	struct content_reading *next;
};

/* Where one of the last readers is. */
#define CONTENT_RECENT 4
struct content_recent {
	const void *reader; /* only compared; NULL: none */
	uint64_t offset;
	uint64_t end;
};

struct sbx_content {
	struct sbx_contents *owner;
	GList link; /* in owner->big; data is the content, NULL: not in it */
	int users; /* owner->lock: references of open files */
	int jobs; /* owner->lock: tasks of the pool at work on it */
	uint64_t size; /* never changes */

	struct sbx_blob *blob; /* small: everything; never changes */
	bool settled; /* never changes */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* present, wanted, stale, stream */
	pthread_cond_t room; /* recent, and the stream's cancel */
	char *path;
	struct sbx_attr attr;
	struct sbx_version version;
	bool any_ctime; /* it was set aside, which changed ctime: the next look tells the new one */
	bool stale; /* the sandbox has replaced it: what is not here can't be had */
	bool no_get; /* routes can't name it or carry it */
	bool complete; /* all bytes are present */
	struct sbx_cache_part part; /* fd -1: nothing was fetched yet */
	struct sbx_cache_part left; /* what it was before it went to memory; else fd -1 */
	unsigned int n_parts; /* how often it was given up for another */
	bool in_memory;
	uint64_t held_bytes; /* its share of owner->held_bytes */
	uint64_t room_bytes; /* more than that the disk did not take; 0: not known */
	struct content_reading *readings;
	struct content_recent recent[CONTENT_RECENT]; /* the last first */
	struct sbx_rangeset present;
	struct sbx_rangeset wanted; /* windows under way */
	unsigned int n_waiting; /* on changed */
	int64_t moved_ms; /* when the stream or a window last got on */
	uint64_t wake_pos; /* the stream wakes them when it has come so far */
	struct content_stream stream;
};

/* content.c ---------------------------------------------------------------------------------- */

/* ctime was old enough when @attr was seen; @clock_ns: the sandbox's clock before that. */
bool content_is_settled(const struct sbx_attr *attr, int64_t clock_ns);
/* A complete one; takes a reference of @blob. */
struct sbx_content *content_new_small(struct sbx_contents *contents, const char *path,
				      const struct sbx_attr *attr, struct sbx_blob *blob,
				      bool settled);
/*
 * Have @fn(@content, @start, @end) run by the pool; what it is given stays until it returns. 0 or
 * -errno. Not under a lock.
 */
typedef void (*content_job_fn)(struct sbx_content *content, uint64_t start, uint64_t end);
int content_job_start(struct sbx_content *content, content_job_fn fn, uint64_t start, uint64_t end);
/* @attr was seen: does it describe this version? Takes over a ctime that is due. */
bool content_matches_locked(struct sbx_content *content, const struct sbx_attr *attr);
void content_signal_locked(struct sbx_content *content);

/* content_room.c ----------------------------------------------------------------------------- */

/* May all of a file of that size be here? */
bool content_fits(const struct sbx_contents *contents, uint64_t size_bytes);
/* How far in front of its readers a stream may be, and how much is worth a request. */
uint64_t content_ahead_locked(const struct sbx_content *content);
uint64_t content_window_locked(const struct sbx_content *content);
/* @reader, which is only compared, reads [@offset, @end). */
void content_recent_locked(struct sbx_content *content, const void *reader, uint64_t offset,
			   uint64_t end);
/* The file to fetch into, at the first time; in memory where there can be none. */
int content_part_locked(struct sbx_content *content);
/* Have room for @len_bytes more: others go from `present`. */
void content_room_locked(struct sbx_content *content, uint64_t len_bytes);
/*
 * Store bytes, with room made for them as it takes; the content may go to memory meanwhile, which
 * n_parts tells, and what was here before is not `present` then. The other form only writes, to the
 * content's file as it was under the lock, where the caller has made room.
 */
int content_store_locked(struct sbx_content *content, const void *data, size_t len,
			 uint64_t offset);
int content_store(struct sbx_content *content, int fd, const void *data, size_t len,
		  uint64_t offset);
/* Of it, @held_bytes take room beside the cache's files. */
void content_held_locked(struct sbx_content *content, uint64_t held_bytes);

/* stream.c ----------------------------------------------------------------------------------- */

/* Begin a GET of [start, end); the server may send all. Lets go of the lock for a moment. */
int content_stream_start_locked(struct sbx_content *content, uint64_t start, uint64_t end);
void content_stream_cancel_locked(struct sbx_content *content);
/*
 * Bytes have come and nobody is looking: look whether they are of this version. They may be read
 * and kept then, or the content is stale. The request's errno. Lets go of the lock meanwhile.
 */
int content_stream_prove_locked(struct sbx_content *content, const struct sbx_call *call);

/* smallfiles.c ------------------------------------------------------------------------------- */

struct small_files *small_files_new(struct sbx_contents *contents);
void small_files_free(struct small_files *small);
void small_files_refresh(struct small_files *small);
/* A blob was found in the cache: was it a good guess? */
void small_files_hit(struct small_files *small, const struct sbx_version *version);
int small_files_open(struct small_files *small, const struct sbx_call *call, const char *path,
		     struct sbx_attr *attr, struct sbx_content **ret_content);

#endif
