/* When and how unsent bytes of one file become the sandbox's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/errlog.h"
#include "client/random.h"
#include "client/session.h"
#include "client/task.h"
#include "client/workspace/doubt.h"
#include "client/workspace/early.h"
#include "client/workspace/files_impl.h"
#include "client/workspace/names.h"
#include "client/workspace/send.h"

/* What is being sent, and where to. */
struct publishing {
	struct sbx_node_file *node;
	char *path; /* as the node had it when this began */
};

void nfile_moved(void *arg)
{
	struct sbx_node_file *node = arg;

	pthread_mutex_lock(&node->lock);
	node->moved_ms = MAX(node->moved_ms, sbx_clock_ms());
	pthread_mutex_unlock(&node->lock);
}

/* Who waits for the publish counts from then. */
static void publish_works(void *arg, int64_t work_ms)
{
	struct sbx_node_file *node = ((struct publishing *)arg)->node;

	pthread_mutex_lock(&node->lock);
	node->moved_ms = sbx_clock_ms() + work_ms;
	pthread_mutex_unlock(&node->lock);
}

/* Not where the name is about to mean another file, or has come to while the bytes went up. */
static bool publish_place_begin(void *arg)
{
	const struct publishing *publishing = arg;
	struct sbx_node_file *node = publishing->node;
	bool may;

	pthread_mutex_lock(&node->lock);
	may = node->n_holds == 0 && !node->detached && strcmp(node->path, publishing->path) == 0;
	node->placing = may;
	if (!may && node->n_holds > 0)
		node->owed = true;
	else if (!may)
		node->publish_again = true;
	pthread_mutex_unlock(&node->lock);
	return may;
}

static void publish_place_end(void *arg)
{
	struct sbx_node_file *node = ((struct publishing *)arg)->node;

	pthread_mutex_lock(&node->lock);
	node->placing = false;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
}

/*
 * The base, where a server without exec needs all content: for sbx_send(). Called with node->lock,
 * which is let go of.
 */
static int publish_base_locked(struct sbx_node_file *node, const struct sbx_call *call,
			       const struct sbx_spool_view *view, struct sbx_content **ret_base)
{
	const struct sbx_probe_reply *probe;
	int r;

	if (view->meta.kind == SBX_SPOOL_WHOLE || !sbx_layout_needs_base(&view->layout))
		return 0;
	pthread_mutex_unlock(&node->lock);
	r = sbx_names_probe(node->files->names, call, &probe);
	pthread_mutex_lock(&node->lock);
	return r == -EOPNOTSUPP ? nfile_content_locked(node, call, ret_base) : 0;
}

/*
 * The sandbox has @view, as @result says. What was written since stays, as changes of that; else
 * the content moves to the cache and the spool goes.
 */
static void publish_settle(struct sbx_node_file *node, const char *path,
			   const struct sbx_spool_view *view, const struct sbx_sent *result)
{
	struct sbx_files *files = node->files;
	struct sbx_content *content = NULL;
	struct sbx_content *old;
	struct sbx_spool *done = NULL;
	struct sbx_version sent = { 0 };
	struct sbx_version now;

	if (result->known)
		sbx_version_of(&result->attr, &sent);
	if (result->known && result->whole)
		content = sbx_contents_adopt(files->contents, path, &result->attr, view);
	pthread_mutex_lock(&node->lock);
	old = node->content;
	/* publish_note_locked() has told of it, and it may have been changed since. */
	sbx_version_of(&node->attr, &now);
	node->content = sbx_version_equal(&sent, &now) ? g_steal_pointer(&content) : NULL;
	if (!sbx_spool_is_newer(node->spool, view)) {
		done = node->spool;
		node->spool = NULL;
	} else {
		struct sbx_spool_meta meta = {
			.kind = SBX_SPOOL_PATCH,
			.base = now,
			.begun_ns = sbx_spool_now_ns(),
		};

		meta.mode = node->attr.mode & 0777;
		if (sbx_spool_rebase(node->spool, view, &meta) < 0)
			/* It stays as it is: sent again with what came later, nothing is lost. */
			sbx_errlog_note(sbx_session_errors(files->session), "publish", path, -EIO,
					"the spool could not be written anew");
	}
	nfile_show_locked(node);
	pthread_mutex_unlock(&node->lock);
	sbx_spool_remove(done);
	sbx_content_unref(content);
	sbx_content_unref(old);
}

