/*
 * rig - a client of the whole library beside a running sbxd, for tests of the workspace.
 *
 * One server, one session named "dev", all files under a directory of their own that rig_close()
 * removes. The server's path is in the environment, SBXD. Fails the test when a part can't be made.
 */
#ifndef SBX_TESTS_WORKSPACE_RIG_H
#define SBX_TESTS_WORKSPACE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "client/session.h"
#include "client/workspace/workspace.h"

struct rig {
	char *dir; /* temporary, everything is below it */
	char *files; /* the session's workspace, as this machine sees it */
	char *log; /* sbxd's */
	char *faults; /* sbxd's rules, rig_fault() */
	pid_t sbxd;
	FILE *said; /* its standard output */
	struct sbx_endpoint *endpoint;
	struct sbx_token *token;
	struct sbx_provider *provider;
	struct sbx_statedir *statedir;
	struct sbx_errlog *errors;
	struct sbx_task_pool *pool;
	struct sbx_sessions *sessions;
	struct sbx_session *session;
	struct sbx_call call; /* a minute, can't be cancelled */
};

/* @args: further arguments of sbxd, NULL-terminated; may be NULL. */
void rig_open(struct rig *rig, const char *const *args);
void rig_close(struct rig *rig);

struct sbx_workspace_options rig_options(int64_t ttl_ms);

/* Requests of @route ("exec", "stat", …; NULL: all) that the server has answered so far. */
size_t rig_requests(struct rig *rig, const char *route);

/* Rules of sbxd from now on, instead of those before; "" none. */
void rig_fault(struct rig *rig, const char *rules);

/* Have the server archive the session. It waits for requests that are under way. */
void rig_sleep(struct rig *rig);

/* Run a shell text in the workspace, from outside of the client. */
void rig_sh(struct rig *rig, const char *text);

#endif
