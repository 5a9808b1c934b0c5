#include "client/provider.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "client/errmap.h"
#include "client/program.h"
#include "client/token.h"
#include "client/wire_exec.h"

#define PATH_BYTES_MAX 4095
#define NAME_BYTES_MAX 255

/* Bounds of what is kept in memory of an answer. */
#define SMALL_REPLY_MAX	   (64 * 1024)
#define LISTING_MAX	   (128 * 1024 * 1024)
#define EXEC_REPLY_DEFAULT (64 * 1024 * 1024)

/* More milliseconds than a JavaScript date can hold are nonsense. */
#define MTIME_MS_MAX 8.64e15

/* An id that no server has given out: reattach says of it `{"alive":false}`. */
#define NOBODY "00000000-0000-4000-8000-000000000000"

struct provider_wire {
	struct sbx_provider base;
	struct sbx_http *http;
	struct sbx_token *token;
};

static struct provider_wire *wire_of(struct sbx_provider *provider)
{
	return (struct provider_wire *)provider;
}

/* --- requests and answers --- */

static ssize_t text_read_at(void *arg, void *buf, size_t len, int64_t offset)
{
	const char *text = arg;

	memcpy(buf, text + offset, len);
	return (ssize_t)len;
}

/* The text as a request's body; len_bytes bounds what is read. */
static struct sbx_source text_source(char *text)
{
	return (struct sbx_source){
		.len_bytes = (int64_t)strlen(text),
		.read_at = text_read_at,
		.arg = text,
	};
}

static void set_text(char *ret_text, size_t size, const char *text, struct sbx_token *token)
{
	g_autofree char *stripped = sbx_token_strip(token, text);

	sbx_text_escape(ret_text, size, stripped, strlen(stripped));
}

/* An answer with a status of success that is not what the protocol says. */
static int fail_foreign(const struct sbx_call *call, enum sbx_wire_op op, const char *message)
{
	sbx_call_fail(call, sbx_wire_op_name(op), -EIO, message);
	if (call->failure != NULL) {
		call->failure->kind = SBX_FAIL_FOREIGN;
		call->failure->http_status = 200;
		call->failure->maybe_done = true;
	}
	return -EIO;
}

/* An error answer: its envelope is looked at, and call->failure filled. */
static int fail_reply(struct provider_wire *wire, const struct sbx_call *call, enum sbx_wire_op op,
		      const struct sbx_http_reply *reply)
{
	struct sbx_failure *failure = call->failure;
	struct sbx_json *root = NULL;
	const char *code = NULL;
	const char *message = NULL;
	int error;

	if (reply->body_len > 0 &&
	    sbx_json_parse(reply->body, reply->body_len, SBX_JSON_VALUES_DEFAULT, &root) == 0) {
		(void)sbx_json_get_string(root, "code", SMALL_REPLY_MAX, &code);
		(void)sbx_json_get_string(root, "message", SMALL_REPLY_MAX, &message);
	}
	if (failure != NULL)
		memset(failure, 0, sizeof(*failure));
	error = sbx_errmap_reply(reply->status, code, message, failure);
	if (failure != NULL) {
		failure->operation = sbx_wire_op_name(op);
		(void)sbx_json_get_bool(root, "retryable", &failure->retryable);
		/* A command that could not be started has done nothing. */
		failure->maybe_done = reply->status >= 500 && reply->status != 501 &&
				      reply->status != 503 &&
				      (message == NULL || !g_str_has_prefix(message, "spawn "));
		set_text(failure->code, sizeof(failure->code), code != NULL ? code : "",
			 wire->token);
		set_text(failure->message, sizeof(failure->message),
			 message != NULL ? message : "an error without the protocol's body",
			 wire->token);
	}
	sbx_json_free(root);
	return error;
}

/*
 * Sends, and turns every status but 2xx into an error. *ret_reply (may be NULL where nothing is
 * kept) is the caller's on 0 only.
 */
static int perform(struct provider_wire *wire, const struct sbx_call *call,
		   const struct sbx_http_request *request, struct sbx_http_reply *ret_reply)
{
	struct sbx_http_reply reply;
	int r;

	r = sbx_http_perform(wire->http, call, request, &reply);
	if (r < 0)
		return r;
	if (reply.status < 200 || reply.status > 299) {
		r = fail_reply(wire, call, request->op, &reply);
		sbx_http_reply_clear(&reply);
		return r;
	}
	if (ret_reply != NULL)
		*ret_reply = reply;
	else
		sbx_http_reply_clear(&reply);
	return 0;
}

