#include "fusefs/jobdir.h"

#include <errno.h>
#include <string.h>

#include "client/errlog.h"
#include "client/jobs.h"
#include "client/session.h"
#include "fusefs/fsession.h"
#include "fusefs/jobfile.h"
#include "fusefs/jobwait.h"
#include "fusefs/notify.h"
#include "fusefs/op.h"
#include "fusefs/scratch.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/synth.h"
#include "fusefs/text.h"
#include "fusefs/verb.h"

/* A status is for eyes. */
#define COMMAND_SHOWN_BYTES 1000

/* A node of the directory holds a reference to its job. */
struct session_job *jobdir_job(const struct node *dir)
{
	return dir->data;
}

static char *shown_command(const char *command)
{
	const char *end;

	if (!command || strlen(command) <= COMMAND_SHOWN_BYTES)
		return g_strdup(command);
	end = g_utf8_find_prev_char(command, command + COMMAND_SHOWN_BYTES);
	return g_strdup_printf("%.*s ...", (int)(end - command), command);
}

static void show_time(GString *out, const char *key, int64_t ms)
{
	g_autofree char *time = ms ? text_time(ms * 1000000) : NULL;

	text_line(out, key, time);
}

static void show_info(const struct sbx_job_info *info, GString *out)
{
	g_autofree char *command = shown_command(info->command);
	int64_t until_ms = info->ended_ms;

	if (!until_ms && !sbx_job_state_is_final(info->state))
		until_ms = text_now_ns() / 1000000;
	text_line(out, "state", sbx_job_state_name(info->state));
	if (info->has_exit_code)
		text_linef(out, "exit", "%d", info->exit_code);
	else
		text_line(out, "exit", NULL);
	text_line(out, "signal", info->signal ? sigabbrev_np(info->signal) : NULL);
	show_time(out, "started", info->started_ms);
	show_time(out, "ended", info->ended_ms);
	text_linef(out, "seconds", "%8lld",
		   info->started_ms && until_ms > info->started_ms
			   ? (long long)(until_ms - info->started_ms) / 1000
			   : 0LL);
	text_linef(out, "bytes", "%14llu", (unsigned long long)info->log_bytes);
	text_line(out, "command", command);
	text_linef(out, "left", "%u", info->left);
}

void jobdir_show_status(struct session_job *job, GString *out)
{
	struct sbx_job_info info;

	session_job_info(job, &info);
	show_info(&info, out);
	sbx_job_info_done(&info);
}

static int show_status(struct op *op, struct node *dir, GString *out)
{
	struct sbx_job_info info;
	int r;

	r = session_job_look(jobdir_job(dir), &op->call, &info);
	if (r < 0)
		return r;
	show_info(&info, out);
	sbx_job_info_done(&info);
	return 0;
}

static int show_meta(struct op *op, struct node *dir, GString *out)
{
	struct sbx_job_info info;

	(void)op;
	session_job_info(jobdir_job(dir), &info);
	if (info.meta_json)
		g_string_append_printf(out, "%s\n", info.meta_json);
	sbx_job_info_done(&info);
	return 0;
}

static bool has_meta(struct op *op, struct node *dir)
{
	struct sbx_job_info info;
	bool has;

	(void)op;
	session_job_info(jobdir_job(dir), &info);
	has = info.meta_json;
	sbx_job_info_done(&info);
	return has;
}

static bool has_exit(struct op *op, struct node *dir)
{
	struct sbx_job_info info;
	bool has;

	if (session_job_look(jobdir_job(dir), &op->call, &info) < 0)
		return false;
	has = sbx_job_state_is_final(info.state) && info.has_exit_code;
	sbx_job_info_done(&info);
	return has;
}

static int show_exit(struct op *op, struct node *dir, GString *out)
{
	struct sbx_job_info info;

	(void)op;
	session_job_info(jobdir_job(dir), &info);
	g_string_append_printf(out, "%d\n", info.exit_code);
	sbx_job_info_done(&info);
	return 0;
}

static int remove_job(struct op *op, struct node *dir)
{
	g_autofree char *name = NULL;
	struct node *parent;
	int r;

	r = session_job_remove(jobdir_job(dir), &op->call);
	if (r < 0)
		return r;
	parent = node_parent(op->fs->nodes, dir, &name);
	if (parent) {
		node_removed(op->fs->nodes, parent, name);
		notify_name(op->fs, parent->id, name);
		node_put(op->fs->nodes, parent);
	}
	return 0;
}

static int act(struct op *op, const struct verb_run *run)
{
	struct node *dir = op->node->class == &jobdir_class ? op->node : op->node->parent;
	struct session_job *job = jobdir_job(dir);
	struct sbx_failure failure = { 0 };
	struct sbx_call call = op->call;
	int r;

	call.failure = &failure;
	if (strcmp(run->verb->name, "cancel") == 0)
		r = sbx_job_cancel(job->job, &call);
	else if (strcmp(run->verb->name, "signal") == 0)
		r = sbx_job_signal(job->job, &call, run->args[0]);
	else
		r = remove_job(op, dir);
	/* What a request failed with was told by the layer that sent it. */
	if (r < 0 && r != -EINTR && failure.kind == SBX_FAIL_NONE)
		sbx_errlog_note(sbx_session_errors(dir->session->session), "jobs", run->line, r,
				job->id);
	return r;
}

static const struct verb job_verbs[] = {
	{
		.name = "cancel",
		.usage = "cancel",
		.help = "end it with all that it started: SIGTERM, after 2 s SIGKILL",
	},
	{
		.name = "signal",
		.usage = "signal NAME",
		.help = "send it that signal",
		.min_args = 1,
		.max_args = 1,
	},
	{
		.name = "remove",
		.usage = "remove",
		.help = "remove the job when it has ended, as rmdir does",
	},
};

