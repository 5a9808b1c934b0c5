#include "client/jobs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/jobs_impl.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/workspace/names.h"

/* An open file that was read or looked at counts as a reader for this long. */
#define READER_MS 15000
/* Who asks whether a job has ended gets an answer this young while it keeps asking. */
#define LOOKING_MS	    2000
#define LOOKING_INTERVAL_MS 1000
#define INTERVAL_MIN_MS	    250
#define INTERVAL_MAX_MS	    5000
/* Jobs in one poll; the others come with the next. */
#define POLL_ITEMS_MAX	64
#define CHUNK_MIN_BYTES (64u << 10)
/* Asked for at once by who reads a log that is not kept here. */
#define WINDOW_BYTES (1u << 20)

/* What is shown ------------------------------------------------------------------------------- */

/* Bytes at the end of what came that begin a character which is not whole. */
static unsigned int job_tail_partial(const struct sbx_job *job)
{
	size_t n = MIN(job->spooled, sizeof(job->tail));

	for (size_t back = 1; back <= n; back++) {
		unsigned char c = job->tail[sizeof(job->tail) - back];
		size_t need = c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;

		if ((c & 0xc0) == 0x80)
			continue;
		return c < 0xf8 && c >= 0xc2 && need > back ? (unsigned int)back : 0;
	}
	return 0;
}

void job_update_visible_locked(struct sbx_job *job)
{
	uint64_t visible = job->spooled;

	if (job->ended && (job->spooled >= job->remote_bytes || job->spool_fd < 0)) {
		bool is_new = !sbx_job_state_is_final(job->state);

		job->state = job->ended_state;
		if (is_new && job->spool_fd >= 0)
			job_spool_save_end_locked(job);
	}
	if (sbx_job_state_is_final(job->state)) {
		job->visible = MAX(job->spooled, job->remote_bytes);
		return;
	}
	/* What begins a character is shown with the rest of it, with what shows that it was none,
	 * or at the end: a program may take its time between two bytes. */
	visible -= job_tail_partial(job);
	job->visible = MAX(job->visible, visible);
}

/* Waiters that are due are taken off the list under the lock and told without it. */
void job_tell_waiters_locked(struct sbx_job *job, int result)
{
	bool final = sbx_job_state_is_final(job->state);
	int64_t now_ms = sbx_clock_ms();
	struct sbx_job_waiter *due = NULL, **at = &job->waiters;

	while (*at) {
		struct sbx_job_waiter *waiter = *at;
		bool is_over = waiter->until_ms && now_ms >= waiter->until_ms;

		if (!final && result == 0 && !is_over) {
			at = &waiter->next;
			continue;
		}
		*at = waiter->next;
		waiter->next = due;
		waiter->queued = false;
		due = waiter;
	}
	pthread_cond_broadcast(&job->jobs->changed);
	if (!due)
		return;
	sbx_job_ref(job);
	pthread_mutex_unlock(&job->jobs->lock);
	while (due) {
		struct sbx_job_waiter *next = due->next;

		due->fn(due->arg, result < 0 ? result : final ? 0 : -ETIMEDOUT);
		if (atomic_fetch_sub(&due->refs, 1) == 1) {
			sbx_job_unref(due->job);
			g_free(due);
		}
		due = next;
	}
	pthread_mutex_lock(&job->jobs->lock);
	/* The table or the caller holds another reference. */
	atomic_fetch_sub(&job->refs, 1);
}

/* The poll ------------------------------------------------------------------------------------ */

static bool job_is_read_locked(const struct sbx_job *job, int64_t now_ms)
{
	return now_ms < job->reader_until_ms || job->waiters || job->waiting || job->wants_bytes;
}

/* Is there anything to be asked of @job? */
static bool job_is_due_locked(const struct sbx_job *job, int64_t now_ms)
{
	if (job->removed || job->spool_fd < 0 || !job_is_read_locked(job, now_ms))
		return false;
	if (!job->ended)
		return true;
	return job->spooled < job->remote_bytes &&
	       (job->wants_bytes || !sbx_job_state_is_final(job->state));
}

