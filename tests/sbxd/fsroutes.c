#include "tests/sbxd/fsroutes.h"
#include "tests/sbxd/json.h"
#include "tests/sbxd/pathcheck.h"
#include "tests/sbxd/pool.h"
#include "tests/sbxd/routes.h"
#include "tests/sbxd/tree.h"
#include "tests/sbxd/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Node refuses to read files of this size or more. */
#define READ_LIMIT_BYTES (INT64_C(1) << 31)
/* Up to here a file is read at once, so that the answer is of one moment; beyond, it is sent. */
#define SNAPSHOT_LIMIT_BYTES (16 << 20)
#define WRITE_STEP_BYTES     (512 * 1024)

char *fsroutes_check(struct exchange *x, const GString *asked)
{
	g_autofree char *message = NULL;
	char *path = NULL;

	switch (path_check(x->session, asked, &path, &message)) {
	case PATH_GOOD:
		return path;
	case PATH_DENIED:
		reply_error(&x->reply, 403, "path_denied", message);
		return NULL;
	case PATH_UNUSABLE:
		reply_error(&x->reply, 500, "internal_error", message);
		return NULL;
	}
	return NULL;
}

/* Wait until a FIFO has something to say: a writer's bytes, or its end. */
static bool wait_readable(const struct exchange *x, int fd)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
				{ .fd = x->service->stop_fd, .events = POLLIN } };

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
	return fds[0].revents != 0;
}

/* Read to the end of file, whatever size was told. */
static int read_all(const struct exchange *x, int fd, size_t hint_bytes, bool fifo, GString *out)
{
	size_t room = MAX(hint_bytes, 4096);

	for (;;) {
		size_t had = out->len;
		ssize_t got;

		if (fifo && !wait_readable(x, fd))
			return -ECANCELED;
		g_string_set_size(out, had + room);
		got = read(fd, out->str + had, room);
		g_string_truncate(out, had + (gsize)MAX(got, 0));
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (got == 0)
			return 0;
		room = MAX(4096, room - (size_t)MAX(got, 0));
	}
}

static void reply_range(struct exchange *x, uint64_t size)
{
	uint64_t from, to = size ? size - 1 : 0;
	g_autofree char *text = NULL;
	int fields;

	if (!x->service->opt->range || !x->req->range || x->reply.status != 200 || size == 0)
		return;
	fields = sscanf(x->req->range, "bytes=%" SCNu64 "-%" SCNu64, &from, &to);
	if (fields < 1 || from >= size || to < from)
		return;
	to = MIN(to, size - 1);
	text = g_strdup_printf("bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, from, to, size);
	if (x->reply.text) {
		g_string_truncate(x->reply.text, to + 1);
		g_string_erase(x->reply.text, 0, (gssize)from);
	} else {
		x->reply.fd_offset = from;
		x->reply.fd_bytes = to - from + 1;
	}
	x->reply.status = 206;
	reply_header(&x->reply, "content-range", text);
}

static void read_into_reply(struct exchange *x, int fd, const struct stat *st)
{
	bool fifo = S_ISFIFO(st->st_mode);
	GString *bytes;
	int err;

	bytes = g_string_sized_new(S_ISREG(st->st_mode) ? (gsize)st->st_size + 1 : 4096);
	err = read_all(x, fd, S_ISREG(st->st_mode) ? (size_t)st->st_size : 0, fifo, bytes);
	if (err) {
		g_string_free(bytes, TRUE);
		if (err != -ECANCELED)
			reply_errno(&x->reply, -err, "read", NULL);
		return;
	}
	reply_bytes(&x->reply, bytes);
	reply_range(x, bytes->len);
}

/* Take over an open file and answer with its bytes. */
static void answer_open_file(struct exchange *x, int fd)
{
	g_autofree char *message = NULL;
	struct stat st;

	if (fstat(fd, &st) < 0) {
		reply_errno(&x->reply, errno, "fstat", NULL);
	} else if (S_ISREG(st.st_mode) && st.st_size >= READ_LIMIT_BYTES) {
		message = g_strdup_printf("File size (%" PRId64 ") is greater than 2 GiB",
					  (int64_t)st.st_size);
		reply_error(&x->reply, 500, "internal_error", message);
	} else if (S_ISREG(st.st_mode) && st.st_size > SNAPSHOT_LIMIT_BYTES) {
		reply_file(&x->reply, fd, 0, (uint64_t)st.st_size);
		reply_range(x, (uint64_t)st.st_size);
		return;
	} else {
		read_into_reply(x, fd, &st);
	}
	close(fd);
}

void fsroutes_get(struct exchange *x)
{
	g_autofree char *path = NULL;
	int fd;

	if (pool_enter(x->service->pool))
		return;
	path = fsroutes_check(x, x->path);
	if (path) {
		/*
		 * O_NONBLOCK only so that a FIFO can be waited for together with the stop event;
		 * to its writers, and to everybody who waits for our place, it looks the same.
		 */
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			reply_errno(&x->reply, errno, "open", path);
		else
			answer_open_file(x, fd);
	}
	pool_leave(x->service->pool);
}

static int write_steps(int fd, const unsigned char *data, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t put = write(fd, data, MIN(len_bytes, WRITE_STEP_BYTES));

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		data += put;
		len_bytes -= (size_t)put;
	}
	return 0;
}

