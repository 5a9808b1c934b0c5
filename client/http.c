#include "client/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <curl/curl.h>
#include <glib.h>
#include <linux/sockios.h>

#include "client/endpoint.h"
#include "client/errmap.h"
#include "client/http_internal.h"
#include "client/token.h"

#define DEFAULT_CONNECT_TIMEOUT_MS 10000

/* A server closes a connection after 5 to 6 s without a request (wire.md B.1). */
#define IDLE_MAX_MS 4000

#define HEADERS_MAX	    (256 * 1024)
#define DOWNLOAD_BUFFER	    (512 * 1024)
#define UPLOAD_BUFFER	    (2 * 1024 * 1024)
#define UPLOAD_BUFFER_SMALL (64 * 1024)
#define POLL_MAX_MS	    1000
/* While something waits in the socket: to see when the other side takes it over. */
#define POLL_QUEUED_MS 50

/* Of one that is being made: to the addresses of a host that are tried beside each other. */
#define OPEN_MAX 4

struct http_conn {
	CURL *easy;
	CURLM *multi; /* of its own: so it can be woken alone */
	int fds[OPEN_MAX]; /* that libcurl has open for it, of which it will use one; -1: none */
	int64_t idle_since_ms;
	struct http_conn *next; /* in pool->idle */
};

struct http_pool {
	char *proxy; /* "": none */
	char *cert;
	char *key;
	char *cacert;
	int64_t connect_timeout_ms;
	CURLSH *share;
	pthread_mutex_t share_locks[CURL_LOCK_DATA_LAST];

	pthread_mutex_t lock; /* everything below */
	struct http_conn *idle; /* most recently used first */
	uint32_t idle_count;
};

/* An attempt while it runs, for libcurl's callbacks. */
struct transfer {
	struct http_attempt *attempt;
	const struct sbx_http_request *request;
	struct http_conn *conn;

	int64_t body_read; /* how far libcurl has read the request's body */
	int64_t body_end; /* of one whose length was not known, once it was read to its end */
	bool body_ended;
	bool was_whole; /* all of it may have left on a connection that libcurl gave up */
	bool reply_started;
	bool begun; /* the body's beginning was looked at */
	size_t header_bytes;
	struct http_body body; /* of the answer */
	char curl_text[CURL_ERROR_SIZE];
};

/* --- connections --- */

static void conn_free(struct http_conn *conn)
{
	if (conn == NULL)
		return;
	curl_easy_cleanup(conn->easy);
	curl_multi_cleanup(conn->multi);
	g_free(conn);
}

static struct http_conn *conn_new(struct http_pool *pool)
{
	struct http_conn *conn = g_new0(struct http_conn, 1);

	for (size_t i = 0; i < G_N_ELEMENTS(conn->fds); i++)
		conn->fds[i] = -1;
	conn->easy = curl_easy_init();
	conn->multi = curl_multi_init();
	if (conn->easy == NULL || conn->multi == NULL) {
		conn_free(conn);
		return NULL;
	}
	curl_multi_setopt(conn->multi, CURLMOPT_MAXCONNECTS, 1L);
	/* Survives curl_easy_reset(). */
	curl_easy_setopt(conn->easy, CURLOPT_SHARE, pool->share);
	return conn;
}

static void replace_fd(struct http_conn *conn, int old, int new)
{
	for (size_t i = 0; i < G_N_ELEMENTS(conn->fds); i++) {
		if (conn->fds[i] == old) {
			conn->fds[i] = new;
			break;
		}
	}
}

/* libcurl does not tell the socket of what is under way. */
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)purpose;
	replace_fd(arg, -1, fd);
	return fd;
}

static int on_close_socket(void *arg, curl_socket_t fd)
{
	replace_fd(arg, fd, -1);
	return close(fd);
}

/* Takes those out of the idle list that were idle too long; the caller frees them unlocked. */
static struct http_conn *take_expired_locked(struct http_pool *pool, int64_t now_ms)
{
	struct http_conn **link = &pool->idle;
	struct http_conn *expired;

