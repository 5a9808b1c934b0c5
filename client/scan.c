#include "client/scan.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/record.h"

#define DEFAULT_MAX_ENTRIES 50000
#define REPLY_BYTES_MAX	    ((size_t)1 << 30)
#define NS_PER_S	    INT64_C(1000000000)
#define S_PER_MIN	    60

static int add_since(struct sbx_scan_request *req)
{
	int64_t since_ns = MAX(req->options.since_ns, 0);
	int64_t now_s = g_get_real_time() / G_USEC_PER_SEC;
	int64_t minutes;
	int error;

	/*
	 * Where find knows only whole minutes: enough of them, and one more, also when the two
	 * clocks differ by some; more entries than needed do no harm.
	 */
	minutes = MAX(now_s - since_ns / NS_PER_S, 0) / S_PER_MIN + 3;
	error = sbx_program_request_addf(&req->program, "%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT,
					 since_ns / NS_PER_S, since_ns % NS_PER_S);
	if (error == 0)
		error = sbx_program_request_addf(&req->program, "%" G_GINT64_FORMAT, minutes);
	if (error == 0)
		error = sbx_program_request_add(&req->program, req->options.dirs_only ? "1" : "0");
	return error;
}

int sbx_scan_request_init(struct sbx_scan_request *req, const struct sbx_scan_options *options,
			  const struct sbx_tools *tools, const struct sbx_program_limits *limits)
{
	static const char *const words[] = {
		[SBX_SCAN_TREE] = "tree",
		[SBX_SCAN_LIST] = "list",
		[SBX_SCAN_SINCE] = "since",
		[SBX_SCAN_LSTAT] = "lstat",
	};
	int error;

	req->options = *options;
	req->paths = g_ptr_array_new_with_free_func(g_free);
	error = sbx_program_request_init(&req->program, SBX_PROGRAM_SCAN, tools, limits);
	if (error == 0)
		error = sbx_program_request_add(&req->program, words[options->mode]);
	if (error == 0 && options->mode == SBX_SCAN_TREE)
		error = sbx_program_request_addf(&req->program, "%u",
						 options->max_entries > 0 ? options->max_entries
									  : DEFAULT_MAX_ENTRIES);
	if (error == 0 && options->mode == SBX_SCAN_SINCE)
		error = add_since(req);
	return error;
}

void sbx_scan_request_clear(struct sbx_scan_request *req)
{
	sbx_program_request_clear(&req->program);
	g_clear_pointer(&req->paths, g_ptr_array_unref);
}

int sbx_scan_request_add(struct sbx_scan_request *req, const char *path)
{
	int error = sbx_program_request_add_path(&req->program, path);

	if (error < 0)
		return error;
	g_ptr_array_add(req->paths, g_strdup(sbx_record_path(path)));
	return 0;
}

static void place_free(gpointer data)
{
	struct sbx_scan_place *place = data;

	if (place->entries != NULL)
		g_array_unref(place->entries);
	g_free(place);
}

static struct sbx_scan_place *add_place(struct sbx_scan_reply *reply, const char *path)
{
	struct sbx_scan_place *place = g_new0(struct sbx_scan_place, 1);

	place->path = path;
	place->state = SBX_SCAN_FAILED;
	place->error = ENOENT;
	g_ptr_array_add(reply->places, place);
	g_hash_table_insert(reply->by_path, (gpointer)path, place);
	return place;
}

static void set_state(struct sbx_scan_place *place, enum sbx_scan_state state, int error)
{
	place->state = state;
	place->error = error;
	if (state == SBX_SCAN_LISTED || state == SBX_SCAN_UNCHANGED) {
		if (place->entries == NULL)
			place->entries = g_array_new(FALSE, FALSE, sizeof(struct sbx_scan_entry));
	} else {
		g_clear_pointer(&place->entries, g_array_unref);
	}
}

/* What is needed while the records of one reply are walked over. */
struct scan_walk {
	const struct sbx_scan_request *req;
	struct sbx_scan_reply *reply;
	struct sbx_scan_place *parent; /* of the last record: the next one is mostly beside it */
	GHashTable *entered; /* places that are entries of their parent already */
	uint64_t depth;
};

