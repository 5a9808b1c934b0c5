#include "client/workspace/op.h"

#include <errno.h>
#include <string.h>

#include <glib.h>

#include "client/workspace/names_impl.h"
#include "client/workspace/workspace.h"

/* How fast the slowest disk is, a millisecond. */
#define WORK_BYTES_MS 20000

const char *sbx_op_word(enum sbx_op_kind kind)
{
	static const char *const words[] = {
		[SBX_DO_MKDIR] = "mkdir",	[SBX_DO_RMDIR] = "rmdir",
		[SBX_DO_UNLINK] = "unlink",	[SBX_DO_RENAME] = "rename",
		[SBX_DO_LINK] = "link",		[SBX_DO_SYMLINK] = "symlink",
		[SBX_DO_CHMOD] = "chmod",	[SBX_DO_UTIMENS] = "utimens",
		[SBX_DO_TRUNCATE] = "truncate", [SBX_DO_EXTEND] = "truncate",
		[SBX_DO_CREATE] = "create",	[SBX_DO_EXPECT] = "look",
		[SBX_DO_SWEEP] = "sweep",	[SBX_DO_SAVE] = "write",
		[SBX_DO_PATCH] = "write",	[SBX_DO_COPY] = "copy",
	};

	return words[kind];
}

void sbx_op_results_clear(struct sbx_op_result *results, size_t n_results)
{
	for (size_t i = 0; i < n_results; i++)
		g_clear_pointer(&results[i].link, g_free);
}

int sbx_op_add(struct sbx_apply_request *req, const struct sbx_op *op)
{
	const char *path = op->path ? names_wire_path(op->path) : NULL;
	struct sbx_apply_how how = {
		.mode = op->mode,
		.atime_ns = op->atime_ns,
		.mtime_ns = op->mtime_ns,
		.held = op->held,
		.flags = op->flags,
	};

	switch (op->kind) {
	case SBX_DO_MKDIR:
		return sbx_apply_mkdir(req, path, op->mode, op->flags);
	case SBX_DO_RMDIR:
		return sbx_apply_rmdir(req, path, op->flags);
	case SBX_DO_UNLINK:
		return sbx_apply_unlink(req, path, op->held, op->flags);
	case SBX_DO_RENAME:
		return sbx_apply_rename(req, op->from, path, op->held, op->flags);
	case SBX_DO_LINK:
		return sbx_apply_link(req, op->from, path, op->flags);
	case SBX_DO_SYMLINK:
		return sbx_apply_symlink(req, op->from, path, op->flags);
	case SBX_DO_CHMOD:
		return sbx_apply_chmod(req, path, op->mode, op->flags);
	case SBX_DO_UTIMENS:
		return sbx_apply_utimens(req, path, op->atime_ns, op->mtime_ns, op->flags);
	case SBX_DO_TRUNCATE:
		return sbx_apply_truncate(req, path, op->size, op->flags);
	case SBX_DO_EXTEND:
		return sbx_apply_extend(req, path, op->size, op->flags);
	case SBX_DO_CREATE:
		return sbx_apply_create(req, path, op->mode, op->flags);
	case SBX_DO_EXPECT:
		return sbx_apply_expect(req, path, op->dev, op->ino, op->flags);
	case SBX_DO_SWEEP:
		return sbx_apply_sweep(req, op->path, (unsigned int)op->size, op->from, op->flags);
	case SBX_DO_SAVE:
		return sbx_apply_save(req, path, &op->content, &how);
	case SBX_DO_PATCH:
		return sbx_apply_patch(req, path, op->pieces, op->n_pieces, op->flags);
	case SBX_DO_COPY:
		return sbx_apply_copy(req, op->from, op->from_offset, path, op->offset, op->size,
				      op->flags);
	}
	return -EINVAL;
}

static void content_copy(struct sbx_apply_content *content)
{
	content->data = content->data ? g_memdup2(content->data, content->len) : NULL;
	content->stage = g_strdup(content->stage);
}

static void content_free(const struct sbx_apply_content *content)
{
	g_free((gpointer)content->data);
	g_free((gpointer)content->stage);
}

