/*
 * Counters of what went over the wire, for the file `stats`. A snapshot is a plain struct; the
 * owner of the counters (client/http.c) holds them under a lock of its own.
 */
#ifndef SBX_CLIENT_STATS_H
#define SBX_CLIENT_STATS_H

#include <stdint.h>

/* What a request was for; the index of per-operation counters. */
enum sbx_wire_op {
	SBX_OP_PROBE,
	SBX_OP_CREATE,
	SBX_OP_DELETE,
	SBX_OP_REATTACH,
	SBX_OP_GET,
	SBX_OP_PUT,
	SBX_OP_STAT,
	SBX_OP_READDIR,
	SBX_OP_EXEC,
	SBX_OP_EXEC_DETACHED,
	SBX_OP_PERSIST,
	SBX_OP_HYDRATE,
	SBX_OP_COUNT,
};

/* The upper bounds of the latency buckets, in milliseconds; the last bucket has none. */
#define SBX_STATS_BUCKETS 12
extern const int64_t sbx_stats_bucket_ms[SBX_STATS_BUCKETS - 1];

struct sbx_op_stats {
	uint64_t requests; /* finished, whatever the outcome */
	uint64_t failures; /* those without a 2xx answer received whole */
	uint64_t latency_us_sum;
	uint64_t latency_bucket[SBX_STATS_BUCKETS]; /* not cumulative */
};

struct sbx_wire_stats {
	struct sbx_op_stats op[SBX_OP_COUNT];
	uint64_t bytes_in; /* bodies of answers */
	uint64_t bytes_out; /* bodies of requests */
	uint64_t connects;
	uint64_t resends; /* stale connections, and once after a 401 */
	uint64_t waits; /* 429 and 503 that were waited for */
	uint64_t cancelled;
	uint64_t timeouts;
	uint32_t busy; /* requests in flight now */
	uint32_t idle; /* connections kept open now */
	uint32_t detached; /* execs whose answer nobody waits for */
};

/* "get", "exec", ...: constants, as in struct sbx_failure. */
const char *sbx_wire_op_name(enum sbx_wire_op op);

/* Which bucket a latency falls in. */
unsigned int sbx_stats_bucket(int64_t latency_us);

#endif
