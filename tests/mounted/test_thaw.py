"""Sessions that sleep: what a thaw loses is put back, what can't be thawed is kept safe."""

import errno
import os
import subprocess
import time

import pytest

from sbxtest import scale, wait_for
from sbxtest.calls import order
from sbxtest.oddtree import OddTree, copy_tree, differences, remove_tree

from test_snapshots import last, moved, snapshots


class Sleeper:
    """A server whose session sleeps when told, or by itself after ttl_ms, beside a mount."""

    def __init__(self, start_place, kind="gnu-host", ttl_ms=30000, options=()):
        self.place = start_place(kind, options, args=["--idle-ttl-ms", ttl_ms, "--sweep-ms", 100])
        self.server = self.place.server
        self.mount = self.place.mount

    def fill(self, source):
        """A tree put into the workspace at once, and seen by the mount."""
        with self.server.client() as client:
            client.stat(self.place.id, ".")
        copy_tree(source, self.place.root)
        self.look()

    def look(self):
        self.place.fresh()
        subprocess.run(["ls", "-lR", self.place.fs], capture_output=True)

    def asleep(self):
        return not self.place.root.exists()

    def sleep(self):
        self.server.sleep(self.place.id)

    def fall_asleep(self):
        """It may sleep by itself: nobody keeps it awake."""
        wait_for(self.asleep, 30)

    def requests(self, mark, route):
        return sum(record.route == route and record.status == 200
                   for record in self.server.log(mark))


@pytest.mark.long(7)
@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_nothing_is_lost_by_a_thaw(start_place, tmp_path, kind):
    """Modes, times, hard links, names that are not ASCII, 100-byte names: seen by 8 programs."""
    sleeper = Sleeper(start_place, kind)
    seconds = kind.startswith("busybox")
    before = tmp_path / "before"
    before.mkdir()
    OddTree(before, files=600, sparse_bytes=8 << 20, thawable=True, seconds=seconds)
    try:
        sleeper.fill(before)
        assert sleeper.mount.status("dev1")["thaw"] == "ok"
        sleeper.sleep()
        mark = sleeper.place.log_mark()
        programs = [subprocess.Popen(["cat", sleeper.place.fs / f"many000/f{i:02d}"],
                                     stdout=subprocess.PIPE) for i in range(8)]
        for i, program in enumerate(programs):
            assert program.communicate(timeout=scale(60))[0] == b"%d\n" % (i + 1)
        assert sleeper.requests(mark, "reattach") == 1
        assert differences(before, sleeper.place.root, 1 if seconds else 0) == []
        assert sleeper.mount.status("dev1")["note"] == ""
    finally:
        remove_tree(before)


def test_writers_lose_nothing(start_place):
    sleeper = Sleeper(start_place)
    place = sleeper.place
    for round_ in range(3):
        sleeper.sleep()
        mark = place.log_mark()
        writers = [subprocess.Popen(["bash", "-c", f"echo {round_} {i} > f{i}"], cwd=place.fs)
                   for i in range(8)]
        assert [writer.wait(scale(60)) for writer in writers] == [0] * 8
        assert sleeper.requests(mark, "reattach") == 1
        assert sorted(path.read_text() for path in place.root.glob("f*")) == \
            [f"{round_} {i}\n" for i in range(8)]


