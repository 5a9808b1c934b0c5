/*
 * jobfile - output.log of a job: a log that only grows, read from the layer below.
 *
 * Reading goes past the kernel's pages (direct_io) as long as the job runs: a page that was filled
 * up to the end of the log, and of which more is read after another reader's stat has told of
 * growth, would show zeros. The log of an ended job does not change, so it is kept in pages and
 * may be mapped.
 *
 * A lookup or stat counts as a reader, and shows a size that is as new as the poll of a reader.
 */
#ifndef SBX_FUSEFS_JOBFILE_H
#define SBX_FUSEFS_JOBFILE_H

/* Of a row of synth.h in jobs/ID; the directory's class is jobdir_class. */
extern const struct node_class jobfile_class;

#define JOBFILE_INDEX 2

#endif
