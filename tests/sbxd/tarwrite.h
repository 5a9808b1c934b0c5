/*
 * A tree as the reference server's persist writes it: USTAR with its losses, and with its bug.
 *
 * Written here and not by a library because no library loses the last byte of a name of exactly
 * one hundred bytes. No state, no locks; file work.
 */
#ifndef SBX_SBXD_TARWRITE_H
#define SBX_SBXD_TARWRITE_H

/*
 * Append the archive of everything below @dir to @fd. 0, or negative errno with *ret_message what
 * the client hears (the caller frees it); @fd then holds a useless beginning.
 */
int tar_write(const char *dir, int fd, char **ret_message);

#endif
