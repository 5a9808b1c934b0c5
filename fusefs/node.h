/*
 * node - the nodes that the kernel knows, and what their names are now.
 *
 * A node is an identity, not a path: {id, parent, name}. Ids grow and are never used again, so an
 * id of yesterday is a miss and never another file. Paths are built by walking the parents, so a
 * renamed directory needs no rewriting of what is below it.
 *
 * A regular file's node is its path: when the file is replaced, here or in the sandbox, the node
 * stays and the next open takes the new version. A directory keeps its node only through renames
 * made by this mount, and as long as the sandbox's inode stays the same (in one epoch).
 *
 * States: live nodes are found by (parent, name). A node leaves that index when its name goes to
 * another node or away:
 *   NODE_REPLACED  another node was renamed over it: its path is still right to open
 *   NODE_REMOVED   unlinked or removed here
 *   NODE_STALE     what is there now is of another type, or another directory
 *
 * Life: a node lives while the kernel counts lookups of it, while somebody holds a reference, and
 * while it is a live node's parent. Teardown frees all, forgotten or not.
 *
 * Locking: one lock for table and nodes, held for a few instructions and never while anything
 * waits. Fields marked [t] are under it; the others never change. Nor do parent and name of a node
 * that node_renamed() is not told of: of files and directories of ours, but for a session's, they
 * are read without it.
 */
#ifndef SBX_FUSEFS_NODE_H
#define SBX_FUSEFS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fsession;
struct handle;
struct node_class; /* op.h */
struct node_table;
struct sbx_attr;
struct told_name;

#define NODE_ROOT_ID 1

enum node_state {
	NODE_LIVE,
	NODE_REPLACED,
	NODE_REMOVED,
	NODE_STALE,
};

struct node {
	uint64_t id;
	const struct node_class *class;
	struct fsession *session; /* a reference; NULL: of the mount */
	void *data; /* of the class, which begins and ends it (node_class.began, ended) */
	struct node *parent; /* [t] a reference; NULL: the root */
	char *name; /* [t] */
	const char *base_path; /* paths begin here, with this: "", "/", "a/b"; NULL: they do not */
	struct handle *handles; /* [t] open files */
	uint64_t lookups; /* [t] */
	uint32_t refs; /* [t] */
	uint32_t epoch; /* [t] of the session, when ino was seen */
	uint8_t state; /* [t] enum node_state */
	bool ino_told; /* [t] st_ino was seen by a program through a stat */
	bool ino_private; /* [t] */
	bool version_settled; /* [t] of version */
	mode_t type; /* S_IFMT bits */
	uint64_t dev; /* [t] the sandbox's, as last seen; 0: not known */
	uint64_t ino; /* [t] */
	uint64_t st_ino; /* [t] what is shown; 0: nothing yet */
	uint64_t size; /* [t] as last shown, for answers while the sandbox can't be asked */
	int64_t mtime_ns; /* [t] */
	int64_t atime_ns; /* [t] as a program here set it; 0: none did */
	uint64_t version; /* [t] of the content that the kernel's pages may hold; 0: none */
	int64_t told_until_ms; /* [t] the kernel believes its name till then (told.h) */
};

/* What a name turned out to be. */
struct node_spec {
	const struct node_class *class;
	struct fsession *session; /* may be NULL */
	void *data;
	mode_t type;
	const char *base_path; /* borrowed for the life of the table; as in struct node */
	bool fresh; /* always a new node that no later lookup finds */
	uint64_t dev; /* 0: no number is known */
	uint64_t ino;
	uint32_t epoch;
};

struct node_table *node_table_new(void);
void node_table_free(struct node_table *table);

/* The root's node, id 1: made once. -ENOMEM. */
int node_table_set_root(struct node_table *table, const struct node_spec *spec);

/* A reference to the node of @id; NULL: there is none. */
struct node *node_get(struct node_table *table, uint64_t id);
struct node *node_ref(struct node_table *table, struct node *node);
void node_put(struct node_table *table, struct node *node);

/*
 * The node of @name in @parent, as @spec describes it: found, or made, in one critical section.
 * Counts one lookup, which the caller takes back with node_forget() when the kernel did not take
 * the reply, and gives a reference. A node that has the class, session, type and data of @spec is
 * the same; a new one calls node_class.began. -ENOMEM: @spec->data stays the caller's.
 */
int node_enter(struct node_table *table, struct node *parent, const char *name,
	       const struct node_spec *spec, struct node **ret_node);

