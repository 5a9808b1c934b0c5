/*
 * Answers: what a route decided, and the exact bytes that tell it.
 *
 * A reply belongs to its connection's thread; no locks.
 */
#ifndef SBX_SBXD_REPLY_H
#define SBX_SBXD_REPLY_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/sbxd/conn.h"

struct reply {
	int status; /* 0: nothing is answered, the connection just ends */
	const char *type; /* content-type; static */
	GString *text; /* the body, unless it is a file */
	int fd; /* the body as a file, or -1; owned */
	uint64_t fd_offset;
	uint64_t fd_bytes;
	GString *headers; /* further header lines, each with its CR LF; NULL: none */
};

/* How an answer is spoiled on its way out. */
struct reply_damage {
	int64_t cut_bytes; /* stop after so much of the body; -1: not */
	int64_t trickle_per_s; /* bytes of body a second; 0: as fast as it goes */
};

/* Told before an answer's last @left_bytes go out. Not of one that is spoiled on its way. */
struct reply_watch {
	void (*ends)(void *arg, uint64_t left_bytes);
	void *arg;
};

void reply_init(struct reply *reply);
void reply_clear(struct reply *reply);

/* 200 with JSON, which is taken over. */
void reply_json(struct reply *reply, GString *json);
/* 200 with bytes, taken over. */
void reply_bytes(struct reply *reply, GString *bytes);
/* 200 with a file's bytes; @fd is taken over. */
void reply_file(struct reply *reply, int fd, uint64_t offset, uint64_t len_bytes);
/* 200 {"ok":true} */
void reply_ok(struct reply *reply);
/* The error envelope. retryable is null for internal_error, else false. */
void reply_error(struct reply *reply, int status, const char *code, const char *message);
/* 500 internal_error in libuv's words; see errtext_message(). */
void reply_errno(struct reply *reply, int err, const char *call, const char *path);
/* Add a header line. */
void reply_header(struct reply *reply, const char *name, const char *value);

/*
 * Send it. @head_only: HEAD, no body. 0, or negative errno when the connection is of no more use
 * (-ECONNABORTED: cut on purpose). May block.
 */
int reply_send(const struct reply *reply, struct conn *conn, bool keep_alive, bool head_only,
	       const struct reply_damage *damage, const struct reply_watch *watch);

/*
 * Node's own refusals, which have no JSON body. 400, 408 and 431 are all there is before the
 * connection ends; with @chunked (400 for a missing Host, 417) they are built like an answer.
 */
int reply_send_bare(struct conn *conn, int status, bool chunked, bool keep_alive);

#endif
