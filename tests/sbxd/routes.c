#include "tests/sbxd/routes.h"
#include "tests/sbxd/archiveroutes.h"
#include "tests/sbxd/execroute.h"
#include "tests/sbxd/fsroutes.h"
#include "tests/sbxd/json.h"
#include "tests/sbxd/pathcheck.h"
#include "tests/sbxd/pool.h"
#include "tests/sbxd/target.h"

#include <errno.h>
#include <string.h>

static const struct row {
	enum route route;
	const char *name;
	const char *method;
	const char *segment; /* the third of the path */
} rows[] = {
	{ ROUTE_GET, "fs", "GET", "fs" },
	{ ROUTE_PUT, "fs", "PUT", "fs" },
	{ ROUTE_STAT, "stat", "GET", "stat" },
	{ ROUTE_READDIR, "readdir", "GET", "readdir" },
	{ ROUTE_EXEC, "exec", "POST", "exec" },
	{ ROUTE_PERSIST, "persist", "POST", "persist" },
	{ ROUTE_HYDRATE, "hydrate", "POST", "hydrate" },
	{ ROUTE_REATTACH, "reattach", "POST", "reattach" },
	{ ROUTE_CREATE, "create", NULL, NULL },
	{ ROUTE_DELETE, "delete", NULL, NULL },
};

const char *routes_name(enum route route)
{
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		if (rows[i].route == route)
			return rows[i].name;
	}
	return "unknown";
}

static enum route find_row(const char *method, const char *segment)
{
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		if (rows[i].segment && strcmp(rows[i].method, method) == 0 &&
		    strcmp(rows[i].segment, segment) == 0)
			return rows[i].route;
	}
	return ROUTE_UNKNOWN;
}

void routes_find(struct exchange *x)
{
	g_auto(GStrv) segments = NULL;

	x->route = ROUTE_UNKNOWN;
	x->url_path = target_path(x->req->target);
	if (!x->url_path)
		return;
	x->path = target_parameter(x->req->target, "path");
	segments = target_segments(x->url_path);
	if (!segments[0] || strcmp(segments[0], "sessions") != 0)
		return;
	if (!segments[1]) {
		if (strcmp(x->req->method, "POST") == 0)
			x->route = ROUTE_CREATE;
		x->no_session_id = true;
		return;
	}
	x->session_id = g_strdup(segments[1]);
	x->segment = g_strdup(segments[2]);
	if (x->segment)
		x->route = find_row(x->req->method, x->segment);
	else if (strcmp(x->req->method, "DELETE") == 0)
		x->route = ROUTE_DELETE;
}

int routes_read_body(struct exchange *x, struct body *ret_body)
{
	int err = request_read_body(x->req, x->conn, x->service->opt->root, ret_body);

	if (err == -ETIMEDOUT || err == -EBADMSG) {
		reply_send_bare(x->conn, err == -ETIMEDOUT ? 408 : 400, false, false);
		conn_finish(x->conn);
	}
	if (err == -ENOSPC || err == -ENOMEM)
		reply_errno(&x->reply, -err, "write", NULL);
	return err;
}

/* The body of create: anything that is JSON, or nothing. */
static bool read_create_body(struct exchange *x, char **ret_root_dir)
{
	struct json *value = NULL;
	const struct json *root_dir;
	struct body body;
	bool good = false;

	if (routes_read_body(x, &body))
		return false;
	if (body.len_bytes > 0 && json_parse(body.data, body.len_bytes, &value)) {
		reply_error(&x->reply, 400, "bad_request", "invalid JSON body");
	} else if (value && value->kind == JSON_NULL) {
		reply_error(&x->reply, 500, "internal_error",
			    "Cannot read properties of null (reading 'runId')");
	} else {
		root_dir = json_get(value, "rootDir");
		good = !root_dir || root_dir->kind == JSON_STRING || root_dir->kind == JSON_NULL;
		if (!good)
			reply_error(&x->reply, 500, "internal_error",
				    "The \"path\" argument must be of type string.");
		else if (root_dir && root_dir->kind == JSON_STRING && root_dir->string->len > 0)
			*ret_root_dir = g_strdup(root_dir->string->str);
	}
	json_free(value);
	body_clear(&body);
	return good;
}

static bool root_dir_is_allowed(struct exchange *x, const char *root_dir)
{
	const GPtrArray *prefixes = x->service->opt->root_prefixes;
	g_autofree char *path = path_resolve("/", root_dir);
	g_autofree char *message = NULL;

	for (guint i = 0; i < prefixes->len; i++) {
		g_autofree char *prefix = path_resolve("/", prefixes->pdata[i]);

		if (path_below(prefix, path))
			return true;
	}
	message = g_strdup_printf("rootDir is not under an allowed prefix: %s", root_dir);
	reply_error(&x->reply, 403, "root_denied", message);
	return false;
}

