/*
 * program.h - the shell programs that run in the sandbox: requests and the frame of their answers.
 *
 * A program is a POSIX-sh text built into this library from client/programs/NAME.sh (with
 * prelude.sh before it) and run by one exec as
 *
 *     sh -c TEXT sbxfs-NAME NONCE TOOLS REPLY_BYTES ARG...
 *
 * with the environment of sbx_program_environment(), no stdin, and the workspace's root as working
 * directory. What a user named is always an argument, never a part of the text. Names are byte
 * strings; an argument that holds anything but printable ASCII is spelled ":" and octal escapes,
 * because exec's JSON can't carry bytes that are not UTF-8.
 *
 * The answer on stdout is one frame
 *
 *     SBXFS1 NONCE FORM LENGTH[ FORM LENGTH]...\n
 *     SECTION\n ...
 *     END NONCE\n
 *
 * where a section is LENGTH characters and FORM is "-" (base64), "z" (gzip below that) or "t"
 * (printable ASCII: each newline or tab stands for a NUL). LENGTH "." says that the section is a
 * line.
 * Everything but one whole frame with the right nonce is -EBADMSG: a caller shows that as EIO.
 *
 * Paths given to these encoders are relative to the root of the workspace ("" is the root itself,
 * "." is taken as well), without "." or ".." or empty components, or absolute in the sandbox.
 * Replies use the same form, with "" for the root.
 *
 * No I/O and no locks here: bytes in, structs out. A request belongs to one thread at a time.
 */
#ifndef SBX_CLIENT_PROGRAM_H
#define SBX_CLIENT_PROGRAM_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_NONCE_CHARS		 24
#define SBX_PROGRAM_SECTIONS_MAX 8

enum sbx_program {
	SBX_PROGRAM_PROBE,
	SBX_PROGRAM_SCAN,
	SBX_PROGRAM_APPLY,
	SBX_PROGRAM_PACK,
	SBX_PROGRAM_JOBRUN,
	SBX_PROGRAM_JOBLOOK,
	SBX_PROGRAM_RESTORE,
	SBX_PROGRAM_DIGEST,
	SBX_PROGRAM_MKTAR,
	SBX_PROGRAM_JOBPOLL, /* without the prelude; see client/job.h */
};

/*
 * What the sandbox's tools can, as the probe found (probe.h), in the form that the programs read
 * it: letters, a comma, uid ":" gid of the commands. The encoders look at it as well.
 *
 *   f  find -printf (else stat -c)    z  gzip            n  stat shows nanoseconds
 *   t  touch -d takes fractions       T  mv -T           N  mv -n asks for RENAME_NOREPLACE
 *   k  dd takes byte offsets          C  mv --no-copy    R  cp --reflink
 *   c  date shows nanoseconds         l  flock           r  truncate
 *   w  base64 -w0
 */
#define SBX_TOOLS_CHARS 63

struct sbx_tools {
	char word[SBX_TOOLS_CHARS + 1];
};

bool sbx_tools_has(const struct sbx_tools *tools, char letter);

/* Bounds of one exec (wire.md B.4). All in bytes, each argument counted with its NUL. */
struct sbx_program_limits {
	size_t arg_bytes; /* one argument */
	size_t command_bytes; /* all arguments and 8 for each */
	size_t reply_bytes; /* stdout as text; 0: unlimited */
};

/* 128 KiB an argument, 1.9 MiB a command, replies unlimited. */
void sbx_program_limits_init(struct sbx_program_limits *limits);

struct sbx_program_request {
	GPtrArray *argv; /* char *, owned; NULL at the end once sealed */
	size_t command_bytes;
	struct sbx_program_limits limits;
	struct sbx_tools tools;
	char nonce[SBX_NONCE_CHARS + 1];
};

/* The text of a program, as it goes into argv. Static. */
const char *sbx_program_text(enum sbx_program which);

/* "KEY=VALUE" strings, NULL-terminated: the environment every program wants. Static. */
const char *const *sbx_program_environment(void);

/*
 * Begins a request with a fresh random nonce: argv up to REPLY_BYTES. Always to be cleared by
 * sbx_program_request_clear(), also after an error.
 *
 * 0, or -E2BIG when even that does not fit limits.
 */
int sbx_program_request_init(struct sbx_program_request *req, enum sbx_program which,
			     const struct sbx_tools *tools,
			     const struct sbx_program_limits *limits);
void sbx_program_request_clear(struct sbx_program_request *req);

/*
 * Of SBX_PROGRAM_APPLY a request carries only the functions that it calls. What a function that is
 * there on demand needs ("do_mkdir"; in the union of several), and to leave out of the text what
 * none of those needs.
 */
uint64_t sbx_program_on_demand(const char *function);
void sbx_program_request_cut(struct sbx_program_request *req, uint64_t needs);

/* Adds one argument as it is (printable ASCII). 0 or -E2BIG, and then nothing was added. */
int sbx_program_request_add(struct sbx_program_request *req, const char *arg);
int sbx_program_request_addf(struct sbx_program_request *req, const char *format, ...)
	G_GNUC_PRINTF(2, 3);
/* The same, of an argument that the request takes over (also on failure). */
int sbx_program_request_take(struct sbx_program_request *req, char *arg);
/* Adds a path. 0, -E2BIG, -EINVAL for one that has no valid form, -ENAMETOOLONG. */
int sbx_program_request_add_path(struct sbx_program_request *req, const char *path);

/* How many arguments were added, behind REPLY_BYTES; the first of them. */
size_t sbx_program_request_args(const struct sbx_program_request *req,
				const char *const **ret_args);
/* Adds those of another request. 0 or -E2BIG, and then some may have been added. */
int sbx_program_request_add_args(struct sbx_program_request *req,
				 const struct sbx_program_request *from);

/* argv, NULL-terminated; it lives as long as the request. */
const char *const *sbx_program_request_argv(struct sbx_program_request *req);

/*
 * Spells len bytes as an argument: as they are when plain, else ":" and escapes. The programs take
 * back every byte. NUL may be in content, never in a name. The caller frees.
 */
char *sbx_program_spell(const void *bytes, size_t len);
/* Spells a path; NULL when it has no valid form. *ret_error (may be NULL) says why. */
char *sbx_program_spell_path(const char *path, int *ret_error);

/* Whether a reply's name may stand in a directory: not empty, ".", "..", over 255, with "/". */
bool sbx_program_name_valid(const char *name, size_t len);

/* The sections of one frame, unarmoured. */
struct sbx_program_answer {
	GByteArray *section[SBX_PROGRAM_SECTIONS_MAX];
	unsigned sections;
};

void sbx_program_answer_clear(struct sbx_program_answer *answer);

/*
 * Takes a frame apart. max_bytes bounds what all sections may unpack to.
 *
 * 0; -EBADMSG for what is cut, foreign, has another nonce or another version; -EMSGSIZE when the
 * program says that its answer exceeds reply_bytes, or the sections exceed max_bytes; -EOPNOTSUPP
 * when the program says that the sandbox lacks what it can't do without; -ENOMEM. On failure
 * *ret_answer is untouched.
 */
int sbx_program_unframe(const char *out, size_t out_len, const char *nonce, size_t max_bytes,
			struct sbx_program_answer *ret_answer);

/*
 * errno from what a tool or the shell said under LC_ALL=C: a line's suffix, or "!NAME" for
 * what a program decided itself. 0 for an empty text, EIO for one that is not known; positive.
 */
int sbx_program_errno(const char *text);

#endif
