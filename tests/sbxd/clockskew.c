#include "tests/sbxd/clockskew.h"

#include <unistd.h>

const char *clockskew_library(void)
{
	static const char *const places[] = {
		"/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
		"/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
		"/usr/lib/faketime/libfaketimeMT.so.1",
		"/usr/lib64/faketime/libfaketimeMT.so.1",
	};

	for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
		if (access(places[i], R_OK) == 0)
			return places[i];
	}
	return NULL;
}

void clockskew_add_environment(GPtrArray *env, int64_t skew_ms, const char *preload)
{
	int64_t whole = ABS(skew_ms);

	g_ptr_array_add(env, g_strdup_printf("LD_PRELOAD=%s:%s", clockskew_library(), preload));
	g_ptr_array_add(env, g_strdup_printf("FAKETIME=%c%" G_GINT64_FORMAT ".%03d",
					     skew_ms < 0 ? '-' : '+', whole / 1000,
					     (int)(whole % 1000)));
	/* What a command sets with touch must come back from stat as it was given. */
	g_ptr_array_add(env, g_strdup("FAKE_UTIME=1"));
	g_ptr_array_add(env, g_strdup("NO_FAKE_STAT=1"));
	g_ptr_array_add(env, g_strdup_printf("SBXD_CLOCK_SKEW_MS=%" G_GINT64_FORMAT, skew_ms));
	/* Sleeps and time-outs measure a distance, which no clock setting changes. */
	g_ptr_array_add(env, g_strdup("DONT_FAKE_MONOTONIC=1"));
}
