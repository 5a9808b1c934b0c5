/*
 * The request log: one JSON object a line. Who has the last byte of an answer finds it there; of
 * what is cut, trickles, is dropped or was refused before all of it had come, a moment later.
 *
 *   {"time":ms since 1970 when the head was whole,"method","route","session","path","status",
 *    "in","out": bytes of the request and of the answer, heads included,"ms":duration,
 *    "conn":number of the connection, and of exec "program": the first 60 bytes of argv[3]
 *    (the $0 given to `sh -c`), "cwd"}
 *
 * status is 0 where no answer was sent. One lock, a leaf; each line is one write.
 */
#ifndef SBX_SBXD_REQLOG_H
#define SBX_SBXD_REQLOG_H

#include <stdint.h>

#include "tests/sbxd/service.h"

struct reqlog;

/* @path NULL: nothing is logged. 0 or negative errno. */
int reqlog_open(const char *path, struct reqlog **ret_log);
void reqlog_close(struct reqlog *log);

struct reqlog_entry {
	int64_t time_ms;
	int64_t duration_ms;
	int status;
	uint64_t bytes_in;
	uint64_t bytes_out;
};

void reqlog_write(struct reqlog *log, const struct exchange *x, const struct reqlog_entry *entry);

#endif
