/*
 * jobnew - jobs/new: write a command, read back its id.
 *
 * One command an open file: all that is written until the first read, or until a flush that counts,
 * with something in it. A flush counts when it comes from the process that opened the file, or that
 * process is gone: a shell's children that write into its open file flush it at their exit, with
 * half of the text in it. What is left at the last close is started then.
 *
 * What the start fails with is the error of that read, flush or rename, and of reads that follow;
 * writing again begins anew. More than VERB_INPUT_MAX bytes are -EFBIG: of that open file's text
 * nothing is started, and nothing more is taken. After a start reads give the id and a newline,
 * then end of file, and further text is -EBUSY.
 *
 * Locking: one lock an open file, never held while a job is started.
 */
#ifndef SBX_FUSEFS_JOBNEW_H
#define SBX_FUSEFS_JOBNEW_H

#include <stddef.h>

#include <glib.h>

struct handle;
struct node;
struct op;

/* For a row of synth.h in jobs/. */
int jobnew_show(struct op *op, struct node *dir, GString *out);
int jobnew_store(struct op *op, struct node *dir, const char *data, size_t len);
int jobnew_open(struct op *op, struct node *node, int flags, struct handle **ret_handle);

/*
 * The directory that @cwd means in the sandbox, when it is a path under the session's workspace on
 * this machine: relative to the workspace ("." its root). NULL: it is none. Pure. g_free().
 */
char *jobnew_translate(const char *workspace, const char *cwd);

#endif
