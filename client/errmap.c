#include "client/errmap.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <glib.h>

/*
 * One row an errno: its name, and its text under LC_ALL=C in glibc and, where it differs, musl.
 * Numbers are this machine's; names and texts are what travels.
 */
struct errno_row {
	int error;
	const char *name;
	const char *text;
	const char *musl_text;
};

static const struct errno_row errno_rows[] = {
	{ EPERM, "EPERM", "Operation not permitted", NULL },
	{ ENOENT, "ENOENT", "No such file or directory", NULL },
	{ ESRCH, "ESRCH", "No such process", NULL },
	{ EINTR, "EINTR", "Interrupted system call", NULL },
	{ EIO, "EIO", "Input/output error", "I/O error" },
	{ ENXIO, "ENXIO", "No such device or address", NULL },
	{ E2BIG, "E2BIG", "Argument list too long", NULL },
	{ ENOEXEC, "ENOEXEC", "Exec format error", NULL },
	{ EBADF, "EBADF", "Bad file descriptor", NULL },
	{ ECHILD, "ECHILD", "No child processes", "No child process" },
	{ EAGAIN, "EAGAIN", "Resource temporarily unavailable", NULL },
	{ ENOMEM, "ENOMEM", "Cannot allocate memory", "Out of memory" },
	{ EACCES, "EACCES", "Permission denied", NULL },
	{ EFAULT, "EFAULT", "Bad address", NULL },
	{ ENOTBLK, "ENOTBLK", "Block device required", NULL },
	{ EBUSY, "EBUSY", "Device or resource busy", "Resource busy" },
	{ EEXIST, "EEXIST", "File exists", NULL },
	{ EXDEV, "EXDEV", "Invalid cross-device link", "Cross-device link" },
	{ ENODEV, "ENODEV", "No such device", NULL },
	{ ENOTDIR, "ENOTDIR", "Not a directory", NULL },
	{ EISDIR, "EISDIR", "Is a directory", NULL },
	{ EINVAL, "EINVAL", "Invalid argument", NULL },
	{ ENFILE, "ENFILE", "Too many open files in system", NULL },
	{ EMFILE, "EMFILE", "Too many open files", "No file descriptors available" },
	{ ENOTTY, "ENOTTY", "Inappropriate ioctl for device", "Not a tty" },
	{ ETXTBSY, "ETXTBSY", "Text file busy", NULL },
	{ EFBIG, "EFBIG", "File too large", NULL },
	{ ENOSPC, "ENOSPC", "No space left on device", NULL },
	{ ESPIPE, "ESPIPE", "Illegal seek", "Invalid seek" },
	{ EROFS, "EROFS", "Read-only file system", NULL },
	{ EMLINK, "EMLINK", "Too many links", NULL },
	{ EPIPE, "EPIPE", "Broken pipe", NULL },
	{ ERANGE, "ERANGE", "Numerical result out of range", "Result not representable" },
	{ EDEADLK, "EDEADLK", "Resource deadlock avoided", "Resource deadlock would occur" },
	{ ENAMETOOLONG, "ENAMETOOLONG", "File name too long", "Filename too long" },
	{ ENOLCK, "ENOLCK", "No locks available", NULL },
	/* ENOSYS would make the kernel take the operation for never needed again. */
	{ EOPNOTSUPP, "ENOSYS", "Function not implemented", NULL },
	{ ENOTEMPTY, "ENOTEMPTY", "Directory not empty", NULL },
	{ ELOOP, "ELOOP", "Too many levels of symbolic links", "Symbolic link loop" },
	{ ENODATA, "ENODATA", "No data available", NULL },
	{ EPROTO, "EPROTO", "Protocol error", NULL },
	{ EBADMSG, "EBADMSG", "Bad message", NULL },
	{ EOVERFLOW, "EOVERFLOW", "Value too large for defined data type",
	  "Value too large for data type" },
	{ EILSEQ, "EILSEQ", "Invalid or incomplete multibyte or wide character",
	  "Illegal byte sequence" },
	{ EOPNOTSUPP, "EOPNOTSUPP", "Operation not supported", "Not supported" },
	{ EOPNOTSUPP, "ENOTSUP", "Not supported", NULL },
	{ ENETUNREACH, "ENETUNREACH", "Network is unreachable", "Network unreachable" },
	{ ECONNRESET, "ECONNRESET", "Connection reset by peer", NULL },
	{ ETIMEDOUT, "ETIMEDOUT", "Connection timed out", "Operation timed out" },
	{ ECONNREFUSED, "ECONNREFUSED", "Connection refused", NULL },
	{ EHOSTUNREACH, "EHOSTUNREACH", "No route to host", "Host is unreachable" },
	{ EUCLEAN, "EUCLEAN", "Structure needs cleaning", NULL },
	{ EREMOTEIO, "EREMOTEIO", "Remote I/O error", NULL },
	{ ECANCELED, "ECANCELED", "Operation canceled", NULL },
	{ EDQUOT, "EDQUOT", "Disk quota exceeded", "Quota exceeded" },
	{ ESTALE, "ESTALE", "Stale file handle", NULL },
};

