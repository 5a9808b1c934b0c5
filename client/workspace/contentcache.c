#include "client/workspace/contentcache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include "client/localfile.h"
#include "client/statedir.h"
#include "client/task.h"
#include "client/workspace/blob.h"

#define CACHE_DIRECTORY "content"
#define CACHE_VERSION	1
#define PART_PREFIX	"part-"
#define NAME_CHARS	40
#define MEMORY_BYTES	((uint64_t)32 << 20)
#define TAG_MAX		256
/* What waits to be written. */
#define UNWRITTEN_BYTES ((uint64_t)16 << 20)

static const char cache_magic[8] = "SBXCACHE";

/* At the head of a file, in the machine's byte order. */
struct cache_header {
	char magic[8];
	uint32_t version;
	uint32_t checksum; /* of the header, this field 0 */
	struct sbx_version of;
	uint32_t has_data_checksum;
	uint32_t data_checksum;
	char boot[40];
	char tag[TAG_MAX];
};
_Static_assert(sizeof(struct cache_header) <= SBX_CACHE_DATA, "the header fits before the data");

struct cache_entry {
	struct sbx_version version;
	struct sbx_blob *blob;
	GList link; /* in the queue, data is the entry */
};

struct sbx_cache {
	struct sbx_task_pool *pool;
	int dirfd;
	bool on_disk;
	char *tag;
	char boot[40];
	uint64_t limit_bytes;

	pthread_mutex_t lock;
	GHashTable *entries; /* struct sbx_version -> struct cache_entry, keys inside */
	GQueue recent; /* most recently used first */
	uint64_t memory_bytes;
	uint64_t
		written_bytes; /* since the directory was looked through; starts beyond the limit */
	bool must_sweep;
	bool is_sweeping;
	bool full; /* the last sweep left more than may be: parts that are in use */
	GQueue unwritten; /* struct cache_entry *, of no table, oldest first */
	uint64_t unwritten_bytes;
	bool is_writing; /* a task of the pool works that off */
	pthread_cond_t written; /* it has ended */
};

static guint entry_hash(gconstpointer key)
{
	return (guint)sbx_version_hash(key);
}

static gboolean entry_equal(gconstpointer a, gconstpointer b)
{
	return sbx_version_equal(a, b);
}

static void entry_free(gpointer data)
{
	struct cache_entry *entry = data;

	sbx_blob_unref(entry->blob);
	g_free(entry);
}

int sbx_cache_new(struct sbx_statedir *dir, struct sbx_task_pool *pool, const char *tag,
		  bool on_disk, uint64_t limit_bytes, struct sbx_cache **ret_cache)
{
	int dirfd = sbx_statedir_cache_opendir(dir, CACHE_DIRECTORY);
	struct sbx_cache *cache;
	g_autofree char *boot = NULL;

	if (dirfd < 0)
		return dirfd;
	cache = g_new0(struct sbx_cache, 1);
	cache->pool = pool;
	cache->dirfd = dirfd;
	cache->on_disk = on_disk && strlen(tag) < TAG_MAX;
	cache->tag = g_strdup(tag);
	cache->limit_bytes = limit_bytes;
	cache->written_bytes = limit_bytes;
	if (g_file_get_contents("/proc/sys/kernel/random/boot_id", &boot, NULL, NULL))
		g_strlcpy(cache->boot, g_strchomp(boot), sizeof(cache->boot));
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->written, NULL);
	g_queue_init(&cache->unwritten);
	cache->entries = g_hash_table_new_full(entry_hash, entry_equal, NULL, entry_free);
	g_queue_init(&cache->recent);
	*ret_cache = cache;
	return 0;
}

void sbx_cache_free(struct sbx_cache *cache)
{
	if (!cache)
		return;
	pthread_mutex_lock(&cache->lock);
	while (cache->is_writing)
		pthread_cond_wait(&cache->written, &cache->lock);
	pthread_mutex_unlock(&cache->lock);
	g_hash_table_unref(cache->entries);
	pthread_cond_destroy(&cache->written);
	pthread_mutex_destroy(&cache->lock);
	close(cache->dirfd);
	g_free(cache->tag);
	g_free(cache);
}

