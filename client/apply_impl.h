/*
 * apply_impl - the inside of a request of mutations, shared by apply.c, which puts it together, and
 * apply_reply.c, which takes the answer apart. For no other module.
 */
#ifndef SBX_CLIENT_APPLY_IMPL_H
#define SBX_CLIENT_APPLY_IMPL_H

#include "client/apply.h"

/* A save, for what its answer proves. */
struct apply_save {
	unsigned index; /* of the operation */
	unsigned path; /* in paths */
	uint64_t size_bytes;
	int64_t mtime_ns; /* as asked */
};

struct sbx_apply_request {
	struct sbx_program_request program;
	char opid[SBX_OPID_CHARS + 1];
	char *id_word; /* in the program's arguments: opid after a sign; NULL: not sealed */
	bool asked_before;
	GPtrArray *words; /* char *, of the operations: VERB COUNT ARG... */
	GPtrArray *paths; /* char *, all that are named, as in program.h */
	GHashTable *path_index;
	GArray *saves; /* struct apply_save */
	GByteArray *reported; /* per path: whether its attributes are wanted */
	const struct sbx_scan_request *survey; /* NULL: none */
	size_t words_bytes;
	size_t paths_bytes;
	uint64_t needs; /* of the program's text: sbx_program_on_demand() */
	unsigned count;
	int error; /* why it could not even begin, or be sealed */
	bool sealed;
};

#endif
