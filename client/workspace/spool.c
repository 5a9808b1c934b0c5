#include "client/workspace/spool.h"

#include <errno.h>
#include <fcntl.h>
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

#define SPOOL_SUFFIX	".spool"
#define SPOOL_VERSION	2
#define SPOOL_LOG_START ((uint64_t)2 * SBX_SPOOL_SLOT)
#define SPOOL_PATH_MAX	4096
#define SPOOL_TAG_MAX	256
#define RECORD_MAGIC	0x52584253u /* "SBXR" */
/* A log is written anew when it holds this much garbage, and more garbage than bytes. */
#define SPOOL_GARBAGE_MAX ((uint64_t)32 << 20)

static const char spool_magic[8] = "SBXSPOOL";

/* In the file in the machine's own byte order: a spool does not leave its machine. */
struct spool_slot {
	char magic[8];
	uint32_t version;
	uint32_t checksum; /* of the slot up to the end of path, this field 0 */
	uint64_t sequence;
	uint64_t nonce;
	uint32_t kind;
	uint32_t flags;
	uint32_t mode;
	uint32_t tag_len;
	uint32_t path_len;
	uint32_t reserved;
	int64_t atime_ns;
	int64_t mtime_ns;
	struct sbx_version base;
	int64_t begun_ns;
	char attempt_id[SBX_ATTEMPT_ID_CHARS + 8];
	uint64_t attempt_end;
	int64_t attempt_ns;
	uint64_t attempt_size_bytes;
	char text[SPOOL_TAG_MAX + SPOOL_PATH_MAX]; /* tag, then path */
};
_Static_assert(sizeof(struct spool_slot) <= SBX_SPOOL_SLOT, "a header fits its slot");

enum record_type {
	RECORD_WRITE = 1,
	RECORD_APPEND,
	RECORD_TRUNCATE,
	RECORD_CUT_BASE, /* a compaction: this much of the base is left */
};

struct spool_record {
	uint32_t magic;
	uint32_t type;
	uint64_t sequence; /* counts the records of the log */
	uint64_t offset;
	uint64_t len_bytes;
	uint32_t checksum; /* of the fields above and the file's nonce */
	uint32_t reserved;
};

struct sbx_spool {
	int dirfd;
	int fd;
	char name[40];
	char *tag;
	char *path;
	struct sbx_spool_meta meta;
	uint64_t nonce;
	uint64_t slot_sequence;
	uint64_t record_sequence;
	uint64_t log_end;
	uint64_t log_generation; /* grows when the log is written anew: other positions */
	bool pinned; /* a publish is under way: positions must stay */
	bool broken; /* the end of the log could not be put right after a failed write */
	struct sbx_layout layout;
};

int64_t sbx_spool_now_ns(void)
{
	return g_get_real_time() * 1000;
}

/* Header --------------------------------------------------------------------------------------- */

static uint32_t slot_checksum(const struct spool_slot *slot)
{
	struct spool_slot copy = *slot;

	copy.checksum = 0;
	return (uint32_t)crc32(0, (const Bytef *)&copy, sizeof(copy));
}

