"""What work costs, in requests and bytes as sbxd's log counts them; design: the table of costs.

Nothing here measures time. What is asked once a second while a program works is allowed for by the
seconds that the program took.
"""

import os
import random
import subprocess
import time

import pytest

from jobtools import ended, programs, running, start, status
from sbxtest.build import sbxfs_path
from sbxtest.timing import wait_for

MIB = 1 << 20


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    """A session on an untouched mount, with the tools of each kind."""
    return start_place(request.param)


class Cost:
    """cost = Cost(place); with cost: …; then what the server saw of it."""

    def __init__(self, place):
        self.place = place

    def __enter__(self):
        self.before = self.place.log_mark()
        self.start_ms = int(time.time() * 1000)
        self.start = time.monotonic()
        return self

    def __exit__(self, *_):
        # Each whole second may have one look at what has changed.
        self.took = time.monotonic() - self.start
        self.looks = int(self.took) + 1
        time.sleep(0.05)  # what is asked behind the programs' backs costs too
        # What was asked before is in the log when it was answered: an ended job's leader, say.
        self.records = [r for r in self.place.server.log(self.before) if r.time >= self.start_ms]
        self.requests = len(self.records)
        self.moved = sum(r.bytes_in + r.bytes_out for r in self.records)
        programs = [r.program or r.route for r in self.records]
        self.scans = programs.count("sbxfs-scan")
        self.others = self.requests - self.scans
        # Where it took seconds, as it may on a busy machine, each of them has its look.
        self.counted = self.requests - min(self.scans, int(self.took))
        self.text = ", ".join(f"{programs.count(p)} {p}" for p in sorted(set(programs)))

    def at_most(self, requests: int):
        assert self.counted <= requests, self.text

    def at_most_beside_looks(self, requests: int):
        """Looks at what has changed are not counted, at one a second."""
        assert self.scans <= self.looks, self.text
        assert self.others <= requests, self.text


def make_files(place, top: str, directories: int, files: int, data):
    for number in range(directories):
        directory = place.root / top / f"d{number}"
        directory.mkdir(parents=True)
        for other in range(files):
            (directory / f"f{other}").write_bytes(data(number, other))


def settle():
    """What was made is old enough to be kept when it has been read."""
    time.sleep(1.2)


def warm(place):
    """The session's first use is behind, and what is known is fresh."""
    place.run("ls", "-l", place.fs)


@pytest.mark.parametrize("words", [["ls", "-lR"], ["find", ".", "-name", "f1"], ["du", "-s"]],
                         ids=lambda words: words[0])
def test_walk_of_2000_files(place, words):
    make_files(place, "t", 100, 20, lambda d, f: b"x")
    with Cost(place) as cost:
        place.run(*words, cwd=place.fs / "t")
    cost.at_most(5)


def test_grep_of_1000_files(place):
    rand = random.Random(1)
    make_files(place, "t", 1, 1000, lambda d, f: rand.randbytes(2048).hex().encode())
    settle()
    with Cost(place) as cost:
        place.run("grep", "-r", "zzz", ".", cwd=place.fs / "t", status=1)
    cost.at_most(30)


def test_text_is_packed_on_its_way(place):
    line = b"static int add(struct list *list, const char *name, int flags);\n"
    make_files(place, "t", 1, 300, lambda d, f: (line * 64)[:4000 + f])
    settle()
    with Cost(place) as cost:
        place.run("grep", "-r", "zzz", ".", cwd=place.fs / "t", status=1)
        place.run("diff", "-r", place.root / "t", place.fs / "t")
    assert cost.moved < 300 * 4000 // 2, (cost.moved, cost.text)


def test_known_directory_answers_without_a_request(place):
    (place.root / "d").mkdir()
    (place.root / "d/f").write_text("x")
    warm(place)
    os.stat(place.fs / "d/f")
    with Cost(place) as cost:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            os.stat(place.fs / "d/f")
            assert not os.path.exists(place.fs / "d/missing")
            assert os.listdir(place.fs / "d") == ["f"]
    assert 1 <= cost.scans <= cost.looks + 1, cost.text
    assert cost.others == 0, cost.text


def test_known_directory_within_ttl(place):
    """No request, be a name there or not, and whoever lists it."""
    (place.root / "d").mkdir()
    for number in range(100):
        (place.root / f"d/f{number}").touch()
    warm(place)
    for turn in range(10):  # until all of it was done within ttl
        time.sleep(1.1)
        begun = time.monotonic()
        assert len(os.listdir(place.fs / "d")) == 100
        with Cost(place) as cost:
            for number in range(100):
                os.stat(place.fs / f"d/f{number}")
                assert not os.path.exists(place.fs / f"d/missing{turn}-{number}")
            place.run("ls", "-l", "d")
            ended_s = time.monotonic() - begun
        if ended_s < 0.9:
            break
    assert ended_s < 0.9
    assert cost.requests == 0, cost.text


