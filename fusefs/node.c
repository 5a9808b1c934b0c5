#include "fusefs/node.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include <glib.h>

#include "client/attr.h"
#include "fusefs/fsession.h"
#include "fusefs/ino.h"
#include "fusefs/op.h"
#include "fusefs/told.h"

struct node_table {
	pthread_mutex_t lock;
	GHashTable *by_id; /* set of struct node, owning none */
	GHashTable *by_name; /* set of live struct node */
	struct ino_table *inos;
	uint64_t last_id;
	uint64_t moves;
};

static guint id_hash(gconstpointer key)
{
	const struct node *node = key;

	return (guint)(node->id ^ (node->id >> 32));
}

static gboolean id_equal(gconstpointer a, gconstpointer b)
{
	const struct node *x = a, *y = b;

	return x->id == y->id;
}

static guint name_hash(gconstpointer key)
{
	const struct node *node = key;

	return g_str_hash(node->name) ^ (guint)(node->parent->id * 2654435761u);
}

static gboolean name_equal(gconstpointer a, gconstpointer b)
{
	const struct node *x = a, *y = b;

	return x->parent == y->parent && strcmp(x->name, y->name) == 0;
}

struct node_table *node_table_new(void)
{
	struct node_table *table = g_new0(struct node_table, 1);

	pthread_mutex_init(&table->lock, NULL);
	table->by_id = g_hash_table_new(id_hash, id_equal);
	table->by_name = g_hash_table_new(name_hash, name_equal);
	table->inos = ino_table_new();
	table->last_id = NODE_ROOT_ID;
	return table;
}

/* What a node held outside of the table. Without the lock: a session may end with it. */
static void node_dispose(struct node *node)
{
	if (node->class->ended)
		node->class->ended(node);
	fsession_unref(node->session);
	g_free(node->name);
	g_free(node);
}

void node_table_free(struct node_table *table)
{
	GHashTableIter iter;
	gpointer key;

	if (!table)
		return;
	g_hash_table_iter_init(&iter, table->by_id);
	while (g_hash_table_iter_next(&iter, &key, NULL))
		node_dispose(key);
	g_hash_table_unref(table->by_id);
	g_hash_table_unref(table->by_name);
	ino_table_free(table->inos);
	pthread_mutex_destroy(&table->lock);
	g_free(table);
}

static void detach_locked(struct node_table *table, struct node *node, enum node_state state)
{
	if (node->state == NODE_LIVE && node->parent &&
	    g_hash_table_lookup(table->by_name, node) == node)
		g_hash_table_remove(table->by_name, node);
	node->state = (uint8_t)state;
}

/*
 * Take nodes that nobody needs any more out of the table: @node, then its parents. The list is
 * linked through handles, which such a node has none of.
 */
static struct node *collect_locked(struct node_table *table, struct node *node)
{
	struct node *dead = NULL, *parent;

	while (node && node->refs == 0 && node->lookups == 0 && node->id != NODE_ROOT_ID) {
		parent = node->parent;
		detach_locked(table, node, (enum node_state)node->state);
		g_hash_table_remove(table->by_id, node);
		ino_give(table->inos, node->st_ino);
		node->handles = (struct handle *)dead;
		dead = node;
		if (parent)
			parent->refs--;
		node = parent;
	}
	return dead;
}

static void dispose_list(struct node *dead)
{
	struct node *next;

	for (; dead; dead = next) {
		next = (struct node *)dead->handles;
		node_dispose(dead);
	}
}

static struct node *node_new_locked(struct node_table *table, const struct node_spec *spec,
				    struct node *parent, const char *name)
{
	struct node *node = g_try_new0(struct node, 1);

	if (!node)
		return NULL;
	node->id = parent ? ++table->last_id : NODE_ROOT_ID;
	node->class = spec->class;
	node->session = fsession_ref(spec->session);
	node->data = spec->data;
	node->type = spec->type & S_IFMT;
	node->base_path = spec->base_path;
	node->dev = spec->dev;
	node->ino = spec->ino;
	node->epoch = spec->epoch;
	node->name = g_strdup(name);
	node->parent = parent;
	if (parent)
		parent->refs++;
	if (node->class->began)
		node->class->began(node);
	g_hash_table_add(table->by_id, node);
	return node;
}

int node_table_set_root(struct node_table *table, const struct node_spec *spec)
{
	struct node *root;

	pthread_mutex_lock(&table->lock);
	root = node_new_locked(table, spec, NULL, "");
	pthread_mutex_unlock(&table->lock);
	return root ? 0 : -ENOMEM;
}

struct node *node_get(struct node_table *table, uint64_t id)
{
	struct node key = { .id = id };
	struct node *node;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_id, &key);
	if (node)
		node->refs++;
	pthread_mutex_unlock(&table->lock);
	return node;
}