/* The live node of that name, as a reference, or NULL. Counts nothing. */
struct node *node_find(struct node_table *table, struct node *parent, const char *name);

/* The kernel forgets @count lookups. More than there are: all of them. */
void node_forget(struct node_table *table, uint64_t id, uint64_t count);

/* @name is gone (removed here), or @name was moved over another. No such node: nothing. */
void node_removed(struct node_table *table, struct node *parent, const char *name);
void node_renamed(struct node_table *table, struct node *from_dir, const char *from,
		  struct node *to_dir, const char *to);

/*
 * Path of @node from its base. -ENOENT: it or a directory above it was removed here; -ESTALE: one
 * of them is not what it was. A replaced file has the path of what replaced it. g_free().
 */
int node_path(struct node_table *table, struct node *node, char **ret_path);
/* Path of @name in the directory @node. */
int node_child_path(struct node_table *table, struct node *node, const char *name, char **ret_path);
/* Grows with every rename and removal: a path that failed may be worth building again. */
uint64_t node_moves(struct node_table *table);

enum node_state node_state(struct node_table *table, struct node *node);

/* The parent (a reference) and a copy of the name; NULL and NULL for the root. */
struct node *node_parent(struct node_table *table, struct node *node, char **ret_name);

/* The kernel is about to be told to believe the name till then. */
void node_told(struct node_table *table, struct node *node, int64_t until_ms);
/* Names of the session's nodes that it believes at @now_ms, put before @names. */
struct told_name *node_told_names(struct node_table *table, struct fsession *session,
				  int64_t now_ms, struct told_name *names);

/* Open files of a node, which count their own references (struct handle, op.h). */
void node_handle_add(struct node_table *table, struct node *node, struct handle *handle);
/* One reference less; true: it was the last, and the handle is off the node's list. */
bool node_handle_drop(struct node_table *table, struct node *node, struct handle *handle);
/* The newest open file with one reference more, or NULL. */
struct handle *node_handle_hold(struct node_table *table, struct node *node);
/* The one before @handle, which the caller holds, in the same way. */
struct handle *node_handle_next(struct node_table *table, struct handle *handle);
/* Any open file of any node, without one more reference; NULL: none. For teardown. */
struct handle *node_table_any_handle(struct node_table *table);
bool node_is_open(struct node_table *table, struct node *node);

/*
 * The st_ino to show for @node, whose attributes are @attr (dev 0, ino 0: not known), and remember
 * what was shown. @told: a program sees it (a stat), so it stays while the file is open.
 * Rules: ino.h.
 */
uint64_t node_show(struct node_table *table, struct node *node, const struct sbx_attr *attr,
		   bool told);
/* st_ino of the live node of @name, else the one that it would get. For d_ino. */
uint64_t node_show_name(struct node_table *table, struct node *parent, const char *name,
			struct fsession *session, uint64_t dev, uint64_t ino);
/* A node of ours shows as @st_ino (ino_own). */
void node_set_ino(struct node_table *table, struct node *node, uint64_t st_ino);
/* The number that @node was shown with, for "." and "..". */
uint64_t node_shown(struct node_table *table, struct node *node);
/* What was shown of @node last, as far as a node keeps it: for when nothing can be asked. */
void node_remembered(struct node_table *table, struct node *node, struct sbx_attr *ret_attr);
/* The time of last access that a program here set (0: none): the sandbox's is not asked for. */
void node_set_atime(struct node_table *table, struct node *node, int64_t atime_ns);
int64_t node_atime(struct node_table *table, struct node *node);
/* Size and time of a file of ours, for node_remembered(). */
void node_set_size(struct node_table *table, struct node *node, uint64_t size, int64_t mtime_ns);

/*
 * The kernel's pages of @node are to hold @version from now on. True when they do already: when a
 * program that opened it so has gone on since, by node_version_settled(). Before that the kernel
 * may not have dropped the pages of another version yet; who opens it meanwhile drops them too.
 */
bool node_version(struct node_table *table, struct node *node, uint64_t version);
/* The answer to an open of @version has reached the kernel. */
void node_version_settled(struct node_table *table, struct node *node, uint64_t version);

/* Ids of the nodes of @session that the kernel knows (@session NULL: all), for notifications.
 * *ret_ids: g_free(). */
size_t node_ids(struct node_table *table, struct fsession *session, uint64_t **ret_ids);

/* How many nodes there are, for stats. */
size_t node_count(struct node_table *table);

#endif