enum match {
	MATCH_PREFIX,
	MATCH_INSIDE,
};

enum reply_flag {
	FLAG_SESSION = 1,
	FLAG_UNSUPPORTED = 2,
	FLAG_TOKEN = 4,
};

/* Messages without an errno token (wire.md B.1 "Errors"). */
static const struct message_row {
	enum match match;
	const char *text;
	int error;
	unsigned int flags;
} message_rows[] = {
	{ MATCH_INSIDE, "is greater than 2 GiB", EFBIG, 0 },
	{ MATCH_PREFIX, "Path is a directory: rm returned EISDIR", EISDIR, 0 },
	{ MATCH_PREFIX, "Invalid string length", EFBIG, 0 },
	{ MATCH_PREFIX, "Cannot create a string longer than", EFBIG, 0 },
	{ MATCH_PREFIX, "The value of \"size\" is out of range", EFBIG, 0 },
	{ MATCH_INSIDE, "without null bytes", EINVAL, 0 },
	/* Too many arguments for the server to spread. */
	{ MATCH_PREFIX, "Maximum call stack size exceeded", E2BIG, 0 },
	{ MATCH_PREFIX, "archive member count exceeds limit", EFBIG, 0 },
	{ MATCH_PREFIX, "archive extracted size exceeds limit", EFBIG, 0 },
	{ MATCH_PREFIX, "unsafe archive member", EINVAL, 0 },
	{ MATCH_PREFIX, "hardlink member not allowed", EINVAL, 0 },
	{ MATCH_PREFIX, "unsupported member type", EINVAL, 0 },
	{ MATCH_PREFIX, "invalid tar header checksum", EINVAL, 0 },
	{ MATCH_PREFIX, "no such path", ENOENT, 0 },
	{ MATCH_PREFIX, "unknown route", EOPNOTSUPP, FLAG_UNSUPPORTED },
};

static const struct code_row {
	const char *code;
	int error;
	unsigned int flags;
} code_rows[] = {
	{ "session_not_found", ESTALE, FLAG_SESSION },
	{ "unauthorized", EACCES, FLAG_TOKEN },
	{ "path_denied", EACCES, 0 },
	{ "root_denied", EACCES, 0 },
	{ "not_supported", EOPNOTSUPP, FLAG_UNSUPPORTED },
	{ "bad_request", EINVAL, 0 },
};

/*
 * A 404 alone is no ENOENT: it comes from a proxy or another service, and a program must not
 * believe that its file is gone.
 */
static const struct status_row {
	int status;
	int error;
	unsigned int flags;
} status_rows[] = {
	{ 400, EINVAL, 0 },
	{ 401, EACCES, FLAG_TOKEN },
	{ 403, EACCES, FLAG_TOKEN },
	{ 405, EOPNOTSUPP, FLAG_UNSUPPORTED },
	{ 407, EACCES, 0 },
	{ 408, ETIMEDOUT, 0 },
	{ 413, EFBIG, 0 },
	{ 414, ENAMETOOLONG, 0 },
	{ 429, EBUSY, 0 },
	{ 431, ENAMETOOLONG, 0 },
	{ 501, EOPNOTSUPP, FLAG_UNSUPPORTED },
	{ 503, EBUSY, 0 },
	{ 504, ETIMEDOUT, 0 },
	{ 507, ENOSPC, 0 },
};

int sbx_errno_from_name(const char *name, size_t len)
{
	for (size_t i = 0; i < G_N_ELEMENTS(errno_rows); i++) {
		if (strlen(errno_rows[i].name) == len && memcmp(errno_rows[i].name, name, len) == 0)
			return errno_rows[i].error;
	}
	return 0;
}

