"""fsync of a directory: what was closed and renamed is there; what others write is theirs."""

import os
import time

import pytest

from sbxtest.calls import fails
from sbxtest.timing import wait_for

pytestmark = pytest.mark.core


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    return start_place(request.param)


def sync(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def test_what_another_program_is_writing_stays_its_own(place):
    """No half of it is put in place by who syncs the directory."""
    (place.fs / "d").mkdir()
    (place.fs / "d/old").write_bytes(b"old")
    with open(place.fs / "d/big", "wb", buffering=0) as big, \
            open(place.fs / "d/old", "wb", buffering=0) as old:
        big.write(b"x" * 100000)
        old.write(b"half of")
        for path in ("d", ""):
            sync(place.fs / path)
        assert not (place.root / "d/big").exists()
        assert (place.root / "d/old").read_bytes() == b"old"
        big.write(b"y" * 100000)
    assert (place.root / "d/big").read_bytes() == b"x" * 100000 + b"y" * 100000
    assert (place.root / "d/old").read_bytes() == b"half of"


def test_what_is_kept_of_another_file_is_no_error_of_the_directory(place):
    """Its writer was told."""
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_bytes(b"x" * 10000)
    time.sleep(1.1)
    os.stat(place.fs / "d/f")
    place.inside("rm d/f")
    fd = os.open(place.fs / "d/f", os.O_WRONLY)
    os.pwrite(fd, b"y", 5000)
    with pytest.raises(FileNotFoundError):
        os.close(fd)
    sync(place.fs / "d")
    sync(place.fs)
    (place.fs / "d/f").unlink()


def test_what_was_made_or_emptied_and_closed_is_there(place):
    """Neither was sent by close: nothing was written."""
    (place.fs / "d/e").mkdir(parents=True)
    (place.fs / "d/full").write_bytes(b"full")
    for turn in range(20):
        place.server.set_faults("exec:*:delay=100")
        os.close(os.open(place.fs / f"d/new{turn}", os.O_WRONLY | os.O_CREAT))
        os.close(os.open(place.fs / f"d/e/below{turn}", os.O_WRONLY | os.O_CREAT))
        os.close(os.open(place.fs / "d/full", os.O_WRONLY | os.O_TRUNC))
        place.server.set_faults()
        sync(place.fs / "d")
        assert (place.root / f"d/new{turn}").read_bytes() == b""
        assert (place.root / f"d/e/below{turn}").read_bytes() == b""
        assert (place.root / "d/full").read_bytes() == b""
        (place.fs / "d/full").write_bytes(b"full")


def test_save_by_rename(place):
    """As sqlite, git and dpkg do."""
    directory = place.fs / "d"
    directory.mkdir()
    for turn in range(5):
        with open(directory / "tmp", "wb") as file:
            file.write(b"%d" % turn)
            file.flush()
            os.fsync(file.fileno())
        os.rename(directory / "tmp", directory / "f")
        sync(directory)
        assert (place.root / "d/f").read_bytes() == b"%d" % turn
        assert os.listdir(place.root / "d") == ["f"]


def test_a_name_that_is_not_there_yet_is_an_error(place):
    """Only the directory's own fsync can still tell of it."""
    (place.fs / "d").mkdir()
    place.server.set_faults("exec:*:status=500")
    os.close(os.open(place.fs / "d/new", os.O_WRONLY | os.O_CREAT))
    fd = os.open(place.fs / "d", os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            os.fsync(fd)
        place.server.set_faults()
        wait_for(lambda: not fails(os.fsync, fd), 15)
    finally:
        os.close(fd)
    assert (place.root / "d/new").read_bytes() == b""
