"""The tree of a mount: what is where, sessions as directories, modes, names, texts."""

import errno
import json
import os
import re
import stat
import subprocess
import sys

import pytest

from sbxtest.calls import fails
from sbxtest.timing import scale

pytestmark = pytest.mark.core


def test_what_is_where(mount):
    assert sorted(os.listdir(mount.mnt)) == [
        "README.md", "control", "errors", "snapshots", "stats", "status"]
    (mount / "dev1").mkdir()
    assert "dev1" in os.listdir(mount.mnt)
    assert set(os.listdir(mount / "dev1")) >= {
        "control", "errors", "fs", "snapshots", "state.json", "status"}
    assert ".sbxfs-root" not in os.listdir(mount / "dev1")
    assert os.readlink(mount / "dev1/snapshots") == "../snapshots/dev1"
    assert os.path.isdir(mount / "dev1/snapshots/")
    assert os.listdir(mount / "snapshots") == ["dev1"]
    assert len(mount.read("README.md").splitlines()) < 60


def test_modes_and_owners(mount):
    (mount / "dev1").mkdir()
    owner = 12345 if "uid=12345" in os.environ.get("SBX_MOUNT_OPTIONS", "") else os.getuid()
    for name, mode in {"": 0o40700, "dev1": 0o40711, "control": 0o100600, "status": 0o100400,
                       "dev1/control": 0o100600, "dev1/errors": 0o100400, "README.md": 0o100400,
                       "snapshots": 0o40700, "dev1/state.json": 0o100400}.items():
        found = os.stat(mount / name)
        assert oct(found.st_mode) == oct(mode), name
        assert (found.st_uid, found.st_gid) == (owner, os.getgid()), name
    (mount / "dev1/fs/f").write_text("x")
    assert os.stat(mount / "dev1/fs/f").st_uid == owner


def test_mount_flags(mount):
    with open("/proc/self/mountinfo") as table:
        flags = [line.split()[5] for line in table if line.split()[4] == str(mount.mnt)]
    assert "nosuid" in flags[0] and "nodev" in flags[0]


def test_session_is_made_renamed_deleted(server, mount):
    (mount / "a").mkdir()
    identity = mount.status("a")["id"]
    assert server.session_dir(identity).is_dir()
    assert fails(os.mkdir, mount / "a") == errno.EEXIST
    (mount / "b").mkdir()
    assert fails(os.rename, mount / "a", mount / "b") == errno.EEXIST
    os.rename(mount / "a", mount / "c")
    assert not (mount / "a").exists()
    assert mount.status("c")["id"] == identity
    assert mount.status("c")["name"] == "c"
    (mount / "c/fs/f").write_text("x")
    assert fails(os.rmdir, mount / "c") == errno.ENOTEMPTY
    (mount / "c/fs/f").unlink()
    (mount / "c").rmdir()
    assert not (mount / "c").exists()
    with server.client() as client:
        assert client.reattach(identity) == {"alive": False}


def test_names_of_sessions(server, mount):
    before = len(server.log())
    for name in ("bad name", ".hidden", "-dash", "x" * 65, "é"):
        assert fails(os.mkdir, mount / name) == errno.EINVAL, name
    for name in ("control", "status", "README.md", "snapshots"):
        assert fails(os.mkdir, mount / name) == errno.EEXIST
    assert fails(os.rmdir, mount / "nobody") == errno.ENOENT
    assert fails(os.stat, mount / "nobody") == errno.ENOENT
    assert fails(os.rmdir, mount / "snapshots") == errno.EPERM
    assert len(server.log()) == before  # nobody was asked


def test_uuid_of_another_client(server, mount):
    with server.client() as client:
        identity = client.create()["sessionId"]
    client.put(identity, "f", b"theirs")
    assert (mount / identity / "fs/f").read_bytes() == b"theirs"

    def asked():
        return sum(record.route == "reattach" for record in server.log())

    before = asked()
    unknown = "00000000-0000-4000-8000-000000000000"
    for _ in range(5):
        assert not (mount / unknown).exists()
    assert asked() == before + 1


def test_between_sessions_nothing_is_renamed_or_linked(mount):
    for name in ("a", "b"):
        (mount / name).mkdir()
        (mount / name / "fs/f").write_text(name)
    assert fails(os.rename, mount / "a/fs/f", mount / "b/fs/g") == errno.EXDEV
    assert fails(os.link, mount / "a/fs/f", mount / "b/fs/g") == errno.EXDEV
    assert fails(os.rename, mount / "a/fs/f", mount / "a/f") == errno.EXDEV
    for name, target, expected in (("a/fs", "fs", errno.EXDEV), ("a/fs", "a/gs", errno.EPERM),
                                   ("status", "other", errno.EPERM),
                                   ("a/jobs", "jobs", errno.EXDEV),
                                   ("a/status", "a/fs/status", errno.EXDEV)):
        assert fails(os.rename, mount / name, mount / target) == expected, name
    subprocess.run(["cp", mount / "a/fs/f", mount / "b/fs/g"], check=True)
    subprocess.run(["mv", mount / "a/fs/f", mount / "b/fs/h"], check=True)
    assert (mount / "b/fs/h").read_text() == "a"


