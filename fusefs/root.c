#include "fusefs/root.h"

#include <errno.h>
#include <string.h>

#include <glib.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/workspace/workspace.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/notify.h"
#include "fusefs/op.h"
#include "fusefs/readme.h"
#include "fusefs/scratch.h"
#include "fusefs/sessiondir.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/snapshotdir.h"
#include "fusefs/snapshotverbs.h"
#include "fusefs/stats.h"
#include "fusefs/status.h"
#include "fusefs/synth.h"
#include "fusefs/verb.h"

static int show_readme(struct op *op, struct node *dir, GString *out)
{
	(void)op;
	(void)dir;
	g_string_append_len(out, readme_text, (gssize)readme_len);
	return 0;
}

static int show_status(struct op *op, struct node *dir, GString *out)
{
	(void)dir;
	status_mount(op->fs, out);
	return 0;
}

static int show_errors(struct op *op, struct node *dir, GString *out)
{
	g_autofree char *text = sbx_errlog_render(op->fs->parts.errors, NULL);

	(void)dir;
	g_string_append(out, text);
	return 0;
}

static int show_stats(struct op *op, struct node *dir, GString *out)
{
	(void)dir;
	stats_render(op->fs, out);
	return 0;
}

static int verb_create(struct verb_run *run)
{
	struct sbx_session *session;
	int r;

	r = sbx_sessions_create(run->fs->parts.sessions, &run->call, run->args[0], run->args[1],
				&session);
	if (r == 0)
		sbx_session_unref(session);
	return r;
}

static int verb_attach(struct verb_run *run)
{
	return sbx_sessions_attach(run->fs->parts.sessions, &run->call, run->args[0], run->args[1]);
}

/* A session that goes: its name, and what the mount keeps of it. */
static int forget_session(struct verb_run *run,
			  int (*forget)(struct verb_run *run, struct sbx_session *session))
{
	struct fs *fs = run->fs;
	struct sbx_session *session = sbx_sessions_find(fs->parts.sessions, run->args[0]);
	int r;

	if (!session)
		return -ENOENT;
	r = forget(run, session);
	if (r == 0) {
		fsessions_drop(fs->fsessions, session);
		notify_name(fs, NODE_ROOT_ID, run->args[0]);
	}
	sbx_session_unref(session);
	return r;
}

static int detach_session(struct verb_run *run, struct sbx_session *session)
{
	struct fsession *fsession;
	int r = fsessions_get(run->fs->fsessions, session, &fsession);

	/* What was sent a moment ago is not in its way. */
	if (r == 0) {
		r = sbx_ws_settle(fsession->ws, &run->call);
		fsession_unref(fsession);
	}
	return r < 0 ? r : sbx_session_detach(session);
}

static int verb_detach(struct verb_run *run)
{
	return forget_session(run, detach_session);
}

static int delete_session(struct verb_run *run, struct sbx_session *session)
{
	return sbx_session_delete(session, &run->call);
}

static int verb_delete(struct verb_run *run)
{
	return forget_session(run, delete_session);
}

static const struct verb root_verbs[] = {
	{
		.name = "create",
		.usage = "create NAME [JSON]",
		.help = "make a session; JSON is sent as the body of the request",
		.min_args = 1,
		.max_args = 2,
		.rest = true,
		.run = verb_create,
	},
	{
		.name = "attach",
		.usage = "attach ID [NAME]",
		.help = "show the session of that id under NAME",
		.min_args = 1,
		.max_args = 2,
		.run = verb_attach,
	},
	{
		.name = "resume",
		.usage = "resume FILE NAME",
		.help = "take a session from another client's state file",
		.min_args = 2,
		.max_args = 2,
		.run = snapshot_verb_resume_file,
	},
	{
		.name = "detach",
		.usage = "detach NAME",
		.help = "forget it here; the sandbox stays",
		.min_args = 1,
		.max_args = 1,
		.run = verb_detach,
	},
	{
		.name = "delete",
		.usage = "delete NAME",
		.help = "delete the sandbox with all it holds",
		.min_args = 1,
		.max_args = 1,
		.run = verb_delete,
	},
};

static const struct verb_table root_verb_table = {
	.verbs = root_verbs,
	.n = G_N_ELEMENTS(root_verbs),
};

/* The numbers are the files' st_ino: keep them. 1 is the directory itself. */
static const struct synth_row root_rows[] = {
	{ .name = "README.md",
	  .mode = S_IFREG | 0400,
	  .index = 2,
	  .fixed = true,
	  .show = show_readme },
	{ .name = "control", .mode = S_IFREG | 0600, .index = 3, .verbs = &root_verb_table },
	{ .name = "status", .mode = S_IFREG | 0400, .index = 4, .show = show_status },
	{ .name = "errors", .mode = S_IFREG | 0400, .index = 5, .show = show_errors },
	{ .name = "stats", .mode = S_IFREG | 0400, .index = 6, .show = show_stats },
	{
		.name = "snapshots",
		.mode = S_IFDIR | 0700,
		.index = 7,
		.class = &snapshots_class,
	},
};

static const struct synth_table root_table = { root_rows, G_N_ELEMENTS(root_rows) };

/* The node of a session's directory. Takes the reference of @session over. */
static int enter_session(struct op *op, struct node *dir, const char *name,
			 struct sbx_session *session, struct entry *ret_entry)
{
	struct entry entry = { .attr_valid_ms = op->fs->config.ttl_ms,
			       .entry_valid_ms = op->fs->config.ttl_ms };
	struct fsession *fsession;
	struct node_spec spec;
	int r;

