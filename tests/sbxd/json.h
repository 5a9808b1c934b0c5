/*
 * JSON as JavaScript reads and writes it.
 *
 * Not the tree's JSON library, on purpose: the reference server's answers hang on corners that
 * library reads differently. A byte order mark is an error here, \u0000 is a character of a
 * string, lone surrogates and bytes that are not UTF-8 become U+FFFD, of equal names the last
 * counts, and control characters inside a string are refused.
 *
 * Values are plain trees owned by whoever parsed them; no locks.
 */
#ifndef SBX_SBXD_JSON_H
#define SBX_SBXD_JSON_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

enum json_kind {
	JSON_NULL,
	JSON_FALSE,
	JSON_TRUE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
};

struct json {
	enum json_kind kind;
	double number;
	GString *string; /* of JSON_STRING; may hold NUL characters */
	GPtrArray *items; /* struct json *, of arrays and objects */
	GPtrArray *names; /* GString *, one for each item of an object */
};

/* Read a whole text. 0, or -EINVAL for what JSON.parse throws a SyntaxError at. */
int json_parse(const void *text, size_t len_bytes, struct json **ret_value);
void json_free(struct json *value);

/* The member @name of an object, or NULL: also for NULL and for what is no object. */
const struct json *json_get(const struct json *value, const char *name);

/* Append String(value): what JavaScript makes of a value where a string is wanted. */
void json_append_as_text(GString *out, const struct json *value);

/* Number(value): NaN for what has no number. */
double json_to_number(const struct json *value);

/* Append the shortest decimal text that gives @number again, in JavaScript's notation. */
void json_append_number(GString *out, double number);

/* Append @len_bytes of UTF-8 as a string literal, escaped as JSON.stringify does. */
void json_append_string(GString *out, const char *text, size_t len_bytes);

/* Append `"name":"text"` (or null where @text is NULL), after a comma unless @out ends in '{'. */
void json_append_member(GString *out, const char *name, const char *text);

/* The same for a whole number. */
void json_append_member_int(GString *out, const char *name, long long number);

#endif
