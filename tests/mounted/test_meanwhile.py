"""What the sandbox did to a file between our open and our bytes is not lost."""

import os
import subprocess

import pytest

from sbxtest.timing import wait_for


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    """With the tools of each kind, and a ttl so long that nobody looks by himself."""
    place = start_place(request.param, ["ttl=60"])
    os.listdir(place.fs)
    return place


@pytest.mark.parametrize("text", [b"ours\n", b"\377ours" * 20_000], ids=["small", "big"])
def test_appended_to_before_our_first_append(place, text):
    """Made here exclusively, by O_APPEND; then a job writes its own lines."""
    fd = os.open(place.fs / "log", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    inode = os.stat(place.root / "log").st_ino
    place.inside("echo theirs >>log")
    os.write(fd, text)
    os.close(fd)
    assert (place.root / "log").read_bytes() == b"theirs\n" + text
    assert os.stat(place.root / "log").st_ino == inode
    place.fresh()
    assert (place.fs / "log").read_bytes() == b"theirs\n" + text


def test_written_to_before_our_first_write(place):
    """Not one of the bytes that we do not write over."""
    fd = os.open(place.fs / "f", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    place.inside("printf 0123456789 >f")
    os.write(fd, b"abc")
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"abc3456789"
    assert (place.fs / "f").read_bytes() == b"abc3456789"


@pytest.mark.parametrize("text", [b"ours\n", b"\377ours" * 20_000], ids=["small", "big"])
def test_appended_to_a_file_believed_new(place, text):
    place.inside("echo theirs >build.log; chmod 600 build.log")
    with open(place.fs / "build.log", "ab") as log:
        log.write(text)
    assert (place.root / "build.log").read_bytes() == b"theirs\n" + text
    assert os.stat(place.root / "build.log").st_mode & 0o777 == 0o600
    assert (place.fs / "build.log").read_bytes() == b"theirs\n" + text
    with open(place.fs / "build.log", "ab") as log:
        log.write(b"and more")
    assert (place.root / "build.log").read_bytes() == b"theirs\n" + text + b"and more"


@pytest.mark.parametrize("lost", ["exec:1:drop", "exec:2:drop", "exec:1-2:drop"])
def test_appended_once_to_a_file_believed_new(place, lost):
    """Whichever of the two requests that it takes is answered into the void."""
    place.inside("echo theirs >log")
    place.server.set_faults(lost)
    with open(place.fs / "log", "ab") as log:
        log.write(b"ours\n")
    place.server.set_faults()
    assert (place.root / "log").read_bytes() == b"theirs\nours\n"
    assert place.mount.pending()[0] == 0


@pytest.mark.parametrize("lost", ["exec:1:drop", "exec:1-2:drop"])
def test_appended_once_to_a_new_file(place, lost):
    place.server.set_faults(lost)
    with open(place.fs / "log", "ab") as log:
        log.write(b"ours\n")
    place.server.set_faults()
    assert (place.root / "log").read_bytes() == b"ours\n"


def test_written_to_a_file_believed_new(place):
    place.inside("printf 0123456789 >f")
    fd = os.open(place.fs / "f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, b"xy", 4)
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"0123xy6789"
    assert (place.fs / "f").read_bytes() == b"0123xy6789"


@pytest.mark.parametrize("there", ["printf theirs >f", "ln -s g f; printf theirs >g"])
def test_truncated_is_truncated(place, there):
    """Who asked for an empty file replaces what is there."""
    place.inside(there)
    with open(place.fs / "f", "wb") as file:
        file.write(b"ours")
    assert (place.root / "f").read_bytes() == b"ours"


def test_emptied_by_its_maker(place):
    """O_CREAT without O_TRUNC, but then ftruncate(): nothing of the other's is left."""
    place.inside("printf 0123456789 >f")
    fd = os.open(place.fs / "f", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b"to be cut")
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"x", 0)
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"x"


def test_a_new_file_costs_what_it_did(place):
    for flags, requests in ((os.O_CREAT, 1), (os.O_CREAT | os.O_APPEND, 1),
                            (os.O_CREAT | os.O_EXCL | os.O_APPEND, 2),
                            (os.O_CREAT | os.O_EXCL, 2)):
        before = place.log_mark()
        fd = os.open(place.fs / f"f{flags}", os.O_WRONLY | flags, 0o640)
        os.write(fd, b"text")
        os.close(fd)
        assert (place.root / f"f{flags}").read_bytes() == b"text"
        assert os.stat(place.root / f"f{flags}").st_mode & 0o777 == 0o640
        assert len(place.server.log(before)) == requests


def test_two_shells_append(place):
    """A program here and one there, line by line."""
    place.inside(": >log")
    place.fresh()
    there = subprocess.Popen(
        ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo there $i >>log; sleep 0.05; done"],
        cwd=place.root)
    for number in range(20):
        place.sh(f"echo here {number} >>log")
    assert there.wait() == 0
    wait_for(lambda: place.mount.pending()[0] == 0, 5)
    lines = (place.root / "log").read_text().splitlines()
    assert [line for line in lines if line.startswith("here")] == [f"here {n}" for n in range(20)]
    assert len(lines) == 29


def test_copied_is_the_file_that_was_opened(place):
    """copy_file_range() after the sandbox has put another in its place."""
    (place.root / "in").write_bytes(b"opened")
    place.fresh()
    source = os.open(place.fs / "in", os.O_RDONLY)
    target = os.open(place.fs / "out", os.O_RDWR | os.O_CREAT, 0o644)
    place.inside("echo other! >new; mv new in")
    assert os.copy_file_range(source, target, 6) == 6
    os.close(target)
    os.close(source)
    assert (place.root / "out").read_bytes() == b"opened"
