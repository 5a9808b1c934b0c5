#include "fusefs/ino.h"

#include <stdlib.h>

#include <glib.h>

#define INO_PRIVATE_TAG UINT32_C(0x80000000)

/* A device of a session, and its tag. */
struct ino_place {
	uint64_t dev;
	unsigned int session;
	uint32_t tag;
};

/* A number that live nodes hold. */
struct ino_held {
	uint64_t number;
	unsigned int count;
};

struct ino_table {
	GHashTable *places; /* set of struct ino_place */
	GHashTable *held; /* set of struct ino_held */
	uint32_t last_tag;
	uint32_t last_private;
};

static guint place_hash(gconstpointer key)
{
	const struct ino_place *place = key;

	return (guint)(place->dev * 31 + place->session);
}

static gboolean place_equal(gconstpointer a, gconstpointer b)
{
	const struct ino_place *x = a, *y = b;

	return x->dev == y->dev && x->session == y->session;
}

struct ino_table *ino_table_new(void)
{
	struct ino_table *table = g_new0(struct ino_table, 1);

	table->places = g_hash_table_new_full(place_hash, place_equal, g_free, NULL);
	table->held = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
	return table;
}

void ino_table_free(struct ino_table *table)
{
	if (!table)
		return;
	g_hash_table_unref(table->places);
	g_hash_table_unref(table->held);
	g_free(table);
}

uint64_t ino_number(struct ino_table *table, unsigned int session, uint64_t dev, uint64_t ino)
{
	struct ino_place key = { .dev = dev, .session = session };
	struct ino_place *place = g_hash_table_lookup(table->places, &key);

	if (!place) {
		place = g_memdup2(&key, sizeof(key));
		place->tag = ++table->last_tag & ~INO_PRIVATE_TAG;
		g_hash_table_add(table->places, place);
	}
	/* Wider numbers are folded: the low half then differs from the sandbox's, as it must. */
	return (uint64_t)place->tag << 32 | (uint32_t)(ino ^ (ino >> 32));
}

static void hold(struct ino_table *table, uint64_t number)
{
	struct ino_held *held = g_hash_table_lookup(table->held, &number);

	if (!held) {
		held = g_new0(struct ino_held, 1);
		held->number = number;
		g_hash_table_add(table->held, held);
	}
	held->count++;
}

void ino_give(struct ino_table *table, uint64_t number)
{
	struct ino_held *held = number ? g_hash_table_lookup(table->held, &number) : NULL;

	if (held && --held->count == 0)
		g_hash_table_remove(table->held, held);
}

uint64_t ino_take(struct ino_table *table, uint64_t held, bool held_private, unsigned int session,
		  uint64_t dev, uint64_t ino, bool has_links, bool *ret_private)
{
	uint64_t number = ino ? ino_number(table, session, dev, ino) : 0;
	struct ino_held *other;

	if (held &&
	    (held == number || (held_private && (!ino || (uint32_t)held == (uint32_t)number)))) {
		*ret_private = held_private;
		return held;
	}
	other = number ? g_hash_table_lookup(table->held, &number) : NULL;
	/* What is known of the holder may be older than its second name: believe the newcomer. */
	*ret_private = !number || (other && !has_links);
	if (*ret_private) {
		uint32_t low = number ? (uint32_t)number : 0;

		do {
			table->last_private++;
			number = (uint64_t)(table->last_private | INO_PRIVATE_TAG) << 32 |
				 (low ? low : table->last_private);
		} while (g_hash_table_contains(table->held, &number));
	}
	hold(table, number);
	ino_give(table, held);
	return number;
}
