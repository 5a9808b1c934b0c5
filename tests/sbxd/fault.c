#include "tests/sbxd/fault.h"
#include "tests/sbxd/routes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum action {
	ACTION_REFUSE,
	ACTION_BLACKHOLE,
	ACTION_DELAY,
	ACTION_STATUS,
	ACTION_CUT,
	ACTION_DROP,
	ACTION_GARBAGE,
	ACTION_WRONGTYPE,
	ACTION_REPLY,
	ACTION_ECHO_AUTH,
	ACTION_CLOSE_IDLE,
	ACTION_TRICKLE,
};

static const struct {
	const char *name;
	enum action action;
	enum { ARG_NONE, ARG_NUMBER, ARG_TEXT } arg;
} actions[] = {
	{ "refuse", ACTION_REFUSE, ARG_NONE },
	{ "blackhole", ACTION_BLACKHOLE, ARG_NONE },
	{ "delay", ACTION_DELAY, ARG_NUMBER },
	{ "status", ACTION_STATUS, ARG_NUMBER },
	{ "cut", ACTION_CUT, ARG_NUMBER },
	{ "drop", ACTION_DROP, ARG_NONE },
	{ "garbage", ACTION_GARBAGE, ARG_NONE },
	{ "wrongtype", ACTION_WRONGTYPE, ARG_NONE },
	{ "reply", ACTION_REPLY, ARG_TEXT },
	{ "echo-auth", ACTION_ECHO_AUTH, ARG_NONE },
	{ "close-idle", ACTION_CLOSE_IDLE, ARG_NUMBER },
	{ "trickle", ACTION_TRICKLE, ARG_NUMBER },
};

struct rule {
	char *route; /* "*", a route's name, or "get" and "put" */
	char *session_prefix;
	uint64_t first;
	uint64_t last;
	enum action action;
	int64_t number;
	int64_t second; /* of status: Retry-After, or -1 */
	char *text;
	uint64_t seen;
};

struct fault_set {
	pthread_mutex_t lock;
	GPtrArray *rules;
	char *path;
	struct stat read; /* of the control file, when it was read last */
};

static void rule_free(void *data)
{
	struct rule *rule = data;

	g_free(rule->route);
	g_free(rule->session_prefix);
	g_free(rule->text);
	g_free(rule);
}

static bool route_is_known(const char *name)
{
	if (strcmp(name, "*") == 0 || strcmp(name, "get") == 0 || strcmp(name, "put") == 0)
		return true;
	for (int route = 0; route < ROUTE_COUNT; route++) {
		if (strcmp(name, routes_name((enum route)route)) == 0)
			return true;
	}
	return false;
}

static bool parse_count(const char *text, struct rule *rule)
{
	char *end;

	rule->first = 1;
	rule->last = UINT64_MAX;
	if (strcmp(text, "*") == 0)
		return true;
	if (!g_ascii_isdigit(*text))
		return false;
	rule->first = rule->last = g_ascii_strtoull(text, &end, 10);
	if (*end == '-') {
		rule->last = UINT64_MAX;
		if (end[1])
			rule->last = g_ascii_strtoull(end + 1, &end, 10);
		else
			end++;
	}
	return !*end && rule->first > 0 && rule->last >= rule->first;
}

static bool parse_number(const char *text, struct rule *rule)
{
	char *end;

	if (!text || !g_ascii_isdigit(*text))
		return false;
	rule->number = (int64_t)g_ascii_strtoull(text, &end, 10);
	if (*end == '/' && rule->action == ACTION_STATUS && g_ascii_isdigit(end[1]))
		rule->second = (int64_t)g_ascii_strtoull(end + 1, &end, 10);
	return !*end;
}

static bool parse_action(const char *text, struct rule *rule)
{
	const char *equals = strchr(text, '=');
	size_t len = equals ? (size_t)(equals - text) : strlen(text);

	for (size_t i = 0; i < G_N_ELEMENTS(actions); i++) {
		if (strlen(actions[i].name) != len || strncmp(actions[i].name, text, len) != 0)
			continue;
		rule->action = actions[i].action;
		if (actions[i].arg == ARG_NONE)
			return !equals;
		if (!equals)
			return false;
		if (actions[i].arg == ARG_NUMBER)
			return parse_number(equals + 1, rule);
		rule->text = g_strdup(equals + 1);
		return true;
	}
	return false;
}

static struct rule *rule_parse(const char *text)
{
	g_auto(GStrv) parts = g_strsplit(text, ":", 3);
	struct rule *rule = g_new0(struct rule, 1);
	char *at;

	rule->second = -1;
	if (g_strv_length(parts) == 3) {
		at = strchr(parts[0], '@');
		if (at) {
			*at = '\0';
			rule->session_prefix = g_strdup(at + 1);
		}
		rule->route = g_strdup(parts[0]);
		if (route_is_known(rule->route) && parse_count(parts[1], rule) &&
		    parse_action(parts[2], rule))
			return rule;
	}
	rule_free(rule);
	return NULL;
}

bool fault_rule_is_valid(const char *text)
{
	struct rule *rule = rule_parse(text);

	if (rule)
		rule_free(rule);
	return rule != NULL;
}

struct fault_set *fault_set_new(const GPtrArray *rules, const char *path)
{
	struct fault_set *set = g_new0(struct fault_set, 1);