	/* Most recently used first: behind the first expired one all are. */
	while (*link != NULL && now_ms - (*link)->idle_since_ms < IDLE_MAX_MS)
		link = &(*link)->next;
	expired = *link;
	*link = NULL;
	for (struct http_conn *conn = expired; conn != NULL; conn = conn->next)
		pool->idle_count--;
	return expired;
}

static void free_list(struct http_conn *conn)
{
	while (conn != NULL) {
		struct http_conn *next = conn->next;

		conn_free(conn);
		conn = next;
	}
}

static struct http_conn *conn_take(struct http_pool *pool, bool fresh)
{
	struct http_conn *expired;
	struct http_conn *conn = NULL;

	pthread_mutex_lock(&pool->lock);
	expired = take_expired_locked(pool, sbx_clock_ms());
	if (!fresh && pool->idle != NULL) {
		conn = pool->idle;
		pool->idle = conn->next;
		conn->next = NULL;
		pool->idle_count--;
	}
	pthread_mutex_unlock(&pool->lock);
	free_list(expired);
	return conn != NULL ? conn : conn_new(pool);
}

static void conn_give_back(struct http_pool *pool, struct http_conn *conn)
{
	/* Frees what hangs on the options, the token's header above all. */
	curl_easy_reset(conn->easy);
	conn->idle_since_ms = sbx_clock_ms();
	pthread_mutex_lock(&pool->lock);
	conn->next = pool->idle;
	pool->idle = conn;
	pool->idle_count++;
	pthread_mutex_unlock(&pool->lock);
}

void http_pool_expire(struct http_pool *pool)
{
	struct http_conn *expired;

	pthread_mutex_lock(&pool->lock);
	expired = take_expired_locked(pool, sbx_clock_ms());
	pthread_mutex_unlock(&pool->lock);
	free_list(expired);
}