/* The bound ------------------------------------------------------------------------------------ */

struct sweep_file {
	char name[64];
	uint64_t bytes;
	struct timespec used;
};

static gint sweep_older(gconstpointer a, gconstpointer b)
{
	const struct sweep_file *left = a;
	const struct sweep_file *right = b;

	if (left->used.tv_sec != right->used.tv_sec)
		return left->used.tv_sec < right->used.tv_sec ? -1 : 1;
	return (left->used.tv_nsec > right->used.tv_nsec) -
	       (left->used.tv_nsec < right->used.tv_nsec);
}

/* Its owner is dead. One that a living process holds is no candidate. */
static bool sweep_part_is_left(struct sbx_cache *cache, const char *name)
{
	int fd = openat(cache->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool left;

	if (fd < 0)
		return false;
	left = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return left;
}

/* The files that may go, longest unused first, and what they and parts in use take; NULL: the
 * directory can't be read. */
static GArray *cache_list(struct sbx_cache *cache, uint64_t *ret_bytes)
{
	DIR *dir = sbx_local_opendir(cache->dirfd);
	struct dirent *entry;
	uint64_t total = 0;
	GArray *files;

	if (!dir)
		return NULL;
	files = g_array_new(FALSE, FALSE, sizeof(struct sweep_file));
	while ((entry = readdir(dir))) {
		struct sweep_file file;
		struct stat st;

		if (entry->d_name[0] == '.' ||
		    fstatat(cache->dirfd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) ||
		    g_strlcpy(file.name, entry->d_name, sizeof(file.name)) >= sizeof(file.name))
			continue;
		file.bytes = (uint64_t)st.st_blocks * 512;
		file.used = st.st_mtim;
		total += file.bytes;
		if (!g_str_has_prefix(file.name, PART_PREFIX)) {
			g_array_append_val(files, file);
		} else if (sweep_part_is_left(cache, file.name)) {
			unlinkat(cache->dirfd, file.name, 0);
			total -= file.bytes;
		}
	}
	closedir(dir);
	g_array_sort(files, sweep_older);
	*ret_bytes = total;
	return files;
}

/* Removes @bytes of @files, or all: how many went. */
static uint64_t cache_remove(struct sbx_cache *cache, const GArray *files, uint64_t bytes)
{
	uint64_t removed = 0;

	for (guint i = 0; i < files->len && removed < bytes; i++) {
		const struct sweep_file *file = &g_array_index(files, struct sweep_file, i);

		if (unlinkat(cache->dirfd, file->name, 0) == 0)
			removed += file->bytes;
	}
	return removed;
}

/* Whether what is left, in parts that are in use, exceeds the bound. */
static bool cache_sweep(struct sbx_cache *cache)
{
	uint64_t limit = cache->limit_bytes / 10 * 9;
	uint64_t total = 0;
	g_autoptr(GArray) files = cache_list(cache, &total);

	if (files && total > limit)
		total -= cache_remove(cache, files, total - limit);
	return total > limit;
}

bool sbx_cache_evict(struct sbx_cache *cache, uint64_t bytes)
{
	uint64_t total;
	g_autoptr(GArray) files = cache->on_disk ? cache_list(cache, &total) : NULL;

	return files && cache_remove(cache, files, bytes) > 0;
}

/* @len_bytes more are there, and @one more that may go. */
static void cache_bound(struct sbx_cache *cache, uint64_t len_bytes, bool one)
{
	if (!cache->on_disk)
		return;
	pthread_mutex_lock(&cache->lock);
	cache->written_bytes += len_bytes;
	cache->must_sweep |= cache->written_bytes > cache->limit_bytes / 16 || (one && cache->full);
	/* Who sweeps now does so once more. */
	while (cache->must_sweep && !cache->is_sweeping) {
		bool full;

		cache->must_sweep = false;
		cache->is_sweeping = true;
		cache->written_bytes = 0;
		pthread_mutex_unlock(&cache->lock);
		full = cache_sweep(cache);
		pthread_mutex_lock(&cache->lock);
		cache->full = full;
		cache->is_sweeping = false;
	}
	pthread_mutex_unlock(&cache->lock);
}

void sbx_cache_grew(struct sbx_cache *cache, uint64_t len_bytes)
{
	cache_bound(cache, len_bytes, false);
}

/* Files ---------------------------------------------------------------------------------------- */

static void cache_name(const struct sbx_cache *cache, const struct sbx_version *version,
		       char name[static NAME_CHARS + 1])
{
	g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);

	g_checksum_update(sum, (const guchar *)cache->tag, (gssize)strlen(cache->tag) + 1);
	g_checksum_update(sum, (const guchar *)version, sizeof(*version));
	g_strlcpy(name, g_checksum_get_string(sum), NAME_CHARS + 1);
}

