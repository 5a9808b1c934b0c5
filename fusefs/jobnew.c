#include "fusefs/jobnew.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "client/errlog.h"
#include "client/jobs.h"
#include "client/jobspec.h"
#include "client/session.h"
#include "fusefs/fsession.h"
#include "fusefs/op.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/verb.h"

static const char help[] =
	"# Write a command here, a shell text or one JSON object, and read back the job's id:\n"
	"#   {\"command\": TEXT, \"cwd\": DIR, \"env\": {NAME: VALUE}, \"timeoutSeconds\": N,\n"
	"#    \"processName\": NAME, \"id\": ID}\n"
	"# The job is then the directory ID beside this file; latest is the one started last.\n";

enum jobnew_state {
	JOBNEW_TEXT, /* takes text */
	JOBNEW_STARTING,
	JOBNEW_STARTED,
	JOBNEW_FAILED,
	JOBNEW_REFUSED, /* it was too much: nothing of it is started */
};

struct jobnew {
	struct handle head;
	pid_t opener;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t changed; /* STARTING is over */
	enum jobnew_state state;
	int error; /* FAILED */
	GString *text;
	char *id_line; /* STARTED */
	size_t cursor; /* of an open file for both ways */
};

int jobnew_show(struct op *op, struct node *dir, GString *out)
{
	(void)op;
	(void)dir;
	g_string_append(out, help);
	return 0;
}

char *jobnew_translate(const char *workspace, const char *cwd)
{
	g_autofree char *plain = NULL;
	size_t len = strlen(workspace);

	if (*cwd != '/')
		return NULL;
	plain = g_canonicalize_filename(cwd, "/");
	if (strncmp(plain, workspace, len) != 0 || (plain[len] != '\0' && plain[len] != '/'))
		return NULL;
	return g_strdup(plain[len] == '/' ? plain + len + 1 : ".");
}

/* The path of the session's workspace on this machine. */
static char *workspace_path(struct op *op, struct node *dir, const char *mountpoint)
{
	g_autofree char *name = NULL;

	if (op->fs->config.subtree && *op->fs->config.subtree)
		return g_build_filename(mountpoint, "fs", NULL);
	name = sbx_session_name(dir->session->session);
	return g_build_filename(mountpoint, name, "fs", NULL);
}

static int start_spec(struct op *op, struct node *dir, struct sbx_jobspec *spec,
		      struct sbx_call *call, char **ret_id)
{
	struct session_jobs *jobs = dir->session->jobs;
	const char *const mountpoints[] = { op->fs->config.mountpoint,
					    op->fs->config.real_mountpoint };
	g_autofree char *cwd = NULL;
	struct session_job *entry;
	struct sbx_jobs *below;
	struct sbx_job *job;
	int r;

	for (size_t i = 0; spec->spec.cwd && !cwd && i < G_N_ELEMENTS(mountpoints); i++) {
		g_autofree char *workspace = workspace_path(op, dir, mountpoints[i]);

		cwd = jobnew_translate(workspace, spec->spec.cwd);
	}
	if (cwd)
		spec->spec.cwd = cwd;
	r = session_jobs_enter(jobs, &below);
	if (r < 0)
		return r;
	r = sbx_jobs_start(below, call, &spec->spec, &job);
	session_jobs_leave(jobs);
	if (r < 0)
		return r;
	entry = session_jobs_started(jobs, job);
	*ret_id = g_strdup(entry->id);
	session_job_unref(entry);
	sbx_job_unref(job);
	return 0;
}

/* Start what @data asks for. 0 with *ret_id NULL: nothing. */
static int start_text(struct op *op, struct node *dir, const char *data, size_t len, char **ret_id)
{
	struct sbx_failure failure = { 0 };
	struct sbx_call call = op->call;
	struct sbx_jobspec *spec = NULL;
	int r;

	*ret_id = NULL;
	call.failure = &failure;
	r = sbx_jobspec_parse(data, len, &spec);
	if (r == 0 && !spec)
		return 0;
	if (r == 0 && !op->fs->config.use_exec)
		r = -EOPNOTSUPP;
	if (r == 0)
		r = start_spec(op, dir, spec, &call, ret_id);
	/* What a request failed with was told by the layer that sent it. */
	if (r < 0 && r != -EINTR && failure.kind == SBX_FAIL_NONE) {
		g_autofree char *line = g_strndup(data, MIN(len, 200));

		sbx_errlog_note(sbx_session_errors(dir->session->session), "jobs/new",
				spec && spec->id ? spec->id : line, r, "the job was refused");
	}
	sbx_jobspec_free(spec);
	return r;
}

int jobnew_store(struct op *op, struct node *dir, const char *data, size_t len)
{
	g_autofree char *id = NULL;

	return start_text(op, dir, data, len, &id);
}

/*
 * Start what was written, once: who comes meanwhile waits and gets the same result. 0: started, or
 * there was nothing to start.
 */
