"""Open files that this mount itself changes in place: never stale, short or an older version."""

import mmap
import os
import random
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.core

SIZE_MAX = 256 * 1024
OPERATIONS = 120


class Model:
    """One file changed at random through every way there is, and what must be in it."""

    def __init__(self, path, seed, with_mmap):
        self.random = random.Random(seed)
        self.path = str(path)
        self.other = self.path + ".renamed"
        self.data = bytearray()
        self.log = []
        self.ways = [self.pread, self.pread, self.pwrite, self.append, self.truncate_path,
                     self.truncate_fd, self.fsync, self.reopen, self.rename, self.chmod,
                     self.utime, self.allocate, self.stat, self.read_all]
        if with_mmap:
            self.ways += [self.map_write, self.map_read]
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        # A second open file of the same, that only reads.
        self.reader = os.open(self.path, os.O_RDONLY)

    def close(self):
        os.close(self.fd)
        os.close(self.reader)

    def run(self, operations):
        for _ in range(operations):
            way = self.random.choice(self.ways)
            self.log.append(way.__name__)
            way()
        self.check()

    def some(self, limit):
        """An offset and a length; the edges of pages are likely."""
        offset = self.random.randrange(limit)
        if self.random.random() < 0.3:
            offset -= offset % mmap.PAGESIZE
        return offset, 1 + self.random.randrange(self.random.choice([10, 5000, 65536]))

    def told(self):
        return f"{' '.join(self.log[-12:])} ({len(self.log)})"

    def same(self, got, offset, length):
        wanted = bytes(self.data[offset:offset + length])
        if got == wanted:
            return
        at = next((i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]),
                  min(len(got), len(wanted)))
        raise AssertionError(f"{len(got)} of {len(wanted)} bytes at {offset}, wrong from {at}: "
                             f"{self.told()}")

    def check(self):
        assert os.fstat(self.fd).st_size == len(self.data), self.told()
        for fd in (self.fd, self.reader):
            self.same(os.pread(fd, SIZE_MAX * 2, 0), 0, SIZE_MAX * 2)

    def put(self, offset, text):
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + len(text)] = text

    def resize(self, size):
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def pread(self):
        offset, length = self.some(SIZE_MAX)
        fd = self.random.choice([self.fd, self.reader])
        self.same(os.pread(fd, length, offset), offset, length)

    def pwrite(self):
        offset, length = self.some(SIZE_MAX)
        text = self.random.randbytes(length)
        assert os.pwrite(self.fd, text, offset) == length
        self.put(offset, text)

    def append(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        text = self.random.randbytes(self.random.randrange(1, 5000))
        assert os.write(fd, text) == len(text)
        os.close(fd)
        self.put(len(self.data), text)

    def truncate_path(self):
        size, _ = self.some(SIZE_MAX)
        os.truncate(self.path, size)
        self.resize(size)

    def truncate_fd(self):
        size, _ = self.some(SIZE_MAX)
        os.truncate(self.fd, size)
        self.resize(size)

    def fsync(self):
        os.fsync(self.fd)

    def reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)
        if self.random.random() < 0.5:
            os.close(self.reader)
            self.reader = os.open(self.path, os.O_RDONLY)

    def rename(self):
        os.rename(self.path, self.other)
        self.path, self.other = self.other, self.path

    def chmod(self):
        os.chmod(self.path, self.random.choice([0o600, 0o644, 0o755]))

    def utime(self):
        os.utime(self.path, (10**9, 10**9 + self.random.randrange(10**6)))

    def allocate(self):
        offset, length = self.some(SIZE_MAX)
        os.posix_fallocate(self.fd, offset, length)
        self.resize(max(len(self.data), offset + length))

    def stat(self):
        assert os.stat(self.path).st_size == len(self.data), self.told()
        assert os.fstat(self.reader).st_size == len(self.data), self.told()

    def read_all(self):
        """All of it, read through an open file of its own."""
        with open(self.path, "rb", buffering=0) as source:
            text = source.read(SIZE_MAX * 2)
        self.same(text, 0, SIZE_MAX * 2)

    def map_read(self):
        if not self.data:
            return
        with mmap.mmap(self.reader, len(self.data), mmap.MAP_SHARED, mmap.PROT_READ) as area:
            offset, length = self.some(len(self.data))
            self.same(area[offset:offset + length], offset, length)

    def map_write(self):
        if not self.data:
            return
        with mmap.mmap(self.fd, len(self.data)) as area:
            offset, length = self.some(len(self.data))
            text = self.random.randbytes(min(length, len(self.data) - offset))
            area[offset:offset + len(text)] = text
            if self.random.random() < 0.3:
                area.flush()
        self.put(offset, text)


