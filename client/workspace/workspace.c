#include "client/workspace/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/errlog.h"
#include "client/probe.h"
#include "client/session.h"
#include "client/workspace/files.h"
#include "client/workspace/links.h"
#include "client/workspace/names.h"
#include "client/workspace/op.h"
#include "client/workspace/path.h"

/* As many as the kernel follows. */
#define LINKS_MAX 40

struct sbx_workspace {
	struct sbx_session *session;
	struct sbx_names *names;
	struct sbx_files *files;
	struct sbx_workspace_options options;
};

int sbx_workspace_new(struct sbx_session *session, const struct sbx_workspace_options *options,
		      struct sbx_workspace **ret_ws)
{
	struct sbx_workspace *ws = g_new0(struct sbx_workspace, 1);
	int r;

	ws->options = *options;
	ws->session = sbx_session_ref(session);
	r = sbx_names_new(session, options, &ws->names);
	if (r == 0)
		r = sbx_files_new(session, ws->names, options, &ws->files);
	if (r < 0) {
		sbx_workspace_free(ws);
		return r;
	}
	*ret_ws = ws;
	return 0;
}

void sbx_workspace_free(struct sbx_workspace *ws)
{
	if (!ws)
		return;
	if (ws->files)
		sbx_files_free(ws->files);
	sbx_names_free(ws->names);
	sbx_session_unref(ws->session);
	g_free(ws);
}

struct sbx_session *sbx_workspace_session(struct sbx_workspace *ws)
{
	return ws->session;
}

struct sbx_names *sbx_workspace_names(struct sbx_workspace *ws)
{
	return ws->names;
}

struct sbx_files *sbx_workspace_files(struct sbx_workspace *ws)
{
	return ws->files;
}

/* Attributes ------------------------------------------------------------------------------ */

int sbx_ws_stat(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		enum sbx_stat_how how, struct sbx_attr *ret_attr, int64_t *ret_valid_ms)
{
	int r = sbx_path_check(path);

	if (r < 0)
		return r;
	if (how != SBX_STAT_CACHED)
		sbx_files_used(ws->files);
	return sbx_names_stat(ws->names, call, path, how, ret_attr, NULL, ret_valid_ms);
}

int sbx_ws_list(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		struct sbx_listing **ret_listing)
{
	int r = sbx_path_check(path);

	if (r < 0)
		return r;
	sbx_files_used(ws->files);
	return sbx_names_list(ws->names, call, path, ret_listing);
}

/* Where the workspace is in the sandbox; NULL: not known (no exec). Asks once a session. */
static const char *workspace_root(struct sbx_workspace *ws, const struct sbx_call *call)
{
	const struct sbx_probe_reply *probe = NULL;

	return sbx_names_probe(ws->names, call, &probe) == 0 ? probe->cwd : NULL;
}

/* The path by which names knows the place that is @names below the sandbox's "/". */
static char *place_path(const GPtrArray *names, const char *ws_root)
{
	GString *path = g_string_new(NULL);
	size_t root_len = strlen(ws_root);

	for (guint i = 0; i < names->len; i++)
		g_string_append_printf(path, "/%s", (const char *)g_ptr_array_index(names, i));
	if (!sbx_path_is_within(path->str, ws_root))
		return g_string_free(path, FALSE);
	g_string_erase(path, 0, (gssize)MIN(path->len, root_len + 1));
	return g_string_free(path, FALSE);
}

static void push_names(GPtrArray *names, const char *path)
{
	g_auto(GStrv) parts = g_strsplit(path, "/", -1);

	for (char **part = parts; *part; part++)
		if (**part && strcmp(*part, ".") != 0)
			g_ptr_array_add(names, g_strdup(*part));
}

/* Components that are still to be gone through. */
struct link_way {
	GQueue parts; /* char * */
	guint n_ups; /* ".."s among them */
	unsigned int n_links; /* that were followed */
};

/* Go through the components of @text next. */
static void way_push(struct link_way *way, const char *text)
{
	g_auto(GStrv) parts = g_strsplit(text, "/", -1);

	for (guint i = g_strv_length(parts); i > 0; i--) {
		way->n_ups += strcmp(parts[i - 1], "..") == 0;
		g_queue_push_head(&way->parts, g_strdup(parts[i - 1]));
	}
}