/* *meta tells of an attempt to send the records before @end that begins now. */
static int publish_new_attempt_locked(struct sbx_node_file *node, uint64_t end,
				      struct sbx_spool_meta *meta)
{
	struct sbx_spool_meta next = *meta;
	int r;

	sbx_random_hex(next.attempt_id, SBX_ATTEMPT_ID_CHARS);
	next.attempt_end = end;
	next.attempt_ns = sbx_spool_now_ns();
	next.attempt_size_bytes = node->has_attr ? node->attr.size : 0;
	r = sbx_spool_set_meta(node->spool, &next);
	if (r == 0)
		*meta = next;
	return r;
}

/*
 * What an attempt sends. Appending twice is not the same as once: an attempt to append has an id
 * under which the sandbox keeps its outcome, and while it is in doubt just that is sent again,
 * under that id, by whoever holds the spool. Mode and times may be set meanwhile: they go in an
 * attempt of their own, after it.
 */
static int publish_view_locked(struct sbx_node_file *node, struct sbx_spool_view *ret_view,
			       uint64_t *ret_seq, bool *ret_again)
{
	struct sbx_spool_meta meta;
	uint64_t seq;
	bool again;
	int r;

	if (!nfile_is_unsent_locked(node))
		return -ECANCELED;
	meta = *sbx_spool_meta(node->spool);
	again = meta.attempt_id[0];
	seq = again ? node->attempt_seq : node->write_seq;
	r = again ? sbx_spool_view_until(node->spool, meta.attempt_end, ret_view)
		  : sbx_spool_view(node->spool, ret_view);
	if (r < 0)
		return r;
	if (!again && (meta.kind == SBX_SPOOL_PATCH || meta.flags & SBX_SPOOL_ADDS) &&
	    ret_view->layout.append_start != SBX_NO_APPEND) {
		r = publish_new_attempt_locked(node, ret_view->log_end, &meta);
		if (r < 0) {
			sbx_spool_view_done(ret_view);
			return r;
		}
	}
	if (meta.attempt_id[0] && meta.flags & SBX_SPOOL_SET) {
		meta.flags &= ~(unsigned int)SBX_SPOOL_SET;
		seq = MIN(seq, node->write_seq - 1);
		node->publish_again = true;
	}
	ret_view->meta = meta;
	*ret_seq = seq;
	*ret_again = again;
	return 0;
}

/* The outcome of the attempt is known: the next one is another. */
static void publish_forget_attempt_locked(struct sbx_node_file *node)
{
	struct sbx_spool_meta meta = *sbx_spool_meta(node->spool);

	if (!meta.attempt_id[0])
		return;
	meta.attempt_id[0] = '\0';
	meta.attempt_end = 0;
	(void)sbx_spool_set_meta(node->spool, &meta);
}

static void publish_note_locked(struct sbx_node_file *node, uint64_t seq, int r,
				const struct sbx_sent *sent)
{
	node->attempts++;
	node->attempt_seq = seq;
	node->attempt_error = r == -ECANCELED ? 0 : r;
	if (r < 0) {
		node->failed |= r != -ECANCELED;
		/* What was not answered tells nothing of an attempt before it. */
		if (node->spool && sent->answered)
			publish_forget_attempt_locked(node);
		return;
	}
	node->sent_seq = seq;
	node->written = node->write_seq > seq;
	node->early_tried = false;
	node->failed = false;
	if (sent->known) {
		node->attr = sent->attr;
		node->has_attr = true;
	}
	for (GList *link = node->handles.head; link && !node->written; link = link->next)
		((struct sbx_file *)link->data)->wrote = false;
	nfile_show_locked(node);
	pthread_cond_broadcast(&node->changed);
}

