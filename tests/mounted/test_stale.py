"""Open files whose name has gone, or means something else by now."""

import errno
import os
import stat
import subprocess
import time

import pytest
from sbxtest.calls import fails

pytestmark = pytest.mark.core


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    return start_place(request.param)


def wait_ttl():
    time.sleep(1.1)


@pytest.fixture
def stale(place):
    """An open file in a directory that the sandbox has replaced, as this side knows."""
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_bytes(b"old")
    fd = os.open(place.fs / "d/f", os.O_RDWR)
    os.pread(fd, 10, 0)
    wait_ttl()
    place.inside("mv d old; mkdir -m 755 d; echo another > d/f; chmod 644 d/f")
    os.listdir(place.fs / "d")
    yield fd
    os.close(fd)


def modes(place):
    found = {"": os.stat(place.root)}
    for name in ("d", "d/f", "old", "old/f"):
        found[name] = os.stat(place.root / name)
    return {name: (oct(st.st_mode), st.st_mtime_ns, st.st_size) for name, st in found.items()}


@pytest.mark.parametrize("change", [
    lambda fd: os.fchmod(fd, 0o600), lambda fd: os.utime(fd, (1, 1)), lambda fd: os.utime(fd)],
    ids=["fchmod", "utime", "touch"])
def test_a_change_of_a_stale_file_changes_nothing_else(place, stale, change):
    """Neither the file that has its name now, nor the workspace's root."""
    before = modes(place)
    assert fails(change, stale) == errno.ESTALE
    assert modes(place) == before


def test_what_a_stale_file_shows(place, stale):
    """Itself, as it was; not what has its name now."""
    found = os.fstat(stale)
    assert (found.st_size, found.st_nlink) == (3, 0)
    assert os.pread(stale, 10, 0) == b"old"
    assert os.stat(place.fs / "d/f").st_size == len("another\n")


def test_a_directory_has_the_name_of_an_open_file(place):
    """A type that changes makes the kernel throw the file away: then all is EIO."""
    (place.fs / "f").write_bytes(b"old")
    with open(place.fs / "f", "rb", buffering=0) as file:
        assert file.read() == b"old"
        wait_ttl()
        place.inside("rm f; mkdir f")
        assert os.listdir(place.fs) == ["f"]
        assert stat.S_ISDIR(os.stat(place.fs / "f").st_mode)
        for _ in range(2):
            found = os.fstat(file.fileno())
            assert stat.S_ISREG(found.st_mode)
            assert (found.st_size, found.st_nlink) == (3, 0)
            assert os.pread(file.fileno(), 10, 0) == b"old"
            time.sleep(0.5)


def reopen(fd, flags):
    return os.open(f"/proc/self/fd/{fd}", flags)


def test_a_file_without_a_name_is_opened_again(place):
    """As programs do that are given /dev/fd/N or /dev/stdin."""
    fd = os.open(place.fs / "t", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"hello")
    os.unlink(place.fs / "t")
    again = reopen(fd, os.O_RDONLY)
    assert os.read(again, 100) == b"hello"
    assert fails(os.write, again, b"x") == errno.EBADF
    writer = reopen(fd, os.O_RDWR | os.O_APPEND)
    os.write(writer, b" there")
    assert os.pread(fd, 100, 0) == os.pread(writer, 100, 0) == b"hello there"
    os.close(fd)
    assert os.pread(again, 100, 0) == b"hello there"
    os.close(reopen(again, os.O_WRONLY | os.O_TRUNC))
    assert os.fstat(again).st_size == 0
    os.close(again)
    os.close(writer)
    assert os.listdir(place.fs) == []
    assert os.listdir(place.root) in ([], [".sbxfs"])


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_file_of_the_sandbox_without_a_name(place, size):
    """Its bytes come from where it was set aside."""
    (place.root / "f").write_bytes(b"z" * size)
    fd = os.open(place.fs / "f", os.O_RDONLY)
    os.unlink(place.fs / "f")
    again = reopen(fd, os.O_RDONLY)
    os.close(fd)
    data = b""
    while chunk := os.read(again, 1 << 20):
        data += chunk
    assert data == b"z" * size
    os.close(again)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_reads_its_removed_file_by_number(place, shell):
    """The idiom of temporary files that nobody finds."""
    out = subprocess.run(
        [shell, "-ec", "echo one > t; exec 3<>t; rm t; cat /dev/fd/3; cat /proc/self/fd/3"],
        cwd=place.fs, check=True, capture_output=True, text=True).stdout
    assert out == "one\none\n"


def test_a_replaced_file_is_opened_by_its_name(place):
    """A name that was replaced here and is opened at that moment is found: never ESTALE."""
    (place.fs / "f").write_bytes(b"old")
    with open(place.fs / "f", "rb", buffering=0) as file:
        (place.fs / "new").write_bytes(b"new")
        os.rename(place.fs / "new", place.fs / "f")
        assert file.read() == b"old"
        again = reopen(file.fileno(), os.O_RDONLY)
        assert os.read(again, 10) == b"new"
        os.close(again)