static int slot_write(int fd, const char *tag, const char *path, const struct sbx_spool_meta *meta,
		      uint64_t nonce, uint64_t sequence)
{
	struct spool_slot slot = {
		.version = SPOOL_VERSION,
		.sequence = sequence,
		.nonce = nonce,
		.kind = meta->kind,
		.flags = meta->flags,
		.mode = meta->mode,
		.tag_len = (uint32_t)strlen(tag),
		.path_len = (uint32_t)strlen(path),
		.atime_ns = meta->atime_ns,
		.mtime_ns = meta->mtime_ns,
		.base = meta->base,
		.begun_ns = meta->begun_ns,
		.attempt_end = meta->attempt_end,
		.attempt_ns = meta->attempt_ns,
		.attempt_size_bytes = meta->attempt_size_bytes,
	};

	if (slot.tag_len > SPOOL_TAG_MAX || slot.path_len > SPOOL_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(slot.magic, spool_magic, sizeof(slot.magic));
	g_strlcpy(slot.attempt_id, meta->attempt_id, sizeof(slot.attempt_id));
	memcpy(slot.text, tag, slot.tag_len);
	memcpy(slot.text + slot.tag_len, path, slot.path_len);
	slot.checksum = slot_checksum(&slot);
	return sbx_local_write(fd, &slot, sizeof(slot), (sequence & 1) * SBX_SPOOL_SLOT);
}

static bool slot_read(int fd, unsigned int index, struct spool_slot *ret_slot)
{
	struct spool_slot *slot = ret_slot;

	if (sbx_local_read(fd, slot, sizeof(*slot), (uint64_t)index * SBX_SPOOL_SLOT) < 0)
		return false;
	return memcmp(slot->magic, spool_magic, sizeof(slot->magic)) == 0 &&
	       slot->version == SPOOL_VERSION && slot->tag_len <= SPOOL_TAG_MAX &&
	       slot->path_len > 0 && slot->path_len <= SPOOL_PATH_MAX &&
	       (slot->kind == SBX_SPOOL_WHOLE || slot->kind == SBX_SPOOL_PATCH) &&
	       slot->checksum == slot_checksum(slot) &&
	       !memchr(slot->text, '\0', slot->tag_len + slot->path_len);
}

static int spool_header(struct sbx_spool *spool, const char *path,
			const struct sbx_spool_meta *meta)
{
	int r = slot_write(spool->fd, spool->tag, path, meta, spool->nonce,
			   spool->slot_sequence + 1);

	if (r == 0)
		spool->slot_sequence++;
	return r;
}

/* Log ------------------------------------------------------------------------------------------ */

static uint32_t record_checksum(const struct spool_record *record, uint64_t nonce)
{
	uLong sum = crc32(0, (const Bytef *)&nonce, sizeof(nonce));

	return (uint32_t)crc32(sum, (const Bytef *)record, offsetof(struct spool_record, checksum));
}

static void record_init(struct spool_record *record, enum record_type type, uint64_t sequence,
			uint64_t offset, uint64_t len_bytes, uint64_t nonce)
{
	*record = (struct spool_record){
		.magic = RECORD_MAGIC,
		.type = type,
		.sequence = sequence,
		.offset = offset,
		.len_bytes = len_bytes,
	};
	record->checksum = record_checksum(record, nonce);
}

static bool record_has_data(const struct spool_record *record)
{
	return record->type == RECORD_WRITE || record->type == RECORD_APPEND;
}

static void record_play(struct sbx_layout *layout, const struct spool_record *record,
			uint64_t data_pos)
{
	switch ((enum record_type)record->type) {
	case RECORD_WRITE:
		sbx_layout_write(layout, record->offset, record->len_bytes, data_pos);
		break;
	case RECORD_APPEND:
		sbx_layout_append(layout, record->len_bytes, data_pos);
		break;
	case RECORD_TRUNCATE:
		sbx_layout_truncate(layout, record->offset);
		break;
	case RECORD_CUT_BASE:
		layout->base_cut_bytes = MIN(layout->base_cut_bytes, record->offset);
		break;
	}
}

/* One record and its data by one call; nothing of it stays when it does not fit. */
static int spool_log(struct sbx_spool *spool, enum record_type type, uint64_t offset,
		     const void *data, size_t len)
{
	struct spool_record record;
	size_t total = sizeof(record) + len;
	struct iovec iov[2];
	ssize_t n;
	int r = 0;

	if (spool->broken)
		return -EIO;
	if (offset > INT64_MAX || (type == RECORD_WRITE && len > INT64_MAX - offset) ||
	    (type == RECORD_APPEND && len > INT64_MAX - spool->layout.size_bytes))
		return -EFBIG;
	record_init(&record, type, spool->record_sequence, offset, len, spool->nonce);
	iov[0] = (struct iovec){ &record, sizeof(record) };
	iov[1] = (struct iovec){ (void *)data, len };
	do
		n = pwritev(spool->fd, iov, len ? 2 : 1, (off_t)spool->log_end);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		r = -errno;
	else if ((size_t)n < sizeof(record))
		r = -ENOSPC;
	else if ((size_t)n < total)
		r = sbx_local_write(spool->fd, (const char *)data + ((size_t)n - sizeof(record)),
				    total - (size_t)n, spool->log_end + (uint64_t)n);
	if (r < 0) {
		/* What is left behind the end could be taken for a part of what comes later. */
		if (ftruncate(spool->fd, (off_t)spool->log_end) < 0)
			spool->broken = true;
		return r;
	}
	record_play(&spool->layout, &record, spool->log_end + sizeof(record));
	spool->log_end += total;
	spool->record_sequence++;
	return 0;
}

/* Play the records of [pos, end) of the file, the first of them being number *sequence; returns
 * where the last sound one ends. */
static uint64_t spool_play(const struct sbx_spool *spool, struct sbx_layout *layout, uint64_t pos,
			   uint64_t end, uint64_t *sequence)
{
	struct spool_record record;

	while (end - pos >= sizeof(record) &&
	       sbx_local_read(spool->fd, &record, sizeof(record), pos) == 0) {
		uint64_t data = record_has_data(&record) ? record.len_bytes : 0;

		if (record.magic != RECORD_MAGIC || record.sequence != *sequence ||
		    record.type < RECORD_WRITE || record.type > RECORD_CUT_BASE ||
		    record.checksum != record_checksum(&record, spool->nonce) ||
		    data > end - pos - sizeof(record))
			break;
		record_play(layout, &record, pos + sizeof(record));
		(*sequence)++;
		pos += sizeof(record) + data;
	}
	return pos;
}

/* Life ----------------------------------------------------------------------------------------- */

static uint64_t base_size(const struct sbx_spool_meta *meta)
{
	return meta->kind == SBX_SPOOL_PATCH ? meta->base.size_bytes : 0;
}

/* A new locked file with a random name. */
static int spool_new_file(int dirfd, char name[static 40], int *ret_fd)
{
	for (int tries = 0; tries < 16; tries++) {
		uint64_t random[1];
		struct stat st;
		int fd;

		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		g_snprintf(name, 40, "%016" G_GINT64_MODIFIER "x" SPOOL_SUFFIX, random[0]);
		fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			return -errno;
		/* Who adopts may have come between; then it is no longer ours. */
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0) {
			*ret_fd = fd;
			return 0;
		}
		close(fd);
	}
	return -EEXIST;
}

