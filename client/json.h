/*
 * JSON: checked reading of what a server or a file says, and writing of requests and state. The
 * only module that knows cJSON.
 *
 * A parsed document is bounded before it is built: depth 64, and a number of values that the
 * caller gives. Text that is not UTF-8 is refused. A string may hold U+0000: get_string refuses
 * it, steal_bytes hands it over; it is never cut there. Of equal keys the first counts.
 *
 * A node is owned by its document; only a root is freed. No locks: one thread at a time.
 * Errors of getters: -ENOENT (no such member), -EBADMSG (another type, out of range).
 */
#ifndef SBX_CLIENT_JSON_H
#define SBX_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_json;

#define SBX_JSON_VALUES_DEFAULT 100000

/* sbx_json_parse() - 0; -EBADMSG: not JSON, not UTF-8, over a bound; -ENOMEM. */
int sbx_json_parse(const char *text, size_t len, size_t max_values, struct sbx_json **ret_root);
void sbx_json_free(struct sbx_json *root); /* NULL is allowed */

/*
 * sbx_json_each() - parse the elements of a JSON array one by one, so that a long one is never in
 * memory as a tree. @fn gets an element that is freed afterwards; it returns 0 to go on, else
 * negative errno, which is returned. -EBADMSG: not an array, or broken (elements before it were
 * handed over).
 */
typedef int (*sbx_json_each_fn)(void *arg, struct sbx_json *element);
int sbx_json_each(const char *text, size_t len, sbx_json_each_fn fn, void *arg);

bool sbx_json_is_object(const struct sbx_json *node);
bool sbx_json_is_array(const struct sbx_json *node);

/* Members of an object and elements of an array, in order. NULL at the end, or when not one. */
const struct sbx_json *sbx_json_first(const struct sbx_json *node);
const struct sbx_json *sbx_json_next(const struct sbx_json *node);
const char *sbx_json_key(const struct sbx_json *node); /* of a member; NULL: none */

const struct sbx_json *sbx_json_member(const struct sbx_json *object, const char *key);
bool sbx_json_member_is_null(const struct sbx_json *object, const char *key);

/*
 * The value of a node itself, or of a member. The string stays owned by the document and has at
 * most @max_len bytes and no NUL inside. Numbers must be whole where an int is asked for, and
 * within min..max.
 */
int sbx_json_string(const struct sbx_json *node, size_t max_len, const char **ret_text);
int sbx_json_get_string(const struct sbx_json *object, const char *key, size_t max_len,
			const char **ret_text);
int sbx_json_get_int(const struct sbx_json *object, const char *key, int64_t min, int64_t max,
		     int64_t *ret_value);
int sbx_json_get_double(const struct sbx_json *object, const char *key, double *ret_value);
int sbx_json_get_bool(const struct sbx_json *object, const char *key, bool *ret_value);

int sbx_json_get_id(const struct sbx_json *object, const char *key, const char **ret_id);

/*
 * sbx_json_steal_bytes() - take a string member out of the document without copying it: NULs
 * inside are kept, *ret_len counts them, a NUL follows. The caller frees it with free(3).
 */
int sbx_json_steal_bytes(struct sbx_json *object, const char *key, char **ret_bytes,
			 size_t *ret_len);

/*
 * Building. new_... return NULL, the others -ENOMEM, when there is no memory. set_... replaces a
 * member of that name in its place; -EILSEQ: text that is not UTF-8, -ERANGE: a number that JSON
 * readers would round. A child given to set_node or append_node belongs to the parent, also when
 * that fails (it is freed then); child NULL is -ENOMEM.
 */
struct sbx_json *sbx_json_new_object(void);
struct sbx_json *sbx_json_new_array(void);
struct sbx_json *sbx_json_copy(const struct sbx_json *node);
int sbx_json_set_string(struct sbx_json *object, const char *key, const char *text);
int sbx_json_set_int(struct sbx_json *object, const char *key, int64_t value);
int sbx_json_set_bool(struct sbx_json *object, const char *key, bool value);
int sbx_json_set_null(struct sbx_json *object, const char *key);
int sbx_json_set_node(struct sbx_json *object, const char *key, struct sbx_json *child);
void sbx_json_remove(struct sbx_json *object, const char *key);
int sbx_json_append_string(struct sbx_json *array, const char *text);
int sbx_json_append_node(struct sbx_json *array, struct sbx_json *child);

/* sbx_json_print() - as text, freed with free(3); NULL: no memory. @pretty: for people's eyes.
 * For what was built here: a parsed string with U+0000 in it does not come out as JSON. */
char *sbx_json_print(const struct sbx_json *node, bool pretty);

#endif
