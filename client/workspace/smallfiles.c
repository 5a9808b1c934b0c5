/*
 * Small files, whole at open, several in one request.
 *
 * A file that is opened and not cached is asked for by pack; with it come those that are likely
 * next: what follows it in the tree (its directory's later entries, the directories below them,
 * then what follows its directory), as far as listings are known. How many: four times as many
 * as long as at least half of those guessed were used, half as many else, at most AHEAD_FILES
 * or AHEAD_BYTES.
 *
 * Where what came last could have been packed well, what comes next is.
 *
 * A file that is on its way is asked for once: who opens it meanwhile waits for that request. What
 * came but is not settled (content.h) is kept for ttl_ms, for opens that still find that version.
 *
 * Locking: small->lock, innermost; never held across a request.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "client/call.h"
#include "client/session.h"
#include "client/workspace/blob.h"
#include "client/workspace/content_impl.h"
#include "client/workspace/fetch.h"
#include "client/workspace/names.h"
#include "client/workspace/workspace.h"

#define AHEAD_FILES 256
#define AHEAD_BYTES ((uint64_t)1 << 20)
#define PAUSE_MS    1000
/* What is looked at for one request, so that a miss costs no walk of a big tree. */
#define AHEAD_ENTRIES 4000
#define AHEAD_DIRS    64
/* An open asks anew when its file kept changing while it was read. */
#define OPEN_TRIES 5
/* What is kept for ttl_ms. */
#define KEPT_BYTES ((uint64_t)16 << 20)
/* Of what came is looked at to learn how well it packs; less than that is not worth it. */
#define SAMPLE_BYTES ((size_t)16 << 10)

/* A file on its way, or just arrived. */
struct flight {
	int refs; /* small->lock */
	bool done;
	int error;
	int64_t asked_ms;
	bool has_attr;
	struct sbx_attr attr;
	struct sbx_blob *blob;
	bool settled;
	char path[];
};

struct small_files {
	struct sbx_contents *owner;
	pthread_mutex_t lock;
	pthread_cond_t landed;
	GHashTable *flights; /* path (inside) -> struct flight, with a reference */
	uint64_t kept_bytes; /* of flights that are done */
	GHashTable *guesses; /* struct sbx_version * -> itself: fetched ahead, not used yet */
	unsigned int ahead; /* how many files one request asks for */
	int64_t adapted_ms; /* when the last guess was made */
	unsigned int n_guessed; /* since ahead was last changed */
	unsigned int n_used; /* of these */
	bool packs_well; /* what came last */
	int64_t moved_ms; /* when a request last got on */
};

static guint version_key_hash(gconstpointer key)
{
	return (guint)sbx_version_hash(key);
}

static gboolean version_key_equal(gconstpointer a, gconstpointer b)
{
	return sbx_version_equal(a, b);
}

struct small_files *small_files_new(struct sbx_contents *contents)
{
	struct small_files *small = g_new0(struct small_files, 1);

	small->owner = contents;
	small->ahead = 1;
	pthread_mutex_init(&small->lock, NULL);
	(void)sbx_cond_init(&small->landed);
	small->flights = g_hash_table_new(g_str_hash, g_str_equal);
	small->guesses = g_hash_table_new_full(version_key_hash, version_key_equal, g_free, NULL);
	return small;
}

static void flight_unref_locked(struct flight *flight)
{
	if (--flight->refs > 0)
		return;
	sbx_blob_unref(flight->blob);
	g_free(flight);
}

void small_files_free(struct small_files *small)
{
	GHashTableIter iter;
	gpointer flight;

	g_hash_table_iter_init(&iter, small->flights);
	while (g_hash_table_iter_next(&iter, NULL, &flight))
		flight_unref_locked(flight);
	g_hash_table_unref(small->flights);
	g_hash_table_unref(small->guesses);
	pthread_cond_destroy(&small->landed);
	pthread_mutex_destroy(&small->lock);
	g_free(small);
}

void small_files_refresh(struct small_files *small)
{
	pthread_mutex_lock(&small->lock);
	g_hash_table_remove_all(small->guesses);
	small->ahead = 1;
	small->n_guessed = small->n_used = 0;
	pthread_mutex_unlock(&small->lock);
}

void small_files_hit(struct small_files *small, const struct sbx_version *version)
{
	pthread_mutex_lock(&small->lock);
	if (g_hash_table_remove(small->guesses, version))
		small->n_used++;
	pthread_mutex_unlock(&small->lock);
}