/* The attempt that @view tells of has done nothing: it is made under another id. */
static int publish_attempt_anew(struct sbx_node_file *node, struct sbx_spool_view *view)
{
	struct sbx_spool_meta meta;
	int r = -ECANCELED;

	pthread_mutex_lock(&node->lock);
	if (node->spool) {
		meta = *sbx_spool_meta(node->spool);
		r = publish_new_attempt_locked(node, view->log_end, &meta);
	}
	pthread_mutex_unlock(&node->lock);
	if (r == 0) {
		g_strlcpy(view->meta.attempt_id, meta.attempt_id, sizeof(view->meta.attempt_id));
		view->meta.attempt_ns = meta.attempt_ns;
	}
	return r;
}

/*
 * Before @view is sent: is that still the thing to do? *ret_done: the sandbox has it, as *sent
 * says.
 * -ECANCELED: it is not to be sent there.
 */
static int publish_doubt(struct sbx_node_file *node, const struct sbx_call *call,
			 struct sbx_sending *sending, bool left, struct sbx_spool_view *view,
			 struct sbx_sent *sent, bool *ret_done)
{
	struct sbx_doubted doubted = {
		.session = sending->session,
		.names = sending->names,
		.path = sending->path,
		.view = view,
	};
	enum sbx_doubt doubt = SBX_DOUBT_SEND;
	struct sbx_attr attr;
	int r = 0;

	recover_older(node->files, sending->path, view->meta.begun_ns, &doubted.older);
	/* Until its outcome is known, or forgotten, an attempt is repeated as it was. */
	if (left && (!view->meta.attempt_id[0] || sbx_doubt_is_old(view)))
		r = sbx_doubt_left(&doubted, call, &doubt, &attr);
	if (r == 0 && doubt == SBX_DOUBT_NEWER)
		return recover_aside(node, call, sending->path, &attr);
	if (r == 0 && doubt == SBX_DOUBT_SEND && sbx_doubt_is_old(view)) {
		r = sbx_doubt_appended(&doubted, call, &doubt, &attr);
		if (r == 0 && doubt == SBX_DOUBT_SEND)
			r = publish_attempt_anew(node, view);
		sending->asked_before = false;
	}
	*ret_done = r == 0 && doubt == SBX_DOUBT_DONE;
	if (*ret_done)
		*sent = (struct sbx_sent){ .known = true, .attr = attr };
	return r;
}

/* Look, where that is due, and send @view. */
static int publish_send(struct sbx_node_file *node, const struct sbx_call *call,
			struct sbx_sending *sending, bool left, struct sbx_spool_view *view,
			struct sbx_sent *sent)
{
	bool done = false;
	int r;

	sending->view = view;
	sending->opid = view->meta.attempt_id[0] ? view->meta.attempt_id : NULL;
	r = publish_doubt(node, call, sending, left, view, sent, &done);
	if (r == 0 && !done)
		r = sbx_send(sending, call, sent);
	if (r == -EUCLEAN && sending->opid) {
		/* The sandbox did not keep what came of it: as if that were long ago. */
		view->meta.attempt_ns = 0;
		r = publish_doubt(node, call, sending, left, view, sent, &done);
		if (r == 0 && !done)
			r = sbx_send(sending, call, sent);
	}
	if (r < 0 && sending->stage && sent->answered) {
		/* It may be gone from there; all that is needed is still here. */
		sending->stage = NULL;
		r = sbx_send(sending, call, sent);
	}
	return r == -EUCLEAN ? -EIO : r;
}

