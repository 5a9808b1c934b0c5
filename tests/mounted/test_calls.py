"""System calls that few programs make: what the kernel passes on of them, and what they answer."""

import ctypes
import errno
import fcntl
import os

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
FS_IOC_GETFLAGS = 0x80086601
TCGETS = 0x5401


def renameat2(source, target, flags) -> int:
    """0 or its errno."""
    if LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags) == 0:
        return 0
    return ctypes.get_errno()


def fallocate(fd, mode, offset, length) -> int:
    if LIBC.fallocate(fd, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length)) == 0:
        return 0
    return ctypes.get_errno()


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    return start_place(request.param)


def test_exchanged_names(place):
    """Nothing there does it at once; as two renames it would not be what was asked for."""
    for name in "ab":
        (place.fs / name).write_text(name)
        (place.fs / f"d{name}").mkdir()
    for one, other in (("a", "b"), ("da", "db"), ("a", "da")):
        assert renameat2(place.fs / one, place.fs / other, RENAME_EXCHANGE) == errno.EINVAL
    assert (place.root / "a").read_text() == "a" and (place.root / "b").read_text() == "b"
    assert (place.root / "da").is_dir() and (place.root / "db").is_dir()
    assert renameat2(place.fs / "a", place.fs / "c", RENAME_WHITEOUT) in (errno.EINVAL, errno.EPERM)
    assert (place.fs / "a").read_text() == "a" and not (place.root / "c").exists()


def test_a_rename_that_replaces_nothing(place):
    for name in "ab":
        (place.fs / name).write_text(name)
    assert renameat2(place.fs / "a", place.fs / "b", RENAME_NOREPLACE) == errno.EEXIST
    assert renameat2(place.fs / "a", place.fs / "c", RENAME_NOREPLACE) == 0
    assert (place.root / "c").read_text() == "a" and (place.root / "b").read_text() == "b"
    assert not (place.root / "a").exists()
    # Also where the name came to be in the sandbox a moment ago.
    (place.root / "there").write_text("theirs")
    assert renameat2(place.fs / "c", place.fs / "there", RENAME_NOREPLACE) == errno.EEXIST
    assert (place.root / "there").read_text() == "theirs"


def test_fallocate(place):
    data = os.urandom(10000)
    (place.fs / "f").write_bytes(data)
    with open(place.fs / "f", "r+b", buffering=0) as file:
        for mode in (KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, COLLAPSE, ZERO_RANGE,
                     ZERO_RANGE | KEEP_SIZE, INSERT, UNSHARE):
            assert fallocate(file.fileno(), mode, 0, 4096) == errno.EOPNOTSUPP, mode
        assert os.fstat(file.fileno()).st_size == 10000
        assert fallocate(file.fileno(), 0, 100, 1000) == 0
        assert os.fstat(file.fileno()).st_size == 10000
        assert fallocate(file.fileno(), 0, 9000, 5000) == 0
        assert os.fstat(file.fileno()).st_size == 14000
        assert fallocate(file.fileno(), 0, 0, 0) == errno.EINVAL
    assert (place.root / "f").read_bytes() == data + bytes(4000)
    with open(place.fs / "f", "rb") as file:
        assert fallocate(file.fileno(), 0, 0, 20000) == errno.EBADF
    assert (place.fs / "f").read_bytes() == data + bytes(4000)


def test_ioctl(place):
    (place.fs / "f").write_text("x")
    for path in (place.fs / "f", place.fs, place.mount / "status", place.mount / "dev1/control"):
        fd = os.open(path, os.O_RDONLY)
        try:
            for request in (FS_IOC_GETFLAGS, TCGETS):
                with pytest.raises(OSError) as caught:
                    fcntl.ioctl(fd, request, bytes(64))
                assert caught.value.errno == errno.ENOTTY, (path, request)
            assert not os.isatty(fd)
        finally:
            os.close(fd)