struct node *node_ref(struct node_table *table, struct node *node)
{
	pthread_mutex_lock(&table->lock);
	node->refs++;
	pthread_mutex_unlock(&table->lock);
	return node;
}

void node_put(struct node_table *table, struct node *node)
{
	struct node *dead;

	if (!node)
		return;
	pthread_mutex_lock(&table->lock);
	node->refs--;
	dead = collect_locked(table, node);
	pthread_mutex_unlock(&table->lock);
	dispose_list(dead);
}

/* The node still is what @spec says its name is. */
static bool is_same(const struct node *node, const struct node_spec *spec)
{
	if (node->class != spec->class || node->session != spec->session ||
	    node->type != (spec->type & S_IFMT) || node->data != spec->data)
		return false;
	/* In another epoch the tree was laid anew, with other numbers. */
	return node->type != S_IFDIR || !node->ino || !spec->ino || node->epoch != spec->epoch ||
	       (node->ino == spec->ino && node->dev == spec->dev);
}

int node_enter(struct node_table *table, struct node *parent, const char *name,
	       const struct node_spec *spec, struct node **ret_node)
{
	struct node key = { .parent = parent, .name = (char *)name };
	struct node *node = NULL;

	pthread_mutex_lock(&table->lock);
	if (!spec->fresh)
		node = g_hash_table_lookup(table->by_name, &key);
	if (node && !is_same(node, spec)) {
		detach_locked(table, node, NODE_STALE);
		table->moves++;
		node = NULL;
	}
	if (!node) {
		node = node_new_locked(table, spec, parent, name);
		if (!node) {
			pthread_mutex_unlock(&table->lock);
			return -ENOMEM;
		}
		if (!spec->fresh)
			g_hash_table_add(table->by_name, node);
	}
	node->lookups++;
	node->refs++;
	if (spec->ino) {
		node->dev = spec->dev;
		node->ino = spec->ino;
		node->epoch = spec->epoch;
	}
	pthread_mutex_unlock(&table->lock);
	*ret_node = node;
	return 0;
}

struct node *node_find(struct node_table *table, struct node *parent, const char *name)
{
	struct node key = { .parent = parent, .name = (char *)name };
	struct node *node;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_name, &key);
	if (node)
		node->refs++;
	pthread_mutex_unlock(&table->lock);
	return node;
}

void node_forget(struct node_table *table, uint64_t id, uint64_t count)
{
	struct node key = { .id = id };
	struct node *node, *dead = NULL;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_id, &key);
	if (node) {
		node->lookups -= MIN(count, node->lookups);
		dead = collect_locked(table, node);
	}
	pthread_mutex_unlock(&table->lock);
	dispose_list(dead);
}

void node_removed(struct node_table *table, struct node *parent, const char *name)
{
	struct node key = { .parent = parent, .name = (char *)name };
	struct node *node;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_name, &key);
	if (node)
		detach_locked(table, node, NODE_REMOVED);
	table->moves++;
	pthread_mutex_unlock(&table->lock);
}

void node_renamed(struct node_table *table, struct node *from_dir, const char *from,
		  struct node *to_dir, const char *to)
{
	struct node from_key = { .parent = from_dir, .name = (char *)from };
	struct node to_key = { .parent = to_dir, .name = (char *)to };
	struct node *node, *victim, *dead = NULL;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_name, &from_key);
	victim = g_hash_table_lookup(table->by_name, &to_key);
	if (victim && victim != node)
		detach_locked(table, victim,
			      victim->type == S_IFDIR ? NODE_REMOVED : NODE_REPLACED);
	if (node && victim != node) {
		g_hash_table_remove(table->by_name, node);
		g_free(node->name);
		node->name = g_strdup(to);
		if (from_dir != to_dir) {
			to_dir->refs++;
			node->parent = to_dir;
			from_dir->refs--;
			dead = collect_locked(table, from_dir);
		}
		g_hash_table_add(table->by_name, node);
	}
	table->moves++;
	pthread_mutex_unlock(&table->lock);
	dispose_list(dead);
}

/* "" + "a" is "a", "/" + "a" is "/a", "a" + "b" is "a/b". */
static void path_append(GString *path, const char *name)
{
	if (path->len > 0 && path->str[path->len - 1] != '/')
		g_string_append_c(path, '/');
	g_string_append(path, name);
}

