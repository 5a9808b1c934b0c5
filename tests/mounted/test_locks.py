"""Locks among the programs of this machine, and the ways to open that few programs use."""

import errno
import fcntl
import mmap
import os
import subprocess
import sys
import tempfile
import time

import pytest

from sbxtest.timing import scale

pytestmark = pytest.mark.core

# WAY NB|WAIT PATH: takes the lock, says so, holds it until its input ends.
HOLDER = """
import fcntl, sys
file = open(sys.argv[3], "r+")
lock = fcntl.flock if sys.argv[1] == "flock" else fcntl.lockf
try:
    lock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[2] == "NB" else 0))
except BlockingIOError:
    print("refused", flush=True)
else:
    print("got", flush=True)
    sys.stdin.read()
"""
WAYS = ["flock", "fcntl"]


@pytest.fixture
def fs(start_place):
    place = start_place("busybox-host")
    (place.fs / "f").write_bytes(b"x" * 100)
    return place.fs


def holder(way, wait, path):
    return subprocess.Popen([sys.executable, "-c", HOLDER, way, wait, str(path)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def refused(way, path):
    with holder(way, "NB", path) as other:
        text = other.stdout.readline()
        other.stdin.close()
    return {"refused\n": True, "got\n": False}[text]


@pytest.mark.parametrize("way", WAYS)
def test_held_and_let_go(fs, way):
    with holder(way, "NB", fs / "f") as first:
        assert first.stdout.readline() == "got\n"
        assert refused(way, fs / "f")
        os.rename(fs / "f", fs / "g")
        assert refused(way, fs / "g")
        first.stdin.close()
    assert not refused(way, fs / "g")


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_gets_it_and_holds_up_nobody(fs, way):
    with holder(way, "NB", fs / "f") as first:
        assert first.stdout.readline() == "got\n"
        with holder(way, "WAIT", fs / "f") as second:
            time.sleep(0.3)
            began = time.monotonic()
            assert (fs / "f").read_bytes() == b"x" * 100
            (fs / "new").write_text("beside")
            assert time.monotonic() - began < scale(5)
            assert second.poll() is None
            first.stdin.close()
            assert second.stdout.readline() == "got\n"
            second.stdin.close()


@pytest.mark.parametrize("way", WAYS)
def test_the_dead_hold_nothing(fs, way):
    with holder(way, "NB", fs / "f") as first:
        assert first.stdout.readline() == "got\n"
        with holder(way, "WAIT", fs / "f") as waiting:
            time.sleep(0.3)
            waiting.kill()
            waiting.wait(scale(5))
        first.kill()
        first.wait(scale(5))
    assert not refused(way, fs / "f")


@pytest.mark.parametrize("way", WAYS)
def test_a_lock_outlasts_the_publishing_of_a_new_file(fs, way):
    with open(fs / "new", "w+") as file:
        file.write("text")
        file.flush()
        (fcntl.flock if way == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
        assert refused(way, fs / "new")
        os.fsync(file.fileno())
        time.sleep(1.1)  # ttl
        assert os.stat(fs / "new").st_size == 4
        assert refused(way, fs / "new")


def test_ranges(fs):
    with open(fs / "f", "r+") as file, holder("fcntl", "NB", fs / "f") as other:
        assert other.stdout.readline() == "got\n"
        with pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
        other.stdin.close()
        other.wait(scale(5))
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)


def test_direct_io(fs):
    fd = os.open(fs / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as area:
        area[:] = b"z" * len(area)
        assert os.write(fd, area) == len(area)
        area[:] = bytes(len(area))
        assert os.preadv(fd, [area], 0) == len(area)
        assert area[:] == b"z" * len(area)
    os.close(fd)
    assert (fs / "direct").read_bytes() == b"z" * 2 * mmap.PAGESIZE


def test_files_without_a_name(fs):
    with pytest.raises(OSError) as refusal:
        os.open(fs, os.O_TMPFILE | os.O_RDWR)
    assert refusal.value.errno == errno.EOPNOTSUPP
    # Programs make one by other means then.
    with tempfile.TemporaryFile(dir=fs) as file:
        file.write(b"q" * 5000)
        file.seek(0)
        assert file.read() == b"q" * 5000
        assert os.listdir(fs) == ["f"]


def test_statvfs(fs):
    found = os.statvfs(fs)
    assert found.f_blocks >= found.f_bfree > 0
    assert found.f_namemax == 255
    assert found.f_flag & os.ST_NOSUID and found.f_flag & os.ST_NODEV
    assert os.statvfs(fs.parent.parent).f_namemax == 255
