"""MNT/snapshots: read, removed, copied in and checked; states of other clients."""

import errno
import filecmp
import io
import json
import os
import subprocess
import tarfile

import pytest

from sbxtest import tar
from sbxtest.calls import order
from sbxtest.timing import scale

from test_snapshots import last, snapshots, state_files


def archive(path, members: dict, **fields):
    """An ordinary tar, as other tools make it."""
    with tarfile.open(path, "w", **fields) as out:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1_700_000_000
            info.mode = 0o640
            out.addfile(info, io.BytesIO(data))
    return path


def copy(path, to):
    """cp; 0 or 1, and what it said."""
    done = subprocess.run(["cp", path, to], capture_output=True, text=True, timeout=scale(60))
    return done.returncode, done.stderr


@pytest.fixture
def place(start_place):
    return start_place()


def test_ordinary_tools_read_them(place, tmp_path):
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_text("one\n")
    assert order(place.mount, "persist one") == 0
    (place.fs / "d/f").write_text("two\n")
    assert order(place.mount, "persist two") == 0
    kept = place.mount / "snapshots/dev1"
    names = subprocess.run(["tar", "tf", kept / "one.tar"], check=True, capture_output=True,
                           text=True).stdout.split()
    assert "d/f" in names
    subprocess.run(["tar", "xf", kept / "one.tar", "-C", tmp_path], check=True)
    assert (tmp_path / "d/f").read_text() == "one\n"
    difference = subprocess.run(["diff", kept / "one.json", kept / "two.json"],
                                capture_output=True, text=True).stdout
    assert '"path":"d/f"' in difference
    assert subprocess.run(["cmp", "-s", kept / "one.tar", kept / "two.tar"]).returncode == 1
    assert sorted(os.listdir(kept)) == ["one.json", "one.tar", "two.json", "two.tar"]
    assert os.stat(kept / "one.tar").st_mode & 0o777 == 0o400
    assert os.stat(kept).st_mode & 0o777 == 0o700
    assert sorted(os.listdir(place.mount / "dev1/snapshots/")) == sorted(os.listdir(kept))


def test_reading_asks_nobody(place):
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist one") == 0
    mark = place.log_mark()
    subprocess.run(["tar", "tf", place.mount / "snapshots/dev1/one.tar"], check=True,
                   capture_output=True)
    subprocess.run(["ls", "-lR", place.mount / "snapshots"], check=True, capture_output=True)
    place.mount.read("snapshots/dev1/one.json")
    assert place.log_mark() == mark


def test_remove(place):
    assert order(place.mount, "persist one") == 0
    kept = place.mount / "snapshots/dev1"
    with open(kept / "one.tar", "rb") as held:
        (kept / "one.tar").unlink()
        assert len(held.read()) >= 1024
    assert os.listdir(kept) == [] and state_files(place.mount) == []
    assert place.mount.status("dev1")["snapshot"] == "none"
    with pytest.raises(FileNotFoundError):
        (kept / "one.tar").unlink()
    with pytest.raises(OSError) as caught:
        kept.rmdir()  # of a session that is there
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(OSError) as caught:
        os.rename(kept, place.mount / "snapshots/x")
    assert caught.value.errno in (errno.EPERM, errno.EXDEV)


def test_import(place, tmp_path):
    source = archive(tmp_path / "x.tar", {"a/b": b"content", "é": b"accent"})
    kept = place.mount / "snapshots/dev1"
    assert copy(source, kept) == (0, "")
    assert filecmp.cmp(source, kept / "x.tar", shallow=False)
    receipt = json.loads((kept / "x.json").read_text())
    assert receipt["verified"] and receipt["how"] == "import"
    assert order(place.mount, "hydrate x") == 0, place.errors()
    assert "verified" in last(place.mount)
    found = os.stat(place.root / "a/b")
    assert (found.st_mode & 0o777, found.st_mtime) == (0o640, 1_700_000_000)
    assert (place.fs / "é").read_bytes() == b"accent"
    assert copy(source, kept / "x.tar")[0] == 1  # EEXIST: it is there
    for words in (["cp", "-p", source, kept / "p.tar"],
                  ["bash", "-c", f"cat {source} > {kept}/q.tar"],
                  ["bash", "-c", f"{{ head -c 700 {source}; tail -c +701 {source}; }}"
                                 f" > {kept}/r.tar"],
                  ["dd", f"if={source}", f"of={kept}/s.tar", "bs=777", "status=none"]):
        subprocess.run([str(word) for word in words], check=True, timeout=scale(60))
    for name in "pqrs":
        assert filecmp.cmp(source, kept / f"{name}.tar", shallow=False), name
    assert state_files(place.mount) == sorted(
        f"{name}.{kind}" for name in "pqrsx" for kind in ("json", "tar"))