static void spool_free(struct sbx_spool *spool)
{
	if (spool->fd >= 0)
		close(spool->fd);
	sbx_layout_done(&spool->layout);
	g_free(spool->tag);
	g_free(spool->path);
	free(spool);
}

static struct sbx_spool *spool_alloc(int dirfd, const char *tag, const char *path)
{
	struct sbx_spool *spool = calloc(1, sizeof(*spool));

	if (!spool)
		return NULL;
	spool->dirfd = dirfd;
	spool->fd = -1;
	spool->tag = g_strdup(tag);
	spool->path = g_strdup(path);
	spool->log_end = SPOOL_LOG_START;
	return spool;
}

int sbx_spool_create(int dirfd, const char *tag, const char *path,
		     const struct sbx_spool_meta *meta, struct sbx_spool **ret_spool)
{
	struct sbx_spool *spool = spool_alloc(dirfd, tag, path);
	int r;

	if (!spool)
		return -ENOMEM;
	spool->meta = *meta;
	sbx_layout_init(&spool->layout, base_size(meta));
	r = spool_new_file(dirfd, spool->name, &spool->fd);
	if (r < 0)
		goto fail;
	if (getrandom(&spool->nonce, sizeof(spool->nonce), 0) != sizeof(spool->nonce))
		r = -EIO;
	if (r == 0)
		r = spool_header(spool, path, meta);
	if (r < 0) {
		unlinkat(dirfd, spool->name, 0);
		goto fail;
	}
	*ret_spool = spool;
	return 0;
fail:
	spool_free(spool);
	return r;
}

