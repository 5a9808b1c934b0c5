#include "client/workspace/send.h"

#include <errno.h>
#include <string.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/session.h"
#include "client/workspace/mark.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/plain.h"
#include "client/workspace/spool.h"
#include "client/workspace/upload.h"

/* Zeros that are worth a request's trouble to leave out. */
#define HOLES_BYTES ((uint64_t)1 << 20)
/* More zeros between appended bytes than one would send. */
#define APPEND_ZEROS_BYTES ((uint64_t)1 << 20)
/* Pieces of one request: each costs the sandbox a process or two. */
#define PIECES_MAX 1500
/* In so long the sandbox surely applies one. */
#define WORK_PIECE_MS 20
#define OPS_MAX	      6

/* A list of operations under construction. */
struct send_ops {
	struct sbx_op op[OPS_MAX];
	size_t n;
};

static struct sbx_op *ops_add(struct send_ops *ops, enum sbx_op_kind kind, const char *path)
{
	struct sbx_op *op = &ops->op[ops->n];

	*op = (struct sbx_op){
		.kind = kind,
		.path = path,
		.flags = ops->n ? SBX_APPLY_AND : 0,
		.atime_ns = SBX_TIME_OMIT,
		.mtime_ns = SBX_TIME_OMIT,
		.mode = SBX_MODE_KEEP,
	};
	ops->n++;
	return op;
}

/* They append: under the attempt's id. */
static void ops_set_id(struct send_ops *ops, const struct sbx_sending *sending)
{
	ops->op[0].opid = sending->opid;
	ops->op[0].asked_before = sending->asked_before;
}

/* Run them. The errno of the first that failed; *sent as the last that names the path says. */
static int ops_run(const struct sbx_sending *sending, const struct sbx_call *call,
		   const struct send_ops *ops, int64_t work_ms, struct sbx_sent *sent)
{
	const struct sbx_sessions_options *options = sbx_session_options(sending->session);
	struct sbx_op_result results[OPS_MAX] = { 0 };
	bool places = false;
	int r;

	sent->answered = false;
	sending->works(sending->arg, work_ms);
	for (size_t i = 0; i < ops->n; i++)
		places |= strcmp(ops->op[i].path, sending->path) == 0;
	if (places && !sending->place_begin(sending->arg))
		return -ECANCELED;
	r = sbx_names_apply(sending->names, call, options->mutation_timeout_ms + work_ms, ops->op,
			    ops->n, results);
	if (places)
		sending->place_end(sending->arg);
	/* Refused before it was sent, or nobody knows. */
	if (r < 0)
		return r;
	sent->answered = true;
	for (size_t i = 0; i < ops->n; i++) {
		/* Only an error of what was meant counts, not of the tidying after it. */
		if (results[i].error < 0 && r == 0 && !(i > 0 && ops->op[i].kind == SBX_DO_UNLINK))
			r = results[i].error;
		if (strcmp(ops->op[i].path, sending->path) == 0 && results[i].has_attr) {
			sent->attr = results[i].attr;
			sent->known = true;
			sent->proven = results[i].proven;
		}
	}
	sbx_op_results_clear(results, ops->n);
	return r;
}

/* Staging -------------------------------------------------------------------------------------- */

static char *stage_name(const struct sbx_sending *sending)
{
	return sbx_mark_path(sending->mark, SBX_STAGE_DIR);
}

/* [start, start + len) of an upload as a body. */
struct stage_source {
	const struct sbx_upload *upload;
	uint64_t start;
	uint64_t len_bytes;
};

static ssize_t stage_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	const struct stage_source *source = arg;
	uint64_t left = source->len_bytes - MIN((uint64_t)offset, source->len_bytes);

	return sbx_upload_read(source->upload, buf, (size_t)MIN(len, left),
			       source->start + (uint64_t)offset);
}

static int stage_put(const struct sbx_sending *sending, const struct sbx_call *call,
		     const char *path, const struct sbx_upload *upload, uint64_t start,
		     uint64_t len)
{
	struct stage_source source = { upload, start, len };
	const struct sbx_source body = { (int64_t)len, stage_read_at, &source };

	return sbx_session_put(sending->session, call, path, &body);
}