/* Flights -------------------------------------------------------------------------------------- */

/* Out of the table; who holds a reference goes on with it. */
static void flight_drop_locked(struct small_files *small, struct flight *flight)
{
	if (g_hash_table_lookup(small->flights, flight->path) != flight)
		return;
	g_hash_table_remove(small->flights, flight->path);
	if (flight->done && flight->blob)
		small->kept_bytes -= flight->blob->len_bytes;
	flight_unref_locked(flight);
}

static struct flight *flight_begin_locked(struct small_files *small, const char *path)
{
	size_t len = strlen(path) + 1;
	struct flight *flight = g_hash_table_lookup(small->flights, path);

	if (flight)
		flight_drop_locked(small, flight);
	flight = g_malloc0(sizeof(*flight) + len);
	memcpy(flight->path, path, len);
	flight->refs = 2;
	flight->asked_ms = sbx_clock_ms();
	g_hash_table_replace(small->flights, flight->path, flight);
	return flight;
}

static void flight_end_locked(struct small_files *small, struct flight *flight)
{
	bool keep = flight->blob && !flight->settled && flight->error == 0 &&
		    small->kept_bytes + flight->blob->len_bytes <= KEPT_BYTES;

	flight->done = true;
	if (g_hash_table_lookup(small->flights, flight->path) != flight)
		return;
	if (flight->blob)
		small->kept_bytes += flight->blob->len_bytes;
	if (!keep)
		flight_drop_locked(small, flight);
}

static gboolean flight_is_old(gpointer key, gpointer value, gpointer data)
{
	struct small_files *small = data;
	struct flight *flight = value;

	(void)key;
	if (!flight->done || sbx_clock_ms() - flight->asked_ms < small->owner->ttl_ms)
		return FALSE;
	if (flight->blob)
		small->kept_bytes -= flight->blob->len_bytes;
	flight_unref_locked(flight);
	return TRUE;
}

/* It brought the bytes of @version. */
static bool flight_is_of(const struct flight *flight, const struct sbx_version *version)
{
	struct sbx_version came;

	sbx_version_of(&flight->attr, &came);
	return flight->error == 0 && flight->blob && sbx_version_equal(&came, version);
}

/* What is on its way, or came at most ttl_ms ago as @version: of use to an open of now.
 * Borrowed. */
static struct flight *small_join_locked(struct small_files *small, const char *path,
					const struct sbx_version *version)
{
	struct flight *flight = g_hash_table_lookup(small->flights, path);

	if (!flight || sbx_clock_ms() - flight->asked_ms >= small->owner->ttl_ms)
		return NULL;
	return flight->done && !flight_is_of(flight, version) ? NULL : flight;
}

/* Guessing ------------------------------------------------------------------------------------- */

/* Files that go with one request; the first is the one that was opened. */
struct batch {
	struct small_files *small;
	GPtrArray *flights; /* struct flight *, a reference each */
	unsigned int max_files;
	uint64_t max_bytes;
	uint64_t bytes;
	unsigned int n_dirs;
	unsigned int n_entries;
};

static bool batch_is_full(const struct batch *batch)
{
	return batch->flights->len >= batch->max_files || batch->bytes >= batch->max_bytes ||
	       batch->n_dirs >= AHEAD_DIRS || batch->n_entries >= AHEAD_ENTRIES;
}

static void batch_offer(struct batch *batch, const char *path, const struct sbx_attr *attr)
{
	struct small_files *small = batch->small;
	struct sbx_version version;

	if (!S_ISREG(attr->mode) || attr->size == 0 || attr->size > SBX_SMALL_BYTES ||
	    batch->bytes + attr->size > batch->max_bytes)
		return;
	sbx_version_of(attr, &version);
	if (sbx_cache_has(small->owner->cache, &version))
		return;
	pthread_mutex_lock(&small->lock);
	if (!small_join_locked(small, path, &version)) {
		g_ptr_array_add(batch->flights, flight_begin_locked(small, path));
		batch->bytes += attr->size;
	}
	pthread_mutex_unlock(&small->lock);
}