/* The place that holds path; NULL when there is none, and for a root. */
static struct sbx_scan_place *find_parent(struct scan_walk *walk, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash != NULL ? (size_t)(slash - path) : 0;
	struct sbx_scan_place *parent = walk->parent;
	g_autofree char *key = NULL;

	if (path[0] == '\0' || strcmp(path, "/") == 0)
		return NULL;
	if (path[0] == '/' && len == 0)
		len = 1;
	if (parent != NULL && strncmp(parent->path, path, len) == 0 && parent->path[len] == '\0')
		return parent;
	key = g_strndup(path, len);
	parent = g_hash_table_lookup(walk->reply->by_path, key);
	if (parent != NULL)
		walk->parent = parent;
	return parent;
}

static int add_entry(struct scan_walk *walk, struct sbx_scan_place *parent,
		     const struct sbx_record *record)
{
	const char *slash = strrchr(record->path, '/');
	const char *name = slash != NULL ? slash + 1 : record->path;
	struct sbx_scan_entry entry = { .attr = record->attr, .name = name, .link = record->link };

	if (!sbx_program_name_valid(name, strlen(name))) {
		g_ptr_array_add(walk->reply->refused, (gpointer)record->path);
		return 0;
	}
	if (S_ISDIR(entry.attr.mode) && parent->depth + 1 >= walk->depth)
		walk->reply->complete = false;
	g_array_append_val(parent->entries, entry);
	return 0;
}

static void set_seen(struct scan_walk *walk, struct sbx_scan_place *place,
		     const struct sbx_record *record)
{
	place->attr = record->attr;
	place->has_attr = true;
	place->link = record->link;
	if (walk->req->options.mode == SBX_SCAN_LSTAT)
		set_state(place, SBX_SCAN_KNOWN, 0);
	else if (!S_ISDIR(record->attr.mode))
		set_state(place, SBX_SCAN_FAILED, ENOTDIR);
	else if (record->kind == 'u')
		set_state(place, SBX_SCAN_UNCHANGED, 0);
	else if (place->state != SBX_SCAN_UNCHANGED)
		set_state(place, SBX_SCAN_LISTED, 0);
}

/*
 * A path that was asked for can also be an entry of another one: its record then comes twice, in
 * either order. A record without a place and without a parent is left from what was just removed.
 */
static int take_seen(struct scan_walk *walk, const struct sbx_record *record)
{
	struct sbx_scan_place *place = g_hash_table_lookup(walk->reply->by_path, record->path);
	struct sbx_scan_place *parent = NULL;

	if (walk->req->options.mode == SBX_SCAN_LSTAT && place == NULL)
		return -EBADMSG;
	if (place != NULL)
		set_seen(walk, place, record);
	if (record->kind != 'u')
		parent = find_parent(walk, record->path);
	if (parent == NULL || parent->state != SBX_SCAN_LISTED)
		return 0;
	if (place != NULL && !g_hash_table_add(walk->entered, place))
		return 0;
	if (place == NULL && walk->req->options.mode == SBX_SCAN_TREE &&
	    S_ISDIR(record->attr.mode) && parent->depth + 1 < walk->depth) {
		place = add_place(walk->reply, record->path);
		place->depth = parent->depth + 1;
		set_seen(walk, place, record);
		g_hash_table_add(walk->entered, place);
	}
	return add_entry(walk, parent, record);
}

static int take_changed(struct scan_walk *walk, const struct sbx_record *record)
{
	struct sbx_scan_place *parent = find_parent(walk, record->path);

	if (parent == NULL || parent->state != SBX_SCAN_UNCHANGED)
		return 0;
	return add_entry(walk, parent, record);
}

static int take_failure(struct scan_walk *walk, struct sbx_reader *reader)
{
	struct sbx_scan_place *place;
	char *text;
	char *path;
	int error = sbx_reader_string(reader, 'x', &text);

	if (error == 0)
		error = sbx_reader_string(reader, 0, &path);
	if (error < 0)
		return error;
	place = g_hash_table_lookup(walk->reply->by_path, sbx_record_path(path));
	/* What could be looked at in the end has no text. */
	if (place != NULL && text[1] != '\0')
		set_state(place, SBX_SCAN_FAILED, sbx_program_errno(text + 1));
	return 0;
}

