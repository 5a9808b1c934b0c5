#include "tests/sbxd/tarparse.h"
#include "tests/sbxd/json.h"
#include "tests/sbxd/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512

/* What records before a member say about it; NULL and false: nothing. */
struct overrides {
	char *pax_path;
	char *pax_target;
	char *gnu_path;
	char *gnu_target;
	bool has_size;
	uint64_t size_bytes;
};

static void member_free(void *data)
{
	struct member *member = data;

	g_free(member->name);
	g_free(member->path);
	g_free(member->target);
	g_free(member);
}

static void overrides_clear(struct overrides *over)
{
	g_free(over->pax_path);
	g_free(over->pax_target);
	g_free(over->gnu_path);
	g_free(over->gnu_target);
	*over = (struct overrides){ 0 };
}

static int refuse(const char *name, char **ret_message, const char *format, ...)
	G_GNUC_PRINTF(3, 4);

static int refuse(const char *name, char **ret_message, const char *format, ...)
{
	GString *message = g_string_new("unsafe archive member ");
	va_list args;

	json_append_string(message, name, strlen(name));
	g_string_append(message, ": ");
	va_start(args, format);
	g_string_append_vprintf(message, format, args);
	va_end(args);
	*ret_message = g_string_free(message, FALSE);
	return -EINVAL;
}

/* The text of a field up to its NUL, each byte one character. */
static char *field_text(const unsigned char *field, size_t len_bytes)
{
	GString *text = g_string_new(NULL);

	utf8_append_latin1(text, field, strnlen((const char *)field, len_bytes));
	return g_string_free(text, FALSE);
}

/* Octal digits, or with the high bit a big-endian number. Nonsense is 0. */
static uint64_t field_number(const unsigned char *field, size_t len_bytes)
{
	char text[16] = { 0 };
	uint64_t number;

	if (field[0] & 0x80) {
		number = field[0] & 0x7f;
		for (size_t i = 1; i < len_bytes; i++)
			number = number << 8 | field[i];
		return number;
	}
	memcpy(text, field, MIN(len_bytes, sizeof(text) - 1));
	g_strstrip(text);
	return g_ascii_isdigit(text[0]) ? g_ascii_strtoull(text, NULL, 8) : 0;
}

static bool checksum_holds(const unsigned char *block)
{
	uint64_t stored = field_number(block + 148, 8);
	int64_t plain = 0, with_sign = 0;

	for (int i = 0; i < BLOCK; i++) {
		unsigned char byte = i >= 148 && i < 156 ? ' ' : block[i];

		plain += byte;
		with_sign += (signed char)byte;
	}
	return (int64_t)stored == plain || (int64_t)stored == with_sign;
}

static bool is_zero_block(const unsigned char *block)
{
	static const unsigned char zeros[BLOCK];

	return memcmp(block, zeros, BLOCK) == 0;
}

static char *pax_text(const unsigned char *text, size_t len_bytes)
{
	GString *out = g_string_new(NULL);

	utf8_append_lossy(out, text, len_bytes);
	return g_string_free(out, FALSE);
}

static void take_record(const unsigned char *record, size_t len_bytes, struct overrides *over)
{
	const unsigned char *equals = memchr(record, '=', len_bytes);
	size_t key_len = equals ? (size_t)(equals - record) : 0;
	g_autofree char *value = NULL;

	if (!equals)
		return;
	value = pax_text(equals + 1, len_bytes - key_len - 1);
	if (key_len == 4 && memcmp(record, "path", 4) == 0) {
		g_free(over->pax_path);
		over->pax_path = g_steal_pointer(&value);
	} else if (key_len == 8 && memcmp(record, "linkpath", 8) == 0) {
		g_free(over->pax_target);
		over->pax_target = g_steal_pointer(&value);
	} else if (key_len == 4 && memcmp(record, "size", 4) == 0) {
		over->has_size = true;
		over->size_bytes = g_ascii_strtoull(value, NULL, 10);
	}
}

