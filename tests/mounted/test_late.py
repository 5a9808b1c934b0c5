"""A request that stands still somewhere is answered with an error, and let go of later: what it
asked for is not done then."""

import errno
import os
import time

import pytest

from jobtools import ids, start
from sbxtest.timing import scale, wait_for

HELD_S = 8
pytestmark = pytest.mark.long(10)
both = pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])


@pytest.fixture
def kind():
    return "gnu-host"


@pytest.fixture
def place(kind, start_place):
    # With a long ttl nothing but the changes themselves asks the server.
    place = start_place(kind, ["timeout=2", "ttl=60"])
    (place.fs / "there").write_bytes(b"there")
    (place.fs / "full").mkdir()
    os.listdir(place.fs)
    return place


def held_up(place, change) -> float:
    """The change times out, and what was asked for stays in the server until the returned time."""
    place.server.set_faults(f"exec:1:delay={HELD_S * 1000}")
    until = time.monotonic() + HELD_S
    with pytest.raises(OSError) as raised:
        change()
    assert raised.value.errno == errno.ETIMEDOUT
    place.server.set_faults()
    return until


def over(until: float):
    """What was held up has run, if it was to."""
    time.sleep(max(until - time.monotonic(), 0) + scale(1))


def again(change):
    """As a program that was told an error tries it again, once the server is found to be there."""
    def tried() -> bool:
        try:
            change()
        except OSError as error:
            assert error.errno in (errno.EHOSTUNREACH, errno.ETIMEDOUT)
            return False
        return True
    wait_for(tried, 10)


@both
def test_an_older_save(place):
    until = held_up(place, lambda: (place.fs / "there").write_bytes(b"older"))
    again(lambda: (place.fs / "there").write_bytes(b"newer"))
    wait_for(lambda: place.mount.pending() == (0, 0), 5)
    assert (place.root / "there").read_bytes() == b"newer"
    over(until)
    assert (place.root / "there").read_bytes() == b"newer"


def test_a_directory(place):
    """It was answered with an error, and nothing was asked for since."""
    until = held_up(place, lambda: os.mkdir(place.fs / "late"))
    over(until)
    assert not (place.root / "late").exists()
    place.fresh()
    assert not (place.fs / "late").exists()


def test_a_removal(place):
    until = held_up(place, lambda: os.unlink(place.fs / "there"))
    again(lambda: (place.fs / "there").write_bytes(b"written since"))
    over(until)
    assert (place.root / "there").read_bytes() == b"written since"


def test_a_rename(place):
    until = held_up(place, lambda: os.rename(place.fs / "there", place.fs / "full/there"))
    again(lambda: (place.fs / "full/there").write_bytes(b"another"))
    over(until)
    assert (place.root / "there").read_bytes() == b"there"
    assert (place.root / "full/there").read_bytes() == b"another"


def test_an_append_to_what_was_removed(place):
    def append():
        with open(place.fs / "there", "ab", buffering=0) as file:
            file.write(b" and more")

    until = held_up(place, append)
    again(lambda: os.unlink(place.fs / "there"))
    again(lambda: (place.fs / "there").write_bytes(b"new"))
    over(until)
    assert (place.root / "there").read_bytes() == b"new"
    assert (place.fs / "there").read_bytes() == b"new"


@both
def test_a_job(place):
    """Its start was answered with an error; then it does not begin by itself."""
    # The leader, and the first look for it.
    place.server.set_faults(f"exec:1-2:delay={HELD_S * 1000}")
    until = time.monotonic() + HELD_S
    with pytest.raises(OSError) as raised:
        start(place.mount / place.name, "touch made")
    assert raised.value.errno == errno.ETIMEDOUT
    place.server.set_faults()
    over(until)
    assert not (place.root / "made").exists()
    place.fresh()
    assert ids(place.mount / place.name) == []
