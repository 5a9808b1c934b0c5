#include "client/snapshot/upload.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/random.h"
#include "client/snapshot/receipt.h"

#define COPY_BYTES   (256 * 1024)
#define RANDOM_CHARS 16

bool sbx_upload_path_is_plain(const char *path)
{
	if (!g_utf8_validate(path, -1, NULL) || strchr(path, '\\'))
		return false;
	if (g_ascii_isalpha(path[0]) && path[1] == ':')
		return false;
	/* In the root, and anywhere the server normalises what it takes for a parent. */
	return path[0] != '.' || path[1] != '.';
}

static int write_header(struct archive *out, const char *path, mode_t type, mode_t mode,
			uint64_t size)
{
	struct archive_entry *entry = archive_entry_new();
	int r;

	archive_entry_copy_pathname(entry, path);
	archive_entry_set_filetype(entry, type);
	archive_entry_set_perm(entry, mode & 0777);
	archive_entry_set_size(entry, (int64_t)size);
	archive_entry_set_mtime(entry, 0, 0);
	r = archive_write_header(out, entry) < ARCHIVE_WARN ? -EIO : 0;
	archive_entry_free(entry);
	return r;
}

static int copy_content(struct archive *in, struct archive *out, char *buf,
			const struct sbx_call *call)
{
	la_ssize_t n;

	while ((n = archive_read_data(in, buf, COPY_BYTES)) > 0) {
		int r = sbx_call_check(call);

		if (r < 0)
			return r;
		if (archive_write_data(out, buf, (size_t)n) != n)
			return archive_errno(out) ? -archive_errno(out) : -EIO;
	}
	return n < 0 ? -EIO : 0;
}

/* Which entry the content behind each of the archive's headers is for. */
static GHashTable *map_members(const struct sbx_receipt *receipt,
			       const struct sbx_tar_list *archive)
{
	GHashTable *map = g_hash_table_new(g_direct_hash, g_direct_equal);

	for (guint i = 0; i < receipt->entries->len; i++) {
		struct sbx_receipt_entry *entry = g_ptr_array_index(receipt->entries, i);
		const struct sbx_tar_member *member;

		if (!S_ISREG(entry->mode) || entry->missing || entry->same_as)
			continue;
		member = sbx_tar_find(archive, entry->member ? entry->member : entry->path);
		if (member && member->is_hardlink)
			member = sbx_tar_find(archive, member->link);
		if (member)
			g_hash_table_insert(map, GUINT_TO_POINTER(member->index), entry);
	}
	return map;
}

struct sbx_upload {
	const struct sbx_receipt *receipt;
	GHashTable *map; /* of map_members() */
	GHashTable *staged;
	struct archive *in;
	struct archive_entry *header; /* read, and of the next part; NULL: read another */
	unsigned int index; /* of the header that is read next */
	uint64_t part_bytes;
	bool begun;
	char *buf;
};

int sbx_upload_new(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive, int in_fd,
		   uint64_t part_bytes, struct sbx_upload **ret_upload)
{
	struct sbx_upload *upload = g_new0(struct sbx_upload, 1);

	upload->receipt = receipt;
	upload->part_bytes = part_bytes;
	upload->map = map_members(receipt, archive);
	upload->staged = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	upload->buf = g_malloc(COPY_BYTES);
	upload->in = archive_read_new();
	archive_read_support_format_tar(upload->in);
	archive_read_set_options(upload->in, "hdrcharset=BINARY");
	if (lseek(in_fd, 0, SEEK_SET) < 0 ||
	    archive_read_open_fd(upload->in, in_fd, COPY_BYTES) != ARCHIVE_OK) {
		sbx_upload_free(upload);
		return -EIO;
	}
	*ret_upload = upload;
	return 0;
}

void sbx_upload_free(struct sbx_upload *upload)
{
	if (!upload)
		return;
	archive_read_free(upload->in);
	g_hash_table_unref(upload->map);
	g_hash_table_unref(upload->staged);
	g_free(upload->buf);
	g_free(upload);
}

GHashTable *sbx_upload_staged(struct sbx_upload *upload)
{
	return upload->staged;
}

static int write_directories(const struct sbx_receipt *receipt, struct archive *out)
{
	int r = 0;

	for (guint i = 0; r == 0 && i < receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry = g_ptr_array_index(receipt->entries, i);
		g_autofree char *path = NULL;

		if (!S_ISDIR(entry->mode) || !sbx_upload_path_is_plain(entry->path))
			continue;
		path = g_strdup_printf("%s/", entry->path);
		r = write_header(out, path, S_IFDIR, 0755, 0);
	}
	return r;
}

/* The next file that is wanted; *ret_entry NULL: there is none. */
static int next_file(struct sbx_upload *upload, const struct sbx_receipt_entry **ret_entry)
{
	*ret_entry = NULL;
	while (!*ret_entry) {
		if (!upload->header) {
			int got = archive_read_next_header(upload->in, &upload->header);

			if (got == ARCHIVE_EOF)
				return 0;
			if (got < ARCHIVE_WARN)
				return -EIO;
			upload->index++;
		}
		/* The same archive was listed before: its headers come in the same order. */
		*ret_entry = g_hash_table_lookup(upload->map, GUINT_TO_POINTER(upload->index - 1));
		if (!*ret_entry)
			upload->header = NULL;
	}
	return 0;
}

static int write_file(struct sbx_upload *upload, const struct sbx_call *call, struct archive *out,
		      const struct sbx_receipt_entry *entry)
{
	g_autofree char *target = NULL;
	int r;

	if (sbx_upload_path_is_plain(entry->path)) {
		target = g_strdup(entry->path);
	} else {
		char random[RANDOM_CHARS + 1];

		sbx_random_hex(random, RANDOM_CHARS);
		target = g_strdup_printf(SBX_STAGE_DIR "/hydrate-%s", random);
		g_hash_table_insert(upload->staged, g_strdup(entry->path), g_strdup(target));
	}
	/* Its own mode comes last: until then it has to be read and moved. */
	r = write_header(out, target, S_IFREG, entry->mode | 0600, entry->size);
	if (r == 0)
		r = copy_content(upload->in, out, upload->buf, call);
	upload->header = NULL;
	return r;
}

int sbx_upload_next(struct sbx_upload *upload, const struct sbx_call *call, int out_fd,
		    bool *ret_more)
{
	struct archive *out = archive_write_new();
	const struct sbx_receipt_entry *entry = NULL;
	uint64_t bytes = 0;
	int r = 0;

	archive_write_set_format_pax_restricted(out);
	archive_write_set_options(out, "hdrcharset=BINARY");
	if (archive_write_open_fd(out, out_fd) != ARCHIVE_OK)
		r = -EIO;
	if (r == 0 && !upload->begun)
		r = write_directories(upload->receipt, out);
	upload->begun = true;
	while (r == 0) {
		r = next_file(upload, &entry);
		if (r < 0 || !entry || (bytes > 0 && bytes + entry->size > upload->part_bytes))
			break;
		bytes += MAX(entry->size, 1);
		r = write_file(upload, call, out, entry);
	}
	if (r == 0 && archive_write_close(out) != ARCHIVE_OK)
		r = archive_errno(out) ? -archive_errno(out) : -EIO;
	archive_write_free(out);
	if (r == 0)
		*ret_more = entry != NULL;
	return r;
}
