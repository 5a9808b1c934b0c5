/*
 * sessiondir - the directory of one session: fs/, control, status, errors, state.json, snapshots,
 * and .sbxfs-root, which is found but not listed.
 */
#ifndef SBX_FUSEFS_SESSIONDIR_H
#define SBX_FUSEFS_SESSIONDIR_H

struct fsession;
struct node_spec;

extern const struct node_class sessiondir_class;

/* What a node of the session's directory is. The reference stays the caller's. */
void sessiondir_spec(struct fsession *fsession, struct node_spec *ret_spec);

#endif
