"""Unsent bytes of mounts that were killed: sent by whom, in which order, over what."""

import errno
import os
import signal
import time

import pytest

from sbxtest.timing import wait_for

pytestmark = pytest.mark.core


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    place = start_place(request.param, ["timeout=3", "ttl=60"])
    os.listdir(place.fs)
    return place


@pytest.fixture
def beside(place, start_mount):
    """More mounts of the same endpoint, with the same state."""
    def start():
        mount = start_mount(place.server.url, ["timeout=3", "ttl=60"],
                            state_dir=place.mount.state_dir)
        os.listdir(mount / "dev1/fs")
        return mount

    return start


def cut_off(place):
    place.server.set_faults("exec:*:status=500", "put:*:status=500")


def kill(mount):
    mount.signal(signal.SIGKILL)
    mount.wait_gone()


def pending(place) -> str:
    return place.mount.status("dev1")["pending_writes"].split()[0]


def refused(fd, data: bytes, offset=0):
    """The bytes can't be sent, and are kept."""
    os.pwrite(fd, data, offset)
    with pytest.raises(OSError) as caught:
        os.close(fd)
    assert caught.value.errno in (errno.EIO, errno.ETIMEDOUT, errno.EHOSTUNREACH)


def save(path, data: bytes, flags=os.O_CREAT | os.O_TRUNC, offset=0):
    refused(os.open(path, os.O_WRONLY | flags, 0o644), data, offset)


def asides(place, name="f") -> list:
    return sorted(path for path in place.root.iterdir() if path.name.startswith(name + ".unsent-"))


def test_a_mount_that_lives_sends_what_another_left(place, beside):
    """Nobody uses it, and it has looked for left-overs before."""
    other = beside()
    cut_off(place)
    save(other / "dev1/fs/f", b"left")
    kill(other)
    place.server.set_faults()
    wait_for(lambda: (place.root / "f").exists(), 25)
    assert (place.root / "f").read_bytes() == b"left"


def test_in_the_order_in_which_they_were_written(place, beside):
    others = [beside(), beside()]
    names = [f"f{number}" for number in range(12)]
    files = [[os.open(other / f"dev1/fs/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
              for name in names] for other in others]
    cut_off(place)
    for turn, descriptors in enumerate(files):
        for name, fd in zip(names, descriptors):
            refused(fd, f"{name} of {turn}".encode() * (2 - turn))
    for other in others:
        kill(other)
    kill(place.mount)
    place.server.set_faults()
    place.mount.start()
    os.listdir(place.fs)
    wait_for(lambda: pending(place) == "0", 25)
    wait_for(lambda: not list(place.mount.state_dir.rglob("*.spool")), 25)
    assert [(place.root / name).read_text() for name in names] == [f"{name} of 1" for name in names]


CASES = {
    # what was there, how ours was written, what the sandbox wrote, f then, the other then
    "save": (b"0123456789", dict(), b"newer", b"newer", b"OURS"),
    "new": (None, dict(), b"newer", b"newer", b"OURS"),
    "in place": (b"0123456789", dict(flags=0, offset=2), b"newer text", b"newer text",
                 b"neOURStext"),
    "append": (b"0123456789", dict(flags=os.O_APPEND), b"newer", b"newerOURS", None),
}


@pytest.mark.parametrize("case", CASES)
def test_newer_content_is_not_written_over(place, case):
    before, how, theirs, expected, aside = CASES[case]
    if before is not None:
        (place.fs / "f").write_bytes(before)
    cut_off(place)
    save(place.fs / "f", b"OURS", **how)
    kill(place.mount)
    time.sleep(0.3)
    (place.root / "f").write_bytes(theirs)
    place.server.set_faults()
    place.mount.start()
    os.listdir(place.fs)
    wait_for(lambda: pending(place) == "0", 15)
    assert (place.root / "f").read_bytes() == expected
    if aside is None:
        assert asides(place) == []
        return
    assert [path.read_bytes() for path in asides(place)] == [aside]
    assert asides(place)[0].name in place.errors()
    place.fresh()
    assert (place.fs / "f").read_bytes() == expected
    assert (place.fs / asides(place)[0].name).read_bytes() == aside


@pytest.mark.parametrize("how", [dict(), dict(flags=0, offset=2), dict(flags=os.O_APPEND)],
                         ids=["save", "in place", "append"])
def test_what_had_arrived_is_known_again(place, how):
    """The answer was lost, and the mount with it: no second copy, and nothing twice."""
    (place.fs / "f").write_bytes(b"0123456789")
    place.server.set_faults("exec:*:drop")
    save(place.fs / "f", b"OURS", **how)
    kill(place.mount)
    place.server.set_faults()
    arrived = (place.root / "f").read_bytes()
    assert b"OURS" in arrived
    place.mount.start()
    os.listdir(place.fs)
    wait_for(lambda: pending(place) == "0", 15)
    assert (place.root / "f").read_bytes() == arrived
    assert asides(place) == []


def test_who_goes_on_writing_has_seen_it(place):
    """Bytes that a program has written on are its own, whatever the sandbox did before that."""
    (place.fs / "f").write_bytes(b"0123456789")
    cut_off(place)
    save(place.fs / "f", b"OURS")
    kill(place.mount)
    (place.root / "f").write_bytes(b"newer")
    place.mount.start()
    assert (place.fs / "f").read_bytes() == b"OURS"
    save(place.fs / "f", b" and more", os.O_APPEND)
    place.server.set_faults()
    os.listdir(place.fs)
    wait_for(lambda: pending(place) == "0", 15)
    assert (place.root / "f").read_bytes() == b"OURS and more"