def test_create_write_close(place):
    warm(place)
    with Cost(place) as cost:
        place.sh("echo x > new")
    assert (place.root / "new").read_text() == "x\n"
    cost.at_most_beside_looks(1)


def test_create_with_o_excl_and_attributes_before_close(place):
    warm(place)
    with Cost(place) as cost:
        fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"hello")
        os.utime(fd, ns=(10**18, 10**18))
        os.fchown(fd, os.getuid(), os.getgid())
        os.fchmod(fd, 0o640)
        os.close(fd)
    seen = os.stat(place.root / "new")
    assert (seen.st_mode & 0o7777, seen.st_size) == (0o640, 5)
    assert seen.st_mtime_ns // 10**9 == 10**9
    cost.at_most_beside_looks(2)


def test_attributes_before_the_first_byte(place):
    """As sed -i does it."""
    warm(place)
    with Cost(place) as cost:
        fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchown(fd, os.getuid(), os.getgid())
        os.fchmod(fd, 0o640)
        os.utime(fd, ns=(10**18, 10**18))
        shown = os.stat(place.fs / "new")
        os.write(fd, b"hello")
        os.close(fd)
    assert (shown.st_mode & 0o777, shown.st_mtime_ns) == (0o640, 10**18)
    seen = os.stat(place.root / "new")
    assert (seen.st_mode & 0o7777, seen.st_size) == (0o640, 5)
    assert seen.st_mtime_ns // 10**9 != 10**9  # writing comes after
    cost.at_most_beside_looks(2)


def test_attributes_of_a_file_that_stays_empty(place):
    warm(place)
    with Cost(place) as cost:
        fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        made = os.stat(place.root / "new")
        os.fchmod(fd, 0o640)
        os.utime(fd, ns=(10**18, 10**18))
        os.close(fd)
        os.stat(place.fs / "new")  # waits for what close has left
    seen = os.stat(place.root / "new")
    assert seen.st_ino == made.st_ino
    assert (seen.st_mode & 0o7777, seen.st_size) == (0o640, 0)
    assert seen.st_mtime_ns // 10**9 == 10**9
    cost.at_most_beside_looks(2)


def test_create_with_o_excl(place):
    warm(place)
    with Cost(place) as cost:
        fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, b"hello")
        os.close(fd)
    assert (place.root / "new").read_bytes() == b"hello"
    cost.at_most_beside_looks(2)