def test_status(mount):
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    of_mount, of_session = mount.status(), mount.status("dev1")
    assert list(of_mount)[:4] == ["endpoint", "token", "server", "sessions"]
    assert of_mount["endpoint"] == mount.endpoint
    assert (of_mount["sessions"], of_mount["live"]) == ("1", "1")
    assert list(of_session) == [
        "name", "id", "root", "state", "seen", "capabilities", "missing", "pending_writes",
        "verb", "progress", "last", "snapshot", "thaw", "note"]
    assert of_session["state"] == "live"
    assert of_session["pending_writes"].split() == ["0", "files", "0", "bytes"]
    assert json.loads(mount.read("dev1/state.json"))["ref"] == of_session["id"]


def test_stats_are_prometheus_text(mount):
    metric = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? +[0-9.]+')
    lines = mount.read("stats").splitlines()
    assert len(lines) > 100
    for line in lines:
        assert line.startswith("# ") or metric.fullmatch(line), line
    values = dict(line.rsplit(None, 1) for line in lines if not line.startswith("#"))
    assert float(values['sbxfs_operations_total{op="lookup"}']) > 0
    assert float(values['sbxfs_requests_total{op="probe"}']) == 1


def test_size_is_that_of_what_is_read(mount):
    """fstat carries no file handle: never cut, never mixed, while the numbers grow."""
    (mount / "dev1").mkdir()
    for name in ("status", "stats", "dev1/status", "control", "dev1/control"):
        for _ in range(200):
            size = os.stat(mount / name).st_size
            with open(mount / name, "rb", buffering=0) as file:
                assert file.read(os.fstat(file.fileno()).st_size + 1).count(b"\n")
            text = mount.read(name)
            assert text.endswith("\n")
            with open(mount / name, "rb", buffering=0) as file:
                inside = os.fstat(file.fileno()).st_size
                assert len(file.read(1 << 20)) == inside
            assert abs(size - len(text)) < 40
    script = """
        const fs = require('fs');
        for (let i = 0; i < 2000; i++) {
            const text = fs.readFileSync(process.argv[1], 'utf8');
            if (!text.startsWith('# HELP') || !/pending_bytes +0\\n$/.test(text))
                throw new Error(text);
        }
    """
    subprocess.run(["node", "-e", script, mount / "stats"], check=True, timeout=scale(60))


def test_one_open_file_sees_one_rendering(mount):
    (mount / "dev1").mkdir()
    with open(mount / "stats", "rb", buffering=0) as file:
        first = os.pread(file.fileno(), 1 << 20, 0)
        for _ in range(10):
            mount.read("status")
        assert os.pread(file.fileno(), 1 << 20, 0) == first
    assert mount.read("stats").encode() != first


def test_reading_ours_asks_nothing(server, mount):
    (mount / "dev1").mkdir()
    before = len(server.log())
    for name in ("README.md", "control", "status", "errors", "stats", "dev1/control",
                 "dev1/status", "dev1/errors", "dev1/state.json"):
        mount.read(name)
    subprocess.run(["ls", "-l", mount.mnt, mount / "snapshots"], check=True, capture_output=True)
    assert len(server.log()) == before


def test_what_is_left_to_the_kernel(mount):
    (mount / "dev1").mkdir()
    path = mount / "dev1/fs/f"
    path.write_text("x")
    assert fails(os.mkfifo, mount / "dev1/fs/fifo") == errno.EPERM
    assert fails(os.getxattr, path, "user.x") in (errno.ENODATA, errno.EOPNOTSUPP)
    subprocess.run(["flock", path, "true"], check=True, timeout=scale(10))
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX)"
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=scale(10))
    assert fails(os.chown, path, 4711, -1) == errno.EPERM
    os.chown(path, os.stat(path).st_uid, os.stat(path).st_gid)
    assert fails(os.chmod, path, stat.S_ISUID | 0o755) == errno.EPERM


def test_sandbox_root(server, mount):
    (mount / "dev1").mkdir()
    root = mount / "dev1/.sbxfs-root"
    assert fails(os.listdir, root) == errno.EACCES
    for name in ("proc", "sys", "dev"):
        assert not os.path.lexists(root / name)
    assert "passwd" in os.listdir(root / "etc")
    assert (root / "etc/passwd").read_bytes().startswith(b"root:")
    assert fails(os.mkdir, root / "tmp/x") == errno.EROFS
    assert fails(os.open, root / "tmp/x", os.O_WRONLY | os.O_CREAT) == errno.EROFS


@pytest.mark.parametrize("subtree", ["dev1", "dev1/fs", "dev1/fs/a/b"])
def test_subtree(server, start_mount, mount, subtree):
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/a/b").mkdir(parents=True)
    (mount / "dev1/fs/a/b/f").write_text("below")
    (mount / "dev1/fs/top").write_text("top")
    mount.unmount()
    part = start_mount(server.url, ["subtree=" + subtree], state_dir=mount.state_dir)
    if subtree == "dev1":
        assert (part / "fs/a/b/f").read_text() == "below"
        assert "status" in os.listdir(part.mnt) and "snapshots" not in os.listdir(part.mnt)
    elif subtree == "dev1/fs":
        assert sorted(os.listdir(part.mnt)) == ["a", "top"]
        assert (part / "a/b/f").read_text() == "below"
    else:
        assert os.listdir(part.mnt) == ["f"]
        (part / "f").write_text("again")
        assert (part / "f").read_text() == "again"
