#include "fusefs/status.h"

#include <stdint.h>

#include "client/session.h"
#include "client/snapshot/thaw.h"
#include "client/statedir.h"
#include "client/workspace/workspace.h"
#include "fusefs/fs.h"
#include "fusefs/fsession.h"
#include "fusefs/snapshotdir.h"
#include "fusefs/text.h"
#include "fusefs/verb.h"

#define N_STATES (SBX_SESSION_UNREACHABLE + 1)

/* What the sessions' states say of the server: the last word of the best. */
static const char *server_state(const unsigned int *states)
{
	if (states[SBX_SESSION_LIVE] || states[SBX_SESSION_ASLEEP])
		return "reachable";
	if (states[SBX_SESSION_DENIED])
		return "denied";
	if (states[SBX_SESSION_UNREACHABLE])
		return "unreachable";
	return "unknown";
}

void status_mount(struct fs *fs, GString *out)
{
	unsigned int states[N_STATES] = { 0 };
	g_auto(GStrv) names = sbx_sessions_list(fs->parts.sessions);
	struct sbx_session_info info;
	struct sbx_session *session;
	unsigned int n = 0;
	uint64_t bytes;
	size_t files;

	for (char **name = names; *name; name++) {
		session = sbx_sessions_find(fs->parts.sessions, *name);
		if (!session)
			continue;
		sbx_session_info(session, &info);
		states[info.state]++;
		n++;
		sbx_session_info_done(&info);
		sbx_session_unref(session);
	}
	fs_pending(fs, &files, &bytes);
	text_line(out, "endpoint", fs->config.endpoint);
	text_line(out, "token", fs->config.token);
	text_line(out, "server", server_state(states));
	text_linef(out, "sessions", "%4u", n);
	for (int state = 0; state < N_STATES; state++)
		text_linef(out, sbx_session_state_name((enum sbx_session_state)state), "%4u",
			   states[state]);
	text_linef(out, "pending_writes", "%6zu files %14llu bytes", files,
		   (unsigned long long)bytes);
	text_line(out, "state_dir", sbx_statedir_path(fs->parts.statedir));
	text_line(out, "cache_dir", sbx_statedir_cache_path(fs->parts.statedir));
}

void status_session(struct fs *fs, struct fsession *fsession, GString *out)
{
	g_autofree char *have = NULL;
	g_autofree char *missing = NULL;
	g_autofree char *verb = NULL;
	g_autofree char *progress = NULL;
	g_autofree char *last = NULL;
	g_autofree char *seen = NULL;
	g_autofree char *snapshot = NULL;
	g_autofree char *risk = NULL;
	struct sbx_session_info info;
	uint64_t bytes;
	size_t files;

	sbx_session_info(fsession->session, &info);
	sbx_ws_capabilities(fsession->ws, &have, &missing);
	sbx_ws_pending(fsession->ws, &files, &bytes);
	verb_slot_show(&fsession->verb, &verb, &progress, &last);
	seen = info.seen_ms ? text_time(info.seen_ms * 1000000) : g_strdup("never");
	snapshot = snapshot_newest(fs, info.name);
	text_line(out, "name", info.name);
	text_line(out, "id", info.id);
	text_line(out, "root", info.root);
	text_line(out, "state", sbx_session_state_name(info.state));
	text_line(out, "seen", seen);
	text_line(out, "capabilities", have);
	text_line(out, "missing", missing);
	text_linef(out, "pending_writes", "%6zu files %14llu bytes", files,
		   (unsigned long long)bytes);
	text_line(out, "verb", verb ? verb : "none");
	text_line(out, "progress", progress);
	text_line(out, "last", last ? last : "none");
	text_line(out, "snapshot", snapshot ? snapshot : "none");
	if (sbx_thaw_watch_at_risk(fsession->thaw, &risk))
		text_linef(out, "thaw", "at risk: %s", risk);
	else
		text_line(out, "thaw", "ok");
	text_line(out, "note", info.note);
	sbx_session_info_done(&info);
}