/*
 * The last of @names, places from the sandbox's "/", is to be left by a "..": a directory stays, a
 * link gives way to where it leads. Anything else is -EPERM: what the text means is for nobody but
 * the sandbox to say.
 */
static int way_enter(struct sbx_workspace *ws, const struct sbx_call *call, const char *ws_root,
		     struct link_way *way, GPtrArray *names)
{
	g_autofree char *path = place_path(names, ws_root);
	g_autofree char *link = NULL;
	struct sbx_attr attr;
	int r = sbx_names_stat(ws->names, call, path, SBX_STAT_TTL, &attr, &link, NULL);

	if (r < 0)
		return r == -EINTR ? r : -EPERM;
	if (S_ISDIR(attr.mode))
		return 0;
	if (!S_ISLNK(attr.mode) || !link || ++way->n_links > LINKS_MAX)
		return -EPERM;
	g_ptr_array_set_size(names, link[0] == '/' ? 0 : (gint)names->len - 1);
	way_push(way, link);
	return 0;
}

/*
 * The absolute form of a link text in which ".." follows a name. What comes of it is contained by
 * its form (links.h), whatever changes meanwhile.
 */
static int work_out(struct sbx_workspace *ws, const struct sbx_call *call, const char *ws_root,
		    const char *link_path, const char *text, char **ret_text)
{
	g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
	struct link_way way = { .parts = G_QUEUE_INIT };
	GString *place;
	char *part;
	int r = 0;

	if (text[0] != '/') {
		const char *slash = strrchr(link_path, '/');
		g_autofree char *dir = g_strndup(link_path, slash ? slash - link_path : 0);

		/* Directories that the caller has come through. */
		if (link_path[0] != '/')
			push_names(names, ws_root);
		push_names(names, dir);
	}
	way_push(&way, text);
	while (r == 0 && (part = g_queue_pop_head(&way.parts))) {
		guint len = names->len;

		if (strcmp(part, "..") == 0) {
			way.n_ups--;
			g_ptr_array_set_size(names, (gint)len - (len > 0));
		} else {
			push_names(names, part);
			if (names->len > len && way.n_ups > 0)
				r = way_enter(ws, call, ws_root, &way, names);
		}
		g_free(part);
	}
	g_queue_clear_full(&way.parts, g_free);
	if (r < 0)
		return r;
	place = g_string_new("/");
	for (guint i = 0; i < names->len; i++)
		g_string_append_printf(place, "%s%s", i > 0 ? "/" : "",
				       (const char *)g_ptr_array_index(names, i));
	*ret_text = g_string_free(place, FALSE);
	return 0;
}

int sbx_ws_readlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		    const struct sbx_link_view *view, char **ret_target)
{
	g_autofree char *text = NULL;
	g_autofree char *plain = NULL;
	const char *ws_root;
	struct sbx_attr attr;
	int r = sbx_path_check(path);

	if (r == 0)
		r = sbx_names_stat(ws->names, call, path, SBX_STAT_TTL, &attr, &text, NULL);
	if (r < 0)
		return r;
	if (!S_ISLNK(attr.mode))
		return -EINVAL;
	if (!text)
		return -EOPNOTSUPP;
	ws_root = workspace_root(ws, call);
	r = sbx_link_show(view, ws_root, path, text, ret_target);
	if (r == -EPERM && ws_root && strstr(text, "..")) {
		r = work_out(ws, call, ws_root, path, text, &plain);
		if (r == 0)
			r = sbx_link_show(view, ws_root, path, plain, ret_target);
	}
	if (r == -EPERM)
		sbx_errlog_note(sbx_session_errors(ws->session), "readlink", path, r,
				"the link leads where this mount can't show it");
	return r;
}

/* Mutations ------------------------------------------------------------------------------- */

static int64_t mutation_timeout_ms(struct sbx_workspace *ws)
{
	return sbx_session_options(ws->session)->mutation_timeout_ms;
}