/* Remove staged files after @error or success. Where the server can't be reached they are left to
 * the sweep. */
static void stage_drop(const struct sbx_sending *sending, const struct sbx_call *call,
		       const GPtrArray *stages, int error)
{
	if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ESTALE || error == -EACCES) {
		sbx_mark_leave(sending->mark);
		return;
	}
	for (guint i = 0; i < stages->len; i++) {
		struct send_ops ops = { .n = 0 };
		struct sbx_sent sent;
		int r;

		(void)ops_add(&ops, SBX_DO_UNLINK, stages->pdata[i]);
		r = ops_run(sending, call, &ops, 0, &sent);
		if (r < 0 && r != -ENOENT)
			sbx_mark_leave(sending->mark);
	}
}

/* The whole upload, in as many staged files as it takes. */
static int stage_all(const struct sbx_sending *sending, const struct sbx_call *call,
		     const struct sbx_upload *upload, GPtrArray *stages)
{
	int r = 0;

	for (uint64_t at = 0; r == 0 && at < upload->len_bytes; at += SBX_STAGE_BYTES) {
		char *name = stage_name(sending);

		g_ptr_array_add(stages, name);
		r = stage_put(sending, call, name, upload, at,
			      MIN(SBX_STAGE_BYTES, upload->len_bytes - at));
	}
	return r;
}

/* Pieces --------------------------------------------------------------------------------------- */

static void pieces_add(GArray *pieces, enum sbx_piece_kind kind, uint64_t offset, uint64_t at,
		       uint64_t len)
{
	struct sbx_apply_piece piece = {
		.kind = kind,
		.offset = offset,
		.content = { .stage_offset = at, .len = len },
	};

	g_array_append_val(pieces, piece);
}

/* Written runs of [0, end) as pieces; their bytes are added to @upload. */
static void pieces_of_writes(const struct sbx_layout *layout, uint64_t end, GArray *pieces,
			     struct sbx_upload *upload)
{
	struct sbx_apply_piece *last = NULL;

	for (guint i = 0; i < layout->extents->len; i++) {
		const struct sbx_extent *extent =
			&g_array_index(layout->extents, struct sbx_extent, i);

		if (extent->offset >= end)
			break;
		if (last && last->offset + last->content.len == extent->offset) {
			last->content.len += extent->len_bytes;
		} else {
			pieces_add(pieces, SBX_PIECE_WRITE, extent->offset, upload->len_bytes,
				   extent->len_bytes);
			last = &g_array_index(pieces, struct sbx_apply_piece, pieces->len - 1);
		}
		sbx_upload_add(upload, extent->offset, extent->offset + extent->len_bytes);
	}
}

/* Tell the pieces where their bytes are: in @data, or in the staged files. Those that lie on the
 * border of two files are cut. */
static GArray *pieces_place(const GArray *pieces, const uint8_t *data, const GPtrArray *stages)
{
	GArray *placed = g_array_new(FALSE, FALSE, sizeof(struct sbx_apply_piece));

	for (guint i = 0; i < pieces->len; i++) {
		struct sbx_apply_piece piece = g_array_index(pieces, struct sbx_apply_piece, i);
		uint64_t at = piece.content.stage_offset;
		uint64_t left = piece.content.len;

		do {
			uint64_t room = SBX_STAGE_BYTES - at % SBX_STAGE_BYTES;

			piece.content.len = MIN(left, room);
			piece.content.data = data ? data + at : NULL;
			piece.content.stage = NULL;
			piece.content.stage_offset = 0;
			if (!data && left > 0) {
				piece.content.stage = stages->pdata[at / SBX_STAGE_BYTES];
				piece.content.stage_offset = at % SBX_STAGE_BYTES;
			}
			g_array_append_val(placed, piece);
			piece.offset += piece.content.len;
			at += piece.content.len;
			left -= piece.content.len;
		} while (left > 0);
	}
	return placed;
}

/* Whole ---------------------------------------------------------------------------------------- */

