#include "tests/fuzz/garble.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SEED	    20261130
#define CHANGES_MAX 4
#define SPAN_MAX    40

void garble_init(struct garble *garble, const char *spice, size_t spice_len)
{
	/* What GLib finds wrong with a call is a fault of who calls. */
	g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING);
	*garble = (struct garble){
		.chance = g_rand_new_with_seed(SEED),
		.spice = spice,
		.spice_len = spice_len,
	};
}

void garble_done(struct garble *garble)
{
	g_rand_free(garble->chance);
}

unsigned int garble_pick(struct garble *garble, size_t limit)
{
	return (unsigned int)g_rand_int_range(garble->chance, 0, (gint32)limit);
}

static void change(struct garble *garble, GString *text)
{
	size_t at = garble_pick(garble, text->len);
	size_t to = garble_pick(garble, text->len);
	size_t wish = 1 + garble_pick(garble, SPAN_MAX);
	size_t span = MIN(wish, text->len - at);
	g_autofree char *copy = g_memdup2(text->str + at, span);

	switch (garble_pick(garble, 8)) {
	case 0:
		g_string_erase(text, (gssize)at, (gssize)span);
		break;
	case 1:
		g_string_insert_len(text, (gssize)at, copy, (gssize)span);
		break;
	case 2:
		g_string_insert_len(text, (gssize)to, copy, (gssize)span);
		break;
	case 3:
		g_string_truncate(text, at);
		break;
	case 4:
		text->str[at] = (char)(text->str[at] ^ (1 << garble_pick(garble, 8)));
		break;
	default:
		text->str[at] = garble->spice[garble_pick(garble, garble->spice_len)];
	}
}

char *garble_text(struct garble *garble, const char *clean, size_t len, size_t *ret_len)
{
	g_autoptr(GString) text = g_string_new_len(clean, (gssize)len);
	unsigned int changes = garble_pick(garble, CHANGES_MAX);

	garble->rounds++;
	while (changes-- > 0 && text->len > 0)
		change(garble, text);
	*ret_len = text->len;
	return text->len ? g_memdup2(text->str, text->len) : g_malloc(1);
}

void garble_check_taken(const struct garble *garble)
{
	assert_in_range(garble->taken, garble->rounds / 50, garble->rounds * 49 / 50);
}
