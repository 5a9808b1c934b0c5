/* readme - the text of MNT/README.md, which is README.mount.md of this directory. */
#ifndef SBX_FUSEFS_README_H
#define SBX_FUSEFS_README_H

#include <stddef.h>

extern const char readme_text[]; /* not NUL-terminated */
extern const size_t readme_len; /* bytes */

#endif
