/*
 * early - the upload of a new content that begins while a program still writes it.
 *
 * A file that is written from its beginning on, and has grown to EARLY_BYTES, is on its way to a
 * staging name from then on; when it is published only the rest has to follow. Whatever does not
 * fit that (an append, a change of what has left, a truncation, a pause of EARLY_PAUSE_MS, any
 * failure) ends it without harm: the publish then sends all by itself.
 *
 * Locking: everything is under node->lock (files_impl.h).
 */
#ifndef SBX_CLIENT_WORKSPACE_EARLY_H
#define SBX_CLIENT_WORKSPACE_EARLY_H

#include <stdbool.h>
#include <stdint.h>

#define EARLY_BYTES    ((uint64_t)4 << 20)
#define EARLY_PAUSE_MS 1000

struct early;
struct sbx_node_file;
struct sbx_spool_view;

/* After a write of [offset, offset + len): begin, go on, or give up. Returns whether early_start()
 * is to be called, without the lock. */
bool early_wrote_locked(struct sbx_node_file *node, uint64_t offset, uint64_t len);
void early_start(struct sbx_node_file *node);

/* NULL is allowed; its upload has ended. */
void early_free(struct early *early);

/* What has left is no longer what is wanted. */
void early_stop_locked(struct sbx_node_file *node);

/*
 * The publish of @view: let the upload end there, and wait for that. The staging name (g_free())
 * that has all of @view's content, or NULL. Lets go of the lock meanwhile; @view stays until then.
 */
char *early_finish_locked(struct sbx_node_file *node, const struct sbx_spool_view *view);

#endif
