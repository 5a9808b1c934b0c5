#include "fusefs/verb.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "client/errlog.h"
#include "client/session.h"
#include "client/task.h"
#include "fusefs/fsession.h"
#include "fusefs/op.h"
#include "fusefs/text.h"

void verb_slot_init(struct verb_slot *slot)
{
	memset(slot, 0, sizeof(*slot));
	pthread_mutex_init(&slot->lock, NULL);
}

void verb_slot_done(struct verb_slot *slot)
{
	g_free(slot->last_line);
	g_free(slot->last_message);
	pthread_mutex_destroy(&slot->lock);
}

void verb_slot_show(struct verb_slot *slot, char **ret_running, char **ret_progress,
		    char **ret_last)
{
	*ret_running = *ret_progress = *ret_last = NULL;
	pthread_mutex_lock(&slot->lock);
	if (slot->running) {
		*ret_running = g_strdup_printf(
			"%s, %6lld s", slot->running->line,
			(long long)((text_now_ns() - slot->running->started_ns) / 1000000000));
		*ret_progress = g_strdup(slot->running->progress);
	}
	if (slot->last_line) {
		g_autofree char *when = text_time(slot->last_ns);

		*ret_last = g_strdup_printf(
			"%s: %s, %s, %lld.%03lld s%s%s", slot->last_line,
			text_errno(slot->last_result), when, (long long)(slot->last_took_ms / 1000),
			(long long)(slot->last_took_ms % 1000), slot->last_message ? "; " : "",
			slot->last_message ? slot->last_message : "");
	}
	pthread_mutex_unlock(&slot->lock);
}

void verb_progress(struct verb_run *run, const char *format, ...)
{
	char *text;
	va_list args;

	if (!run->session)
		return;
	va_start(args, format);
	text = g_strdup_vprintf(format, args);
	va_end(args);
	pthread_mutex_lock(&run->session->verb.lock);
	g_free(run->progress);
	run->progress = text;
	pthread_mutex_unlock(&run->session->verb.lock);
}

void verb_table_show(const struct verb_table *table, GString *out)
{
	g_string_append(out,
			"# One command a line; a line that ends in \" &\" is not waited for.\n");
	for (size_t i = 0; i < table->n; i++)
		g_string_append_printf(out, "# %-28s %s\n", table->verbs[i].usage,
				       table->verbs[i].help);
}

void verb_run_free(struct verb_run *run)
{
	if (!run)
		return;
	for (size_t i = 0; run->args[i]; i++)
		g_free(run->args[i]);
	sbx_cancel_unref(run->call.cancel);
	fsession_unref(run->session);
	g_free(run->progress);
	g_free(run->result);
	g_free(run->line);
	g_free(run);
}

/* The next word at *@at, or NULL; *@at moves behind it. */
static char *next_word(const char **at)
{
	size_t len;
	char *word;

	*at += strspn(*at, " \t");
	len = strcspn(*at, " \t");
	if (len == 0)
		return NULL;
	word = g_strndup(*at, len);
	*at += len;
	return word;
}

int verb_parse(const struct verb_table *table, const char *line, size_t len,
	       struct verb_run **ret_run)
{
	g_autofree char *text = NULL;
	g_autofree char *name = NULL;
	const struct verb *verb = NULL;
	struct verb_run *run;
	const char *at;
	unsigned int n = 0;

	if (memchr(line, '\0', len))
		return -EINVAL;
	text = g_strndup(line, len);
	g_strchomp(text);
	at = text + strspn(text, " \t\r");
	if (*at == '\0' || *at == '#') {
		*ret_run = NULL;
		return 0;
	}
	run = g_new0(struct verb_run, 1);
	run->line = g_strdup(at);
	if (g_str_has_suffix(at, " &") || g_str_has_suffix(at, "\t&")) {
		run->background = true;
		text[strlen(text) - 1] = '\0';
		g_strchomp(text);
	}
	name = next_word(&at);
	for (size_t i = 0; name && i < table->n; i++)
		if (strcmp(table->verbs[i].name, name) == 0)
			verb = &table->verbs[i];
	if (!verb)
		goto refuse;
	run->verb = verb;
	while (n < verb->max_args && n < VERB_ARGS_MAX) {
		at += strspn(at, " \t");
		if (*at == '\0')
			break;
		if (verb->rest && n == verb->max_args - 1) {
			run->args[n++] = g_strdup(at);
			at += strlen(at);
			break;
		}
		run->args[n++] = next_word(&at);
	}
	if (n < verb->min_args || at[strspn(at, " \t")] != '\0')
		goto refuse;
	*ret_run = run;
	return 0;
refuse:
	verb_run_free(run);
	return -EINVAL;
}

