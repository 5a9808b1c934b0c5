#include "client/pack.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/record.h"

#define REPLY_OVERHEAD_MAX ((size_t)64 << 20)
#define CONTENT_BYTES_MAX  ((uint64_t)256 << 20)
/* An item's words in argv with their terminators, for what is not sealed yet. */
#define ITEM_BYTES_MAX 64

/* What the program calls a file that it holds open, the only one of its request. */
#define HELD_PATH "/proc/self/fd/3"

struct pack_ask {
	unsigned path; /* from 1, as the program counts */
	uint64_t offset;
	uint64_t len;
};

int sbx_pack_request_init(struct sbx_pack_request *req, const struct sbx_pack_options *options,
			  const struct sbx_tools *tools, const struct sbx_program_limits *limits)
{
	int error;

	*req = (struct sbx_pack_request){
		.options = *options,
		.items = g_array_new(FALSE, FALSE, sizeof(struct pack_ask)),
		.paths = g_ptr_array_new_with_free_func(g_free),
		.path_index = g_hash_table_new(g_str_hash, g_str_equal),
	};
	if (req->options.max_bytes == 0 || req->options.max_bytes > CONTENT_BYTES_MAX)
		req->options.max_bytes = CONTENT_BYTES_MAX;
	error = sbx_program_request_init(&req->program, SBX_PROGRAM_PACK, tools, limits);
	if (error == 0)
		error = sbx_program_request_add(&req->program, options->compress ? "1" : "0");
	if (error == 0)
		error = sbx_program_request_add(&req->program, options->follow ? "1" : "0");
	if (error == 0)
		error = sbx_program_request_addf(&req->program, "%" G_GUINT64_FORMAT,
						 req->options.max_bytes + 2);
	return error;
}

void sbx_pack_request_clear(struct sbx_pack_request *req)
{
	sbx_program_request_clear(&req->program);
	g_clear_pointer(&req->items, g_array_unref);
	g_clear_pointer(&req->path_index, g_hash_table_unref);
	g_clear_pointer(&req->paths, g_ptr_array_unref);
}

int sbx_pack_request_add(struct sbx_pack_request *req, const char *path, uint64_t offset,
			 uint64_t len)
{
	struct pack_ask ask = { .offset = offset, .len = len };
	size_t bytes = ITEM_BYTES_MAX;
	gpointer known;

	if (req->sealed)
		return -E2BIG;
	if (len == SBX_PACK_WHOLE ? offset != 0 : offset > (uint64_t)INT64_MAX - len)
		return -EINVAL;
	path = sbx_record_path(path);
	known = g_hash_table_lookup(req->path_index, path);
	if (known == NULL) {
		int error = 0;
		g_autofree char *spelled = sbx_program_spell_path(path, &error);

		if (spelled == NULL)
			return error;
		bytes += strlen(spelled) + 1 + 8;
	}
	if (req->program.command_bytes + req->args_bytes + bytes + ITEM_BYTES_MAX >
	    req->program.limits.command_bytes)
		return -E2BIG;
	req->args_bytes += bytes;
	if (known == NULL) {
		char *copy = g_strdup(path);

		g_ptr_array_add(req->paths, copy);
		known = GUINT_TO_POINTER(req->paths->len);
		g_hash_table_insert(req->path_index, copy, known);
	}
	ask.path = GPOINTER_TO_UINT(known);
	g_array_append_val(req->items, ask);
	return (int)req->items->len - 1;
}

static int seal(struct sbx_pack_request *req)
{
	struct sbx_program_request *program = &req->program;
	int error = sbx_program_request_addf(program, "%u", req->paths->len);

	for (guint i = 0; i < req->paths->len && error == 0; i++)
		error = sbx_program_request_add_path(program, req->paths->pdata[i]);
	for (guint i = 0; i < req->items->len && error == 0; i++) {
		const struct pack_ask *ask = &g_array_index(req->items, struct pack_ask, i);

		error = sbx_program_request_addf(program, "%u", ask->path);
		if (error == 0 && ask->len == SBX_PACK_WHOLE) {
			error = sbx_program_request_add(program, "-");
			if (error == 0)
				error = sbx_program_request_add(program, "0");
		} else if (error == 0) {
			error = sbx_program_request_addf(program, "%" G_GUINT64_FORMAT,
							 ask->offset);
			if (error == 0)
				error = sbx_program_request_addf(program, "%" G_GUINT64_FORMAT,
								 ask->len);
		}
	}
	return error;
}

