#include "client/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <glib.h>

#include "client/name.h"

#define MAX_DEPTH	64
#define EACH_MAX_VALUES 1000
#define EACH_MAX_BYTES	(1024 * 1024)

/* Beyond this doubles, and so most readers of JSON, round. */
#define MAX_WHOLE 9007199254740992.0

/*
 * cJSON's strings end at their first NUL, so U+0000 is kept in parsed strings as a byte that
 * valid UTF-8 never has.
 */
#define NUL_MARK 0xff

/* An sbx_json is a cJSON under another name; only this module may know. */
static cJSON *to_cjson(const struct sbx_json *node)
{
	return (cJSON *)(uintptr_t)node;
}

static struct sbx_json *from_cjson(cJSON *item)
{
	return (struct sbx_json *)item;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The first byte after the string that begins at @at (a quote); NULL: it does not end. */
static const char *skip_string(const char *at, const char *end)
{
	for (at++; at < end; at++) {
		/* memchr-like speed matters: an exec's stdout is one string of many megabytes. */
		if (*at == '"')
			return at + 1;
		if (*at == '\\')
			at++;
	}
	return NULL;
}

/* Bounds are checked on the text, so that a hostile one never becomes a tree. */
static bool within_bounds(const char *text, size_t len, size_t max_values)
{
	const char *end = text + len;
	const char *at = text;
	size_t values = 1;
	int depth = 0;

	while (at < end) {
		switch (*at) {
		case '"':
			at = skip_string(at, end);
			if (at == NULL)
				return false;
			continue;
		case '[':
		case '{':
			if (++depth > MAX_DEPTH)
				return false;
			values++;
			break;
		case ']':
		case '}':
			depth--;
			break;
		case ',':
			values++;
			break;
		}
		if (values > max_values)
			return false;
		at++;
	}
	return true;
}

/* A copy in which each escaped U+0000 is the mark; len is updated. */
static char *mark_nuls(const char *text, size_t *len)
{
	char *copy = malloc(*len + 1);
	size_t out = 0;
	size_t i = 0;

	if (copy == NULL)
		return NULL;
	while (i < *len) {
		if (text[i] != '\\' || i + 1 >= *len) {
			copy[out++] = text[i++];
		} else if (*len - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) {
			copy[out++] = (char)NUL_MARK;
			i += 6;
		} else {
			copy[out++] = text[i++];
			copy[out++] = text[i++];
		}
	}
	copy[out] = '\0';
	*len = out;
	return copy;
}

int sbx_json_parse(const char *text, size_t len, size_t max_values, struct sbx_json **ret_root)
{
	const char *end = NULL;
	char *marked = NULL;
	cJSON *item;
	int r = -EBADMSG;

	if (!g_utf8_validate_len(text, len, NULL) || !within_bounds(text, len, max_values))
		return -EBADMSG;
	if (memmem(text, len, "\\u0000", 6) != NULL) {
		marked = mark_nuls(text, &len);
		if (marked == NULL)
			return -ENOMEM;
		text = marked;
	}
	item = cJSON_ParseWithLengthOpts(text, len, &end, false);
	if (item == NULL)
		goto out;
	while (end < text + len && is_space(*end))
		end++;
	if (end != text + len) {
		cJSON_Delete(item);
		goto out;
	}
	*ret_root = from_cjson(item);
	r = 0;
out:
	free(marked);
	return r;
}

void sbx_json_free(struct sbx_json *root)
{
	cJSON_Delete(to_cjson(root));
}

/* The first byte after the value at @at; NULL: it does not end. */
static const char *skip_value(const char *at, const char *end)
{
	int depth = 0;

	while (at < end) {
		if (*at == '"') {
			at = skip_string(at, end);
			if (at == NULL || depth == 0)
				return at;
			continue;
		}
		if (*at == '[' || *at == '{') {
			depth++;
		} else if (*at == ']' || *at == '}') {
			if (depth == 0)
				return at;
			if (--depth == 0)
				return at + 1;
		} else if (depth == 0 && (*at == ',' || is_space(*at))) {
			return at;
		}
		at++;
	}
	return NULL;
}

static const char *skip_spaces(const char *at, const char *end)
{
	while (at < end && is_space(*at))
		at++;
	return at;
}

int sbx_json_each(const char *text, size_t len, sbx_json_each_fn fn, void *arg)
{
	const char *end = text + len;
	const char *at = skip_spaces(text, end);
	int r;

	if (at == end || *at != '[')
		return -EBADMSG;
	at = skip_spaces(at + 1, end);
	if (at < end && *at == ']')
		return skip_spaces(at + 1, end) == end ? 0 : -EBADMSG;
	while (at < end) {
		const char *value_end = skip_value(at, end);
		struct sbx_json *element;

		if (value_end == NULL || value_end - at > EACH_MAX_BYTES)
			return -EBADMSG;
		r = sbx_json_parse(at, (size_t)(value_end - at), EACH_MAX_VALUES, &element);
		if (r < 0)
			return r;
		r = fn(arg, element);
		sbx_json_free(element);
		if (r < 0)
			return r;
		at = skip_spaces(value_end, end);
		if (at < end && *at == ']')
			return skip_spaces(at + 1, end) == end ? 0 : -EBADMSG;
		if (at == end || *at != ',')
			return -EBADMSG;
		at = skip_spaces(at + 1, end);
	}
	return -EBADMSG;
}

bool sbx_json_is_object(const struct sbx_json *node)
{
	return cJSON_IsObject(to_cjson(node));
}

bool sbx_json_is_array(const struct sbx_json *node)
{
	return cJSON_IsArray(to_cjson(node));
}

const struct sbx_json *sbx_json_first(const struct sbx_json *node)
{
	return node == NULL ? NULL : from_cjson(to_cjson(node)->child);
}

const struct sbx_json *sbx_json_next(const struct sbx_json *node)
{
	return node == NULL ? NULL : from_cjson(to_cjson(node)->next);
}

const char *sbx_json_key(const struct sbx_json *node)
{
	return node == NULL ? NULL : to_cjson(node)->string;
}

const struct sbx_json *sbx_json_member(const struct sbx_json *object, const char *key)
{
	if (!sbx_json_is_object(object))
		return NULL;
	return from_cjson(cJSON_GetObjectItemCaseSensitive(to_cjson(object), key));
}

bool sbx_json_member_is_null(const struct sbx_json *object, const char *key)
{
	return cJSON_IsNull(to_cjson(sbx_json_member(object, key)));
}

int sbx_json_string(const struct sbx_json *node, size_t max_len, const char **ret_text)
{
	const char *text;

	if (node == NULL)
		return -ENOENT;
	text = cJSON_GetStringValue(to_cjson(node));
	if (text == NULL || strlen(text) > max_len || strchr(text, NUL_MARK) != NULL)
		return -EBADMSG;
	*ret_text = text;
	return 0;
}

int sbx_json_get_string(const struct sbx_json *object, const char *key, size_t max_len,
			const char **ret_text)
{
	return sbx_json_string(sbx_json_member(object, key), max_len, ret_text);
}

int sbx_json_get_int(const struct sbx_json *object, const char *key, int64_t min, int64_t max,
		     int64_t *ret_value)
{
	double value;
	int r;

	r = sbx_json_get_double(object, key, &value);
	if (r < 0)
		return r;
	if (value != floor(value) || fabs(value) > MAX_WHOLE || (int64_t)value < min ||
	    (int64_t)value > max)
		return -EBADMSG;
	*ret_value = (int64_t)value;
	return 0;
}

int sbx_json_get_double(const struct sbx_json *object, const char *key, double *ret_value)
{
	const struct sbx_json *node = sbx_json_member(object, key);

	if (node == NULL)
		return -ENOENT;
	if (!cJSON_IsNumber(to_cjson(node)) || !isfinite(to_cjson(node)->valuedouble))
		return -EBADMSG;
	*ret_value = to_cjson(node)->valuedouble;
	return 0;
}

int sbx_json_get_bool(const struct sbx_json *object, const char *key, bool *ret_value)
{
	const struct sbx_json *node = sbx_json_member(object, key);

	if (node == NULL)
		return -ENOENT;
	if (!cJSON_IsBool(to_cjson(node)))
		return -EBADMSG;
	*ret_value = cJSON_IsTrue(to_cjson(node));
	return 0;
}

int sbx_json_get_id(const struct sbx_json *object, const char *key, const char **ret_id)
{
	const char *id;
	int r;

	r = sbx_json_get_string(object, key, SBX_ID_MAX, &id);
	if (r < 0)
		return r;
	if (!sbx_id_valid(id))
		return -EBADMSG;
	*ret_id = id;
	return 0;
}

int sbx_json_steal_bytes(struct sbx_json *object, const char *key, char **ret_bytes,
			 size_t *ret_len)
{
	cJSON *item = to_cjson(sbx_json_member(object, key));
	char *bytes;
	size_t len;

	if (item == NULL)
		return -ENOENT;
	if (!cJSON_IsString(item) || item->valuestring == NULL)
		return -EBADMSG;
	bytes = item->valuestring;
	item->valuestring = NULL;
	len = strlen(bytes);
	for (char *c = bytes; (c = memchr(c, NUL_MARK, len - (size_t)(c - bytes))) != NULL; c++)
		*c = '\0';
	*ret_bytes = bytes;
	*ret_len = len;
	return 0;
}

struct sbx_json *sbx_json_new_object(void)
{
	return from_cjson(cJSON_CreateObject());
}

struct sbx_json *sbx_json_new_array(void)
{
	return from_cjson(cJSON_CreateArray());
}

struct sbx_json *sbx_json_copy(const struct sbx_json *node)
{
	return from_cjson(cJSON_Duplicate(to_cjson(node), true));
}

/* Takes the child in any case. */
static int set_item(struct sbx_json *object, const char *key, cJSON *child)
{
	cJSON_bool ok;

	if (child == NULL)
		return -ENOMEM;
	if (!sbx_json_is_object(object)) {
		cJSON_Delete(child);
		return -EBADMSG;
	}
	if (!g_utf8_validate(key, -1, NULL)) {
		cJSON_Delete(child);
		return -EILSEQ;
	}
	if (sbx_json_member(object, key) != NULL)
		ok = cJSON_ReplaceItemInObjectCaseSensitive(to_cjson(object), key, child);
	else
		ok = cJSON_AddItemToObject(to_cjson(object), key, child);
	if (!ok) {
		cJSON_Delete(child);
		return -ENOMEM;
	}
	return 0;
}

int sbx_json_set_string(struct sbx_json *object, const char *key, const char *text)
{
	if (!g_utf8_validate(text, -1, NULL))
		return -EILSEQ;
	return set_item(object, key, cJSON_CreateString(text));
}

int sbx_json_set_int(struct sbx_json *object, const char *key, int64_t value)
{
	if (fabs((double)value) >= MAX_WHOLE)
		return -ERANGE;
	return set_item(object, key, cJSON_CreateNumber((double)value));
}

int sbx_json_set_bool(struct sbx_json *object, const char *key, bool value)
{
	return set_item(object, key, cJSON_CreateBool(value));
}

int sbx_json_set_null(struct sbx_json *object, const char *key)
{
	return set_item(object, key, cJSON_CreateNull());
}

int sbx_json_set_node(struct sbx_json *object, const char *key, struct sbx_json *child)
{
	return set_item(object, key, to_cjson(child));
}

void sbx_json_remove(struct sbx_json *object, const char *key)
{
	cJSON_DeleteItemFromObjectCaseSensitive(to_cjson(object), key);
}

int sbx_json_append_string(struct sbx_json *array, const char *text)
{
	if (!g_utf8_validate(text, -1, NULL))
		return -EILSEQ;
	return sbx_json_append_node(array, from_cjson(cJSON_CreateString(text)));
}

int sbx_json_append_node(struct sbx_json *array, struct sbx_json *child)
{
	if (child == NULL)
		return -ENOMEM;
	if (!sbx_json_is_array(array)) {
		sbx_json_free(child);
		return -EBADMSG;
	}
	if (!cJSON_AddItemToArray(to_cjson(array), to_cjson(child))) {
		sbx_json_free(child);
		return -ENOMEM;
	}
	return 0;
}

char *sbx_json_print(const struct sbx_json *node, bool pretty)
{
	return pretty ? cJSON_Print(to_cjson(node)) : cJSON_PrintUnformatted(to_cjson(node));
}