static struct sbx_errlog *errors_of(struct fs *fs, struct fsession *session)
{
	return session ? sbx_session_errors(session->session) : fs->parts.errors;
}

/* The same of the root's commands, which are of no session. */
static int root_enter(struct fs *fs)
{
	if (__atomic_add_fetch(&fs->root_verbs, 1, __ATOMIC_RELAXED) <= VERB_ROOT_MAX)
		return 0;
	__atomic_sub_fetch(&fs->root_verbs, 1, __ATOMIC_RELAXED);
	return -EBUSY;
}

/* Begin: a session has one verb at a time. */
static int slot_enter(struct verb_run *run)
{
	struct verb_slot *slot = run->session ? &run->session->verb : NULL;
	int r = 0;

	if (!slot)
		return root_enter(run->fs);
	pthread_mutex_lock(&slot->lock);
	if (slot->running)
		r = -EBUSY;
	else
		slot->running = run;
	pthread_mutex_unlock(&slot->lock);
	return r;
}

static void slot_leave(struct verb_run *run, int result, bool ran)
{
	struct verb_slot *slot = run->session ? &run->session->verb : NULL;
	int64_t now_ns = text_now_ns();

	if (!slot) {
		__atomic_sub_fetch(&run->fs->root_verbs, 1, __ATOMIC_RELAXED);
		return;
	}
	pthread_mutex_lock(&slot->lock);
	slot->running = NULL;
	if (ran) {
		g_free(slot->last_line);
		slot->last_line = g_strdup(run->line);
		g_free(slot->last_message);
		slot->last_message = g_steal_pointer(&run->result);
		slot->last_result = result;
		slot->last_ns = now_ns;
		slot->last_took_ms = (now_ns - run->started_ns) / 1000000;
	}
	pthread_mutex_unlock(&slot->lock);
}

static int verb_task(void *arg)
{
	struct verb_run *run = arg;
	int r = run->verb->run(run);

	/* What a request failed with was told by the layer that sent it. */
	if (r < 0 && (run->result || run->failure.kind == SBX_FAIL_NONE))
		sbx_errlog_note(errors_of(run->fs, run->session), "control", run->line, r,
				run->result ? run->result : "the command failed");
	slot_leave(run, r, true);
	return r;
}

static void verb_task_free(void *arg)
{
	verb_run_free(arg);
}

/* Takes @run over. */
static int verb_start(struct op *op, struct fsession *session, struct verb_run *run)
{
	struct sbx_task *task = NULL;
	struct sbx_cancel *cancel;
	bool background = run->background;
	int r;

	run->fs = op->fs;
	run->session = fsession_ref(session);
	run->started_ns = text_now_ns();
	/* A child of the mount's token, not of the writer's: what is started goes on without it. */
	run->call = (struct sbx_call){
		.cancel = sbx_cancel_new(op->fs->stop),
		.stall_timeout_ms = op->fs->config.timeout_ms,
		.failure = &run->failure,
	};
	if (!run->call.cancel) {
		verb_run_free(run);
		return -ENOMEM;
	}
	r = slot_enter(run);
	if (r < 0) {
		sbx_errlog_note(errors_of(op->fs, session), "control", run->line, r,
				session ? "another command of this session is running"
					: "too many commands are running");
		verb_run_free(run);
		return r;
	}
	cancel = sbx_cancel_ref(run->call.cancel);
	r = sbx_task_start(op->fs->parts.pool, verb_task, run, verb_task_free,
			   background ? NULL : &task);
	if (r < 0) {
		slot_leave(run, r, false);
		verb_run_free(run);
	} else if (!background) {
		r = sbx_task_wait(task, &op->call, -1);
		if (r == -EINTR && sbx_cancel_fired(op->call.cancel))
			sbx_cancel_fire(cancel);
		sbx_task_unref(task);
	}
	sbx_cancel_unref(cancel);
	return r;
}

int verb_run_own(struct fs *fs, struct fsession *session, const struct verb *verb, const char *arg,
		 const struct sbx_call *call)
{
	struct verb_run *run = g_new0(struct verb_run, 1);
	int r;

	run->fs = fs;
	run->session = fsession_ref(session);
	run->verb = verb;
	run->line = g_strdup(verb->name);
	run->args[0] = g_strdup(arg);
	run->started_ns = text_now_ns();
	run->call = *call;
	run->call.cancel = call->cancel ? sbx_cancel_ref(call->cancel) : NULL;
	run->call.failure = &run->failure;
	r = slot_enter(run);
	if (r == 0)
		r = verb_task(run);
	verb_run_free(run);
	return r;
}

