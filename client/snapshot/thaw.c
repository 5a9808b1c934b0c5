#include "client/snapshot/thaw.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "client/call.h"
#include "client/workspace/names.h"
#include "client/workspace/walk.h"
#include "client/workspace/workspace.h"

/* The field of a header for a name or a link's text. */
#define FIELD_BYTES    100
#define ROUTE_FILE_MAX ((uint64_t)1 << 31)
/* A big tree is looked through again only after a multiple of the time that it took. */
#define LOOK_FACTOR 20

/* Bytes as the server's reader takes them: each one a character. */
static char *as_latin1(const char *text, size_t len)
{
	GString *out = g_string_new(NULL);

	for (size_t i = 0; i < len; i++)
		g_string_append_unichar(out, (guchar)text[i]);
	return g_string_free(out, FALSE);
}

static char *after(const char *text, size_t len, size_t field_len)
{
	char *out;

	if (field_len > FIELD_BYTES)
		return NULL;
	/* Exactly as long as the field: its last byte is lost. That of a directory is a slash. */
	out = as_latin1(text, MIN(len, FIELD_BYTES - 1));
	if (!strcmp(out, text))
		g_clear_pointer(&out, g_free);
	return out;
}

char *sbx_thaw_name_after(const char *path, bool is_directory)
{
	size_t len = strlen(path);

	return after(path, len, len + (is_directory ? 1 : 0));
}

char *sbx_thaw_text_after(const char *text)
{
	size_t len = strlen(text);

	return after(text, len, len);
}

static bool has_drive(const char *text)
{
	return g_ascii_isalpha(text[0]) && text[1] == ':';
}

/* Would the link's text, read where it stands, lead out? */
static bool link_leads_out(const char *path, const char *text)
{
	g_auto(GStrv) parts = NULL;
	int depth = 0;

	if (text[0] == '/' || has_drive(text))
		return true;
	for (; *path; path++)
		depth += *path == '/';
	parts = g_strsplit(text, "/", -1);
	for (char **part = parts; *part; part++) {
		if (!strcmp(*part, ".."))
			depth--;
		else if (**part && strcmp(*part, ".") != 0)
			depth++;
		if (depth < 0)
			return true;
	}
	return false;
}

static bool stays_live(const struct sbx_walk_entry *entry)
{
	return !g_utf8_validate(entry->path, -1, NULL) ||
	       (S_ISREG(entry->attr.mode) && entry->attr.size >= ROUTE_FILE_MAX);
}

/* A name that is cut in the archive may be that of another one, or of another's cut name. */
static bool collides(const struct sbx_walk *walk, const struct sbx_walk_entry *entry, guint i)
{
	g_autofree char *cut = NULL;

	if (S_ISDIR(entry->attr.mode) || strlen(entry->path) != FIELD_BYTES)
		return false;
	cut = g_strndup(entry->path, FIELD_BYTES - 1);
	if (sbx_walk_find(walk, cut))
		return true;
	/* Sorted: those with the same 99 bytes stand together. */
	for (i++; i < walk->entries->len; i++) {
		const struct sbx_walk_entry *next = g_ptr_array_index(walk->entries, i);

		if (strncmp(next->path, cut, FIELD_BYTES - 1) != 0)
			return false;
		if (!S_ISDIR(next->attr.mode) && strlen(next->path) == FIELD_BYTES)
			return true;
	}
	return false;
}

char *sbx_thaw_risk_of(const struct sbx_walk *walk)
{
	const char *risk = NULL;

	for (guint i = 0; i < walk->entries->len; i++) {
		const struct sbx_walk_entry *entry = g_ptr_array_index(walk->entries, i);

		/* What the archive leaves out can't be in the way. */
		if (!S_ISREG(entry->attr.mode) && !S_ISDIR(entry->attr.mode) &&
		    !S_ISLNK(entry->attr.mode))
			continue;
		if (stays_live(entry))
			return NULL;
		if (!risk && (strchr(entry->path, '\\') || has_drive(entry->path) ||
			      (S_ISLNK(entry->attr.mode) && entry->link &&
			       link_leads_out(entry->path, entry->link)) ||
			      collides(walk, entry, i)))
			risk = entry->path;
	}
	return g_strdup(risk);
}

/* Watch --------------------------------------------------------------------------------------- */

struct sbx_thaw_watch {
	struct sbx_workspace *ws;
	pthread_mutex_t lock;
	bool known;
	uint64_t changes; /* of the store, when it was looked at */
	int64_t looked_ms;
	int64_t took_ms;
	char *path;
};

struct sbx_thaw_watch *sbx_thaw_watch_new(struct sbx_workspace *ws)
{
	struct sbx_thaw_watch *watch = g_new0(struct sbx_thaw_watch, 1);

	watch->ws = ws;
	pthread_mutex_init(&watch->lock, NULL);
	return watch;
}

void sbx_thaw_watch_free(struct sbx_thaw_watch *watch)
{
	if (!watch)
		return;
	pthread_mutex_destroy(&watch->lock);
	g_free(watch->path);
	g_free(watch);
}

static void watch_look_locked(struct sbx_thaw_watch *watch)
{
	struct sbx_names *names = sbx_workspace_names(watch->ws);
	uint64_t changes = sbx_names_changes(names);
	int64_t now_ms = sbx_clock_ms();
	struct sbx_walk *walk;

	if (watch->known &&
	    (changes == watch->changes || now_ms < watch->looked_ms + watch->took_ms * LOOK_FACTOR))
		return;
	walk = sbx_names_walk_known(names, false);
	g_free(watch->path);
	watch->path = sbx_thaw_risk_of(walk);
	sbx_walk_free(walk);
	watch->known = true;
	watch->changes = changes;
	watch->looked_ms = sbx_clock_ms();
	watch->took_ms = watch->looked_ms - now_ms;
}

bool sbx_thaw_watch_at_risk(struct sbx_thaw_watch *watch, char **ret_path)
{
	bool at_risk;

	pthread_mutex_lock(&watch->lock);
	watch_look_locked(watch);
	at_risk = watch->path != NULL;
	if (ret_path)
		*ret_path = g_strdup(watch->path);
	pthread_mutex_unlock(&watch->lock);
	return at_risk;
}
