#include "fusefs/snapshotverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session.h"
#include "client/snapshot/handover.h"
#include "client/snapshot/snapshot.h"
#include "client/statedir.h"
#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
#include "fusefs/fs.h"
#include "fusefs/fsession.h"
#include "fusefs/notify.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/verb.h"

static void say(void *arg, const char *text)
{
	verb_progress(arg, "%s", text);
}

int snapshot_verb_persist(struct verb_run *run)
{
	const struct sbx_snapshot_progress progress = { say, run };

	return sbx_snapshot_persist(run->session->ws, &run->call, run->args[0], &progress,
				    &run->result);
}

#define AUTO_PREFIX "auto-"
#define AUTO_FORM   AUTO_PREFIX "????????T??????Z"

/* Of our own snapshots only the newest @keep stay. */
static void remove_old(struct verb_run *run, const char *session, unsigned int keep)
{
	struct sbx_statedir *dir = run->fs->parts.statedir;
	g_autoptr(GPtrArray) infos = NULL;
	unsigned int n = 0;

	if (sbx_snapshots_list(dir, session, &infos) < 0)
		return;
	for (guint i = 0; i < infos->len; i++) {
		const struct sbx_snapshot_info *info = g_ptr_array_index(infos, i);
		g_autofree char *file = g_strdup_printf("%s.tar", info->name);

		if (g_pattern_match_simple(AUTO_FORM, info->name) && ++n > keep)
			(void)sbx_snapshots_remove(dir, session, file);
	}
}

int snapshot_verb_autopersist(struct verb_run *run)
{
	const struct sbx_snapshot_progress progress = { say, run };
	g_autofree char *session = sbx_session_name(run->session->session);
	g_autoptr(GDateTime) now = g_date_time_new_now_utc();
	g_autofree char *name = g_date_time_format(now, AUTO_PREFIX "%Y%m%dT%H%M%SZ");
	bool changed = false;
	int r;

	r = sbx_snapshot_is_due(run->session->ws, &run->call, &changed);
	if (r < 0)
		return r;
	if (!changed) {
		run->result = g_strdup("nothing has changed since the newest snapshot");
		return 0;
	}
	r = sbx_snapshot_persist(run->session->ws, &run->call, name, &progress, &run->result);
	if (r == 0)
		remove_old(run, session, (unsigned int)strtoul(run->args[0], NULL, 10));
	return r;
}

/* What must not be changed under a program's feet. */
static int check_unused(struct verb_run *run)
{
	struct fsession *fsession = run->session;
	int r;

	if (sbx_files_any_writer(sbx_workspace_files(fsession->ws))) {
		run->result = g_strdup("a file is open for writing");
		return -EBUSY;
	}
	r = session_jobs_any_running(fsession->jobs, &run->call);
	if (r > 0) {
		run->result = g_strdup("a job runs");
		r = -EBUSY;
	}
	return r;
}

int snapshot_verb_hydrate(struct verb_run *run)
{
	const struct sbx_snapshot_progress progress = { say, run };
	const char *name = run->args[0];
	bool over = name && run->args[1];
	int r;

	if (over && strcmp(run->args[1], "over") != 0)
		return -EINVAL;
	/* One word alone: the newest snapshot, laid over. */
	if (name && !over && strcmp(name, "over") == 0) {
		name = NULL;
		over = true;
	}
	r = check_unused(run);
	if (r < 0)
		return r;
	r = sbx_snapshot_hydrate(run->session->ws, &run->call, name, over, &progress, &run->result);
	notify_refresh(run->fs, run->session);
	return r;
}

int snapshot_verb_resume(struct verb_run *run)
{
	const struct sbx_snapshot_progress progress = { say, run };
	bool empty = run->args[0] != NULL;
	int r;

	if (empty && strcmp(run->args[0], "empty") != 0)
		return -EINVAL;
	r = sbx_snapshot_resume(run->session->ws, &run->call, empty, &progress, &run->result);
	notify_refresh(run->fs, run->session);
	return r;
}

/* A new session in the place of the one that is gone, with what its archive holds. */
static int resume_cold(struct verb_run *run, const struct sbx_handover *handover, const char *name)
{
	struct fs *fs = run->fs;
	struct sbx_statedir *dir = fs->parts.statedir;
	g_autofree char *snapshot = NULL;
	g_autofree char *file = NULL;
	g_autofree char *path = NULL;
	struct sbx_session *session = NULL;
	struct fsession *fsession = NULL;
	int r;

	r = sbx_handover_import(handover, getuid(), dir, name, &run->call, &snapshot, &run->result);
	if (r < 0)
		return r;
	file = g_strdup_printf("%s.tar", snapshot);
	path = g_strdup_printf("%s/snapshots/%s/%s", sbx_statedir_path(dir), name, file);
	r = sbx_sessions_create(fs->parts.sessions, &run->call, name, NULL, &session);
	if (r == 0) {
		r = fsessions_get(fs->fsessions, session, &fsession);
		if (r == 0)
			r = sbx_snapshot_hydrate(fsession->ws, &run->call, snapshot, true, NULL,
						 &run->result);
		if (r == 0)
			r = sbx_session_set_snapshot(session, path, handover->created);
		if (r < 0) {
			/* What is undone has to go, whoever was interrupted meanwhile. */
			const struct sbx_call undo = { .stall_timeout_ms =
							       run->call.stall_timeout_ms };

			(void)sbx_session_delete(session, &undo);
			fsessions_drop(fs->fsessions, session);
		}
		fsession_unref(fsession);
		sbx_session_unref(session);
	}
	if (r < 0)
		(void)sbx_snapshots_remove(dir, name, file);
	return r;
}

int snapshot_verb_resume_file(struct verb_run *run)
{
	const char *file = run->args[0], *name = run->args[1];
	struct sbx_sessions *sessions = run->fs->parts.sessions;
	struct sbx_session *known = sbx_sessions_find(sessions, name);
	struct sbx_handover handover;
	int r;

	if (known) {
		sbx_session_unref(known);
		return -EEXIST;
	}
	if (!sbx_session_name_is_valid(name))
		return -EINVAL;
	r = sbx_handover_read(file, getuid(), &handover, &run->result);
	if (r < 0)
		return r;
	r = sbx_sessions_attach(sessions, &run->call, handover.id, name);
	if (r == -ENOENT)
		r = resume_cold(run, &handover, name);
	else if (r == 0)
		run->result = g_strdup("the session lives");
	sbx_handover_clear(&handover);
	return r;
}
