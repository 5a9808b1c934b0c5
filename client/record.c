#include "client/record.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define NS_PER_S INT64_C(1000000000)

/* A field of a record: up to a space, never over a NUL or the end. */
static int take_field(struct sbx_reader *reader, char **ret_field, size_t *ret_len)
{
	size_t left = (size_t)(reader->end - reader->at);
	char *space = memchr(reader->at, ' ', left);

	if (space == NULL || memchr(reader->at, '\0', (size_t)(space - reader->at)) != NULL)
		return -EBADMSG;
	*ret_field = reader->at;
	*ret_len = (size_t)(space - reader->at);
	reader->at = space + 1;
	return 0;
}

static int parse_digits(const char *text, size_t len, unsigned base, uint64_t max,
			uint64_t *ret_number)
{
	uint64_t number = 0;

	if (len == 0 || len > 20)
		return -EBADMSG;
	for (size_t i = 0; i < len; i++) {
		unsigned digit;

		if (text[i] >= '0' && text[i] <= '9')
			digit = (unsigned)(text[i] - '0');
		else if (text[i] >= 'a' && text[i] <= 'f')
			digit = (unsigned)(text[i] - 'a') + 10;
		else
			return -EBADMSG;
		if (digit >= base || __builtin_mul_overflow(number, base, &number) ||
		    __builtin_add_overflow(number, digit, &number))
			return -EBADMSG;
	}
	if (number > max)
		return -EBADMSG;
	*ret_number = number;
	return 0;
}

static int take_number(struct sbx_reader *reader, unsigned base, uint64_t max, uint64_t *ret_number)
{
	char *field;
	size_t len;
	int error = take_field(reader, &field, &len);

	return error < 0 ? error : parse_digits(field, len, base, max, ret_number);
}

/* Digits after the point, as nanoseconds; more than nine are cut. */
static int parse_fraction(const char *text, size_t len, int64_t *ret_ns)
{
	int64_t ns = 0;

	if (len == 0 || len > 20)
		return -EBADMSG;
	for (size_t i = 0; i < (len < 9 ? 9 : len); i++) {
		if (i < len && !isdigit((unsigned char)text[i]))
			return -EBADMSG;
		if (i < 9)
			ns = ns * 10 + (i < len ? text[i] - '0' : 0);
	}
	*ret_ns = ns;
	return 0;
}

int64_t sbx_record_time(int64_t seconds, int64_t ns)
{
	int64_t time_ns;

	if (__builtin_mul_overflow(seconds, NS_PER_S, &time_ns) ||
	    __builtin_add_overflow(time_ns, ns, &time_ns))
		return seconds < 0 ? INT64_MIN + 1 : INT64_MAX - 1;
	return time_ns;
}

static int parse_seconds(const char *text, size_t len, int64_t *ret_seconds)
{
	bool negative = len > 0 && text[0] == '-';
	uint64_t number;
	int error = parse_digits(text + negative, len - negative, 10, INT64_MAX, &number);

	if (error < 0)
		return error;
	*ret_seconds = negative ? -(int64_t)number : (int64_t)number;
	return 0;
}

/*
 * "-6.5000000000": find and date show the whole seconds rounded down and the fraction on top, so
 * this is five and a half seconds before the epoch.
 */
static int parse_time(const char *text, size_t len, int64_t *ret_time_ns, bool *ret_has_fraction)
{
	const char *point = memchr(text, '.', len);
	size_t whole = point != NULL ? (size_t)(point - text) : len;
	int64_t seconds;
	int64_t ns = 0;
	int error = parse_seconds(text, whole, &seconds);

	if (error == 0 && point != NULL)
		error = parse_fraction(point + 1, len - whole - 1, &ns);
	if (error < 0)
		return error;
	*ret_time_ns = sbx_record_time(seconds, ns);
	*ret_has_fraction = point != NULL;
	return 0;
}

static int take_time(struct sbx_reader *reader, int64_t *ret_time_ns)
{
	char *field;
	size_t len;
	bool has_fraction;
	int error = take_field(reader, &field, &len);

	return error < 0 ? error : parse_time(field, len, ret_time_ns, &has_fraction);
}

