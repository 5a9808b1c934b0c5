"""No room on this machine, where unsent bytes are kept: the writer hears it, nothing is lost."""

import errno
import os
import subprocess

import pytest

from sbxtest.timing import wait_for

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture
def place(start_place, small_disk):
    place = start_place("gnu-host", [f"state_dir={small_disk}"])
    yield place
    if os.path.ismount(place.mount.mnt):
        place.mount.unmount()


def fill(small_disk):
    """Takes all room; returns the file that takes it."""
    # What was sent gives its room back a moment later.
    wait_for(lambda: not list(small_disk.rglob("*.spool")), 10)
    path = small_disk / "filler"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    assert os.statvfs(small_disk).f_bavail == 0
    return path


def test_write(place, small_disk):
    """A new file and a save that don't fit: ENOSPC, the old content is what the sandbox keeps."""
    (place.fs / "old").write_bytes(b"old")
    for name in ("new", "old"):
        fd = os.open(place.fs / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with pytest.raises(OSError) as caught:
            for _ in range(16):
                os.write(fd, os.urandom(MIB))
        assert caught.value.errno == errno.ENOSPC
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO)
        (place.fs / name).unlink()
        wait_for(lambda: place.mount.pending()[0] == 0, 10)
        # Its room is given back.
        (place.fs / "after").write_bytes(os.urandom(2 * MIB))
        assert (place.root / "after").stat().st_size == 2 * MIB
        (place.fs / "after").unlink()


def test_cp_says_it(place):
    """As to a local disk that is full: cp fails with that word."""
    (place.work / "big").write_bytes(os.urandom(8 * MIB))
    done = subprocess.run(["cp", place.work / "big", place.fs / "big"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and "No space left" in done.stderr
    (place.fs / "big").unlink(missing_ok=True)
    (place.fs / "small").write_text("goes on")
    assert (place.root / "small").read_text() == "goes on"


def test_full_all_the_time(place, small_disk):
    """Not a byte left: what can't be kept is refused at write() or close(), reading goes on."""
    (place.fs / "f").write_bytes(b"x" * 1000)
    filler = fill(small_disk)
    assert (place.fs / "f").read_bytes() == b"x" * 1000
    with pytest.raises(OSError) as caught:
        (place.fs / "f").write_bytes(b"y" * 100_000)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError) as caught:
        with open(place.fs / "f", "ab") as file:
            file.write(b"z" * 100_000)
    assert caught.value.errno == errno.ENOSPC
    # What needs no room here is done.
    os.rename(place.fs / "f", place.fs / "g")
    os.mkdir(place.fs / "d")
    assert (place.root / "g").exists() and (place.root / "d").is_dir()
    filler.unlink()
    (place.fs / "h").write_bytes(b"h" * 1000)
    assert (place.root / "h").read_bytes() == b"h" * 1000
    wait_for(lambda: place.mount.pending()[0] == 0, 10)


def test_a_session_that_cannot_be_remembered(place, small_disk):
    """It is not made: nobody would know of it."""
    (place.fs / "f").write_text("x")
    filler = fill(small_disk)
    mark = place.log_mark()
    with pytest.raises(OSError) as caught:
        (place.mount / "dev2").mkdir()
    assert caught.value.errno == errno.ENOSPC
    filler.unlink()
    asked = [record.route for record in place.server.log(mark)]
    assert asked.count("create") == asked.count("delete")
    assert not (place.mount / "dev2").exists()
    (place.mount / "dev2").mkdir()
    assert (place.mount / "dev2/fs").is_dir()