def test_import_of_a_pair(place, tmp_path):
    (place.fs / "f").write_text("x")
    os.symlink("/absolute", place.root / "l")
    place.fresh()
    assert order(place.mount, "persist one") == 0
    kept = place.mount / "snapshots/dev1"
    other = place.mount / "snapshots/later"
    other.mkdir()
    for words in (["one.json", "one.tar"], ["one.tar", "one.json"]):
        for word in words:
            assert copy(kept / word, other) == (0, ""), words
        assert (other / "one.json").read_text() == (kept / "one.json").read_text()
        (other / "one.tar").unlink()
    (tmp_path / "one.json").write_text((kept / "one.json").read_text().replace('"f"', '"g"'))
    assert copy(kept / "one.tar", other)[0] == 0
    assert copy(tmp_path / "one.json", other)[0] == 1  # it does not match the archive
    assert copy(kept / "one.json", other)[0] == 0
    (place.mount / "later").mkdir()
    assert order(place.mount, "hydrate one", "later") == 0
    subprocess.run(["rm", "-r", other], check=False, capture_output=True)
    assert os.listdir(other) == []


@pytest.mark.parametrize("name", ["x", "x.txt", ".x.tar", "é.tar", ".tar", "x.tar.gz"])
def test_other_names_are_refused(place, tmp_path, name):
    source = archive(tmp_path / "x.tar", {"f": b"x"})
    assert copy(source, place.mount / "snapshots/dev1" / name)[0] == 1
    assert state_files(place.mount) == []


BAD_RECEIPTS = {
    "no JSON": lambda text: "no receipt",
    "cut": lambda text: text[:-20],
    "leads out": lambda text: text.replace('"path":"f"', '"path":"../f"'),
    "absolute": lambda text: text.replace('"path":"f"', '"path":"/f"'),
    "of ours": lambda text: text.replace('"path":"f"', '"path":".sbxfs/f"'),
    "another file": lambda text: text.replace('"path":"f"', '"path":"g"'),
    "another sum": lambda text: text.replace('"sha256":"', '"sha256":"0')[:-1],
    "a number": lambda text: text.replace('"verified":true', '"verified":1'),
    "another name": lambda text: text.replace('"snapshot":"one"', '"snapshot":"../one"'),
}


@pytest.mark.parametrize("what", BAD_RECEIPTS)
def test_bad_receipts(place, tmp_path, what):
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist one") == 0
    text = place.mount.read("snapshots/dev1/one.json")
    (tmp_path / "one.json").write_text(BAD_RECEIPTS[what](text))
    status, said = copy(tmp_path / "one.json", place.mount / "snapshots/dev1")
    assert status == 1 and "Invalid argument" in said
    assert place.mount.read("snapshots/dev1/one.json") == text
    assert state_files(place.mount) == ["one.json", "one.tar"]