uint32_t http_pool_idle(struct http_pool *pool)
{
	uint32_t count;

	pthread_mutex_lock(&pool->lock);
	count = pool->idle_count;
	pthread_mutex_unlock(&pool->lock);
	return count;
}

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *arg)
{
	struct http_pool *pool = arg;

	(void)easy;
	(void)access;
	pthread_mutex_lock(&pool->share_locks[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *arg)
{
	struct http_pool *pool = arg;

	(void)easy;
	pthread_mutex_unlock(&pool->share_locks[data]);
}

struct http_pool *http_pool_new(const struct sbx_http_options *options, const char *proxy)
{
	struct http_pool *pool;

	/* libcurl counts these, and each pool undoes its own. */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return NULL;
	pool = g_new0(struct http_pool, 1);
	pthread_mutex_init(&pool->lock, NULL);
	for (size_t i = 0; i < G_N_ELEMENTS(pool->share_locks); i++)
		pthread_mutex_init(&pool->share_locks[i], NULL);
	pool->proxy = g_strdup(proxy);
	pool->cert = g_strdup(options->cert);
	pool->key = g_strdup(options->key);
	pool->cacert = g_strdup(options->cacert);
	pool->connect_timeout_ms = options->connect_timeout_ms > 0 ? options->connect_timeout_ms
								   : DEFAULT_CONNECT_TIMEOUT_MS;
	pool->share = curl_share_init();
	if (pool->share == NULL) {
		http_pool_free(pool);
		return NULL;
	}
	curl_share_setopt(pool->share, CURLSHOPT_LOCKFUNC, share_lock);
	curl_share_setopt(pool->share, CURLSHOPT_UNLOCKFUNC, share_unlock);
	curl_share_setopt(pool->share, CURLSHOPT_USERDATA, pool);
	curl_share_setopt(pool->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
	curl_share_setopt(pool->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
	return pool;
}

void http_pool_free(struct http_pool *pool)
{
	if (pool == NULL)
		return;
	free_list(pool->idle);
	curl_share_cleanup(pool->share);
	for (size_t i = 0; i < G_N_ELEMENTS(pool->share_locks); i++)
		pthread_mutex_destroy(&pool->share_locks[i]);
	pthread_mutex_destroy(&pool->lock);
	g_free(pool->proxy);
	g_free(pool->cert);
	g_free(pool->key);
	g_free(pool->cacert);
	g_free(pool);
	curl_global_cleanup();
}

/* --- libcurl's callbacks: in the caller's thread, inside curl_multi_perform() --- */

static int64_t sent_bytes(const struct transfer *transfer)
{
	curl_off_t up = 0;

	curl_easy_getinfo(transfer->conn->easy, CURLINFO_SIZE_UPLOAD_T, &up);
	return up;
}

/* The length of the request's body; INT64_MAX: not known yet. */
static int64_t body_size(const struct transfer *transfer)
{
	const struct sbx_source *body = transfer->request->body;

	if (body == NULL)
		return 0;
	if (body->len_bytes >= 0)
		return body->len_bytes;
	return transfer->body_ended ? transfer->body_end : INT64_MAX;
}

static size_t on_read(char *buf, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;
	const struct sbx_source *body = transfer->request->body;
	size_t room = size * count;
	int64_t left;
	ssize_t n;

	/*
	 * More is asked for only when all before was sent. If nothing was, libcurl has changed to
	 * a new connection, which it does without on_seek() while none of the body has left.
	 */
	if (transfer->body_read > 0 && sent_bytes(transfer) == 0)
		transfer->body_read = 0;
	left = body_size(transfer) - transfer->body_read;
	if (left <= 0)
		return 0;
	if ((int64_t)room > left)
		room = (size_t)left;
	n = body->read_at(body->arg, buf, room, transfer->body_read);
	if (n == 0 && body->len_bytes < 0) {
		transfer->body_end = transfer->body_read;
		transfer->body_ended = true;
		return 0;
	}
	if (n <= 0 || (size_t)n > room) {
		http_attempt_fail(transfer->attempt, SBX_FAIL_LOCAL, n < 0 ? (int)n : -EIO,
				  "what was to be sent could not be read");
		return CURL_READFUNC_ABORT;
	}
	transfer->body_read += n;
	return (size_t)n;
}

/*
 * libcurl sends a request again by itself when a kept connection turns out to be dead, and rewinds
 * the body for it if some was sent: here what must not be repeated is stopped.
 */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
	struct transfer *transfer = arg;
	int64_t len = body_size(transfer);

	if (origin != SEEK_SET || offset < 0 || offset > len)
		return CURL_SEEKFUNC_FAIL;
	/* How much had left before is not to be learnt here: libcurl counts anew already. */
	if (transfer->body_read >= len)
		transfer->was_whole = true;
	if (transfer->was_whole && transfer->request->repeat != SBX_HTTP_IDEMPOTENT)
		return CURL_SEEKFUNC_FAIL;
	transfer->body_read = offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;

	(void)line;
	transfer->reply_started = true;
	transfer->header_bytes += size * count;
	if (transfer->header_bytes > HEADERS_MAX) {
		http_attempt_fail(transfer->attempt, SBX_FAIL_FOREIGN, -EIO,
				  "the answer's headers are too long");
		return 0;
	}
	return size * count;
}

static const char *reply_header(const struct transfer *transfer, const char *name)
{
	struct curl_header *header;

	if (curl_easy_header(transfer->conn->easy, name, 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
		return NULL;
	return header->value;
}

/* Before the first byte of the body, also of an empty one. */
static int begin_body(struct transfer *transfer)
{
	struct http_attempt *attempt = transfer->attempt;
	const struct sbx_http_request *request = transfer->request;
	curl_off_t length = -1;
	int64_t offset = 0;
	long status = 0;

	transfer->begun = true;
	curl_easy_getinfo(transfer->conn->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(transfer->conn->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	attempt->reply.status = (int)status;
	if (!http_attempt_succeeded(attempt))
		return 0;
	if (length < 0 && reply_header(transfer, "Transfer-Encoding") == NULL) {
		/* It ends with the connection, so a short one could not be told. */
		http_attempt_fail(attempt, SBX_FAIL_FOREIGN, -EIO, "an answer without a length");
		return -1;
	}
	if (status == 206) {
		offset = http_range_offset(reply_header(transfer, "Content-Range"));
		if (request->range == NULL || offset < 0) {
			http_attempt_fail(attempt, SBX_FAIL_FOREIGN, -EIO,
					  "a part was sent that was not asked for");
			return -1;
		}
	}
	return http_body_begin(&transfer->body, attempt, offset, length);
}

static size_t on_write(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;
	size_t len = size * count;

	if (!transfer->begun && begin_body(transfer) < 0)
		return 0;
	return http_body_take(&transfer->body, transfer->attempt, data, len) < 0 ? 0 : len;
}

/* --- one attempt --- */

static enum sbx_fail_kind kind_of(CURLcode code, bool connected)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return SBX_FAIL_RESOLVE;
	case CURLE_COULDNT_CONNECT:
	case CURLE_PROXY:
	case CURLE_OPERATION_TIMEDOUT: /* the only limit libcurl is given is that of connecting */
		return SBX_FAIL_CONNECT;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_ENGINE_NOTFOUND:
	case CURLE_SSL_ENGINE_SETFAILED:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_ENGINE_INITFAILED:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CRL_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_CLIENTCERT:
		return SBX_FAIL_TLS;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_BAD_CONTENT_ENCODING:
		return SBX_FAIL_FOREIGN;
	case CURLE_OUT_OF_MEMORY:
	case CURLE_FAILED_INIT:
	case CURLE_BAD_FUNCTION_ARGUMENT:
		return SBX_FAIL_LOCAL;
	default:
		return connected ? SBX_FAIL_LOST : SBX_FAIL_CONNECT;
	}
}

static void set_common(struct transfer *transfer, const struct http_pool *pool,
		       const struct sbx_call *call)
{
	CURL *easy = transfer->conn->easy;
	int64_t connect_ms = pool->connect_timeout_ms;

	if (call->stall_timeout_ms > 0)
		connect_ms = MIN(connect_ms, call->stall_timeout_ms);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	/* Else giving up waits for a name server that does not answer. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "sbxfs");
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->curl_text);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
	/* libcurl compares whole seconds with "greater than". */
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)(IDLE_MAX_MS / 1000 - 1));
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer->conn);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, transfer->conn);
	curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)DOWNLOAD_BUFFER);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);

	/* Never left to the environment: http_proxy_choose() has looked at that. */
	curl_easy_setopt(easy, CURLOPT_PROXY, pool->proxy);
	curl_easy_setopt(easy, CURLOPT_NOPROXY, *pool->proxy == '\0' ? "*" : "");
	curl_easy_setopt(easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	if (pool->cert != NULL)
		curl_easy_setopt(easy, CURLOPT_SSLCERT, pool->cert);
	if (pool->key != NULL)
		curl_easy_setopt(easy, CURLOPT_SSLKEY, pool->key);
	if (pool->cacert != NULL) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, pool->cacert);
		curl_easy_setopt(easy, CURLOPT_PROXY_CAINFO, pool->cacert);
	}
}