/* One attempt. The outcome is in the node. */
static void publish_attempt(struct sbx_node_file *node)
{
	struct sbx_files *files = node->files;
	struct sbx_call call = {
		.stall_timeout_ms = sbx_session_options(files->session)->timeout_ms,
		.moved = nfile_moved,
		.moved_arg = node,
	};
	struct publishing publishing = { .node = node };
	struct sbx_sending sending = {
		.session = files->session,
		.names = files->names,
		.mark = files->mark,
		.place_begin = publish_place_begin,
		.place_end = publish_place_end,
		.works = publish_works,
		.arg = &publishing,
	};
	struct sbx_spool_view view = { .fd = -1 };
	struct sbx_sent sent = { .known = false };
	struct sbx_content *base = NULL;
	g_autofree char *stage = NULL;
	bool first_failure;
	uint64_t seq = 0;
	bool left;
	int r;

	pthread_mutex_lock(&node->lock);
	publishing.path = g_strdup(node->path);
	first_failure = !node->failed;
	/* Nobody waits for a retry: it is not a use of the session. */
	call.background = node->failed && node->n_waiting == 0;
	left = node->left;
	r = publish_view_locked(node, &view, &seq, &sending.asked_before);
	if (r == 0)
		r = publish_base_locked(node, &call, &view, &base);
	if (r == 0)
		stage = early_finish_locked(node, &view);
	pthread_mutex_unlock(&node->lock);
	sending.path = publishing.path;
	sending.stage = stage;
	sending.base = base;
	if (r == 0)
		r = publish_send(node, &call, &sending, left, &view, &sent);
	pthread_mutex_lock(&node->lock);
	publish_note_locked(node, seq, r, &sent);
	pthread_mutex_unlock(&node->lock);
	if (r == 0 && left && sent.known)
		recover_note(files, publishing.path, view.meta.begun_ns, &sent.attr);
	if (r == 0)
		publish_settle(node, publishing.path, &view, &sent);
	else if (first_failure && r != -ECANCELED)
		sbx_errlog_note(sbx_session_errors(files->session), "publish", publishing.path, r,
				"unsent bytes are kept and will be sent again");
	if (r < 0 && r != -ECANCELED)
		retry_arm(files);
	if (view.fd >= 0)
		sbx_spool_view_done(&view);
	sbx_content_unref(base);
	g_free(publishing.path);
}

static int publish_run(void *arg)
{
	struct sbx_node_file *node = arg;
	struct sbx_files *files = node->files;
	bool again;
	int r;

	publish_attempt(node);
	pthread_mutex_lock(&node->lock);
	node->publishing = false;
	if (node->spool && !sbx_spool_meta(node->spool)->attempt_id[0])
		sbx_spool_unpin(node->spool);
	r = node->attempt_error;
	again = node->publish_again && r == 0;
	node->publish_again = false;
	pthread_cond_broadcast(&node->changed);
	pthread_mutex_unlock(&node->lock);
	if (again)
		(void)publish_start(node);
	nfile_settle_ref(node);
	nfile_unref(node);
	if (r == 0)
		retry_sent(files);
	files_task_end(files);
	return r;
}

int publish_start(struct sbx_node_file *node)
{
	struct sbx_files *files = node->files;
	bool start;
	int r;

	if (files->options.read_only)
		return -EROFS;
	pthread_mutex_lock(&node->lock);
	start = !node->publishing && nfile_is_unsent_locked(node);
	if (start && node->n_holds > 0) {
		node->owed = true;
		start = false;
	}
	node->publishing |= start;
	pthread_mutex_unlock(&node->lock);
	if (!start)
		return 0;
	nfile_ref(node);
	r = files_task_begin(files);
	if (r == 0) {
		r = sbx_task_start(files->pool, publish_run, node, NULL, NULL);
		if (r < 0)
			files_task_end(files);
	}
	if (r < 0) {
		pthread_mutex_lock(&node->lock);
		node->publishing = false;
		pthread_cond_broadcast(&node->changed);
		pthread_mutex_unlock(&node->lock);
		nfile_unref(node);
	}
	return r;
}

