#include "client/snapshot/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/call.h"
#include "client/json.h"
#include "client/name.h"
#include "client/snapshot/receipt.h"
#include "client/statedir.h"

#define RECEIPT_BYTES_MAX (1u << 30)
/* The head of a receipt, where it says whether it is verified. */
#define RECEIPT_HEAD_BYTES 2048

bool sbx_snapshot_name_is_valid(const char *name)
{
	return sbx_name_valid(name);
}

/* "x" of "x.tar" or "x.json"; NULL: another name. */
static char *snapshot_of_file(const char *file, bool *ret_is_archive)
{
	bool is_archive = g_str_has_suffix(file, ".tar");
	g_autofree char *name = NULL;

	if (!is_archive && !g_str_has_suffix(file, ".json"))
		return NULL;
	name = g_strndup(file, strlen(file) - (is_archive ? 4 : 5));
	if (!sbx_snapshot_name_is_valid(name))
		return NULL;
	*ret_is_archive = is_archive;
	return g_steal_pointer(&name);
}

/* The directory of a session's snapshots. -ENOENT: there is none. */
static int snapshots_opendir(struct sbx_statedir *dir, const char *session_name)
{
	g_autofree char *relative = g_strdup_printf("snapshots/%s", session_name);
	int fd;

	if (!sbx_snapshot_name_is_valid(session_name))
		return -ENOENT;
	fd = openat(sbx_statedir_fd(dir), relative,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The same, made where it is missing. */
static int snapshots_makedir(struct sbx_statedir *dir, const char *session_name)
{
	g_autofree char *relative = g_strdup_printf("snapshots/%s", session_name);

	if (!sbx_snapshot_name_is_valid(session_name))
		return -EINVAL;
	return sbx_statedir_opendir(dir, relative);
}

int sbx_snapshots_make(struct sbx_statedir *dir, const char *session_name)
{
	int fd = snapshots_makedir(dir, session_name);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int sbx_snapshots_unmake(struct sbx_statedir *dir, const char *session_name)
{
	g_autofree char *relative = g_strdup_printf("snapshots/%s", session_name);
	g_auto(GStrv) files = NULL;
	int r = sbx_snapshots_files(dir, session_name, &files);

	if (r < 0)
		return r;
	if (files[0])
		return -ENOTEMPTY;
	/* What a mount that was killed has left goes with it. */
	return sbx_statedir_remove_tree(dir, relative);
}

static void info_free(void *arg)
{
	struct sbx_snapshot_info *info = arg;

	g_free(info->name);
	g_free(info);
}

static int info_compare(const void *a, const void *b)
{
	const struct sbx_snapshot_info *x = *(struct sbx_snapshot_info *const *)a;
	const struct sbx_snapshot_info *y = *(struct sbx_snapshot_info *const *)b;

	if (x->mtime_ns != y->mtime_ns)
		return x->mtime_ns > y->mtime_ns ? -1 : 1;
	return strcmp(y->name, x->name);
}

static bool receipt_is_verified(int dirfd, const char *file)
{
	char head[RECEIPT_HEAD_BYTES + 1];
	int fd = openat(dirfd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, head, RECEIPT_HEAD_BYTES);
	close(fd);
	if (n <= 0)
		return false;
	head[n] = '\0';
	return strstr(head, "\"verified\":true") != NULL;
}

int sbx_snapshots_list(struct sbx_statedir *dir, const char *session_name, GPtrArray **ret_infos)
{
	int fd = snapshots_opendir(dir, session_name);
	GPtrArray *infos;
	struct dirent *e;
	DIR *d;

	if (fd == -ENOENT) {
		*ret_infos = g_ptr_array_new_with_free_func(info_free);
		return 0;
	}
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	infos = g_ptr_array_new_with_free_func(info_free);
	while ((e = readdir(d))) {
		struct sbx_snapshot_info *info;
		g_autofree char *receipt = NULL;
		struct stat st;
		bool is_archive = false;
		char *name = snapshot_of_file(e->d_name, &is_archive);

		if (!name || !is_archive || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode)) {
			g_free(name);
			continue;
		}
		info = g_new0(struct sbx_snapshot_info, 1);
		info->name = name;
		info->archive_bytes = (uint64_t)st.st_size;
		info->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
		receipt = g_strdup_printf("%s.json", name);
		if (fstatat(fd, receipt, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
			info->receipt_bytes = (uint64_t)st.st_size;
			info->verified = receipt_is_verified(fd, receipt);
		}
		g_ptr_array_add(infos, info);
	}
	closedir(d);
	g_ptr_array_sort(infos, info_compare);
	*ret_infos = infos;
	return 0;
}

int sbx_snapshots_files(struct sbx_statedir *dir, const char *session_name, char ***ret_files)
{
	GPtrArray *files = g_ptr_array_new();
	int fd = snapshots_opendir(dir, session_name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	bool is_archive;

	while (d && (e = readdir(d))) {
		g_autofree char *name = snapshot_of_file(e->d_name, &is_archive);

		if (name)
			g_ptr_array_add(files, g_strdup(e->d_name));
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	g_ptr_array_sort(files, sbx_name_compare);
	g_ptr_array_add(files, NULL);
	*ret_files = (char **)g_ptr_array_free(files, FALSE);
	return 0;
}

char **sbx_snapshots_sessions(struct sbx_statedir *dir)
{
	GPtrArray *names = g_ptr_array_new();
	int fd = sbx_statedir_opendir(dir, "snapshots");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (g_ascii_isalnum(e->d_name[0]))
			g_ptr_array_add(names, g_strdup(e->d_name));
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	g_ptr_array_sort(names, sbx_name_compare);
	g_ptr_array_add(names, NULL);
	return (char **)g_ptr_array_free(names, FALSE);
}

int sbx_snapshots_open(struct sbx_statedir *dir, const char *session_name, const char *file)
{
	bool is_archive;
	g_autofree char *name = snapshot_of_file(file, &is_archive);
	int dirfd, fd;

	if (!name)
		return -ENOENT;
	dirfd = snapshots_opendir(dir, session_name);
	if (dirfd < 0)
		return dirfd;
	fd = openat(dirfd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	close(dirfd);
	return fd;
}

int sbx_snapshots_remove(struct sbx_statedir *dir, const char *session_name, const char *file)
{
	bool is_archive;
	g_autofree char *name = snapshot_of_file(file, &is_archive);
	g_autofree char *receipt = NULL;
	int dirfd, r = 0;

	if (!name)
		return -ENOENT;
	dirfd = snapshots_opendir(dir, session_name);
	if (dirfd < 0)
		return dirfd;
	if (unlinkat(dirfd, file, 0) < 0)
		r = -errno;
	receipt = g_strdup_printf("%s.json", name);
	if (r == 0 && is_archive)
		(void)unlinkat(dirfd, receipt, 0);
	close(dirfd);
	return r;
}

int sbx_snapshots_save_receipt(struct sbx_statedir *dir, const char *session_name,
			       const struct sbx_receipt *receipt)
{
	g_autofree char *file = g_strdup_printf("%s.json", receipt->snapshot);
	char *text = sbx_receipt_print(receipt);
	int dirfd, r;

	if (!text)
		return -ENOMEM;
	dirfd = snapshots_makedir(dir, session_name);
	r = dirfd < 0 ? dirfd : sbx_statedir_replace(dirfd, file, text, strlen(text));
	if (dirfd >= 0)
		close(dirfd);
	g_free(text);
	return r;
}

int sbx_snapshots_newest_verified(struct sbx_statedir *dir, const char *session_name,
				  char **ret_name)
{
	g_autoptr(GPtrArray) infos = NULL;
	int r = sbx_snapshots_list(dir, session_name, &infos);

	if (r < 0)
		return r;
	for (guint i = 0; i < infos->len; i++) {
		const struct sbx_snapshot_info *info = g_ptr_array_index(infos, i);

		if (info->verified) {
			*ret_name = g_strdup(info->name);
			return 0;
		}
	}
	return -ENODATA;
}

/* SHA-256 of a whole file. */
static int hash_file(int fd, const struct sbx_call *call, uint8_t sum[SBX_SHA256_BYTES])
{
	g_autoptr(GChecksum) checksum = g_checksum_new(G_CHECKSUM_SHA256);
	g_autofree guchar *buf = g_malloc(1 << 20);
	gsize len = SBX_SHA256_BYTES;
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, buf, 1 << 20, at)) > 0) {
		int r = sbx_call_check(call);

		if (r < 0)
			return r;
		g_checksum_update(checksum, buf, n);
		at += n;
	}
	if (n < 0)
		return -errno;
	g_checksum_get_digest(checksum, sum, &len);
	return 0;
}

/* -EINVAL with a message: it is no receipt. */
static int receipt_read(int dirfd, const char *file, struct sbx_receipt **ret_receipt,
			char **ret_message)
{
	g_autofree char *text = NULL;
	size_t len;
	int r = sbx_statedir_read(dirfd, file, RECEIPT_BYTES_MAX, &text, &len);

	if (r == 0)
		r = sbx_receipt_parse(text, len, ret_receipt);
	if (r != -EBADMSG)
		return r;
	*ret_message = g_strdup_printf("%s is no receipt", file);
	return -EINVAL;
}

static int receipt_load(int dirfd, const char *name, struct sbx_receipt **ret_receipt,
			char **ret_message)
{
	g_autofree char *file = g_strdup_printf("%s.json", name);

	return receipt_read(dirfd, file, ret_receipt, ret_message);
}

int sbx_snapshots_receipt(struct sbx_statedir *dir, const char *session_name, const char *name,
			  struct sbx_receipt **ret_receipt, char **ret_message)
{
	int dirfd, r;

	if (!sbx_snapshot_name_is_valid(name))
		return -EINVAL;
	dirfd = snapshots_opendir(dir, session_name);
	if (dirfd < 0)
		return dirfd;
	r = receipt_load(dirfd, name, ret_receipt, ret_message);
	close(dirfd);
	return r;
}

static struct sbx_receipt *receipt_of_archive(const char *name, const struct sbx_tar_list *archive)
{
	struct sbx_receipt *receipt = sbx_receipt_new();
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();

	receipt->snapshot = g_strdup(name);
	receipt->session = g_strdup("");
	receipt->created = g_date_time_format(now, "%Y-%m-%dT%H:%M:%SZ");
	receipt->how = g_strdup("import");
	receipt->verified = true;
	sbx_receipt_fill(receipt, archive, NULL, NULL);
	return receipt;
}

/* Does the archive hold what the receipt promises? */
static int receipt_check(const struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
			 char **ret_message)
{
	for (guint i = 0; i < receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry = g_ptr_array_index(receipt->entries, i);
		const struct sbx_tar_member *member;

		if (!S_ISREG(entry->mode) || entry->missing)
			continue;
		member = sbx_tar_find(archive, entry->member ? entry->member : entry->path);
		if (member && member->is_hardlink)
			member = sbx_tar_find(archive, member->link);
		if (!member || member->size != entry->size ||
		    memcmp(member->sha256, entry->sha256, SBX_SHA256_BYTES) != 0) {
			char safe[256];

			sbx_text_escape(safe, sizeof(safe), entry->path, strlen(entry->path));
			*ret_message = g_strdup_printf("the archive does not match its receipt: "
						       "%s",
						       safe);
			return -EIO;
		}
	}
	return 0;
}

/* Does the archive at @fd match the receipt: as a whole, and file by file? */
static int match_archive(int fd, const struct sbx_receipt *receipt, const struct sbx_call *call,
			 struct sbx_tar_list **ret_archive, char **ret_message)
{
	struct sbx_tar_limits limits;
	uint8_t sum[SBX_SHA256_BYTES];
	int r = receipt ? hash_file(fd, call, sum) : 0;

	if (r == 0 && receipt && memcmp(sum, receipt->archive_sha256, sizeof(sum)) != 0) {
		*ret_message = g_strdup("the archive is damaged: its SHA-256 is not its receipt's");
		r = -EIO;
	}
	if (r < 0)
		return r;
	sbx_tar_limits_init(&limits);
	limits.skip_special = receipt && !strcmp(receipt->how, "exec");
	r = sbx_tar_read(fd, call, &limits, NULL, NULL, ret_archive, ret_message);
	return r < 0 || !receipt ? r : receipt_check(receipt, *ret_archive, ret_message);
}

int sbx_snapshots_load(struct sbx_statedir *dir, const char *session_name, const char *name,
		       const struct sbx_call *call, int *ret_fd, struct sbx_receipt **ret_receipt,
		       struct sbx_tar_list **ret_archive, char **ret_message)
{
	g_autofree char *file = g_strdup_printf("%s.tar", name);
	struct sbx_tar_list *archive = NULL;
	struct sbx_receipt *receipt = NULL;
	int dirfd, fd, r;

	if (!sbx_snapshot_name_is_valid(name))
		return -EINVAL;
	fd = sbx_snapshots_open(dir, session_name, file);
	if (fd < 0)
		return fd;
	dirfd = snapshots_opendir(dir, session_name);
	r = dirfd < 0 ? dirfd : receipt_load(dirfd, name, &receipt, ret_message);
	if (dirfd >= 0)
		close(dirfd);
	if (r == 0 || r == -ENOENT)
		r = match_archive(fd, receipt, call, &archive, ret_message);
	if (r == 0 && !receipt)
		receipt = receipt_of_archive(name, archive);
	if (r < 0) {
		sbx_tar_list_free(archive);
		sbx_receipt_free(receipt);
		close(fd);
		return r;
	}
	*ret_fd = fd;
	*ret_receipt = receipt;
	*ret_archive = archive;
	return 0;
}

/* Import -------------------------------------------------------------------------------------- */

static char *import_name(const char *file)
{
	return g_strdup_printf(".import-%s", file);
}

int sbx_snapshots_import_begin(struct sbx_statedir *dir, const char *session_name, const char *file,
			       int *ret_fd)
{
	bool is_archive;
	g_autofree char *name = snapshot_of_file(file, &is_archive);
	g_autofree char *temporary = import_name(file);
	struct stat st;
	int dirfd, fd, r = 0;

	if (!name)
		return -EINVAL;
	dirfd = snapshots_makedir(dir, session_name);
	if (dirfd < 0)
		return dirfd;
	if (is_archive && fstatat(dirfd, file, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = -EEXIST;
	fd = r < 0 ? r : openat(dirfd, temporary, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 && r == 0)
		r = -errno;
	/* Held while it is written: one that nobody holds was left by a mount that was killed. */
	if (r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -EEXIST : -errno;
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	if (r < 0 && fd >= 0)
		close(fd);
	close(dirfd);
	if (r == 0)
		*ret_fd = fd;
	return r;
}

void sbx_snapshots_import_drop(struct sbx_statedir *dir, const char *session_name, const char *file)
{
	g_autofree char *temporary = import_name(file);
	int dirfd = snapshots_opendir(dir, session_name);

	if (dirfd < 0)
		return;
	(void)unlinkat(dirfd, temporary, 0);
	close(dirfd);
}

/* An archive that comes in alone is verified against itself. */
static int import_archive(struct sbx_statedir *dir, const char *session_name, int dirfd,
			  const char *temporary, const char *name, const struct sbx_call *call,
			  char **ret_message)
{
	struct sbx_tar_list *archive = NULL;
	struct sbx_receipt *receipt = NULL;
	struct stat st;
	int fd, r;

	fd = openat(dirfd, temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = receipt_load(dirfd, name, &receipt, ret_message);
	if (r == 0 || r == -ENOENT)
		r = match_archive(fd, receipt, call, &archive, ret_message);
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r == 0 && !receipt) {
		receipt = receipt_of_archive(name, archive);
		receipt->archive_bytes = (uint64_t)st.st_size;
		r = hash_file(fd, call, receipt->archive_sha256);
		if (r == 0)
			r = sbx_snapshots_save_receipt(dir, session_name, receipt);
	}
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	close(fd);
	sbx_tar_list_free(archive);
	sbx_receipt_free(receipt);
	return r;
}

/* A receipt counts for the archive that is there, or for one that is to come. */
static int import_receipt(int dirfd, const char *temporary, const char *name,
			  const struct sbx_call *call, char **ret_message)
{
	g_autofree char *archive_file = g_strdup_printf("%s.tar", name);
	struct sbx_tar_list *archive = NULL;
	struct sbx_receipt *receipt = NULL;
	int fd, r;

	r = receipt_read(dirfd, temporary, &receipt, ret_message);
	if (r < 0)
		return r;
	fd = openat(dirfd, archive_file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		r = match_archive(fd, receipt, call, &archive, ret_message);
		close(fd);
	} else if (errno != ENOENT) {
		r = -errno;
	}
	sbx_tar_list_free(archive);
	sbx_receipt_free(receipt);
	return r;
}

int sbx_snapshots_import_end(struct sbx_statedir *dir, const char *session_name, const char *file,
			     const struct sbx_call *call, char **ret_message)
{
	bool is_archive;
	g_autofree char *name = snapshot_of_file(file, &is_archive);
	g_autofree char *temporary = import_name(file);
	int dirfd, r;

	if (!name)
		return -EINVAL;
	dirfd = snapshots_opendir(dir, session_name);
	if (dirfd < 0)
		return dirfd;
	r = is_archive
		    ? import_archive(dir, session_name, dirfd, temporary, name, call, ret_message)
		    : import_receipt(dirfd, temporary, name, call, ret_message);
	if (r == 0 && renameat(dirfd, temporary, dirfd, file) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dirfd, temporary, 0);
	close(dirfd);
	return r;
}