/* What comes in the tree from @dir on, behind its entry @after (NULL: all of it). */
static void batch_walk_down(struct batch *batch, const char *dir, const char *after)
{
	struct sbx_listing *listing;

	if (batch_is_full(batch))
		return;
	batch->n_dirs++;
	if (sbx_names_list_known(batch->small->owner->names, dir, &listing) < 0)
		return;
	for (size_t i = 0; i < listing->n_entries && !batch_is_full(batch); i++) {
		const struct sbx_dirent *entry = &listing->entries[i];
		g_autofree char *path = NULL;

		if (after && strcmp(entry->name, after) <= 0)
			continue;
		batch->n_entries++;
		path = dir[0] ? g_strconcat(dir, "/", entry->name, NULL) : g_strdup(entry->name);
		if (S_ISDIR(entry->attr.mode))
			batch_walk_down(batch, path, NULL);
		else
			batch_offer(batch, path, &entry->attr);
	}
	sbx_listing_unref(listing);
}

static void batch_guess(struct batch *batch, const char *path)
{
	g_autofree char *at = g_strdup(path);

	while (at[0] && !batch_is_full(batch)) {
		char *slash = strrchr(at, '/');
		g_autofree char *name = g_strdup(slash ? slash + 1 : at);

		/* What reads in .git says nothing of what is beside it. */
		if (name[0] == '.' && strlen(at) < strlen(path))
			break;
		if (slash)
			*slash = '\0';
		else
			at[0] = '\0';
		batch_walk_down(batch, at, name);
	}
}

/* How far to look ahead now, from how good the last guesses were. */
static unsigned int small_adapt_locked(struct small_files *small)
{
	int64_t now_ms = sbx_clock_ms();

	bool begins = now_ms - small->adapted_ms > PAUSE_MS;

	small->adapted_ms = now_ms;
	/* After a pause another walk begins, if it is one: its first open guesses nothing. */
	if (begins) {
		small->ahead = 1;
		small->n_guessed = small->n_used = 0;
		return small->ahead;
	}
	/* One open alone is no walk through a directory: a first guess is small. */
	if (small->n_guessed == 0)
		small->ahead = MIN(small->ahead * 2, (unsigned int)AHEAD_FILES);
	else if (2 * small->n_used >= small->n_guessed)
		small->ahead = MIN(small->ahead * 4, (unsigned int)AHEAD_FILES);
	else
		small->ahead = MAX(small->ahead / 2, 1u);
	small->n_guessed = small->n_used = 0;
	if (g_hash_table_size(small->guesses) > 16 * AHEAD_FILES)
		g_hash_table_remove_all(small->guesses);
	return small->ahead;
}

/* Asking --------------------------------------------------------------------------------------- */

static void batch_land(struct batch *batch, struct sbx_fetch_item *items, int64_t clock_ns, int r)
{
	struct small_files *small = batch->small;
	struct sbx_contents *contents = small->owner;

	for (guint i = 0; i < batch->flights->len; i++) {
		struct flight *flight = batch->flights->pdata[i];
		struct sbx_fetch_item *item = &items[i];
		struct sbx_version version;
		bool settled = r == 0 && item->blob && content_is_settled(&item->attr, clock_ns);

		if (r == 0 && item->has_attr)
			sbx_names_saw(contents->names, flight->path, &item->attr, flight->asked_ms);
		else if (r == 0 && item->error == -ENOENT)
			sbx_names_saw(contents->names, flight->path, NULL, flight->asked_ms);
		sbx_version_of(&item->attr, &version);
		if (settled && item->attr.size <= SBX_SMALL_BYTES)
			sbx_cache_put(contents->cache, &version, item->blob);
		pthread_mutex_lock(&small->lock);
		if (r == 0 && item->blob && i > 0) {
			struct sbx_version *guess = g_new(struct sbx_version, 1);

			*guess = version;
			g_hash_table_add(small->guesses, guess);
			small->n_guessed++;
		}
		flight->error = r < 0 ? r : item->error;
		flight->has_attr = r == 0 && item->has_attr;
		flight->attr = item->attr;
		flight->blob = item->blob ? sbx_blob_ref(item->blob) : NULL;
		flight->settled = settled;
		flight_end_locked(small, flight);
		pthread_mutex_unlock(&small->lock);
	}
	pthread_mutex_lock(&small->lock);
	pthread_cond_broadcast(&small->landed);
	pthread_mutex_unlock(&small->lock);
}

