#include "client/workspace/runner.h"

#include <errno.h>
#include <string.h>

#include "client/errlog.h"
#include "client/provider.h"
#include "client/session.h"
#include "client/workspace/names_impl.h"

/* Where a backend joins a command into one argument of a shell (wire.md 4.4), with quotes. */
#define SHORT_COMMAND_BYTES (120 * 1024)
#define LEAST_COMMAND_BYTES (32 * 1024)
/* No answer that was cut below this is believed to be cut by the backend. */
#define LEAST_REPLY_BYTES (16 * 1024)
/* Drift and coarse file clocks: how far a clock may leave its bounds without having been set. */
#define CLOCK_SLACK_NS (200 * INT64_C(1000000))
#define SECOND_NS      INT64_C(1000000000)
#define MESSAGE_MAX    400

bool sbx_names_has_exec(struct sbx_names *names)
{
	bool has;

	pthread_mutex_lock(&names->lock);
	has = names->options.use_exec && !names->no_exec;
	pthread_mutex_unlock(&names->lock);
	return has;
}

void sbx_names_limits(struct sbx_names *names, struct sbx_program_limits *ret_limits)
{
	pthread_mutex_lock(&names->lock);
	*ret_limits = names->limits;
	pthread_mutex_unlock(&names->lock);
}

/* A command of @bytes was refused as too long. False: it can't be made shorter. */
static bool learn_command_limit(struct sbx_names *names, size_t bytes)
{
	struct sbx_program_limits *limits = &names->limits;
	bool learnt = false;

	pthread_mutex_lock(&names->lock);
	if (limits->command_bytes >= bytes && bytes > LEAST_COMMAND_BYTES) {
		limits->command_bytes = bytes > SHORT_COMMAND_BYTES
						? SHORT_COMMAND_BYTES
						: MAX(bytes / 2, LEAST_COMMAND_BYTES);
		limits->arg_bytes = MIN(limits->arg_bytes, limits->command_bytes / 4 * 3);
		learnt = true;
	} else if (limits->command_bytes < bytes) {
		learnt = true; /* by another caller */
	}
	pthread_mutex_unlock(&names->lock);
	return learnt;
}

static size_t argv_bytes(const char *const *argv)
{
	size_t bytes = 0;

	for (; *argv; argv++)
		bytes += strlen(*argv) + 1 + sizeof(char *);
	return bytes;
}

int sbx_names_run(struct sbx_names *names, const struct sbx_call *call, int64_t timeout_ms,
		  const char *const *argv, bool repeatable, struct sbx_exec_result *ret_result)
{
	struct sbx_failure failure = { 0 };
	struct sbx_call own = *call;
	struct sbx_exec_spec spec = {
		.argv = argv,
		.env = sbx_program_environment(),
		.repeatable = repeatable,
	};
	struct sbx_exec_result result = { 0 };
	int r;

	if (!sbx_names_has_exec(names))
		return sbx_call_fail(call, "exec", -EOPNOTSUPP, "there is no exec");
	own.stall_timeout_ms = timeout_ms;
	if (!own.failure)
		own.failure = &failure;
	r = sbx_session_exec(names->session, &own, &spec, &result);
	if (r == -EOPNOTSUPP && own.failure->not_supported) {
		pthread_mutex_lock(&names->lock);
		names->no_exec = true;
		pthread_mutex_unlock(&names->lock);
	}
	if (r == -E2BIG && !learn_command_limit(names, argv_bytes(argv)))
		r = -EIO;
	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	names->asleep_us = 0;
	pthread_mutex_unlock(&names->lock);
	if (!result.has_exit || result.exit_code != 0) {
		char text[MESSAGE_MAX];

		sbx_text_escape(text, sizeof(text), result.err, result.err_len);
		r = result.timed_out ? -ETIMEDOUT : -EIO;
		sbx_errlog_note(sbx_session_errors(names->session), "exec", NULL, r,
				text[0] ? text : "a program of ours did not run to its end");
		sbx_exec_result_clear(&result);
		return r;
	}
	*ret_result = result;
	return 0;
}