static int walk_records(struct scan_walk *walk, struct sbx_reader *reader)
{
	struct sbx_record record;
	char *text;
	int error = sbx_reader_clock(reader, &walk->reply->clock_ns, &walk->reply->clock_has_ns);

	if (error == 0)
		error = sbx_reader_string(reader, 'd', &text);
	if (error == 0)
		error = sbx_record_number(text + 1, UINT32_MAX, &walk->depth);
	while (error == 0) {
		switch (sbx_reader_peek(reader)) {
		case 'a':
		case 'b':
			error = sbx_reader_record(reader, &record);
			if (error < 0)
				break;
			if (record.kind == 'n')
				error = take_changed(walk, &record);
			else if (record.kind == 'f' || record.kind == 'u')
				error = take_seen(walk, &record);
			else
				error = -EBADMSG;
			break;
		case 'x':
			error = take_failure(walk, reader);
			break;
		case 'e':
			error = sbx_reader_string(reader, 'e', &text);
			if (error == 0 && (text[1] != '\0' || reader->at != reader->end))
				error = -EBADMSG;
			return error;
		default:
			error = -EBADMSG;
		}
	}
	return error;
}

static int take_section(const struct sbx_scan_request *req, struct sbx_scan_reply *reply)
{
	GByteArray *section = reply->answer.section[0];
	struct sbx_reader reader = { (char *)section->data, (char *)section->data + section->len };
	struct scan_walk walk = { .req = req, .reply = reply };
	int error;

	if (reply->answer.sections != 1 || section->len == 0)
		return -EBADMSG;
	for (guint i = 0; i < req->paths->len; i++) {
		const char *path = g_string_chunk_insert(reply->strings, req->paths->pdata[i]);

		if (g_hash_table_contains(reply->by_path, path))
			return -EINVAL;
		add_place(reply, path);
	}
	walk.entered = g_hash_table_new(NULL, NULL);
	reply->complete = true;
	error = walk_records(&walk, &reader);
	g_hash_table_unref(walk.entered);
	return error;
}

/* Takes over what @answer holds. */
static int decode_answer(const struct sbx_scan_request *req, struct sbx_program_answer *answer,
			 struct sbx_scan_reply **ret_reply)
{
	struct sbx_scan_reply *reply = g_new0(struct sbx_scan_reply, 1);
	int error;

	reply->answer = *answer;
	reply->strings = g_string_chunk_new(1024);
	reply->places = g_ptr_array_new_with_free_func(place_free);
	reply->refused = g_ptr_array_new();
	reply->by_path = g_hash_table_new(g_str_hash, g_str_equal);
	error = take_section(req, reply);
	if (error < 0) {
		sbx_scan_reply_free(reply);
		return error;
	}
	*ret_reply = reply;
	return 0;
}

int sbx_scan_decode(const struct sbx_scan_request *req, const char *out, size_t out_len,
		    struct sbx_scan_reply **ret_reply)
{
	struct sbx_program_answer answer;
	int error = sbx_program_unframe(out, out_len, req->program.nonce, REPLY_BYTES_MAX, &answer);

	return error < 0 ? error : decode_answer(req, &answer, ret_reply);
}

int sbx_scan_decode_section(const struct sbx_scan_request *req, GByteArray *section,
			    struct sbx_scan_reply **ret_reply)
{
	struct sbx_program_answer answer = {
		.section = { g_byte_array_ref(section) },
		.sections = 1,
	};

	return decode_answer(req, &answer, ret_reply);
}

void sbx_scan_reply_free(struct sbx_scan_reply *reply)
{
	if (reply == NULL)
		return;
	g_hash_table_unref(reply->by_path);
	g_ptr_array_unref(reply->places);
	g_ptr_array_unref(reply->refused);
	g_string_chunk_free(reply->strings);
	sbx_program_answer_clear(&reply->answer);
	g_free(reply);
}

const struct sbx_scan_place *sbx_scan_reply_place(const struct sbx_scan_reply *reply,
						  const char *path)
{
	return g_hash_table_lookup(reply->by_path, sbx_record_path(path));
}