int publish_after(struct sbx_node_file *node)
{
	pthread_mutex_lock(&node->lock);
	node->publish_again = node->publishing;
	pthread_mutex_unlock(&node->lock);
	return publish_start(node);
}

int publish_wait(struct sbx_node_file *node, const struct sbx_call *call)
{
	struct sbx_wait wait;
	unsigned int begun_at = 0;
	bool begun = false;
	uint64_t seq;
	int r;

	r = sbx_wait_begin(&wait, call, &node->changed, &node->lock);
	if (r < 0) {
		/* Who is let go of before he could wait still has the bytes sent. */
		(void)publish_start(node);
		return r;
	}
	pthread_mutex_lock(&node->lock);
	seq = node->write_seq;
	node->n_waiting++;
	while (r == 0 && nfile_is_unsent_locked(node) && node->sent_seq < seq) {
		if (node->publishing || node->n_holds > 0) {
			r = sbx_wait_moving(&wait, &node->moved_ms);
		} else if (begun && node->attempts != begun_at && node->attempt_error < 0) {
			/* One that was begun for this caller. */
			r = node->attempt_error;
		} else {
			begun = true;
			begun_at = node->attempts;
			pthread_mutex_unlock(&node->lock);
			r = publish_start(node);
			pthread_mutex_lock(&node->lock);
		}
	}
	node->n_waiting--;
	pthread_mutex_unlock(&node->lock);
	sbx_wait_end(&wait);
	return r;
}

/* What the kernel tells of a last close comes a moment after the program has gone on. */
#define RELEASE_MS 250

/* Whether all its writers have closed the file, but the kernel has not told yet. */
static bool node_is_closing_locked(const struct sbx_node_file *node)
{
	bool closing = false;

	for (const GList *link = node->handles.head; link; link = link->next) {
		const struct sbx_file *file = link->data;

		if (file->writable && !file->closed)
			return false;
		closing |= file->writable;
	}
	return closing;
}

/* The sandbox does not have its name yet, in the directory @path. */
static bool node_is_new_in_locked(const struct sbx_node_file *node, const char *path)
{
	const char *slash = strrchr(node->path, '/');

	return nfile_is_unsent_locked(node) && sbx_spool_meta(node->spool)->flags & SBX_SPOOL_NEW &&
	       strlen(path) == (slash ? (size_t)(slash - node->path) : 0);
}

static bool node_is_new_in(struct sbx_node_file *node, const char *path)
{
	bool is_new;

	pthread_mutex_lock(&node->lock);
	is_new = node_is_new_in_locked(node, path);
	pthread_mutex_unlock(&node->lock);
	return is_new;
}

/*
 * Whether an fsync of the directory @path sends it: something is unsent, and nobody is writing it.
 * A writer who has closed it is waited for until @until_ms; where he still has a copy, not again
 * before he closes one more. What failed before is tried again by itself; a name is worth one more
 * attempt.
 */
static int node_is_due(struct sbx_node_file *node, const struct sbx_call *call, int64_t until_ms,
		       const char *path, bool *ret_due)
{
	struct sbx_call moment = *call;
	struct sbx_wait wait;
	int r;

	moment.stall_timeout_ms = MAX(until_ms - sbx_clock_ms(), 1);
	r = sbx_wait_begin(&wait, &moment, &node->changed, &node->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&node->lock);
	while (r == 0 && nfile_is_unsent_locked(node) && node_is_closing_locked(node))
		r = sbx_wait_for(&wait);
	if (r == -ETIMEDOUT)
		for (GList *link = node->handles.head; link; link = link->next)
			((struct sbx_file *)link->data)->closed = false;
	*ret_due = nfile_is_unsent_locked(node) && !nfile_has_writer_locked(node) &&
		   (!node->failed || node_is_new_in_locked(node, path));
	pthread_mutex_unlock(&node->lock);
	sbx_wait_end(&wait);
	return r == -ETIMEDOUT ? 0 : r;
}