def test_left_by_a_mount_that_was_killed(place, tmp_path):
    """Half of a file that was being copied in is nothing, and in nobody's way."""
    source = archive(tmp_path / "x.tar", {"f": b"x" * 100000})
    kept = place.mount / "snapshots/dev1"
    out = os.open(kept / "x.tar", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(out, source.read_bytes()[:5000])
    assert os.listdir(kept) == []
    os.kill(place.mount.pid, 9)
    place.mount.wait_gone()
    with pytest.raises(OSError):
        os.close(out)
    subprocess.run(["fusermount3", "-uz", place.mount.mnt], check=True)
    place.mount.start()
    assert os.listdir(kept) == []
    assert copy(source, kept) == (0, "")
    assert snapshots(place.mount) == ["x.tar"]


# Other clients' states --------------------------------------------------------------------------

class Handover:
    """A state file as the reference client leaves it, beside its archive."""

    def __init__(self, place, tmp_path):
        self.place = place
        self.dir = tmp_path / "spool"
        self.dir.mkdir(mode=0o700)
        self.file = tmp_path / "state.json"
        with place.server.client() as client:
            self.id = client.create()["sessionId"]
            client.put(self.id, "hello", b"from another client\n")
            data = client.persist(self.id)
        self.archive = self.dir / "0b5dd7a4-9c39-4d70-a1bb-0c8ff5b8a7f1.tar"
        self.archive.write_bytes(data)
        self.archive.chmod(0o600)
        self.write()

    def write(self, **fields):
        state = {"backend": "remote", "ref": self.id, "snapshot": {
            "id": self.id, "backend": "remote-tar", "ref": str(self.archive),
            "createdAt": "2026-11-30T08:30:00.000Z", "metadata": {"remoteSessionId": self.id}},
            **fields}
        self.file.write_text(json.dumps({key: value for key, value in state.items()
                                         if value is not None}))
        self.file.chmod(0o600)

    def die(self):
        with self.place.server.client() as client:
            client.delete(self.id)

    def resume(self, name="theirs", file=None):
        return order(self.place.mount, f"resume {file or self.file} {name}", "")


@pytest.fixture
def handover(place, tmp_path):
    return Handover(place, tmp_path)


def test_handover_hot_and_cold(handover):
    mount = handover.place.mount
    assert handover.resume("hot") == 0
    assert mount.status("hot")["id"] == handover.id
    assert (mount / "hot/fs/hello").read_text() == "from another client\n"
    assert handover.resume("hot") == errno.EEXIST
    assert handover.resume("twice") == errno.EEXIST  # it is known already
    assert order(mount, "detach hot", "") == 0
    handover.die()
    assert handover.resume("cold") == 0, mount.read("errors")
    assert mount.status("cold")["id"] != handover.id
    assert (mount / "cold/fs/hello").read_text() == "from another client\n"
    assert json.loads(mount.read("cold/state.json"))["ref"] == mount.status("cold")["id"]
    assert len(snapshots(mount, "cold")) == 1


def test_handover_to_and_fro(place, tmp_path):
    """What this mount writes, it takes."""
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist") == 0
    (tmp_path / "state.json").write_text(place.mount.read("dev1/state.json"))
    assert order(place.mount, "delete dev1", "") == 0
    assert order(place.mount, f"resume {tmp_path}/state.json again", "") == 0
    assert (place.mount / "again/fs/f").read_text() == "x"


def test_handover_without_an_archive(handover):
    handover.write(snapshot=None)
    handover.die()
    mark = handover.place.log_mark()
    assert handover.resume() == errno.ENODATA
    assert not any(record.route == "create" for record in handover.place.server.log(mark))


REFUSED = {
    "a link": lambda h: (h.file.rename(h.dir / "real"), h.file.symlink_to(h.dir / "real")),
    "writable": lambda h: h.file.chmod(0o602),
    "writable by the group": lambda h: h.file.chmod(0o620),
    "another's": lambda h: os.chown(h.file, 4711, -1),
    "no JSON": lambda h: h.file.write_text("{"),
    "another backend": lambda h: h.write(backend="local"),
    "no id": lambda h: h.write(ref="../x"),
    "a directory": lambda h: (h.file.unlink(), h.file.mkdir()),
    "a FIFO": lambda h: (h.file.unlink(), os.mkfifo(h.file)),
    "archive: a link": lambda h: (h.archive.rename(h.dir / "r"), h.archive.symlink_to("r")),
    "archive: writable": lambda h: h.archive.chmod(0o602),
    "archive: another's": lambda h: os.chown(h.archive, 4711, -1),
    "archive: relative": lambda h: h.write(snapshot={
        "id": h.id, "backend": "remote-tar", "ref": h.archive.name, "createdAt": "x"}),
    "archive: another kind": lambda h: h.write(snapshot={
        "id": h.id, "backend": "other", "ref": str(h.archive), "createdAt": "x"}),
    "archive: no tar": lambda h: h.archive.write_bytes(b"no archive"),
    "archive: hostile": lambda h: h.archive.write_bytes(tar.archive(tar.member("../x"))),
}


@pytest.mark.parametrize("what", [
    pytest.param(what, marks=pytest.mark.root if "another's" in what else ()) for what in REFUSED])
def test_handover_refused(handover, what):
    place = handover.place
    handover.die()
    REFUSED[what](handover)
    mark = place.log_mark()
    assert handover.resume() == errno.EINVAL
    assert not any(record.route == "create" for record in place.server.log(mark))
    assert not (place.mount / "theirs").exists()
    assert state_files(place.mount, "theirs") == []
    assert "EINVAL" in place.mount.read("errors").splitlines()[-1]


def test_handover_on_the_mount(handover):
    place = handover.place
    handover.die()
    (place.fs / "state.json").write_text(handover.file.read_text())
    for path in (place.fs / "state.json", place.mount / "dev1/state.json"):
        assert handover.resume(file=path) == errno.EINVAL
    assert order(place.mount, "persist one") == 0
    (place.fs / "x.tar").write_bytes(handover.archive.read_bytes())
    for path in (place.fs / "x.tar", place.mount / "snapshots/dev1/one.tar"):
        handover.archive = path
        handover.write()
        assert handover.resume() == errno.EINVAL
    assert handover.resume(file="state.json") == errno.EINVAL
    assert handover.resume(file="/nonexistent/state.json") == errno.ENOENT
    assert handover.resume("bad name") == errno.EINVAL
