#include "fusefs/sessiondir.h"

#include <errno.h>

#include <glib.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/workspace/workspace.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/jobsdir.h"
#include "fusefs/notify.h"
#include "fusefs/op.h"
#include "fusefs/scratch.h"
#include "fusefs/snapshotverbs.h"
#include "fusefs/status.h"
#include "fusefs/synth.h"
#include "fusefs/tree.h"
#include "fusefs/verb.h"

static int show_status(struct op *op, struct node *dir, GString *out)
{
	status_session(op->fs, dir->session, out);
	return 0;
}

static int show_errors(struct op *op, struct node *dir, GString *out)
{
	g_autofree char *text = sbx_errlog_render(sbx_session_errors(dir->session->session), NULL);

	(void)op;
	g_string_append(out, text);
	return 0;
}

static int show_state(struct op *op, struct node *dir, GString *out)
{
	g_autofree char *text = sbx_session_state_json(dir->session->session);

	(void)op;
	if (!text)
		return -EIO;
	g_string_append(out, text);
	return 0;
}

static int show_snapshots(struct op *op, struct node *dir, GString *out)
{
	g_autofree char *name = sbx_session_name(dir->session->session);

	(void)op;
	g_string_append_printf(out, "../snapshots/%s", name);
	return 0;
}

/* With the mount's root here there is no ../snapshots. */
static bool has_snapshots(struct op *op, struct node *dir)
{
	(void)op;
	return dir->id != NODE_ROOT_ID;
}

static int verb_reattach(struct verb_run *run)
{
	int r = sbx_session_reattach(run->session->session, &run->call);

	if (r == 0) {
		sbx_ws_refresh(run->session->ws);
		notify_refresh(run->fs, run->session);
	}
	return r;
}

static int verb_refresh(struct verb_run *run)
{
	sbx_session_refresh(run->session->session);
	sbx_ws_refresh(run->session->ws);
	notify_refresh(run->fs, run->session);
	return 0;
}

static int verb_sync(struct verb_run *run)
{
	uint64_t bytes;
	size_t files;
	int r;

	sbx_ws_pending(run->session->ws, &files, &bytes);
	verb_progress(run, "sending %zu files, %llu bytes", files, (unsigned long long)bytes);
	r = sbx_ws_sync(run->session->ws, &run->call);
	notify_attrs(run->fs, run->session);
	return r;
}

static const struct verb session_verbs[] = {
	{
		.name = "persist",
		.usage = "persist [SNAPSHOT]",
		.help = "keep all of fs/ as snapshots/SNAPSHOT.tar",
		.max_args = 1,
		.run = snapshot_verb_persist,
	},
	{
		.name = "hydrate",
		.usage = "hydrate [SNAPSHOT] [over]",
		.help = "lay a snapshot over fs/ and compare; \"over\": also over newer changes",
		.max_args = 2,
		.run = snapshot_verb_hydrate,
	},
	{
		.name = "reattach",
		.usage = "reattach",
		.help = "wake or find the sandbox again; ESTALE when it is gone",
		.run = verb_reattach,
	},
	{
		.name = "resume",
		.usage = "resume [empty]",
		.help = "the same; where it is gone, make it again from the newest snapshot",
		.max_args = 1,
		.run = snapshot_verb_resume,
	},
	{
		.name = "refresh",
		.usage = "refresh",
		.help = "show what others changed, now",
		.run = verb_refresh,
	},
	{
		.name = "sync",
		.usage = "sync",
		.help = "send bytes that are not sent yet",
		.run = verb_sync,
	},
};

static const struct verb_table session_verb_table = {
	.verbs = session_verbs,
	.n = G_N_ELEMENTS(session_verbs),
};

/* The numbers are the files' st_ino: keep them. 1 is the directory itself. */
static const struct synth_row session_rows[] = {
	{
		.name = "fs",
		.mode = S_IFDIR | 0700,
		.index = 2,
		.class = &tree_class,
		.base_path = "",
	},
	{ .name = "control", .mode = S_IFREG | 0600, .index = 3, .verbs = &session_verb_table },
	{ .name = "status", .mode = S_IFREG | 0400, .index = 4, .show = show_status },
	{ .name = "errors", .mode = S_IFREG | 0400, .index = 5, .show = show_errors },
	{ .name = "state.json", .mode = S_IFREG | 0400, .index = 6, .show = show_state },
	{
		.name = "snapshots",
		.mode = S_IFLNK | 0777,
		.index = 7,
		.show = show_snapshots,
		.exists = has_snapshots,
	},
	{
		.name = ".sbxfs-root",
		.mode = S_IFDIR | 0700,
		.index = 8,
		.hidden = true,
		.class = &tree_class,
		.base_path = "/",
	},
	{
		.name = "jobs",
		.mode = S_IFDIR | 0700,
		.index = JOBSDIR_INDEX,
		.class = &jobsdir_class,
	},
};

static const struct synth_table session_table = { session_rows, G_N_ELEMENTS(session_rows) };

void sessiondir_spec(struct fsession *fsession, struct node_spec *ret_spec)
{
	*ret_spec = (struct node_spec){
		.class = &sessiondir_class,
		.session = fsession,
		.type = S_IFDIR,
	};
}

static int sessiondir_lookup(struct op *op, struct node *dir, const char *name,
			     struct entry *ret_entry)
{
	int r = synth_lookup(op, &session_table, dir, name, ret_entry);

	return r == -ENOENT ? scratch_lookup(op, dir->session->scratch, dir, name, ret_entry) : r;
}

static int sessiondir_getattr(struct op *op, struct node *node, struct stat *ret_st,
			      int64_t *ret_valid_ms)
{
	/* Others may pass, so that the modes in fs/ decide what they may do there. */
	op_own_dir(op, node, 0711, ino_own(node->session->index, 1), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int sessiondir_unlink(struct op *op, struct node *dir, const char *name)
{
	(void)op;
	return synth_unlink(&session_table, dir->session->scratch, name);
}

static int sessiondir_rename(struct op *op, struct node *from_dir, const char *from,
			     struct node *to_dir, const char *to, unsigned int flags)
{
	if (from_dir != to_dir)
		return -EXDEV;
	return synth_rename(op, &session_table, from_dir->session->scratch, from_dir, from, to,
			    flags);
}

static int sessiondir_create(struct op *op, struct node *dir, const char *name, int flags,
			     mode_t mode, struct entry *ret_entry, struct handle **ret_handle)
{
	return synth_create(op, &session_table, dir->session->scratch, dir, name, flags, mode,
			    ret_entry, ret_handle);
}

static int sessiondir_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	struct synth_snap *snap = synth_snap_new();

	synth_snap_add_rows(snap, op, &session_table, dir->session->scratch, dir);
	*ret_snap = synth_snap_done(snap);
	return 0;
}

const struct node_class sessiondir_class = {
	.lookup = sessiondir_lookup,
	.getattr = sessiondir_getattr,
	.unlink = sessiondir_unlink,
	.rename = sessiondir_rename,
	.create = sessiondir_create,
	.list = sessiondir_list,
};