struct sbx_op *sbx_ops_copy(const struct sbx_op *ops, size_t n_ops)
{
	struct sbx_op *copies = g_memdup2(ops, n_ops * sizeof(*ops));

	for (size_t i = 0; i < n_ops; i++) {
		struct sbx_op *op = &copies[i];

		op->path = g_strdup(op->path);
		op->from = g_strdup(op->from);
		op->held = g_strdup(op->held);
		op->opid = g_strdup(op->opid);
		content_copy(&op->content);
		if (op->n_pieces > 0) {
			struct sbx_apply_piece *pieces =
				g_memdup2(op->pieces, op->n_pieces * sizeof(*pieces));

			for (unsigned int j = 0; j < op->n_pieces; j++)
				content_copy(&pieces[j].content);
			op->pieces = pieces;
		}
	}
	return copies;
}

void sbx_ops_free(struct sbx_op *ops, size_t n_ops)
{
	for (size_t i = 0; ops && i < n_ops; i++) {
		g_free((gpointer)ops[i].path);
		g_free((gpointer)ops[i].from);
		g_free((gpointer)ops[i].held);
		g_free((gpointer)ops[i].opid);
		content_free(&ops[i].content);
		if (ops[i].n_pieces == 0)
			continue;
		for (unsigned int j = 0; j < ops[i].n_pieces; j++)
			content_free(&ops[i].pieces[j].content);
		g_free((gpointer)ops[i].pieces);
	}
	g_free(ops);
}

/* A path is spelled at most with five characters a byte, and named in the operation and in the
 * list of what is looked at afterwards, as is its directory. */
static size_t path_bytes(const char *path)
{
	return path ? 3 * (5 * strlen(path) + 16) : 0;
}

static size_t content_bytes(const struct sbx_apply_content *content)
{
	/* base64 in lines or arguments of their own. */
	return 128 + path_bytes(content->stage) + (content->data ? content->len / 2 * 3 : 0);
}

size_t sbx_op_setattr(const struct sbx_setattr *change, const char *path,
		      struct sbx_op ret_ops[SBX_OP_SETATTR_MAX])
{
	const unsigned int times =
		SBX_SET_ATIME | SBX_SET_ATIME_NOW | SBX_SET_MTIME | SBX_SET_MTIME_NOW;
	size_t n = 0;

	if (change->set & SBX_SET_SIZE)
		ret_ops[n++] =
			(struct sbx_op){ .kind = SBX_DO_TRUNCATE, .size = change->size_bytes };
	if (change->set & SBX_SET_MODE)
		ret_ops[n++] =
			(struct sbx_op){ .kind = SBX_DO_CHMOD, .mode = change->mode & 07777 };
	if (change->set & times)
		ret_ops[n++] = (struct sbx_op){
			.kind = SBX_DO_UTIMENS,
			.atime_ns = change->set & SBX_SET_ATIME_NOW ? SBX_TIME_NOW
				    : change->set & SBX_SET_ATIME   ? change->atime_ns
								    : SBX_TIME_OMIT,
			.mtime_ns = change->set & SBX_SET_MTIME_NOW ? SBX_TIME_NOW
				    : change->set & SBX_SET_MTIME   ? change->mtime_ns
								    : SBX_TIME_OMIT,
		};
	for (size_t i = 0; i < n; i++) {
		ret_ops[i].path = path;
		if (i > 0)
			ret_ops[i].flags = SBX_APPLY_AND;
	}
	return n;
}

int64_t sbx_op_work_ms(uint64_t len_bytes)
{
	return (int64_t)(len_bytes / WORK_BYTES_MS);
}

size_t sbx_op_command_bytes(const struct sbx_op *op)
{
	size_t bytes = 256 + path_bytes(op->path) + path_bytes(op->from) + path_bytes(op->held) +
		       content_bytes(&op->content);

	for (unsigned int i = 0; i < op->n_pieces; i++)
		bytes += content_bytes(&op->pieces[i].content);
	return bytes;
}