static void runs_free(gpointer run)
{
	verb_run_free(run);
}

/* Parse the @len bytes at @text, which are whole lines, then do them. @wait: as each line says;
 * else none is waited for. */
static int lines_run(struct op *op, const struct verb_table *table, struct fsession *session,
		     const char *text, size_t len, bool wait)
{
	g_autoptr(GPtrArray) runs = g_ptr_array_new_with_free_func(runs_free);
	const char *end = text + len;
	int r = 0;

	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t line_len = (size_t)((newline ? newline : end) - text);
		struct verb_run *run;

		r = verb_parse(table, text, line_len, &run);
		if (r < 0) {
			g_autofree char *line = g_strndup(text, MIN(line_len, 200));

			sbx_errlog_note(errors_of(op->fs, session), "control", line, r,
					"no such command, or wrong arguments");
			return r;
		}
		if (run) {
			run->background |= !wait;
			g_ptr_array_add(runs, run);
		}
		text += line_len + (newline ? 1 : 0);
	}
	if (table->act) {
		for (guint i = 0; r == 0 && i < runs->len; i++)
			r = table->act(op, g_ptr_array_index(runs, i));
		return r;
	}
	while (r == 0 && runs->len > 0)
		r = verb_start(op, session, g_ptr_array_steal_index(runs, 0));
	return r;
}

void verb_input_init(struct verb_input *input)
{
	pthread_mutex_init(&input->lock, NULL);
	input->pending = g_string_new(NULL);
}

void verb_input_done(struct verb_input *input)
{
	g_string_free(input->pending, TRUE);
	pthread_mutex_destroy(&input->lock);
}

ssize_t verb_input_write(struct op *op, struct verb_input *input, const struct verb_table *table,
			 struct fsession *session, const char *data, size_t size)
{
	g_autofree char *lines = NULL;
	const char *newline;
	size_t skipped = 0, len = 0;
	int r;

	pthread_mutex_lock(&input->lock);
	if (input->skips) {
		newline = memchr(data, '\n', size);
		skipped = newline ? (size_t)(newline - data) + 1 : size;
		input->skips = !newline;
	}
	if (input->pending->len + size - skipped > VERB_INPUT_MAX) {
		/* Neither the beginning of a line is one, nor its end. */
		g_string_truncate(input->pending, 0);
		input->skips = data[size - 1] != '\n';
		pthread_mutex_unlock(&input->lock);
		return -EFBIG;
	}
	g_string_append_len(input->pending, data + skipped, (gssize)(size - skipped));
	newline = memrchr(input->pending->str, '\n', input->pending->len);
	if (newline) {
		len = (size_t)(newline - input->pending->str) + 1;
		lines = g_memdup2(input->pending->str, len);
		g_string_erase(input->pending, 0, (gssize)len);
	}
	pthread_mutex_unlock(&input->lock);
	if (!newline)
		return (ssize_t)size;
	r = lines_run(op, table, session, lines, len, true);
	if (r < 0) {
		/* The writer was told: the rest of what it sent must not act at its close. */
		pthread_mutex_lock(&input->lock);
		g_string_truncate(input->pending, 0);
		pthread_mutex_unlock(&input->lock);
		return r;
	}
	return (ssize_t)size;
}

bool verb_input_is_pending(struct verb_input *input)
{
	bool pending;

	pthread_mutex_lock(&input->lock);
	pending = input->pending->len > 0;
	pthread_mutex_unlock(&input->lock);
	return pending;
}

static int last_line_run(struct op *op, struct verb_input *input, const struct verb_table *table,
			 struct fsession *session, bool wait)
{
	GString *last;
	int r;

	pthread_mutex_lock(&input->lock);
	last = input->pending;
	input->pending = g_string_new(NULL);
	pthread_mutex_unlock(&input->lock);
	r = lines_run(op, table, session, last->str, last->len, wait);
	g_string_free(last, TRUE);
	return r;
}

int verb_input_flush(struct op *op, struct verb_input *input, const struct verb_table *table,
		     struct fsession *session)
{
	return last_line_run(op, input, table, session, true);
}

void verb_input_end(struct op *op, struct verb_input *input, const struct verb_table *table,
		    struct fsession *session)
{
	/* What is left when the mount ends was never said to the end. */
	if (!sbx_cancel_fired(op->fs->stop))
		(void)last_line_run(op, input, table, session, false);
}

int verb_input_text(struct op *op, const struct verb_table *table, struct fsession *session,
		    const char *data, size_t size)
{
	return lines_run(op, table, session, data, size, true);
}