/* "SECONDS 2026-11-30 10:29:44.268536138 +0000"; the fraction may be missing. */
static int take_dated_time(struct sbx_reader *reader, int64_t *ret_time_ns, int64_t *ret_fraction)
{
	char *field[4];
	size_t len[4];
	int64_t seconds;
	int64_t ns = 0;
	char *point;
	int error = 0;

	for (unsigned i = 0; i < 4 && error == 0; i++)
		error = take_field(reader, &field[i], &len[i]);
	if (error == 0)
		error = parse_seconds(field[0], len[0], &seconds);
	if (error < 0)
		return error;
	point = memchr(field[2], '.', len[2]);
	if (point != NULL)
		error = parse_fraction(point + 1, len[2] - (size_t)(point + 1 - field[2]), &ns);
	if (error < 0)
		return error;
	*ret_time_ns = sbx_record_time(seconds, ns);
	*ret_fraction = ns;
	return 0;
}

static int type_bits(char letter, uint32_t *ret_bits)
{
	static const struct {
		char letter;
		uint32_t bits;
	} types[] = {
		{ 'f', S_IFREG },  { 'd', S_IFDIR }, { 'l', S_IFLNK }, { 'p', S_IFIFO },
		{ 's', S_IFSOCK }, { 'b', S_IFBLK }, { 'c', S_IFCHR },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (types[i].letter == letter) {
			*ret_bits = types[i].bits;
			return 0;
		}
	}
	return -EBADMSG;
}

static int take_ids(struct sbx_reader *reader, struct sbx_attr *attr)
{
	uint64_t nlink;
	int error = take_number(reader, 10, UINT64_MAX, &attr->ino);

	if (error == 0)
		error = take_number(reader, 10, UINT64_MAX, &attr->dev);
	if (error == 0)
		error = take_number(reader, 10, UINT32_MAX, &nlink);
	if (error == 0)
		attr->nlink = (uint32_t)nlink;
	return error;
}

static int take_sizes(struct sbx_reader *reader, struct sbx_attr *attr)
{
	int error = take_number(reader, 10, INT64_MAX, &attr->size);

	return error < 0 ? error : take_number(reader, 10, INT64_MAX / 512, &attr->blocks);
}

/* Behind "aKIND ". */
static int take_find_record(struct sbx_reader *reader, struct sbx_record *record)
{
	struct sbx_attr *attr = &record->attr;
	uint64_t mode = 0;
	uint32_t bits = 0;
	char *field;
	char *string;
	size_t len;
	int error = take_field(reader, &field, &len);

	if (error == 0)
		error = len == 1 ? type_bits(field[0], &bits) : -EBADMSG;
	if (error == 0)
		error = take_number(reader, 8, 07777, &mode);
	if (error == 0)
		error = take_sizes(reader, attr);
	if (error == 0)
		error = take_time(reader, &attr->mtime_ns);
	if (error == 0)
		error = take_time(reader, &attr->ctime_ns);
	if (error == 0)
		error = take_ids(reader, attr);
	if (error == 0)
		error = sbx_reader_string(reader, 0, &string);
	if (error < 0)
		return error;
	attr->mode = bits | (uint32_t)mode;
	attr->has_ns = true;
	record->path = string;
	error = sbx_reader_string(reader, 0, &string);
	if (error < 0)
		return error;
	record->link = S_ISLNK(bits) ? string : NULL;
	return 0;
}

/* Whether the reader stands at text; then moves behind it. */
static bool skip_text(struct sbx_reader *reader, const char *text, size_t len)
{
	if ((size_t)(reader->end - reader->at) < len || memcmp(reader->at, text, len) != 0)
		return false;
	reader->at += len;
	return true;
}

/*
 * stat's %N of a symlink, "'PATH' -> 'TEXT'" or "PATH -> TEXT", and the end of the record. The text
 * is as long as the link's size says; only where that is not so the first end mark counts.
 */
static int take_stat_link(struct sbx_reader *reader, const char *path, size_t path_len,
			  uint64_t size, char **ret_text)
{
	bool quoted = skip_text(reader, "'", 1);
	const char *mark = quoted ? "'//\n" : "//\n";
	size_t mark_len = strlen(mark);
	char *end;

	if (!skip_text(reader, path, path_len) || (quoted && !skip_text(reader, "'", 1)) ||
	    !skip_text(reader, " -> ", 4) || (quoted && !skip_text(reader, "'", 1)))
		return -EBADMSG;
	if (size <= PATH_MAX && (uint64_t)(reader->end - reader->at) >= size + mark_len &&
	    memcmp(reader->at + size, mark, mark_len) == 0)
		end = reader->at + size;
	else
		end = memmem(reader->at, (size_t)(reader->end - reader->at), mark, mark_len);
	if (end == NULL || memchr(reader->at, '\0', (size_t)(end - reader->at)) != NULL)
		return -EBADMSG;
	*end = '\0';
	*ret_text = reader->at;
	reader->at = end + mark_len;
	return 0;
}

