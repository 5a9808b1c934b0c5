/*
 * jobwait - wait and wait.N in jobs/ID: reading blocks until the job has ended, at most N seconds,
 * and gives the text of status.
 *
 * The first read of an open file is parked (park.h): no thread of the loop is held however many
 * programs wait. Any signal that the reader gets ends its wait, never the job.
 */
#ifndef SBX_FUSEFS_JOBWAIT_H
#define SBX_FUSEFS_JOBWAIT_H

#include <stdbool.h>

struct entry;
struct node;
struct op;

extern const struct node_class jobwait_class;

#define JOBWAIT_INDEX 6

/* "wait.N" with a whole number of seconds of at most nine digits. */
bool jobwait_is_name(const char *name);
/* The node of such a name in the job's directory @dir. */
int jobwait_enter(struct op *op, struct node *dir, const char *name, struct entry *ret_entry);

#endif