static void set_request(struct transfer *transfer, const struct sbx_endpoint *endpoint)
{
	const struct sbx_http_request *request = transfer->request;
	g_autofree char *url = g_strconcat(endpoint->text, request->path, NULL);
	CURL *easy = transfer->conn->easy;

	curl_easy_setopt(easy, CURLOPT_URL, url);
	if (request->body != NULL) {
		int64_t len = request->body->len_bytes;
		long buffer = body_size(transfer) > UPLOAD_BUFFER_SMALL ? UPLOAD_BUFFER
									: UPLOAD_BUFFER_SMALL;

		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, buffer);
		curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
		curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
		curl_easy_setopt(easy, CURLOPT_SEEKDATA, transfer);
	} else if (strcmp(request->method, "POST") == 0) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, 0L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "");
	}
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->range != NULL)
		curl_easy_setopt(easy, CURLOPT_RANGE, request->range);
}

static void free_headers(struct curl_slist *list)
{
	for (struct curl_slist *line = list; line != NULL; line = line->next)
		explicit_bzero(line->data, strlen(line->data));
	curl_slist_free_all(list);
}

/* Takes the list; NULL in, NULL out. */
static struct curl_slist *add_header(struct curl_slist *list, const char *line)
{
	struct curl_slist *longer = list != NULL ? curl_slist_append(list, line) : NULL;

