/*
 * What every request can reach, and what one request is.
 *
 * struct service is filled by main() before the first connection and constant afterwards; each
 * part locks itself. struct exchange belongs to one connection's thread.
 */
#ifndef SBX_SBXD_SERVICE_H
#define SBX_SBXD_SERVICE_H

#include <glib.h>
#include <stdatomic.h>

#include "tests/sbxd/conn.h"
#include "tests/sbxd/options.h"
#include "tests/sbxd/reply.h"
#include "tests/sbxd/request.h"
#include "tests/sbxd/session.h"

struct pool;
struct fault_set;
struct reqlog;

struct service {
	const struct options *opt;
	struct session_table *sessions;
	struct pool *pool;
	struct fault_set *faults;
	struct reqlog *log;
	char *jail_program; /* sbxd-jail, beside this program */
	char *clock_library; /* sbxd-clock.so, beside it too */
	int stop_fd; /* an eventfd, readable for good once the server stops */
	int null_fd; /* /dev/null: every command's stdin */
	char *tools_dir; /* with busybox: the applets; else NULL */
	atomic_int puts; /* PUTs under way */
};

enum route {
	ROUTE_UNKNOWN,
	ROUTE_CREATE,
	ROUTE_DELETE,
	ROUTE_REATTACH,
	ROUTE_GET,
	ROUTE_PUT,
	ROUTE_STAT,
	ROUTE_READDIR,
	ROUTE_EXEC,
	ROUTE_PERSIST,
	ROUTE_HYDRATE,
	ROUTE_COUNT,
};

struct exchange {
	struct service *service;
	struct conn *conn;
	struct request *req;
	struct reply reply;
	enum route route;
	char *url_path; /* of the target, dots worked out; NULL: not a URL */
	char *session_id; /* as in the URL; NULL: none */
	char *segment; /* the third segment; NULL: none */
	bool no_session_id; /* the path is /sessions alone */
	GString *path; /* the first path parameter, decoded; NULL: absent */
	struct session *session; /* pinned, while a route works on it */
	/* For the log, of exec. */
	char *program;
	char *cwd;
};

#endif