static const struct verb_table job_verb_table = {
	.verbs = job_verbs,
	.n = G_N_ELEMENTS(job_verbs),
	.act = act,
};

static uint64_t row_number(const struct node *dir, const struct synth_row *row)
{
	return session_job_ino(jobdir_job(dir), row->index);
}

/* The numbers are bits of what is hidden, and part of st_ino. */
static const struct synth_row job_rows[] = {
	{
		.name = "meta.json",
		.mode = S_IFREG | 0400,
		.index = 1,
		.show = show_meta,
		.exists = has_meta,
		.st_ino = row_number,
	},
	{
		.name = "output.log",
		.mode = S_IFREG | 0400,
		.index = JOBFILE_INDEX,
		.class = &jobfile_class,
		.st_ino = row_number,
	},
	{
		.name = "exit",
		.mode = S_IFREG | 0400,
		.index = 3,
		.waits = true,
		.show = show_exit,
		.exists = has_exit,
		.st_ino = row_number,
	},
	{
		.name = "status",
		.mode = S_IFREG | 0400,
		.index = 4,
		.waits = true,
		.show = show_status,
		.st_ino = row_number,
	},
	{
		.name = "control",
		.mode = S_IFREG | 0600,
		.index = 5,
		.waits = true,
		.verbs = &job_verb_table,
		.st_ino = row_number,
	},
	{
		.name = "wait",
		.mode = S_IFREG | 0400,
		.index = JOBWAIT_INDEX,
		.hidden = true,
		.class = &jobwait_class,
		.st_ino = row_number,
	},
};

static const struct synth_table job_table = { job_rows, G_N_ELEMENTS(job_rows) };

int jobdir_enter(struct op *op, struct node *dir, const char *name, struct session_job *job,
		 struct entry *ret_entry)
{
	struct entry entry = { .entry_valid_ms = op->fs->config.ttl_ms };
	/* As long as it is this job, it is this node: programs stand in the directory. */
	const struct node_spec spec = {
		.class = &jobdir_class,
		.session = dir->session,
		.data = job,
		.type = S_IFDIR,
	};
	int r;

	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	(void)jobdir_class.getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	*ret_entry = entry;
	return 0;
}

static void jobdir_began(struct node *node)
{
	session_job_ref(node->data);
}

static void jobdir_ended(struct node *node)
{
	session_job_unref(node->data);
}

static int jobdir_lookup(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	struct session_job *job = jobdir_job(dir);
	const struct synth_row *row = synth_find(&job_table, name);
	int r = -ENOENT;

	if (!row && jobwait_is_name(name))
		return jobwait_enter(op, dir, name, ret_entry);
	if (row && !session_job_is_hidden(job, row->index))
		r = synth_lookup(op, &job_table, dir, name, ret_entry);
	return r == -ENOENT ? scratch_lookup(op, job->scratch, dir, name, ret_entry) : r;
}

static int jobdir_getattr(struct op *op, struct node *node, struct stat *ret_st,
			  int64_t *ret_valid_ms)
{
	struct sbx_job_info info;

	op_own_dir(op, node, 0700, session_job_ino(jobdir_job(node), 0), ret_st);
	session_job_info(jobdir_job(node), &info);
	if (info.started_ms) {
		ret_st->st_mtim.tv_sec = (time_t)(info.started_ms / 1000);
		ret_st->st_mtim.tv_nsec = (long)(info.started_ms % 1000) * 1000000;
		ret_st->st_ctim = ret_st->st_atim = ret_st->st_mtim;
	}
	sbx_job_info_done(&info);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int jobdir_unlink(struct op *op, struct node *dir, const char *name)
{
	struct session_job *job = jobdir_job(dir);
	const struct synth_row *row = synth_find(&job_table, name);
	struct sbx_job_info info;
	bool final;

	(void)op;
	if (!row || row->hidden)
		return synth_unlink(&job_table, job->scratch, name);
	session_job_info(job, &info);
	final = sbx_job_state_is_final(info.state);
	sbx_job_info_done(&info);
	if (!final)
		return -EBUSY;
	session_job_hide(job, row->index);
	return 0;
}

static int jobdir_rename(struct op *op, struct node *from_dir, const char *from,
			 struct node *to_dir, const char *to, unsigned int flags)
{
	if (from_dir != to_dir)
		return -EXDEV;
	return synth_rename(op, &job_table, jobdir_job(from_dir)->scratch, from_dir, from, to,
			    flags);
}

static int jobdir_create(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
			 struct entry *ret_entry, struct handle **ret_handle)
{
	return synth_create(op, &job_table, jobdir_job(dir)->scratch, dir, name, flags, mode,
			    ret_entry, ret_handle);
}

static int jobdir_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	struct session_job *job = jobdir_job(dir);
	struct synth_row rows[G_N_ELEMENTS(job_rows)];
	struct synth_table shown = { rows, 0 };
	struct synth_snap *snap = synth_snap_new();

	for (size_t i = 0; i < G_N_ELEMENTS(job_rows); i++)
		if (!session_job_is_hidden(job, job_rows[i].index))
			rows[shown.n++] = job_rows[i];
	synth_snap_add_rows(snap, op, &shown, job->scratch, dir);
	*ret_snap = synth_snap_done(snap);
	return 0;
}

const struct node_class jobdir_class = {
	.waits = true,
	.lookup = jobdir_lookup,
	.getattr = jobdir_getattr,
	.unlink = jobdir_unlink,
	.rename = jobdir_rename,
	.create = jobdir_create,
	.list = jobdir_list,
	.began = jobdir_began,
	.ended = jobdir_ended,
};
