/*
 * root - the mount's own directory: README.md, control, status, errors, stats, snapshots/, and one
 * directory a session.
 *
 * mkdir makes a session, rmdir deletes an empty one, rename renames it here. An unknown name is
 * asked for at most as sbx_sessions_lookup() says.
 */
#ifndef SBX_FUSEFS_ROOT_H
#define SBX_FUSEFS_ROOT_H

struct node_class;

extern const struct node_class root_class;

#endif
