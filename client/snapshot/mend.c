/*
 * After a thaw of the server's archive: names, links, times and modes as the store of names knew
 * them. See thaw.h for what the archive does to them.
 */
#include "client/snapshot/snapshot.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/apply.h"
#include "client/call.h"
#include "client/snapshot/restore.h"
#include "client/snapshot/thaw.h"
#include "client/workspace/names.h"
#include "client/workspace/path.h"
#include "client/workspace/walk.h"
#include "client/workspace/workspace.h"

struct mending {
	struct sbx_walk *known;
	struct sbx_walk *now;
	struct sbx_restore *restore;
	GHashTable *renamed; /* path after the thaw -> path that is known */
	GHashTable *touched; /* directories whose listing is not what was known */
	GHashTable
		*unlike; /* files that were one and differ now: which was changed can't be told */
	unsigned int unknown;
	unsigned int failed;
};

static bool same_type(const struct sbx_walk_entry *a, const struct sbx_walk_entry *b)
{
	return (a->attr.mode & S_IFMT) == (b->attr.mode & S_IFMT);
}

/* The archive keeps only these. */
static bool is_kept(const struct sbx_walk_entry *entry)
{
	return S_ISREG(entry->attr.mode) || S_ISDIR(entry->attr.mode) || S_ISLNK(entry->attr.mode);
}

static void touch_parent(struct mending *mending, const char *path)
{
	char *parent = sbx_path_parent(path);

	if (parent)
		g_hash_table_add(mending->touched, parent);
}

/*
 * What became of @known. NULL: it is not there. *ret_moved: under another name, from which it has
 * to be brought back.
 */
static const struct sbx_walk_entry *find_now(struct mending *mending,
					     const struct sbx_walk_entry *known, bool *ret_moved)
{
	const struct sbx_walk_entry *seen = sbx_walk_find(mending->now, known->path);
	const struct sbx_walk_entry *other = NULL;
	g_autofree char *after = sbx_thaw_name_after(known->path, S_ISDIR(known->attr.mode));

	if (after && !sbx_walk_find(mending->known, after))
		other = sbx_walk_find(mending->now, after);
	if (other && !same_type(other, known))
		other = NULL;
	*ret_moved = !seen && other;
	/* Of what lies in a directory the archive may have known some by its right name. */
	if (other && (!seen || S_ISDIR(known->attr.mode)))
		g_hash_table_insert(mending->renamed, other->path, known->path);
	if (!seen)
		return other;
	return same_type(seen, known) ? seen : NULL;
}

/* Does what is there now agree with what was known, as far as a thaw leaves it be? */
static bool agrees(const struct sbx_walk_entry *known, const struct sbx_walk_entry *seen)
{
	g_autofree char *text = NULL;

	if (S_ISREG(known->attr.mode))
		return known->attr.size == seen->attr.size;
	if (!S_ISLNK(known->attr.mode))
		return true;
	if (!known->link || !seen->link)
		return false;
	text = sbx_thaw_text_after(known->link);
	return !strcmp(seen->link, known->link) || (text && !strcmp(seen->link, text));
}

static void mend_name(struct mending *mending, const struct sbx_walk_entry *known,
		      const struct sbx_walk_entry *seen, bool moved)
{
	if (S_ISDIR(known->attr.mode)) {
		if (moved)
			sbx_restore_mkdir(mending->restore, known->path);
	} else if (S_ISLNK(known->attr.mode)) {
		if (moved)
			sbx_restore_unlink(mending->restore, seen->path);
		if (moved || strcmp(known->link, seen->link) != 0)
			sbx_restore_symlink(mending->restore, known->link, known->path);
	} else if (moved) {
		sbx_restore_move(mending->restore, seen->path, known->path);
	}
}

/* Names of one file are one again. Whether there are any. */
static bool mend_links(struct mending *mending, GPtrArray *sound)
{
	bool any = false;
	g_autoptr(GHashTable) first = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

	for (guint i = 0; i < sound->len; i++) {
		const struct sbx_walk_entry *known = g_ptr_array_index(sound, i);
		char *key;
		const char *path;

		if (!S_ISREG(known->attr.mode) || known->attr.nlink < 2 || !known->attr.ino)
			continue;
		key = g_strdup_printf("%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT, known->attr.dev,
				      known->attr.ino);
		path = g_hash_table_lookup(first, key);
		if (!path) {
			g_hash_table_insert(first, key, known->path);
			continue;
		}
		sbx_restore_same(mending->restore, path, known->path);
		any = true;
		g_free(key);
	}
	return any;
}

/* Directories that the thaw made under a wrong name, what lies deep first. */
static void remove_wrong(struct mending *mending)
{
	for (guint i = mending->now->entries->len; i > 0; i--) {
		const struct sbx_walk_entry *seen = g_ptr_array_index(mending->now->entries, i - 1);

		if (S_ISDIR(seen->attr.mode) && g_hash_table_contains(mending->renamed, seen->path))
			sbx_restore_rmdir(mending->restore, seen->path);
	}
}

