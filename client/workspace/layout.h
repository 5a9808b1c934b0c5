/*
 * layout - what a file with unsent bytes consists of: pieces of a log, of its base, zeros.
 *
 * The base is the content in the sandbox that the changes began with (of a new or truncated file:
 * nothing). A layout knows, for every offset below size_bytes, where the byte is:
 *
 *   log     written here; at a position of the spool's log (spool.h)
 *   base    untouched, below base_cut_bytes
 *   zeros   the rest: holes, and what a truncation has cut and a later growth uncovered
 *
 * Bytes from append_start on were appended: they belong to the sandbox's own end of file, wherever
 * that is by then; their offsets mean something only here. A write into them changes what will be
 * appended; a gap in them is zeros.
 *
 * Extents are sorted and do not overlap. Pure data, no lock: the spool's owner protects it.
 */
#ifndef SBX_CLIENT_WORKSPACE_LAYOUT_H
#define SBX_CLIENT_WORKSPACE_LAYOUT_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_NO_APPEND UINT64_MAX

enum sbx_extent_kind {
	SBX_EXTENT_LOG,
	SBX_EXTENT_BASE,
	SBX_EXTENT_ZEROS,
};

/* A run of bytes that lie in one place. */
struct sbx_extent {
	enum sbx_extent_kind kind;
	uint64_t offset; /* in the file */
	uint64_t len_bytes;
	uint64_t log_pos; /* SBX_EXTENT_LOG: of its first byte */
};

struct sbx_layout {
	GArray *extents; /* of struct sbx_extent, kind SBX_EXTENT_LOG */
	uint64_t size_bytes; /* of the file, as it shows here */
	uint64_t base_size_bytes;
	uint64_t base_cut_bytes; /* how much of the base is left; never above base_size_bytes */
	uint64_t append_start; /* SBX_NO_APPEND: nothing was appended */
	uint64_t log_bytes; /* sum of the extents */
};

void sbx_layout_init(struct sbx_layout *layout, uint64_t base_size_bytes);
void sbx_layout_done(struct sbx_layout *layout);
/* *ret_copy is initialised by it. */
void sbx_layout_copy(const struct sbx_layout *layout, struct sbx_layout *ret_copy);

void sbx_layout_write(struct sbx_layout *layout, uint64_t offset, uint64_t len_bytes,
		      uint64_t log_pos);
/* Returns the offset at which the bytes show here. */
uint64_t sbx_layout_append(struct sbx_layout *layout, uint64_t len_bytes, uint64_t log_pos);
void sbx_layout_truncate(struct sbx_layout *layout, uint64_t size_bytes);

/* The piece that begins at @offset, at most @max_bytes long. False at or past the end of file. */
bool sbx_layout_extent(const struct sbx_layout *layout, uint64_t offset, uint64_t max_bytes,
		       struct sbx_extent *ret_extent);

/* Nothing was changed. */
bool sbx_layout_is_base(const struct sbx_layout *layout);

/* Some byte of the file is the base's. */
bool sbx_layout_needs_base(const struct sbx_layout *layout);

#endif