/* May @path be changed at all? */
static int check_change(struct sbx_workspace *ws, const char *path)
{
	int r = sbx_path_check(path);

	if (r < 0)
		return r;
	if (ws->options.read_only || path[0] == '/')
		return -EROFS;
	if (!sbx_path_is_within(path, SBX_WORK_DIR))
		return 0;
	/* It is not shown, so it can't be taken. */
	sbx_errlog_note(sbx_session_errors(ws->session), "name", path, -EPERM,
			"sbxfs keeps a directory of that name in the workspace");
	return -EPERM;
}

/* The first error of what was to be done together. */
static int results_error(const struct sbx_op_result *results, size_t n_results)
{
	for (size_t i = 0; i < n_results; i++)
		if (results[i].error < 0)
			return results[i].error;
	return 0;
}

/* One operation; *ret_result is to be cleared when 0 is returned. */
static int apply_one(struct sbx_workspace *ws, const struct sbx_call *call, const struct sbx_op *op,
		     struct sbx_op_result *ret_result)
{
	struct sbx_op_result result = { 0 };
	int r = sbx_names_apply(ws->names, call, mutation_timeout_ms(ws), op, 1, &result);

	if (r == 0)
		r = result.error;
	if (r < 0)
		sbx_op_results_clear(&result, 1);
	else
		*ret_result = result;
	return r;
}

/* One operation that answers with the attributes of its path. */
static int apply_for_attr(struct sbx_workspace *ws, const struct sbx_call *call,
			  const struct sbx_op *op, struct sbx_attr *ret_attr)
{
	struct sbx_op_result result;
	int r = apply_one(ws, call, op, &result);

	if (r < 0)
		return r;
	/* Done, and gone again by the time it was looked at. */
	if (!result.has_attr)
		r = -ENOENT;
	else if (ret_attr)
		*ret_attr = result.attr;
	sbx_op_results_clear(&result, 1);
	return r;
}

int sbx_ws_mkdir(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		 mode_t mode, struct sbx_attr *ret_attr)
{
	struct sbx_op op = { .kind = SBX_DO_MKDIR, .path = path, .mode = mode & 0777 };
	int r = check_change(ws, path);

	/* A file that is not sent yet is in the way as any other. */
	if (r == 0)
		r = sbx_files_publish(ws->files, call, path);
	return r < 0 ? r : apply_for_attr(ws, call, &op, ret_attr);
}

int sbx_ws_rmdir(struct sbx_workspace *ws, const struct sbx_call *call, const char *path)
{
	struct sbx_op op = { .kind = SBX_DO_RMDIR, .path = path };
	struct sbx_op_result result;
	int r = check_change(ws, path);

	if (r == 0 && path[0] == '\0')
		r = -EBUSY;
	if (r == 0)
		r = sbx_files_publish(ws->files, call, path);
	if (r == 0)
		r = apply_one(ws, call, &op, &result);
	if (r == 0)
		sbx_op_results_clear(&result, 1);
	return r;
}

/*
 * @op takes a name away from the file @path. Where that has others, one of them is looked at in the
 * same request, so that the number of links shown there is right.
 */
static int apply_and_look(struct sbx_workspace *ws, const struct sbx_call *call,
			  const struct sbx_op *op, const char *path,
			  struct sbx_op_result *ret_result)
{
	struct sbx_op_result results[2] = { 0 };
	struct sbx_attr attr;
	g_autofree char *other = sbx_names_other_name(ws->names, path, &attr);
	struct sbx_op ops[2] = { *op };
	size_t n_ops = 1;
	int r;

	if (other && !sbx_path_is_within(op->path, other))
		ops[n_ops++] = (struct sbx_op){
			.kind = SBX_DO_EXPECT, .path = other, .dev = attr.dev, .ino = attr.ino
		};
	r = sbx_names_apply(ws->names, call, mutation_timeout_ms(ws), ops, n_ops, results);
	if (r == 0)
		r = results[0].error;
	if (r == 0) {
		*ret_result = results[0];
		results[0].link = NULL;
	}
	sbx_op_results_clear(results, n_ops);
	return r;
}