@pytest.mark.parametrize("flags, budget", [(0, 1), (os.O_EXCL, 2)], ids=["plain", "excl"])
@pytest.mark.parametrize("mode", [None, 0o640], ids=["", "mode"])
def test_fstat_before_close_sends(place, flags, budget, mode):
    warm(place)
    with Cost(place) as cost:
        fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | flags, 0o600)
        os.write(fd, b"hello")
        if mode:
            os.utime(fd, ns=(10**18, 10**18))
            os.fchmod(fd, mode)
        shown = os.fstat(fd)
        assert (place.root / "new").read_bytes() == b"hello"
        with Cost(place) as closing:
            os.close(fd)
    found = os.stat(place.root / "new")
    assert found.st_ctime_ns == shown.st_ctime_ns
    assert (found.st_mode & 0o7777, found.st_mtime_ns // 10**9 == 10**9) == (
        mode or 0o600, bool(mode))
    cost.at_most_beside_looks(budget)
    assert closing.others == 0, closing.text


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_reading_back_what_is_being_written(place, old):
    """As assemblers and linkers do; where a read goes to the end the kernel asks for the size."""
    if old:
        (place.root / "f").write_bytes(b"of before" * 100)
    warm(place)
    whole = b""
    with Cost(place) as cost:
        fd = os.open(place.fs / "f", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in range(8):
            part = bytes([number]) * 70
            assert os.write(fd, part) == len(part)
            whole += part
            assert os.pread(fd, 8192, 0) == whole
            assert os.lseek(fd, 0, os.SEEK_END) == len(whole)
        os.close(fd)
    assert (place.root / "f").read_bytes() == whole
    assert os.stat(place.fs / "f").st_mtime_ns == os.stat(place.root / "f").st_mtime_ns
    cost.at_most_beside_looks(1)


def test_save_over_an_existing_file(place):
    (place.root / "f").write_text("old")
    warm(place)
    with Cost(place) as cost:
        place.sh("echo new > f")
    assert (place.root / "f").read_text() == "new\n"
    cost.at_most_beside_looks(1)


CHANGES = {
    "unlink": "rm f", "mkdir": "mkdir new", "rename": "mv f g", "chmod": "chmod 600 f",
    "symlink": "ln -s f new", "truncate": "truncate -s 2 f", "utimens": "touch -d @1000000000 f",
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_name(place, name):
    (place.root / "f").write_text("some text")
    warm(place)
    with Cost(place) as cost:
        place.sh(CHANGES[name])
    assert cost.others >= 1, "nothing was sent"
    cost.at_most_beside_looks(1)


def test_untar_of_100_files(place):
    source = place.work / "src"
    source.mkdir()
    for number in range(100):
        (source / f"f{number}").write_bytes(os.urandom(3000))
    place.run("tar", "-C", place.work, "-cf", place.work / "x.tar", "src")
    warm(place)
    with Cost(place) as cost:
        place.run("tar", "-xf", place.work / "x.tar")
    assert len(os.listdir(place.root / "src")) == 100
    cost.at_most_beside_looks(2 * 100 + 10)


def test_copy_of_100_files(place):
    source = place.work / "src"
    source.mkdir()
    for number in range(100):
        (source / f"f{number}").write_bytes(os.urandom(3000))
    warm(place)
    with Cost(place) as cost:
        place.run("cp", "-r", source, "copy")
    assert len(os.listdir(place.root / "copy")) == 100
    cost.at_most_beside_looks(2 * 100 + 10)


def test_append_to_a_big_file(place):
    (place.root / "f").write_bytes(os.urandom(16 * MIB))
    warm(place)
    with Cost(place) as cost:
        place.sh("head -c 100 /dev/zero >> f")
    assert (place.root / "f").stat().st_size == 16 * MIB + 100
    cost.at_most(2)
    assert cost.moved < 64 << 10, cost.text


def test_sequential_read_of_a_big_file_moves_it_once(place):
    data = os.urandom(32 * MIB)
    (place.root / "f").write_bytes(data)
    settle()
    warm(place)
    with Cost(place) as cost:
        assert (place.fs / "f").read_bytes() == data
    assert cost.moved < 34 * MIB, cost.text


def test_sequential_write_of_a_big_file_moves_it_once(place):
    data = os.urandom(32 * MIB)
    (place.work / "big").write_bytes(data)
    warm(place)
    with Cost(place) as cost:
        place.run("cp", place.work / "big", "f")
    assert (place.root / "f").read_bytes() == data
    assert cost.moved < 34 * MIB, cost.text


def test_first_bytes_do_not_need_the_whole_file(place):
    (place.root / "f").write_bytes(os.urandom(128 * MIB))
    settle()
    warm(place)
    with Cost(place) as cost:
        place.sh("head -c 4096 f | wc -c")
    assert cost.moved < 8 * MIB, cost.text


def test_random_reads_of_a_big_file(place):
    data = os.urandom(128 * MIB)
    (place.root / "f").write_bytes(data)
    settle()
    warm(place)
    rand = random.Random(2)
    fd = os.open(place.fs / "f", os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        with Cost(place) as cost:
            for _ in range(40):
                offset = rand.randrange(len(data) >> 12) << 12
                assert os.pread(fd, 4096, offset) == data[offset:offset + 4096]
    finally:
        os.close(fd)
    cost.at_most(40)
    assert max(r.bytes_out for r in cost.records) < 256 << 10, cost.text


def git_tree(place):
    """A clean repository of 1,000 files, its index written in the sandbox."""
    make_files(place, "repo", 20, 50, lambda d, f: f"{d} {f}\n".encode() * 20)
    place.run("git", "init", "-q", cwd=place.root / "repo")
    place.run("git", "add", ".", cwd=place.root / "repo")
    place.run("git", "commit", "-qm", "all", cwd=place.root / "repo")
    settle()
    place.run("git", "update-index", "-q", "--refresh", cwd=place.root / "repo")


def test_git_status_with_an_index_that_is_believed(place):
    git_tree(place)
    place.run("git", "config", "core.checkStat", "minimal", cwd=place.root / "repo")
    settle()
    with Cost(place) as cost:
        out = place.run("git", "--no-optional-locks", "status", "--short", cwd=place.fs / "repo")
    assert out == ""
    # Beside the looks and the files of .git that it reads: no content of the work tree.
    packs = [r for r in cost.records if r.program == "sbxfs-pack"]
    assert cost.counted - len(packs) <= 8, cost.text
    assert len(packs) <= 15, cost.text


def test_git_status_that_needs_contents(start_place):
    place = start_place("gnu-host-uid")
    git_tree(place)
    settle()
    with Cost(place) as cost:
        out = place.run("git", "--no-optional-locks", "status", "--short", cwd=place.fs / "repo")
    assert out == ""
    cost.at_most(40)


def test_bytes_of_a_change(place):
    """It carries no more of its program than it calls."""
    (place.fs / "f").write_bytes(b"old")
    warm(place)
    for bytes_most, change in [(6 << 10, lambda: os.mkdir(place.fs / "d")),
                               (10 << 10, lambda: (place.fs / "f").write_bytes(b"new")),
                               (6 << 10, lambda: os.unlink(place.fs / "f"))]:
        with Cost(place) as cost:
            change()
        sizes = [r.bytes_in for r in cost.records if r.program == "sbxfs-apply"]
        assert len(sizes) == 1 and sizes[0] <= bytes_most, cost.text


def test_start_of_a_job(place):
    """Its leader's request, which is answered when it ends, and one more."""
    session = place.mount / place.name
    ended(session / "jobs" / start(session, "true"))
    with Cost(place) as cost:
        job = session / "jobs" / start(session, "echo x; sleep 1")
        running(job)
        assert ended(job)["exit"] == "0"
    asked = programs(cost.records)
    assert asked.pop("sbxfs-jobrun") == 1
    asked.pop("sbxfs-jobpoll", 0)  # by those who look at it
    asked.pop("sbxfs-scan", 0)
    assert sum(asked.values()) <= 1, asked


def test_following_a_job(place):
    """One request a poll's interval for eight readers, and each byte once."""
    session = place.mount / place.name
    ended(session / "jobs" / start(session, "true"))
    line = "x" * 999
    job = session / "jobs" / start(
        session, f"sleep 1; for i in $(seq 20); do echo {line}; sleep .2; done; sleep 4")
    running(job)
    shown = [place.work / f"shown{number}" for number in range(8)]
    readers = []
    try:
        with Cost(place) as cost:
            for path in shown:
                with open(path, "wb") as output:
                    readers.append(subprocess.Popen(
                        ["tail", "-c", "+1", "-f", "-s", "0.1", str(job / "output.log")],
                        stdin=subprocess.DEVNULL, stdout=output))
            wait_for(lambda: min(path.stat().st_size for path in shown) == 20_000, 20)
        with Cost(place) as silent:
            time.sleep(2.5)
        assert status(job)["state"] == "running"
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    assert {path.read_text() for path in shown} == {(line + "\n") * 20}
    for part in (cost, silent):
        assert set(programs(part.records)) <= {"sbxfs-jobpoll"}, part.text
    # 250 ms apart while bytes come, later where none come; and at once for a new reader.
    assert 5 <= cost.requests <= 4 * cost.took + len(readers), cost.text
    assert silent.requests <= 6, silent.text
    # Armoured, and with what each poll costs.
    assert sum(r.bytes_out for r in cost.records) <= 1.4 * 20_000 + 1000 * cost.requests
    (job / "control").write_text("cancel\n")


def sanitized() -> bool:
    """Whether memory is counted by a sanitizer or valgrind that runs beside."""
    libraries = subprocess.run(["ldd", sbxfs_path()], check=True, capture_output=True, text=True)
    return "san.so" in libraries.stdout or bool(os.environ.get("SBX_VALGRIND"))


@pytest.mark.skipif("sanitized()")
@pytest.mark.parametrize("thousands", [(3, 12), pytest.param((20, 200), marks=pytest.mark.slow)],
                         ids=["9000", "180000"])
def test_memory_of_an_inode(place, thousands):
    """What the process grows by when the kernel and it come to know more files, and ask again."""
    def memory() -> int:
        with open(f"/proc/{place.mount.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines
                        if line.startswith("RssAnon:"))

    def walk():
        place.fresh()
        place.sh("ls -lR >/dev/null", seconds=300)

    def grow(start_at, end) -> int:
        for number in range(start_at, end):
            (place.root / f"d{number}").mkdir()
            for other in range(1000):
                (place.root / f"d{number}/module-{other}-name.js").touch()
        walk()
        return memory()

    first = grow(0, thousands[0])
    second = grow(*thousands)
    for _ in range(5):
        walk()
    third = memory()
    count = (thousands[1] - thousands[0]) * 1000
    print(f"{(second - first) / count:.0f} bytes each, after more {(third - first) / count:.0f}")
    # What the heap keeps in reserve does not grow with the number of files.
    assert second - first < 512 * count + MIB
    assert third < 600 * MIB * thousands[1] * 1000 // 10**6 + 3 * MIB
