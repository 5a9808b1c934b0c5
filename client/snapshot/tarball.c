#include "client/snapshot/tarball.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"
#include "client/record.h"

#define READ_BYTES     (256 * 1024)
#define PROGRESS_BYTES (16u << 20)
#define PATH_BYTES_MAX 4095
#define NAME_BYTES_MAX 255
#define SPARSE_FACTOR  1000
#define SPARSE_BYTES   ((uint64_t)1 << 30)

void sbx_tar_limits_init(struct sbx_tar_limits *limits)
{
	limits->max_members = 500000;
	limits->max_bytes = (uint64_t)64 << 30;
	limits->skip_special = false;
}

static void member_free(void *arg)
{
	struct sbx_tar_member *member = arg;

	g_free(member->path);
	g_free(member->link);
	g_free(member);
}

void sbx_tar_list_free(struct sbx_tar_list *list)
{
	if (!list)
		return;
	g_hash_table_destroy(list->by_path);
	g_ptr_array_unref(list->members);
	g_free(list);
}

const struct sbx_tar_member *sbx_tar_find(const struct sbx_tar_list *list, const char *path)
{
	return g_hash_table_lookup(list->by_path, path);
}

/* The path with a leading "./" and trailing slashes taken off; NULL: it has no form we take. */
static char *member_path(const char *name)
{
	size_t len, begin = 0;

	if (!name)
		return NULL;
	while (name[0] == '.' && name[1] == '/')
		name += 2;
	len = strlen(name);
	while (len && name[len - 1] == '/')
		len--;
	if (!len || len > PATH_BYTES_MAX || name[0] == '/')
		return NULL;
	for (size_t i = 0; i <= len; i++) {
		size_t n = i - begin;

		if (i < len && name[i] != '/')
			continue;
		if (!n || n > NAME_BYTES_MAX || (n == 1 && name[begin] == '.') ||
		    (n == 2 && name[begin] == '.' && name[begin + 1] == '.'))
			return NULL;
		begin = i + 1;
	}
	return g_strndup(name, len);
}

/* No member may lie below one that is not a directory: it would be written through a link. */
static bool parents_are_directories(const struct sbx_tar_list *list, const char *path)
{
	g_autofree char *parent = g_strdup(path);
	char *slash;

	while ((slash = strrchr(parent, '/'))) {
		const struct sbx_tar_member *above;

		*slash = '\0';
		above = sbx_tar_find(list, parent);
		if (above)
			return S_ISDIR(above->type) && parents_are_directories(list, parent);
	}
	return true;
}

static char *complain(const char *path, const char *what)
{
	char safe[256];

	sbx_text_escape(safe, sizeof(safe), path, strlen(path));
	return g_strdup_printf("member \"%s\": %s", safe, what);
}

/* What an entry's header says, checked. *ret_member NULL: an entry that means nothing. */
static int member_new(struct sbx_tar_list *list, struct archive_entry *entry,
		      const struct sbx_tar_limits *limits, struct sbx_tar_member **ret_member,
		      char **ret_message)
{
	const char *name = archive_entry_pathname(entry);
	const char *hardlink = archive_entry_hardlink(entry);
	g_autofree char *path = NULL;
	g_autofree char *link = NULL;
	struct sbx_tar_member *member;
	mode_t type = archive_entry_filetype(entry);
	int64_t size = archive_entry_size(entry);

	if (name && (!strcmp(name, ".") || !strcmp(name, "./"))) {
		*ret_member = NULL;
		return 0;
	}
	path = member_path(name);
	if (!path) {
		*ret_message = complain(name ? name : "", "a name that leads out, or none");
		return -EINVAL;
	}
	if (hardlink) {
		const struct sbx_tar_member *first;

		link = member_path(hardlink);
		first = link ? sbx_tar_find(list, link) : NULL;
		if (!first || first->type != S_IFREG) {
			*ret_message = complain(path, "a hard link to no file before it");
			return -EINVAL;
		}
		if (first->is_hardlink) {
			g_free(link);
			link = g_strdup(first->link);
		}
		type = S_IFREG;
		size = 0;
	} else if (type == S_IFLNK) {
		const char *text = archive_entry_symlink(entry);

		if (!text || !text[0] || strlen(text) > PATH_BYTES_MAX) {
			*ret_message = complain(path, "a symbolic link without a text");
			return -EINVAL;
		}
		link = g_strdup(text);
		size = 0;
	} else if (type != S_IFREG && type != S_IFDIR) {
		if (limits->skip_special) {
			*ret_member = NULL;
			return 0;
		}
		*ret_message = complain(path, "neither file, directory nor link");
		return -EINVAL;
	}
	if (!parents_are_directories(list, path)) {
		*ret_message = complain(path, "lies below what is no directory");
		return -EINVAL;
	}
	if (type != S_IFDIR && g_hash_table_contains(list->by_path, path) &&
	    S_ISDIR(sbx_tar_find(list, path)->type)) {
		*ret_message = complain(path, "is a directory before");
		return -EINVAL;
	}
	if (size < 0 || (uint64_t)size > limits->max_bytes - MIN(list->bytes, limits->max_bytes)) {
		*ret_message = complain(path, "the archive unpacks to more than is allowed");
		return -E2BIG;
	}
	if (list->members->len >= limits->max_members) {
		*ret_message = g_strdup_printf("more than %zu members", limits->max_members);
		return -E2BIG;
	}
	member = g_new0(struct sbx_tar_member, 1);
	member->path = g_steal_pointer(&path);
	member->link = g_steal_pointer(&link);
	member->type = type;
	member->mode = archive_entry_perm(entry) & 07777;
	member->is_hardlink = hardlink != NULL;
	member->size = S_ISREG(type) ? (uint64_t)size : 0;
	member->mtime_ns =
		sbx_record_time(archive_entry_mtime(entry), archive_entry_mtime_nsec(entry));
	*ret_member = member;
	return 0;
}