static void job_append_locked(struct sbx_job *job, const GByteArray *bytes)
{
	const size_t tail_len = sizeof(job->tail);
	size_t len = bytes->len, n;

	/* Never more than the log held when the job ended. */
	if (job->ended)
		len = (size_t)MIN((uint64_t)len, job->remote_bytes > job->spooled
							 ? job->remote_bytes - job->spooled
							 : 0);
	if (!len)
		return;
	job_spool_append_locked(job, bytes->data, len);
	n = MIN(len, tail_len);
	memmove(job->tail, job->tail + n, tail_len - n);
	memcpy(job->tail + tail_len - n, bytes->data + len - n, n);
}

/* Takes over how much there is: less than was told when somebody cut the log, or took it away. */
static void job_take_size_locked(struct sbx_job *job, uint64_t log_bytes)
{
	if (job->ended ? log_bytes < job->remote_bytes : log_bytes != job->remote_bytes)
		job->remote_bytes = MAX(job->spooled, log_bytes);
}

static bool poll_take_locked(struct sbx_jobs *jobs, struct sbx_job **polled,
			     struct sbx_job_poll_item *items, size_t n, int64_t sent_ms)
{
	bool grew = false;

	for (size_t i = 0; i < n; i++) {
		struct sbx_job *job = polled[i];
		uint64_t before = job->spooled;
		bool was_dead = job->seen_dead;

		if (!job->ended)
			job_take_size_locked(job, items[i].log_bytes);
		/* A job without a leader of ours is judged by the list. */
		job_take_end_locked(job, items[i].has_exit, items[i].exit_code, &items[i].end,
				    items[i].life);
		if (job->seen_dead && !was_dead && !job->ended)
			jobs->poll_again = true;
		if (items[i].bytes && before == items[i].offset)
			job_append_locked(job, items[i].bytes);
		job_take_size_locked(job, items[i].log_bytes);
		if (job->spooled >= job->remote_bytes)
			job->wants_bytes = false;
		grew |= job->spooled > before;
		job->polled_ms = sent_ms;
		job_update_visible_locked(job);
	}
	for (size_t i = 0; i < n; i++) {
		if (items[i].is_gone)
			job_vanished_locked(polled[i]);
		else
			job_tell_waiters_locked(polled[i], 0);
	}
	return grew;
}

static void poll_schedule_locked(struct sbx_jobs *jobs, int64_t delay_ms);

static gint polled_earlier(gconstpointer a, gconstpointer b)
{
	const struct sbx_job *x = *(struct sbx_job *const *)a, *y = *(struct sbx_job *const *)b;

	return (x->polled_ms > y->polled_ms) - (x->polled_ms < y->polled_ms);
}

void jobs_moved(void *arg)
{
	struct sbx_jobs *jobs = arg;

	pthread_mutex_lock(&jobs->lock);
	jobs->moved_ms = sbx_clock_ms();
	pthread_mutex_unlock(&jobs->lock);
}

/* Sends one poll of what is due. False: nothing was. Runs without the lock; jobs->polling is
 * ours. */
