#include "client/snapshot/receipt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/apply.h"
#include "client/attr.h"
#include "client/json.h"
#include "client/snapshot/snapshot.h"
#include "client/workspace/path.h"
#include "client/workspace/walk.h"

#define ENTRIES_MAX	 4000000
#define FIELD_NAME_BYTES 100

static void entry_free(void *arg)
{
	struct sbx_receipt_entry *entry = arg;

	g_free(entry->path);
	g_free(entry->link);
	g_free(entry->same_as);
	g_free(entry->member);
	g_free(entry);
}

struct sbx_receipt *sbx_receipt_new(void)
{
	struct sbx_receipt *receipt = g_new0(struct sbx_receipt, 1);

	receipt->entries = g_ptr_array_new_with_free_func(entry_free);
	return receipt;
}

void sbx_receipt_free(struct sbx_receipt *receipt)
{
	if (!receipt)
		return;
	g_ptr_array_unref(receipt->entries);
	g_free(receipt->snapshot);
	g_free(receipt->session);
	g_free(receipt->created);
	g_free(receipt->how);
	g_free(receipt);
}

/* Filling ------------------------------------------------------------------------------------- */

static int entry_compare(const void *a, const void *b)
{
	const struct sbx_receipt_entry *x = *(struct sbx_receipt_entry *const *)a;
	const struct sbx_receipt_entry *y = *(struct sbx_receipt_entry *const *)b;

	return strcmp(x->path, y->path);
}

/*
 * The member that holds @path. The server's archive loses the last byte of a name of exactly 100
 * bytes (wire.md 5.1): then its member has 99, if no file is really called so.
 */
static const struct sbx_tar_member *find_member(const struct sbx_tar_list *archive,
						const struct sbx_walk *walk, const char *path,
						char **ret_other_name)
{
	const struct sbx_tar_member *member = sbx_tar_find(archive, path);
	g_autofree char *cut = NULL;

	if (member || strlen(path) != FIELD_NAME_BYTES)
		return member;
	cut = g_strndup(path, FIELD_NAME_BYTES - 1);
	if (sbx_walk_find(walk, cut))
		return NULL;
	member = sbx_tar_find(archive, cut);
	if (member)
		*ret_other_name = g_steal_pointer(&cut);
	return member;
}

static bool walk_same(const struct sbx_walk_entry *a, const struct sbx_walk_entry *b)
{
	/* A directory's times and links change with what is in it; it holds nothing itself. */
	if (S_ISDIR(a->attr.mode) && S_ISDIR(b->attr.mode))
		return a->attr.mode == b->attr.mode && a->attr.mtime_ns == b->attr.mtime_ns;
	return sbx_attr_same(&a->attr, &b->attr) && !g_strcmp0(a->link, b->link);
}

static struct sbx_receipt_entry *entry_from_walk(const struct sbx_walk_entry *seen)
{
	struct sbx_receipt_entry *entry = g_new0(struct sbx_receipt_entry, 1);

	entry->path = g_strdup(seen->path);
	entry->link = g_strdup(seen->link);
	entry->mode = seen->attr.mode & (S_IFMT | 07777);
	entry->mtime_ns = seen->attr.mtime_ns;
	entry->has_ns = seen->attr.has_ns;
	entry->size = S_ISREG(seen->attr.mode) ? seen->attr.size : 0;
	return entry;
}

/* @users (may be NULL): member to the path of the first entry whose content it is. */
static void fill_content(struct sbx_receipt_entry *entry, const struct sbx_tar_list *archive,
			 const struct sbx_tar_member *member, GHashTable *users)
{
	const char *user;

	if (member && member->is_hardlink)
		member = sbx_tar_find(archive, member->link);
	if (!member || member->type != S_IFREG) {
		entry->missing = true;
		return;
	}
	/* Names of one file when it was archived, whatever became of them. */
	user = users ? g_hash_table_lookup(users, member) : NULL;
	if (user)
		entry->same_as = g_strdup(user);
	else if (users)
		g_hash_table_insert(users, (void *)member, entry->path);
	if (entry->size != member->size) {
		entry->unstable = true;
		entry->size = member->size;
	}
	memcpy(entry->sha256, member->sha256, sizeof(entry->sha256));
}