static int node_build_path_locked(const struct node *node, const char *child, char **ret_path)
{
	g_autoptr(GPtrArray) names = g_ptr_array_new();
	GString *path;

	for (; node; node = node->parent) {
		if (node->state == NODE_REMOVED)
			return -ENOENT;
		if (node->state == NODE_STALE)
			return -ESTALE;
		if (node->base_path)
			break;
		g_ptr_array_add(names, node->name);
	}
	path = g_string_new(node ? node->base_path : NULL);
	for (guint i = names->len; i > 0; i--)
		path_append(path, g_ptr_array_index(names, i - 1));
	if (child)
		path_append(path, child);
	*ret_path = g_string_free(path, FALSE);
	return 0;
}

int node_path(struct node_table *table, struct node *node, char **ret_path)
{
	return node_child_path(table, node, NULL, ret_path);
}

int node_child_path(struct node_table *table, struct node *node, const char *name, char **ret_path)
{
	int r;

	pthread_mutex_lock(&table->lock);
	r = node_build_path_locked(node, name, ret_path);
	pthread_mutex_unlock(&table->lock);
	return r;
}

uint64_t node_moves(struct node_table *table)
{
	uint64_t moves;

	pthread_mutex_lock(&table->lock);
	moves = table->moves;
	pthread_mutex_unlock(&table->lock);
	return moves;
}

enum node_state node_state(struct node_table *table, struct node *node)
{
	enum node_state state;

	pthread_mutex_lock(&table->lock);
	state = (enum node_state)node->state;
	pthread_mutex_unlock(&table->lock);
	return state;
}

struct node *node_parent(struct node_table *table, struct node *node, char **ret_name)
{
	struct node *parent;

	pthread_mutex_lock(&table->lock);
	parent = node->parent;
	if (parent)
		parent->refs++;
	*ret_name = parent ? g_strdup(node->name) : NULL;
	pthread_mutex_unlock(&table->lock);
	return parent;
}

void node_told(struct node_table *table, struct node *node, int64_t until_ms)
{
	pthread_mutex_lock(&table->lock);
	node->told_until_ms = MAX(node->told_until_ms, until_ms);
	pthread_mutex_unlock(&table->lock);
}

struct told_name *node_told_names(struct node_table *table, struct fsession *session,
				  int64_t now_ms, struct told_name *names)
{
	GHashTableIter iter;
	gpointer key;

	pthread_mutex_lock(&table->lock);
	g_hash_table_iter_init(&iter, table->by_id);
	while (g_hash_table_iter_next(&iter, &key, NULL)) {
		struct node *node = key;
		struct told_name *name;

		if (node->session != session || node->told_until_ms <= now_ms || !node->parent)
			continue;
		node->told_until_ms = 0;
		name = told_name_new(node->parent->id, node->name);
		name->next = names;
		names = name;
	}
	pthread_mutex_unlock(&table->lock);
	return names;
}

void node_handle_add(struct node_table *table, struct node *node, struct handle *handle)
{
	pthread_mutex_lock(&table->lock);
	handle->next = node->handles;
	node->handles = handle;
	pthread_mutex_unlock(&table->lock);
}

bool node_handle_drop(struct node_table *table, struct node *node, struct handle *handle)
{
	struct handle **at;
	bool last;

	pthread_mutex_lock(&table->lock);
	last = --handle->refs == 0;
	if (last) {
		for (at = &node->handles; *at && *at != handle; at = &(*at)->next)
			;
		if (*at)
			*at = handle->next;
	}
	pthread_mutex_unlock(&table->lock);
	return last;
}

struct handle *node_handle_hold(struct node_table *table, struct node *node)
{
	struct handle *handle;

	pthread_mutex_lock(&table->lock);
	handle = node->handles;
	if (handle)
		handle->refs++;
	pthread_mutex_unlock(&table->lock);
	return handle;
}

struct handle *node_handle_next(struct node_table *table, struct handle *handle)
{
	struct handle *next;

	pthread_mutex_lock(&table->lock);
	next = handle->next;
	if (next)
		next->refs++;
	pthread_mutex_unlock(&table->lock);
	return next;
}

struct handle *node_table_any_handle(struct node_table *table)
{
	struct handle *handle = NULL;
	GHashTableIter iter;
	gpointer key;

	pthread_mutex_lock(&table->lock);
	g_hash_table_iter_init(&iter, table->by_id);
	while (!handle && g_hash_table_iter_next(&iter, &key, NULL))
		handle = ((struct node *)key)->handles;
	pthread_mutex_unlock(&table->lock);
	return handle;
}

bool node_is_open(struct node_table *table, struct node *node)
{
	bool open;

	pthread_mutex_lock(&table->lock);
	open = node->handles != NULL;
	pthread_mutex_unlock(&table->lock);
	return open;
}

