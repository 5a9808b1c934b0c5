#include "fusefs/jobsdir.h"

#include <errno.h>

#include <glib.h>

#include "client/jobs.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/jobdir.h"
#include "fusefs/jobnew.h"
#include "fusefs/op.h"
#include "fusefs/scratch.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/synth.h"

/* The id of the job that was started last, as long as there is one. */
static int show_latest(struct op *op, struct node *dir, GString *out)
{
	struct sbx_jobs *jobs;
	char *id = NULL;
	int r;

	r = session_jobs_enter(dir->session->jobs, &jobs);
	if (r < 0)
		return r;
	r = sbx_jobs_latest(jobs, &op->call, &id);
	session_jobs_leave(dir->session->jobs);
	if (r == 0)
		g_string_append(out, id);
	g_free(id);
	return r;
}

static bool has_latest(struct op *op, struct node *dir)
{
	GString *id = g_string_new(NULL);
	int r = show_latest(op, dir, id);

	g_string_free(id, TRUE);
	return r == 0;
}

/* The numbers are the files' st_ino: keep them. */
static const struct synth_row jobs_rows[] = {
	{
		.name = "new",
		.mode = S_IFREG | 0600,
		.index = JOBSDIR_INDEX + 1,
		.fixed = true,
		.waits = true,
		.show = jobnew_show,
		.store = jobnew_store,
		.open = jobnew_open,
	},
	{
		.name = "latest",
		.mode = S_IFLNK | 0777,
		.index = JOBSDIR_INDEX + 2,
		.waits = true,
		.show = show_latest,
		.exists = has_latest,
	},
};

static const struct synth_table jobs_table = { jobs_rows, G_N_ELEMENTS(jobs_rows) };

static struct scratch_set *scratch_of(const struct node *dir)
{
	return session_jobs_scratch(dir->session->jobs);
}

/* The node of a job's directory. */
static int enter_job(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	struct session_job *job;
	int r;

	r = session_jobs_find(dir->session->jobs, &op->call, name, &job);
	if (r < 0)
		return r;
	r = jobdir_enter(op, dir, name, job, ret_entry);
	session_job_unref(job);
	return r;
}

static int jobsdir_lookup(struct op *op, struct node *dir, const char *name,
			  struct entry *ret_entry)
{
	int r = synth_lookup(op, &jobs_table, dir, name, ret_entry);

	if (r == -ENOENT)
		r = scratch_lookup(op, scratch_of(dir), dir, name, ret_entry);
	return r == -ENOENT ? enter_job(op, dir, name, ret_entry) : r;
}

static int jobsdir_getattr(struct op *op, struct node *node, struct stat *ret_st,
			   int64_t *ret_valid_ms)
{
	op_own_dir(op, node, 0700, ino_own(node->session->index, JOBSDIR_INDEX), ret_st);
	*ret_valid_ms = op->fs->config.ttl_ms;
	return 0;
}

static int jobsdir_unlink(struct op *op, struct node *dir, const char *name)
{
	(void)op;
	return synth_unlink(&jobs_table, scratch_of(dir), name);
}

static int jobsdir_rmdir(struct op *op, struct node *dir, const char *name)
{
	struct session_job *job;
	int r;

	r = session_jobs_find(dir->session->jobs, &op->call, name, &job);
	if (r < 0)
		return r;
	r = session_job_remove(job, &op->call);
	if (r == 0)
		node_removed(op->fs->nodes, dir, name);
	session_job_unref(job);
	return r;
}

static int jobsdir_rename(struct op *op, struct node *from_dir, const char *from,
			  struct node *to_dir, const char *to, unsigned int flags)
{
	struct session_job *job;
	int r;

	if (from_dir != to_dir)
		return -EXDEV;
	r = synth_rename(op, &jobs_table, scratch_of(from_dir), from_dir, from, to, flags);
	/* A job keeps its id. */
	if (r == -ENOENT &&
	    session_jobs_find(from_dir->session->jobs, &op->call, from, &job) == 0) {
		session_job_unref(job);
		r = -EPERM;
	}
	return r;
}

static int jobsdir_create(struct op *op, struct node *dir, const char *name, int flags, mode_t mode,
			  struct entry *ret_entry, struct handle **ret_handle)
{
	return synth_create(op, &jobs_table, scratch_of(dir), dir, name, flags, mode, ret_entry,
			    ret_handle);
}

static int jobsdir_list(struct op *op, struct node *dir, struct dirsnap **ret_snap)
{
	g_auto(GStrv) ids = NULL;
	struct synth_snap *snap;
	struct sbx_jobs *jobs;
	int r;

	r = session_jobs_enter(dir->session->jobs, &jobs);
	if (r < 0)
		return r;
	r = sbx_jobs_list(jobs, &op->call, &ids);
	session_jobs_leave(dir->session->jobs);
	/* Without exec there are no jobs, but there is the directory. */
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	snap = synth_snap_new();
	synth_snap_add_rows(snap, op, &jobs_table, scratch_of(dir), dir);
	for (char **id = ids; id && *id; id++) {
		struct session_job *job;

		/* It was listed this moment, so nobody is asked. */
		if (session_jobs_find(dir->session->jobs, &op->call, *id, &job) < 0)
			continue;
		synth_snap_add(snap, *id, S_IFDIR, session_job_ino(job, 0));
		session_job_unref(job);
	}
	*ret_snap = synth_snap_done(snap);
	return 0;
}

const struct node_class jobsdir_class = {
	.waits = true,
	.lookup = jobsdir_lookup,
	.getattr = jobsdir_getattr,
	.unlink = jobsdir_unlink,
	.rmdir = jobsdir_rmdir,
	.rename = jobsdir_rename,
	.create = jobsdir_create,
	.list = jobsdir_list,
};