static void save_init(const struct sbx_sending *sending, struct sbx_op *op)
{
	const struct sbx_spool_meta *meta = &sending->view->meta;

	if (meta->flags & SBX_SPOOL_ADDS)
		op->flags |= meta->flags & SBX_SPOOL_NEW ? SBX_APPLY_EXCL : SBX_APPLY_EMPTY;
	if (meta->flags & (SBX_SPOOL_NEW | SBX_SPOOL_MODE))
		op->mode = meta->mode & 0777;
	if (meta->flags & SBX_SPOOL_ATIME)
		op->atime_ns = meta->atime_ns;
	if (meta->flags & SBX_SPOOL_MTIME)
		op->mtime_ns = meta->mtime_ns;
}

static int send_whole_inline(const struct sbx_sending *sending, const struct sbx_call *call,
			     const struct sbx_upload *upload, struct sbx_sent *sent)
{
	struct send_ops ops = { .n = 0 };
	g_autofree void *data = NULL;
	struct sbx_op *op;
	int r = 0;

	data = sbx_upload_take(upload, &r);
	if (!data)
		return r;
	op = ops_add(&ops, SBX_DO_SAVE, sending->path);
	save_init(sending, op);
	ops_set_id(&ops, sending);
	op->content.data = data;
	op->content.len = upload->len_bytes;
	return ops_run(sending, call, &ops, 0, sent);
}

static int send_whole_staged(const struct sbx_sending *sending, const struct sbx_call *call,
			     const struct sbx_upload *upload, struct sbx_sent *sent)
{
	g_autoptr(GPtrArray) stages = g_ptr_array_new_with_free_func(g_free);
	struct send_ops ops = { .n = 0 };
	struct sbx_op *op;
	int r = 0;

	g_ptr_array_add(stages, sending->stage ? g_strdup(sending->stage) : stage_name(sending));
	if (!sending->stage)
		r = stage_put(sending, call, stages->pdata[0], upload, 0, upload->len_bytes);
	if (r == 0) {
		op = ops_add(&ops, SBX_DO_SAVE, sending->path);
		save_init(sending, op);
		ops_set_id(&ops, sending);
		op->content.stage = stages->pdata[0];
		op->content.len = upload->len_bytes;
		r = ops_run(sending, call, &ops, sbx_op_work_ms(upload->len_bytes), sent);
	}
	if (r < 0)
		stage_drop(sending, call, stages, r);
	return r;
}

/* Mostly holes, or too big for a PUT: the written parts go up and are put together there. */
static int send_whole_parts(const struct sbx_sending *sending, const struct sbx_call *call,
			    struct sbx_sent *sent)
{
	const struct sbx_layout *layout = &sending->view->layout;
	g_autoptr(GPtrArray) stages = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GArray) pieces = g_array_new(FALSE, FALSE, sizeof(struct sbx_apply_piece));
	g_autoptr(GArray) placed = NULL;
	g_autofree char *target = stage_name(sending);
	struct sbx_upload upload;
	int r;

	sbx_upload_init(&upload, sending->view);
	pieces_of_writes(layout, layout->size_bytes, pieces, &upload);
	r = stage_all(sending, call, &upload, stages);
	if (r == 0) {
		struct send_ops ops = { .n = 0 };
		struct sbx_op *op = ops_add(&ops, SBX_DO_SAVE, target);

		op->mode = 0600;
		op->content.data = "";
		r = ops_run(sending, call, &ops, 0, sent);
	}
	placed = pieces_place(pieces, NULL, stages);
	for (guint at = 0; r == 0 && at < placed->len; at += PIECES_MAX) {
		struct send_ops ops = { .n = 0 };
		struct sbx_op *op = ops_add(&ops, SBX_DO_PATCH, target);

		op->pieces = &g_array_index(placed, struct sbx_apply_piece, at);
		op->n_pieces = MIN(placed->len - at, (guint)PIECES_MAX);
		r = ops_run(sending, call, &ops,
			    sbx_op_work_ms(upload.len_bytes) +
				    (int64_t)op->n_pieces * WORK_PIECE_MS,
			    sent);
	}
	if (r == 0) {
		struct send_ops ops = { .n = 0 };
		struct sbx_op *op = ops_add(&ops, SBX_DO_TRUNCATE, target);

		ops_set_id(&ops, sending);
		op->size = layout->size_bytes;
		op = ops_add(&ops, SBX_DO_SAVE, sending->path);
		save_init(sending, op);
		op->content.stage = target;
		op->content.len = layout->size_bytes;
		r = ops_run(sending, call, &ops, sbx_op_work_ms(layout->size_bytes), sent);
	}
	if (r < 0)
		g_ptr_array_add(stages, g_steal_pointer(&target));
	stage_drop(sending, call, stages, r);
	sbx_upload_done(&upload);
	return r;
}