int sbx_names_bad_answer(struct sbx_names *names, const char *what, int error,
			 const struct sbx_exec_result *result)
{
	bool learnt = false;

	if (error == -EBADMSG && result->out_len >= LEAST_REPLY_BYTES &&
	    strncmp(result->out, "SBXFS1 ", 7) == 0) {
		/* It began well and is no frame: cut. Ask for a little less than what came. */
		size_t reply_bytes = result->out_len - result->out_len / 16;

		pthread_mutex_lock(&names->lock);
		learnt = names->limits.reply_bytes == 0 || names->limits.reply_bytes > reply_bytes;
		if (learnt)
			names->limits.reply_bytes = reply_bytes;
		pthread_mutex_unlock(&names->lock);
	}
	if (learnt)
		return -EAGAIN;
	if (error == -EMSGSIZE || error == -EOPNOTSUPP || error == -ENOMEM)
		return error;
	sbx_errlog_note(sbx_session_errors(names->session), what, NULL, -EIO,
			"the sandbox's answer is short, foreign or damaged");
	return -EIO;
}

/* Clock ------------------------------------------------------------------------------------ */

bool names_saw_clock(struct sbx_names *names, int64_t clock_ns, bool has_ns, int64_t asked_us,
		     int64_t got_us)
{
	int64_t low_ns = clock_ns - got_us * 1000;
	int64_t high_ns = clock_ns - asked_us * 1000 + (has_ns ? 0 : SECOND_NS);
	bool steady = true;

	pthread_mutex_lock(&names->lock);
	if (!names->clock_known) {
		names->clock_low_ns = low_ns;
		names->clock_high_ns = high_ns;
	} else if (high_ns < names->clock_low_ns - CLOCK_SLACK_NS ||
		   low_ns > names->clock_high_ns + CLOCK_SLACK_NS) {
		steady = false;
		names->clock_low_ns = low_ns;
		names->clock_high_ns = high_ns;
	} else {
		/* The bounds only narrow while they hold; a slow drift moves them. */
		names->clock_low_ns = MIN(MAX(names->clock_low_ns, low_ns), high_ns);
		names->clock_high_ns = MAX(MIN(names->clock_high_ns, high_ns), low_ns);
		if (names->clock_low_ns > names->clock_high_ns) {
			names->clock_low_ns = low_ns;
			names->clock_high_ns = high_ns;
		}
	}
	names->clock_known = true;
	pthread_mutex_unlock(&names->lock);
	return steady;
}

int64_t names_clock_at_locked(const struct sbx_names *names, int64_t when_us)
{
	return names->clock_known ? names->clock_low_ns + when_us * 1000 - CLOCK_SLACK_NS : 0;
}

/* So many @halves of the way from its lower to its upper bound. */
static int64_t clock_offset_ns(struct sbx_names *names, int halves)
{
	int64_t mono_ns = names_now_us() * 1000;
	int64_t real_ns = g_get_real_time() * 1000;
	int64_t offset_ns = 0;

	pthread_mutex_lock(&names->lock);
	if (names->clock_known)
		offset_ns = names->clock_low_ns +
			    (names->clock_high_ns - names->clock_low_ns) / 2 * halves + mono_ns -
			    real_ns;
	pthread_mutex_unlock(&names->lock);
	return offset_ns;
}

int64_t sbx_names_clock_offset_ns(struct sbx_names *names)
{
	return clock_offset_ns(names, 1);
}

int64_t sbx_names_clock_least_ns(struct sbx_names *names)
{
	return clock_offset_ns(names, 0);
}

/* Probe ------------------------------------------------------------------------------------ */

