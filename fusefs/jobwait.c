#include "fusefs/jobwait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "client/jobs.h"
#include "fusefs/jobdir.h"
#include "fusefs/op.h"
#include "fusefs/park.h"
#include "fusefs/sessionjobs.h"

#define SECONDS_DIGITS_MAX 9

struct jobwait_handle {
	struct handle head;
	struct session_job *job; /* a reference */
	int64_t timeout_ms; /* negative: no bound */
	pthread_mutex_t lock; /* for text */
	GString *text; /* what the wait gave; NULL: nothing was waited for yet */
};

/* One parked read. */
struct jobwait {
	struct jobwait_handle *handle; /* the kernel keeps it open */
	struct park *park;
	struct sbx_job_waiter *waiter; /* to be given back once */
};

bool jobwait_is_name(const char *name)
{
	size_t digits;

	if (strncmp(name, "wait.", 5) != 0)
		return false;
	digits = strspn(name + 5, "0123456789");
	return digits > 0 && digits <= SECONDS_DIGITS_MAX && name[5 + digits] == '\0';
}

static int jobwait_getattr(struct op *op, struct node *node, struct stat *ret_st,
			   int64_t *ret_valid_ms)
{
	op_own_stat(op->fs, S_IFREG | 0400,
		    session_job_ino(jobdir_job(node->parent), JOBWAIT_INDEX), 0, ret_st);
	*ret_valid_ms = 0;
	return 0;
}

int jobwait_enter(struct op *op, struct node *dir, const char *name, struct entry *ret_entry)
{
	const struct node_spec spec = {
		.class = &jobwait_class,
		.session = dir->session,
		.type = S_IFREG,
		.fresh = true,
	};
	struct entry entry = { 0 };
	int r;

	r = node_enter(op->fs->nodes, dir, name, &spec, &entry.node);
	if (r < 0)
		return r;
	(void)jobwait_getattr(op, entry.node, &entry.st, &entry.attr_valid_ms);
	*ret_entry = entry;
	return 0;
}

static void wait_over(void *arg, int result)
{
	struct jobwait *wait = arg;

	park_done(wait->park, result);
}

static int wait_begin(void *arg, struct park *park)
{
	struct jobwait *wait = arg;

	wait->park = park;
	return sbx_job_wait_async(wait->handle->job->job, wait->handle->timeout_ms, wait_over, wait,
				  &wait->waiter);
}

static bool wait_end(void *arg)
{
	struct jobwait *wait = arg;
	struct sbx_job_waiter *waiter = g_steal_pointer(&wait->waiter);

	return sbx_job_unwait(waiter);
}

static ssize_t text_read(struct jobwait_handle *handle, void *buf, size_t size, off_t offset)
{
	size_t at = (size_t)offset, n = 0;

	pthread_mutex_lock(&handle->lock);
	if (handle->text && at < handle->text->len) {
		n = MIN(size, handle->text->len - at);
		memcpy(buf, handle->text->str + at, n);
	}
	pthread_mutex_unlock(&handle->lock);
	return (ssize_t)n;
}

static ssize_t wait_answer(void *arg, struct op *op, int result, void *buf, size_t size,
			   off_t offset)
{
	struct jobwait *wait = arg;
	struct jobwait_handle *handle = wait->handle;
	GString *text;

	(void)op;
	if (result == -EINTR || result == -ECANCELED)
		return -EINTR;
	text = g_string_new(NULL);
	jobdir_show_status(handle->job, text);
	pthread_mutex_lock(&handle->lock);
	if (!handle->text)
		handle->text = g_steal_pointer(&text);
	pthread_mutex_unlock(&handle->lock);
	if (text)
		g_string_free(text, TRUE);
	return text_read(handle, buf, size, offset);
}

static void wait_free(void *arg)
{
	struct jobwait *wait = arg;

	if (wait->waiter)
		(void)sbx_job_unwait(wait->waiter);
	g_free(wait);
}

static const struct park_wait job_wait = {
	.begin = wait_begin,
	.end = wait_end,
	.answer = wait_answer,
	.free = wait_free,
};

static bool jobwait_park(struct op *op, struct handle *head, size_t size, off_t offset)
{
	struct jobwait_handle *handle = (struct jobwait_handle *)head;
	struct jobwait *wait;
	bool has_text;

	pthread_mutex_lock(&handle->lock);
	has_text = handle->text;
	pthread_mutex_unlock(&handle->lock);
	if (has_text)
		return false;
	wait = g_new0(struct jobwait, 1);
	wait->handle = handle;
	park_read(op, &job_wait, wait, size, offset);
	return true;
}

static ssize_t jobwait_read(struct op *op, struct handle *head, void *buf, size_t size,
			    off_t offset)
{
	(void)op;
	return text_read((struct jobwait_handle *)head, buf, size, offset);
}

static void jobwait_release(struct op *op, struct handle *head)
{
	struct jobwait_handle *handle = (struct jobwait_handle *)head;

	(void)op;
	if (handle->text)
		g_string_free(handle->text, TRUE);
	pthread_mutex_destroy(&handle->lock);
	session_job_unref(handle->job);
	g_free(handle);
}

static const struct handle_class jobwait_handle_class = {
	.park = jobwait_park,
	.read = jobwait_read,
	.release = jobwait_release,
};

static int jobwait_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	struct jobwait_handle *handle;

	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC))
		return -EACCES;
	handle = g_new0(struct jobwait_handle, 1);
	handle->job = session_job_ref(jobdir_job(node->parent));
	/* The name of a node that is always a new one does not change. */
	handle->timeout_ms = node->name[4] == '.' ? strtoll(node->name + 5, NULL, 10) * 1000 : -1;
	pthread_mutex_init(&handle->lock, NULL);
	handle_init(op, &handle->head, &jobwait_handle_class, node, flags);
	handle->head.direct_io = true;
	*ret_handle = &handle->head;
	return 0;
}

const struct node_class jobwait_class = {
	.waits = true,
	.getattr = jobwait_getattr,
	.open = jobwait_open,
};
