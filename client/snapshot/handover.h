/*
 * handover - a session that another client leaves to us: a file with its SandboxSessionState
 * (wire.md D), and the archive that this names.
 *
 * Both files lie on this machine and are taken only when nobody else can have put them there: an
 * absolute path to a regular file that is no link, owned by @owner, not writable by others, and not
 * on a mount of sbxfs, where a sandbox would choose the content. The archive is copied into
 * snapshots/ and checked there as any import.
 *
 * Blocks on the local disk; no lock, no request.
 */
#ifndef SBX_CLIENT_SNAPSHOT_HANDOVER_H
#define SBX_CLIENT_SNAPSHOT_HANDOVER_H

#include <sys/types.h>

struct sbx_call;
struct sbx_statedir;

struct sbx_handover {
	char *id; /* of the session */
	char *created; /* of the snapshot, as it was told; NULL: there is none */
	char *archive; /* absolute path; NULL: there is none */
};

/* 0; -EINVAL: the file is not to be taken, or holds no such state; errnos of open(2) and read(2).
 * On failure *ret_message (g_free) may have one line. */
int sbx_handover_read(const char *file, uid_t owner, struct sbx_handover *ret_handover,
		      char **ret_message);
void sbx_handover_clear(struct sbx_handover *handover);

/* Copy its archive into the snapshots of @session_name. *ret_name: its name there; g_free().
 * -ENODATA: it has none. Errors as above, and those of sbx_snapshots_import_end(). */
int sbx_handover_import(const struct sbx_handover *handover, uid_t owner, struct sbx_statedir *dir,
			const char *session_name, const struct sbx_call *call, char **ret_name,
			char **ret_message);

#endif
