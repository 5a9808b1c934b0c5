#include "tests/sbxd/tarwrite.h"
#include "tests/sbxd/errtext.h"
#include "tests/sbxd/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK		 512
#define NAME_BYTES	 100
#define READ_LIMIT_BYTES (INT64_C(1) << 31)

struct member {
	char *name; /* relative; of directories with a slash at the end */
	char *sort_key; /* the same, accents apart from their letters */
	mode_t mode;
};

struct writer {
	const char *dir;
	int fd;
	GByteArray *pending;
	char **ret_message;
};

static int fail(struct writer *out, int err, const char *call, const char *path)
{
	GString *shown = g_string_new(NULL);

	utf8_append_lossy(shown, path, strlen(path));
	g_free(*out->ret_message);
	*out->ret_message = errtext_message(err, call, shown->str);
	g_string_free(shown, TRUE);
	return -err;
}

static void member_free(void *data)
{
	struct member *member = data;

	g_free(member->name);
	g_free(member->sort_key);
	g_free(member);
}

/*
 * The place of a character in a locale's order: punctuation, digits, letters with both cases side
 * by side, all else by its code.
 */
static gunichar weight(gunichar c)
{
	static const char punctuation[] = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
	const char *at;

	if (c >= 0x80)
		return c + 200;
	if (g_ascii_isdigit((char)c))
		return 100 + c - '0';
	if (g_ascii_isalpha((char)c))
		return 120 + (gunichar)g_ascii_tolower((char)c) - 'a';
	at = c ? strchr(punctuation, (int)c) : NULL;
	return at ? 40 + (gunichar)(at - punctuation) : c;
}

/* The next character that counts: accents only decide between names that are else the same. */
static gunichar next_letter(const char **at)
{
	gunichar c;

	do {
		c = g_utf8_get_char(*at);
		if (c)
			*at = g_utf8_next_char(*at);
	} while (c >= 0x300 && c < 0x370);
	return c;
}

static int compare_members(const void *a, const void *b)
{
	const struct member *left = *(struct member *const *)a;
	const struct member *right = *(struct member *const *)b;
	const char *left_at = left->sort_key, *right_at = right->sort_key;
	gunichar left_char, right_char;

	do {
		left_char = weight(next_letter(&left_at));
		right_char = weight(next_letter(&right_at));
		if (left_char != right_char)
			return left_char < right_char ? -1 : 1;
	} while (left_char);
	/* The same but for accents and case: short ones and small letters first. */
	if (strlen(left->sort_key) != strlen(right->sort_key))
		return strlen(left->sort_key) < strlen(right->sort_key) ? -1 : 1;
	return -strcmp(left->sort_key, right->sort_key);
}

static int list_below(struct writer *out, const char *below, GPtrArray *members);

static int list_entry(struct writer *out, const char *below, const char *entry, GPtrArray *members)
{
	g_autofree char *name = g_strconcat(below, entry, NULL);
	g_autofree char *path = g_strconcat(out->dir, "/", name, NULL);
	struct member *member;
	struct stat st;

	/* Names arrive decoded in the reference server: one that is no UTF-8 is not found again. */
	if (!utf8_is_valid(entry, strlen(entry)))
		return fail(out, ENOENT, "lstat", path);
	if (lstat(path, &st) < 0)
		return fail(out, errno, "lstat", path);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return 0;
	member = g_new0(struct member, 1);
	member->mode = st.st_mode;
	member->name = S_ISDIR(st.st_mode) ? g_strconcat(name, "/", NULL) : g_strdup(name);
	member->sort_key = g_utf8_normalize(member->name, -1, G_NORMALIZE_NFD);
	g_ptr_array_add(members, member);
	return S_ISDIR(st.st_mode) ? list_below(out, member->name, members) : 0;
}

static int list_below(struct writer *out, const char *below, GPtrArray *members)
{
	g_autofree char *path = g_strconcat(out->dir, "/", below, NULL);
	DIR *dir = opendir(path);
	const struct dirent *entry;
	int err = 0;

	if (!dir)
		return fail(out, errno, "scandir", path);
	while (!err && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			err = list_entry(out, below, entry->d_name, members);
	}
	closedir(dir);
	return err;
}

static int flush(struct writer *out, size_t beyond)
{
	const guint8 *at = out->pending->data;
	size_t left = out->pending->len;

	if (left <= beyond)
		return 0;
	while (left > 0) {
		ssize_t put = write(out->fd, at, left);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return fail(out, errno, "write", out->dir);
		at += put;
		left -= (size_t)put;
	}
	g_byte_array_set_size(out->pending, 0);
	return 0;
}

static int put(struct writer *out, const void *data, size_t len_bytes)
{
	g_byte_array_append(out->pending, data, (guint)len_bytes);
	return flush(out, 1 << 20);
}

static int pad(struct writer *out, uint64_t len_bytes)
{
	static const char zeros[BLOCK];

	return put(out, zeros, (size_t)((BLOCK - len_bytes % BLOCK) % BLOCK));
}

static void put_octal(char *field, int digits, uint64_t number)
{
	g_snprintf(field, (gulong)digits + 1, "%0*" PRIo64, digits, number);
}

/* Ninety-nine bytes at most, though a hundred fit: this is the bug. */
static void put_name(char *field, const char *name)
{
	memcpy(field, name, MIN(strlen(name), NAME_BYTES - 1));
}