def test_open_files_and_shells_go_on(start_place):
    sleeper = Sleeper(start_place)
    place = sleeper.place
    (place.fs / "d").mkdir(mode=0o700)
    (place.fs / "d/f").write_bytes(b"x" * 300000)
    os.utime(place.fs / "d/f", ns=(10**18 + 123456789,) * 2)
    before = os.stat(place.fs / "d/f")
    with open(place.fs / "d/f", "rb", buffering=0) as held:
        shell = subprocess.Popen(["bash"], cwd=place.fs / "d", stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        try:
            assert held.read(1000) == b"x" * 1000
            sleeper.sleep()
            output, _ = shell.communicate("wc -c < f; mkdir -p ../e/g; touch new; ls\n",
                                          timeout=scale(60))
        finally:
            shell.kill()
            shell.wait()
        assert output.split() == ["300000", "f", "new"]
        assert len(held.read(1 << 20)) > 0
    after = os.stat(place.fs / "d/f")
    assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
    assert (place.root / "d").stat().st_mode & 0o777 == 0o700


def test_what_was_not_known_is_said(start_place):
    sleeper = Sleeper(start_place)
    place = sleeper.place
    (place.fs / "known").write_text("x")
    os.utime(place.fs / "known", ns=(10**18,) * 2)
    (place.root / "unknown").write_text("put there by somebody else")
    (place.root / "known2").write_text("x")
    sleeper.look()
    (place.root / "known2").write_text("longer than it was known to be")
    (place.root / "new").write_text("never seen")
    sleeper.sleep()
    assert (place.fs / "known").read_text() == "x"
    assert os.stat(place.root / "known").st_mtime_ns == 10**18
    note = sleeper.mount.status("dev1")["note"]
    assert "2 files" in note and "not known" in note
    assert (place.root / "known2").stat().st_mtime > time.time() - 60


def test_a_changed_file_keeps_its_new_time(start_place):
    """What a job did is not dated back to what was known before it."""
    sleeper = Sleeper(start_place)
    place = sleeper.place
    (place.fs / "f").write_text("one")
    os.utime(place.fs / "f", ns=(10**18,) * 2)
    (place.mount / "dev1/jobs/new").write_text("printf two > f\n")
    job = os.readlink(place.mount / "dev1/jobs/latest")
    place.mount.read(f"dev1/jobs/{job}/wait.20")
    sleeper.sleep()
    assert (place.fs / "f").read_text() == "two"
    assert os.stat(place.fs / "f").st_mtime > time.time() - 60


RISKS = {
    "absolute": lambda root: os.symlink("/usr/bin/env", root / "l"),
    "climbing": lambda root: os.symlink("a/../../x", root / "l"),
    "backslash": lambda root: (root / "a\\b").write_text("x"),
    "drive": lambda root: (root / "C:x").write_text("x"),
    "drive text": lambda root: os.symlink("D:x", root / "l"),
    "collision": lambda root: [(root / ("n" * 99 + last_)).write_text("x") for last_ in "ab"],
    "collision with a cut one": lambda root: [(root / name).write_text("x")
                                              for name in ("n" * 99, "n" * 100)],
}


@pytest.mark.parametrize("what", RISKS)
def test_risk(start_place, what):
    """status tells which trees the server could not thaw, and it is right."""
    sleeper = Sleeper(start_place, options=["keepawake=none"])
    place = sleeper.place
    RISKS[what](place.root)
    sleeper.look()
    risk = sleeper.mount.status("dev1")["thaw"]
    names = [entry.name for entry in place.root.iterdir() if entry.name != ".sbxfs"]
    assert risk.startswith("at risk: ") and risk[len("at risk: "):] in names
    sleeper.sleep()
    with pytest.raises(OSError) as caught:
        (place.fs / "x").write_text("x")
    assert caught.value.errno == errno.ESTALE


SAFE = {
    "relative": lambda root: os.symlink("a/../b", root / "l"),
    "colon": lambda root: (root / "ab:c").write_text("x"),
    "one of 100": lambda root: (root / ("n" * 100)).write_text("x"),
    "accents": lambda root: [(root / name).write_text("x") for name in ("é", "日本")],
}


@pytest.mark.parametrize("what", SAFE)
def test_no_risk(start_place, what):
    sleeper = Sleeper(start_place, options=["keepawake=none"])
    place = sleeper.place
    SAFE[what](place.root)
    sleeper.look()
    before = sorted(os.listdir(place.fs))
    assert sleeper.mount.status("dev1")["thaw"] == "ok"
    sleeper.sleep()
    (place.fs / "wake").write_text("x")  # looking at it would not
    assert sorted(set(os.listdir(place.root)) - {".sbxfs", "wake"}) == before
    assert place.mount.status("dev1")["note"] == ""


def test_not_archived_is_no_risk(start_place):
    sleeper = Sleeper(start_place, options=["keepawake=none"])
    os.symlink("/usr/bin/env", sleeper.place.root / "l")
    (sleeper.place.root / os.fsdecode(b"\xff")).write_text("x")
    sleeper.look()
    assert sleeper.mount.status("dev1")["thaw"] == "ok"
    for _ in range(3):
        sleeper.server.sweep()
        time.sleep(0.1)  # the last look may hold it for a moment
    assert not sleeper.asleep()  # a name that is no UTF-8 keeps the server from archiving it


@pytest.mark.long(8)
def test_venv_outlives_the_idle_limit(start_place):
    """A venv holds absolute links: it is kept awake, and persisted when the mount goes."""
    sleeper = Sleeper(start_place, ttl_ms=4000,
                      options=["keepawake_interval=0.5", "keepawake_quiet=2"])
    place = sleeper.place
    place.run("/usr/bin/python3", "-m", "venv", "--without-pip", "venv", seconds=120)
    assert sleeper.mount.status("dev1")["thaw"].startswith("at risk: venv/")
    time.sleep(5.5)
    assert not sleeper.asleep()
    assert place.run("venv/bin/python", "-c", "print(6 * 7)").strip() == "42"
    (place.fs / "later").write_text("written last")
    place.mount.unmount(60)
    sleeper.sleep()
    place.mount.start()
    with pytest.raises(OSError):
        (place.fs / "x").write_text("x")
    assert order(place.mount, "resume") == 0, place.errors()
    assert "verified" in last(place.mount)
    assert place.run("venv/bin/python", "-c", "print(6 * 7)").strip() == "42"
    assert (place.fs / "later").read_text() == "written last"


@pytest.mark.parametrize("mode, awake", [("risk", True), ("all", True), ("jobs", False),
                                         ("none", False)])
def test_kept_awake(start_place, mode, awake):
    sleeper = Sleeper(start_place, ttl_ms=2500 if awake else 1000,
                      options=[f"keepawake={mode}", "keepawake_interval=0.4"])
    os.symlink("/usr/bin/env", sleeper.place.root / "l")
    sleeper.look()
    if awake:
        time.sleep(4)
        assert not sleeper.asleep()
    else:
        sleeper.fall_asleep()


def test_only_all_keeps_a_safe_one(start_place):
    for mode in ("risk", "jobs"):
        sleeper = Sleeper(start_place, ttl_ms=1000,
                          options=[f"keepawake={mode}", "keepawake_interval=0.3"])
        (sleeper.place.fs / "f").write_text("x")
        sleeper.look()
        sleeper.fall_asleep()
    sleeper = Sleeper(start_place, ttl_ms=2500,
                      options=["keepawake=all", "keepawake_interval=0.3"])
    (sleeper.place.fs / "f").write_text("x")
    mark = sleeper.place.log_mark()
    time.sleep(3.5)
    assert not sleeper.asleep()
    assert 3 <= sleeper.requests(mark, "stat") <= 12


@pytest.mark.long(12)
def test_persisted_when_quiet(start_place):
    """Once after each use that changed something, the newest three of them kept."""
    sleeper = Sleeper(start_place, ttl_ms=30000, options=["keepawake_quiet=0.6"])
    place = sleeper.place
    os.symlink("/usr/bin/env", place.root / "l")
    (place.fs / "user").write_text("x")
    assert order(place.mount, "persist mine") == 0
    names = set()
    for i in range(5):
        (place.fs / "f").write_text(f"{i}")
        os.listdir(place.fs)
        wait_for(lambda: set(snapshots(place.mount)) - names - {"mine.tar"}, 20)
        wait_for(lambda: place.mount.status("dev1")["verb"] == "none", 20)
        names |= set(snapshots(place.mount))
        assert last(place.mount).startswith("autopersist: ok")
        time.sleep(1.1)  # names tell seconds
    kept = snapshots(place.mount)
    assert "mine.tar" in kept and len(kept) == 4
    assert all(name.startswith("auto-") for name in kept if name != "mine.tar")
    mark = place.log_mark()
    os.listdir(place.fs)
    (place.fs / "f").read_text()
    time.sleep(2)
    assert not any(record.route == "persist" for record in place.server.log(mark))
    assert snapshots(place.mount) == kept


def test_autopersist(start_place):
    sleeper = Sleeper(start_place, ttl_ms=3000,
                      options=["autopersist=0.5", "autopersist_keep=1", "keepawake_recent=1"])
    place = sleeper.place
    (place.fs / "f").write_text("x")

    def settled():
        before = snapshots(place.mount)
        time.sleep(1.5)
        return before and snapshots(place.mount) == before and before

    first = wait_for(settled, 20)  # nothing changes any more
    (place.fs / "f").write_text("y")
    wait_for(lambda: snapshots(place.mount) not in (first, []), 20)
    wait_for(lambda: len(snapshots(place.mount)) == 1, 5)
    sleeper.fall_asleep()  # it never keeps it awake
    mark = place.log_mark()
    time.sleep(2)
    assert place.log_mark() == mark  # nor wakes it


def test_believed_after_a_second_try(start_place):
    """A server that is busy archiving says for a moment that there is no such session."""
    place = start_place()
    (place.fs / "f").write_text("x")
    mark = place.log_mark()
    place.server.set_faults('reattach:1:reply={"alive":false}')
    assert order(place.mount, "reattach") == 0
    assert [record.route for record in place.server.log(mark)].count("reattach") == 2
    assert (place.fs / "f").read_text() == "x"


def test_resume_wakes(start_place):
    sleeper = Sleeper(start_place)
    (sleeper.place.fs / "f").write_text("x")
    sleeper.sleep()
    assert order(sleeper.mount, "resume") == 0
    assert not sleeper.asleep()
    assert sleeper.mount.status("dev1")["id"] == sleeper.place.id
    moved(sleeper.place)