def run_models(models):
    """A process each, at once: a page that can't be read is a SIGBUS."""
    children = []
    for model in models:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                model.run(OPERATIONS)
                model.close()
                with open(model.expected, "wb") as file:
                    file.write(model.data)
                os.rename(model.path, model.final)
                status = 0
            except Exception as error:
                print(error, file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        model.close()
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * len(models)


def make_model(place, seed, with_mmap):
    model = Model(place.fs / f"f{seed}", seed, with_mmap)
    model.expected = place.work / f"expected{seed}"
    model.final = place.fs / f"final{seed}"
    return model


def check_models(place, models):
    for model in models:
        wanted = model.expected.read_bytes()
        assert model.final.read_bytes() == wanted
        assert (place.root / model.final.name).read_bytes() == wanted
    assert place.errors() == ""


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
@pytest.mark.parametrize("with_mmap", [False, True], ids=["calls", "mmap"])
@pytest.mark.parametrize("ttl", ["1", "0"], ids=["ttl1", "ttl0"])
def test_at_random(start_place, kind, with_mmap, ttl):
    place = start_place(kind, [f"ttl={ttl}"])
    models = [make_model(place, 7 if with_mmap else 8, with_mmap)]
    run_models(models)
    check_models(place, models)


def test_two_programs_at_once(start_place):
    """Each its own file; what one sends must not disturb the other."""
    place = start_place("gnu-host")
    models = [make_model(place, seed, True) for seed in (10, 11)]
    run_models(models)
    check_models(place, models)


@pytest.mark.parametrize("size", [3000, 300_000])
def test_an_open_file_after_truncation_by_path(start_place, size):
    """The page cache is empty behind the old end, and the sandbox's file has another version."""
    place = start_place("gnu-host")
    (place.fs / "f").write_bytes(b"a" * size)
    with open(place.fs / "f", "rb", buffering=0) as file:
        assert file.read(10) == b"a" * 10
        for turn in range(10):
            os.truncate(place.fs / "f", 1000 + turn)
            assert os.pread(file.fileno(), size, 0) == b"a" * 1000 + bytes(turn)
            os.truncate(place.fs / "f", size)
            assert os.pread(file.fileno(), size * 2, 0) == b"a" * 1000 + bytes(size - 1000)


def times(path):
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino & 0xffffffff


@pytest.mark.parametrize("way", ["touch f", ": > f", "echo x > f", "echo x >> f",
                                 "truncate -s 9 f", "cp /etc/hostname f", "ln f g; rm g"])
@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
def test_times_after_close_are_the_sandboxes(start_place, way, there):
    """What a program sees when the last one has closed the file is what it is from then on."""
    place = start_place("gnu-host")
    if there or way.startswith("ln"):
        (place.fs / "f").write_bytes(b"before")
    for turn in range(3):
        place.sh(way)
        assert times(place.fs / "f") == times(place.root / "f")
        if not there and turn == 0:
            assert os.stat(place.fs).st_mtime_ns == os.stat(place.root).st_mtime_ns
        time.sleep(0.05)


def test_the_other_name_shows_what_one_was_given(start_place):
    """Also what is not sent yet: a truncation that is closed, a write to an open file."""
    place = start_place("gnu-host")
    for turn in range(20):
        (place.fs / f"a{turn}").write_bytes(b"before" * 1000)
        os.link(place.fs / f"a{turn}", place.fs / f"b{turn}")
        with open(place.fs / f"a{turn}", "wb"):
            pass
        assert (place.fs / f"b{turn}").read_bytes() == b""
        with open(place.fs / f"b{turn}", "wb", buffering=0) as file:
            file.write(b"other")
            assert (place.fs / f"a{turn}").read_bytes() == b"other"
        assert os.stat(place.fs / f"a{turn}").st_size == 5


def test_two_processes_share_a_mapping(start_place):
    """What one stores the other sees, and so does read()."""
    place = start_place("gnu-host")
    (place.fs / "f").write_bytes(bytes(mmap.PAGESIZE * 2))
    program = ("import mmap, sys\n"
               "with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as area:\n"
               "    for line in sys.stdin:\n"
               "        at = int(line)\n"
               "        area[at] += 1\n"
               "        print(area[at], flush=True)\n")
    with open(place.fs / "f", "r+b") as file, mmap.mmap(file.fileno(), 0) as area, \
            subprocess.Popen([sys.executable, "-c", program, str(place.fs / "f")], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for turn in range(1, 50, 2):
            for at in (0, mmap.PAGESIZE, mmap.PAGESIZE * 2 - 1):
                child.stdin.write(f"{at}\n")
                child.stdin.flush()
                assert int(child.stdout.readline()) == turn
                assert area[at] == turn
                area[at] += 1
                assert os.pread(file.fileno(), 1, at)[0] == turn + 1
        child.stdin.close()
        assert child.wait() == 0
        last = bytes(area)
        area.flush()
    assert (place.root / "f").read_bytes() == last
