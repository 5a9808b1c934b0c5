/*
 * The bodies of POST /sessions/ID/exec (wire.md B.4): pure functions of client/provider_wire.c.
 */
#ifndef SBX_CLIENT_WIRE_EXEC_H
#define SBX_CLIENT_WIRE_EXEC_H

#include <stddef.h>

#include "client/provider.h"

/*
 * wire_exec_body() - the request's JSON text, freed with free(3). -EINVAL, -EILSEQ, -E2BIG as
 * struct sbx_exec_spec says (wire.md 4.4, 4.5); -ENOMEM.
 */
int wire_exec_body(const struct sbx_exec_spec *spec, char **ret_text);

/*
 * wire_exec_read() - the answer. -EBADMSG: not the protocol's; -ENOMEM. *ret_result is the
 * caller's to clear, on 0 only.
 */
int wire_exec_read(const char *text, size_t len, struct sbx_exec_result *ret_result);

#endif
