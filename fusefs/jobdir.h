/*
 * jobdir - jobs/ID: meta.json, output.log, exit, status, control, and by name only wait and wait.N.
 *
 * `exit` is there when the job has ended with a code and its log is whole. A lookup of exit or
 * status, and a listing, is as new as the poll of a reader; what can't be asked shows as it is
 * known. rm of a file of an ended job hides it until the mount ends; rmdir, and `remove`, remove
 * the job.
 */
#ifndef SBX_FUSEFS_JOBDIR_H
#define SBX_FUSEFS_JOBDIR_H

#include <glib.h>

struct entry;
struct node;
struct op;
struct session_job;

extern const struct node_class jobdir_class;

/* The node of @job's directory @name in jobs/. The reference of @job stays the caller's. */
int jobdir_enter(struct op *op, struct node *dir, const char *name, struct session_job *job,
		 struct entry *ret_entry);

/* The job of the directory @dir, without a reference of its own. */
struct session_job *jobdir_job(const struct node *dir);

/* Append the text of `status`. Never asks. */
void jobdir_show_status(struct session_job *job, GString *out);

#endif