static int whole_run(const struct sbx_sending *sending, const struct sbx_call *call,
		     struct sbx_sent *sent)
{
	const struct sbx_layout *layout = &sending->view->layout;
	uint64_t zeros = layout->size_bytes - layout->log_bytes;
	struct sbx_upload upload;
	int r = -E2BIG;

	if (layout->size_bytes > SBX_STAGE_BYTES ||
	    (zeros > HOLES_BYTES && zeros > layout->size_bytes / 2))
		return send_whole_parts(sending, call, sent);
	sbx_upload_init(&upload, sending->view);
	sbx_upload_add(&upload, 0, layout->size_bytes);
	if (upload.len_bytes <= SBX_INLINE_BYTES && !sending->stage)
		r = send_whole_inline(sending, call, &upload, sent);
	if (r == -E2BIG)
		r = send_whole_staged(sending, call, &upload, sent);
	sbx_upload_done(&upload);
	return r;
}

/* Patch ---------------------------------------------------------------------------------------- */

/* What a patch does, in order. */
struct patch {
	GArray *pieces; /* truncation and writes */
	uint64_t grow_to; /* 0: no growth by itself */
	GArray *tail; /* appends */
	struct sbx_upload upload;
};

static void patch_plan(const struct sbx_layout *layout, struct patch *patch)
{
	uint64_t append_start = MIN(layout->append_start, layout->size_bytes);
	uint64_t end = layout->base_cut_bytes;
	struct sbx_upload *upload = &patch->upload;
	bool is_cut = layout->base_cut_bytes < layout->base_size_bytes;

	if (layout->size_bytes - append_start > layout->log_bytes + APPEND_ZEROS_BYTES)
		append_start = layout->size_bytes;
	if (is_cut)
		pieces_add(patch->pieces, SBX_PIECE_TRUNCATE, layout->base_cut_bytes, 0, 0);
	pieces_of_writes(layout, append_start, patch->pieces, upload);
	if (patch->pieces->len > (is_cut ? 1u : 0u)) {
		const struct sbx_apply_piece *last = &g_array_index(
			patch->pieces, struct sbx_apply_piece, patch->pieces->len - 1);

		end = MAX(end, last->offset + last->content.len);
	}
	if (append_start > end && is_cut)
		pieces_add(patch->pieces, SBX_PIECE_TRUNCATE, append_start, 0, 0);
	else if (append_start > end)
		patch->grow_to = append_start;
	if (append_start < layout->size_bytes) {
		pieces_add(patch->tail, SBX_PIECE_APPEND, 0, upload->len_bytes,
			   layout->size_bytes - append_start);
		sbx_upload_add(upload, append_start, layout->size_bytes);
	}
}

static void ops_add_patch(struct send_ops *ops, const char *path, const GArray *pieces, guint from,
			  guint n)
{
	struct sbx_op *op;

	if (n == 0)
		return;
	op = ops_add(ops, SBX_DO_PATCH, path);
	op->pieces = &g_array_index(pieces, struct sbx_apply_piece, from);
	op->n_pieces = n;
}

static void ops_add_meta(const struct sbx_sending *sending, struct send_ops *ops)
{
	const struct sbx_spool_meta *meta = &sending->view->meta;
	struct sbx_op *op;

	if (meta->flags & SBX_SPOOL_MODE) {
		op = ops_add(ops, SBX_DO_CHMOD, sending->path);
		op->mode = meta->mode & 0777;
	}
	if (meta->flags & (SBX_SPOOL_ATIME | SBX_SPOOL_MTIME)) {
		op = ops_add(ops, SBX_DO_UTIMENS, sending->path);
		if (meta->flags & SBX_SPOOL_ATIME)
			op->atime_ns = meta->atime_ns;
		if (meta->flags & SBX_SPOOL_MTIME)
			op->mtime_ns = meta->mtime_ns;
	}
}

