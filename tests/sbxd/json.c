#include "tests/sbxd/json.h"
#include "tests/sbxd/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Deeper texts are refused: the reader recurses, and a connection's thread has a small stack. */
#define DEPTH_MAX 500

struct reader {
	const char *at;
	const char *end;
};

static int read_value(struct reader *in, int depth, struct json **ret_value);

static struct json *json_new(enum json_kind kind)
{
	struct json *value = g_new0(struct json, 1);

	value->kind = kind;
	return value;
}

static void free_name(void *name)
{
	g_string_free(name, TRUE);
}

static void free_item(void *item)
{
	json_free(item);
}

void json_free(struct json *value)
{
	if (!value)
		return;
	if (value->string)
		g_string_free(value->string, TRUE);
	if (value->items)
		g_ptr_array_free(value->items, TRUE);
	if (value->names)
		g_ptr_array_free(value->names, TRUE);
	g_free(value);
}

static void skip_space(struct reader *in)
{
	while (in->at < in->end &&
	       (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r'))
		in->at++;
}

static bool take(struct reader *in, char want)
{
	if (in->at >= in->end || *in->at != want)
		return false;
	in->at++;
	return true;
}

static bool take_word(struct reader *in, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(in->end - in->at) < len || memcmp(in->at, word, len) != 0)
		return false;
	in->at += len;
	return true;
}

static int read_hex4(struct reader *in, unsigned int *ret_unit)
{
	unsigned int unit = 0;

	if (in->end - in->at < 4)
		return -EINVAL;
	for (int i = 0; i < 4; i++) {
		int digit = g_ascii_xdigit_value(*in->at++);

		if (digit < 0)
			return -EINVAL;
		unit = unit << 4 | (unsigned int)digit;
	}
	*ret_unit = unit;
	return 0;
}

/* The four digits of a \u escape, and the second half of a pair where there is one. */
static int read_unicode(struct reader *in, GString *out)
{
	unsigned int unit, second;
	int err = read_hex4(in, &unit);

	if (err)
		return err;
	if (unit >= 0xd800 && unit <= 0xdbff && in->end - in->at >= 6 && in->at[0] == '\\' &&
	    in->at[1] == 'u') {
		struct reader ahead = { in->at + 2, in->end };

		err = read_hex4(&ahead, &second);
		if (err)
			return err;
		if (second >= 0xdc00 && second <= 0xdfff) {
			unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
			in->at = ahead.at;
		}
	}
	utf8_append_char(out, unit);
	return 0;
}

static int read_escape(struct reader *in, GString *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (in->at >= in->end)
		return -EINVAL;
	if (*in->at == 'u') {
		in->at++;
		return read_unicode(in, out);
	}
	found = *in->at ? strchr(from, *in->at) : NULL;
	if (!found)
		return -EINVAL;
	g_string_append_c(out, to[found - from]);
	in->at++;
	return 0;
}

static int read_string(struct reader *in, GString **ret_string)
{
	GString *out;
	int err = 0;

	if (!take(in, '"'))
		return -EINVAL;
	out = g_string_new(NULL);
	while (!err) {
		const char *from = in->at;

		while (in->at < in->end && *in->at != '"' && *in->at != '\\' &&
		       (unsigned char)*in->at >= 0x20)
			in->at++;
		g_string_append_len(out, from, in->at - from);
		if (take(in, '"')) {
			*ret_string = out;
			return 0;
		}
		err = take(in, '\\') ? read_escape(in, out) : -EINVAL;
	}
	g_string_free(out, TRUE);
	return err;
}

static bool digits(struct reader *in)
{
	const char *from = in->at;

	while (in->at < in->end && g_ascii_isdigit(*in->at))
		in->at++;
	return in->at > from;
}

static int read_number(struct reader *in, struct json **ret_value)
{
	const char *from = in->at;
	g_autofree char *text = NULL;
	struct json *value;

	take(in, '-');
	if (!take(in, '0') && !digits(in))
		return -EINVAL;
	if (take(in, '.') && !digits(in))
		return -EINVAL;
	if (take(in, 'e') || take(in, 'E')) {
		if (!take(in, '+'))
			take(in, '-');
		if (!digits(in))
			return -EINVAL;
	}
	text = g_strndup(from, (gsize)(in->at - from));
	value = json_new(JSON_NUMBER);
	value->number = g_ascii_strtod(text, NULL);
	*ret_value = value;
	return 0;
}

static int read_items(struct reader *in, int depth, struct json *value)
{
	char close = value->kind == JSON_ARRAY ? ']' : '}';

	skip_space(in);
	if (take(in, close))
		return 0;
	for (;;) {
		struct json *item;
		int err;

		skip_space(in);
		if (value->kind == JSON_OBJECT) {
			GString *name;

			err = read_string(in, &name);
			if (err)
				return err;
			g_ptr_array_add(value->names, name);
			skip_space(in);
			if (!take(in, ':'))
				return -EINVAL;
		}
		err = read_value(in, depth + 1, &item);
		if (err)
			return err;
		g_ptr_array_add(value->items, item);
		if (take(in, close))
			return 0;
		if (!take(in, ','))
			return -EINVAL;
	}
}

static int read_container(struct reader *in, int depth, enum json_kind kind,
			  struct json **ret_value)
{
	struct json *value;
	int err;

	if (depth > DEPTH_MAX)
		return -EINVAL;
	value = json_new(kind);
	value->items = g_ptr_array_new_with_free_func(free_item);
	if (kind == JSON_OBJECT)
		value->names = g_ptr_array_new_with_free_func(free_name);
	err = read_items(in, depth, value);
	if (err)
		json_free(value);
	else
		*ret_value = value;
	return err;
}

/* One value with the white space on both sides of it. */
static int read_value(struct reader *in, int depth, struct json **ret_value)
{
	struct json *value = NULL;
	GString *string;
	int err = 0;

	skip_space(in);
	if (take_word(in, "null")) {
		value = json_new(JSON_NULL);
	} else if (take_word(in, "true")) {
		value = json_new(JSON_TRUE);
	} else if (take_word(in, "false")) {
		value = json_new(JSON_FALSE);
	} else if (take(in, '[')) {
		err = read_container(in, depth, JSON_ARRAY, &value);
	} else if (take(in, '{')) {
		err = read_container(in, depth, JSON_OBJECT, &value);
	} else if (in->at < in->end && *in->at == '"') {
		err = read_string(in, &string);
		if (!err) {
			value = json_new(JSON_STRING);
			value->string = string;
		}
	} else {
		err = read_number(in, &value);
	}
	if (err)
		return err;
	skip_space(in);
	*ret_value = value;
	return 0;
}

int json_parse(const void *text, size_t len_bytes, struct json **ret_value)
{
	GString *clean = NULL;
	struct reader in = { text, (const char *)text + len_bytes };
	struct json *value = NULL;
	int err;

	if (!utf8_is_valid(text, len_bytes)) {
		clean = g_string_new(NULL);
		utf8_append_lossy(clean, text, len_bytes);
		in.at = clean->str;
		in.end = clean->str + clean->len;
	}
	err = read_value(&in, 0, &value);
	if (!err && in.at != in.end) {
		json_free(value);
		err = -EINVAL;
	}
	if (clean)
		g_string_free(clean, TRUE);
	if (!err)
		*ret_value = value;
	return err;
}

const struct json *json_get(const struct json *value, const char *name)
{
	if (!value || value->kind != JSON_OBJECT)
		return NULL;
	for (guint i = value->names->len; i > 0; i--) {
		const GString *have = value->names->pdata[i - 1];

		if (have->len == strlen(name) && memcmp(have->str, name, have->len) == 0)
			return value->items->pdata[i - 1];
	}
	return NULL;
}

void json_append_as_text(GString *out, const struct json *value)
{
	switch (value->kind) {
	case JSON_NULL:
		g_string_append(out, "null");
		break;
	case JSON_FALSE:
		g_string_append(out, "false");
		break;
	case JSON_TRUE:
		g_string_append(out, "true");
		break;
	case JSON_NUMBER:
		json_append_number(out, value->number);
		break;
	case JSON_STRING:
		g_string_append_len(out, value->string->str, (gssize)value->string->len);
		break;
	case JSON_ARRAY:
		for (guint i = 0; i < value->items->len; i++) {
			const struct json *item = value->items->pdata[i];

			if (i > 0)
				g_string_append_c(out, ',');
			if (item->kind != JSON_NULL)
				json_append_as_text(out, item);
		}
		break;
	case JSON_OBJECT:
		g_string_append(out, "[object Object]");
		break;
	}
}

double json_to_number(const struct json *value)
{
	GString *text;
	char *end;
	double number;

	if (value->kind == JSON_NUMBER)
		return value->number;
	if (value->kind == JSON_NULL || value->kind == JSON_FALSE)
		return 0;
	if (value->kind == JSON_TRUE)
		return 1;
	text = g_string_new(NULL);
	json_append_as_text(text, value);
	g_strstrip(text->str);
	number = g_ascii_strtod(text->str, &end);
	if (*end)
		number = NAN;
	g_string_free(text, TRUE);
	return number;
}

void json_append_number(GString *out, double number)
{
	char text[64], digit[32];
	char *mark;
	int exponent, count;

	if (isnan(number) || isinf(number)) {
		g_string_append(out, isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity");
		return;
	}
	if (number < 0)
		g_string_append_c(out, '-');
	number = fabs(number);
	if (number == 0) {
		g_string_append_c(out, '0');
		return;
	}
	for (int precision = 0; precision <= 16; precision++) {
		g_snprintf(text, sizeof(text), "%.*e", precision, number);
		if (strtod(text, NULL) == number)
			break;
	}
	mark = strchr(text, 'e');
	exponent = (int)strtol(mark + 1, NULL, 10);
	count = 0;
	for (const char *c = text; c < mark; c++) {
		if (g_ascii_isdigit(*c))
			digit[count++] = *c;
	}
	digit[count] = '\0';
	if (exponent >= 21 || exponent < -6) {
		g_string_append_c(out, digit[0]);
		if (count > 1)
			g_string_append_printf(out, ".%s", digit + 1);
		g_string_append_printf(out, "e%+d", exponent);
	} else if (exponent < 0) {
		g_string_append(out, "0.");
		for (int i = exponent + 1; i < 0; i++)
			g_string_append_c(out, '0');
		g_string_append(out, digit);
	} else {
		for (int i = 0; i < count || i <= exponent; i++) {
			if (i == exponent + 1)
				g_string_append_c(out, '.');
			g_string_append_c(out, i < count ? digit[i] : '0');
		}
	}
}

/* The escape of a character that can't stand in a string as it is. */
static void append_escape(GString *out, unsigned char c)
{
	static const char short_of[] = "\"\\\b\f\n\r\t", short_is[] = "\"\\bfnrt";
	static const char digits[] = "0123456789abcdef";
	const char *found = c ? strchr(short_of, c) : NULL;

	if (found) {
		const char text[] = { '\\', short_is[found - short_of] };

		g_string_append_len(out, text, sizeof(text));
	} else {
		const char text[] = { '\\', 'u', '0', '0', digits[c >> 4], digits[c & 15] };

		g_string_append_len(out, text, sizeof(text));
	}
}

void json_append_string(GString *out, const char *text, size_t len_bytes)
{
	size_t from = 0;

	g_string_append_c(out, '"');
	for (size_t at = 0; at < len_bytes; at++) {
		unsigned char c = (unsigned char)text[at];

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		if (at > from)
			g_string_append_len(out, text + from, (gssize)(at - from));
		from = at + 1;
		append_escape(out, c);
	}
	g_string_append_len(out, text + from, (gssize)(len_bytes - from));
	g_string_append_c(out, '"');
}

static void append_name(GString *out, const char *name)
{
	if (out->len > 0 && out->str[out->len - 1] != '{')
		g_string_append_c(out, ',');
	json_append_string(out, name, strlen(name));
	g_string_append_c(out, ':');
}

void json_append_member(GString *out, const char *name, const char *text)
{
	append_name(out, name);
	if (text)
		json_append_string(out, text, strlen(text));
	else
		g_string_append(out, "null");
}

void json_append_member_int(GString *out, const char *name, long long number)
{
	append_name(out, name);
	g_string_append_printf(out, "%lld", number);
}
