#include "client/stats.h"

#include <stddef.h>

const int64_t sbx_stats_bucket_ms[SBX_STATS_BUCKETS - 1] = {
	1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000, 30000,
};

static const char *const wire_op_names[SBX_OP_COUNT] = {
	[SBX_OP_PROBE] = "probe",     [SBX_OP_CREATE] = "create",
	[SBX_OP_DELETE] = "delete",   [SBX_OP_REATTACH] = "reattach",
	[SBX_OP_GET] = "get",	      [SBX_OP_PUT] = "put",
	[SBX_OP_STAT] = "stat",	      [SBX_OP_READDIR] = "readdir",
	[SBX_OP_EXEC] = "exec",	      [SBX_OP_EXEC_DETACHED] = "exec_detached",
	[SBX_OP_PERSIST] = "persist", [SBX_OP_HYDRATE] = "hydrate",
};

const char *sbx_wire_op_name(enum sbx_wire_op op)
{
	return (unsigned int)op < SBX_OP_COUNT ? wire_op_names[op] : "unknown";
}

unsigned int sbx_stats_bucket(int64_t latency_us)
{
	unsigned int i = 0;

	while (i < SBX_STATS_BUCKETS - 1 && latency_us > sbx_stats_bucket_ms[i] * 1000)
		i++;
	return i;
}