/* Behind "bKIND ". */
static int take_stat_record(struct sbx_reader *reader, struct sbx_record *record)
{
	struct sbx_attr *attr = &record->attr;
	int64_t mtime_fraction = 0;
	int64_t ctime_fraction = 0;
	uint64_t mode = 0;
	size_t path_len;
	char *path;
	char *text;
	char *end;
	int error = take_number(reader, 16, 0177777, &mode);

	if (error == 0)
		error = take_sizes(reader, attr);
	if (error == 0)
		error = take_dated_time(reader, &attr->mtime_ns, &mtime_fraction);
	if (error == 0)
		error = take_dated_time(reader, &attr->ctime_ns, &ctime_fraction);
	if (error == 0)
		error = take_ids(reader, attr);
	if (error < 0)
		return error;
	attr->mode = (uint32_t)mode;
	/* A tool that has no nanoseconds shows zeros. */
	attr->has_ns = mtime_fraction != 0 || ctime_fraction != 0;

	path = reader->at;
	if (path == reader->end)
		return -EBADMSG;
	/* A path has at least one byte, and "/" begins as its end mark does. */
	end = memmem(path + 1, (size_t)(reader->end - path - 1), "//", 2);
	if (end == NULL || memchr(path, '\0', (size_t)(end - path)) != NULL)
		return -EBADMSG;
	path_len = (size_t)(end - path);
	reader->at = end + 2;
	record->path = path;
	record->link = NULL;
	if (S_ISLNK(attr->mode)) {
		error = take_stat_link(reader, path, path_len, attr->size, &text);
		if (error < 0)
			return error;
		record->link = text;
	} else {
		bool quoted = skip_text(reader, "'", 1);

		if (!skip_text(reader, path, path_len) || (quoted && !skip_text(reader, "'", 1)) ||
		    !skip_text(reader, "//\n", 3))
			return -EBADMSG;
	}
	*end = '\0';
	return 0;
}

char sbx_reader_peek(const struct sbx_reader *reader)
{
	return reader->at < reader->end ? *reader->at : '\0';
}

int sbx_reader_string(struct sbx_reader *reader, char letter, char **ret_string)
{
	char *string = reader->at;
	char *nul = memchr(string, '\0', (size_t)(reader->end - string));

	if (nul == NULL || (letter != '\0' && string[0] != letter))
		return -EBADMSG;
	reader->at = nul + 1;
	*ret_string = string;
	return 0;
}

int sbx_reader_record(struct sbx_reader *reader, struct sbx_record *ret_record)
{
	struct sbx_record record = { 0 };
	char flavour;
	int error;

	if (reader->end - reader->at < 3 || reader->at[2] != ' ')
		return -EBADMSG;
	flavour = reader->at[0];
	record.kind = reader->at[1];
	reader->at += 3;
	if (flavour == 'a')
		error = take_find_record(reader, &record);
	else if (flavour == 'b')
		error = take_stat_record(reader, &record);
	else
		error = -EBADMSG;
	if (error < 0)
		return error;
	record.path = sbx_record_path(record.path);
	*ret_record = record;
	return 0;
}

int sbx_reader_clock(struct sbx_reader *reader, int64_t *ret_clock_ns, bool *ret_has_ns)
{
	char *text;
	int64_t clock_ns;
	bool has_fraction;
	int error = sbx_reader_string(reader, 't', &text);

	if (error == 0)
		error = parse_time(text + 1, strlen(text + 1), &clock_ns, &has_fraction);
	if (error < 0)
		return error;
	*ret_clock_ns = clock_ns;
	*ret_has_ns = has_fraction;
	return 0;
}

int sbx_record_number(const char *text, uint64_t max, uint64_t *ret_number)
{
	return parse_digits(text, strlen(text), 10, max, ret_number);
}

const char *sbx_record_path(const char *path)
{
	if (path[0] != '.')
		return path;
	if (path[1] == '\0')
		return path + 1;
	return path[1] == '/' ? path + 2 : path;
}
