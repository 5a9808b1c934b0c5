#include "client/name.h"

#include <stddef.h>
#include <string.h>

#include <glib.h>

/* Letters, digits and what is in @more. */
static bool consists_of(const char *text, const char *more)
{
	size_t len = strlen(text);

	if (len == 0 || len > SBX_ID_MAX)
		return false;
	for (const char *c = text; *c != '\0'; c++) {
		if (!g_ascii_isalnum(*c) && strchr(more, *c) == NULL)
			return false;
	}
	return true;
}

bool sbx_id_valid(const char *id)
{
	return consists_of(id, "-");
}

bool sbx_name_valid(const char *name)
{
	return consists_of(name, "._-") && g_ascii_isalnum(name[0]);
}

int sbx_name_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}
