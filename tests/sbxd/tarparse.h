/*
 * The members of a tar archive in memory, as the reference server's reader takes them.
 * Pure functions of the bytes.
 */
#ifndef SBX_SBXD_TARPARSE_H
#define SBX_SBXD_TARPARSE_H

#include <glib.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum member_kind { MEMBER_FILE, MEMBER_DIRECTORY, MEMBER_SYMLINK };

struct member {
	enum member_kind kind;
	char *name; /* as archived */
	char *path; /* relative, without empty and "." parts; "" is the root itself */
	char *target;
	mode_t mode;
	const unsigned char *data;
	size_t data_bytes; /* cut where the archive ends */
	uint64_t size_bytes;
};

/* 0 with the members (struct member, freed with the array), or -EINVAL with *ret_message. */
int tar_parse(const void *archive, size_t len_bytes, GPtrArray **ret_members, char **ret_message);

/* Check all members against each other and against leaving the root. 0, or -EINVAL as above. */
int tar_check(GPtrArray *members, char **ret_message);

#endif