int sbx_ws_unlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *path)
{
	g_autoptr(GPtrArray) moving = g_ptr_array_new();
	g_autofree char *held = NULL;
	struct sbx_op op = { .kind = SBX_DO_UNLINK, .path = path };
	struct sbx_op_result result = { 0 };
	struct sbx_attr attr;
	bool unsent;
	int r = check_change(ws, path);

	if (r < 0)
		return r;
	op.held = held = sbx_files_held_path(ws->files, path);
	r = sbx_files_hold(ws->files, call, path, moving);
	if (r < 0)
		goto out;
	unsent = sbx_names_stat(ws->names, call, path, SBX_STAT_CACHED, &attr, NULL, NULL) == 0 &&
		 sbx_names_remote_attr(ws->names, path, &attr) < 0;
	r = apply_and_look(ws, call, &op, path, &result);
	/* A file that was made here and never sent is not there, but it was. */
	if (r == -ENOENT && unsent)
		r = 0;
	if (r == 0) {
		sbx_files_unlinked(ws->files, path, result.set_aside ? held : NULL);
		sbx_op_results_clear(&result, 1);
	}
out:
	sbx_files_let(moving);
	return r;
}

int sbx_ws_rename(struct sbx_workspace *ws, const struct sbx_call *call, const char *from,
		  const char *to, unsigned int flags)
{
	g_autoptr(GPtrArray) moving = g_ptr_array_new();
	g_autofree char *held = NULL;
	struct sbx_op op = { .kind = SBX_DO_RENAME, .from = from, .path = to };
	struct sbx_op_result result;
	struct sbx_attr attr;
	int r;

	if (flags & ~(unsigned int)RENAME_NOREPLACE)
		return -EINVAL;
	r = check_change(ws, from);
	if (r == 0)
		r = check_change(ws, to);
	if (r < 0)
		return r;
	if (from[0] == '\0' || to[0] == '\0')
		return -EBUSY;
	if (strcmp(from, to) == 0) {
		r = sbx_names_stat(ws->names, call, from, SBX_STAT_TTL, &attr, NULL, NULL);
		return r == 0 && (flags & RENAME_NOREPLACE) ? -EEXIST : r;
	}
	if (sbx_path_is_within(to, from))
		return -EINVAL;
	r = sbx_files_publish(ws->files, call, from);
	/* What is unsent of a file that is replaced would be lost with it on a local disk too; but
	 * where it must not be replaced, or is a directory, it has to be there. */
	if (r == 0 &&
	    (flags & RENAME_NOREPLACE ||
	     (sbx_names_stat(ws->names, call, to, SBX_STAT_CACHED, &attr, NULL, NULL) == 0 &&
	      S_ISDIR(attr.mode))))
		r = sbx_files_publish(ws->files, call, to);
	if (r < 0)
		return r;
	if (flags & RENAME_NOREPLACE)
		op.flags |= SBX_APPLY_NOREPLACE;
	else
		op.held = held = sbx_files_held_path(ws->files, to);
	r = sbx_files_hold(ws->files, call, from, moving);
	if (r == 0)
		r = sbx_files_hold(ws->files, call, to, moving);
	if (r == 0)
		r = apply_and_look(ws, call, &op, to, &result);
	if (r == 0) {
		sbx_files_unlinked(ws->files, to, result.set_aside ? held : NULL);
		sbx_files_renamed(ws->files, from, to);
		sbx_op_results_clear(&result, 1);
	}
	sbx_files_let(moving);
	return r;
}

int sbx_ws_link(struct sbx_workspace *ws, const struct sbx_call *call, const char *from,
		const char *to, struct sbx_attr *ret_attr)
{
	struct sbx_op op = { .kind = SBX_DO_LINK, .from = from, .path = to };
	int r = check_change(ws, from);

	if (r == 0)
		r = check_change(ws, to);
	if (r == 0)
		r = sbx_files_publish(ws->files, call, from);
	if (r == 0)
		r = sbx_files_publish(ws->files, call, to);
	if (r == 0)
		r = apply_for_attr(ws, call, &op, ret_attr);
	/* A filesystem without links says so with EPERM. */
	return r == -EOPNOTSUPP ? -EPERM : r;
}