struct reading {
	struct archive *archive;
	const struct sbx_call *call;
	void (*progress)(void *arg, uint64_t bytes);
	void *arg;
	uint64_t told;
	char *buf;
};

/* The content of the current entry: hashed, counted, compared with what its header declares. */
static int member_hash(struct reading *reading, struct sbx_tar_member *member, char **ret_message)
{
	g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
	gsize sum_len = sizeof(member->sha256);
	uint64_t bytes = 0;
	la_ssize_t n;

	while ((n = archive_read_data(reading->archive, reading->buf, READ_BYTES)) > 0) {
		uint64_t at = (uint64_t)archive_filter_bytes(reading->archive, -1);
		int r = sbx_call_check(reading->call);

		if (r < 0)
			return r;
		g_checksum_update(sum, (const guchar *)reading->buf, (gssize)n);
		bytes += (uint64_t)n;
		if (reading->progress && at >= reading->told + PROGRESS_BYTES) {
			reading->told = at;
			reading->progress(reading->arg, at);
		}
	}
	if (n < 0 || bytes != member->size) {
		*ret_message = complain(member->path, "its content is cut");
		return -EINVAL;
	}
	g_checksum_get_digest(sum, member->sha256, &sum_len);
	return 0;
}

/* Two blocks of zeros end a tar; an archive that was cut between two members lacks them. */
static int check_end(int fd, char **ret_message)
{
	static const char zeros[1024];
	char tail[1024];
	off_t end = lseek(fd, 0, SEEK_END);

	if (end < 1024 || end % 512 || pread(fd, tail, 1024, end - 1024) != 1024 ||
	    memcmp(tail, zeros, 1024) != 0) {
		*ret_message = g_strdup("the archive is cut: its end is missing");
		return -EINVAL;
	}
	return 0;
}

/* No archive holds more than its size, but for holes. */
static void bound_bytes(int fd, struct sbx_tar_limits *limits)
{
	uint64_t size = (uint64_t)lseek(fd, 0, SEEK_END);

	if (size < limits->max_bytes / SPARSE_FACTOR)
		limits->max_bytes = MIN(limits->max_bytes, size * SPARSE_FACTOR + SPARSE_BYTES);
}

int sbx_tar_read(int fd, const struct sbx_call *call, const struct sbx_tar_limits *limits,
		 void (*progress)(void *arg, uint64_t bytes), void *arg,
		 struct sbx_tar_list **ret_list, char **ret_message)
{
	struct reading reading = { .call = call, .progress = progress, .arg = arg };
	struct sbx_tar_list *list;
	struct archive_entry *entry;
	struct sbx_tar_limits bounds = *limits;
	unsigned int index = 0;
	int r;

	r = check_end(fd, ret_message);
	if (r < 0)
		return r;
	bound_bytes(fd, &bounds);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	list = g_new0(struct sbx_tar_list, 1);
	list->members = g_ptr_array_new_with_free_func(member_free);
	list->by_path = g_hash_table_new(g_str_hash, g_str_equal);
	reading.buf = g_malloc(READ_BYTES);
	reading.archive = archive_read_new();
	archive_read_support_format_tar(reading.archive);
	archive_read_set_options(reading.archive, "hdrcharset=BINARY");
	if (archive_read_open_fd(reading.archive, fd, READ_BYTES) != ARCHIVE_OK) {
		*ret_message = g_strdup("not a tar archive");
		r = -EINVAL;
	}
	while (r == 0) {
		struct sbx_tar_member *member = NULL;
		int got = archive_read_next_header(reading.archive, &entry);

		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
			const char *why = archive_error_string(reading.archive);
			char safe[256];

			sbx_text_escape(safe, sizeof(safe), why ? why : "", why ? strlen(why) : 0);
			*ret_message = g_strdup_printf("the archive is damaged: %s", safe);
			r = -EINVAL;
			break;
		}
		r = sbx_call_check(call);
		if (r == 0)
			r = member_new(list, entry, &bounds, &member, ret_message);
		index++;
		if (r < 0 || !member)
			continue;
		member->index = index - 1;
		g_ptr_array_add(list->members, member);
		g_hash_table_replace(list->by_path, member->path, member);
		list->bytes += member->size;
		if (member->type == S_IFREG && !member->is_hardlink)
			r = member_hash(&reading, member, ret_message);
	}
	archive_read_free(reading.archive);
	g_free(reading.buf);
	if (r < 0) {
		sbx_tar_list_free(list);
		return r;
	}
	*ret_list = list;
	return 0;
}