/* Does the patch say all that the file shall hold, should there be none by now? Appends that were
 * meant for one go into a new one, as they would had it been removed before it was opened. */
static bool patch_is_enough(const struct sbx_sending *sending, const struct patch *patch)
{
	const struct sbx_layout *layout = &sending->view->layout;
	const struct sbx_apply_piece *piece =
		&g_array_index(patch->pieces, struct sbx_apply_piece, 0);

	if (patch->grow_to > 0)
		return false;
	if (patch->pieces->len == 0)
		return patch->tail->len > 0;
	return patch->pieces->len == 1 && patch->tail->len == 0 && piece->kind == SBX_PIECE_WRITE &&
	       piece->offset == 0 && piece->content.len == layout->size_bytes;
}

/* What follows from what the request under an attempt's id has found goes under an id of its own,
 * with a letter that no random id begins with. */
#define AFTER_GONE   'n' /* a new file is made */
#define AFTER_EXISTS 'p' /* what is there is patched */

/* NULL: the attempt has none. */
static char *opid_after(const char *opid, char what)
{
	char *after = g_strdup(opid);

	if (after)
		after[0] = what;
	return after;
}

void sbx_send_give_up(struct sbx_names *names, const char *opid)
{
	g_autofree char *gone = opid_after(opid, AFTER_GONE);
	g_autofree char *exists = opid_after(opid, AFTER_EXISTS);

	sbx_names_give_up(names, opid);
	sbx_names_give_up(names, gone);
	sbx_names_give_up(names, exists);
}

/* The file has gone in the sandbox: a new one is made of @pieces. */
static int patch_anew(const struct sbx_sending *sending, const struct sbx_call *call,
		      const GArray *pieces, const GPtrArray *stages, int64_t work_ms,
		      struct sbx_sent *sent)
{
	const struct sbx_spool_meta *meta = &sending->view->meta;
	g_autofree char *opid = opid_after(sending->opid, AFTER_GONE);
	struct send_ops ops = { .n = 0 };
	struct sbx_op *op = ops_add(&ops, SBX_DO_CREATE, sending->path);

	op->opid = opid;
	op->asked_before = sending->asked_before;
	op->mode = meta->flags & SBX_SPOOL_MODE ? meta->mode & 0777 : SBX_MODE_NEW;
	ops_add_patch(&ops, sending->path, pieces, 0, pieces->len);
	ops_add_meta(sending, &ops);
	if (stages && stages->len == 1)
		(void)ops_add(&ops, SBX_DO_UNLINK, stages->pdata[0]);
	return ops_run(sending, call, &ops, work_ms, sent);
}

/* @data or @stages hold the patch's bytes. */
static int patch_run(const struct sbx_sending *sending, const struct sbx_call *call,
		     const struct patch *patch, const uint8_t *data, const GPtrArray *stages,
		     struct sbx_sent *sent)
{
	g_autoptr(GArray) pieces = pieces_place(patch->pieces, data, stages);
	g_autoptr(GArray) tail = pieces_place(patch->tail, data, stages);
	int64_t work_ms = sbx_op_work_ms(patch->upload.len_bytes);
	guint at = 0;
	int r = 0;

	/* More pieces than one request can be asked to do go before, in several. */
	for (; r == 0 && pieces->len - at > PIECES_MAX; at += PIECES_MAX) {
		struct send_ops ops = { .n = 0 };

		ops_add_patch(&ops, sending->path, pieces, at, PIECES_MAX);
		r = ops_run(sending, call, &ops, work_ms + PIECES_MAX * WORK_PIECE_MS, sent);
	}
	if (r == 0) {
		struct send_ops ops = { .n = 0 };

		ops_add_patch(&ops, sending->path, pieces, at, pieces->len - at);
		if (patch->grow_to > 0)
			ops_add(&ops, SBX_DO_EXTEND, sending->path)->size = patch->grow_to;
		ops_add_patch(&ops, sending->path, tail, 0, tail->len);
		ops_add_meta(sending, &ops);
		if (stages && stages->len == 1)
			(void)ops_add(&ops, SBX_DO_UNLINK, stages->pdata[0]);
		if (tail->len > 0)
			ops_set_id(&ops, sending);
		r = ops.n ? ops_run(sending, call, &ops,
				    work_ms + (int64_t)(pieces->len - at) * WORK_PIECE_MS, sent)
			  : 0;
		if (r == -ENOENT && patch_is_enough(sending, patch))
			r = patch_anew(sending, call, tail->len > 0 ? tail : pieces, stages,
				       work_ms, sent);
	}
	return r;
}