static int jobnew_start(struct op *op, struct jobnew *self)
{
	struct node *dir = self->head.node->parent;
	g_autofree char *id = NULL;
	GString *text = NULL;
	struct sbx_wait wait;
	int r;

	r = sbx_wait_begin(&wait, &op->call, &self->changed, &self->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&self->lock);
	while (r == 0 && self->state == JOBNEW_STARTING)
		r = sbx_wait_for(&wait);
	if (r == 0 && self->state == JOBNEW_FAILED)
		r = self->error;
	if (r == 0 && self->state == JOBNEW_REFUSED)
		r = -EFBIG;
	if (r == 0 && self->state == JOBNEW_TEXT && self->text->len > 0) {
		self->state = JOBNEW_STARTING;
		text = self->text;
		self->text = g_string_new(NULL);
	}
	pthread_mutex_unlock(&self->lock);
	sbx_wait_end(&wait);
	if (!text)
		return r;

	r = start_text(op, dir, text->str, text->len, &id);
	g_string_free(text, TRUE);
	pthread_mutex_lock(&self->lock);
	self->state = r < 0 ? JOBNEW_FAILED : id ? JOBNEW_STARTED : JOBNEW_TEXT;
	self->error = r;
	if (id) {
		self->id_line = g_strconcat(id, "\n", NULL);
		self->cursor = 0;
	}
	pthread_cond_broadcast(&self->changed);
	pthread_mutex_unlock(&self->lock);
	return r;
}

static ssize_t jobnew_read(struct op *op, struct handle *head, void *buf, size_t size, off_t offset)
{
	struct jobnew *self = (struct jobnew *)head;
	const char *from;
	size_t at = (size_t)offset, n = 0;
	int r = 0;

	if ((head->flags & O_ACCMODE) == O_RDWR)
		r = jobnew_start(op, self);
	if (r < 0)
		return r;
	pthread_mutex_lock(&self->lock);
	from = self->id_line ? self->id_line : help;
	if ((head->flags & O_ACCMODE) == O_RDWR)
		at = self->cursor;
	if (at < strlen(from)) {
		n = MIN(size, strlen(from) - at);
		memcpy(buf, from + at, n);
	}
	self->cursor = at + n;
	pthread_mutex_unlock(&self->lock);
	return (ssize_t)n;
}

static bool is_blank(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!g_ascii_isspace(data[i]))
			return false;
	return true;
}

static ssize_t jobnew_write(struct op *op, struct handle *head, const void *buf, size_t size,
			    off_t offset, bool append)
{
	struct jobnew *self = (struct jobnew *)head;
	int r = 0;

	(void)offset;
	(void)append;
	if (!op->fs->config.use_exec)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&self->lock);
	switch (self->state) {
	case JOBNEW_FAILED:
		self->state = JOBNEW_TEXT;
		break;
	case JOBNEW_STARTING:
	case JOBNEW_STARTED:
		/* One command an open file; the newline behind it is no other. */
		r = is_blank(buf, size) ? 1 : -EBUSY;
		break;
	case JOBNEW_REFUSED:
		r = -EFBIG;
		break;
	case JOBNEW_TEXT:
		break;
	}
	if (r == 0 && self->text->len + size > VERB_INPUT_MAX) {
		/* Neither the beginning of a script is one, nor what follows the gap. */
		g_string_truncate(self->text, 0);
		self->state = JOBNEW_REFUSED;
		r = -EFBIG;
	}
	if (r == 0)
		g_string_append_len(self->text, buf, (gssize)size);
	pthread_mutex_unlock(&self->lock);
	return r < 0 ? r : (ssize_t)size;
}

static bool has_text(struct jobnew *self)
{
	bool has;

	pthread_mutex_lock(&self->lock);
	has = self->state == JOBNEW_TEXT && self->text->len > 0;
	pthread_mutex_unlock(&self->lock);
	return has;
}

static int jobnew_flush(struct op *op, struct handle *head)
{
	struct jobnew *self = (struct jobnew *)head;

	return has_text(self) && op_closes(op, self->opener) ? jobnew_start(op, self) : 0;
}

static void jobnew_release(struct op *op, struct handle *head)
{
	struct jobnew *self = (struct jobnew *)head;

	/* Written by a process that its opener outlived: nobody hears how it went but errors. */
	if (has_text(self))
		(void)jobnew_start(op, self);
	g_string_free(self->text, TRUE);
	g_free(self->id_line);
	pthread_cond_destroy(&self->changed);
	pthread_mutex_destroy(&self->lock);
	g_free(self);
}

static const struct handle_class jobnew_class = {
	.read = jobnew_read,
	.write = jobnew_write,
	.flush = jobnew_flush,
	.release = jobnew_release,
	.release_waits = true,
};

int jobnew_open(struct op *op, struct node *node, int flags, struct handle **ret_handle)
{
	struct jobnew *self = g_new0(struct jobnew, 1);
	int r = sbx_cond_init(&self->changed);

	if (r < 0) {
		g_free(self);
		return r;
	}
	pthread_mutex_init(&self->lock, NULL);
	self->opener = op_pid(op);
	self->text = g_string_new(NULL);
	handle_init(op, &self->head, &jobnew_class, node, flags);
	self->head.direct_io = true;
	*ret_handle = &self->head;
	return 0;
}