bool sbx_spool_is_name(const char *name)
{
	return name[0] != '.' && g_str_has_suffix(name, SPOOL_SUFFIX) &&
	       strlen(name) < sizeof(((struct sbx_spool *)NULL)->name);
}

/* Nothing was ever written to the slots: a maker that died, or a log that was being written
 * anew. */
static bool spool_is_unbegun(int fd, uint64_t size_bytes)
{
	g_autofree char *head = g_malloc(SPOOL_LOG_START);
	size_t len = MIN(size_bytes, SPOOL_LOG_START);

	if (sbx_local_read(fd, head, len, 0) < 0)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (head[i])
			return false;
	}
	return true;
}

/* The newer sound slot; -EBADMSG: none. */
static int spool_choose_slot(int fd, struct spool_slot *ret_slot)
{
	g_autofree struct spool_slot *other = g_new(struct spool_slot, 1);
	bool has_first = slot_read(fd, 0, ret_slot);
	bool has_second = slot_read(fd, 1, other);

	if (!has_first && !has_second)
		return -EBADMSG;
	if (!has_first || (has_second && other->sequence > ret_slot->sequence))
		*ret_slot = *other;
	return 0;
}

int sbx_spool_adopt(int dirfd, const char *tag, const char *name, struct sbx_spool **ret_spool)
{
	g_autofree struct spool_slot *slot = g_new(struct spool_slot, 1);
	g_autofree char *slot_tag = NULL;
	g_autofree char *slot_path = NULL;
	struct sbx_spool *spool = NULL;
	struct stat st;
	int fd;
	int r;

	fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = errno == EWOULDBLOCK ? -EWOULDBLOCK : -errno;
		goto fail;
	}
	r = -EBADMSG;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		goto fail;
	/* The owner was about to end with it when it was opened. */
	r = -ENOENT;
	if (st.st_nlink == 0)
		goto fail;
	r = -EBADMSG;
	if (spool_choose_slot(fd, slot) < 0) {
		if (spool_is_unbegun(fd, (uint64_t)st.st_size))
			unlinkat(dirfd, name, 0);
		goto fail;
	}
	if (slot->flags & SBX_SPOOL_ORPHAN) {
		unlinkat(dirfd, name, 0);
		goto fail;
	}
	slot_tag = g_strndup(slot->text, slot->tag_len);
	slot_path = g_strndup(slot->text + slot->tag_len, slot->path_len);
	if (strcmp(slot_tag, tag) != 0) {
		r = -EXDEV;
		goto fail;
	}
	spool = spool_alloc(dirfd, tag, slot_path);
	if (!spool) {
		r = -ENOMEM;
		goto fail;
	}
	g_strlcpy(spool->name, name, sizeof(spool->name));
	spool->fd = fd;
	spool->nonce = slot->nonce;
	spool->slot_sequence = slot->sequence;
	spool->meta = (struct sbx_spool_meta){
		.kind = slot->kind,
		.flags = slot->flags,
		.mode = slot->mode & 07777,
		.atime_ns = slot->atime_ns,
		.mtime_ns = slot->mtime_ns,
		.base = slot->base,
		.begun_ns = slot->begun_ns,
		.attempt_end = slot->attempt_end,
		.attempt_ns = slot->attempt_ns,
		.attempt_size_bytes = slot->attempt_size_bytes,
	};
	slot->attempt_id[SBX_ATTEMPT_ID_CHARS] = '\0';
	g_strlcpy(spool->meta.attempt_id, slot->attempt_id, sizeof(spool->meta.attempt_id));
	sbx_layout_init(&spool->layout, base_size(&spool->meta));
	if ((uint64_t)st.st_size > SPOOL_LOG_START)
		spool->log_end = spool_play(spool, &spool->layout, SPOOL_LOG_START,
					    (uint64_t)st.st_size, &spool->record_sequence);
	if ((uint64_t)st.st_size > spool->log_end && ftruncate(fd, (off_t)spool->log_end) < 0)
		spool->broken = true;
	*ret_spool = spool;
	return 0;
