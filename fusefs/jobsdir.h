/*
 * jobsdir - jobs/ of a session: new, latest, a directory for each job, and scratch files beside
 * new.
 *
 * Only lists of jobs are asked for here; listing or naming a job reads nothing of it.
 */
#ifndef SBX_FUSEFS_JOBSDIR_H
#define SBX_FUSEFS_JOBSDIR_H

extern const struct node_class jobsdir_class;

/* Its number among the session's own files (ino_own); those in it follow. */
#define JOBSDIR_INDEX 64

#endif