/* As perform(), for a small JSON object. */
static int perform_json(struct provider_wire *wire, const struct sbx_call *call,
			const struct sbx_http_request *request, struct sbx_json **ret_object)
{
	struct sbx_http_reply reply;
	struct sbx_json *root = NULL;
	int r;

	r = perform(wire, call, request, &reply);
	if (r < 0)
		return r;
	r = sbx_json_parse(reply.body != NULL ? reply.body : "", reply.body_len,
			   SBX_JSON_VALUES_DEFAULT, &root);
	sbx_http_reply_clear(&reply);
	if (r == 0 && !sbx_json_is_object(root))
		r = -EBADMSG;
	if (r < 0) {
		sbx_json_free(root);
		return fail_foreign(call, request->op, "the answer is not a JSON object");
	}
	*ret_object = root;
	return 0;
}

/* For `{"ok":true}`. */
static int perform_ok(struct provider_wire *wire, const struct sbx_call *call,
		      const struct sbx_http_request *request)
{
	struct sbx_json *object;
	bool ok = false;
	int r;

	r = perform_json(wire, call, request, &object);
	if (r < 0)
		return r;
	if (sbx_json_get_bool(object, "ok", &ok) < 0 || !ok)
		r = fail_foreign(call, request->op, "the answer does not say ok");
	sbx_json_free(object);
	return r;
}

/* --- routes --- */

static int check_id(const struct sbx_call *call, enum sbx_wire_op op, const char *id)
{
	if (sbx_id_valid(id))
		return 0;
	return sbx_call_fail(call, sbx_wire_op_name(op), -EINVAL, "not a session id");
}

/* "/sessions/ID" and, unless it is NULL, "/route". */
static int session_route(const struct sbx_call *call, enum sbx_wire_op op, const char *id,
			 const char *route, char **ret_path)
{
	int r = check_id(call, op, id);

	if (r < 0)
		return r;
	*ret_path = g_strconcat("/sessions/", id, route != NULL ? "/" : NULL, route, NULL);
	return 0;
}

/* What a route takes for a name is what is meant (wire.md A1). */
static int check_path(const char *path)
{
	const char *name = path;

	if (strlen(path) > PATH_BYTES_MAX)
		return -ENAMETOOLONG;
	if (!g_utf8_validate(path, -1, NULL))
		return -EILSEQ;
	if (strcmp(path, ".") == 0)
		return 0;
	if (g_str_has_prefix(path, ".."))
		return -EILSEQ;
	for (;;) {
		size_t len = strcspn(name, "/");

		if (len == 0 || (len == 1 && name[0] == '.') ||
		    (len == 2 && name[0] == '.' && name[1] == '.'))
			return -EILSEQ;
		if (len > NAME_BYTES_MAX)
			return -ENAMETOOLONG;
		if (name[len] == '\0')
			return 0;
		name += len + 1;
	}
}

static void append_encoded(GString *url, const char *path)
{
	for (const char *c = path; *c != '\0'; c++) {
		if (g_ascii_isalnum(*c) || strchr("-._~/", *c) != NULL)
			g_string_append_c(url, *c);
		else
			g_string_append_printf(url, "%%%02X", (unsigned char)*c);
	}
}

/* "/sessions/ID/route?path=PATH" */
static int file_route(const struct sbx_call *call, enum sbx_wire_op op, const char *id,
		      const char *route, const char *path, char **ret_path)
{
	GString *url;
	int r;

	r = check_id(call, op, id);
	if (r < 0)
		return r;
	r = check_path(path);
	if (r < 0)
		return sbx_call_fail(call, sbx_wire_op_name(op), r,
				     r == -EILSEQ ? "no route can carry this name"
						  : "the path is too long");
	url = g_string_new("/sessions/");
	g_string_append_printf(url, "%s/%s?path=", id, route);
	append_encoded(url, path);
	*ret_path = g_string_free(url, FALSE);
	return 0;
}

/* --- sessions --- */

static unsigned int wire_capabilities(struct sbx_provider *provider)
{
	(void)provider;
	return SBX_CAP_EXEC | SBX_CAP_ARCHIVE | SBX_CAP_REATTACH;
}

