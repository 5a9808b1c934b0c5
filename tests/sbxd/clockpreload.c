/*
 * Preloaded into commands beside libfaketime, when sbxd's clock is skewed: shifts the times that
 * the stat functions tell. libfaketime does this too, but only where programs call the names that
 * glibc had before 2.33.
 *
 * The offset comes in SBXD_CLOCK_SKEW_MS. What sets times (utimensat and its kin) is shifted back
 * by libfaketime, so that a time that was set is read again as it was.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define EXPORT __attribute__((visibility("default")))

static long long skew_ms;

__attribute__((constructor)) static void read_skew(void)
{
	const char *text = getenv("SBXD_CLOCK_SKEW_MS");

	skew_ms = text ? strtoll(text, NULL, 10) : 0;
}

static void shift(long long *seconds, long *nanoseconds)
{
	long long nano = *nanoseconds + skew_ms % 1000 * 1000000;

	*seconds += skew_ms / 1000;
	if (nano < 0) {
		nano += 1000000000;
		*seconds -= 1;
	} else if (nano >= 1000000000) {
		nano -= 1000000000;
		*seconds += 1;
	}
	*nanoseconds = (long)nano;
}

static void shift_timespec(struct timespec *time)
{
	long long seconds = time->tv_sec;
	long nanoseconds = time->tv_nsec;

	shift(&seconds, &nanoseconds);
	time->tv_sec = (time_t)seconds;
	time->tv_nsec = nanoseconds;
}

static void shift_statx(struct statx_timestamp *time)
{
	long long seconds = time->tv_sec;
	long nanoseconds = time->tv_nsec;

	shift(&seconds, &nanoseconds);
	time->tv_sec = seconds;
	time->tv_nsec = (unsigned int)nanoseconds;
}

static int shifted(int result, struct stat *st)
{
	if (result == 0) {
		shift_timespec(&st->st_atim);
		shift_timespec(&st->st_mtim);
		shift_timespec(&st->st_ctim);
	}
	return result;
}

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

EXPORT int shifted_stat(const char *path, struct stat *st) __asm__("stat");
EXPORT int shifted_stat64(const char *path, struct stat *st) __asm__("stat64");
EXPORT int shifted_lstat(const char *path, struct stat *st) __asm__("lstat");
EXPORT int shifted_lstat64(const char *path, struct stat *st) __asm__("lstat64");
EXPORT int shifted_fstat(int fd, struct stat *st) __asm__("fstat");
EXPORT int shifted_fstat64(int fd, struct stat *st) __asm__("fstat64");
EXPORT int shifted_fstatat(int fd, const char *path, struct stat *st, int flags) __asm__("fstatat");
EXPORT int shifted_fstatat64(int fd, const char *path, struct stat *st,
			     int flags) __asm__("fstatat64");
EXPORT int shifted_statx(int fd, const char *path, int flags, unsigned int mask,
			 struct statx *st) __asm__("statx");

/*
 * The names with and without 64 mean the same where off_t has 64 bits, but the headers make one of
 * both: hence names of our own, exported as what they replace.
 */
typedef int (*stat_at)(int, const char *, struct stat *, int);

int shifted_fstatat(int fd, const char *path, struct stat *st, int flags)
{
	stat_at real = (stat_at)next("fstatat");

	return shifted(real(fd, path, st, flags), st);
}

int shifted_fstatat64(int fd, const char *path, struct stat *st, int flags)
{
	return shifted_fstatat(fd, path, st, flags);
}

int shifted_stat(const char *path, struct stat *st)
{
	return shifted_fstatat(AT_FDCWD, path, st, 0);
}

int shifted_stat64(const char *path, struct stat *st)
{
	return shifted_fstatat(AT_FDCWD, path, st, 0);
}

int shifted_lstat(const char *path, struct stat *st)
{
	return shifted_fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int shifted_lstat64(const char *path, struct stat *st)
{
	return shifted_fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int shifted_fstat(int fd, struct stat *st)
{
	return shifted_fstatat(fd, "", st, AT_EMPTY_PATH);
}

int shifted_fstat64(int fd, struct stat *st)
{
	return shifted_fstatat(fd, "", st, AT_EMPTY_PATH);
}

int shifted_statx(int fd, const char *path, int flags, unsigned int mask, struct statx *st)
{
	int (*real)(int, const char *, int, unsigned int, struct statx *) =
		(int (*)(int, const char *, int, unsigned int, struct statx *))next("statx");
	int result = real(fd, path, flags, mask, st);

	if (result == 0) {
		shift_statx(&st->stx_atime);
		shift_statx(&st->stx_btime);
		shift_statx(&st->stx_ctime);
		shift_statx(&st->stx_mtime);
	}
	return result;
}