static uint32_t header_checksum(const struct cache_header *header)
{
	struct cache_header copy = *header;

	copy.checksum = 0;
	return (uint32_t)crc32(0, (const Bytef *)&copy, sizeof(copy));
}

static void header_init(const struct sbx_cache *cache, const struct sbx_version *version,
			const void *data, struct cache_header *ret_header)
{
	memset(ret_header, 0, sizeof(*ret_header));
	memcpy(ret_header->magic, cache_magic, sizeof(cache_magic));
	ret_header->version = CACHE_VERSION;
	ret_header->of = *version;
	if (data) {
		ret_header->has_data_checksum = 1;
		ret_header->data_checksum = (uint32_t)crc32(0, data, (uInt)version->size_bytes);
	}
	g_strlcpy(ret_header->boot, cache->boot, sizeof(ret_header->boot));
	g_strlcpy(ret_header->tag, cache->tag, sizeof(ret_header->tag));
	ret_header->checksum = header_checksum(ret_header);
}

static bool header_is_for(const struct sbx_cache *cache, const struct cache_header *header,
			  const struct sbx_version *version)
{
	return memcmp(header->magic, cache_magic, sizeof(cache_magic)) == 0 &&
	       header->version == CACHE_VERSION && header->checksum == header_checksum(header) &&
	       sbx_version_equal(&header->of, version) &&
	       strncmp(header->tag, cache->tag, sizeof(header->tag)) == 0 &&
	       (header->has_data_checksum ||
		(cache->boot[0] && strncmp(header->boot, cache->boot, sizeof(header->boot)) == 0));
}

/* An open file of the cache with a header that is right for @version; -ENOENT. */
static int cache_file_open(struct sbx_cache *cache, const struct sbx_version *version, int *ret_fd,
			   struct cache_header *ret_header)
{
	char name[NAME_CHARS + 1];
	struct stat st;
	int fd;

	if (!cache->on_disk)
		return -ENOENT;
	cache_name(cache, version, name);
	fd = openat(cache->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -ENOENT;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (uint64_t)st.st_size != SBX_CACHE_DATA + version->size_bytes ||
	    pread(fd, ret_header, sizeof(*ret_header), 0) != sizeof(*ret_header) ||
	    !header_is_for(cache, ret_header, version)) {
		unlinkat(cache->dirfd, name, 0);
		close(fd);
		return -ENOENT;
	}
	/* Its modification time tells when it was last used. */
	(void)futimens(fd, NULL);
	*ret_fd = fd;
	return 0;
}

int sbx_cache_open(struct sbx_cache *cache, const struct sbx_version *version, int *ret_fd)
{
	struct cache_header header;

	return cache_file_open(cache, version, ret_fd, &header);
}

static struct sbx_blob *cache_file_read(struct sbx_cache *cache, const struct sbx_version *version)
{
	size_t len = (size_t)version->size_bytes;
	struct cache_header header;
	struct sbx_blob *blob;
	int fd;

