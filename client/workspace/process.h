/*
 * process - what /proc tells of the local programs that have files open.
 *
 * FUSE names the thread that asks; what counts is its process. Never blocks on more than /proc.
 */
#ifndef SBX_CLIENT_WORKSPACE_PROCESS_H
#define SBX_CLIENT_WORKSPACE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* The process of the thread @tid; @tid itself where it can't be told. */
pid_t sbx_process_of(pid_t tid);

/*
 * Whether a FLUSH by the thread @tid, of a file that the process @opener has opened, is a close by
 * who is done with it (kernel.md "FLUSH is not close"): by that process, or it is dead. A child
 * that exits with a copy of the descriptor is not.
 */
bool sbx_process_closes(pid_t tid, pid_t opener);

/* @pid has ended (a zombie has too), or is no process of ours to see. */
bool sbx_process_is_dead(pid_t pid);

#endif
