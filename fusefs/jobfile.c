#include "fusefs/jobfile.h"

#include <errno.h>
#include <fcntl.h>

#include <glib.h>

#include "client/jobs.h"
#include "fusefs/jobdir.h"
#include "fusefs/op.h"
#include "fusefs/sessionjobs.h"

/* An open log. Its node's parent holds the job. */
struct jobfile_handle {
	struct handle head;
	struct session_job *job; /* a reference */
};

static int jobfile_getattr(struct op *op, struct node *node, struct stat *ret_st,
			   int64_t *ret_valid_ms)
{
	struct session_job *job = jobdir_job(node->parent);
	struct sbx_job_info info;
	int64_t mtime_ns;
	int r;

	r = session_job_look(job, &op->call, &info);
	if (r < 0)
		return r;
	mtime_ns = session_job_log_time(job, &info);
	op_own_stat(op->fs, S_IFREG | 0400, session_job_ino(job, JOBFILE_INDEX), info.log_bytes,
		    ret_st);
	op_set_time(&ret_st->st_mtim, mtime_ns);
	ret_st->st_ctim = ret_st->st_atim = ret_st->st_mtim;
	*ret_valid_ms = 0;
	sbx_job_info_done(&info);
	return 0;
}

static ssize_t jobfile_read(struct op *op, struct handle *handle, void *buf, size_t size,
			    off_t offset)
{
	struct jobfile_handle *self = (struct jobfile_handle *)handle;

	return sbx_job_read(self->job->job, &op->call, buf, size, (uint64_t)offset);
}

static void jobfile_release(struct op *op, struct handle *handle)
{
	struct jobfile_handle *self = (struct jobfile_handle *)handle;

	(void)op;
	session_job_unref(self->job);
	g_free(self);
}

static const struct handle_class jobfile_handle_class = {
	.read = jobfile_read,
	.release = jobfile_release,
};

static int jobfile_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	struct session_job *job = jobdir_job(node->parent);
	struct jobfile_handle *self;
	struct sbx_job_info info;

	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		return -EACCES;
	session_job_info(job, &info);
	self = g_new0(struct jobfile_handle, 1);
	self->job = session_job_ref(job);
	handle_init(op, &self->head, &jobfile_handle_class, node, flags);
	self->head.direct_io = !sbx_job_state_is_final(info.state);
	sbx_job_info_done(&info);
	*ret_handle = &self->head;
	return 0;
}

const struct node_class jobfile_class = {
	.waits = true,
	.getattr = jobfile_getattr,
	.open = jobfile_open,
};
