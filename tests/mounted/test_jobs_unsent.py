"""One file that can't be sent does not keep others, or jobs, from going on; it is named."""

import errno
import os

import pytest

from jobtools import ended, start, workspace
from sbxtest.timing import wait_for


@pytest.fixture(params=["host", "overlay"])
def place(request, start_sbxd, start_mount):
    server = start_sbxd(request.param)
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/d").mkdir()
    return server, mount, mount / "dev1"


def errors(mount):
    return mount.read("dev1/errors")


@pytest.fixture
def kept(place):
    """Bytes for d/f, which is gone in the sandbox: close says so, and they are kept."""
    server, mount, session = place
    path = session / "fs/d/f"
    path.write_bytes(b"x" * 100)
    fd = os.open(path, os.O_RDWR)
    os.unlink(workspace(server, session) / "d/f")
    os.pwrite(fd, b"kept", 10)
    with pytest.raises(OSError) as caught:
        os.close(fd)
    assert caught.value.errno == errno.ENOENT
    assert mount.status("dev1")["pending_writes"].startswith("1 files")
    return path


def test_jobs_start_all_the_same(place, kept):
    _, mount, session = place
    with open(session / "fs/other", "wb") as other:
        other.write(b"sent")
        other.flush()
        job = session / "jobs" / start(session, "cat other")
    assert ended(job)["exit"] == "0"
    assert (job / "output.log").read_bytes() == b"sent"
    line = next(line for line in errors(mount).splitlines() if "jobs/new" in line)
    assert "d/f" in line and "ENOENT" in line
    assert mount.status("dev1")["pending_writes"].startswith("1 files")
    assert kept.exists()


def test_what_needs_all_of_it_says_which(place, kept):
    _, mount, session = place
    before = errors(mount)
    for words in ("persist", "sync"):
        with pytest.raises(OSError) as caught:
            (session / "control").write_text(words + "\n")
        assert caught.value.errno == errno.ENOENT, words
    with pytest.raises(OSError) as caught:
        os.rename(session / "fs/d", session / "fs/e")
    assert caught.value.errno == errno.ENOENT
    new = errors(mount).removeprefix(before)
    assert "d/f" in new, errors(mount)
    assert kept.exists()


def test_it_is_sent_when_it_can_be(place, kept):
    """A name that is there again takes the bytes, and nothing is said any more."""
    server, mount, session = place
    (workspace(server, session) / "d/f").write_bytes(b"y" * 100)
    ended(session / "jobs" / start(session, "cat d/f > copy"))
    wait_for(lambda: mount.status("dev1")["pending_writes"].startswith("0 files"), 20)
    assert (session / "fs/copy").read_bytes() == b"y" * 10 + b"kept" + b"y" * 86