static void fill_from_walks(struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
			    const struct sbx_walk *before, const struct sbx_walk *after)
{
	g_autoptr(GHashTable) first_names =
		g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	g_autoptr(GHashTable) users = g_hash_table_new(g_direct_hash, g_direct_equal);

	for (guint i = 0; i < after->entries->len; i++) {
		const struct sbx_walk_entry *seen = g_ptr_array_index(after->entries, i);
		const struct sbx_walk_entry *earlier = sbx_walk_find(before, seen->path);
		struct sbx_receipt_entry *entry;
		const struct sbx_tar_member *member;

		/* FIFOs, sockets and devices are not kept. */
		if (!S_ISREG(seen->attr.mode) && !S_ISDIR(seen->attr.mode) &&
		    !S_ISLNK(seen->attr.mode))
			continue;
		entry = entry_from_walk(seen);
		entry->unstable = !earlier || !walk_same(earlier, seen);
		member = find_member(archive, after, seen->path, &entry->member);
		if (S_ISREG(entry->mode))
			fill_content(entry, archive, member, users);
		/* One that came between archive and look is not of this snapshot. */
		if (!earlier && entry->missing) {
			entry_free(entry);
			continue;
		}
		if (S_ISREG(entry->mode) && seen->attr.nlink > 1 && !entry->same_as) {
			char *key = g_strdup_printf("%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
						    seen->attr.dev, seen->attr.ino);
			const char *first = g_hash_table_lookup(first_names, key);

			entry->same_as = g_strdup(first);
			if (first)
				g_free(key);
			else
				g_hash_table_insert(first_names, key, entry->path);
		}
		g_ptr_array_add(receipt->entries, entry);
	}
	/* What went between the looks, but is in the archive. */
	for (guint i = 0; i < archive->members->len; i++) {
		const struct sbx_tar_member *member = g_ptr_array_index(archive->members, i);
		const struct sbx_walk_entry *earlier = sbx_walk_find(before, member->path);
		struct sbx_receipt_entry *entry;

		if (!earlier || sbx_walk_find(after, member->path) ||
		    (member->type & S_IFMT) != (earlier->attr.mode & S_IFMT))
			continue;
		entry = entry_from_walk(earlier);
		entry->unstable = true;
		if (S_ISREG(entry->mode))
			fill_content(entry, archive, member, users);
		g_ptr_array_add(receipt->entries, entry);
	}
}

static void fill_from_archive(struct sbx_receipt *receipt, const struct sbx_tar_list *archive)
{
	for (guint i = 0; i < archive->members->len; i++) {
		const struct sbx_tar_member *member = g_ptr_array_index(archive->members, i);
		struct sbx_receipt_entry *entry;

		/* Of equal names the last counts, as for who unpacks it. What is ours in the
		 * workspace is not the user's. */
		if (sbx_tar_find(archive, member->path) != member ||
		    !strcmp(member->path, SBX_WORK_DIR) ||
		    g_str_has_prefix(member->path, SBX_WORK_DIR "/"))
			continue;
		entry = g_new0(struct sbx_receipt_entry, 1);
		entry->path = g_strdup(member->path);
		entry->mode = member->type | member->mode;
		entry->mtime_ns = member->mtime_ns;
		entry->has_ns = member->mtime_ns % 1000000000 != 0;
		entry->size = member->size;
		if (member->is_hardlink) {
			entry->same_as = g_strdup(member->link);
			fill_content(entry, archive, member, NULL);
			entry->unstable = false;
		} else {
			entry->link = g_strdup(member->link);
			memcpy(entry->sha256, member->sha256, sizeof(entry->sha256));
		}
		g_ptr_array_add(receipt->entries, entry);
	}
}

void sbx_receipt_fill(struct sbx_receipt *receipt, const struct sbx_tar_list *archive,
		      const struct sbx_walk *before, const struct sbx_walk *after)
{
	if (before)
		fill_from_walks(receipt, archive, before, after);
	else
		fill_from_archive(receipt, archive);
	g_ptr_array_sort(receipt->entries, entry_compare);
}

unsigned int sbx_receipt_unstable(const struct sbx_receipt *receipt)
{
	unsigned int n = 0;

	for (guint i = 0; i < receipt->entries->len; i++)
		n += ((struct sbx_receipt_entry *)g_ptr_array_index(receipt->entries, i))->unstable;
	return n;
}