	if (longer == NULL)
		free_headers(list);
	return longer;
}

static struct curl_slist *make_headers(struct sbx_token *token,
				       const struct sbx_http_request *request)
{
	struct curl_slist *list = curl_slist_append(NULL, "Expect:");
	char *line = sbx_token_header(token);

	if (line != NULL)
		list = add_header(list, line);
	sbx_token_header_free(line);
	if (request->body != NULL || strcmp(request->method, "POST") == 0) {
		g_autofree char *type =
			g_strconcat("Content-Type: ",
				    request->content_type != NULL ? request->content_type
								  : "application/octet-stream",
				    NULL);

		list = add_header(list, type);
	}
	return list;
}

static void wake_multi(void *arg)
{
	curl_multi_wakeup(arg);
}

/* Of a body that is sent, what the system has taken over and the other side has not: on a slow line
 * that is much, for long. */
static int64_t queued_bytes(const struct transfer *transfer)
{
	const int *fds = transfer->conn->fds;
	int64_t sum = 0;
	int queued;

	if (transfer->request->body == NULL)
		return 0;
	for (size_t i = 0; i < OPEN_MAX; i++)
		if (fds[i] >= 0 && ioctl(fds[i], SIOCOUTQ, &queued) == 0)
			sum += queued;
	return sum;
}