static void take_records(const unsigned char *data, size_t len_bytes, struct overrides *over)
{
	size_t at = 0;

	while (at < len_bytes) {
		const unsigned char *space = memchr(data + at, ' ', len_bytes - at);
		g_autofree char *digits = NULL;
		size_t lead;
		uint64_t len;

		if (!space)
			return;
		lead = (size_t)(space - (data + at)) + 1;
		digits = g_strndup((const char *)data + at, lead - 1);
		len = g_ascii_strtoull(digits, NULL, 10);
		if (len <= lead || len > len_bytes - at)
			return;
		take_record(data + at + lead, (size_t)len - lead - 1, over);
		at += (size_t)len;
	}
}

static char *ustar_name(const unsigned char *block)
{
	g_autofree char *prefix = field_text(block + 345, 155);
	g_autofree char *name = field_text(block, 100);

	return *prefix ? g_strconcat(prefix, "/", name, NULL) : g_strdup(name);
}

static int take_member(const unsigned char *block, const unsigned char *data, size_t left_bytes,
		       struct overrides *over, uint64_t size_bytes, GPtrArray *members,
		       char **ret_message)
{
	char type = block[156] ? (char)block[156] : '0';
	g_autofree char *name = over->pax_path	 ? g_strdup(over->pax_path)
				: over->gnu_path ? g_strdup(over->gnu_path)
						 : ustar_name(block);
	struct member *member;

	if (type == '1')
		return refuse(name, ret_message, "hardlink member not allowed");
	if (type != '0' && type != '2' && type != '5')
		return refuse(name, ret_message, "unsupported member type %c", type);
	member = g_new0(struct member, 1);
	member->kind = type == '5' ? MEMBER_DIRECTORY : type == '2' ? MEMBER_SYMLINK : MEMBER_FILE;
	member->name = g_steal_pointer(&name);
	member->target = over->pax_target   ? g_strdup(over->pax_target)
			 : over->gnu_target ? g_strdup(over->gnu_target)
					    : field_text(block + 157, 100);
	member->mode = field_number(block + 100, 8) & 0777;
	member->size_bytes = size_bytes;
	member->data = data;
	member->data_bytes = (size_t)MIN(size_bytes, left_bytes);
	g_ptr_array_add(members, member);
	return 0;
}

/* Take the header at @block; *ret_size_bytes is the length of the data behind it. */
static int take_header(const unsigned char *block, size_t left_bytes, struct overrides *over,
		       GPtrArray *members, uint64_t *ret_size_bytes, char **ret_message)
{
	const unsigned char *data = block + BLOCK;
	uint64_t size_bytes = field_number(block + 124, 12);
	size_t here = (size_t)MIN(size_bytes, left_bytes);
	char type = (char)block[156];
	int err;

	*ret_size_bytes = size_bytes;
	if (!checksum_holds(block))
		return refuse("<header>", ret_message, "invalid tar header checksum");
	if (type == 'g')
		return 0;
	if (type == 'x') {
		take_records(data, here, over);
		return 0;
	}
	if (type == 'L') {
		g_free(over->gnu_path);
		over->gnu_path = field_text(data, here);
		return 0;
	}
	if (type == 'K') {
		g_free(over->gnu_target);
		over->gnu_target = field_text(data, here);
		return 0;
	}
	if (over->has_size)
		*ret_size_bytes = over->size_bytes;
	err = take_member(block, data, left_bytes, over, *ret_size_bytes, members, ret_message);
	overrides_clear(over);
	return err;
}

int tar_parse(const void *archive, size_t len_bytes, GPtrArray **ret_members, char **ret_message)
{
	const unsigned char *bytes = archive;
	GPtrArray *members = g_ptr_array_new_with_free_func(member_free);
	struct overrides over = { 0 };
	size_t at = 0;
	int err = 0;

	while (!err && len_bytes - at >= BLOCK && !is_zero_block(bytes + at)) {
		size_t left = len_bytes - at - BLOCK;
		uint64_t size;

		err = take_header(bytes + at, left, &over, members, &size, ret_message);
		at = len_bytes - left;
		/* Past the end: the archive was cut, and this was its last member. */
		at = size >= left ? len_bytes : at + MIN(left, (size + BLOCK - 1) / BLOCK * BLOCK);
	}
	overrides_clear(&over);
	if (err)
		g_ptr_array_free(members, TRUE);
	else
		*ret_members = members;
	return err;
}