static int send_patch(const struct sbx_sending *sending, const struct sbx_call *call,
		      struct sbx_sent *sent)
{
	g_autoptr(GPtrArray) stages = g_ptr_array_new_with_free_func(g_free);
	struct patch patch = {
		.pieces = g_array_new(FALSE, FALSE, sizeof(struct sbx_apply_piece)),
		.tail = g_array_new(FALSE, FALSE, sizeof(struct sbx_apply_piece)),
	};
	int r = -E2BIG;

	sbx_upload_init(&patch.upload, sending->view);
	patch_plan(&sending->view->layout, &patch);
	if (patch.upload.len_bytes <= SBX_INLINE_BYTES) {
		g_autofree void *data = sbx_upload_take(&patch.upload, &r);

		if (data)
			r = patch_run(sending, call, &patch, data, NULL, sent);
	}
	if (r == -E2BIG) {
		r = stage_all(sending, call, &patch.upload, stages);
		if (r == 0)
			r = patch_run(sending, call, &patch, NULL, stages, sent);
		if (r < 0 || stages->len > 1)
			stage_drop(sending, call, stages, r);
	}
	sbx_upload_done(&patch.upload);
	g_array_unref(patch.pieces);
	g_array_unref(patch.tail);
	return r;
}

/*
 * Whole: as a new file, or in the place of an old one. Where nothing was cut, and the sandbox has
 * come to have a file with content of that name, that stays, and what was written goes into it.
 */
static int send_whole(const struct sbx_sending *sending, const struct sbx_call *call,
		      struct sbx_sent *sent)
{
	g_autofree char *opid = NULL;
	struct sbx_sending patching = *sending;
	int r = whole_run(sending, call, sent);

	sent->whole = r == 0 && sent->proven;
	if (r != -EEXIST || !(sending->view->meta.flags & SBX_SPOOL_ADDS))
		return r;
	/* What is an id for the one request must not be for the other. */
	patching.opid = opid = opid_after(sending->opid, AFTER_EXISTS);
	return send_patch(&patching, call, sent);
}

/* Without exec --------------------------------------------------------------------------------- */

/* Onto the path itself: the route can't do better. */
static int send_plain(const struct sbx_sending *sending, const struct sbx_call *call,
		      struct sbx_sent *sent)
{
	const struct sbx_layout *layout = &sending->view->layout;
	struct sbx_upload upload;
	int r;

	sbx_upload_init(&upload, sending->view);
	upload.base = sending->base;
	upload.call = call;
	sbx_upload_add(&upload, 0, layout->size_bytes);
	r = stage_put(sending, call, sending->path, &upload, 0, upload.len_bytes);
	sbx_upload_done(&upload);
	sent->known =
		r == 0 && names_plain_stat(sending->names, call, sending->path, &sent->attr) == 0;
	if (!sent->known)
		names_plain_doubt(sending->names, sending->path);
	return r;
}

int sbx_send(const struct sbx_sending *sending, const struct sbx_call *call,
	     struct sbx_sent *ret_sent)
{
	const struct sbx_probe_reply *probe;
	int r;

	*ret_sent = (struct sbx_sent){ .known = false };
	/* The probe makes the staging directory; and it tells whether there is exec. */
	r = sbx_names_probe(sending->names, call, &probe);
	if (r == -EOPNOTSUPP)
		return send_plain(sending, call, ret_sent);
	if (r < 0)
		return r;
	if (sending->view->meta.kind == SBX_SPOOL_WHOLE)
		return send_whole(sending, call, ret_sent);
	return send_patch(sending, call, ret_sent);
}