uint64_t node_show(struct node_table *table, struct node *node, const struct sbx_attr *attr,
		   bool told)
{
	unsigned int session = fsession_index(node->session);
	uint32_t epoch = fsession_epoch(node->session);
	bool is_private;
	uint64_t st_ino;

	pthread_mutex_lock(&table->lock);
	node->size = attr->size;
	node->mtime_ns = attr->mtime_ns;
	if (!(node->handles && node->ino_told && node->st_ino)) {
		node->st_ino = ino_take(table->inos, node->st_ino, node->ino_private, session,
					attr->dev, attr->ino, attr->nlink > 1, &is_private);
		node->ino_private = is_private;
	}
	node->ino_told |= told;
	if (attr->ino) {
		node->dev = attr->dev;
		node->ino = attr->ino;
		node->epoch = epoch;
	}
	st_ino = node->st_ino;
	pthread_mutex_unlock(&table->lock);
	return st_ino;
}

uint64_t node_show_name(struct node_table *table, struct node *parent, const char *name,
			struct fsession *session, uint64_t dev, uint64_t ino)
{
	struct node key = { .parent = parent, .name = (char *)name };
	struct node *node;
	uint64_t st_ino;

	pthread_mutex_lock(&table->lock);
	node = g_hash_table_lookup(table->by_name, &key);
	if (node && node->st_ino)
		st_ino = node->st_ino;
	else if (ino)
		st_ino = ino_number(table->inos, fsession_index(session), dev, ino);
	else
		st_ino = INO_NAME_BITS | g_str_hash(name);
	pthread_mutex_unlock(&table->lock);
	return st_ino;
}

void node_set_ino(struct node_table *table, struct node *node, uint64_t st_ino)
{
	pthread_mutex_lock(&table->lock);
	node->st_ino = st_ino;
	pthread_mutex_unlock(&table->lock);
}

uint64_t node_shown(struct node_table *table, struct node *node)
{
	uint64_t st_ino;

	pthread_mutex_lock(&table->lock);
	st_ino = node->st_ino;
	pthread_mutex_unlock(&table->lock);
	return st_ino ? st_ino : node->id;
}

void node_remembered(struct node_table *table, struct node *node, struct sbx_attr *ret_attr)
{
	pthread_mutex_lock(&table->lock);
	*ret_attr = (struct sbx_attr){
		.ino = node->ino,
		.dev = node->dev,
		.size = node->size,
		.blocks = (node->size + 511) / 512,
		.mtime_ns = node->mtime_ns,
		.ctime_ns = node->mtime_ns,
		.mode = node->type | (node->type == S_IFDIR ? 0755 : 0644),
		.nlink = 1,
	};
	pthread_mutex_unlock(&table->lock);
}

void node_set_atime(struct node_table *table, struct node *node, int64_t atime_ns)
{
	pthread_mutex_lock(&table->lock);
	node->atime_ns = atime_ns;
	pthread_mutex_unlock(&table->lock);
}

int64_t node_atime(struct node_table *table, struct node *node)
{
	int64_t atime_ns;

	pthread_mutex_lock(&table->lock);
	atime_ns = node->atime_ns;
	pthread_mutex_unlock(&table->lock);
	return atime_ns;
}

void node_set_size(struct node_table *table, struct node *node, uint64_t size, int64_t mtime_ns)
{
	pthread_mutex_lock(&table->lock);
	node->size = size;
	node->mtime_ns = mtime_ns;
	pthread_mutex_unlock(&table->lock);
}

bool node_version(struct node_table *table, struct node *node, uint64_t version)
{
	bool same;

	pthread_mutex_lock(&table->lock);
	same = version && node->version == version;
	node->version_settled = same && node->version_settled;
	node->version = version;
	same = node->version_settled;
	pthread_mutex_unlock(&table->lock);
	return same;
}

void node_version_settled(struct node_table *table, struct node *node, uint64_t version)
{
	pthread_mutex_lock(&table->lock);
	if (version && node->version == version)
		node->version_settled = true;
	pthread_mutex_unlock(&table->lock);
}

size_t node_ids(struct node_table *table, struct fsession *session, uint64_t **ret_ids)
{
	GHashTableIter iter;
	gpointer key;
	size_t n = 0;

	pthread_mutex_lock(&table->lock);
	*ret_ids = g_new(uint64_t, g_hash_table_size(table->by_id) + 1);
	g_hash_table_iter_init(&iter, table->by_id);
	while (g_hash_table_iter_next(&iter, &key, NULL)) {
		const struct node *node = key;

		if (node->lookups > 0 && (!session || node->session == session))
			(*ret_ids)[n++] = node->id;
	}
	pthread_mutex_unlock(&table->lock);
	return n;
}

size_t node_count(struct node_table *table)
{
	size_t n;

	pthread_mutex_lock(&table->lock);
	n = g_hash_table_size(table->by_id);
	pthread_mutex_unlock(&table->lock);
	return n;
}
