#include "fusefs/keeper.h"

#include <errno.h>
#include <pthread.h>

#include <glib.h>

#include "client/call.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/snapshot/thaw.h"
#include "fusefs/fs.h"
#include "fusefs/fsession.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/snapshotverbs.h"
#include "fusefs/verb.h"

#define TICK_MIN_MS 100
#define TICK_MAX_MS 5000
/* A server that answers, but goes on for ever, must not keep the command from ending. */
#define UNMOUNT_MS 300000

struct keeper {
	struct fs *fs;
	struct keeper_options options;
	int64_t tick_ms;
	struct sbx_cancel *cancel; /* ends the thread, and what it asks */
	struct sbx_cancel *give_up; /* the same of keeper_unmount() */
	int64_t deadline_ms; /* of what is asked; 0: none */
	pthread_t thread;
	bool running;
};

static int64_t wall_ms(void)
{
	return g_get_real_time() / 1000;
}

static struct sbx_call call_of(const struct keeper *keeper)
{
	return (struct sbx_call){
		.cancel = keeper->cancel,
		.stall_timeout_ms = keeper->fs->config.timeout_ms,
		.deadline_ms = keeper->deadline_ms,
		.background = true,
	};
}

static const struct verb autopersist_verb = {
	.name = "autopersist",
	.run = snapshot_verb_autopersist,
};

/* Persist it where it differs from its newest snapshot. */
static void persist(const struct keeper *keeper, struct fsession *fsession, int64_t use_ms)
{
	const struct sbx_call call = call_of(keeper);
	g_autofree char *keep = g_strdup_printf("%u", MAX(keeper->options.autopersist_keep, 1));

	/* Another verb that runs: the next time. */
	if (verb_run_own(keeper->fs, fsession, &autopersist_verb, keep, &call) != -EBUSY)
		fsession->kept_use_ms = use_ms;
	fsession->persisted_ms = wall_ms();
}

static bool is_at_risk(const struct keeper *keeper, struct fsession *fsession)
{
	return (keeper->options.keep_risk || keeper->options.keep_all) &&
	       sbx_thaw_watch_at_risk(fsession->thaw, NULL);
}

static void keep_awake(const struct keeper *keeper, struct fsession *fsession)
{
	struct sbx_call call = call_of(keeper);
	struct sbx_stat st;

	(void)sbx_session_stat(fsession->session, &call, ".", &st);
}

static void keep_session(const struct keeper *keeper, struct fsession *fsession)
{
	const struct keeper_options *options = &keeper->options;
	int64_t use_ms = sbx_session_last_use_ms(fsession->session), now_ms = wall_ms();
	struct sbx_session_info info;
	bool at_risk, live, unsaved;
	int64_t seen_ms;

	sbx_session_info(fsession->session, &info);
	live = info.state == SBX_SESSION_LIVE;
	seen_ms = info.seen_ms;
	sbx_session_info_done(&info);
	if (!live || !sbx_session_is_holder(fsession->session))
		return;
	at_risk = is_at_risk(keeper, fsession);
	if (now_ms >= seen_ms + options->interval_ms &&
	    (options->keep_all || at_risk ||
	     (options->keep_jobs && session_jobs_any_running(fsession->jobs, NULL) > 0)))
		keep_awake(keeper, fsession);
	unsaved = use_ms > fsession->kept_use_ms && !keeper->fs->config.read_only;
	if (!unsaved)
		return;
	if ((at_risk && now_ms >= use_ms + options->quiet_ms) ||
	    (options->autopersist_ms &&
	     now_ms >= fsession->persisted_ms + options->autopersist_ms &&
	     now_ms <= use_ms + options->recent_ms))
		persist(keeper, fsession, use_ms);
}

static void each_session(const struct keeper *keeper,
			 void (*fn)(const struct keeper *keeper, struct fsession *fsession))
{
	struct fsession **all;
	size_t n;

	all = fsessions_all(keeper->fs->fsessions, &n);
	for (size_t i = 0; i < n; i++) {
		if (!sbx_cancel_fired(keeper->cancel))
			fn(keeper, all[i]);
		fsession_unref(all[i]);
	}
	g_free(all);
}

static void *keeper_run(void *arg)
{
	struct keeper *keeper = arg;
	const struct sbx_call call = { .cancel = keeper->cancel };

	while (sbx_call_sleep(&call, keeper->tick_ms) == 0)
		each_session(keeper, keep_session);
	return NULL;
}

int keeper_new(struct fs *fs, const struct keeper_options *options, struct keeper **ret_keeper)
{
	struct keeper *keeper = g_new0(struct keeper, 1);
	int64_t shortest_ms = MIN(options->interval_ms, options->quiet_ms);

	if (options->autopersist_ms)
		shortest_ms = MIN(shortest_ms, options->autopersist_ms);
	keeper->fs = fs;
	keeper->options = *options;
	keeper->tick_ms = CLAMP(shortest_ms / 4, TICK_MIN_MS, TICK_MAX_MS);
	keeper->cancel = sbx_cancel_new(NULL);
	keeper->give_up = sbx_cancel_new(NULL);
	if (!keeper->cancel || !keeper->give_up) {
		keeper_free(keeper);
		return -ENOMEM;
	}
	if (pthread_create(&keeper->thread, NULL, keeper_run, keeper) != 0) {
		keeper_free(keeper);
		return -EAGAIN;
	}
	keeper->running = true;
	*ret_keeper = keeper;
	return 0;
}

void keeper_stop(struct keeper *keeper)
{
	if (!keeper || !keeper->running)
		return;
	sbx_cancel_fire(keeper->cancel);
	(void)pthread_join(keeper->thread, NULL);
	keeper->running = false;
}

static void save_session(const struct keeper *keeper, struct fsession *fsession)
{
	int64_t use_ms = sbx_session_last_use_ms(fsession->session);
	struct sbx_session_info info;
	bool live;

	sbx_session_info(fsession->session, &info);
	live = info.state == SBX_SESSION_LIVE;
	sbx_session_info_done(&info);
	if (live && use_ms > fsession->kept_use_ms && !keeper->fs->config.read_only &&
	    sbx_session_is_holder(fsession->session) && is_at_risk(keeper, fsession))
		persist(keeper, fsession, use_ms);
}

void keeper_unmount(struct keeper *keeper)
{
	if (!keeper)
		return;
	sbx_cancel_unref(keeper->cancel);
	keeper->cancel = sbx_cancel_ref(keeper->give_up);
	keeper->deadline_ms = sbx_clock_ms() + UNMOUNT_MS;
	each_session(keeper, save_session);
}

void keeper_give_up(struct keeper *keeper)
{
	if (keeper)
		sbx_cancel_fire(keeper->give_up);
}

void keeper_free(struct keeper *keeper)
{
	if (!keeper)
		return;
	keeper_stop(keeper);
	sbx_cancel_unref(keeper->cancel);
	sbx_cancel_unref(keeper->give_up);
	g_free(keeper);
}
