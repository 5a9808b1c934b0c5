"""Bytes of an open file's version stay what they are, whatever is fetched after it was replaced."""

import errno
import os
import time

import pytest

from sbxtest.timing import scale, wait_for

pytestmark = pytest.mark.core

MIB = 1 << 20
SIZE = 3 * MIB
FAR = 2 * MIB


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    place = start_place(request.param, ["ttl=60"])
    (place.root / "f").write_bytes(b"A" * SIZE)
    os.listdir(place.fs)
    return place


def read(fd, offset, size=65536) -> bytes:
    """Of the mount, not of the kernel's pages; "": it is ESTALE."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        return os.pread(fd, size, offset)
    except OSError as error:
        assert error.errno == errno.ESTALE
        return b""


def replace(place):
    (place.root / "new").write_bytes(b"B" * SIZE)
    os.rename(place.root / "new", place.root / "f")


def test_what_was_read_is_not_written_over(place):
    """Windows of the old version, then a reader in sequence, whose stream brings the new one."""
    fd = os.open(place.fs / "f", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    assert read(fd, FAR, 4096) == b"A" * 4096
    reader = os.open(place.fs / "f", os.O_RDONLY)
    replace(place)
    before = place.log_mark()
    assert read(reader, 0, MIB) == b""
    os.close(reader)
    wait_for(lambda: any(record.route == "fs" for record in place.server.log(before)), 5,
             "a stream")
    for _ in range(20):
        assert read(fd, FAR, 4096) == b"A" * 4096
    os.close(fd)
    with open(place.fs / "f", "rb") as file:
        place.fresh()
    with open(place.fs / "f", "rb") as file:
        assert file.read() == b"B" * SIZE


def test_a_stream_is_not_written_over(place):
    """A window that was asked for by then brings the new version when a stream has brought the
    old one."""
    fd = os.open(place.fs / "f", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    data = b"".join(read(fd, at) for at in range(0, MIB, 65536))
    assert data == b"A" * MIB
    replace(place)
    for at in range(0, SIZE, 65536):
        assert set(read(fd, at)) <= set(b"A"), at
    os.close(fd)


def test_one_answer_is_one_version(place):
    """What was replaced after it was opened is read as it is now, whole, and not kept as the old
    one; the look that tells shows the new one to the next who opens it."""
    with open(place.fs / "f", "rb", buffering=0) as file:
        old = os.fstat(file.fileno())
        replace(place)
        before = place.log_mark()
        data = b"".join(iter(lambda: file.read(MIB), b""))
    assert data == b"B" * SIZE
    wait_for(lambda: len(place.server.log(before)) == 2, 5, "a stream and a look at its end")
    assert {record.program for record in place.server.log(before)} == {None, "sbxfs-pack"}
    # Taken in a moment after it was logged: what the kernel is told before it believes for ttl.
    time.sleep(scale(0.2))
    assert os.stat(place.fs / "f").st_mtime_ns == os.stat(place.root / "f").st_mtime_ns != \
        old.st_mtime_ns
    assert (place.fs / "f").read_bytes() == b"B" * SIZE


def test_an_answer_that_begins_anew_is_no_longer_one(place):
    """The first one ends half way, and the file is replaced meanwhile."""
    place.server.set_faults("get:1:cut=1500000")
    with open(place.fs / "f", "rb", buffering=0) as file:
        data = file.read(65536)
        replace(place)
        try:
            while more := file.read(65536):
                data += more
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO)
    assert len(data) > MIB and set(data) == set(b"A"), "not two versions in one"
