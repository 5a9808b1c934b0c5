"""Exactly once where the sandbox can't keep outcomes, and where a gateway answers for it."""

import errno
import os

import pytest

from sbxtest.timing import wait_for


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    """The sandbox lets nothing be made where outcomes are kept."""
    place = start_place(request.param, ["timeout=5", "ttl=60"])
    place.inside("echo one >f; echo two >g; rm -rf .sbxfs; : >.sbxfs")
    place.fresh()
    os.listdir(place.fs)
    yield place
    place.inside("rm -f .sbxfs")


def append(place):
    with open(place.fs / "f", "ab") as file:
        file.write(b"more\n")


def test_it_is_done(place):
    append(place)
    os.rename(place.fs / "g", place.fs / "h")
    os.mkdir(place.fs / "d")
    assert (place.root / "f").read_text() == "one\nmore\n"
    assert (place.root / "h").read_text() == "two\n"


def test_an_append_is_not_done_twice(place):
    place.server.set_faults("exec:1:drop")
    append(place)
    place.server.set_faults()
    assert (place.root / "f").read_text() == "one\nmore\n"
    assert (place.fs / "f").read_text() == "one\nmore\n"
    append(place)
    assert (place.root / "f").read_text() == "one\nmore\nmore\n"


def test_what_is_not_known_is_said(place):
    """Neither EEXIST nor ENOENT of a second try."""
    for change, done in ((lambda: os.mkdir(place.fs / "d"), "d"),
                         (lambda: os.rename(place.fs / "g", place.fs / "h"), "h")):
        place.server.set_faults("exec:1:drop")
        with pytest.raises(OSError) as caught:
            change()
        place.server.set_faults()
        assert caught.value.errno == errno.EIO
        assert (place.root / done).exists()
        place.fresh()
        assert (place.fs / done).exists()


@pytest.mark.parametrize("status", [502, 504])
def test_a_gateway_answers(start_place, status):
    """What the server made of the request is asked for."""
    place = start_place("gnu-host", ["timeout=5", "ttl=60"])
    (place.fs / "f").write_text("one\n")
    place.server.set_faults(f"exec:1:status={status}")
    os.rename(place.fs / "f", place.fs / "g")
    place.server.set_faults(f"exec:1:status={status}")
    with open(place.fs / "g", "ab") as file:
        file.write(b"more\n")
    place.server.set_faults()
    assert (place.root / "g").read_text() == "one\nmore\n"
    wait_for(lambda: place.mount.status("dev1")["pending_writes"].split()[0] == "0", 5)
