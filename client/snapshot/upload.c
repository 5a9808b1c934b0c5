#include "client/snapshot/upload.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/snapshot/receipt.h"

#define COPY_BYTES (256 * 1024)

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

static int write_files(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
		       struct archive *in, struct archive *out, const struct sbx_call *call,
		       GHashTable *staged)
{
	g_autoptr(GHashTable) map = map_members(receipt, archive);
	g_autofree char *buf = g_malloc(COPY_BYTES);
	struct archive_entry *header;
	unsigned int index = 0;
	int r = 0;

	for (; r == 0; index++) {
		int got = archive_read_next_header(in, &header);
		const struct sbx_receipt_entry *entry;
		g_autofree char *target = NULL;

		if (got == ARCHIVE_EOF)
			break;
		if (got < ARCHIVE_WARN)
			return -EIO;
		/* The same archive was listed before: its headers come in the same order. */
		entry = g_hash_table_lookup(map, GUINT_TO_POINTER(index));
		if (!entry)
			continue;
		if (sbx_upload_path_is_plain(entry->path)) {
			target = g_strdup(entry->path);
		} else {
			target = g_strdup_printf(SBX_STAGE_DIR "/hydrate-%08x-%u", g_random_int(),
						 index);
			g_hash_table_insert(staged, g_strdup(entry->path), g_strdup(target));
		}
		/* Its own mode comes last: until then it has to be read and moved. */
		r = write_header(out, target, S_IFREG, entry->mode | 0600, entry->size);
		if (r == 0)
			r = copy_content(in, out, buf, call);
	}
	return r;
}

int sbx_upload_write(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
		     int in_fd, int out_fd, const struct sbx_call *call, GHashTable **ret_staged)
{
	GHashTable *staged = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	struct archive *in = archive_read_new();
	struct archive *out = archive_write_new();
	int r = 0;

	archive_read_support_format_tar(in);
	archive_read_set_options(in, "hdrcharset=BINARY");
	archive_write_set_format_pax_restricted(out);
	archive_write_set_options(out, "hdrcharset=BINARY");
	if (lseek(in_fd, 0, SEEK_SET) < 0 ||
	    archive_read_open_fd(in, in_fd, COPY_BYTES) != ARCHIVE_OK ||
	    archive_write_open_fd(out, out_fd) != ARCHIVE_OK)
		r = -EIO;
	if (r == 0)
		r = write_directories(receipt, out);
	if (r == 0)
		r = write_files(receipt, archive, in, out, call, staged);
	if (r == 0 && archive_write_close(out) != ARCHIVE_OK)
		r = archive_errno(out) ? -archive_errno(out) : -EIO;
	archive_write_free(out);
	archive_read_free(in);
	if (r < 0) {
		g_hash_table_unref(staged);
		return r;
	}
	*ret_staged = staged;
	return 0;
}