static bool has_drive(const char *text)
{
	return g_ascii_isalpha(text[0]) && text[1] == ':';
}

/* Split a name into the parts that count, and refuse what would lead out. */
static int set_path(struct member *member, char **ret_message)
{
	g_auto(GStrv) parts = NULL;
	GString *path;

	if (has_drive(member->name))
		return refuse(member->name, ret_message, "windows drive path");
	if (strchr(member->name, '\\'))
		return refuse(member->name, ret_message, "windows path separator");
	/* Nothing but slashes is the root itself, like ".". */
	if (member->name[0] == '/' && strspn(member->name, "/") != strlen(member->name))
		return refuse(member->name, ret_message, "absolute path");
	parts = g_strsplit(member->name, "/", -1);
	path = g_string_new(NULL);
	for (char **part = parts; *part; part++) {
		if (strcmp(*part, "..") == 0) {
			g_string_free(path, TRUE);
			return refuse(member->name, ret_message, "parent traversal");
		}
		if (**part && strcmp(*part, ".") != 0)
			g_string_append_printf(path, "%s%s", path->len > 0 ? "/" : "", *part);
	}
	member->path = g_string_free(path, FALSE);
	return 0;
}

static size_t depth_of(const char *path)
{
	size_t depth = 0;

	for (; *path; path++)
		depth += *path == '/';
	return depth;
}

static int check_target(const struct member *member, char **ret_message)
{
	g_auto(GStrv) parts = NULL;
	size_t depth = depth_of(member->path);

	if (member->target[0] == '/' || has_drive(member->target))
		return refuse(member->name, ret_message, "absolute symlink target not allowed: %s",
			      member->target);
	parts = g_strsplit(member->target, "/", -1);
	for (char **part = parts; *part; part++) {
		if (strcmp(*part, "..") == 0) {
			if (depth == 0)
				return refuse(member->name, ret_message,
					      "symlink target escapes root: %s", member->target);
			depth--;
		} else if (**part && strcmp(*part, ".") != 0) {
			depth++;
		}
	}
	return 0;
}

/* No member below a link or a file of the same archive. */
static int check_parents(const struct member *member, GHashTable *by_path, char **ret_message)
{
	g_autofree char *parent = g_strdup(member->path);

	for (char *slash = strchr(parent, '/'); slash; slash = strchr(slash + 1, '/')) {
		const struct member *above;

		*slash = '\0';
		above = g_hash_table_lookup(by_path, parent);
		if (above && above->kind != MEMBER_DIRECTORY)
			return refuse(member->name, ret_message,
				      "archive path descends through %s: %s",
				      above->kind == MEMBER_SYMLINK ? "symlink" : "non-directory",
				      parent);
		*slash = '/';
	}
	return 0;
}

int tar_check(GPtrArray *members, char **ret_message)
{
	GHashTable *by_path = g_hash_table_new(g_str_hash, g_str_equal);
	int err = 0;

	for (guint i = 0; !err && i < members->len; i++) {
		struct member *member = members->pdata[i];
		const struct member *before;

		err = set_path(member, ret_message);
		if (err || !*member->path)
			continue;
		if (member->kind == MEMBER_SYMLINK)
			err = check_target(member, ret_message);
		before = g_hash_table_lookup(by_path, member->path);
		if (!err && before &&
		    (before->kind != MEMBER_DIRECTORY || member->kind != MEMBER_DIRECTORY))
			err = refuse(member->name, ret_message, "duplicate archive path: %s",
				     member->path);
		g_hash_table_insert(by_path, member->path, member);
	}
	for (guint i = 0; !err && i < members->len; i++)
		err = check_parents(members->pdata[i], by_path, ret_message);
	g_hash_table_destroy(by_path);
	return err;
}