/* A root that is shown and compared, never opened here: absolute, of a path's length. */
static int read_root(const struct sbx_json *object, struct sbx_session_ref *ref)
{
	const char *root;
	int r;

	r = sbx_json_get_string(object, "root", SBX_ROOT_MAX - 1, &root);
	if (r < 0)
		return r;
	if (root[0] != '/')
		return -EBADMSG;
	g_strlcpy(ref->root, root, sizeof(ref->root));
	return 0;
}

static int reattach_as(struct provider_wire *wire, const struct sbx_call *call, enum sbx_wire_op op,
		       const char *id, bool *ret_alive, struct sbx_session_ref *ret_ref)
{
	struct sbx_http_request request = {
		.op = op,
		.method = "POST",
		/* A thaw may take minutes; its connection is of this session's share. */
		.lane = op == SBX_OP_REATTACH ? id : NULL,
		.max_reply_bytes = SMALL_REPLY_MAX,
		/* Two thaws at once lose writes: libcurl must not send a second by itself. */
		.repeat = SBX_HTTP_FRESH,
	};
	struct sbx_session_ref ref = { 0 };
	struct sbx_json *object;
	g_autofree char *path = NULL;
	bool alive;
	int r;

	r = session_route(call, op, id, "reattach", &path);
	if (r < 0)
		return r;
	request.path = path;
	r = perform_json(wire, call, &request, &object);
	if (r < 0)
		return r;
	r = sbx_json_get_bool(object, "alive", &alive);
	if (r == 0 && alive)
		r = read_root(object, &ref);
	sbx_json_free(object);
	if (r < 0)
		return fail_foreign(call, op, "the answer to reattach is not the protocol's");
	g_strlcpy(ref.id, id, sizeof(ref.id));
	*ret_alive = alive;
	if (alive)
		*ret_ref = ref;
	return 0;
}

static int wire_probe(struct sbx_provider *provider, const struct sbx_call *call)
{
	struct sbx_session_ref ref;
	bool alive;

	return reattach_as(wire_of(provider), call, SBX_OP_PROBE, NOBODY, &alive, &ref);
}

static int wire_reattach(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			 bool *ret_alive, struct sbx_session_ref *ret_ref)
{
	return reattach_as(wire_of(provider), call, SBX_OP_REATTACH, id, ret_alive, ret_ref);
}

static int wire_create(struct sbx_provider *provider, const struct sbx_call *call, const char *body,
		       struct sbx_session_ref *ret_ref)
{
	g_autofree char *text = g_strdup(body != NULL ? body : "{}");
	struct sbx_source source = text_source(text);
	struct sbx_http_request request = {
		.op = SBX_OP_CREATE,
		.method = "POST",
		.path = "/sessions",
		.body = &source,
		.content_type = "application/json",
		.max_reply_bytes = SMALL_REPLY_MAX,
		.repeat = SBX_HTTP_FRESH,
	};
	struct sbx_session_ref ref = { 0 };
	struct sbx_json *object = NULL;
	g_autofree char *why = NULL;
	const char *id = NULL;
	int r;

	r = sbx_json_parse(text, strlen(text), SBX_JSON_VALUES_DEFAULT, &object);
	if (r == -ENOMEM)
		return sbx_call_fail(call, sbx_wire_op_name(SBX_OP_CREATE), r, "out of memory");
	if (r < 0 || !sbx_json_is_object(object)) {
		sbx_json_free(object);
		return sbx_call_fail(call, sbx_wire_op_name(SBX_OP_CREATE), -EINVAL,
				     "what a session is made from must be a JSON object");
	}
	sbx_json_free(object);

	r = perform_json(wire_of(provider), call, &request, &object);
	if (r < 0)
		return r;
	r = sbx_json_get_string(object, "sessionId", SMALL_REPLY_MAX, &id);
	if (r == 0)
		r = sbx_id_valid(id) ? read_root(object, &ref) : -EBADMSG;
	why = g_strconcat("the new session's id or root is not valid: ", id, NULL);
	g_strlcpy(ref.id, r == 0 ? id : "", sizeof(ref.id));
	sbx_json_free(object);
	if (r < 0)
		return fail_foreign(call, SBX_OP_CREATE, why);
	*ret_ref = ref;
	return 0;
}