fail:
	close(fd);
	return r;
}

void sbx_spool_close(struct sbx_spool *spool)
{
	if (spool)
		spool_free(spool);
}

void sbx_spool_remove(struct sbx_spool *spool)
{
	if (!spool)
		return;
	unlinkat(spool->dirfd, spool->name, 0);
	spool_free(spool);
}

const char *sbx_spool_path(const struct sbx_spool *spool)
{
	return spool->path;
}

const struct sbx_spool_meta *sbx_spool_meta(const struct sbx_spool *spool)
{
	return &spool->meta;
}

const struct sbx_layout *sbx_spool_layout(const struct sbx_spool *spool)
{
	return &spool->layout;
}

int sbx_spool_set_path(struct sbx_spool *spool, const char *path)
{
	int r = spool_header(spool, path, &spool->meta);

	if (r < 0)
		return r;
	g_free(spool->path);
	spool->path = g_strdup(path);
	return 0;
}

int sbx_spool_set_meta(struct sbx_spool *spool, const struct sbx_spool_meta *meta)
{
	int r = spool_header(spool, spool->path, meta);

	if (r == 0)
		spool->meta = *meta;
	return r;
}

/* Writing the log anew ------------------------------------------------------------------------- */

/* A log under construction beside the old one. */
struct spool_copy {
	char name[40];
	int fd;
	uint64_t nonce;
	uint64_t sequence;
	uint64_t end;
	struct sbx_layout layout;
};

static int copy_begin(struct sbx_spool *spool, struct spool_copy *copy,
		      const struct sbx_spool_meta *meta)
{
	int r;

	*copy = (struct spool_copy){ .fd = -1, .end = SPOOL_LOG_START };
	sbx_layout_init(&copy->layout, base_size(meta));
	if (getrandom(&copy->nonce, sizeof(copy->nonce), 0) != sizeof(copy->nonce))
		return -EIO;
	r = spool_new_file(spool->dirfd, copy->name, &copy->fd);
	if (r < 0)
		return r;
	/* Until it is renamed it is not a spool: without a header nobody adopts it. */
	return 0;
}

static int copy_add(struct spool_copy *copy, enum record_type type, uint64_t offset, int from_fd,
		    uint64_t from_pos, uint64_t len)
{
	struct spool_record record;
	int r;

	record_init(&record, type, copy->sequence, offset, len, copy->nonce);
	r = sbx_local_write(copy->fd, &record, sizeof(record), copy->end);
	if (r == 0 && record_has_data(&record))
		r = sbx_local_copy(from_fd, from_pos, copy->fd, copy->end + sizeof(record), len);
	if (r < 0)
		return r;
	record_play(&copy->layout, &record, copy->end + sizeof(record));
	copy->sequence++;
	copy->end += sizeof(record) + (record_has_data(&record) ? len : 0);
	return 0;
}

static void copy_abandon(struct sbx_spool *spool, struct spool_copy *copy)
{
	if (copy->fd >= 0) {
		unlinkat(spool->dirfd, copy->name, 0);
		close(copy->fd);
	}
	sbx_layout_done(&copy->layout);
}

/* The copy takes the spool's place, or nothing has changed. */
static int copy_commit(struct sbx_spool *spool, struct spool_copy *copy,
		       const struct sbx_spool_meta *meta)
{
	int r = slot_write(copy->fd, spool->tag, spool->path, meta, copy->nonce, 0);

	if (r == 0 && renameat(spool->dirfd, copy->name, spool->dirfd, spool->name) < 0)
		r = -errno;
	if (r < 0)
		return r;
	close(spool->fd);
	sbx_layout_done(&spool->layout);
	spool->fd = copy->fd;
	spool->nonce = copy->nonce;
	spool->slot_sequence = 0;
	spool->record_sequence = copy->sequence;
	spool->log_end = copy->end;
	spool->layout = copy->layout;
	spool->meta = *meta;
	spool->log_generation++;
	spool->broken = false;
	return 0;
}

