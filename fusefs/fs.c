#include "fusefs/fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <glib.h>

#include "client/call.h"
#include "client/session.h"
#include "client/workspace/workspace.h"
#include "fusefs/fsession.h"
#include "fusefs/interrupt.h"
#include "fusefs/node.h"
#include "fusefs/op.h"
#include "fusefs/park.h"
#include "fusefs/root.h"
#include "fusefs/scratch.h"
#include "fusefs/sessionjobs.h"
#include "fusefs/sessiondir.h"
#include "fusefs/text.h"
#include "fusefs/told.h"
#include "fusefs/tree.h"

/* The node that @subtree ("dev1", "dev1/fs", "dev1/fs/a/b") names. */
static int subtree_spec(struct fs *fs, const char *subtree, struct fsession **ret_fsession,
			struct node_spec *ret_spec)
{
	g_auto(GStrv) parts = g_strsplit(subtree, "/", 3);
	int r;

	if (!parts[0] || !sbx_session_name_is_valid(parts[0]))
		return -EINVAL;
	if (parts[1] && strcmp(parts[1], "fs") != 0)
		return -EINVAL;
	if (parts[1] && parts[2]) {
		g_auto(GStrv) below = g_strsplit(parts[2], "/", -1);

		for (char **name = below; *name; name++)
			if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
				return -EINVAL;
	}
	r = fsessions_find(fs->fsessions, parts[0], ret_fsession);
	if (r < 0)
		return r;
	sessiondir_spec(*ret_fsession, ret_spec);
	if (parts[1]) {
		/* Borrowed from the configuration, which outlives the table. */
		const char *path = subtree + strlen(parts[0]) + strlen("/fs");

		ret_spec->class = &tree_class;
		ret_spec->base_path = *path == '/' ? path + 1 : path;
	}
	return 0;
}

static int make_root(struct fs *fs)
{
	const char *subtree = fs->config.subtree;
	struct node_spec spec = { .class = &root_class, .type = S_IFDIR };
	struct fsession *fsession = NULL;
	int r = 0;

	if (subtree && *subtree)
		r = subtree_spec(fs, subtree, &fsession, &spec);
	if (r == 0)
		r = node_table_set_root(fs->nodes, &spec);
	fsession_unref(fsession);
	return r;
}

/* What an earlier mount left unsent is taken over now, not at the session's first use. */
static void take_over_unsent(struct fs *fs)
{
	g_auto(GStrv) names = sbx_sessions_list(fs->parts.sessions);

	for (char **name = names; *name; name++) {
		struct sbx_session *session = sbx_sessions_find(fs->parts.sessions, *name);
		struct fsession *fsession;

		if (session && sbx_session_unsent(session) > 0 &&
		    fsessions_get(fs->fsessions, session, &fsession) == 0)
			fsession_unref(fsession);
		sbx_session_unref(session);
	}
}

int fs_new(const struct fs_config *config, const struct fs_parts *parts, struct fs **ret_fs)
{
	struct fs *fs = g_new0(struct fs, 1);
	int r;

	fs->config = *config;
	fs->parts = *parts;
	fs->started_ns = text_now_ns();
	fs->nodes = node_table_new();
	fs->fsessions = fsessions_new(fs);
	fs->root_scratch = scratch_set_new();
	fs->interrupts = interrupts_new();
	fs->parks = parks_new();
	fs->told = told_new();
	pthread_rwlock_init(&fs->fuse_lock, NULL);
	fs->stop = sbx_cancel_new(NULL);
	r = fs->interrupts && fs->stop ? make_root(fs) : -ENOMEM;
	if (r < 0) {
		fs_free(fs);
		return r;
	}
	if (!config->read_only)
		take_over_unsent(fs);
	*ret_fs = fs;
	return 0;
}

/* Files that the kernel did not close: it is gone. What they owe stays in their spools. */
static void close_handles(struct fs *fs)
{
	struct op op = { .fs = fs, .call = { .cancel = fs->stop } };
	struct handle *handle;

	while ((handle = node_table_any_handle(fs->nodes)))
		handle_put(&op, handle);
}

