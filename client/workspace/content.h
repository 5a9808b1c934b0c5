/*
 * content - the bytes of one version of one file, fetched as they are read.
 *
 * A version (version.h) is what an open file reads from its beginning to its end: bytes of another
 * version are never given, parts that can't be had any more are -ESTALE. How bytes come:
 *
 *   empty   nothing to fetch
 *   small   (up to SBX_SMALL_BYTES) whole at open, by pack, together with the files that are likely
 *           next (smallfiles.h); complete from then on
 *   big     a sparse file of the cache directory and the set of ranges that are in it. A reader
 *           from the beginning on starts a stream: one GET that is served from while it arrives, at
 *           most SBX_STREAM_AHEAD in front of the reader. A reader elsewhere fetches windows by
 *           pack, that double while he goes on in sequence, also ahead of him. Files that no GET
 *           can carry (2 GiB and more, names that are not UTF-8, .sbxfs-root) come by windows only.
 *
 * Proof. Pack brings the attributes seen before and after it read. A GET brings none. One that
 * brings the whole of a file of which nothing was here is one version, at least as new as what open
 * saw, and served as it arrives; one look after its end decides whether it may be kept. Any other
 * is held back until a look at the attributes, asked for after its first byte came, has shown the
 * version; a last look decides as well. What is not proven yet is written only where nothing is:
 * what is proven is never written over by what is not.
 *
 * Keeping across opens (contentcache.h): only bytes whose attributes were the same before and after
 * the fetch, and whose ctime was SBX_VERSION_SETTLE_NS older than the sandbox's clock at the first
 * look ("settled"); and what this mount saved itself, where the answer proves that the attributes
 * are those of the saved bytes, never without nanoseconds. Others serve the opens that fetched
 * them.
 *
 * Locking: contents->lock (tables, counters) before content->lock (one content). Neither is held
 * across a request. names.h's lock is inside both.
 */
#ifndef SBX_CLIENT_WORKSPACE_CONTENT_H
#define SBX_CLIENT_WORKSPACE_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/attr.h"
#include "client/workspace/version.h"

struct sbx_blob;
struct sbx_call;
struct sbx_content;
struct sbx_contents;
struct sbx_names;
struct sbx_session;
struct sbx_spool_view;
struct sbx_workspace_options;

/* Of one open file: how it reads. Zeros at first; its owner lets one thread at a time change it, a
 * lost update costs a guess. */
struct sbx_reader {
	uint64_t next; /* where it would go on in sequence */
	unsigned int run; /* reads in sequence */
	unsigned int jumps; /* reads out of it, so far */
};

/* What a session has fetched. @session and @names are borrowed and must outlive it. */
int sbx_contents_new(struct sbx_session *session, struct sbx_names *names,
		     const struct sbx_workspace_options *options,
		     struct sbx_contents **ret_contents);
/* Stops what is under way and waits for it. All contents have been released. */
void sbx_contents_free(struct sbx_contents *contents);

/*
 * The content of the regular file @path that *attr describes (not older than ttl_ms). A small file
 * that is not cached is fetched here; *attr is then what was seen with its bytes. A big one is not
 * asked for. Errors as the sandbox's for the path; -ENXIO, -EISDIR, -ELOOP where it is no regular
 * file by now.
 */
int sbx_contents_open(struct sbx_contents *contents, const struct sbx_call *call, const char *path,
		      struct sbx_attr *attr, struct sbx_content **ret_content);

/* As a local save left them in the sandbox under @attr, which its answer proves (apply.h): the
 * bytes of @view. NULL: not kept. */
struct sbx_content *sbx_contents_adopt(struct sbx_contents *contents, const char *path,
				       const struct sbx_attr *attr,
				       const struct sbx_spool_view *view);

/* Drop what serves only as a guess of the future; contents in use stay. */
void sbx_contents_refresh(struct sbx_contents *contents);

struct sbx_content *sbx_content_ref(struct sbx_content *content);
void sbx_content_unref(struct sbx_content *content); /* NULL is allowed */

/* Equal for equal bytes; 0: not known well enough. */
uint64_t sbx_content_version(struct sbx_content *content);
/* All its bytes are here. */
bool sbx_content_is_complete(struct sbx_content *content);
void sbx_content_attr(struct sbx_content *content, struct sbx_attr *ret_attr);

/*
 * The file is at @path now (NULL: nowhere), with @attr as its attributes there (NULL: not known). A
 * rename, a chmod, a utimens made here change no bytes, so the version lives on under the new
 * times.
 */
void sbx_content_moved(struct sbx_content *content, const char *path, const struct sbx_attr *attr);

/* Bytes at @offset: @size, fewer only at the end of the file. Or a negative errno; -ESTALE. */
ssize_t sbx_content_read(struct sbx_content *content, const struct sbx_call *call,
			 struct sbx_reader *reader, void *buf, size_t size, uint64_t offset);

#endif