const char *const *sbx_pack_request_argv(struct sbx_pack_request *req, int *ret_error)
{
	if (!req->sealed) {
		int error = seal(req);

		if (error < 0) {
			*ret_error = error;
			return NULL;
		}
		req->sealed = true;
	}
	return sbx_program_request_argv(&req->program);
}

/* What the two looks at one path saw. */
struct pack_sight {
	struct sbx_attr before;
	struct sbx_attr after;
	int error;
	bool has_before;
	bool has_after;
};

static int take_sight(const struct sbx_pack_request *req, struct sbx_reader *reader,
		      struct pack_sight *sights, bool is_after)
{
	struct sbx_record record;
	gpointer index;
	struct pack_sight *sight;
	int error = sbx_reader_record(reader, &record);

	if (error < 0)
		return error;
	index = g_hash_table_lookup(req->path_index, record.path);
	if (index == NULL && req->paths->len == 1 && strcmp(record.path, HELD_PATH) == 0)
		index = GUINT_TO_POINTER(1);
	if (index == NULL)
		return -EBADMSG;
	sight = &sights[GPOINTER_TO_UINT(index) - 1];
	if (is_after) {
		sight->after = record.attr;
		sight->has_after = true;
	} else {
		sight->before = record.attr;
		sight->has_before = true;
	}
	return 0;
}

static int take_failure(const struct sbx_pack_request *req, struct sbx_reader *reader,
			struct pack_sight *sights)
{
	char *text;
	char *index;
	uint64_t number;
	int error = sbx_reader_string(reader, 'x', &text);

	if (error == 0)
		error = sbx_reader_string(reader, 0, &index);
	if (error == 0)
		error = sbx_record_number(index, req->paths->len, &number);
	if (error == 0 && number == 0)
		error = -EBADMSG;
	if (error == 0)
		sights[number - 1].error = text[1] != '\0' ? sbx_program_errno(text + 1) : ENOENT;
	return error;
}

static int take_sights(const struct sbx_pack_request *req, struct sbx_reader *reader,
		       struct pack_sight *sights, bool is_after)
{
	int error = 0;

	while (error == 0) {
		char *text;

		switch (sbx_reader_peek(reader)) {
		case 'a':
		case 'b':
			error = take_sight(req, reader, sights, is_after);
			break;
		case 'x':
			error = is_after ? -EBADMSG : take_failure(req, reader, sights);
			break;
		case 'e':
			error = sbx_reader_string(reader, 'e', &text);
			/* Behind those of before comes the content. */
			if (error == 0 &&
			    (text[1] != '\0' || (is_after && reader->at != reader->end)))
				error = -EBADMSG;
			return error;
		default:
			error = -EBADMSG;
		}
	}
	return error;
}

/* A file that was held open lost its name between the looks, which changes ctime and no byte. */
static void settle_replaced(struct pack_sight *sight)
{
	struct sbx_attr named = sight->after;

	if (!sight->has_before || !sight->has_after || sight->after.nlink >= sight->before.nlink)
		return;
	named.nlink = sight->before.nlink;
	named.ctime_ns = sight->before.ctime_ns;
	if (sbx_attr_same(&sight->before, &named))
		sight->after = sight->before;
}

static bool is_stable(const struct pack_sight *sight)
{
	return sight->error == 0 && sight->has_before && sight->has_after &&
	       S_ISREG(sight->before.mode) && sbx_attr_same(&sight->before, &sight->after);
}

static uint64_t item_len(const struct pack_ask *ask, uint64_t size)
{
	if (ask->len == SBX_PACK_WHOLE)
		return size;
	return ask->offset >= size ? 0 : MIN(ask->len, size - ask->offset);
}

static void forget_content(struct sbx_pack_reply *reply)
{
	for (unsigned i = 0; i < reply->count; i++)
		reply->items[i].data = NULL;
}

