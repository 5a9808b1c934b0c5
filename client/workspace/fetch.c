#include "client/workspace/fetch.h"

#include <errno.h>
#include <glib.h>

#include "client/call.h"
#include "client/probe.h"
#include "client/session.h"
#include "client/workspace/blob.h"
#include "client/workspace/names.h"

/* Frame, attributes and line ends of an answer, beside its content. */
#define FETCH_FRAME_BYTES 2048
#define FETCH_ITEM_BYTES  256
/* How often a request is encoded anew because the sandbox carries less than was thought. */
#define FETCH_TRIES 4

uint64_t sbx_fetch_limit(struct sbx_names *names, uint64_t want_bytes, size_t n_items)
{
	uint64_t frame = FETCH_FRAME_BYTES + n_items * FETCH_ITEM_BYTES;
	struct sbx_program_limits limits;
	uint64_t room;

	sbx_names_limits(names, &limits);
	if (limits.reply_bytes == 0)
		return want_bytes;
	/* Base64 makes four of three; a line end now and then. */
	room = limits.reply_bytes > 2 * frame ? (limits.reply_bytes - frame) / 100 * 72 : frame / 4;
	return MIN(want_bytes, room);
}

static void fetch_take(struct sbx_fetch_item *item, const struct sbx_pack_item *answer)
{
	item->error = -answer->error;
	item->has_attr = answer->has_attr;
	if (answer->has_attr)
		item->attr = answer->before;
	if (answer->error)
		return;
	if (!answer->stable) {
		item->error = -EAGAIN;
		return;
	}
	item->attr = answer->after;
	item->blob = sbx_blob_copy(answer->data, answer->len);
	if (!item->blob)
		item->error = -ENOMEM;
}

/* One try. -EAGAIN: again, under new limits. */
static int fetch_once(struct sbx_session *session, struct sbx_names *names,
		      const struct sbx_call *call, const struct sbx_tools *tools,
		      struct sbx_fetch_item *items, size_t n_items, uint64_t max_bytes,
		      bool compress, int64_t *ret_clock_ns)
{
	struct sbx_pack_options options = { .compress = compress };
	struct sbx_program_limits limits;
	struct sbx_pack_request req;
	struct sbx_exec_result result;
	struct sbx_pack_reply *reply = NULL;
	const char *const *argv;
	size_t n_added = 0;
	int r;

	sbx_names_limits(names, &limits);
	options.max_bytes = sbx_fetch_limit(names, max_bytes, n_items);
	r = sbx_pack_request_init(&req, &options, tools, &limits);
	while (r == 0 && n_added < n_items) {
		const struct sbx_fetch_item *item = &items[n_added];
		uint64_t len = item->len_bytes == SBX_PACK_WHOLE
				       ? SBX_PACK_WHOLE
				       : MIN(item->len_bytes, options.max_bytes);

		r = sbx_pack_request_add(&req, item->path, item->offset, len);
		if (r < 0)
			break;
		r = 0;
		n_added++;
	}
	/* What does not fit waits for another request. */
	if (r == -E2BIG && n_added > 0)
		r = 0;
	if (r < 0)
		goto out;
	argv = sbx_pack_request_argv(&req, &r);
	if (!argv)
		goto out;
	r = sbx_names_run(names, call, sbx_session_options(session)->timeout_ms, argv, true,
			  &result);
	if (r == -E2BIG)
		r = -EAGAIN;
	if (r < 0)
		goto out;
	r = sbx_pack_decode(&req, result.out, result.out_len, &reply);
	if (r < 0)
		r = sbx_names_bad_answer(names, "pack", r, &result);
	sbx_exec_result_clear(&result);
	if (r < 0)
		goto out;
	for (size_t i = 0; i < n_items; i++) {
		if (i < n_added && i < reply->count)
			fetch_take(&items[i], &reply->items[i]);
		else
			items[i].error = -EAGAIN;
	}
	*ret_clock_ns = reply->clock_ns;
	sbx_pack_reply_free(reply);
	r = 0;
out:
	sbx_pack_request_clear(&req);
	return r;
}

int sbx_fetch(struct sbx_session *session, struct sbx_names *names, const struct sbx_call *call,
	      struct sbx_fetch_item *items, size_t n_items, uint64_t max_bytes, bool compress,
	      int64_t *ret_clock_ns)
{
	const struct sbx_probe_reply *probe;
	struct sbx_call own = *call;
	int r;

	own.operation = "read";
	own.path = items[0].path;
	r = sbx_names_probe(names, &own, &probe);
	if (r < 0)
		return r;
	for (int tries = 0; tries < FETCH_TRIES; tries++) {
		r = fetch_once(session, names, &own, &probe->tools, items, n_items, max_bytes,
			       compress, ret_clock_ns);
		if (r != -EAGAIN)
			return r;
	}
	return -EIO;
}

void sbx_fetch_clear(struct sbx_fetch_item *items, size_t n_items)
{
	for (size_t i = 0; i < n_items; i++) {
		sbx_blob_unref(items[i].blob);
		items[i].blob = NULL;
	}
}