static int put_header(struct writer *out, const char *name, char type, mode_t mode,
		      uint64_t size_bytes, const char *target)
{
	char block[BLOCK] = { 0 };
	unsigned int sum = 0;

	put_name(block, name);
	put_octal(block + 100, 7, mode);
	put_octal(block + 108, 7, 0);
	put_octal(block + 116, 7, 0);
	put_octal(block + 124, 11, size_bytes);
	put_octal(block + 136, 11, 0);
	memset(block + 148, ' ', 8);
	block[156] = type;
	put_name(block + 157, target);
	memcpy(block + 257,
	       "ustar\0"
	       "00",
	       8);
	for (int i = 0; i < BLOCK; i++)
		sum += (unsigned char)block[i];
	put_octal(block + 148, 6, sum);
	block[155] = ' ';
	return put(out, block, sizeof(block));
}

/* "LEN KEY=VALUE\n", where LEN counts itself too. */
static void append_record(GString *records, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, len = rest;
	g_autofree char *digits = NULL;

	for (;;) {
		g_free(digits);
		digits = g_strdup_printf("%zu", len);
		if (rest + strlen(digits) == len)
			break;
		len = rest + strlen(digits);
	}
	g_string_append_printf(records, "%s %s=%s\n", digits, key, value);
}

static int put_long_names(struct writer *out, const char *name, const char *target)
{
	GString *records = g_string_new(NULL);
	int err = 0;

	if (strlen(name) > NAME_BYTES)
		append_record(records, "path", name);
	if (strlen(target) > NAME_BYTES)
		append_record(records, "linkpath", target);
	if (records->len > 0) {
		err = put_header(out, "PaxHeader", 'x', 0644, records->len, "");
		if (!err)
			err = put(out, records->str, records->len);
		if (!err)
			err = pad(out, records->len);
	}
	g_string_free(records, TRUE);
	return err;
}

/* A file's bytes, as many as its header said: what is missing meanwhile becomes zeros. */
static int put_content(struct writer *out, int fd, const char *path, uint64_t len_bytes)
{
	g_autofree char *chunk = g_malloc0(256 * 1024);
	uint64_t left = len_bytes;
	int err = 0;

	while (!err && left > 0) {
		ssize_t got = read(fd, chunk, (size_t)MIN(left, 256 * 1024));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail(out, errno, "read", path);
		if (got == 0) {
			memset(chunk, 0, 256 * 1024);
			got = (ssize_t)MIN(left, 256 * 1024);
		}
		err = put(out, chunk, (size_t)got);
		left -= (uint64_t)got;
	}
	return err ? err : pad(out, len_bytes);
}

static int put_file(struct writer *out, const struct member *member, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), err;

	if (fd < 0)
		return fail(out, errno, "open", path);
	if (fstat(fd, &st) < 0) {
		err = fail(out, errno, "fstat", path);
	} else if (st.st_size >= READ_LIMIT_BYTES) {
		*out->ret_message = g_strdup_printf("File size (%" PRId64 ") is greater than 2 GiB",
						    (int64_t)st.st_size);
		err = -EFBIG;
	} else {
		err = put_long_names(out, member->name, "");
		if (!err)
			err = put_header(out, member->name, '0', member->mode & 0777,
					 (uint64_t)st.st_size, "");
		if (!err)
			err = put_content(out, fd, path, (uint64_t)st.st_size);
	}
	close(fd);
	return err;
}

static int put_link(struct writer *out, const struct member *member, const char *path)
{
	char raw[4096];
	ssize_t len = readlink(path, raw, sizeof(raw));
	GString *target;
	int err;

	if (len < 0)
		return fail(out, errno, "readlink", path);
	target = g_string_new(NULL);
	utf8_append_lossy(target, raw, (size_t)len);
	err = put_long_names(out, member->name, target->str);
	if (!err)
		err = put_header(out, member->name, '2', 0777, 0, target->str);
	g_string_free(target, TRUE);
	return err;
}

static int put_member(struct writer *out, const struct member *member)
{
	g_autofree char *path = g_strconcat(out->dir, "/", member->name, NULL);
	int err;

	if (S_ISREG(member->mode))
		return put_file(out, member, path);
	if (S_ISLNK(member->mode))
		return put_link(out, member, path);
	err = put_long_names(out, member->name, "");
	return err ? err : put_header(out, member->name, '5', 0755, 0, "");
}

int tar_write(const char *dir, int fd, char **ret_message)
{
	static const char end[2 * BLOCK];
	struct writer out = {
		.dir = dir, .fd = fd, .pending = g_byte_array_new(), .ret_message = ret_message
	};
	GPtrArray *members = g_ptr_array_new_with_free_func(member_free);
	int err = list_below(&out, "", members);

	if (!err && members->len > 0)
		qsort(members->pdata, members->len, sizeof(*members->pdata), compare_members);
	for (guint i = 0; !err && i < members->len; i++)
		err = put_member(&out, members->pdata[i]);
	if (!err)
		err = put(&out, end, sizeof(end));
	if (!err)
		err = flush(&out, 0);
	g_ptr_array_free(members, TRUE);
	g_byte_array_free(out.pending, TRUE);
	return err;
}
