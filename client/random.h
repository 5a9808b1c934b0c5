/*
 * random - names that nobody can guess and no two share.
 */
#ifndef SBX_CLIENT_RANDOM_H
#define SBX_CLIENT_RANDOM_H

#include <stddef.h>

/* @chars random hexadecimal digits and a NUL into @ret_text (of @chars + 1 bytes). */
void sbx_random_hex(char *ret_text, size_t chars);

#endif