	if (cache_file_open(cache, version, &fd, &header) < 0)
		return NULL;
	blob = sbx_blob_new(len);
	if (blob && (pread(fd, blob->data, len, SBX_CACHE_DATA) != (ssize_t)len ||
		     !header.has_data_checksum ||
		     header.data_checksum != (uint32_t)crc32(0, blob->data, (uInt)len))) {
		sbx_blob_unref(blob);
		blob = NULL;
	}
	close(fd);
	return blob;
}

/* Somebody has deleted the cache: a file without a name elsewhere serves as well for now. */
static int part_nowhere(struct sbx_cache_part *ret_part)
{
	int fd = open(g_get_tmp_dir(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	*ret_part = (struct sbx_cache_part){ .fd = fd };
	return 0;
}

int sbx_cache_part_new(struct sbx_cache *cache, struct sbx_cache_part *ret_part)
{
	struct sbx_cache_part part;
	uint64_t random;

	for (int tries = 0; tries < 16; tries++) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		g_snprintf(part.name, sizeof(part.name), PART_PREFIX "%016" G_GINT64_MODIFIER "x",
			   random);
		part.fd = openat(cache->dirfd, part.name,
				 O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (part.fd >= 0)
			break;
		if (errno == ENOENT)
			return part_nowhere(ret_part);
		if (errno != EEXIST)
			return -errno;
	}
	if (part.fd < 0)
		return -EEXIST;
	/* Whoever sweeps between the two removes the name: then it simply can't be kept. */
	(void)flock(part.fd, LOCK_EX | LOCK_NB);
	if (!cache->on_disk) {
		unlinkat(cache->dirfd, part.name, 0);
		part.name[0] = '\0';
	}
	*ret_part = part;
	return 0;
}

void sbx_cache_part_commit(struct sbx_cache *cache, struct sbx_cache_part *part,
			   const struct sbx_version *version)
{
	char name[NAME_CHARS + 1];
	struct cache_header header;

	if (!part->name[0])
		return;
	header_init(cache, version, NULL, &header);
	cache_name(cache, version, name);
	/* Its length tells that it is whole: holes at the end are made real. */
	if (pwrite(part->fd, &header, sizeof(header), 0) != sizeof(header) ||
	    ftruncate(part->fd, (off_t)(SBX_CACHE_DATA + version->size_bytes)) < 0 ||
	    renameat(cache->dirfd, part->name, cache->dirfd, name) < 0)
		return;
	part->name[0] = '\0';
	cache_bound(cache, 0, true);
}

void sbx_cache_part_done(struct sbx_cache *cache, struct sbx_cache_part *part)
{
	if (part->fd < 0)
		return;
	if (part->name[0])
		unlinkat(cache->dirfd, part->name, 0);
	close(part->fd);
	part->fd = -1;
}

static void cache_file_write(struct sbx_cache *cache, const struct sbx_version *version,
			     struct sbx_blob *blob)
{
	char head[SBX_CACHE_DATA] = "";
	struct iovec iov[2] = { { head, sizeof(head) }, { blob->data, blob->len_bytes } };
	char name[NAME_CHARS + 1];
	struct cache_header header;
	struct sbx_cache_part part;

	header_init(cache, version, blob->data, &header);
	memcpy(head, &header, sizeof(header));
	if (sbx_cache_part_new(cache, &part) < 0)
		return;
	cache_name(cache, version, name);
	if (pwritev(part.fd, iov, 2, 0) == (ssize_t)(sizeof(head) + blob->len_bytes) &&
	    renameat(cache->dirfd, part.name, cache->dirfd, name) == 0)
		part.name[0] = '\0';
	sbx_cache_part_done(cache, &part);
	sbx_cache_grew(cache, sizeof(head) + blob->len_bytes);
}

/* Small contents ------------------------------------------------------------------------------- */

static void memory_put_locked(struct sbx_cache *cache, const struct sbx_version *version,
			      struct sbx_blob *blob)
{
	struct cache_entry *entry = g_hash_table_lookup(cache->entries, version);

	if (entry)
		return;
	entry = g_new0(struct cache_entry, 1);
	entry->version = *version;
	entry->blob = sbx_blob_ref(blob);
	entry->link.data = entry;
	g_queue_push_head_link(&cache->recent, &entry->link);
	g_hash_table_insert(cache->entries, &entry->version, entry);
	cache->memory_bytes += version->size_bytes;
	while (cache->memory_bytes > MEMORY_BYTES) {
		entry = cache->recent.tail->data;
		g_queue_unlink(&cache->recent, &entry->link);
		cache->memory_bytes -= entry->version.size_bytes;
		g_hash_table_remove(cache->entries, &entry->version);
	}
}

static struct sbx_blob *memory_get_locked(struct sbx_cache *cache,
					  const struct sbx_version *version)
{
	struct cache_entry *entry = g_hash_table_lookup(cache->entries, version);

	if (!entry)
		return NULL;
	g_queue_unlink(&cache->recent, &entry->link);
	g_queue_push_head_link(&cache->recent, &entry->link);
	return sbx_blob_ref(entry->blob);
}

struct sbx_blob *sbx_cache_get(struct sbx_cache *cache, const struct sbx_version *version)
{
	struct sbx_blob *blob;

	if (version->size_bytes > SBX_SMALL_BYTES)
		return NULL;
	pthread_mutex_lock(&cache->lock);
	blob = memory_get_locked(cache, version);
	pthread_mutex_unlock(&cache->lock);
	if (blob)
		return blob;
	blob = cache_file_read(cache, version);
	if (!blob)
		return NULL;
	pthread_mutex_lock(&cache->lock);
	memory_put_locked(cache, version, blob);
	pthread_mutex_unlock(&cache->lock);
	return blob;
}

/* By the pool: until nothing waits. */
static int cache_write_behind(void *arg)
{
	struct sbx_cache *cache = arg;
	struct cache_entry *entry;

	pthread_mutex_lock(&cache->lock);
	while ((entry = g_queue_pop_head(&cache->unwritten))) {
		cache->unwritten_bytes -= entry->version.size_bytes;
		pthread_mutex_unlock(&cache->lock);
		cache_file_write(cache, &entry->version, entry->blob);
		entry_free(entry);
		pthread_mutex_lock(&cache->lock);
	}
	cache->is_writing = false;
	/* Under the lock: who waits frees the cache. */
	pthread_cond_broadcast(&cache->written);
	pthread_mutex_unlock(&cache->lock);
	return 0;
}

static void unwritten_add_locked(struct sbx_cache *cache, const struct sbx_version *version,
				 struct sbx_blob *blob)
{
	struct cache_entry *entry;

	if (cache->unwritten_bytes + version->size_bytes > UNWRITTEN_BYTES)
		return;
	if (!cache->is_writing)
		cache->is_writing =
			sbx_task_start(cache->pool, cache_write_behind, cache, NULL, NULL) == 0;
	if (!cache->is_writing)
		return;
	entry = g_new0(struct cache_entry, 1);
	entry->version = *version;
	entry->blob = sbx_blob_ref(blob);
	g_queue_push_tail(&cache->unwritten, entry);
	cache->unwritten_bytes += version->size_bytes;
}

void sbx_cache_put(struct sbx_cache *cache, const struct sbx_version *version,
		   struct sbx_blob *blob)
{
	if (version->size_bytes > SBX_SMALL_BYTES || blob->len_bytes != version->size_bytes)
		return;
	pthread_mutex_lock(&cache->lock);
	memory_put_locked(cache, version, blob);
	if (cache->on_disk)
		unwritten_add_locked(cache, version, blob);
	pthread_mutex_unlock(&cache->lock);
}

bool sbx_cache_has(struct sbx_cache *cache, const struct sbx_version *version)
{
	char name[NAME_CHARS + 1];
	bool has;

	pthread_mutex_lock(&cache->lock);
	has = g_hash_table_contains(cache->entries, version);
	pthread_mutex_unlock(&cache->lock);
	if (has || !cache->on_disk)
		return has;
	cache_name(cache, version, name);
	return faccessat(cache->dirfd, name, R_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
