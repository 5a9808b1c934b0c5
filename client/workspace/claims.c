#include "client/workspace/claims.h"

#include <glib.h>

#include "client/workspace/path.h"

struct claim {
	guint at; /* times this very path is claimed */
	guint below; /* times something below it is */
};

struct sbx_claims {
	GHashTable *paths; /* char * -> struct claim * */
};

struct sbx_claims *sbx_claims_new(void)
{
	struct sbx_claims *claims = g_new0(struct sbx_claims, 1);

	claims->paths = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	return claims;
}

void sbx_claims_free(struct sbx_claims *claims)
{
	if (!claims)
		return;
	g_hash_table_unref(claims->paths);
	g_free(claims);
}

static void claim_change(struct sbx_claims *claims, const char *path, guint at, guint below,
			 bool add)
{
	struct claim *claim = g_hash_table_lookup(claims->paths, path);

	if (!claim) {
		claim = g_new0(struct claim, 1);
		g_hash_table_insert(claims->paths, g_strdup(path), claim);
	}
	claim->at = add ? claim->at + at : claim->at - at;
	claim->below = add ? claim->below + below : claim->below - below;
	if (claim->at == 0 && claim->below == 0)
		g_hash_table_remove(claims->paths, path);
}

static void claims_change(struct sbx_claims *claims, const char *path, bool add)
{
	g_autofree char *dir = sbx_path_parent(path);

	claim_change(claims, path, 1, 0, add);
	while (dir) {
		char *next = sbx_path_parent(dir);

		claim_change(claims, dir, 0, 1, add);
		g_free(dir);
		dir = next;
	}
}

void sbx_claims_add(struct sbx_claims *claims, const char *path)
{
	claims_change(claims, path, true);
}

void sbx_claims_remove(struct sbx_claims *claims, const char *path)
{
	claims_change(claims, path, false);
}

bool sbx_claims_meet(const struct sbx_claims *claims, const char *path)
{
	g_autofree char *dir = NULL;

	if (g_hash_table_size(claims->paths) == 0)
		return false;
	if (g_hash_table_lookup(claims->paths, path))
		return true;
	dir = sbx_path_parent(path);
	while (dir) {
		const struct claim *claim = g_hash_table_lookup(claims->paths, dir);
		char *next;

		if (claim && claim->at > 0)
			return true;
		next = sbx_path_parent(dir);
		g_free(dir);
		dir = next;
	}
	return false;
}