/* Replace the file as the reference server does: gone first, then new, then filled. */
static void put_file(struct exchange *x, const char *path, const struct body *body)
{
	g_autofree char *parent = g_path_get_dirname(path);
	static const struct timespec gap = { .tv_nsec = 300 * 1000 };
	int fd, err = tree_make_dirs(parent);

	if (err) {
		reply_errno(&x->reply, -err, "mkdir", parent);
		return;
	}
	unlink(path);
	/* Others get into this gap there, because each step goes through the event loop. */
	if (atomic_load(&x->service->puts) > 1)
		nanosleep(&gap, NULL);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		reply_errno(&x->reply, errno, "open", path);
		return;
	}
	err = write_steps(fd, body->data, body->len_bytes);
	if (close(fd) < 0 && !err)
		err = -errno;
	if (err)
		reply_errno(&x->reply, -err, "write", NULL);
	else
		reply_ok(&x->reply);
}

void fsroutes_put(struct exchange *x)
{
	g_autofree char *path = NULL;
	struct body body;

	/* The path is judged before the body is read, and refused without reading it. */
	if (pool_enter(x->service->pool))
		return;
	path = fsroutes_check(x, x->path);
	pool_leave(x->service->pool);
	if (!path || routes_read_body(x, &body))
		return;
	if (body.too_large) {
		reply_error(&x->reply, 500, "internal_error",
			    "The value of \"size\" is out of range. It must be >= 0 && <= "
			    "4294967296.");
		return;
	}
	atomic_fetch_add(&x->service->puts, 1);
	if (pool_enter(x->service->pool) == 0) {
		put_file(x, path, &body);
		pool_leave(x->service->pool);
	}
	atomic_fetch_sub(&x->service->puts, 1);
	body_clear(&body);
}

static void answer_stat(struct exchange *x, const struct stat *st)
{
	GString *json = g_string_new("{");
	int64_t whole_ms = st->st_mtim.tv_sec * INT64_C(1000) + x->service->opt->clock_skew_ms;

	g_string_append_printf(json, "\"size\":%" PRId64 ",\"mtimeMs\":",
			       S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode)
				       ? (int64_t)st->st_size
				       : 0);
	json_append_number(json, (double)whole_ms + (double)st->st_mtim.tv_nsec / 1e6);
	g_string_append_printf(json, ",\"isFile\":%s,\"isDirectory\":%s,\"mode\":%u}",
			       S_ISREG(st->st_mode) ? "true" : "false",
			       S_ISDIR(st->st_mode) ? "true" : "false",
			       (unsigned int)st->st_mode & 07777);
	reply_json(&x->reply, json);
}

void fsroutes_stat(struct exchange *x)
{
	g_autofree char *path = NULL;
	g_autofree char *message = NULL;
	struct stat st;

	if (pool_enter(x->service->pool))
		return;
	path = fsroutes_check(x, x->path);
	if (!path) {
		/* the refusal is in the reply */
	} else if (lstat(path, &st) == 0) {
		answer_stat(x, &st);
	} else if (errno == ENOENT) {
		message = g_strdup_printf("no such path: %s", x->path->str);
		reply_error(&x->reply, 404, "not_found", message);
	} else {
		reply_errno(&x->reply, errno, "lstat", path);
	}
	pool_leave(x->service->pool);
}

static int compare_names(const void *a, const void *b)
{
	/* An entry's type byte stands before its name. */
	return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

static bool is_directory(int dir_fd, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static GPtrArray *read_names(DIR *dir)
{
	GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
	const struct dirent *entry;

	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		g_ptr_array_add(names, g_strconcat(is_directory(dirfd(dir), entry) ? "d" : "-",
						   entry->d_name, NULL));
	}
	if (names->len > 0)
		qsort(names->pdata, names->len, sizeof(*names->pdata), compare_names);
	return names;
}

static void answer_names(struct exchange *x, const GPtrArray *names)
{
	GString *json = g_string_sized_new(64 + 48 * (gsize)names->len);
	GString *text = g_string_new(NULL);

	g_string_append_c(json, '[');
	for (guint i = 0; i < names->len; i++) {
		const char *name = names->pdata[i];

		g_string_truncate(text, 0);
		utf8_append_lossy(text, name + 1, strlen(name + 1));
		g_string_append(json, i > 0 ? ",{\"name\":" : "{\"name\":");
		json_append_string(json, text->str, text->len);
		g_string_append(json, *name == 'd' ? ",\"isDirectory\":true}"
						   : ",\"isDirectory\":false}");
	}
	g_string_append_c(json, ']');
	g_string_free(text, TRUE);
	reply_json(&x->reply, json);
}

void fsroutes_readdir(struct exchange *x)
{
	g_autofree char *path = NULL;
	DIR *dir;

	if (pool_enter(x->service->pool))
		return;
	path = fsroutes_check(x, x->path);
	dir = path ? opendir(path) : NULL;
	if (dir) {
		GPtrArray *names = read_names(dir);

		answer_names(x, names);
		g_ptr_array_free(names, TRUE);
		closedir(dir);
	} else if (path) {
		reply_errno(&x->reply, errno, "scandir", path);
	}
	pool_leave(x->service->pool);
}