const char *sbx_errno_name(int error)
{
	for (size_t i = 0; i < G_N_ELEMENTS(errno_rows); i++) {
		if (errno_rows[i].error == error && strcmp(errno_rows[i].name, "ENOSYS") != 0)
			return errno_rows[i].name;
	}
	return NULL;
}

/* @text is the whole, or follows ": " at its end. */
static bool text_matches(const char *text, size_t len, const char *want)
{
	size_t want_len;

	if (want == NULL)
		return false;
	want_len = strlen(want);
	if (len < want_len || memcmp(text + len - want_len, want, want_len) != 0)
		return false;
	return len == want_len ||
	       (len >= want_len + 2 && memcmp(text + len - want_len - 2, ": ", 2) == 0);
}

int sbx_errno_from_text(const char *text, size_t len)
{
	const char *note;

	while (len > 0 && g_ascii_isspace(text[len - 1]))
		len--;
	/* Tools written in Rust add " (os error 2)". */
	if (len > 0 && text[len - 1] == ')') {
		note = g_strrstr_len(text, (gssize)len, " (os error ");
		if (note != NULL)
			len = (size_t)(note - text);
	}
	for (size_t i = 0; i < G_N_ELEMENTS(errno_rows); i++) {
		if (text_matches(text, len, errno_rows[i].text) ||
		    text_matches(text, len, errno_rows[i].musl_text))
			return errno_rows[i].error;
	}
	return 0;
}

/* "ENOENT: ..." or, of a command that could not be started, "spawn E2BIG" at the end. */
static int errno_from_token(const char *message)
{
	const char *spawn;
	size_t len = 0;

	while (g_ascii_isupper(message[len]) || g_ascii_isdigit(message[len]))
		len++;
	if (len > 1 && message[0] == 'E' && message[len] == ':')
		return sbx_errno_from_name(message, len);
	if (g_str_has_prefix(message, "spawn ")) {
		spawn = strrchr(message, ' ') + 1;
		return sbx_errno_from_name(spawn, strlen(spawn));
	}
	return 0;
}

static int find_error(int status, const char *code, const char *message, unsigned int *ret_flags)
{
	int error = message != NULL ? errno_from_token(message) : 0;

	*ret_flags = 0;
	if (error != 0)
		return error;
	for (size_t i = 0; message != NULL && i < G_N_ELEMENTS(message_rows); i++) {
		const struct message_row *row = &message_rows[i];

		if (row->match == MATCH_PREFIX ? g_str_has_prefix(message, row->text)
					       : strstr(message, row->text) != NULL) {
			*ret_flags = row->flags;
			return row->error;
		}
	}
	for (size_t i = 0; code != NULL && i < G_N_ELEMENTS(code_rows); i++) {
		if (strcmp(code, code_rows[i].code) == 0) {
			*ret_flags = code_rows[i].flags;
			return code_rows[i].error;
		}
	}
	for (size_t i = 0; i < G_N_ELEMENTS(status_rows); i++) {
		if (status == status_rows[i].status) {
			*ret_flags = status_rows[i].flags;
			return status_rows[i].error;
		}
	}
	return EIO;
}

int sbx_errmap_reply(int status, const char *code, const char *message,
		     struct sbx_failure *ret_failure)
{
	unsigned int flags;
	int error = -find_error(status, code, message, &flags);

	if (ret_failure != NULL) {
		ret_failure->error = error;
		ret_failure->kind = SBX_FAIL_REPLY;
		ret_failure->http_status = status;
		ret_failure->session_not_found = (flags & FLAG_SESSION) != 0;
		ret_failure->not_supported = (flags & FLAG_UNSUPPORTED) != 0;
		ret_failure->token_refused = (flags & FLAG_TOKEN) != 0;
	}
	return error;
}

int sbx_errmap_transport(enum sbx_fail_kind kind)
{
	switch (kind) {
	case SBX_FAIL_CANCEL:
		return -EINTR;
	case SBX_FAIL_RESOLVE:
	case SBX_FAIL_CONNECT:
		return -EHOSTUNREACH;
	case SBX_FAIL_TLS:
		return -EPROTO;
	case SBX_FAIL_STALL:
		return -ETIMEDOUT;
	case SBX_FAIL_NONE:
	case SBX_FAIL_LOCAL:
	case SBX_FAIL_LOST:
	case SBX_FAIL_FOREIGN:
	case SBX_FAIL_REPLY:
		break;
	}
	return -EIO;
}