	pthread_mutex_init(&set->lock, NULL);
	set->rules = g_ptr_array_new_with_free_func(rule_free);
	set->path = g_strdup(path);
	for (guint i = 0; i < rules->len; i++)
		g_ptr_array_add(set->rules, rule_parse(rules->pdata[i]));
	return set;
}

void fault_set_free(struct fault_set *set)
{
	g_ptr_array_free(set->rules, TRUE);
	g_free(set->path);
	pthread_mutex_destroy(&set->lock);
	g_free(set);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Read the control file again if it is another than last time. A file that vanished: no rules. */
static void reread_locked(struct fault_set *set)
{
	struct stat now = { 0 };
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!set->path)
		return;
	if (stat(set->path, &now) < 0)
		now = (struct stat){ 0 };
	if (same_file(&now, &set->read))
		return;
	set->read = now;
	g_ptr_array_set_size(set->rules, 0);
	if (!g_file_get_contents(set->path, &text, NULL, NULL))
		return;
	lines = g_strsplit(text, "\n", -1);
	for (char **line = lines; *line; line++) {
		struct rule *rule = rule_parse(g_strstrip(*line));

		if (rule)
			g_ptr_array_add(set->rules, rule);
	}
}

static bool rule_matches(const struct rule *rule, enum route route, const char *session_id)
{
	if (rule->session_prefix &&
	    (!session_id || !g_str_has_prefix(session_id, rule->session_prefix)))
		return false;
	if (strcmp(rule->route, "*") == 0)
		return true;
	if (strcmp(rule->route, "get") == 0)
		return route == ROUTE_GET;
	if (strcmp(rule->route, "put") == 0)
		return route == ROUTE_PUT;
	return strcmp(rule->route, routes_name(route)) == 0;
}

static void apply(const struct rule *rule, struct fault *fault)
{
	switch (rule->action) {
	case ACTION_REFUSE:
		fault->refuse = true;
		break;
	case ACTION_BLACKHOLE:
		fault->blackhole = true;
		break;
	case ACTION_DELAY:
		fault->delay_ms += rule->number;
		break;
	case ACTION_STATUS:
		fault->status = (int)rule->number;
		fault->retry_after_s = (int)rule->second;
		break;
	case ACTION_CUT:
		fault->damage.cut_bytes = rule->number;
		break;
	case ACTION_DROP:
		fault->drop = true;
		break;
	case ACTION_GARBAGE:
		fault->garbage = true;
		break;
	case ACTION_WRONGTYPE:
		fault->wrongtype = true;
		break;
	case ACTION_REPLY:
		g_free(fault->reply);
		fault->reply = g_strdup(rule->text);
		break;
	case ACTION_ECHO_AUTH:
		fault->echo_auth = true;
		break;
	case ACTION_CLOSE_IDLE:
		fault->close_idle_ms = rule->number;
		break;
	case ACTION_TRICKLE:
		fault->damage.trickle_per_s = rule->number;
		break;
	}
}

void fault_find(struct fault_set *set, enum route route, const char *session_id,
		struct fault *ret_fault)
{
	*ret_fault =
		(struct fault){ .retry_after_s = -1, .close_idle_ms = -1, .damage.cut_bytes = -1 };
	pthread_mutex_lock(&set->lock);
	reread_locked(set);
	for (guint i = 0; i < set->rules->len; i++) {
		struct rule *rule = set->rules->pdata[i];

		if (!rule_matches(rule, route, session_id))
			continue;
		rule->seen++;
		if (rule->seen >= rule->first && rule->seen <= rule->last)
			apply(rule, ret_fault);
	}
	pthread_mutex_unlock(&set->lock);
}

void fault_clear(struct fault *fault)
{
	g_clear_pointer(&fault->reply, g_free);
}

static const char *wrongly_typed(enum route route)
{
	switch (route) {
	case ROUTE_CREATE:
		return "{\"sessionId\":7,\"root\":[]}";
	case ROUTE_REATTACH:
		return "{\"alive\":\"yes\",\"root\":7}";
	case ROUTE_STAT:
		return "{\"size\":\"many\",\"mtimeMs\":null,\"isFile\":1,\"isDirectory\":{},"
		       "\"mode\":\"rw\"}";
	case ROUTE_READDIR:
		return "[{\"name\":7,\"isDirectory\":\"no\"},5,null]";
	case ROUTE_EXEC:
		return "{\"exitCode\":\"0\",\"signal\":9,\"stdout\":null,\"stderr\":[]}";
	default:
		return "{\"ok\":\"perhaps\"}";
	}
}

void fault_spoil_reply(const struct fault *fault, struct exchange *x)
{
	if (fault->status) {
		g_autofree char *seconds = g_strdup_printf("%d", fault->retry_after_s);

		reply_error(&x->reply, fault->status, "internal_error", "fault injected");
		if (fault->retry_after_s >= 0)
			reply_header(&x->reply, "Retry-After", seconds);
	} else if (fault->echo_auth) {
		g_autofree char *message =
			g_strdup_printf("upstream refused: Authorization: %s",
					x->req->authorization ? x->req->authorization : "");

		reply_error(&x->reply, 500, "internal_error", message);
	} else if (fault->reply) {
		reply_json(&x->reply, g_string_new(fault->reply));
	} else if (fault->garbage) {
		reply_json(&x->reply, g_string_new("<html>it worked {\"}</html>"));
	} else if (fault->wrongtype) {
		reply_json(&x->reply, g_string_new(wrongly_typed(x->route)));
	}
}