void fs_free(struct fs *fs)
{
	if (!fs)
		return;
	if (fs->stop)
		sbx_cancel_fire(fs->stop);
	close_handles(fs);
	node_table_free(fs->nodes);
	fsessions_free(fs->fsessions);
	scratch_set_unref(fs->root_scratch);
	interrupts_free(fs->interrupts);
	parks_free(fs->parks);
	told_free(fs->told);
	pthread_rwlock_destroy(&fs->fuse_lock);
	sbx_cancel_unref(fs->stop);
	g_free(fs);
}

void fs_stop(struct fs *fs)
{
	sbx_cancel_fire(fs->stop);
}

void fs_end_waits(struct fs *fs)
{
	struct fsession **all;
	size_t n;

	parks_drain(fs->parks);
	all = fsessions_all(fs->fsessions, &n);
	for (size_t i = 0; i < n; i++) {
		session_jobs_stop(all[i]->jobs);
		fsession_unref(all[i]);
	}
	g_free(all);
}

size_t fs_sync_all(struct fs *fs, int64_t timeout_ms)
{
	const struct sbx_call call = {
		.stall_timeout_ms = fs->config.timeout_ms,
		.deadline_ms = sbx_clock_ms() + timeout_ms,
	};
	struct fsession **all;
	uint64_t bytes;
	size_t files, n;

	all = fsessions_all(fs->fsessions, &n);
	for (size_t i = 0; i < n; i++) {
		sbx_ws_pending(all[i]->ws, &files, &bytes);
		if (files > 0)
			(void)sbx_ws_sync(all[i]->ws, &call);
		fsession_unref(all[i]);
	}
	g_free(all);
	fs_pending(fs, &files, &bytes);
	return files;
}

void fs_maintain(struct fs *fs)
{
	struct fsession **all;
	size_t n;

	all = fsessions_all(fs->fsessions, &n);
	/* First of what nobody reads, in whatever session. */
	for (size_t i = 0; i < n; i++) {
		session_jobs_sweep(all[i]->jobs);
		session_jobs_bound_logs(all[i]->jobs, false);
	}
	for (size_t i = 0; i < n; i++) {
		session_jobs_bound_logs(all[i]->jobs, true);
		fsession_unref(all[i]);
	}
	g_free(all);
}

void fs_pending(struct fs *fs, size_t *ret_files, uint64_t *ret_bytes)
{
	struct fsession **all;
	uint64_t bytes, all_bytes = 0;
	size_t files, all_files = 0, n;

	all = fsessions_all(fs->fsessions, &n);
	for (size_t i = 0; i < n; i++) {
		sbx_ws_pending(all[i]->ws, &files, &bytes);
		all_files += files;
		all_bytes += bytes;
		fsession_unref(all[i]);
	}
	g_free(all);
	*ret_files = all_files;
	*ret_bytes = all_bytes;
}

static void set_fuse(struct fs *fs, struct fuse_session *se)
{
	pthread_rwlock_wrlock(&fs->fuse_lock);
	fs->fuse = se;
	pthread_rwlock_unlock(&fs->fuse_lock);
}

int fs_loop(struct fs *fs, struct fuse_session *se)
{
	struct fuse_loop_config *config;
	char stack[32];
	int r;

	/* libfuse takes the size of its threads' stacks from the environment only. */
	snprintf(stack, sizeof(stack), "%d", FS_THREAD_STACK_BYTES);
	(void)setenv("FUSE_THREAD_STACK", stack, 1);
	config = fuse_loop_cfg_create();
	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_max_threads(config, FS_MAX_THREADS);
	fuse_loop_cfg_set_clone_fd(config, 0);
	set_fuse(fs, se);
	r = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	/* The connection is closed next: nobody answers or notifies after that. */
	fs_stop(fs);
	parks_drain(fs->parks);
	set_fuse(fs, NULL);
	return r;
}
