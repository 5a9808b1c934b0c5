"""Files that a route can't carry, and changes of files that are too big to be sent whole."""

import hashlib
import os
import subprocess

import pytest

from sbxtest.fixtures import quick_kinds
from sbxtest.timing import wait_for

GIB = 1 << 30


def wire_bytes(place, mark):
    """Bytes of the requests since, both ways."""
    return sum((r.bytes_in or 0) + (r.bytes_out or 0) for r in place.server.log(mark))


@pytest.fixture
def big(place):
    """16 MiB that the sandbox made."""
    data = os.urandom(16 << 20)
    (place.root / "big").write_bytes(data)
    place.fresh()
    os.stat(place.fs / "big")
    return data


def test_a_file_of_5_gib(place):
    """Written beyond 4 GiB here, read back on both sides; sparse all the while."""
    path, there = place.fs / "huge", place.root / "huge"
    with open(path, "wb") as file:
        file.truncate(5 * GIB)
    assert os.stat(path).st_size == 5 * GIB
    assert there.stat().st_size == 5 * GIB
    assert there.stat().st_blocks < 10000
    with open(path, "r+b") as file:
        file.seek(4 * GIB + 12345)
        file.write(b"beyond")
        file.seek(4 * GIB - 3)
        file.write(b"across")
        file.seek(17)
        file.write(b"start")
    with open(there, "rb") as file:
        for offset, wanted in ((4 * GIB + 12345, b"beyond"), (4 * GIB - 3, b"across"),
                               (17, b"start")):
            assert os.pread(file.fileno(), len(wanted) + 1, offset) == wanted + b"\0"
    with open(there, "r+b") as file:
        os.pwrite(file.fileno(), b"from there", 5 * GIB - 100)
    place.fresh()
    with open(path, "rb") as file:
        assert os.pread(file.fileno(), 10, 5 * GIB - 100) == b"from there"
        assert os.pread(file.fileno(), 200, 5 * GIB - 100) == b"from there" + bytes(90)
        assert os.pread(file.fileno(), 8, 4 * GIB + 12344) == b"\0beyond\0"
        assert os.pread(file.fileno(), 8, 4 * GIB - 4) == b"\0across\0"
    with open(path, "ab") as file:
        file.write(b"appended")
    assert there.stat().st_size == 5 * GIB + 8
    with open(there, "rb") as file:
        assert os.pread(file.fileno(), 20, 5 * GIB) == b"appended"
    assert there.stat().st_blocks < 10000
    os.truncate(path, 3 * GIB)
    assert there.stat().st_size == 3 * GIB
    path.unlink()
    assert not there.exists()


def test_appending_sends_what_is_appended(place, big):
    mark = place.log_mark()
    with open(place.fs / "big", "ab") as file:
        file.write(b"x" * 100)
    assert wire_bytes(place, mark) < 1 << 16
    assert len(place.server.log(mark)) <= 3
    assert (place.root / "big").read_bytes() == big + b"x" * 100


def test_overwriting_sends_what_is_written(place, big):
    block = os.urandom(4096)
    inode = (place.root / "big").stat().st_ino
    mark = place.log_mark()
    with open(place.fs / "big", "r+b") as file:
        file.seek(8 << 20)
        file.write(block)
    assert wire_bytes(place, mark) < 1 << 16
    wanted = big[:8 << 20] + block + big[(8 << 20) + 4096:]
    assert (place.root / "big").read_bytes() == wanted
    assert (place.root / "big").stat().st_ino == inode
    assert hashlib.sha256((place.fs / "big").read_bytes()).digest() == \
        hashlib.sha256(wanted).digest()


def test_truncating_sends_nothing(place, big):
    mark = place.log_mark()
    os.truncate(place.fs / "big", 10 << 20)
    assert (place.root / "big").read_bytes() == big[:10 << 20]
    with open(place.fs / "big", "r+b") as file:
        file.truncate(5 << 20)
    with open(place.fs / "big", "r+b") as file:
        file.truncate(6 << 20)
    assert (place.root / "big").read_bytes() == big[:5 << 20] + bytes(1 << 20)
    assert wire_bytes(place, mark) < 1 << 16
    place.sh(": >big")
    assert os.stat(place.fs / "big").st_size == 0
    wait_for(lambda: (place.root / "big").stat().st_size == 0, 5)
    assert wire_bytes(place, mark) < 1 << 17


def test_reading_here_and_there_in_a_file(place, big):
    """4 KiB at random are not the whole file."""
    mark = place.log_mark()
    with open(place.fs / "big", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(file.fileno(), 4096, 9876543) == big[9876543:9876543 + 4096]
    assert wire_bytes(place, mark) < 1 << 18


@quick_kinds
def test_a_big_file_both_ways(place):
    data = os.urandom(20 << 20)
    (place.work / "f").write_bytes(data)
    place.run("cp", place.work / "f", "f")
    assert (place.root / "f").read_bytes() == data
    place.inside("cp f g")
    place.fresh()
    digest = subprocess.run(["sha256sum", place.fs / "g"], capture_output=True, text=True,
                            check=True).stdout.split()[0]
    assert digest == hashlib.sha256(data).hexdigest()
