/*
 * plain - the store of names filled by the plain routes, where the server has no exec.
 *
 * One request a file or directory, up to PLAIN_PARALLEL at a time. The routes tell no inode
 * numbers, change times, link counts or link texts, and of what is neither file nor directory not
 * even whether it is a link (wire.md 3.4): attributes then have ino, dev and ctime 0; what has a
 * size is shown as a link whose text can't be read, other things as a FIFO.
 *
 * A route follows links: only what stat has just called a directory is listed (wire.md A2).
 *
 * Locking: names->lock, taken inside, never held across a request.
 */
#ifndef SBX_CLIENT_WORKSPACE_PLAIN_H
#define SBX_CLIENT_WORKSPACE_PLAIN_H

#include "client/attr.h"

#define PLAIN_PARALLEL 16

struct sbx_call;
struct sbx_names;

/* Ask for @path and put the answer in the store. 0 with *ret_attr; -ENOENT and the others of
 * lstat; -EOPNOTSUPP: the name can't be put in a route. */
int names_plain_stat(struct sbx_names *names, const struct sbx_call *call, const char *path,
		     struct sbx_attr *ret_attr);

/* A change of @path was sent, and what it is now could not be learnt: the store asks again. */
void names_plain_doubt(struct sbx_names *names, const char *path);

/* Have the directory @path in the store as it is now, with the attributes of the first
 * few hundred of its entries. -ENOTDIR, -ENOENT, … */
int names_plain_list(struct sbx_names *names, const struct sbx_call *call, const char *path);

#endif