static int spool_compact(struct sbx_spool *spool)
{
	const struct sbx_layout *layout = &spool->layout;
	struct spool_copy copy;
	int r;

	r = copy_begin(spool, &copy, &spool->meta);
	if (r == 0 && layout->base_cut_bytes < layout->base_size_bytes)
		r = copy_add(&copy, RECORD_CUT_BASE, layout->base_cut_bytes, -1, 0, 0);
	if (r == 0 && layout->append_start != SBX_NO_APPEND &&
	    copy.layout.size_bytes != layout->append_start)
		r = copy_add(&copy, RECORD_TRUNCATE, layout->append_start, -1, 0, 0);
	for (unsigned int i = 0; r == 0 && i < layout->extents->len; i++) {
		const struct sbx_extent *extent =
			&g_array_index(layout->extents, struct sbx_extent, i);
		bool is_append = extent->offset >= layout->append_start &&
				 extent->offset == copy.layout.size_bytes;

		r = copy_add(&copy, is_append ? RECORD_APPEND : RECORD_WRITE, extent->offset,
			     spool->fd, extent->log_pos, extent->len_bytes);
	}
	if (r == 0 && copy.layout.size_bytes != layout->size_bytes)
		r = copy_add(&copy, RECORD_TRUNCATE, layout->size_bytes, -1, 0, 0);
	if (r == 0)
		r = copy_commit(spool, &copy, &spool->meta);
	if (r < 0)
		copy_abandon(spool, &copy);
	return r;
}

static bool has_newer_log(const struct sbx_spool *spool, const struct sbx_spool_view *view)
{
	return spool->log_generation != view->log_generation || spool->log_end != view->log_end;
}

/* Flags of what is to be set that @view does not have. Writing sets times: those that are to be set
 * still were set after it. */
static unsigned int newer_flags(const struct sbx_spool *spool, const struct sbx_spool_view *view)
{
	const struct sbx_spool_meta *now = &spool->meta;
	const struct sbx_spool_meta *then = &view->meta;
	bool wrote = has_newer_log(spool, view);
	unsigned int done = 0;

	if (now->mode == then->mode)
		done |= SBX_SPOOL_MODE;
	if (!wrote && now->atime_ns == then->atime_ns)
		done |= SBX_SPOOL_ATIME;
	if (!wrote && now->mtime_ns == then->mtime_ns)
		done |= SBX_SPOOL_MTIME;
	return now->flags & SBX_SPOOL_SET & ~(done & then->flags);
}

int sbx_spool_rebase(struct sbx_spool *spool, const struct sbx_spool_view *view,
		     const struct sbx_spool_meta *meta)
{
	struct sbx_spool_meta now = spool->meta;
	struct sbx_spool_meta next = *meta;
	struct spool_record record;
	uint64_t pos = view->log_end;
	struct spool_copy copy;
	int r;

	if (view->log_generation != spool->log_generation) {
		/* It was restarted meanwhile: all that it holds came later. */
		now.base = meta->base;
		now.flags &= ~(unsigned int)SBX_SPOOL_NEW;
		return sbx_spool_set_meta(spool, &now);
	}
	next.flags = newer_flags(spool, view) | (now.flags & SBX_SPOOL_ORPHAN);
	if (next.flags & SBX_SPOOL_MODE)
		next.mode = now.mode;
	next.atime_ns = now.atime_ns;
	next.mtime_ns = now.mtime_ns;
	r = copy_begin(spool, &copy, &next);
	while (r == 0 && pos < spool->log_end) {
		uint64_t data;

		r = sbx_local_read(spool->fd, &record, sizeof(record), pos);
		if (r < 0)
			break;
		data = record_has_data(&record) ? record.len_bytes : 0;
		r = copy_add(&copy, record.type, record.offset, spool->fd, pos + sizeof(record),
			     record.len_bytes);
		pos += sizeof(record) + data;
	}
	if (r == 0)
		r = copy_commit(spool, &copy, &next);
	if (r < 0)
		copy_abandon(spool, &copy);
	return r;
}

