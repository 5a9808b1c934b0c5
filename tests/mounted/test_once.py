"""Exactly once: what is done when the answer that would have said so is lost."""

import errno
import os
import subprocess

import pytest

from sbxtest.calls import order
from sbxtest.timing import scale, wait_for

# An answer that does not say whether there is a session now.
LOST = ["drop", "cut=5", "garbage", "wrongtype", "status=500"]


def created(server, mark) -> int:
    """How often a session was asked for."""
    return sum(record.route == "create" for record in server.log(mark))


@pytest.mark.parametrize("how", LOST)
def test_mkdir_of_a_session(start_sbxd, start_mount, how):
    server = start_sbxd()
    mount = start_mount(server.url)
    server.set_faults(f"create:1:{how}")
    mark = len(server.log())
    with pytest.raises(OSError) as caught:
        (mount / "dev1").mkdir()
    assert caught.value.errno == errno.EIO
    wait_for(lambda: created(server, mark) == 1, 5)
    assert not (mount / "dev1").exists()
    assert "may be left" in mount.read("errors")
    # Its maker may try again, knowing that.
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    assert created(server, mark) == 2


@pytest.mark.parametrize("how", LOST)
def test_resume(start_place, how):
    place = start_place()
    (place.fs / "f").write_text("kept\n")
    assert order(place.mount, "persist one") == 0
    with place.server.client() as client:
        client.delete(place.id)
    place.server.set_faults(f"create:1:{how}")
    mark = place.log_mark()
    assert order(place.mount, "resume") == errno.EIO
    wait_for(lambda: created(place.server, mark) == 1, 5)
    assert "may be left" in place.errors()
    assert place.mount.status("dev1")["id"] == place.id
    assert not any(record.route == "hydrate" for record in place.server.log(mark))
    assert order(place.mount, "resume") == 0, place.errors()
    assert created(place.server, mark) == 2
    assert (place.fs / "f").read_text() == "kept\n"


@pytest.mark.parametrize("fault", ["status=503/0", "status=501", "status=403"])
def test_where_nothing_was_done_nothing_is_said_to_be_left(start_sbxd, start_mount, fault):
    server = start_sbxd()
    mount = start_mount(server.url, ["timeout=2"])
    server.set_faults(f"create:1-9:{fault}")
    with pytest.raises(OSError):
        (mount / "dev1").mkdir()
    assert "create" in mount.read("errors")
    assert "may be left" not in mount.read("errors")


# name: what is done in fs, what the sandbox has after it; d/old is a file, e an empty directory.
CHANGES = {
    "mkdir": (lambda fs: os.mkdir(fs / "d/new"), {"d/new", "d/old", "e"}),
    "rmdir": (lambda fs: os.rmdir(fs / "e"), {"d/old"}),
    "unlink": (lambda fs: os.unlink(fs / "d/old"), {"e"}),
    "rename": (lambda fs: os.rename(fs / "d/old", fs / "d/new"), {"d/new", "e"}),
    "link": (lambda fs: os.link(fs / "d/old", fs / "d/new"), {"d/new", "d/old", "e"}),
    "symlink": (lambda fs: os.symlink("old", fs / "d/new"), {"d/new", "d/old", "e"}),
    "O_EXCL": (lambda fs: os.close(os.open(fs / "d/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
               {"d/new", "d/old", "e"}),
    "append": (lambda fs: append(fs / "d/old"), {"d/old", "e"}),
    "new file": (lambda fs: (fs / "d/new").write_text("x"), {"d/new", "d/old", "e"}),
}


def append(path):
    with open(path, "a", encoding="ascii") as file:
        file.write("more\n")


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
@pytest.mark.parametrize("how", ["drop", "cut=20"])
def test_changes_by_exec(start_place, kind, how):
    """Done once, and told as done: not EEXIST or ENOENT from a second try, no line twice."""
    place = start_place(kind, ["ttl=60"])
    for what, (change, after) in CHANGES.items():
        place.inside("rm -rf d e; mkdir d e; echo one >d/old")
        place.fresh()
        subprocess.run(["ls", "-lR", place.fs], check=True, capture_output=True)
        place.server.set_faults(f"exec:1:{how}")
        mark = place.log_mark()
        change(place.fs)
        place.server.set_faults()
        asked = [record for record in place.server.log(mark) if record.program == "sbxfs-apply"]
        assert len(asked) >= 2, what
        found = {path.relative_to(place.root).as_posix() for path in place.root.rglob("*")
                 if ".sbxfs" not in path.parts} - {"d"}
        assert found == after, what
        if what == "append":
            assert (place.root / "d/old").read_text() == "one\nmore\n"
        if what == "new file":
            assert (place.root / "d/new").read_text() == "x"
    assert place.mount.status("dev1")["pending_writes"].split()[0] == "0"


@pytest.mark.parametrize("lost", ["put:1:drop", "put:1-2:drop", "put:1:cut=1", "stat:*:drop",
                                  "put:1-3:status=500"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "old"])
def test_a_save_without_exec(start_place, lost, there):
    """The bytes are there when close() returns 0; else they are kept, and come by themselves."""
    place = start_place("gnu-host", ["exec=no", "timeout=4"])
    if there:
        (place.fs / "f").write_text("old")
    os.listdir(place.fs)
    place.server.set_faults(lost)
    data = os.urandom(300_000)

    def has_come():
        # The route removes the file before it makes it anew.
        return (place.root / "f").exists() and (place.root / "f").read_bytes() == data

    fd = os.open(place.fs / "f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, data)
    try:
        os.close(fd)
        assert (place.root / "f").read_bytes() == data
    except OSError as error:
        assert error.errno == errno.EIO
        # Unless they have come by themselves already.
        kept = place.mount.status("dev1")["pending_writes"].split()[0] == "1"
        assert kept or has_come()
    place.server.set_faults()
    assert (place.fs / "f").read_bytes() == data
    wait_for(has_come, 15)
    wait_for(lambda: place.mount.status("dev1")["pending_writes"].split()[0] == "0", 15)
    assert os.listdir(place.root) == ["f"]


def test_a_job_is_started_once(start_place):
    """Its answer is never waited for; what is lost here is the one that says that it began."""
    place = start_place()
    place.server.set_faults("exec:2:drop", "exec:3:drop")
    new = os.open(place.mount / "dev1/jobs/new", os.O_RDWR)
    os.write(new, b"echo ran >>ran")
    identity = os.read(new, 100).decode().strip()
    os.close(new)
    place.server.set_faults()
    subprocess.run(["cat", place.mount / f"dev1/jobs/{identity}/wait.20"], check=True,
                   capture_output=True, timeout=scale(30))
    assert (place.root / "ran").read_text() == "ran\n"