/* What is there and was not known: its times can't be told. */
static void count_unknown(struct mending *mending)
{
	for (guint i = 0; i < mending->now->entries->len; i++) {
		const struct sbx_walk_entry *seen = g_ptr_array_index(mending->now->entries, i);

		if (g_hash_table_contains(mending->renamed, seen->path) ||
		    sbx_walk_find(mending->known, seen->path))
			continue;
		touch_parent(mending, seen->path);
		mending->unknown++;
	}
}

static void mend_attributes(struct mending *mending, GPtrArray *sound)
{
	for (guint i = sound->len; i > 0; i--) {
		const struct sbx_walk_entry *known = g_ptr_array_index(sound, i - 1);

		if (g_hash_table_contains(mending->unlike, known->path)) {
			mending->unknown++;
			continue;
		}
		if (S_ISDIR(known->attr.mode)) {
			sbx_restore_mode(mending->restore, known->path, known->attr.mode);
			/* Its own time is that of a listing that is no more. */
			if (g_hash_table_contains(mending->touched, known->path))
				continue;
		} else if (S_ISREG(known->attr.mode) && known->attr.mode & 07000) {
			sbx_restore_mode(mending->restore, known->path, known->attr.mode);
		}
		sbx_restore_mtime(mending->restore, known->path, known->attr.mtime_ns);
	}
}

/* Collect the steps that names take: struct sbx_walk_entry * of what is as it was known to be. */
static GPtrArray *plan_names(struct mending *mending)
{
	GPtrArray *sound = g_ptr_array_new();

	for (guint i = 0; i < mending->known->entries->len; i++) {
		const struct sbx_walk_entry *known = g_ptr_array_index(mending->known->entries, i);
		const struct sbx_walk_entry *seen;
		bool moved;

		if (!is_kept(known))
			continue;
		seen = find_now(mending, known, &moved);
		if (!seen) {
			touch_parent(mending, known->path);
		} else if (!agrees(known, seen)) {
			mending->unknown++;
		} else {
			mend_name(mending, known, seen, moved);
			g_ptr_array_add(sound, (void *)known);
		}
	}
	count_unknown(mending);
	return sound;
}

/* What we keep there ourselves is for nobody else to see. */
static void mend_own(struct mending *mending)
{
	static const char *const ours[] = { SBX_WORK_DIR "/stage", SBX_WORK_DIR "/ops",
					    SBX_WORK_DIR "/held", SBX_WORK_DIR "/jobs",
					    SBX_WORK_DIR };

	for (size_t i = 0; i < G_N_ELEMENTS(ours); i++)
		sbx_restore_mode(mending->restore, ours[i], 0700);
}

/* Run what was collected, and begin anew. */
static int run_steps(struct mending *mending, struct sbx_names *names, const struct sbx_call *call)
{
	unsigned int failed = 0;
	int r = sbx_restore_run(mending->restore, names, call, &failed, mending->unlike);

	sbx_restore_free(mending->restore);
	mending->restore = sbx_restore_new();
	mending->failed += failed;
	return r;
}

static int mend(struct mending *mending, struct sbx_names *names, const struct sbx_call *call)
{
	g_autoptr(GPtrArray) sound = plan_names(mending);
	bool has_links = mend_links(mending, sound);
	int r = 0;

	remove_wrong(mending);
	/* What the links compare is known only then. */
	if (has_links)
		r = run_steps(mending, names, call);
	if (r < 0)
		return r;
	mend_attributes(mending, sound);
	mend_own(mending);
	return run_steps(mending, names, call);
}

int sbx_snapshot_mend_thaw(struct sbx_workspace *ws, const struct sbx_call *call,
			   char **ret_message)
{
	struct sbx_names *names = sbx_workspace_names(ws);
	struct mending mending = { .known = sbx_names_walk_known(names, true) };
	int r;

	*ret_message = NULL;
	r = sbx_names_walk(names, call, &mending.now);
	if (r == 0) {
		mending.restore = sbx_restore_new();
		mending.renamed = g_hash_table_new(g_str_hash, g_str_equal);
		mending.touched = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
		mending.unlike = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
		r = mend(&mending, names, call);
		sbx_restore_free(mending.restore);
		g_hash_table_unref(mending.renamed);
		g_hash_table_unref(mending.touched);
		g_hash_table_unref(mending.unlike);
	}
	if (r < 0)
		*ret_message = g_strdup_printf("the sandbox slept: times, modes of directories and "
					       "names could not be put back (%s)",
					       g_strerror(-r));
	else if (mending.unknown || mending.failed)
		*ret_message =
			g_strdup_printf("the sandbox slept: of %u files and directories the "
					"times and modes were not known and are those of its "
					"waking",
					MAX(mending.unknown, mending.failed));
	sbx_walk_free(mending.known);
	sbx_walk_free(mending.now);
	return r;
}
