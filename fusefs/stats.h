/*
 * stats - the text of MNT/stats: counters since the mount, in Prometheus' text format. Asks
 * nothing of the server.
 */
#ifndef SBX_FUSEFS_STATS_H
#define SBX_FUSEFS_STATS_H

#include <glib.h>

struct fs;

void stats_render(struct fs *fs, GString *out);

#endif
