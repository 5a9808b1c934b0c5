#include "tests/sbxd/errtext.h"

#include <errno.h>
#include <glib.h>

static const struct row {
	int err;
	const char *code;
	const char *text;
} rows[] = {
	{ ENOENT, "ENOENT", "no such file or directory" },
	{ EEXIST, "EEXIST", "file already exists" },
	{ ENOTDIR, "ENOTDIR", "not a directory" },
	{ EISDIR, "EISDIR", "illegal operation on a directory" },
	{ ENOTEMPTY, "ENOTEMPTY", "directory not empty" },
	{ EACCES, "EACCES", "permission denied" },
	{ EPERM, "EPERM", "operation not permitted" },
	{ ELOOP, "ELOOP", "too many symbolic links encountered" },
	{ ENAMETOOLONG, "ENAMETOOLONG", "name too long" },
	{ ENXIO, "ENXIO", "no such device or address" },
	{ ENODEV, "ENODEV", "no such device" },
	{ ENOSPC, "ENOSPC", "no space left on device" },
	{ EROFS, "EROFS", "read-only file system" },
	{ EFBIG, "EFBIG", "file too large" },
	{ EINVAL, "EINVAL", "invalid argument" },
	{ EIO, "EIO", "i/o error" },
	{ EBUSY, "EBUSY", "resource busy or locked" },
	{ ETXTBSY, "ETXTBSY", "text file is busy" },
	{ EXDEV, "EXDEV", "cross-device link not permitted" },
	{ EMLINK, "EMLINK", "too many links" },
	{ EMFILE, "EMFILE", "too many open files" },
	{ ENFILE, "ENFILE", "file table overflow" },
	{ ENOMEM, "ENOMEM", "not enough memory" },
	{ EAGAIN, "EAGAIN", "resource temporarily unavailable" },
	{ EINTR, "EINTR", "interrupted system call" },
	{ E2BIG, "E2BIG", "argument list too long" },
	{ ENOSYS, "ENOSYS", "function not implemented" },
	{ ENOTSUP, "ENOTSUP", "operation not supported on socket" },
	{ EOVERFLOW, "EOVERFLOW", "value too large for defined data type" },
	{ EILSEQ, "EILSEQ", "illegal byte sequence" },
};

static const struct row *find_row(int err)
{
	for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
		if (rows[i].err == err)
			return &rows[i];
	}
	return NULL;
}

const char *errtext_code(int err)
{
	const struct row *row = find_row(err);

	return row ? row->code : "UNKNOWN";
}

const char *errtext_text(int err)
{
	const struct row *row = find_row(err);

	return row ? row->text : "unknown error";
}

char *errtext_message(int err, const char *call, const char *path)
{
	if (path)
		return g_strdup_printf("%s: %s, %s '%s'", errtext_code(err), errtext_text(err),
				       call, path);
	return g_strdup_printf("%s: %s, %s", errtext_code(err), errtext_text(err), call);
}
