#include "tests/sbxd/reqlog.h"
#include "tests/sbxd/json.h"
#include "tests/sbxd/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

struct reqlog {
	pthread_mutex_t lock;
	int fd; /* -1: no log */
};

int reqlog_open(const char *path, struct reqlog **ret_log)
{
	struct reqlog *log;
	int fd = -1;

	if (path) {
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd < 0)
			return -errno;
	}
	log = g_new0(struct reqlog, 1);
	log->fd = fd;
	pthread_mutex_init(&log->lock, NULL);
	*ret_log = log;
	return 0;
}

void reqlog_close(struct reqlog *log)
{
	if (log->fd >= 0)
		close(log->fd);
	pthread_mutex_destroy(&log->lock);
	g_free(log);
}

void reqlog_write(struct reqlog *log, const struct exchange *x, const struct reqlog_entry *entry)
{
	GString *line;

	if (log->fd < 0)
		return;
	line = g_string_new("{");
	json_append_member_int(line, "time", entry->time_ms);
	json_append_member(line, "method", x->req->method);
	json_append_member(line, "route", routes_name(x->route));
	json_append_member(line, "session", x->session_id);
	json_append_member(line, "path", x->path ? x->path->str : NULL);
	json_append_member_int(line, "status", entry->status);
	json_append_member_int(line, "in", (long long)entry->bytes_in);
	json_append_member_int(line, "out", (long long)entry->bytes_out);
	json_append_member_int(line, "ms", entry->duration_ms);
	json_append_member_int(line, "conn", (long long)x->conn->number);
	if (x->route == ROUTE_EXEC) {
		json_append_member(line, "program", x->program);
		json_append_member(line, "cwd", x->cwd);
	}
	g_string_append(line, "}\n");
	pthread_mutex_lock(&log->lock);
	if (write(log->fd, line->str, line->len) < 0) {
		/* A full disk must not stop the server; the reader misses a line. */
	}
	pthread_mutex_unlock(&log->lock);
	g_string_free(line, TRUE);
}