static bool poll_once(struct sbx_jobs *jobs)
{
	struct sbx_job_poll_item items[POLL_ITEMS_MAX] = { 0 };
	g_autoptr(GPtrArray) due = g_ptr_array_new();
	struct sbx_job *polled[POLL_ITEMS_MAX];
	struct sbx_call call = { .cancel = jobs->cancel,
				 .stall_timeout_ms = sbx_session_options(jobs->session)->timeout_ms,
				 .background = true,
				 .moved = jobs_moved,
				 .moved_arg = jobs };
	struct sbx_exec_result result = { 0 };
	struct sbx_exec_spec spec = { .env = sbx_program_environment(), .repeatable = true };
	char nonce[SBX_NONCE_CHARS + 1];
	g_auto(GStrv) argv = NULL;
	int64_t sent_ms = sbx_clock_ms();
	bool foreign = false, lagging = false, grew = false;
	size_t n = 0, chunk;
	GHashTableIter iter;
	void *value;
	int r;

	pthread_mutex_lock(&jobs->lock);
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		if (job_is_due_locked(value, sent_ms))
			g_ptr_array_add(due, value);
	/* Where there are too many for one, each has its turn. */
	g_ptr_array_sort(due, polled_earlier);
	while (n < MIN(due->len, POLL_ITEMS_MAX)) {
		struct sbx_job *job = due->pdata[n];

		polled[n] = sbx_job_ref(job);
		items[n].dir = job->dir;
		items[n++].offset = job->spooled;
		foreign |= !job->op[0] && !job->ended;
	}
	chunk = jobs->chunk_bytes;
	pthread_mutex_unlock(&jobs->lock);
	if (!n)
		return false;

	argv = sbx_job_poll_argv(items, n, chunk, nonce);
	spec.argv = (const char *const *)argv;
	r = sbx_session_exec(jobs->session, &call, &spec, &result);
	if (r == 0) {
		r = sbx_job_poll_decode(items, n, nonce, chunk, result.out, result.out_len);
		sbx_exec_result_clear(&result);
	}
	/* Whether a process lives that is not ours: only the list knows how to look. */
	if (r == 0 && foreign)
		r = jobs_refresh_list(jobs, &call, sent_ms - LOOKING_INTERVAL_MS);

	pthread_mutex_lock(&jobs->lock);
	jobs->poll_result = r == -EMSGSIZE ? -EIO : r;
	if (r == 0) {
		grew = poll_take_locked(jobs, polled, items, n, sent_ms);
		/* Not one that can't get further: a log that can't be read. */
		for (size_t i = 0; i < n; i++)
			lagging |= job_is_due_locked(polled[i], sbx_clock_ms()) &&
				   polled[i]->spooled > items[i].offset &&
				   polled[i]->spooled < polled[i]->remote_bytes;
	} else {
		/* An answer that was cut: ask for less. */
		if (r == -EMSGSIZE && jobs->chunk_bytes > CHUNK_MIN_BYTES) {
			jobs->chunk_bytes /= 2;
			jobs->poll_again = true;
			jobs->poll_result = 0;
		}
		for (size_t i = 0; i < n; i++)
			job_tell_waiters_locked(polled[i], r == -ESTALE ? r : 0);
	}
	if (grew)
		jobs->interval_ms = INTERVAL_MIN_MS;
	else
		jobs->interval_ms = CLAMP(jobs->interval_ms * 2, INTERVAL_MIN_MS, INTERVAL_MAX_MS);
	jobs->poll_again |= lagging;
	pthread_mutex_unlock(&jobs->lock);
	for (size_t i = 0; i < n; i++) {
		sbx_job_poll_item_clear(&items[i]);
		sbx_job_unref(polled[i]);
	}
	return true;
}

/* How long the next poll may wait: less for who asks again and again whether a job has ended. */
static int64_t poll_delay_locked(struct sbx_jobs *jobs)
{
	int64_t now_ms = sbx_clock_ms(), delay_ms = jobs->interval_ms;
	GHashTableIter iter;
	void *value;

	if (jobs->poll_again)
		return 0;
	g_hash_table_iter_init(&iter, jobs->by_id);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		const struct sbx_job *job = value;

		if (job_is_due_locked(job, now_ms) &&
		    (job->waiters || job->waiting || now_ms < job->looked_ms + LOOKING_MS))
			delay_ms = MIN(delay_ms, LOOKING_INTERVAL_MS);
	}
	return delay_ms;
}

struct poll_start {
	struct sbx_jobs *jobs;
	uint64_t serial;
};

static int poll_run(void *arg)
{
	struct poll_start *start = arg;
	struct sbx_jobs *jobs = start->jobs;
	bool stale;

	pthread_mutex_lock(&jobs->lock);
	stale = jobs->stopped || jobs->polling || start->serial != jobs->poll_serial;
	if (!stale) {
		jobs->polling = true;
		jobs->poll_again = false;
	}
	pthread_mutex_unlock(&jobs->lock);
	g_free(start);
	if (stale)
		return 0;
	if (poll_once(jobs)) {
		pthread_mutex_lock(&jobs->lock);
		jobs->polling = false;
		poll_schedule_locked(jobs, poll_delay_locked(jobs));
	} else {
		pthread_mutex_lock(&jobs->lock);
		jobs->polling = false;
		jobs->interval_ms = 0;
		if (jobs->poll_again)
			poll_schedule_locked(jobs, 0);
	}
	pthread_cond_broadcast(&jobs->changed);
	pthread_mutex_unlock(&jobs->lock);
	return 0;
}

