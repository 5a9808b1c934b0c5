/*
 * fetch - bytes of files by the pack program: ranges and small files, with what proves them.
 *
 * One request brings several items, each with the attributes that the sandbox saw before and after
 * it read the bytes; only where these agree there are bytes. Nothing but a regular file is opened.
 *
 * No state, no lock. Blocks on the network within the call.
 */
#ifndef SBX_CLIENT_WORKSPACE_FETCH_H
#define SBX_CLIENT_WORKSPACE_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/attr.h"
#include "client/pack.h"

struct sbx_blob;
struct sbx_call;
struct sbx_names;
struct sbx_session;

struct sbx_fetch_item {
	const char *path;
	uint64_t offset;
	uint64_t len_bytes; /* SBX_PACK_WHOLE: all of it */

	/* The answer; sbx_fetch_clear(). */
	int error; /* negative errno; -EAGAIN: it kept changing, or did not fit */
	bool has_attr;
	struct sbx_attr attr; /* before, and after where there are bytes */
	struct sbx_blob *blob; /* NULL unless error is 0; shorter only where the file ends */
};

/*
 * Ask for @n_items (1 or more) in one request, with at most @max_bytes of content in all: items
 * that do not fit get -EAGAIN. @compress: have the content packed on its way, which costs the
 * sandbox some 15 ms a MiB. *ret_clock_ns: the sandbox's clock before the first look (cut to
 * seconds where it shows no more); 0: not known.
 * -EOPNOTSUPP: there is no exec, or it lacks what pack needs.
 */
int sbx_fetch(struct sbx_session *session, struct sbx_names *names, const struct sbx_call *call,
	      struct sbx_fetch_item *items, size_t n_items, uint64_t max_bytes, bool compress,
	      int64_t *ret_clock_ns);
void sbx_fetch_clear(struct sbx_fetch_item *items, size_t n_items);

/* How many bytes one request for @n_items can bring here, as far as it is known; at most
 * @want_bytes. */
uint64_t sbx_fetch_limit(struct sbx_names *names, uint64_t want_bytes, size_t n_items);

#endif