/* Bytes that libcurl has sent or received. */
static int64_t moved_bytes(const struct transfer *transfer)
{
	CURL *easy = transfer->conn->easy;
	curl_off_t down = 0;

	curl_easy_getinfo(easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	return sent_bytes(transfer) + down + (int64_t)transfer->header_bytes;
}

/*
 * Drives the transfer to its end. True with libcurl's result; false when it was stopped from here,
 * which http_attempt_fail() was told.
 */
static bool drive(struct transfer *transfer, const struct sbx_call *call, CURLcode *ret_code)
{
	struct http_attempt *attempt = transfer->attempt;
	CURLM *multi = transfer->conn->multi;
	int64_t body_len = body_size(transfer);
	int64_t moved_before = 0;
	bool unlimited = false;

	for (;;) {
		int64_t wait_ms = POLL_MAX_MS;
		int64_t queued;
		int64_t now_ms;
		int64_t moved;
		CURLMsg *msg;
		int running;
		int left;

		if (curl_multi_perform(multi, &running) != CURLM_OK) {
			http_attempt_fail(attempt, SBX_FAIL_LOCAL, -EIO, "libcurl failed");
			return false;
		}
		if (http_body_flush(&transfer->body, attempt) < 0)
			return false;
		now_ms = sbx_clock_ms();
		queued = queued_bytes(transfer);
		/* Bytes that crossed the wire, either way: its change is progress. */
		moved = moved_bytes(transfer) - queued;
		if (moved != moved_before) {
			moved_before = moved;
			attempt->since_ms = now_ms;
			if (attempt->progress_ms != NULL)
				atomic_store(attempt->progress_ms, now_ms);
			if (call->moved != NULL)
				call->moved(call->moved_arg);
		}
		while ((msg = curl_multi_info_read(multi, &left)) != NULL) {
			if (msg->msg == CURLMSG_DONE) {
				*ret_code = msg->data.result;
				return true;
			}
		}
		if (attempt->sent != NULL && !unlimited && body_len > 0 &&
		    sent_bytes(transfer) >= body_len) {
			unlimited = true;
			attempt->sent(attempt->sent_arg);
		}
		if (sbx_cancel_fired(call->cancel)) {
			http_attempt_fail(attempt, SBX_FAIL_CANCEL, -EINTR, "cancelled");
			return false;
		}
		if (!unlimited) {
			wait_ms = http_attempt_patience(attempt, call, now_ms, POLL_MAX_MS);
			if (wait_ms == 0)
				return false;
		}
		if (queued > 0)
			wait_ms = MIN(wait_ms, POLL_QUEUED_MS);
		curl_multi_poll(multi, NULL, 0, (int)wait_ms, NULL);
	}
}

/* What is to be known of the attempt, while its handle still knows it. */
static void note_facts(struct transfer *transfer)
{
	struct http_attempt *attempt = transfer->attempt;
	CURL *easy = transfer->conn->easy;
	const struct sbx_source *body = transfer->request->body;
	curl_off_t pretransfer = 0;
	curl_off_t down = 0;
	long connects = 0;

	curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer);
	curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
	curl_easy_getinfo(easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	attempt->facts.connected = pretransfer > 0 || transfer->was_whole;
	attempt->facts.reused_connection = attempt->facts.connected && connects == 0;
	attempt->facts.reply_started = transfer->reply_started;
	attempt->facts.body_whole =
		body == NULL || transfer->was_whole || sent_bytes(transfer) >= body_size(transfer);
	attempt->bytes_in = (uint64_t)down;
	attempt->bytes_out = (uint64_t)sent_bytes(transfer);
	attempt->connects = (unsigned int)connects;
}

/* What libcurl's result means. */
static void judge(struct transfer *transfer, CURLcode code)
{
	struct http_attempt *attempt = transfer->attempt;

	if (code == CURLE_OK) {
		if (!transfer->begun)
			(void)begin_body(transfer);
	} else if (!transfer->body.enough) {
		enum sbx_fail_kind kind = kind_of(code, attempt->facts.connected);

		const char *text = *transfer->curl_text != '\0' ? transfer->curl_text
								: curl_easy_strerror(code);
		g_autofree char *why = NULL;
		long os_error = 0;

		if (kind == SBX_FAIL_CONNECT)
			curl_easy_getinfo(transfer->conn->easy, CURLINFO_OS_ERRNO, &os_error);
		why = g_strjoin(": ", text, os_error ? g_strerror((int)os_error) : NULL, NULL);
		http_attempt_fail(attempt, kind,
				  kind == SBX_FAIL_LOCAL ? -ENOMEM : sbx_errmap_transport(kind),
				  why);
	}
	if (attempt->kind == SBX_FAIL_NONE)
		attempt->retry_after = g_strdup(reply_header(transfer, "Retry-After"));
}

/* With the connection made ready: returns whether it may be used again. */
static bool transfer_run(struct transfer *transfer, const struct sbx_call *call)
{
	struct http_attempt *attempt = transfer->attempt;
	struct http_conn *conn = transfer->conn;
	struct sbx_cancel_hook hook;
	CURLcode code = CURLE_OK;
	bool ended = false;

	if (sbx_cancel_hook_add(call->cancel, &hook, wake_multi, conn->multi) < 0) {
		http_attempt_fail(attempt, SBX_FAIL_CANCEL, -EINTR, "cancelled");
		return false;
	}
	if (curl_multi_add_handle(conn->multi, conn->easy) == CURLM_OK) {
		ended = drive(transfer, call, &code);
		note_facts(transfer);
		if (ended)
			judge(transfer, code);
		curl_multi_remove_handle(conn->multi, conn->easy);
	} else {
		http_attempt_fail(attempt, SBX_FAIL_LOCAL, -EIO, "libcurl failed");
	}
	sbx_cancel_hook_del(call->cancel, &hook);
	return ended && code == CURLE_OK;
}

void http_attempt_run(struct sbx_http *http, const struct sbx_call *call,
		      struct http_attempt *attempt)
{
	struct transfer transfer = { .attempt = attempt, .request = attempt->request };
	struct curl_slist *headers = make_headers(http->token, attempt->request);
	bool keep = false;

	transfer.conn = conn_take(http->pool, attempt->fresh);
	if (transfer.conn != NULL && headers != NULL) {
		set_common(&transfer, http->pool, call);
		set_request(&transfer, http->endpoint);
		curl_easy_setopt(transfer.conn->easy, CURLOPT_HTTPHEADER, headers);
		keep = transfer_run(&transfer, call);
	} else {
		http_attempt_fail(attempt, SBX_FAIL_LOCAL, -ENOMEM, "out of memory");
	}
	if (keep)
		conn_give_back(http->pool, transfer.conn);
	else
		conn_free(transfer.conn);
	http_body_clear(&transfer.body);
	free_headers(headers);
	if (attempt->kind != SBX_FAIL_NONE)
		sbx_http_reply_clear(&attempt->reply);
}