/* Use ------------------------------------------------------------------------------------------ */

static void spool_tidy(struct sbx_spool *spool)
{
	uint64_t garbage = spool->log_end - SPOOL_LOG_START - spool->layout.log_bytes;

	/* A failed attempt leaves the log as it was: nothing but space is lost. */
	if (!spool->pinned && garbage > SPOOL_GARBAGE_MAX && garbage / 2 > spool->layout.log_bytes)
		(void)spool_compact(spool);
}

int sbx_spool_write(struct sbx_spool *spool, const void *buf, size_t len_bytes, uint64_t offset)
{
	int r = len_bytes ? spool_log(spool, RECORD_WRITE, offset, buf, len_bytes) : 0;

	if (r == 0)
		spool_tidy(spool);
	return r;
}

int sbx_spool_append(struct sbx_spool *spool, const void *buf, size_t len_bytes)
{
	return len_bytes ? spool_log(spool, RECORD_APPEND, 0, buf, len_bytes) : 0;
}

int sbx_spool_truncate(struct sbx_spool *spool, uint64_t size_bytes)
{
	return spool_log(spool, RECORD_TRUNCATE, size_bytes, NULL, 0);
}

int sbx_spool_restart(struct sbx_spool *spool, const struct sbx_spool_meta *meta)
{
	struct spool_copy copy;
	int r = copy_begin(spool, &copy, meta);

	if (r == 0)
		r = copy_commit(spool, &copy, meta);
	if (r < 0)
		copy_abandon(spool, &copy);
	return r;
}

int sbx_spool_read(const struct sbx_spool *spool, void *buf, size_t len_bytes, uint64_t log_pos)
{
	return sbx_local_read(spool->fd, buf, len_bytes, log_pos);
}

int sbx_spool_view_read(const struct sbx_spool_view *view, void *buf, size_t len_bytes,
			uint64_t log_pos)
{
	return sbx_local_read(view->fd, buf, len_bytes, log_pos);
}

int sbx_spool_view(struct sbx_spool *spool, struct sbx_spool_view *ret_view)
{
	int fd = fcntl(spool->fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	ret_view->fd = fd;
	ret_view->log_end = spool->log_end;
	ret_view->log_generation = spool->log_generation;
	ret_view->meta = spool->meta;
	sbx_layout_copy(&spool->layout, &ret_view->layout);
	spool->pinned = true;
	return 0;
}

int sbx_spool_view_until(struct sbx_spool *spool, uint64_t log_end, struct sbx_spool_view *ret_view)
{
	uint64_t sequence = 0;
	int r = sbx_spool_view(spool, ret_view);

	if (r < 0 || log_end == spool->log_end)
		return r;
	sbx_layout_done(&ret_view->layout);
	sbx_layout_init(&ret_view->layout, base_size(&spool->meta));
	ret_view->log_end = log_end;
	if (spool_play(spool, &ret_view->layout, SPOOL_LOG_START, log_end, &sequence) == log_end)
		return 0;
	sbx_spool_view_done(ret_view);
	return -EBADMSG;
}

void sbx_spool_unpin(struct sbx_spool *spool)
{
	spool->pinned = false;
}

bool sbx_spool_pin_until_attempt(struct sbx_spool *spool)
{
	spool->pinned = true;
	return spool->log_end > spool->meta.attempt_end;
}

bool sbx_spool_is_newer(const struct sbx_spool *spool, const struct sbx_spool_view *view)
{
	return has_newer_log(spool, view) || newer_flags(spool, view) != 0;
}

void sbx_spool_view_done(struct sbx_spool_view *view)
{
	if (view->fd >= 0)
		close(view->fd);
	view->fd = -1;
	sbx_layout_done(&view->layout);
}
