"""Options of the mount: what each changes for a program, and what it costs the server."""

import errno
import os
import stat
import subprocess
import time
import uuid

import pytest

from jobtools import ended, start
from sbxtest.calls import fails
from sbxtest.timing import scale, wait_for

MIB = 1 << 20


def open_close(path, flags):
    os.close(os.open(path, flags, 0o644))


def at_once(records) -> int:
    """How many of the requests were under way at the same time, at most."""
    # Both numbers are whole milliseconds.
    edges = sorted((moment, step) for record in records
                   for moment, step in ((record.time, 1), (record.time + record.ms - 2, -1)))
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


# ro


def test_ro(start_place, start_mount):
    """Nothing is changed, here or there: control files and jobs/new are files, too."""
    place = start_place()
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_text("content\n")
    (place.fs / "l").symlink_to("d/f")
    job = start(place.mount / "dev1", "echo ran")
    ended(place.mount / "dev1/jobs" / job)
    (place.mount / "dev1/control").write_text("persist one\n")
    with place.server.client() as client:
        other = client.create()["sessionId"]
        client.put(other, "theirs", b"theirs")
    place.mount.unmount()
    mount = start_mount(place.server.url, ["ro", f"attach={other}:dev2"],
                        state_dir=place.mount.state_dir)
    fs, mark = mount / "dev1/fs", place.log_mark()

    assert (fs / "d/f").read_text() == (fs / "l").read_text() == "content\n"
    assert (mount / "dev1/jobs" / job / "output.log").read_text() == "ran\n"
    assert (mount / "dev1/jobs" / job / "exit").read_text() == "0\n"
    assert os.listdir(mount / "snapshots/dev1") == ["one.json", "one.tar"]
    assert mount.status("dev1")["state"] == "live"
    assert (mount / "dev2/fs/theirs").read_text() == "theirs"
    assert "persist" in mount.read("dev1/control")

    changes = {
        "a session": lambda: os.mkdir(mount / "new"),
        "end a session": lambda: os.rmdir(mount / "dev2"),
        "rename a session": lambda: os.rename(mount / "dev2", mount / "dev3"),
        "mkdir": lambda: os.mkdir(fs / "new"),
        "rmdir": lambda: os.rmdir(fs / "d"),
        "unlink": lambda: os.unlink(fs / "d/f"),
        "rename": lambda: os.rename(fs / "d", fs / "e"),
        "link": lambda: os.link(fs / "d/f", fs / "new"),
        "symlink": lambda: os.symlink("x", fs / "new"),
        "chmod": lambda: os.chmod(fs / "d/f", 0o600),
        "utimens": lambda: os.utime(fs / "d/f", (1, 1)),
        "truncate": lambda: os.truncate(fs / "d/f", 1),
        "create": lambda: open_close(fs / "new", os.O_WRONLY | os.O_CREAT),
        "write": lambda: open_close(fs / "d/f", os.O_WRONLY),
        "append": lambda: open_close(fs / "d/f", os.O_WRONLY | os.O_APPEND),
        "control": lambda: open_close(mount / "control", os.O_WRONLY),
        "a session's control": lambda: open_close(mount / "dev1/control", os.O_WRONLY),
        "a job": lambda: open_close(mount / "dev1/jobs/new", os.O_RDWR),
        "a job's control": lambda: open_close(mount / f"dev1/jobs/{job}/control", os.O_WRONLY),
        "a job's end": lambda: os.rmdir(mount / "dev1/jobs" / job),
        "a snapshot": lambda: os.unlink(mount / "snapshots/dev1/one.tar"),
        "an import": lambda: open_close(mount / "snapshots/dev1/x.tar", os.O_WRONLY | os.O_CREAT),
    }
    assert {name: fails(change) for name, change in changes.items()} == \
        dict.fromkeys(changes, errno.EROFS)

    time.sleep(0.5)
    asked = place.server.log(mark)
    assert {record.route for record in asked} <= {"exec", "fs", "stat", "readdir", "reattach"}
    assert not any(record.method == "PUT" for record in asked)
    assert not any("apply" in (record.program or "") for record in asked)
    # A workspace in which sbxfs has kept nothing so far is left alone.
    assert os.listdir(place.server.session_dir(other)) == ["theirs"]


def test_ro_leaves_unsent_bytes(start_place, start_mount):
    """They wait for a mount that may send them."""
    place = start_place(options=["timeout=2", "ttl=60"])
    (place.fs / "f").write_text("old")
    place.server.set_faults("exec:*:status=500", "put:*:status=500")
    with pytest.raises(OSError):
        (place.fs / "f").write_text("unsent")
    assert place.mount.status("dev1")["pending_writes"].split()[0] == "1"
    place.mount.signal(9)
    place.mount.wait_gone()
    # What it sent last is refused as well.
    time.sleep(scale(0.3))
    place.server.set_faults()
    mount = start_mount(place.server.url, ["ro"], state_dir=place.mount.state_dir)
    os.listdir(mount / "dev1/fs")
    time.sleep(2.5)
    assert (place.root / "f").read_text() == "old"
    mount.unmount()
    place.mount.start()
    os.listdir(place.fs)
    wait_for(lambda: (place.root / "f").read_text() == "unsent", 10)