	r = fsessions_get(op->fs->fsessions, session, &fsession);
	sbx_session_unref(session);
	if (r < 0)
		return r;
	sessiondir_spec(fsession, &spec);
	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	fsession_unref(fsession);
	if (r < 0)
		return r;
	(void)spec.class->getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	*ret_entry = entry;
	return 0;
}

static int root_lookup(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	struct sbx_session *session;
	int r;

	r = synth_lookup(op, &root_table, dir, name, ret_entry);
	if (r == -ENOENT)
		r = scratch_lookup(op, op->fs->root_scratch, dir, name, ret_entry);
	if (r != -ENOENT)
		return r;
	r = sbx_sessions_lookup(op->fs->parts.sessions, &op->call, name, &session);
	return r < 0 ? r : enter_session(op, dir, name, session, ret_entry);
}

static int root_getattr(struct op *op, struct node *node, struct stat *ret_st,
			int64_t *ret_valid_ms)
{
	/* allow_other is of no use where nobody may pass. */
	op_own_dir(op, node, op->fs->config.allow_other ? 0711 : 0700, ino_own(0, 1), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int refused_name(struct op *op, const char *operation, const char *name)
{
	sbx_errlog_note(op->fs->parts.errors, operation, name, -EINVAL,
			"no name of a session: [A-Za-z0-9][A-Za-z0-9._-]{0,63}, and none of ours");
	return -EINVAL;
}

static int root_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode,
		      struct entry *ret_entry)
{
	struct sbx_session *session;
	int r;

	(void)mode;
	if (!sbx_session_name_is_valid(name))
		return refused_name(op, "mkdir", name);
	r = scratch_lookup(op, op->fs->root_scratch, dir, name, ret_entry);
	if (r == 0) {
		op_entry_undo(op, ret_entry);
		return -EEXIST;
	}
	r = sbx_sessions_create(op->fs->parts.sessions, &op->call, name, NULL, &session);
	return r < 0 ? r : enter_session(op, dir, name, session, ret_entry);
}

/* Is nothing in it that would be lost? As it is now: another client may use it too. */
static int check_unused(struct op *op, struct fsession *fsession)
{
	struct sbx_listing *listing;
	uint64_t bytes;
	size_t files;
	int r;

	sbx_ws_pending(fsession->ws, &files, &bytes);
	if (files > 0)
		return -EBUSY;
	/* What was sent a moment ago is not in its way; what another mount has is. */
	r = sbx_ws_settle(fsession->ws, &op->call);
	if (r < 0)
		return r;
	if (sbx_session_unsent(fsession->session) > 0)
		return -EBUSY;
	sbx_ws_refresh(fsession->ws);
	r = sbx_ws_list(fsession->ws, &op->call, "", &listing);
	if (r == -ESTALE)
		return 0; /* it is gone already: what is left is its name */
	if (r < 0)
		return r;
	r = listing->n_entries > 0 ? -ENOTEMPTY : 0;
	sbx_listing_unref(listing);
	if (r == 0)
		r = session_jobs_any_running(fsession->jobs, &op->call);
	return r > 0 ? -EBUSY : r;
}

static int root_rmdir(struct op *op, struct node *dir, const char *name)
{
	struct fsession *fsession;
	int r;

	if (synth_find(&root_table, name))
		return -EPERM;
	r = fsessions_find(op->fs->fsessions, name, &fsession);
	if (r < 0)
		return r;
	r = check_unused(op, fsession);
	if (r == 0)
		r = sbx_session_delete(fsession->session, &op->call);
	if (r == 0) {
		fsessions_drop(op->fs->fsessions, fsession->session);
		node_removed(op->fs->nodes, dir, name);
	}
	fsession_unref(fsession);
	return r;
}

static int root_unlink(struct op *op, struct node *dir, const char *name)
{
	(void)dir;
	return synth_unlink(&root_table, op->fs->root_scratch, name);
}

static int root_rename(struct op *op, struct node *from_dir, const char *from, struct node *to_dir,
		       const char *to, unsigned int flags)
{
	struct sbx_session *session = sbx_sessions_find(op->fs->parts.sessions, from);
	int r;

	if (!session)
		return synth_rename(op, &root_table, op->fs->root_scratch, from_dir, from, to,
				    flags);
	sbx_session_unref(session);
	if (strcmp(from, to) == 0)
		return 0;
	if (!sbx_session_name_is_valid(to))
		return synth_find(&root_table, to) ? -EEXIST : refused_name(op, "rename", to);
	r = sbx_sessions_rename(op->fs->parts.sessions, from, to);
	if (r == 0)
		node_renamed(op->fs->nodes, from_dir, from, to_dir, to);
	return r;
}

static int root_create(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
		       struct entry *ret_entry, struct handle **ret_handle)
{
	return synth_create(op, &root_table, op->fs->root_scratch, dir, name, flags, mode,
			    ret_entry, ret_handle);
}

static int root_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_auto(GStrv) names = sbx_sessions_list(op->fs->parts.sessions);
	struct synth_snap *snap = synth_snap_new();
	struct fsession *fsession;

	synth_snap_add_rows(snap, op, &root_table, op->fs->root_scratch, dir);
	for (char **name = names; *name; name++) {
		if (fsessions_find(op->fs->fsessions, *name, &fsession) < 0)
			continue; /* forgotten this moment */
		synth_snap_add(snap, *name, S_IFDIR, ino_own(fsession->index, 1));
		fsession_unref(fsession);
	}
	*ret_snap = synth_snap_done(snap);
	return 0;
}

const struct node_class root_class = {
	.lookup = root_lookup,
	.getattr = root_getattr,
	.mkdir = root_mkdir,
	.unlink = root_unlink,
	.rmdir = root_rmdir,
	.rename = root_rename,
	.create = root_create,
	.list = root_list,
};