static void serve_create(struct exchange *x)
{
	g_autofree char *root_dir = NULL;
	struct session *session;
	GString *json;
	int err;

	if (!read_create_body(x, &root_dir))
		return;
	if (root_dir && !root_dir_is_allowed(x, root_dir))
		return;
	/* Judged everywhere, but a jail has a root of its own. */
	if (x->service->opt->profile == PROFILE_OVERLAY)
		g_clear_pointer(&root_dir, g_free);
	if (pool_enter(x->service->pool))
		return;
	err = session_create(x->service->sessions, root_dir, &session);
	pool_leave(x->service->pool);
	if (err) {
		reply_errno(&x->reply, -err, "mkdir", root_dir);
		return;
	}
	json = g_string_new("{");
	json_append_member(json, "sessionId", session->id);
	json_append_member(json, "root", session->told_root);
	g_string_append_c(json, '}');
	reply_json(&x->reply, json);
	g_free(x->session_id);
	x->session_id = g_strdup(session->id);
	session_release(x->service->sessions, session);
}

static void serve_reattach(struct exchange *x)
{
	g_autofree char *root = NULL;
	GString *json;

	if (!session_reattach(x->service->sessions, x->session_id, &root)) {
		reply_json(&x->reply, g_string_new("{\"alive\":false}"));
		return;
	}
	json = g_string_new("{\"alive\":true");
	json_append_member(json, "root", root);
	g_string_append_c(json, '}');
	reply_json(&x->reply, json);
}

static void reply_unknown(struct exchange *x)
{
	g_autofree char *message =
		g_strdup_printf("unknown route %s %s", x->req->method, x->url_path);

	reply_error(&x->reply, 404, "not_found", message);
}

/* A route of a live session, which is pinned meanwhile. */
static void serve_in_session(struct exchange *x)
{
	bool fs = x->route == ROUTE_GET || x->route == ROUTE_PUT || x->route == ROUTE_STAT ||
		  x->route == ROUTE_READDIR;

	x->session = session_acquire(x->service->sessions, x->session_id);
	if (!x->session) {
		g_autofree char *message = g_strdup_printf("session not found: %s", x->session_id);

		reply_error(&x->reply, 404, "session_not_found", message);
		return;
	}
	if (fs && (!x->path || x->path->len == 0))
		reply_error(&x->reply, 400, "bad_request", "missing path");
	else if (x->route == ROUTE_GET)
		fsroutes_get(x);
	else if (x->route == ROUTE_PUT)
		fsroutes_put(x);
	else if (x->route == ROUTE_STAT)
		fsroutes_stat(x);
	else if (x->route == ROUTE_READDIR)
		fsroutes_readdir(x);
	else if (x->route == ROUTE_EXEC)
		execroute_serve(x);
	else if (x->route == ROUTE_PERSIST)
		archiveroutes_persist(x);
	else if (x->route == ROUTE_HYDRATE)
		archiveroutes_hydrate(x);
	else
		reply_unknown(x);
	session_release(x->service->sessions, x->session);
	x->session = NULL;
}

/* Compared whole, whatever matches: the time must not tell how much did. */
static bool token_matches(const char *token, const char *authorization)
{
	g_autofree char *want = g_strconcat("Bearer ", token, NULL);
	unsigned char differ = 0;

	if (!authorization || strlen(authorization) != strlen(want))
		return false;
	for (size_t i = 0; want[i]; i++)
		differ |= (unsigned char)(want[i] ^ authorization[i]);
	return differ == 0;
}

void routes_serve(struct exchange *x)
{
	const char *token = x->service->opt->token;

	if (token && !token_matches(token, x->req->authorization)) {
		reply_error(&x->reply, 401, "unauthorized", "missing or invalid bearer token");
		return;
	}
	if (!x->url_path) {
		reply_error(&x->reply, 500, "internal_error", "Invalid URL");
		return;
	}
	if (x->route == ROUTE_CREATE) {
		serve_create(x);
	} else if (x->route == ROUTE_DELETE) {
		session_delete(x->service->sessions, x->session_id);
		reply_ok(&x->reply);
	} else if (x->route == ROUTE_REATTACH) {
		serve_reattach(x);
	} else if (x->session_id) {
		serve_in_session(x);
	} else if (x->no_session_id) {
		reply_error(&x->reply, 404, "not_found", "missing session id");
	} else {
		reply_unknown(x);
	}
}

void routes_clear(struct exchange *x)
{
	g_free(x->url_path);
	g_free(x->session_id);
	g_free(x->segment);
	if (x->path)
		g_string_free(x->path, TRUE);
	g_free(x->program);
	g_free(x->cwd);
	reply_clear(&x->reply);
}