# symlinks


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_links_as_they_are(start_place, kind):
    place = start_place(kind, ["symlinks=raw"])
    texts = {"absolute": "/etc/hostname", "up": "../../../../etc/hostname", "inside": "d/f",
             "dotted": "./d/../d/f", "nowhere": "no such", "slashes": "d//f/"}
    for name, text in texts.items():
        os.symlink(text, place.root / name)
        os.symlink(text, place.fs / f"{name} made here")
    place.fresh()
    for name, text in texts.items():
        for shown in (name, f"{name} made here"):
            assert os.readlink(place.fs / shown) == text, shown
            assert os.lstat(place.fs / shown).st_size == len(text)
        assert os.readlink(place.root / f"{name} made here") == text
    # So an absolute one is this machine's own file.
    with open("/etc/hostname", "rb") as here:
        assert (place.fs / "absolute").read_bytes() == here.read()


# noprobe


def asked_for(server, mark) -> int:
    time.sleep(0.1)  # logged after it was answered
    return sum(record.route == "reattach" for record in server.log(mark))


def test_noprobe(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url, ["noprobe"])
    with server.client() as client:
        there = client.create()["sessionId"]
    mark = len(server.log())
    assert fails(os.stat, mount / there) == errno.ENOENT
    assert fails(os.stat, mount / str(uuid.uuid4())) == errno.ENOENT
    assert asked_for(server, mark) == 0
    # It may be attached all the same.
    (mount / "control").write_text(f"attach {there} dev1\n")
    assert os.listdir(mount / "dev1/fs") == []


def test_unknown_names_are_asked_for_eight_times_a_minute(start_sbxd, start_mount):
    """Whoever walks through names that look like ids, the server hears little of it."""
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    mark = len(server.log())
    for name in ("none", "00000000-0000-4000-8000-00000000000", "x" * 36,
                 "00000000-0000-4000-8000-00000000000g"):
        assert fails(os.stat, mount / name) == errno.ENOENT
    # Known by another name.
    assert fails(os.stat, mount / mount.status("dev1")["id"]) == errno.ENOENT
    assert asked_for(server, mark) == 0
    names = [str(uuid.uuid4()) for _ in range(20)]
    for name in names:
        assert fails(os.stat, mount / name) == errno.ENOENT
    assert asked_for(server, mark) == 8
    for name in names:
        assert fails(os.mkdir, mount / name / "fs/x") == errno.ENOENT
    assert asked_for(server, mark) == 8


@pytest.mark.slow
def test_an_unknown_name_is_asked_for_again_after_ten_seconds(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url)
    name, mark, begun = str(uuid.uuid4()), len(server.log()), time.monotonic()
    while time.monotonic() < begun + 9:
        assert fails(os.stat, mount / name) == errno.ENOENT
        time.sleep(0.5)
    assert asked_for(server, mark) == 1
    wait_for(lambda: fails(os.stat, mount / name) and asked_for(server, mark) == 2, 5)


# The cache


def kept(directory) -> int:
    """Bytes that are on disk below it."""
    return sum(os.lstat(os.path.join(top, name)).st_blocks * 512
               for top, _, names in os.walk(directory) for name in names)


def read_again(place) -> set:
    """Reads small and big after a remount; the routes and programs that brought contents."""
    place.mount.unmount()
    place.mount.start()
    mark = place.log_mark()
    assert (place.fs / "small").read_bytes() == b"s" * 20000
    assert (place.fs / "big").read_bytes() == (place.root / "big").read_bytes()
    time.sleep(0.1)
    return {record.program or record.route for record in place.server.log(mark)} & {
        "fs", "sbxfs-pack"}


@pytest.fixture
def contents(start_place):
    """contents(options) is a place with two files that were read, and are old enough to be kept."""
    def made(options):
        place = start_place(options=options)
        (place.root / "small").write_bytes(b"s" * 20000)
        (place.root / "big").write_bytes(os.urandom(3 * MIB))
        for name in ("small", "big"):
            os.utime(place.root / name, (1_000_000_000, 1_000_000_000))
        time.sleep(2.5)
        place.fresh()
        for name in ("small", "big"):
            assert (place.fs / name).read_bytes() == (place.root / name).read_bytes()
        # The last look at a big one, which says that it may be kept, comes after its last byte.
        wait_for(lambda: not any(name.startswith("part-")
                                 for _, _, names in os.walk(place.mount.cache_dir)
                                 for name in names), 10)
        return place
    return made