int sbx_ws_symlink(struct sbx_workspace *ws, const struct sbx_call *call, const char *target,
		   const char *path, const struct sbx_link_view *view, struct sbx_attr *ret_attr)
{
	g_autofree char *text = NULL;
	struct sbx_op op = { .kind = SBX_DO_SYMLINK, .path = path };
	int r = check_change(ws, path);

	if (r < 0)
		return r;
	if (target[0] == '\0')
		return -ENOENT;
	r = sbx_link_store(view, NULL, path, target, &text);
	if (r == 0 && strlen(text) >= PATH_MAX)
		r = -ENAMETOOLONG;
	if (r == 0)
		r = sbx_files_publish(ws->files, call, path);
	if (r < 0)
		return r;
	op.from = text;
	return apply_for_attr(ws, call, &op, ret_attr);
}

int sbx_ws_setattr(struct sbx_workspace *ws, const struct sbx_call *call, const char *path,
		   struct sbx_file *file, const struct sbx_setattr *change,
		   struct sbx_attr *ret_attr)
{
	struct sbx_op_result results[SBX_OP_SETATTR_MAX] = { 0 };
	struct sbx_op ops[SBX_OP_SETATTR_MAX];
	size_t n_ops;
	bool done = false;
	int r;

	if (path)
		r = check_change(ws, path);
	else
		r = ws->options.read_only ? -EROFS : 0;
	if (r == 0 && change->set & SBX_SET_MODE && change->mode & 07000 && !change->of_directory) {
		r = -EPERM;
		sbx_errlog_note(sbx_session_errors(ws->session), "chmod", path, r,
				"no file is given a setuid, setgid or sticky bit");
	}
	if (r < 0)
		return r;
	/* The plain routes carry neither; a later PUT would forget what was promised now. */
	if (change->set & (SBX_SET_MODE | SBX_SET_ATIME | SBX_SET_MTIME) &&
	    !sbx_names_has_exec(ws->names))
		return -EOPNOTSUPP;
	/* Given to whom it belongs, as archivers do between write and close: nothing is sent for
	 * that, so that mode and times, which come next, ride along with the bytes. */
	if (path && change->set == 0)
		return sbx_names_stat(ws->names, call, path, SBX_STAT_TTL, ret_attr, NULL, NULL);
	r = sbx_files_setattr(ws->files, call, path, file, change, &done, ret_attr);
	if (r < 0 || done)
		return r;
	n_ops = sbx_op_setattr(change, path, ops);
	if (n_ops == 0)
		return sbx_names_stat(ws->names, call, path, SBX_STAT_TTL, ret_attr, NULL, NULL);
	r = sbx_names_apply(ws->names, call, mutation_timeout_ms(ws), ops, n_ops, results);
	if (r == 0)
		r = results_error(results, n_ops);
	if (r == 0 && !results[n_ops - 1].has_attr)
		r = -ENOENT;
	if (r == 0)
		*ret_attr = results[n_ops - 1].attr;
	sbx_op_results_clear(results, n_ops);
	return r;
}

int sbx_ws_access(struct sbx_workspace *ws, const char *path, const struct sbx_attr *attr, int mask)
{
	int r = 0;

	if (mask & W_OK && path)
		r = check_change(ws, path);
	if (mask & R_OK && path && strcmp(path, "/") == 0)
		r = -EACCES; /* it can't be listed */
	return r < 0 ? r : sbx_files_access(ws->files, attr, mask);
}

int sbx_ws_statfs(struct sbx_workspace *ws, const struct sbx_call *call, struct statvfs *ret_st)
{
	return sbx_names_statfs(ws->names, call, ret_st);
}

/* Open files and the rest ------------------------------------------------------------------ */

int sbx_ws_open(struct sbx_workspace *ws, const struct sbx_call *call, const char *path, int flags,
		mode_t mode, pid_t opener, struct sbx_file **ret_file, struct sbx_attr *ret_attr)
{
	int r = sbx_path_check(path);

	if (r < 0)
		return r;
	if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC)) {
		r = check_change(ws, path);
		/* Opening for reading what is there is no change, also with O_CREAT. */
		if (r == -EROFS && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC) &&
		    sbx_names_stat(ws->names, call, path, SBX_STAT_TTL, ret_attr, NULL, NULL) ==
			    0) {
			if (flags & O_EXCL)
				return -EEXIST;
			flags &= ~O_CREAT;
			r = 0;
		}
		if (r < 0)
			return r;
	}
	return sbx_files_open(ws->files, call, path, flags, mode, opener, ret_file, ret_attr);
}

