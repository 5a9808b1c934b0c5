/*
 * Fault rules: which requests are spoiled, and how. The form of a rule is in sbxd --help.
 *
 * Rules come from the command line, or from a control file that is read again whenever it changed;
 * the file's rules then replace all others and their counters start anew. One lock, a leaf.
 */
#ifndef SBX_SBXD_FAULT_H
#define SBX_SBXD_FAULT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/sbxd/service.h"

struct fault_set;

/* All that is done to one request; the rules that match add up. */
struct fault {
	bool refuse;
	bool blackhole;
	bool drop;
	bool garbage;
	bool wrongtype;
	bool echo_auth;
	int status; /* 0: none */
	int retry_after_s; /* -1: none */
	int64_t delay_ms;
	int64_t close_idle_ms; /* -1: as always */
	char *reply; /* NULL: none */
	struct reply_damage damage;
};

bool fault_rule_is_valid(const char *text);

/* @rules: char *, valid ones. @path: the control file, or NULL. */
struct fault_set *fault_set_new(const GPtrArray *rules, const char *path);
void fault_set_free(struct fault_set *set);

/* Count this request in every rule of its route, and gather what the rules do to it. */
void fault_find(struct fault_set *set, enum route route, const char *session_id,
		struct fault *ret_fault);
void fault_clear(struct fault *fault);

/* Replace the reply by what the fault says it should be; x->req is still whole. */
void fault_spoil_reply(const struct fault *fault, struct exchange *x);

#endif