def test_contents_are_kept_between_mounts(contents):
    place = contents([])
    assert kept(place.mount.cache_dir) > 3 * MIB
    assert read_again(place) == set()


def test_nocache_disk(contents):
    place = contents(["nocache_disk"])
    assert kept(place.mount.cache_dir) == 0
    assert read_again(place) != set()
    assert kept(place.mount.cache_dir) == 0


@pytest.mark.parametrize("ttl", [0.1, 60])
def test_cache_size(start_place, ttl):
    """Also of what is not old enough to be kept for the next mount, but still open in this one."""
    place = start_place(options=["cache_size=8M", f"ttl={ttl}"])
    for index in range(12):
        (place.root / f"f{index}").write_bytes(os.urandom(2 * MIB))
    time.sleep(2.5)
    place.fresh()
    for _ in range(2):
        for index in range(12):
            assert (place.fs / f"f{index}").read_bytes() == \
                (place.root / f"f{index}").read_bytes()
    wait_for(lambda: kept(place.mount.cache_dir) <= 8 * MIB, 5,
             f"{kept(place.mount.cache_dir)} bytes are kept")
    # What has no name any more takes room too.
    held = [os.path.join(f"/proc/{place.mount.pid}/fd", name)
            for name in os.listdir(f"/proc/{place.mount.pid}/fd")]
    held = [os.stat(path).st_blocks * 512 for path in held
            if os.readlink(path).startswith(str(place.mount.cache_dir)) and os.path.isfile(path)]
    assert sum(held) <= 8 * MIB


# max_conn


@pytest.mark.serial
@pytest.mark.parametrize("most", [2, 16])
def test_max_conn(start_place, most):
    """So many requests of a session are under way at the same time, and no more."""
    place = start_place(options=[f"max_conn={most}", "ttl=60"])
    for index in range(40):
        (place.root / f"f{index}").write_bytes(os.urandom(300_000))
    place.fresh()
    os.listdir(place.fs)
    for index in range(40):
        os.stat(place.fs / f"f{index}")
    place.server.set_faults("get:*:delay=200", "exec:*:delay=200")
    mark = place.log_mark()
    readers = [subprocess.Popen(["cat", place.fs / f"f{index}"], stdout=subprocess.DEVNULL)
               for index in range(40)]
    assert all(reader.wait() == 0 for reader in readers)
    time.sleep(0.1)
    found = at_once(place.server.log(mark))
    assert found <= most
    assert found >= 2


@pytest.mark.serial
@pytest.mark.parametrize("options, most", [(["max_conn=64"], 16), (["max_conn=3"], 3)],
                         ids=["many", "few"])
def test_plain_routes_side_by_side(start_place, options, most):
    """A listing with attributes: a stat a name, up to 16 of them at a time."""
    place = start_place(options=["exec=no", "ttl=60", *options])
    for index in range(96):
        (place.root / f"f{index}").touch()
    place.fresh()
    place.server.set_faults("stat:*:delay=50")
    mark = place.log_mark()
    subprocess.run(["ls", "-l", place.fs], check=True, capture_output=True)
    time.sleep(0.1)
    stats = [record for record in place.server.log(mark) if record.route == "stat"]
    assert 96 <= len(stats) <= 100
    assert most - 2 <= at_once(stats) <= most


# Where state and cache are


@pytest.mark.parametrize("env, where", [
    ({"XDG_STATE_HOME": "{0}/s", "XDG_CACHE_HOME": "{0}/c", "HOME": "{0}/home"},
     ("{0}/s/sbxfs", "{0}/c/sbxfs")),
    ({"XDG_STATE_HOME": "not/absolute", "XDG_CACHE_HOME": "", "HOME": "{0}/home"},
     ("{0}/home/.local/state/sbxfs", "{0}/home/.cache/sbxfs")),
    ({"XDG_STATE_HOME": "", "XDG_CACHE_HOME": "{0}/c", "HOME": "{0}/home"},
     ("{0}/home/.local/state/sbxfs", "{0}/c/sbxfs"))], ids=["XDG", "HOME", "both"])
def test_default_directories(start_sbxd, start_mount, tmp_path, env, where):
    """Made where they are missing, private, and said in status."""
    (tmp_path / "home").mkdir()
    server = start_sbxd()
    mount = start_mount(server.url, default_dirs=True,
                        env={name: value.format(tmp_path) for name, value in env.items()})
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    status = mount.status()
    for key, path in zip(("state_dir", "cache_dir"), where):
        path = path.format(tmp_path)
        assert os.path.dirname(status[key]) == path
        for directory in (path, status[key]):
            assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    identity = mount.status("dev1")["id"]
    mount.unmount()
    mount.start()
    assert mount.status("dev1")["id"] == identity