void sbx_ws_pending(struct sbx_workspace *ws, size_t *ret_files, uint64_t *ret_bytes)
{
	sbx_files_pending(ws->files, ret_files, ret_bytes);
}

int sbx_ws_sync(struct sbx_workspace *ws, const struct sbx_call *call)
{
	return sbx_files_publish(ws->files, call, NULL);
}

int sbx_ws_settle(struct sbx_workspace *ws, const struct sbx_call *call)
{
	return sbx_files_settle(ws->files, call);
}

int sbx_ws_sync_most(struct sbx_workspace *ws, const struct sbx_call *call, const char *operation)
{
	return sbx_files_publish_most(ws->files, call, operation);
}

void sbx_ws_refresh(struct sbx_workspace *ws)
{
	sbx_names_refresh(ws->names);
	sbx_files_refresh(ws->files);
}

struct capability {
	size_t offset; /* of a bool in struct sbx_probe_reply */
	const char *name;
	const char *cost; /* of its absence */
};

#define CAPABILITY(field, name, cost)                               \
	{                                                           \
		offsetof(struct sbx_probe_reply, field), name, cost \
	}

static const struct capability capabilities[] = {
	CAPABILITY(find_printf, "find -printf", "scans start one more program"),
	CAPABILITY(stat_ns, "stat with nanoseconds", "times show whole seconds"),
	CAPABILITY(touch_ns, "touch with nanoseconds", "times are set to whole seconds"),
	CAPABILITY(gzip, "gzip", "answers are larger"),
	CAPABILITY(flock, "flock", "jobs are told alive by a heartbeat"),
	CAPABILITY(setsid, "setsid", "a job's children may outlive a cancel"),
	CAPABILITY(dd_bytes, "dd with byte offsets", "parts of files are read in small blocks"),
	CAPABILITY(mv_exact, "mv -T", "a rename onto a directory takes longer"),
	CAPABILITY(mv_noreplace, "mv -n", "a directory can't be renamed with RENAME_NOREPLACE"),
	CAPABILITY(truncate, "truncate", "sizes are set by dd"),
	CAPABILITY(date_ns, "date with nanoseconds",
		   "changes are looked for a second further back"),
	CAPABILITY(tar, "tar", "snapshots can't be put back whole"),
	CAPABILITY(timeout, "timeout", "a job's time limit is kept by its own shell"),
	CAPABILITY(work_dir, "a writable " SBX_WORK_DIR,
		   "no file can be saved whole, no job started"),
};

void sbx_ws_capabilities(struct sbx_workspace *ws, char **ret_have, char **ret_missing)
{
	const struct sbx_probe_reply *probe = sbx_names_probe_cached(ws->names);
	GString *have = g_string_new(NULL);
	GString *missing = g_string_new(NULL);

	if (!ws->options.use_exec || !sbx_names_has_exec(ws->names)) {
		g_string_append(have, "plain routes");
		g_string_append(missing, "exec (files can be read and replaced; no other change, "
					 "no links, no jobs)");
	} else if (!probe) {
		g_string_append(have, "unknown");
		g_string_append(missing, "unknown");
	} else {
		g_string_append(have, probe->busybox ? "BusyBox tools" : "GNU tools");
		for (size_t i = 0; i < G_N_ELEMENTS(capabilities); i++) {
			const struct capability *c = &capabilities[i];

			if (*(const bool *)((const char *)probe + c->offset))
				g_string_append_printf(have, ", %s", c->name);
			else
				g_string_append_printf(missing, "%s%s (%s)",
						       missing->len > 0 ? ", " : "", c->name,
						       c->cost);
		}
		if (missing->len == 0)
			g_string_append(missing, "nothing");
	}
	*ret_have = g_string_free(have, FALSE);
	*ret_missing = g_string_free(missing, FALSE);
}
