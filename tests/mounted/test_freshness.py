"""What the sandbox changes is seen here within ttl, whatever else goes on (close-to-open)."""

import os
import random
import subprocess
import time
from contextlib import contextmanager

import pytest

from jobtools import ended, start
from sbxtest.timing import scale

SLOW = os.environ.get("SBX_SLOW") == "1"
TTL_S = 1.0
LIMIT_S = TTL_S + 5 * scale(0.05)
SIZE = 64  # of every file that is changed


class Name:
    """What a name of the workspace was and when; and the newest of it that was seen here.

    states: (begun, done, content, mtime), oldest first; content is None where there was nothing.
    seen: by those who named it, and in listings. These may be of different age within ttl.
    """

    def __init__(self):
        self.states = [(0.0, 0.0, None, None)]
        self.seen = {"name": 0, "listing": 0}

    def matching(self, matches, until: float) -> list:
        """The states that a look which ended then may have shown, oldest first."""
        return [i for i, (begun, _, *what) in enumerate(self.states)
                if begun <= until and matches(*what)]


class Checker:
    """Changes names in the sandbox's own directory and looks at them through the mount.

    What was changed longer than ttl before a look began must be seen by it, and what was seen is
    never followed by something older.
    """

    def __init__(self, place, directories):
        self.place = place
        self.random = random.Random(7)
        self.directories = directories
        self.names = {}
        self.serial = 0
        self.begin()
        for directory in directories:
            for _ in range(2):
                self.make(directory)

    def begin(self):
        """Counts anew."""
        self.looks = 0
        self.changes = dict.fromkeys(("write", "replace", "make", "remove", "rename"), 0)
        self.wrong = []
        self.outdated = 0.0  # for how long at most what was seen had not been true any more, in s

    def note(self, path, begun):
        """Keeps what a change made of a name."""
        name = self.names.setdefault(path, Name())
        try:
            content = (self.place.root / path).read_bytes()
            mtime = os.stat(self.place.root / path).st_mtime_ns
        except FileNotFoundError:
            content = mtime = None
        name.states.append((begun, time.monotonic(), content, mtime))

    def fresh(self, directory) -> str:
        self.serial += 1
        return f"{directory}/n{self.serial}"

    def some(self):
        """A name that is there."""
        return self.random.choice([path for path, name in self.names.items()
                                   if name.states[-1][2] is not None])

    def content(self) -> bytes:
        """Unlike any other, of the same size."""
        self.serial += 1
        return f"{self.serial}\n".rjust(SIZE, ".").encode()

    # Changes

    def make(self, directory=None):
        path = self.fresh(directory or self.random.choice(self.directories))
        begun = time.monotonic()
        (self.place.root / path).write_bytes(self.content())
        self.note(path, begun)

    def write(self):
        """The same file, of the same size."""
        path, begun = self.some(), time.monotonic()
        with open(self.place.root / path, "r+b") as file:
            file.write(self.content())
        self.note(path, begun)

    def replace(self):
        path = self.some()
        (self.place.root / "spare").write_bytes(self.content())
        begun = time.monotonic()
        os.replace(self.place.root / "spare", self.place.root / path)
        self.note(path, begun)

    def remove(self):
        path, begun = self.some(), time.monotonic()
        os.unlink(self.place.root / path)
        self.note(path, begun)
        self.make(os.path.dirname(path))

    def rename(self):
        path = self.some()
        other, begun = self.fresh(os.path.dirname(path)), time.monotonic()
        os.rename(self.place.root / path, self.place.root / other)
        self.note(path, begun)
        self.note(other, begun)

    def change(self):
        way = min(self.changes, key=self.changes.get)
        self.changes[way] += 1
        getattr(self, way)()

    # Looks

    def judge(self, how, path, begun, matches):
        """What a look at a name says that began then and ends now."""
        name = self.names[path]
        found = name.matching(matches, time.monotonic())
        self.looks += 1
        if not found:
            self.wrong.append(f"{how} {path}: what it never was")
            return
        past = [begun - done for _, done, *_ in name.states[found[-1] + 1:] if done <= begun]
        age = max(past, default=0)
        self.outdated = max(self.outdated, age)
        # A name that is not there may be not yet there or not any more.
        not_older = [i for i in found if i >= name.seen[how]]
        if age > LIMIT_S or not not_older:
            self.wrong.append(f"{how} {path}: state {found} of {len(name.states) - 1}, "
                              f"{name.seen[how]} was seen, outdated for {age:.2f} s")
        name.seen[how] = min(not_older, default=name.seen[how])

    def read(self, path):
        begun = time.monotonic()
        try:
            found = (self.place.fs / path).read_bytes()
        except FileNotFoundError:
            found = None
        self.judge("name", path, begun, lambda content, _: content == found)

    def stat(self, path):
        begun = time.monotonic()
        try:
            status = os.stat(self.place.fs / path)
            found = status.st_mtime_ns
        except FileNotFoundError:
            found = None
        self.judge("name", path, begun, lambda _, mtime: mtime == found)

    def list(self, directory):
        begun = time.monotonic()
        found = set(os.listdir(self.place.fs / directory))
        for path in self.names:
            if os.path.dirname(path) == directory:
                there = os.path.basename(path) in found
                self.judge("listing", path, begun,
                           lambda content, _, there=there: (content is not None) == there)

    def look(self):
        for path in self.random.sample(list(self.names), len(self.names) // 2):
            self.random.choice([self.read, self.stat])(path)
        self.list(self.random.choice(self.directories))

    def forget(self):
        """Names that are gone for so long that they are known to be."""
        old = time.monotonic() - 3 * LIMIT_S
        for path in [path for path, name in self.names.items()
                     if name.states[-1][2] is None and name.states[-1][1] < old]:
            del self.names[path]

    def run(self, seconds, enough):
        """For so many seconds, and on a busy machine until it is enough."""
        begun = time.monotonic()
        while (took := time.monotonic() - begun) < seconds or (took < 60 and not enough()):
            self.change()
            for _ in range(self.random.randrange(1, 3)):
                self.look()
                time.sleep(self.random.uniform(0.02, 0.12))
            self.forget()
        # What was changed last is seen too.
        time.sleep(LIMIT_S)
        for path in self.names:
            self.read(path)
        for directory in self.directories:
            self.list(directory)


# What is done over and over in fs. Where files come and go, ls, grep and cat may say so.
WORKLOADS = {
    "ls": "ls -lR t >/dev/null 2>&1 || :",
    "grep": "grep -r zzz t >/dev/null 2>&1 || :",
    "git-status": "git -C t --no-optional-locks status --short >/dev/null",
    "read": "cat t/d*/f* >/dev/null",
    "untar": "tar -C t/d0 -xf \"$TAR\"",
    "saves": "for i in 1 2 3 4 5 6 7 8; do echo $i >t/d0/s$i; done",
    "renames": "echo x >t/d0/tmp; mv t/d0/tmp t/d0/moved; rm t/d0/moved",
}


@contextmanager
def working(place, body):
    """Runs it over and over while the block runs; yields a function that says how often."""
    ends, rounds = place.work / "ends", place.work / "rounds"
    ends.unlink(missing_ok=True)
    rounds.write_text("")
    script = f"while [ ! -e \"$ENDS\" ]; do {body}; echo >>\"$ROUNDS\"; done"
    with subprocess.Popen(
            ["bash", "-ec", script], cwd=place.fs, stdin=subprocess.DEVNULL,
            env=place.env(ENDS=str(ends), ROUNDS=str(rounds), TAR=str(place.work / "x.tar"))
            ) as process:
        try:
            yield lambda: rounds.stat().st_size
        finally:
            ends.touch()
            try:
                assert process.wait(scale(60)) == 0
            finally:
                process.kill()


def kinds_and_workloads():
    """Those that only read run in turn on one place. With BusyBox all of them in a slow run."""
    reading = ["ls", "grep", "git-status", "read"]
    for kind, names, ordinary in (("gnu-host", reading, True), ("busybox-host", ["ls"], True),
                                  ("busybox-host", reading[1:], False)):
        yield pytest.param(kind, names, marks=[] if ordinary else [pytest.mark.slow],
                           id=f"{kind}-{'-'.join(names)}")
    for kind in ("gnu-host", "busybox-host"):
        for name in [name for name in WORKLOADS if name not in reading]:
            ordinary = kind == "gnu-host" or name in ("saves", "untar")
            yield pytest.param(kind, [name], marks=[] if ordinary else [pytest.mark.slow],
                               id=f"{kind}-{name}")


@pytest.mark.serial
@pytest.mark.parametrize("kind, names", kinds_and_workloads())
def test_changes_are_seen_while_a_program_works(start_place, kind, names):
    place = start_place(kind)
    for directory in range(10):
        (place.root / f"t/d{directory}").mkdir(parents=True)
        for number in range(20):
            (place.root / f"t/d{directory}/f{number}").write_text(f"{directory} {number}\n" * 50)
    place.run("git", "init", "-q", cwd=place.root / "t")
    place.run("git", "add", ".", cwd=place.root / "t")
    place.run("git", "commit", "-qm", "all", cwd=place.root / "t")
    place.run("tar", "-C", place.root / "t/d0", "-cf", place.work / "x.tar", ".")
    checker = Checker(place, ["t/d0", "t/d1", "t/d9"])
    for name in names:
        checker.begin()
        with working(place, WORKLOADS[name]) as rounds:
            checker.run(30 if SLOW else 3, lambda: rounds() >= 3 and checker.looks > 100 and
                        min(checker.changes.values()) > 0)
            assert rounds() >= 3
        print(f"{name}: {sum(checker.changes.values())} changes, {checker.looks} looks, "
              f"{rounds()} rounds; outdated for {checker.outdated:.2f} s at most")
        assert not checker.wrong, f"{name}:\n" + "\n".join(checker.wrong)
        assert min(checker.changes.values()) > 0 and checker.looks > 100


# How a job may write a file of which something is known here.
WRITERS = {
    "in place": "printf '%s\\n' {0} 1<>f",
    "anew": "printf '%s\\n' {0} >f",
    "replaced": "printf '%s\\n' {0} >spare; mv spare f",
    "same times": "touch -r f ref; printf '%s\\n' {0} >f; touch -r ref f",
}


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside-readers"])
@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_what_a_job_wrote_is_read_right_after_it(start_place, kind, others):
    """Whatever was known here before, however young that is, and whatever is being asked."""
    place = start_place(kind)
    session = place.mount / place.name
    (place.root / "f").write_text("0000\n")
    (place.root / "d").mkdir()
    reading = "cat f >/dev/null; ls -l d >/dev/null 2>&1 || :" if others else "sleep 0.1"
    with working(place, reading):
        for turn in range(1, 201 if SLOW else 21):
            write_by_job(place, session, turn)


def write_by_job(place, session, turn):
    way = list(WRITERS)[turn % len(WRITERS)]
    old, new = f"{turn - 1:04}\n", f"{turn:04}\n"
    job = session / "jobs" / start(
        session, f"sleep 0.{turn % 3}; {WRITERS[way].format(new.strip())}; "
                 f"touch d/new{turn}; rm -f d/new{turn - 1}")
    # What is known here then.
    assert (place.fs / "f").read_text() in (old, new, "")
    os.path.exists(place.fs / f"d/new{turn}")
    os.listdir(place.fs / "d")
    assert ended(job)["exit"] == "0", (job / "output.log").read_text()
    found = [(place.fs / "f").read_text(), os.listdir(place.fs / "d"),
             os.path.exists(place.fs / f"d/new{turn}"),
             os.path.exists(place.fs / f"d/new{turn - 1}")]
    assert found == [new, [f"new{turn}"], True, False], (turn, way)


def test_what_an_open_found_gone_is_gone(start_place):
    """For who asks after it too, though the name could be believed for a while yet."""
    place = start_place("gnu-host")
    (place.root / "f").write_text("x")
    os.listdir(place.fs)
    time.sleep(TTL_S + 0.1)
    assert os.stat(place.fs / "f").st_size == 1
    os.unlink(place.root / "f")
    with pytest.raises(FileNotFoundError):
        (place.fs / "f").read_text()
    assert not (place.fs / "f").exists()
    assert os.listdir(place.fs) == []