unsigned int sbx_receipt_missing(const struct sbx_receipt *receipt)
{
	unsigned int n = 0;

	for (guint i = 0; i < receipt->entries->len; i++)
		n += ((struct sbx_receipt_entry *)g_ptr_array_index(receipt->entries, i))->missing;
	return n;
}

const struct sbx_receipt_entry *sbx_receipt_find(const struct sbx_receipt *receipt,
						 const char *path)
{
	struct sbx_receipt_entry key = { .path = (char *)path };
	struct sbx_receipt_entry *at = &key, **found;

	found = bsearch(&at, receipt->entries->pdata, receipt->entries->len,
			sizeof(receipt->entries->pdata[0]), entry_compare);
	return found ? *found : NULL;
}

/* JSON ---------------------------------------------------------------------------------------- */

static void hex_print(const uint8_t *bytes, char text[2 * SBX_SHA256_BYTES + 1])
{
	for (size_t i = 0; i < SBX_SHA256_BYTES; i++)
		g_snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool sbx_sha256_parse(const char *text, uint8_t bytes[SBX_SHA256_BYTES])
{
	for (size_t i = 0; i < SBX_SHA256_BYTES; i++) {
		int high = g_ascii_xdigit_value(text[2 * i]);
		int low = high < 0 ? -1 : g_ascii_xdigit_value(text[2 * i + 1]);

		if (low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static int hex_parse(const char *text, uint8_t bytes[SBX_SHA256_BYTES])
{
	return strlen(text) == 2 * SBX_SHA256_BYTES && sbx_sha256_parse(text, bytes) ? 0 : -EBADMSG;
}

/* Bytes as text where they are UTF-8, else as base64 under a key of its own. */
static int set_bytes(struct sbx_json *object, const char *key, const char *key64, const char *bytes)
{
	g_autofree char *armoured = NULL;

	if (!bytes)
		return 0;
	if (g_utf8_validate(bytes, -1, NULL))
		return sbx_json_set_string(object, key, bytes);
	armoured = g_base64_encode((const guchar *)bytes, strlen(bytes));
	return sbx_json_set_string(object, key64, armoured);
}

static char *get_bytes(const struct sbx_json *object, const char *key, const char *key64)
{
	const char *text;
	gsize len;
	char *bytes;

	if (sbx_json_get_string(object, key, 8192, &text) == 0)
		return g_strdup(text);
	if (sbx_json_get_string(object, key64, 16384, &text) < 0)
		return NULL;
	bytes = (char *)g_base64_decode(text, &len);
	bytes = g_realloc(bytes, len + 1);
	bytes[len] = '\0';
	return bytes;
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "file";
}

static struct sbx_json *entry_json(const struct sbx_receipt_entry *entry)
{
	struct sbx_json *object = sbx_json_new_object();
	char hex[2 * SBX_SHA256_BYTES + 1];
	char text[40];
	int r;

	r = set_bytes(object, "path", "path64", entry->path);
	r |= sbx_json_set_string(object, "type", type_name(entry->mode));
	g_snprintf(text, sizeof(text), "%04o", (unsigned int)(entry->mode & 07777));
	r |= sbx_json_set_string(object, "mode", text);
	g_snprintf(text, sizeof(text), "%" G_GINT64_FORMAT, entry->mtime_ns);
	r |= sbx_json_set_string(object, "mtimeNs", text);
	if (!entry->has_ns)
		r |= sbx_json_set_bool(object, "seconds", true);
	r |= set_bytes(object, "link", "link64", entry->link);
	r |= set_bytes(object, "sameAs", "sameAs64", entry->same_as);
	r |= set_bytes(object, "member", "member64", entry->member);
	if (S_ISREG(entry->mode)) {
		r |= sbx_json_set_int(object, "size", (int64_t)entry->size);
		if (entry->missing) {
			r |= sbx_json_set_bool(object, "missing", true);
		} else {
			hex_print(entry->sha256, hex);
			r |= sbx_json_set_string(object, "sha256", hex);
		}
	}
	if (entry->unstable)
		r |= sbx_json_set_bool(object, "unstable", true);
	if (r) {
		sbx_json_free(object);
		return NULL;
	}
	return object;
}

char *sbx_receipt_print(const struct sbx_receipt *receipt)
{
	struct sbx_json *object = sbx_json_new_object();
	struct sbx_json *archive = sbx_json_new_object();
	char hex[2 * SBX_SHA256_BYTES + 1];
	g_autofree char *clock = g_strdup_printf("%" G_GINT64_FORMAT, receipt->clock_ns);
	GString *text;
	char *head;
	int r;

	r = sbx_json_set_int(object, "version", 1);
	r |= sbx_json_set_string(object, "snapshot", receipt->snapshot);
	r |= sbx_json_set_string(object, "session", receipt->session);
	r |= sbx_json_set_string(object, "createdAt", receipt->created);
	r |= sbx_json_set_string(object, "how", receipt->how);
	r |= sbx_json_set_bool(object, "verified", receipt->verified);
	r |= sbx_json_set_int(object, "unstable", sbx_receipt_unstable(receipt));
	r |= sbx_json_set_string(object, "clockNs", clock);
	hex_print(receipt->archive_sha256, hex);
	r |= sbx_json_set_int(archive, "size", (int64_t)receipt->archive_bytes);
	r |= sbx_json_set_string(archive, "sha256", hex);
	r |= sbx_json_set_node(object, "archive", archive);
	head = r ? NULL : sbx_json_print(object, false);
	sbx_json_free(object);
	if (!head)
		return NULL;
	/* One line an entry: ordinary tools compare two receipts. */
	text = g_string_new_len(head, (gssize)strlen(head) - 1);
	free(head);
	g_string_append(text, ",\"entries\":[");
	for (guint i = 0; i < receipt->entries->len; i++) {
		struct sbx_json *entry = entry_json(g_ptr_array_index(receipt->entries, i));
		char *line = entry ? sbx_json_print(entry, false) : NULL;

		sbx_json_free(entry);
		if (!line) {
			g_string_free(text, TRUE);
			return NULL;
		}
		g_string_append_printf(text, "%s\n%s", i ? "," : "", line);
		free(line);
	}
	g_string_append(text, "\n]}\n");
	return g_string_free(text, FALSE);
}

/* A name in the workspace: none that leads out, whoever wrote the receipt. */
static bool path_is_sound(const char *path)
{
	return path && path[0] && path[0] != '/' && sbx_path_check(path) == 0 &&
	       !sbx_path_is_within(path, SBX_WORK_DIR);
}

static int entry_parse(const struct sbx_json *object, struct sbx_receipt *receipt)
{
	struct sbx_receipt_entry *entry = g_new0(struct sbx_receipt_entry, 1);
	const char *type, *mode, *mtime, *hex;
	guint64 bits;
	int64_t size = 0;
	bool flag;
	int r = -EBADMSG;

	entry->path = get_bytes(object, "path", "path64");
	if (!path_is_sound(entry->path) || sbx_json_get_string(object, "type", 16, &type) < 0 ||
	    sbx_json_get_string(object, "mode", 8, &mode) < 0 ||
	    !g_ascii_string_to_unsigned(mode, 8, 0, 07777, &bits, NULL) ||
	    sbx_json_get_string(object, "mtimeNs", 24, &mtime) < 0 ||
	    !g_ascii_string_to_signed(mtime, 10, INT64_MIN, INT64_MAX, &entry->mtime_ns, NULL))
		goto out;
	entry->mode = (mode_t)bits | (!strcmp(type, "directory") ? S_IFDIR
				      : !strcmp(type, "link")	 ? S_IFLNK
								 : S_IFREG);
	entry->has_ns = sbx_json_get_bool(object, "seconds", &flag) < 0 || !flag;
	entry->link = get_bytes(object, "link", "link64");
	entry->same_as = get_bytes(object, "sameAs", "sameAs64");
	entry->member = get_bytes(object, "member", "member64");
	entry->unstable = sbx_json_get_bool(object, "unstable", &flag) == 0 && flag;
	entry->missing = sbx_json_get_bool(object, "missing", &flag) == 0 && flag;
	if (S_ISLNK(entry->mode) ? !entry->link || !entry->link[0] : entry->link != NULL)
		goto out;
	if (entry->same_as && (!S_ISREG(entry->mode) || !path_is_sound(entry->same_as)))
		goto out;
	if (S_ISREG(entry->mode)) {
		if (sbx_json_get_int(object, "size", 0, INT64_MAX / 2, &size) < 0)
			goto out;
		if (!entry->missing && (sbx_json_get_string(object, "sha256", 64, &hex) < 0 ||
					hex_parse(hex, entry->sha256) < 0))
			goto out;
		entry->size = (uint64_t)size;
	}
	g_ptr_array_add(receipt->entries, entry);
	return 0;
out:
	entry_free(entry);
	return r;
}

static int head_parse(const struct sbx_json *object, struct sbx_receipt *receipt)
{
	const struct sbx_json *archive = sbx_json_member(object, "archive");
	const char *snapshot, *session, *created, *how, *clock, *hex;
	int64_t size;

	if (!archive || sbx_json_get_string(object, "snapshot", 255, &snapshot) < 0 ||
	    sbx_json_get_string(object, "session", 64, &session) < 0 ||
	    sbx_json_get_string(object, "createdAt", 64, &created) < 0 ||
	    sbx_json_get_string(object, "how", 16, &how) < 0 ||
	    sbx_json_get_bool(object, "verified", &receipt->verified) < 0 ||
	    sbx_json_get_string(object, "clockNs", 24, &clock) < 0 ||
	    sbx_json_get_int(archive, "size", 0, INT64_MAX / 2, &size) < 0 ||
	    sbx_json_get_string(archive, "sha256", 64, &hex) < 0 ||
	    hex_parse(hex, receipt->archive_sha256) < 0)
		return -EBADMSG;
	if (!sbx_snapshot_name_is_valid(snapshot))
		return -EBADMSG;
	receipt->snapshot = g_strdup(snapshot);
	receipt->session = g_strdup(session);
	receipt->created = g_strdup(created);
	receipt->how = g_strdup(how);
	receipt->clock_ns = g_ascii_strtoll(clock, NULL, 10);
	receipt->archive_bytes = (uint64_t)size;
	return 0;
}

/* Each name once, nothing below what is no directory, other names of files that are there. */
static bool tree_is_sound(const struct sbx_receipt *receipt)
{
	for (guint i = 0; i < receipt->entries->len; i++) {
		const struct sbx_receipt_entry *entry = g_ptr_array_index(receipt->entries, i);
		const struct sbx_receipt_entry *before =
			i ? g_ptr_array_index(receipt->entries, i - 1) : NULL;
		g_autofree char *above = g_strdup(entry->path);
		char *slash;

		if (before && !strcmp(before->path, entry->path))
			return false;
		while ((slash = strrchr(above, '/'))) {
			const struct sbx_receipt_entry *parent;

			*slash = '\0';
			parent = sbx_receipt_find(receipt, above);
			if (parent && !S_ISDIR(parent->mode))
				return false;
			if (parent)
				break; /* what is above that was, or will be, looked at */
		}
		if (entry->same_as) {
			const struct sbx_receipt_entry *first =
				sbx_receipt_find(receipt, entry->same_as);

			if (!first || !S_ISREG(first->mode) || first->same_as)
				return false;
		}
	}
	return true;
}

int sbx_receipt_parse(const char *text, size_t len, struct sbx_receipt **ret_receipt)
{
	struct sbx_receipt *receipt = sbx_receipt_new();
	struct sbx_json *object = NULL;
	const struct sbx_json *entries, *entry;
	int r;

	r = sbx_json_parse(text, len, (size_t)ENTRIES_MAX * 12, &object);
	if (r == 0)
		r = sbx_json_is_object(object) ? head_parse(object, receipt) : -EBADMSG;
	entries = r == 0 ? sbx_json_member(object, "entries") : NULL;
	if (r == 0 && (!entries || !sbx_json_is_array(entries)))
		r = -EBADMSG;
	for (entry = r == 0 ? sbx_json_first(entries) : NULL; r == 0 && entry;
	     entry = sbx_json_next(entry))
		r = entry_parse(entry, receipt);
	sbx_json_free(object);
	if (r < 0) {
		sbx_receipt_free(receipt);
		return r == -ENOMEM ? r : -EBADMSG;
	}
	g_ptr_array_sort(receipt->entries, entry_compare);
	if (!tree_is_sound(receipt)) {
		sbx_receipt_free(receipt);
		return -EBADMSG;
	}
	*ret_receipt = receipt;
	return 0;
}