/* Ask once. *ret_asked_us: when. */
static int probe_ask(struct sbx_names *names, const struct sbx_call *call,
		     const struct sbx_scan_request *survey, struct sbx_probe_reply **ret_probe,
		     int64_t *ret_asked_us)
{
	struct sbx_probe_options options = { .no_work_dir = names->options.read_only,
					     .survey = survey };
	struct sbx_program_limits limits;
	struct sbx_probe_request request;
	struct sbx_exec_result result = { 0 };
	struct sbx_probe_reply *probe = NULL;
	int64_t asked_us;
	int r;

	sbx_names_limits(names, &limits);
	r = sbx_probe_request_init(&request, &options, &limits);
	if (r < 0)
		goto out;
	asked_us = names_now_us();
	r = sbx_names_run(names, call, sbx_session_options(names->session)->timeout_ms,
			  sbx_program_request_argv(&request.program), true, &result);
	if (r < 0)
		goto out;
	r = sbx_probe_decode(&request, result.out, result.out_len, &probe);
	if (r < 0) {
		r = sbx_names_bad_answer(names, "probe", r, &result);
		goto out;
	}
	if (probe->clock_ns > 0)
		names_saw_clock(names, probe->clock_ns, probe->clock_has_ns, asked_us,
				names_now_us());
	*ret_probe = probe;
	*ret_asked_us = asked_us;
out:
	sbx_exec_result_clear(&result);
	sbx_probe_request_clear(&request);
	return r;
}

int names_probe_surveying(struct sbx_names *names, const struct sbx_call *call,
			  const struct sbx_scan_request *survey,
			  const struct sbx_probe_reply **ret_probe,
			  struct sbx_scan_reply **ret_seen, int64_t *ret_asked_us)
{
	struct sbx_call telling = names_telling(names, call);
	struct sbx_probe_reply *probe = NULL;
	struct sbx_wait wait;
	int64_t asked_us = 0;
	uint64_t epoch;
	int r;

	if (!sbx_names_has_exec(names))
		return -EOPNOTSUPP;
	names_check_epoch(names);
	r = sbx_wait_begin(&wait, call, &names->changed, &names->lock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&names->lock);
	/* Who asks may wait for what is being mended, so that one can't wait for it. */
	while (r == 0 && names->probing && !call->mending)
		r = sbx_wait_moving(&wait, &names->moved_ms);
	epoch = names->epoch;
	if (r == 0 && names->probe && names->probe_epoch == epoch) {
		*ret_probe = names->probe;
		pthread_mutex_unlock(&names->lock);
		sbx_wait_end(&wait);
		return 0;
	}
	if (r == 0 && !call->mending)
		names->probing = true;
	pthread_mutex_unlock(&names->lock);
	sbx_wait_end(&wait);
	if (r < 0)
		return r;

	r = probe_ask(names, &telling, survey, &probe, &asked_us);
	/* A long answer may have been cut: a short one, then. */
	if (r == -EAGAIN && survey)
		r = probe_ask(names, &telling, NULL, &probe, &asked_us);
	/* What a sandbox lacks it lacks twice; a process that could not be started for a moment is
	 * no reason to take the plain routes. */
	if (r == -EOPNOTSUPP && sbx_names_has_exec(names))
		r = probe_ask(names, &telling, NULL, &probe, &asked_us);
	if (r == 0 && probe->survey) {
		*ret_seen = g_steal_pointer(&probe->survey);
		*ret_asked_us = asked_us;
	}

	pthread_mutex_lock(&names->lock);
	if (!call->mending)
		names->probing = false;
	names->no_exec |= r == -EOPNOTSUPP;
	if (r == 0) {
		g_ptr_array_add(names->probes, probe);
		names->probe = probe;
		names->probe_epoch = epoch;
		if (probe->statfs.known) {
			names->statfs = probe->statfs;
			names->statfs_us = names_now_us();
		}
		*ret_probe = probe;
	}
	pthread_cond_broadcast(&names->changed);
	pthread_mutex_unlock(&names->lock);
	return r;
}

int sbx_names_probe(struct sbx_names *names, const struct sbx_call *call,
		    const struct sbx_probe_reply **ret_probe)
{
	return names_probe_surveying(names, call, NULL, ret_probe, NULL, NULL);
}

const struct sbx_probe_reply *sbx_names_probe_cached(struct sbx_names *names)
{
	const struct sbx_probe_reply *probe;

	pthread_mutex_lock(&names->lock);
	probe = names->probe;
	pthread_mutex_unlock(&names->lock);
	return probe;
}