static void poll_schedule_locked(struct sbx_jobs *jobs, int64_t delay_ms)
{
	struct poll_start *start = g_new0(struct poll_start, 1);

	start->jobs = jobs;
	start->serial = ++jobs->poll_serial;
	if (jobs_start_task_locked(jobs, delay_ms, poll_run, start) < 0)
		g_free(start);
}

void jobs_poll_now_locked(struct sbx_jobs *jobs)
{
	if (jobs->polling)
		jobs->poll_again = true;
	else
		poll_schedule_locked(jobs, 0);
}

/* Readers ------------------------------------------------------------------------------------- */

static void job_reader_locked(struct sbx_job *job, int64_t now_ms)
{
	bool is_new = now_ms >= job->reader_until_ms;

	job->reader_until_ms = now_ms + READER_MS;
	if (is_new && job_is_due_locked(job, now_ms))
		jobs_poll_now_locked(job->jobs);
}

int sbx_job_look(struct sbx_job *job, const struct sbx_call *call)
{
	struct sbx_jobs *jobs = job->jobs;
	int64_t now_ms = sbx_clock_ms(), old_ms;
	struct sbx_wait wait;
	int r;

	r = sbx_wait_begin(&wait, call, &jobs->changed, &jobs->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	job_reader_locked(job, now_ms);
	job->looked_ms = now_ms;
	/* As old as the next poll would be, had nobody looked. */
	old_ms = now_ms - MIN(MAX(jobs->interval_ms, INTERVAL_MIN_MS), LOOKING_INTERVAL_MS);
	while (r == 0 && !jobs->stopped && job->polled_ms < old_ms &&
	       job_is_due_locked(job, sbx_clock_ms())) {
		int64_t polled_ms = job->polled_ms;

		if (!jobs->polling)
			jobs_poll_now_locked(jobs);
		r = sbx_wait_moving(&wait, &jobs->moved_ms);
		if (r == 0 && !jobs->polling && job->polled_ms == polled_ms &&
		    jobs->poll_result < 0)
			r = jobs->poll_result;
	}
	pthread_mutex_unlock(&jobs->lock);
	sbx_wait_end(&wait);
	return r;
}

/* Bytes of the log from @offset on as the sandbox has them, not NULL. */
static int job_fetch(struct sbx_job *job, const struct sbx_call *call, size_t size, uint64_t offset,
		     GByteArray **ret_bytes)
{
	struct sbx_job_poll_item item = { .dir = job->dir, .offset = offset };
	struct sbx_exec_spec spec = { .env = sbx_program_environment(), .repeatable = true };
	struct sbx_exec_result result = { 0 };
	char nonce[SBX_NONCE_CHARS + 1];
	g_auto(GStrv) argv = sbx_job_poll_argv(&item, 1, size, nonce);
	int r;

	spec.argv = (const char *const *)argv;
	r = sbx_session_exec(job->jobs->session, call, &spec, &result);
	if (r < 0)
		return r;
	r = sbx_job_poll_decode(&item, 1, nonce, size, result.out, result.out_len);
	sbx_exec_result_clear(&result);
	if (r < 0)
		return r == -EMSGSIZE ? r : -EIO;
	if (item.is_gone)
		return -ESTALE;
	*ret_bytes = item.bytes ? item.bytes : g_byte_array_new();
	return 0;
}

/* What the window has at @offset. One that was read to its end is not read again. */
static ssize_t window_read_locked(struct sbx_job *job, void *buf, size_t size, uint64_t offset)
{
	uint64_t skip = offset - job->window_offset;

	if (!job->window || offset < job->window_offset || skip >= job->window->len)
		return 0;
	size = MIN(size, job->window->len - (size_t)skip);
	memcpy(buf, job->window->data + skip, size);
	if (skip + size == job->window->len)
		g_byte_array_unref(g_steal_pointer(&job->window));
	return (ssize_t)size;
}

/* Bytes that are not spooled, and will not be: asked for ahead, since programs read in small parts
 * what takes a request each. Short where the window ends. */
static ssize_t job_read_remote(struct sbx_job *job, const struct sbx_call *call, void *buf,
			       size_t size, uint64_t offset)
{
	struct sbx_jobs *jobs = job->jobs;
	GByteArray *bytes = NULL;
	size_t want = 0;
	ssize_t n;
	int r;

	do {
		pthread_mutex_lock(&jobs->lock);
		n = window_read_locked(job, buf, size, offset);
		/* What was asked for was more than an answer can hold. */
		if (want > CHUNK_MIN_BYTES)
			jobs->chunk_bytes = MIN(jobs->chunk_bytes, want / 2);
		want = MIN(WINDOW_BYTES, jobs->chunk_bytes);
		pthread_mutex_unlock(&jobs->lock);
		if (n > 0)
			return n;
		r = job_fetch(job, call, want, offset, &bytes);
	} while (r == -EMSGSIZE && want > CHUNK_MIN_BYTES);
	if (r < 0)
		return r == -EMSGSIZE ? -EIO : r;
	pthread_mutex_lock(&jobs->lock);
	if (job->window)
		g_byte_array_unref(job->window);
	job->window = bytes;
	job->window_offset = offset;
	n = window_read_locked(job, buf, size, offset);
	pthread_mutex_unlock(&jobs->lock);
	return n;
}

ssize_t sbx_job_read(struct sbx_job *job, const struct sbx_call *call, void *buf, size_t size,
		     uint64_t offset)
{
	struct sbx_jobs *jobs = job->jobs;
	struct sbx_wait wait;
	bool fetch;
	ssize_t n = 0;
	int fd;
	int r;

	r = sbx_wait_begin(&wait, call, &jobs->changed, &jobs->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	job_reader_locked(job, sbx_clock_ms());
	/* All that is visible of an ended job is asked for; else what is visible is here. */
	while (r == 0 && job_spool_has_locked(job, offset) && offset < job->visible &&
	       job->spooled < MIN(offset + size, job->visible) && !jobs->stopped) {
		uint64_t spooled = job->spooled;
		int64_t polled_ms = job->polled_ms;

		if (job->removed) {
			/* What is here is still read. */
			r = job->spooled > offset ? 0 : -ESTALE;
			break;
		}
		job->wants_bytes = true;
		if (!jobs->polling)
			jobs_poll_now_locked(jobs);
		r = sbx_wait_moving(&wait, &jobs->moved_ms);
		if (r == 0 && !jobs->polling && job->spooled == spooled && jobs->poll_result < 0)
			r = jobs->poll_result;
		/* It was asked for, and did not come. */
		if (r == 0 && job->polled_ms != polled_ms && job->spooled == spooled &&
		    spooled < job->visible)
			r = -EIO;
	}
	if (r < 0)
		job->wants_bytes = false;
	if (r == 0 && offset < job->visible)
		size = (size_t)MIN((uint64_t)size, job->visible - offset);
	else
		size = 0;
	fetch = !job_spool_has_locked(job, offset);
	fd = job->spool_fd;
	pthread_mutex_unlock(&jobs->lock);
	sbx_wait_end(&wait);
	if (r < 0)
		return r;
	if (!fetch) {
		n = size ? pread(fd, buf, size, (off_t)offset) : 0;
		n = n < 0 ? -errno : n;
		pthread_mutex_lock(&jobs->lock);
		/* It may have made room meanwhile. */
		fetch = !job_spool_has_locked(job, offset);
		pthread_mutex_unlock(&jobs->lock);
	}
	if (!fetch)
		return n;
	n = 0;
	while ((size_t)n < size) {
		ssize_t got = job_read_remote(job, call, (char *)buf + n, size - (size_t)n,
					      offset + (uint64_t)n);

		/* Short only at the end. */
		if (got <= 0)
			return n > 0 ? n : got;
		n += got;
	}
	return n;
}

int sbx_job_wait(struct sbx_job *job, const struct sbx_call *call, int64_t timeout_ms)
{
	struct sbx_jobs *jobs = job->jobs;
	struct sbx_call bounded = { .cancel = call->cancel };
	struct sbx_wait wait;
	int r;

	if (timeout_ms >= 0)
		bounded.deadline_ms = sbx_clock_ms() + timeout_ms;
	r = sbx_wait_begin(&wait, &bounded, &jobs->changed, &jobs->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	job->waiting++;
	if (!sbx_job_state_is_final(job->state))
		jobs_poll_now_locked(jobs);
	while (r == 0 && !sbx_job_state_is_final(job->state) && !jobs->stopped)
		r = job->removed ? -ENOENT : sbx_wait_for(&wait);
	job->waiting--;
	pthread_mutex_unlock(&jobs->lock);
	sbx_wait_end(&wait);
	return r;
}

static int waiters_time_locked(struct sbx_job *job);

/* A waiter's time is over, whether or not a poll comes. */
static int waiters_expire(void *arg)
{
	struct sbx_job *job = arg;

	pthread_mutex_lock(&job->jobs->lock);
	if (sbx_clock_ms() >= job->timer_ms)
		job->timer_ms = 0;
	job_tell_waiters_locked(job, 0);
	(void)waiters_time_locked(job);
	pthread_mutex_unlock(&job->jobs->lock);
	sbx_job_unref(job);
	return 0;
}

/* Have the first of those told whose time is bounded. One timer does for all that come later, also
 * for those who have left. */
static int waiters_time_locked(struct sbx_job *job)
{
	int64_t first_ms = 0;
	int r;

	for (const struct sbx_job_waiter *each = job->waiters; each; each = each->next)
		if (each->until_ms && (!first_ms || each->until_ms < first_ms))
			first_ms = each->until_ms;
	if (!first_ms || (job->timer_ms && job->timer_ms <= first_ms) || job->jobs->stopped)
		return 0;
	sbx_job_ref(job);
	r = jobs_start_task_locked(job->jobs, MAX(first_ms - sbx_clock_ms(), 0) + 1, waiters_expire,
				   job);
	if (r == 0)
		job->timer_ms = first_ms;
	else
		atomic_fetch_sub(&job->refs, 1); /* the caller has another */
	return r;
}

int sbx_job_wait_async(struct sbx_job *job, int64_t timeout_ms, void (*fn)(void *arg, int result),
		       void *arg, struct sbx_job_waiter **ret_waiter)
{
	struct sbx_jobs *jobs = job->jobs;
	struct sbx_job_waiter *waiter = g_new0(struct sbx_job_waiter, 1);
	int r = 0;

	waiter->job = sbx_job_ref(job);
	waiter->until_ms = timeout_ms >= 0 ? sbx_clock_ms() + timeout_ms : 0;
	waiter->fn = fn;
	waiter->arg = arg;
	waiter->queued = true;
	atomic_init(&waiter->refs, 2);
	*ret_waiter = waiter;
	pthread_mutex_lock(&jobs->lock);
	waiter->next = job->waiters;
	job->waiters = waiter;
	/* One that has ended is told at once. */
	if (!sbx_job_state_is_final(job->state) && !job->removed)
		r = waiters_time_locked(job);
	if (jobs->stopped || r < 0) {
		job_tell_waiters_locked(job, -ECANCELED);
	} else {
		job_tell_waiters_locked(job, job->removed ? -ENOENT : 0);
		if (!sbx_job_state_is_final(job->state))
			jobs_poll_now_locked(jobs);
	}
	pthread_mutex_unlock(&jobs->lock);
	return 0;
}

bool sbx_job_unwait(struct sbx_job_waiter *waiter)
{
	struct sbx_job *job = waiter->job;
	bool was_queued;

	pthread_mutex_lock(&job->jobs->lock);
	was_queued = waiter->queued;
	if (was_queued) {
		struct sbx_job_waiter **at = &job->waiters;

		while (*at != waiter)
			at = &(*at)->next;
		*at = waiter->next;
		waiter->queued = false;
		atomic_fetch_sub(&waiter->refs, 1);
	}
	pthread_mutex_unlock(&job->jobs->lock);
	if (atomic_fetch_sub(&waiter->refs, 1) == 1) {
		g_free(waiter);
		sbx_job_unref(job);
	}
	return was_queued;
}