/* Would packing have halved what came? *ret_packs is untouched where too little came. */
static void batch_sample(const struct sbx_fetch_item *items, size_t n_items, bool *ret_packs)
{
	g_autoptr(GByteArray) sample = g_byte_array_sized_new(SAMPLE_BYTES);
	uLongf packed_bytes = compressBound(SAMPLE_BYTES);
	g_autofree Bytef *packed = g_malloc(packed_bytes);

	/* From the last on: more of the same is asked for next. */
	for (size_t i = n_items; i > 0 && sample->len < SAMPLE_BYTES; i--) {
		const struct sbx_blob *blob = items[i - 1].blob;

		if (blob)
			g_byte_array_append(
				sample, blob->data,
				(guint)MIN(blob->len_bytes, SAMPLE_BYTES - sample->len));
	}
	if (sample->len < SAMPLE_BYTES ||
	    compress2(packed, &packed_bytes, sample->data, sample->len, 1) != Z_OK)
		return;
	*ret_packs = packed_bytes < sample->len / 2;
}

static void small_moved(void *arg)
{
	struct small_files *small = arg;

	pthread_mutex_lock(&small->lock);
	small->moved_ms = sbx_clock_ms();
	pthread_mutex_unlock(&small->lock);
}

/* Ask for @flight and what is likely next. All of them are done when it returns. */
static void small_ask(struct small_files *small, const struct sbx_call *call, struct flight *flight,
		      const struct sbx_attr *attr, unsigned int ahead)
{
	struct sbx_contents *contents = small->owner;
	struct batch batch = {
		.small = small,
		.flights = g_ptr_array_new(),
		.max_files = ahead,
		.max_bytes = sbx_fetch_limit(contents->names, AHEAD_BYTES, ahead),
		.bytes = attr->size,
	};
	g_autofree struct sbx_fetch_item *items = NULL;
	bool packs_well = __atomic_load_n(&small->packs_well, __ATOMIC_RELAXED);
	struct sbx_call own = *call;
	int64_t clock_ns = 0;
	int r;

	g_ptr_array_add(batch.flights, flight);
	if (flight->path[0] != '/')
		batch_guess(&batch, flight->path);
	items = g_new0(struct sbx_fetch_item, batch.flights->len);
	for (guint i = 0; i < batch.flights->len; i++) {
		items[i].path = ((struct flight *)batch.flights->pdata[i])->path;
		items[i].len_bytes = SBX_PACK_WHOLE;
	}
	own.moved = small_moved;
	own.moved_arg = small;
	r = sbx_fetch(contents->session, contents->names, &own, items, batch.flights->len,
		      AHEAD_BYTES + SBX_SMALL_BYTES, packs_well && batch.bytes >= SAMPLE_BYTES,
		      &clock_ns);
	batch_land(&batch, items, clock_ns, r);
	batch_sample(items, batch.flights->len, &packs_well);
	__atomic_store_n(&small->packs_well, packs_well, __ATOMIC_RELAXED);
	sbx_fetch_clear(items, batch.flights->len);
	pthread_mutex_lock(&small->lock);
	for (guint i = 1; i < batch.flights->len; i++)
		flight_unref_locked(batch.flights->pdata[i]);
	pthread_mutex_unlock(&small->lock);
	g_ptr_array_unref(batch.flights);
}

/* The whole file by the plain route: without exec, or where it never stands still. Nothing proves
 * it, so it serves this open. */
struct plain_get {
	uint64_t size;
	struct sbx_blob *blob;
	size_t len;
};

static int plain_begin(void *arg, int64_t offset, int64_t len_bytes)
{
	struct plain_get *get = arg;

	if (offset != 0 || len_bytes > (int64_t)SBX_SMALL_BYTES * 2)
		return -ESTALE;
	get->len = 0;
	return 0;
}

static int plain_write(void *arg, const void *data, size_t len)
{
	struct plain_get *get = arg;

	if (len > get->blob->len_bytes - get->len)
		return -ESTALE;
	memcpy(get->blob->data + get->len, data, len);
	get->len += len;
	return 0;
}

static int small_get(struct small_files *small, const struct sbx_call *call, const char *path,
		     struct sbx_attr *attr, struct sbx_content **ret_content)
{
	struct sbx_contents *contents = small->owner;
	struct plain_get get = { .size = attr->size };
	const struct sbx_sink sink = { plain_begin, plain_write, &get };
	int r;

	/* It may have grown since it was looked at. */
	get.blob = sbx_blob_new(2 * SBX_SMALL_BYTES);
	if (!get.blob)
		return -ENOMEM;
	r = sbx_session_get(contents->session, call, path, 0, -1, &sink);
	if (r == 0) {
		get.blob->len_bytes = get.len;
		attr->size = get.len;
		*ret_content = content_new_small(contents, path, attr, get.blob, false);
		r = *ret_content ? 0 : -ENOMEM;
	}
	sbx_blob_unref(get.blob);
	return r;
}