static int wire_destroy(struct sbx_provider *provider, const struct sbx_call *call, const char *id)
{
	struct sbx_http_request request = {
		.op = SBX_OP_DELETE,
		.method = "DELETE",
		.max_reply_bytes = SMALL_REPLY_MAX,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *path = NULL;
	int r;

	r = session_route(call, request.op, id, NULL, &path);
	if (r < 0)
		return r;
	request.path = path;
	return perform_ok(wire_of(provider), call, &request);
}

/* --- files --- */

static int wire_get(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    const char *path, int64_t offset, int64_t len, const struct sbx_sink *sink)
{
	struct sbx_http_request request = {
		.op = SBX_OP_GET,
		.method = "GET",
		.lane = id,
		.sink = sink,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *route = NULL;
	char range[64];
	int r;

	r = file_route(call, request.op, id, "fs", path, &route);
	if (r < 0)
		return r;
	request.path = route;
	if (len > 0)
		snprintf(range, sizeof(range), "%lld-%lld", (long long)offset,
			 (long long)(offset + len - 1));
	else if (offset > 0)
		snprintf(range, sizeof(range), "%lld-", (long long)offset);
	if (len > 0 || offset > 0)
		request.range = range;
	return perform(wire_of(provider), call, &request, NULL);
}

static int wire_put(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		    const char *path, const struct sbx_source *source)
{
	struct sbx_http_request request = {
		.op = SBX_OP_PUT,
		.method = "PUT",
		.lane = id,
		.body = source,
		.max_reply_bytes = SMALL_REPLY_MAX,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *route = NULL;
	int r;

	r = file_route(call, request.op, id, "fs", path, &route);
	if (r < 0)
		return r;
	request.path = route;
	return perform_ok(wire_of(provider), call, &request);
}

static int read_stat(const struct sbx_json *object, struct sbx_stat *stat)
{
	bool is_directory;
	bool is_file;
	double mtime_ms;
	double sec;
	int64_t mode;
	int r;

	r = sbx_json_get_int(object, "size", 0, INT64_MAX, &stat->size);
	if (r == 0)
		r = sbx_json_get_double(object, "mtimeMs", &mtime_ms);
	if (r == 0)
		r = sbx_json_get_bool(object, "isFile", &is_file);
	if (r == 0)
		r = sbx_json_get_bool(object, "isDirectory", &is_directory);
	if (r == 0)
		r = sbx_json_get_int(object, "mode", 0, 0177777, &mode);
	if (r < 0)
		return r;
	if (fabs(mtime_ms) > MTIME_MS_MAX || (is_file && is_directory))
		return -EBADMSG;
	stat->kind = is_file ? SBX_KIND_FILE : is_directory ? SBX_KIND_DIRECTORY : SBX_KIND_OTHER;
	stat->mode = (mode_t)mode & 07777;
	sec = floor(mtime_ms / 1000);
	stat->mtime.tv_sec = (time_t)sec;
	stat->mtime.tv_nsec = (long)CLAMP((mtime_ms - sec * 1000) * 1e6, 0, 999999999);
	return 0;
}

static int wire_stat(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     const char *path, struct sbx_stat *ret_stat)
{
	struct sbx_http_request request = {
		.op = SBX_OP_STAT,
		.method = "GET",
		.lane = id,
		.max_reply_bytes = SMALL_REPLY_MAX,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *route = NULL;
	struct sbx_stat stat = { 0 };
	struct sbx_json *object;
	int r;

	r = file_route(call, request.op, id, "stat", path, &route);
	if (r < 0)
		return r;
	request.path = route;
	r = perform_json(wire_of(provider), call, &request, &object);
	if (r < 0)
		return r;
	r = read_stat(object, &stat);
	sbx_json_free(object);
	if (r < 0)
		return fail_foreign(call, request.op, "the answer to stat is not the protocol's");
	*ret_stat = stat;
	return 0;
}

/* A listing on its way to the caller's sink; stopped tells its refusal from a broken listing. */
struct listing {
	const struct sbx_dir_sink *sink;
	bool stopped;
};

static int take_entry(void *arg, struct sbx_json *element)
{
	struct listing *listing = arg;
	const struct sbx_dir_sink *sink = listing->sink;
	char escaped[4 * NAME_BYTES_MAX + 1];
	bool is_directory;
	char *name = NULL;
	size_t len;
	int r;

	r = sbx_json_get_bool(element, "isDirectory", &is_directory);
	if (r == 0)
		r = sbx_json_steal_bytes(element, "name", &name, &len);
	if (r < 0)
		return -EBADMSG;
	if (sbx_program_name_valid(name, len)) {
		r = sink->entry(sink->arg, name, is_directory);
		listing->stopped = r < 0;
	} else if (sink->refused != NULL) {
		sbx_text_escape(escaped, sizeof(escaped), name, len);
		sink->refused(sink->arg, escaped);
	}
	free(name);
	return r;
}

static int wire_readdir(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			const char *path, const struct sbx_dir_sink *sink)
{
	struct sbx_http_request request = {
		.op = SBX_OP_READDIR,
		.method = "GET",
		.lane = id,
		.max_reply_bytes = LISTING_MAX,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	struct listing listing = { .sink = sink };
	g_autofree char *route = NULL;
	struct sbx_http_reply reply;
	int r;

	r = file_route(call, request.op, id, "readdir", path, &route);
	if (r < 0)
		return r;
	request.path = route;
	r = perform(wire_of(provider), call, &request, &reply);
	if (r < 0)
		return r;
	r = sbx_json_each(reply.body != NULL ? reply.body : "", reply.body_len, take_entry,
			  &listing);
	sbx_http_reply_clear(&reply);
	if (r < 0 && listing.stopped)
		return sbx_call_fail(call, sbx_wire_op_name(request.op), r,
				     "the listing was not taken");
	if (r == -ENOMEM)
		return sbx_call_fail(call, sbx_wire_op_name(request.op), r, "out of memory");
	if (r < 0)
		return fail_foreign(call, request.op, "the listing is not the protocol's");
	return 0;
}

/* --- commands --- */

/* The route and body of an exec; nothing was sent when this fails. */
static int prepare_exec(const struct sbx_call *call, enum sbx_wire_op op, const char *id,
			const struct sbx_exec_spec *spec, char **ret_path, char **ret_text)
{
	g_autofree char *path = NULL;
	int r;

	r = session_route(call, op, id, "exec", &path);
	if (r < 0)
		return r;
	r = wire_exec_body(spec, ret_text);
	if (r < 0)
		return sbx_call_fail(call, sbx_wire_op_name(op), r,
				     r == -EILSEQ  ? "an argument is not UTF-8"
				     : r == -E2BIG ? "the command is too long"
						   : "the command is not valid");
	*ret_path = g_steal_pointer(&path);
	return 0;
}

static struct sbx_http_request exec_request(const struct sbx_exec_spec *spec, const char *path,
					    const struct sbx_source *body)
{
	return (struct sbx_http_request){
		.method = "POST",
		.path = path,
		.body = body,
		.content_type = "application/json",
		.max_reply_bytes =
			spec->max_reply_bytes != 0 ? spec->max_reply_bytes : EXEC_REPLY_DEFAULT,
		.patience_ms = spec->timeout_ms,
	};
}

static int wire_exec(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
		     const struct sbx_exec_spec *spec, struct sbx_exec_result *ret_result)
{
	g_autofree char *path = NULL;
	struct sbx_http_request request;
	struct sbx_http_reply reply;
	struct sbx_source body;
	char *text = NULL;
	int r;

	r = prepare_exec(call, SBX_OP_EXEC, id, spec, &path, &text);
	if (r < 0)
		return r;
	body = text_source(text);
	request = exec_request(spec, path, &body);
	request.op = SBX_OP_EXEC;
	request.lane = id;
	request.repeat = spec->repeatable ? SBX_HTTP_IDEMPOTENT : SBX_HTTP_ONCE;
	r = perform(wire_of(provider), call, &request, &reply);
	free(text);
	if (r < 0)
		return r;
	r = wire_exec_read(reply.body, reply.body_len, ret_result);
	sbx_http_reply_clear(&reply);
	if (r < 0)
		return fail_foreign(call, SBX_OP_EXEC, "the answer to exec is not the protocol's");
	return 0;
}

/* A detached exec's end, from the request's to the caller's form. */
struct detached_exec {
	struct provider_wire *wire;
	sbx_exec_done_fn done;
	void *arg;
};

static void detached_exec_done(void *arg, int error, const struct sbx_http_reply *reply)
{
	struct detached_exec *detached = arg;
	struct sbx_exec_result result = { 0 };
	struct sbx_call nobody = { 0 };

	if (error == 0 && (reply->status < 200 || reply->status > 299))
		error = fail_reply(detached->wire, &nobody, SBX_OP_EXEC_DETACHED, reply);
	else if (error == 0 && wire_exec_read(reply->body, reply->body_len, &result) < 0)
		error = -EIO;
	if (detached->done != NULL)
		detached->done(detached->arg, error, error == 0 ? &result : NULL);
	sbx_exec_result_clear(&result);
	g_free(detached);
}

static int wire_exec_detached(struct sbx_provider *provider, const struct sbx_call *call,
			      const char *id, const struct sbx_exec_spec *spec,
			      sbx_exec_done_fn done, void *arg)
{
	struct detached_exec *detached;
	g_autofree char *path = NULL;
	struct sbx_http_request request;
	struct sbx_source body;
	char *text = NULL;
	int r;

	r = prepare_exec(call, SBX_OP_EXEC_DETACHED, id, spec, &path, &text);
	if (r < 0)
		return r;
	detached = g_new0(struct detached_exec, 1);
	detached->wire = wire_of(provider);
	detached->done = done;
	detached->arg = arg;
	body = text_source(text);
	request = exec_request(spec, path, &body);
	request.op = SBX_OP_EXEC_DETACHED;
	request.repeat = SBX_HTTP_FRESH;
	r = sbx_http_detach(wire_of(provider)->http, call, &request, detached_exec_done, detached);
	free(text);
	if (r < 0)
		g_free(detached);
	return r;
}

/* --- archives --- */

static int wire_persist(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			const struct sbx_sink *sink)
{
	struct sbx_http_request request = {
		.op = SBX_OP_PERSIST,
		.method = "POST",
		.lane = id,
		.sink = sink,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *path = NULL;
	int r;

	r = session_route(call, request.op, id, "persist", &path);
	if (r < 0)
		return r;
	request.path = path;
	return perform(wire_of(provider), call, &request, NULL);
}

static int wire_hydrate(struct sbx_provider *provider, const struct sbx_call *call, const char *id,
			const struct sbx_source *source)
{
	struct sbx_http_request request = {
		.op = SBX_OP_HYDRATE,
		.method = "POST",
		.lane = id,
		.body = source,
		.content_type = "application/x-tar",
		.max_reply_bytes = SMALL_REPLY_MAX,
		.repeat = SBX_HTTP_IDEMPOTENT,
	};
	g_autofree char *path = NULL;
	int r;

	r = session_route(call, request.op, id, "hydrate", &path);
	if (r < 0)
		return r;
	request.path = path;
	return perform_ok(wire_of(provider), call, &request);
}

/* --- the provider --- */

static void wire_end(struct sbx_provider *provider)
{
	sbx_http_end(wire_of(provider)->http);
}

static void wire_maintain(struct sbx_provider *provider)
{
	sbx_http_maintain(wire_of(provider)->http);
}

static void wire_stats(struct sbx_provider *provider, struct sbx_wire_stats *ret_stats)
{
	sbx_http_stats(wire_of(provider)->http, ret_stats);
}

static void wire_free(struct sbx_provider *provider)
{
	struct provider_wire *wire = wire_of(provider);

	sbx_http_free(wire->http);
	g_free(wire);
}

static const struct sbx_provider_ops wire_ops = {
	.capabilities = wire_capabilities,
	.probe = wire_probe,
	.create = wire_create,
	.destroy = wire_destroy,
	.reattach = wire_reattach,
	.get = wire_get,
	.put = wire_put,
	.stat = wire_stat,
	.readdir = wire_readdir,
	.exec = wire_exec,
	.exec_detached = wire_exec_detached,
	.persist = wire_persist,
	.hydrate = wire_hydrate,
	.end = wire_end,
	.maintain = wire_maintain,
	.stats = wire_stats,
	.free = wire_free,
};

int sbx_provider_wire_new(const struct sbx_endpoint *endpoint, struct sbx_token *token,
			  const struct sbx_http_options *options,
			  struct sbx_provider **ret_provider, const char **ret_reason)
{
	struct provider_wire *wire = g_new0(struct provider_wire, 1);
	int r;

	wire->base.ops = &wire_ops;
	wire->token = token;
	r = sbx_http_new(endpoint, token, options, &wire->http, ret_reason);
	if (r < 0) {
		g_free(wire);
		return r;
	}
	*ret_provider = &wire->base;
	return 0;
}