/*
 * The content holds the items one behind the other, without marks: how long each is follows from
 * its size. At its end stands "0" when every file was read to its end. Then the places from the
 * front up to the first item that was not stable are known, likewise from the back; and all of
 * them, only when nothing changed and the lengths add up. Otherwise none is.
 */
static void place_content(const uint8_t *content, uint64_t len, uint64_t max_bytes,
			  struct sbx_pack_reply *reply)
{
	uint64_t front = 0;
	uint64_t back = len - 1;
	bool is_read = content[back] == '0';
	bool fits = len <= max_bytes + 1;
	unsigned low;
	unsigned high;

	for (low = 0; low < reply->count && fits; low++) {
		struct sbx_pack_item *item = &reply->items[low];

		if (item->error != 0)
			continue;
		if (!item->stable)
			break;
		fits = item->len <= back - front;
		if (fits)
			item->data = content + front;
		front += item->len;
	}
	if (low == reply->count)
		fits = fits && front == back;
	else
		fits = fits && is_read;
	for (high = reply->count; high > low && fits; high--) {
		struct sbx_pack_item *item = &reply->items[high - 1];

		if (item->error != 0)
			continue;
		if (!item->stable)
			break;
		fits = item->len <= back - front;
		back -= item->len;
		if (fits)
			item->data = content + back;
	}
	if (!fits)
		forget_content(reply);
}

static int decode(const struct sbx_pack_request *req, struct sbx_pack_reply *reply)
{
	struct sbx_program_answer *answer = &reply->answer;
	g_autofree struct pack_sight *sights = g_new0(struct pack_sight, req->paths->len + 1);
	struct sbx_reader reader;
	struct sbx_reader after;
	int error;

	if (answer->sections != 2)
		return -EBADMSG;
	reader.at = (char *)answer->section[0]->data;
	reader.end = reader.at + answer->section[0]->len;
	error = sbx_reader_clock(&reader, &reply->clock_ns, &reply->clock_has_ns);
	if (error == 0)
		error = take_sights(req, &reader, sights, false);
	if (error == 0 && reader.at == reader.end)
		error = -EBADMSG;
	if (error < 0)
		return error;
	after.at = (char *)answer->section[1]->data;
	after.end = after.at + answer->section[1]->len;
	error = take_sights(req, &after, sights, true);
	if (error < 0)
		return error;
	reply->count = req->items->len;
	reply->items = g_new0(struct sbx_pack_item, reply->count + 1);
	for (unsigned i = 0; i < reply->count; i++) {
		const struct pack_ask *ask = &g_array_index(req->items, struct pack_ask, i);
		struct pack_sight *sight = &sights[ask->path - 1];
		struct sbx_pack_item *item = &reply->items[i];

		settle_replaced(sight);
		item->error = sight->error;
		item->has_attr = sight->has_before;
		item->before = sight->before;
		item->after = sight->after;
		item->stable = is_stable(sight);
		item->len = item->stable ? item_len(ask, sight->before.size) : 0;
	}
	place_content((const uint8_t *)reader.at, (uint64_t)(reader.end - reader.at),
		      req->options.max_bytes, reply);
	for (unsigned i = 0; i < reply->count; i++) {
		struct sbx_pack_item *item = &reply->items[i];

		if (item->data == NULL) {
			item->stable = false;
			item->len = 0;
		}
	}
	return 0;
}

int sbx_pack_decode(const struct sbx_pack_request *req, const char *out, size_t out_len,
		    struct sbx_pack_reply **ret_reply)
{
	struct sbx_pack_reply *reply;
	struct sbx_program_answer answer;
	int error =
		sbx_program_unframe(out, out_len, req->program.nonce,
				    (size_t)req->options.max_bytes + REPLY_OVERHEAD_MAX, &answer);

	if (error < 0)
		return error;
	reply = g_new0(struct sbx_pack_reply, 1);
	reply->answer = answer;
	error = decode(req, reply);
	if (error < 0) {
		sbx_pack_reply_free(reply);
		return error;
	}
	*ret_reply = reply;
	return 0;
}

void sbx_pack_reply_free(struct sbx_pack_reply *reply)
{
	if (reply == NULL)
		return;
	g_free(reply->items);
	sbx_program_answer_clear(&reply->answer);
	g_free(reply);
}
