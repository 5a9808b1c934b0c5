"""What is appended and what is written at an offset: decided by each write, not by the open."""

import fcntl
import mmap
import os

import pytest

pytestmark = pytest.mark.core

SIZE = 2 * mmap.PAGESIZE


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    return start_place(request.param)


def set_append(fd, on: bool):
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND if on else flags & ~os.O_APPEND)


@pytest.mark.parametrize("sync", [True, False], ids=["msync", "unmap"])
def test_a_mapping_of_a_file_opened_for_appending(place, sync):
    """Pages go where they belong; what write() brings goes to the end."""
    path = place.fs / "f"
    path.write_bytes(b"a" * SIZE)
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    with mmap.mmap(fd, SIZE) as area:
        area[0] = ord("x")
        area[SIZE - 1] = ord("y")
        if sync:
            area.flush()
    os.write(fd, b"tail")
    os.fsync(fd)
    wanted = b"x" + b"a" * (SIZE - 2) + b"y" + b"tail"
    assert (place.root / "f").read_bytes() == wanted
    os.close(fd)
    assert path.read_bytes() == wanted
    assert (place.root / "f").read_bytes() == wanted


def test_appending_is_taken_away(place):
    path = place.fs / "f"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"end")
    set_append(fd, False)
    os.pwrite(fd, b"XY", 2)
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"01XY456789end"
    assert path.read_bytes() == b"01XY456789end"


def test_appending_is_set_later(place):
    """Then it goes to the end that the sandbox's file has, as any append."""
    path = place.fs / "f"
    path.write_bytes(b"base\n")
    fd = os.open(path, os.O_WRONLY)
    set_append(fd, True)
    place.inside("echo sandbox >> f")
    os.write(fd, b"here\n")
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"base\nsandbox\nhere\n"


def test_a_scratch_file(place):
    """The same of those beside control."""
    path = place.mount / "dev1/scratch"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    set_append(fd, False)
    os.pwrite(fd, b"XY", 2)
    set_append(fd, True)
    os.write(fd, b"end")
    os.close(fd)
    assert path.read_bytes() == b"01XY456789end"
