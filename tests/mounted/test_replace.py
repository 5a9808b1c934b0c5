"""Files that are replaced under their readers, here and by the sandbox."""

import os
import threading

import pytest

from sbxtest.timing import scale

LENGTH = 3000
COUNT = 1000
COUNT_HERE = COUNT if os.environ.get("SBX_SLOW") == "1" else 300 if scale(1) == 1 else 100


class Readers:
    """Threads that read the file over and over, in pieces of that size, while the block runs."""

    def __init__(self, path, piece, count=2):
        self._piece = piece
        self.wrong = []
        self.reads = 0
        self._path = path
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]

    def _run(self):
        while not self._ended.is_set():
            try:
                with open(self._path, "rb", buffering=0) as file:
                    data = b""
                    while chunk := file.read(self._piece):
                        data += chunk
            except OSError as error:
                self.wrong.append(error)
                continue
            self.reads += 1
            if len(data) != LENGTH or len(set(data)) != 1:
                self.wrong.append((len(data), set(data)))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread in self._threads:
            thread.join(scale(60))


@pytest.fixture
def quick(start_place):
    """A place where a command starts quickly."""
    return start_place("busybox-host")


@pytest.mark.long(15)
@pytest.mark.core
def test_replaced_from_here(quick):
    (quick.fs / "f").write_bytes(b"A" * LENGTH)
    with Readers(quick.fs / "f", 1024) as readers:
        for index in range(COUNT_HERE):
            (quick.fs / "t").write_bytes(bytes([65 + index % 26]) * LENGTH)
            os.replace(quick.fs / "t", quick.fs / "f")
    assert readers.wrong == [], quick.errors()
    assert readers.reads > COUNT_HERE / 3
    assert os.listdir(quick.fs) == ["f"]


@pytest.mark.long(8)
@pytest.mark.parametrize("ttl", ["1", "0"])
def test_replaced_by_the_sandbox(start_place, ttl):
    """No ENOENT, no ESTALE, no short file, though versions last for milliseconds.

    Read at once: so quickly replaced, a file comes to have the number of the one before the last,
    and can't be told from one that was changed in place, which who has it open sees.
    """
    place = start_place("gnu-host", [f"ttl={ttl}"])
    (place.fs / "f").write_bytes(b"A" * LENGTH)
    script = ("import os, time\n"
              f"for i in range({COUNT}):\n"
              f"    open('t', 'wb').write(bytes([65 + i % 26]) * {LENGTH})\n"
              "    os.replace('t', 'f')\n"
              "    time.sleep(0.001)\n")
    with Readers(place.fs / "f", 4096) as readers:
        place.inside("exec python3 -c \"$1\"", script, seconds=120)
    assert readers.wrong == [], place.errors()
    assert readers.reads > 5
    place.fresh()
    assert (place.fs / "f").read_bytes() == (place.root / "f").read_bytes()


@pytest.mark.parametrize("size", [3000, 400000, 9 << 20])
def test_a_reader_of_the_old_version(place, size):
    """Opened before a rename over it made here: read to its end, whatever had been fetched."""
    old, new = os.urandom(size), os.urandom(size)
    (place.root / "f").write_bytes(old)
    place.fresh()
    with open(place.fs / "f", "rb", buffering=0) as unread, \
            open(place.fs / "f", "rb", buffering=0) as begun:
        first = begun.read(1000)
        (place.fs / "t").write_bytes(new)
        os.replace(place.fs / "t", place.fs / "f")
        assert (place.fs / "f").read_bytes() == new
        rest = b""
        while chunk := begun.read(1 << 20):
            rest += chunk
        assert first + rest == old
        assert b"".join(iter(lambda: unread.read(1 << 20), b"")) == old
        assert os.fstat(begun.fileno()).st_size == size
    with open(place.fs / "f", "rb", buffering=0) as file:
        os.unlink(place.fs / "f")
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == new


def test_a_renamed_directory(place):
    """Its files are there at once under the new name, and not under the old one."""
    place.inside("mkdir -p a/b/c; for i in 1 2 3 4 5; do echo $i >a/b/c/$i; done")
    place.fresh()
    assert len(os.listdir(place.fs / "a/b/c")) == 5
    for index in range(5):
        here, there = ("a", "z")[index % 2], ("z", "a")[index % 2]
        os.rename(place.fs / here, place.fs / there)
        assert (place.fs / there / "b/c/3").read_text() == "3\n"
        assert sorted(os.listdir(place.fs / there / "b/c")) == ["1", "2", "3", "4", "5"]
        assert not (place.fs / here).exists()
        with pytest.raises(FileNotFoundError):
            os.stat(place.fs / here / "b/c/3")
    os.makedirs(place.fs / "empty")
    os.rename(place.fs / "z", place.fs / "empty")
    assert (place.fs / "empty/b/c/5").read_text() == "5\n"


def test_a_directory_replaced_by_the_sandbox(place):
    """Another directory, then a file, then a link of that name."""
    place.inside("mkdir d; echo 1 >d/f")
    place.fresh()
    assert (place.fs / "d/f").read_text() == "1\n"
    place.inside("mv d old; mkdir d; echo 2 >d/f")
    place.fresh()
    assert (place.fs / "d/f").read_text() == "2\n"
    assert (place.fs / "old/f").read_text() == "1\n"
    place.inside("rm -r d; echo 3 >d")
    place.fresh()
    assert (place.fs / "d").read_text() == "3\n"
    place.inside("rm d; ln -s old d")
    place.fresh()
    assert (place.fs / "d/f").read_text() == "1\n"
    assert os.readlink(place.fs / "d") == "old"