int sbx_files_publish_closed(struct sbx_files *files, const struct sbx_call *call, const char *path)
{
	const int64_t until_ms = sbx_clock_ms() + RELEASE_MS;
	g_autoptr(GPtrArray) begun = g_ptr_array_new();
	GPtrArray *nodes = files_collect(files, path);
	int result = 0;

	for (guint i = 0; i < nodes->len && result == 0; i++) {
		bool due = false;

		result = node_is_due(nodes->pdata[i], call, until_ms, path, &due);
		if (!due)
			continue;
		(void)publish_start(nodes->pdata[i]);
		g_ptr_array_add(begun, nodes->pdata[i]);
	}
	for (guint i = 0; i < begun->len && result != -EINTR; i++) {
		int r = publish_wait(begun->pdata[i], call);

		if (r == -EINTR || (r < 0 && result == 0 && node_is_new_in(begun->pdata[i], path)))
			result = r;
	}
	for (guint i = 0; i < nodes->len; i++)
		nfile_unref(nodes->pdata[i]);
	g_ptr_array_unref(nodes);
	return result;
}

static int node_wait_while(struct sbx_node_file *node, const struct sbx_call *call,
			   bool (*condition_locked)(const struct sbx_node_file *node))
{
	struct sbx_wait wait;
	int r = sbx_wait_begin(&wait, call, &node->changed, &node->lock);

	if (r < 0)
		return r;
	pthread_mutex_lock(&node->lock);
	while (r == 0 && condition_locked(node))
		r = sbx_wait_moving(&wait, &node->moved_ms);
	pthread_mutex_unlock(&node->lock);
	sbx_wait_end(&wait);
	return r;
}

static bool is_placing_locked(const struct sbx_node_file *node)
{
	return node->placing;
}

static int node_hold(struct sbx_node_file *node, const struct sbx_call *call)
{
	pthread_mutex_lock(&node->lock);
	node->n_holds++;
	pthread_mutex_unlock(&node->lock);
	return node_wait_while(node, call, is_placing_locked);
}

/* The sandbox has all, and the spool is about to go. */
static bool is_settling_locked(const struct sbx_node_file *node)
{
	return node->publishing && !nfile_is_unsent_locked(node);
}

int sbx_files_settle(struct sbx_files *files, const struct sbx_call *call)
{
	GPtrArray *nodes = files_collect(files, NULL);
	int r = 0;

	for (guint i = 0; i < nodes->len; i++) {
		if (r == 0)
			r = node_wait_while(nodes->pdata[i], call, is_settling_locked);
		nfile_unref(nodes->pdata[i]);
	}
	g_ptr_array_unref(nodes);
	return r;
}

int sbx_files_hold(struct sbx_files *files, const struct sbx_call *call, const char *path,
		   GPtrArray *held)
{
	GPtrArray *nodes = files_collect(files, path);
	int result = 0;

	for (guint i = 0; i < nodes->len; i++) {
		int r = node_hold(nodes->pdata[i], call);

		if (result == 0)
			result = r;
	}
	g_ptr_array_extend_and_steal(held, nodes);
	return result;
}

void sbx_files_let(GPtrArray *held)
{
	for (guint i = 0; i < held->len; i++) {
		struct sbx_node_file *node = held->pdata[i];
		bool owed;

		pthread_mutex_lock(&node->lock);
		node->n_holds--;
		owed = node->owed && node->n_holds == 0;
		if (owed)
			node->owed = false;
		pthread_cond_broadcast(&node->changed);
		pthread_mutex_unlock(&node->lock);
		if (owed)
			(void)publish_after(node);
		nfile_unref(node);
	}
	g_ptr_array_set_size(held, 0);
}
