/*
 * snapshotverbs - the verbs that keep a workspace and bring it back: persist, hydrate and resume in
 * a session's control, `resume FILE NAME` in the mount's.
 *
 * They run on the pool, one a session (verb.h); what they say goes into `status`: progress while
 * they run, one line of what came of it afterwards.
 */
#ifndef SBX_FUSEFS_SNAPSHOTVERBS_H
#define SBX_FUSEFS_SNAPSHOTVERBS_H

struct verb_run;

int snapshot_verb_persist(struct verb_run *run);
int snapshot_verb_hydrate(struct verb_run *run);
int snapshot_verb_resume(struct verb_run *run);
/* Begun by the mount itself (keeper.h): persist where something differs from the newest snapshot.
 * The argument: how many such snapshots are kept. */
int snapshot_verb_autopersist(struct verb_run *run);
/* Of the mount: a session from another client's state file. */
int snapshot_verb_resume_file(struct verb_run *run);

#endif
