"""Two mounts of one endpoint with one state directory: the second leaves the first's to it."""

import errno
import os

import pytest

from sbxtest.mount import MountError
from sbxtest.timing import wait_for


@pytest.fixture
def two(start_sbxd, start_mount, tmp_path):
    """The server, the mount that holds dev1, the one beside it."""
    server = start_sbxd()
    dirs = {"state_dir": tmp_path / "state", "cache_dir": tmp_path / "cache"}
    first = start_mount(server.url, **dirs)
    (first / "dev1").mkdir()
    (first / "dev1/fs/f").write_text("here\n")
    return server, first, start_mount(server.url, **dirs)


def ids(mount, *names):
    return [mount.status(name)["id"] for name in names]


def refused(error, function, *args):
    with pytest.raises(OSError) as caught:
        function(*args)
    assert caught.value.errno == error


def control(mount, line):
    (mount / "control").write_text(line + "\n")


def test_both_use_it(two):
    _, first, second = two
    assert (second / "dev1/fs/f").read_text() == "here\n"
    (second / "dev1/fs/g").write_text("there\n")
    wait_for(lambda: (first / "dev1/fs/g").exists(), 5)
    assert ids(first, "dev1") == ids(second, "dev1")


def test_a_name_is_given_once(two):
    """What the other has made since shows where it is asked for."""
    server, first, second = two
    (first / "new").mkdir()
    refused(errno.EEXIST, os.mkdir, second / "new")
    refused(errno.EEXIST, control, second, "create new")
    assert ids(first, "new") == ids(second, "new")
    (first / "new/fs/f").write_text("x")
    assert (second / "new/fs/f").read_text() == "x"
    # Of sessions that were made for nothing none is left.
    assert len(list((server.root / "by-id").iterdir())) == 2


def test_what_is_held_stays(two):
    """Names, and the session itself, are its holder's to change."""
    server, first, second = two
    (first / "dev1/fs/f").unlink()
    known = ids(first, "dev1")
    assert os.listdir(second / "dev1/fs") == []
    refused(errno.EBUSY, os.rmdir, second / "dev1")
    refused(errno.EBUSY, os.rename, second / "dev1", second / "other")
    for verb in ("detach", "delete"):
        refused(errno.EBUSY, control, second, f"{verb} dev1")
    assert "another mount" in (second / "dev1/errors").read_text()
    assert ids(first, "dev1") == ids(second, "dev1") == known
    (first / "dev1/fs/f").write_text("still\n")
    assert (server.session_dir(known[0]) / "f").read_text() == "still\n"
    first.unmount()
    wait_for((second / "dev1/fs/f").exists, 5)
    os.rename(second / "dev1", second / "other")
    assert ids(second, "other") == known
    control(second, "detach other")
    assert not (second / "other").exists()


def test_unsent_bytes_of_the_other(two):
    _, first, second = two
    (first / "dev1/fs/f").unlink()
    fd = os.open(second / "dev1/fs/mine", os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(fd, b"unsent")
    refused(errno.EBUSY, os.rmdir, first / "dev1")
    os.close(fd)
    wait_for(lambda: (first / "dev1/fs/mine").exists(), 5)
    assert (first / "dev1/fs/mine").read_bytes() == b"unsent"


def test_a_name_that_means_another_by_now(two):
    """Forgetting what was renamed leaves alone who has its old name."""
    _, first, second = two
    os.rename(first / "dev1", first / "moved")
    (first / "dev1").mkdir()
    control(second, "detach dev1")
    for name in ("dev1", "moved"):
        (first / name / "fs/new").write_text("x")
        assert (first / name / "fs/new").read_text() == "x"
    (second / "dev1/fs/new").write_text("y")
    assert ids(first, "dev1") == ids(second, "dev1")


def test_resume_is_the_holders(two):
    server, first, second = two
    (first / "dev1/control").write_text("persist one\n")
    with server.client() as client:
        client.delete(ids(first, "dev1")[0])
    refused(errno.EBUSY, (second / "dev1/control").write_text, "resume\n")
    (first / "dev1/control").write_text("resume\n")
    assert (first / "dev1/fs/f").read_text() == "here\n"


def test_attach_of_what_was_renamed(start_sbxd, start_mount, tmp_path):
    """A line of fstab holds, whatever its session was renamed to since."""
    server = start_sbxd()
    dirs = {"state_dir": tmp_path / "state", "cache_dir": tmp_path / "cache"}
    mount = start_mount(server.url, **dirs)
    (mount / "dev1").mkdir()
    known = ids(mount, "dev1")[0]
    os.rename(mount / "dev1", mount / "dev2")
    mount.unmount()
    mount = start_mount(server.url, [f"attach={known}:dev1"], **dirs)
    assert ids(mount, "dev2") == [known]
    (mount / "dev1").mkdir()
    mount.unmount()
    with pytest.raises(MountError):
        start_mount(server.url, [f"attach={known}:dev1"], **dirs)
