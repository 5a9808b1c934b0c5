#include "fusefs/stats.h"

#include <stdint.h>

#include "client/provider.h"
#include "client/stats.h"
#include "fusefs/fs.h"
#include "fusefs/node.h"
#include "fusefs/op.h"

static void head(GString *out, const char *name, const char *type, const char *help)
{
	g_string_append_printf(out, "# HELP sbxfs_%s %s\n# TYPE sbxfs_%s %s\n", name, help, name,
			       type);
}

static void value(GString *out, const char *name, const char *type, const char *help, uint64_t n)
{
	head(out, name, type, help);
	g_string_append_printf(out, "sbxfs_%s %16llu\n", name, (unsigned long long)n);
}

static uint64_t counter(const struct fs *fs, unsigned int which)
{
	return __atomic_load_n(&fs->counters[which], __ATOMIC_RELAXED);
}

static void render_latency(const struct sbx_wire_stats *wire, GString *out)
{
	head(out, "request_seconds", "histogram", "How long requests to the server took.");
	for (int op = 0; op < SBX_OP_COUNT; op++) {
		const struct sbx_op_stats *stats = &wire->op[op];
		const char *name = sbx_wire_op_name((enum sbx_wire_op)op);
		uint64_t sum = 0;

		for (int i = 0; i < SBX_STATS_BUCKETS; i++) {
			sum += stats->latency_bucket[i];
			g_string_append_printf(out, "sbxfs_request_seconds_bucket{op=\"%s\",le=\"",
					       name);
			if (i < SBX_STATS_BUCKETS - 1)
				g_string_append_printf(out, "%lld.%03lld",
						       (long long)(sbx_stats_bucket_ms[i] / 1000),
						       (long long)(sbx_stats_bucket_ms[i] % 1000));
			else
				g_string_append(out, "+Inf");
			g_string_append_printf(out, "\"} %16llu\n", (unsigned long long)sum);
		}
		g_string_append_printf(out,
				       "sbxfs_request_seconds_sum{op=\"%s\"} %9llu.%06llu\n"
				       "sbxfs_request_seconds_count{op=\"%s\"} %16llu\n",
				       name, (unsigned long long)(stats->latency_us_sum / 1000000),
				       (unsigned long long)(stats->latency_us_sum % 1000000), name,
				       (unsigned long long)sum);
	}
}

void stats_render(struct fs *fs, GString *out)
{
	struct sbx_wire_stats wire;
	uint64_t bytes;
	size_t files;

	fs->parts.provider->ops->stats(fs->parts.provider, &wire);
	fs_pending(fs, &files, &bytes);
	head(out, "requests_total", "counter", "Requests to the server that ended.");
	for (int op = 0; op < SBX_OP_COUNT; op++)
		g_string_append_printf(out, "sbxfs_requests_total{op=\"%s\"} %16llu\n",
				       sbx_wire_op_name((enum sbx_wire_op)op),
				       (unsigned long long)wire.op[op].requests);
	head(out, "request_failures_total", "counter", "Requests without a good answer.");
	for (int op = 0; op < SBX_OP_COUNT; op++)
		g_string_append_printf(out, "sbxfs_request_failures_total{op=\"%s\"} %16llu\n",
				       sbx_wire_op_name((enum sbx_wire_op)op),
				       (unsigned long long)wire.op[op].failures);
	render_latency(&wire, out);
	value(out, "received_bytes_total", "counter", "Bytes of answers' bodies.", wire.bytes_in);
	value(out, "sent_bytes_total", "counter", "Bytes of requests' bodies.", wire.bytes_out);
	value(out, "connects_total", "counter", "Connections made.", wire.connects);
	value(out, "resends_total", "counter", "Requests sent again.", wire.resends);
	value(out, "waits_total", "counter", "Answers 429 and 503 that were waited for.",
	      wire.waits);
	value(out, "cancelled_total", "counter", "Requests given up by their caller.",
	      wire.cancelled);
	value(out, "timeouts_total", "counter", "Requests that timed out.", wire.timeouts);
	value(out, "requests_busy", "gauge", "Requests in flight.", wire.busy);
	value(out, "connections_idle", "gauge", "Connections kept open.", wire.idle);
	value(out, "execs_detached", "gauge", "Commands whose answer nobody waits for.",
	      wire.detached);
	head(out, "operations_total", "counter", "Operations that the kernel asked for.");
	for (unsigned int kind = 0; kind < OP_KINDS; kind++)
		g_string_append_printf(out, "sbxfs_operations_total{op=\"%s\"} %16llu\n",
				       op_kind_name((enum op_kind)kind),
				       (unsigned long long)counter(fs, kind));
	value(out, "operations_failed_total", "counter",
	      "Operations answered with an error other than ENOENT and ENOTTY.",
	      counter(fs, OP_FAILED));
	value(out, "operations_refused_total", "counter",
	      "Operations refused since their session held too many threads.",
	      counter(fs, OP_REFUSED));
	value(out, "nodes", "gauge", "Files and directories that the kernel knows.",
	      node_count(fs->nodes));
	value(out, "pending_files", "gauge", "Files with bytes that are not sent yet.", files);
	value(out, "pending_bytes", "gauge", "Bytes that are not sent yet.", bytes);
}
