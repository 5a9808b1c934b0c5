#include "tests/sbxd/serve.h"
#include "tests/sbxd/fault.h"
#include "tests/sbxd/reqlog.h"
#include "tests/sbxd/routes.h"

#include <errno.h>
#include <string.h>

/*
 * How a connection goes on after a request: 0 for the next one, -ECONNRESET to reset it, else any
 * negative errno to end it.
 */

static int refuse_head(struct conn *conn, int status)
{
	reply_send_bare(conn, status, false, false);
	conn_finish(conn);
	return -EBADMSG;
}

/*
 * Read until the head of the next request is whole. @idle_ms: how long to wait for its first byte
 * before the connection ends without a word; -1 on a new connection, which hears a 408.
 */
static int read_head(struct service *service, struct conn *conn, int64_t idle_ms,
		     struct request *req)
{
	int64_t begin_ms = conn_now_ms(), deadline_ms;
	size_t head_bytes;
	bool fresh = idle_ms<0, begun = conn->end> conn->start;
	long got;

	for (;;) {
		if (begun || fresh)
			deadline_ms = begin_ms + service->opt->head_deadline_ms;
		else
			deadline_ms = begin_ms + idle_ms;
		switch (request_parse(conn->buffer + conn->start, conn->end - conn->start, req,
				      &head_bytes)) {
		case REQUEST_WHOLE:
			conn->start += head_bytes;
			req->deadline_ms = begin_ms + service->opt->request_deadline_ms;
			return 0;
		case REQUEST_BAD:
			return refuse_head(conn, 400);
		case REQUEST_TOO_LARGE:
			return refuse_head(conn, 431);
		case REQUEST_PARTIAL:
			break;
		}
		got = conn_fill(conn, deadline_ms);
		if (got == -ENOBUFS)
			return refuse_head(conn, 431);
		if (got == -ETIMEDOUT && (begun || fresh))
			return refuse_head(conn, 408);
		if (got <= 0)
			return got == 0 ? -EPIPE : (int)got;
		if (!begun)
			begin_ms = conn_now_ms();
		begun = true;
	}
}

/* What is decided before the request is looked at. True: go on and serve it. */
static bool pass_faults(const struct fault *fault, struct exchange *x, int *ret_err)
{
	if (fault->refuse) {
		conn_reset(x->conn);
		*ret_err = -ECONNRESET;
		return false;
	}
	if (fault->blackhole) {
		conn_wait_closed(x->conn);
		*ret_err = -EPIPE;
		return false;
	}
	if (fault->delay_ms + x->service->opt->latency_ms > 0)
		conn_sleep(x->conn, fault->delay_ms + x->service->opt->latency_ms);
	return true;
}

static bool is_replaced(const struct fault *fault)
{
	return fault->status || fault->echo_auth || fault->reply || fault->garbage ||
	       fault->wrongtype;
}

/* A request on its way to its line in the log. */
struct serving {
	struct exchange x;
	struct reqlog_entry entry;
	int64_t begin_ms;
	uint64_t bytes_in_before;
	uint64_t bytes_out_before;
	bool logged;
};

static void serving_log(struct serving *serving, uint64_t left_bytes)
{
	const struct conn *conn = serving->x.conn;
	struct reqlog_entry *entry = &serving->entry;

	if (serving->logged)
		return;
	serving->logged = true;
	entry->status = serving->x.reply.status;
	entry->duration_ms = conn_now_ms() - serving->begin_ms;
	/* Bytes of a next request that came along stay out of this one's count. */
	entry->bytes_in = conn->bytes_in - (conn->end - conn->start) - serving->bytes_in_before;
	entry->bytes_out = conn->bytes_out + left_bytes - serving->bytes_out_before;
	reqlog_write(serving->x.service->log, &serving->x, entry);
}

/* Who has the whole of an answer finds it in the log. What of a request is still to be read away
 * counts too, so one that was refused early is written down when it has come. */
static void serving_ends(void *arg, uint64_t left_bytes)
{
	struct serving *serving = arg;

	if (serving->x.req->body_done)
		serving_log(serving, left_bytes);
}

/* Serve and answer one request whose head has been read. */
static int answer(struct serving *serving, const struct fault *fault)
{
	const struct reply_watch watch = { serving_ends, serving };
	struct exchange *x = &serving->x;
	bool head_only = strcmp(x->req->method, "HEAD") == 0;
	int err = 0;

	if (!pass_faults(fault, x, &err))
		return err;
	if (is_replaced(fault))
		fault_spoil_reply(fault, x);
	else
		routes_serve(x);
	if (x->reply.status == 0)
		return -EPIPE;
	if (fault->drop) {
		x->reply.status = 0;
		return -EPIPE;
	}
	err = reply_send(&x->reply, x->conn, x->req->keep_alive, head_only, &fault->damage, &watch);
	/* What was refused early is still being sent: read it away, the connection lives on. */
	if (!err)
		err = request_drain(x->req, x->conn);
	if (!err && !x->req->keep_alive)
		err = -EPIPE;
	return err;
}

/* What Node answers by itself before any route is asked. True: done. */
static bool answer_before_routes(struct conn *conn, const struct request *req, int *ret_err)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

	*ret_err = 0;
	if (!req->has_host && !req->http10) {
		reply_send_bare(conn, 400, true, false);
		conn_finish(conn);
		*ret_err = -EBADMSG;
		return true;
	}
	if (req->expect_unknown) {
		*ret_err = reply_send_bare(conn, 417, true, req->keep_alive);
		return true;
	}
	if (req->expect_continue && !req->body_done)
		*ret_err = conn_write(conn, go_on, strlen(go_on), false);
	return *ret_err != 0;
}

static int serve_request(struct service *service, struct conn *conn, struct request *req,
			 int64_t *idle_ms, uint64_t bytes_in_before)
{
	struct serving serving = {
		.x = { .service = service, .conn = conn, .req = req },
		.entry = { .time_ms = g_get_real_time() / 1000 },
		.begin_ms = conn_now_ms(),
		.bytes_in_before = bytes_in_before,
		.bytes_out_before = conn->bytes_out,
	};
	struct exchange *x = &serving.x;
	struct fault fault;
	int err;

	*idle_ms = service->opt->keepalive_ms;
	if (answer_before_routes(conn, req, &err)) {
		if (!err)
			err = request_drain(req, conn);
		return !err && !req->keep_alive ? -EPIPE : err;
	}
	reply_init(&x->reply);
	routes_find(x);
	fault_find(service->faults, x->route, x->session_id, &fault);
	if (fault.close_idle_ms >= 0)
		*idle_ms = fault.close_idle_ms;
	err = answer(&serving, &fault);
	serving_log(&serving, 0);
	if (err && err != -ECONNRESET && x->reply.status && fault.damage.cut_bytes < 0)
		conn_finish(conn);
	fault_clear(&fault);
	routes_clear(x);
	return err;
}

void serve_connection(struct service *service, struct conn *conn)
{
	int64_t idle_ms = -1;
	struct request req;
	int err = 0;

	while (!err) {
		uint64_t before = conn->bytes_in - (conn->end - conn->start);

		err = read_head(service, conn, idle_ms, &req);
		if (err)
			break;
		err = serve_request(service, conn, &req, &idle_ms, before);
		request_clear(&req);
	}
}
