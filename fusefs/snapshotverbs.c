#include "fusefs/snapshotverbs.h"

#include <errno.h>
#include <string.h>

#include "client/snapshot/snapshot.h"
#include "client/workspace/files.h"
#include "client/workspace/workspace.h"
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

/* What must not be changed under a program's feet. */
static int check_unused(struct verb_run *run)
{
	struct fsession *fsession = run->session;

	if (sbx_files_any_writer(sbx_workspace_files(fsession->ws))) {
		run->result = g_strdup("a file is open for writing");
		return -EBUSY;
	}
	if (session_jobs_any_running(fsession->jobs, &run->call)) {
		run->result = g_strdup("a job runs");
		return -EBUSY;
	}
	return 0;
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