static int flight_wait(struct small_files *small, const struct sbx_call *call,
		       struct flight *flight)
{
	struct sbx_wait wait;
	int r = sbx_wait_begin(&wait, call, &small->landed, &small->lock);

	if (r < 0)
		return r;
	pthread_mutex_lock(&small->lock);
	while (r == 0 && !flight->done)
		r = sbx_wait_moving(&wait, &small->moved_ms);
	if (flight->done)
		r = 0;
	pthread_mutex_unlock(&small->lock);
	sbx_wait_end(&wait);
	return r;
}

/* What the answer means for an open. -EAGAIN: ask again. */
static int flight_result(struct small_files *small, struct flight *flight, struct sbx_attr *attr,
			 struct sbx_content **ret_content)
{
	if (flight->has_attr && S_ISREG(flight->attr.mode))
		*attr = flight->attr;
	if (flight->error < 0)
		return flight->error == -EINVAL ? -ENXIO : flight->error;
	if (!S_ISREG(flight->attr.mode) || !flight->blob ||
	    flight->blob->len_bytes != flight->attr.size)
		return -EAGAIN;
	*ret_content = content_new_small(small->owner, flight->path, &flight->attr, flight->blob,
					 flight->settled);
	if (!*ret_content)
		return -ENOMEM;
	*attr = flight->attr;
	return 0;
}

static int small_fetch(struct small_files *small, const struct sbx_call *call, const char *path,
		       bool may_join, struct sbx_attr *attr, struct sbx_content **ret_content)
{
	struct sbx_version version;
	struct flight *flight;
	unsigned int ahead = 1;
	bool joined;
	int r = 0;

	sbx_version_of(attr, &version);
	pthread_mutex_lock(&small->lock);
	flight = may_join ? small_join_locked(small, path, &version) : NULL;
	joined = flight != NULL;
	if (joined) {
		flight->refs++;
		if (g_hash_table_remove(small->guesses, &version))
			small->n_used++;
	} else {
		g_hash_table_foreach_remove(small->flights, flight_is_old, small);
		flight = flight_begin_locked(small, path);
		/* One alone is held open there: it is got even while it is replaced all the
		 * time. */
		ahead = may_join ? small_adapt_locked(small) : 1;
	}
	pthread_mutex_unlock(&small->lock);
	if (joined)
		r = flight_wait(small, call, flight);
	else
		small_ask(small, call, flight, attr, ahead);
	/* It may have been asked for before this mount changed the file, or by a caller who was let
	 * go: only the version that this open has found counts. */
	if (joined && r == 0 && !flight_is_of(flight, &version))
		r = -EAGAIN;
	if (r == 0)
		r = flight_result(small, flight, attr, ret_content);
	pthread_mutex_lock(&small->lock);
	flight_unref_locked(flight);
	pthread_mutex_unlock(&small->lock);
	return r;
}

int small_files_open(struct small_files *small, const struct sbx_call *call, const char *path,
		     struct sbx_attr *attr, struct sbx_content **ret_content)
{
	struct sbx_contents *contents = small->owner;
	struct sbx_version version;
	struct sbx_blob *blob;
	int r = -EAGAIN;

	sbx_version_of(attr, &version);
	blob = attr->ctime_ns != 0 ? sbx_cache_get(contents->cache, &version) : NULL;
	if (blob) {
		small_files_hit(small, &version);
		*ret_content = content_new_small(contents, path, attr, blob, true);
		sbx_blob_unref(blob);
		return *ret_content ? 0 : -ENOMEM;
	}
	for (int tries = 0; tries < OPEN_TRIES && r == -EAGAIN; tries++) {
		/* By now it is no small file. */
		if (attr->size == 0 || attr->size > SBX_SMALL_BYTES)
			return sbx_contents_open(contents, call, path, attr, ret_content);
		if (!__atomic_load_n(&contents->no_exec, __ATOMIC_RELAXED))
			r = small_fetch(small, call, path, tries == 0, attr, ret_content);
		else
			return small_get(small, call, path, attr, ret_content);
		if (r == -EOPNOTSUPP && path[0] != '/') {
			__atomic_store_n(&contents->no_exec, true, __ATOMIC_RELAXED);
			r = -EAGAIN;
		}
	}
	/* It changes all the time: as it is at some moment, for this open alone. */
	if (r == -EAGAIN && path[0] != '/')
		r = small_get(small, call, path, attr, ret_content);
	return r == -EAGAIN ? -EIO : r;
}
