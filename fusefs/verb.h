/*
 * verb - commands that a program writes into a `control` file, one a line.
 *
 * A table of verbs belongs to each kind of control; its rows are what the file shows when read, as
 * `#` lines. Parsing: lines that are blank or begin with `#` are nothing, so the text of the file
 * may be written back whole; a trailing CR is dropped; words are separated by blanks; ` &` at the
 * end starts the verb and does not wait.
 *
 * Input: the bytes written through one open file. A line acts when it is complete; an unfinished
 * last one at a flush that is the opener's close (op_closes()), since a shell's children that write
 * into its open file flush it at their exit, else at the last close. All lines of one write are
 * parsed before any is done; when one fails, those behind it are dropped, and the writer gets its
 * errno. A line of more than VERB_INPUT_MAX bytes is -EFBIG and nothing, with all that follows up
 * to its end.
 *
 * A verb runs on the pool (where its table has no act); the writer waits for it and leaves,
 * aborting it, only with a signal that ends the writer. Verbs of one session run one at a time: a
 * second is -EBUSY. Of the root's control, which is of no session, VERB_ROOT_MAX run at once: what
 * hangs there leaves threads for every session.
 *
 * Locking: slot->lock and input->lock, both innermost; neither is held while a verb runs.
 */
#ifndef SBX_FUSEFS_VERB_H
#define SBX_FUSEFS_VERB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "client/call.h"

#define VERB_INPUT_MAX (1024 * 1024)
#define VERB_ARGS_MAX  4
#define VERB_ROOT_MAX  64

struct fs;
struct fsession;
struct op;
struct verb_run;

struct verb {
	const char *name;
	const char *usage; /* "create NAME [JSON]" */
	const char *help; /* what it does, for the `#` line */
	unsigned int min_args;
	unsigned int max_args;
	bool rest; /* the last argument is the rest of the line, blanks and all */
	int (*run)(struct verb_run *run); /* on the pool; 0 or negative errno */
};

struct verb_table {
	const struct verb *verbs;
	size_t n;
	/*
	 * Instead of verb.run, a pool's thread and the session's slot: done by the writer's own
	 * thread. @op->node: the control, or its directory when a text was renamed onto it.
	 */
	int (*act)(struct op *op, const struct verb_run *run);
};

/* A verb while it runs. */
struct verb_run {
	struct fs *fs;
	struct fsession *session; /* a reference; NULL: of the mount */
	const struct verb *verb;
	char *line;
	char *args[VERB_ARGS_MAX + 1]; /* NULL-terminated */
	bool background;
	struct sbx_call call; /* cancelled when the writer is ended, or at shutdown */
	struct sbx_failure failure;
	char *progress; /* under the slot's lock */
	char *result; /* what came of it, one line for status; set by the verb, g_free() */
	int64_t started_ns; /* wall clock */
};

/* The running verb of a session, and the last one. */
struct verb_slot {
	pthread_mutex_t lock;
	struct verb_run *running;
	char *last_line;
	char *last_message; /* verb_run.result; NULL: there is none */
	int last_result;
	int64_t last_ns; /* wall clock, when it ended */
	int64_t last_took_ms;
};

struct verb_input {
	pthread_mutex_t lock;
	GString *pending; /* an unfinished line */
	bool skips; /* it was too long: up to its end nothing counts */
};

void verb_slot_init(struct verb_slot *slot);
void verb_slot_done(struct verb_slot *slot);
/* For status. Each may be NULL when there is nothing; g_free(). The running verb is told with the
 * seconds since it began. */
void verb_slot_show(struct verb_slot *slot, char **ret_running, char **ret_progress,
		    char **ret_last);

/* What the verb says of how far it is, for status. */
void verb_progress(struct verb_run *run, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The `#` lines of @table. */
void verb_table_show(const struct verb_table *table, GString *out);

void verb_input_init(struct verb_input *input);
void verb_input_done(struct verb_input *input);

/* @data was written: @size, or the errno of the line that failed; -EFBIG. May block as verbs do. */
ssize_t verb_input_write(struct op *op, struct verb_input *input, const struct verb_table *table,
			 struct fsession *session, const char *data, size_t size);
/* There is an unfinished line. */
bool verb_input_is_pending(struct verb_input *input);
/* Who opened it closes it: an unfinished last line acts. */
int verb_input_flush(struct op *op, struct verb_input *input, const struct verb_table *table,
		     struct fsession *session);
/* The last close: an unfinished last line is started, and not waited for where it is a verb's. How
 * it went is in status and errors. */
void verb_input_end(struct op *op, struct verb_input *input, const struct verb_table *table,
		    struct fsession *session);
/* A whole text, as when a file is renamed onto the control. */
int verb_input_text(struct op *op, const struct verb_table *table, struct fsession *session,
		    const char *data, size_t size);

/*
 * A verb that the mount begins by itself, in the caller's thread: shown in status as any other.
 * @arg: its one argument. @call: who may stop it. -EBUSY: another one runs.
 */
int verb_run_own(struct fs *fs, struct fsession *session, const struct verb *verb, const char *arg,
		 const struct sbx_call *call);

/*
 * Take one line apart. 0 with *ret_run NULL: nothing to do; -EINVAL: no such verb, wrong number of
 * arguments, a NUL. Exported for tests; the result is freed by verb_run_free().
 */
int verb_parse(const struct verb_table *table, const char *line, size_t len,
	       struct verb_run **ret_run);
void verb_run_free(struct verb_run *run);

#endif
