"""No room on this machine for what is read: it is read all the same, within the cache's bound."""

import hashlib
import mmap
import os
import random
import subprocess
import threading

import pytest

from sbxtest.timing import wait_for

MIB = 1 << 20
SIZE = 48 * MIB
BLOCK = 64 << 10


def used(directory) -> int:
    """What the files below it take of the disk, those that have lost their names too."""
    total = 0
    for top, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(top, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


class Watch(threading.Thread):
    """The most that a directory takes while this runs."""

    def __init__(self, directory):
        super().__init__()
        self.directory, self.most, self.over = directory, 0, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, used(self.directory))


def make(place) -> bytes:
    data = random.Random(7).randbytes(SIZE)
    (place.root / "big").write_bytes(data)
    (place.root / "other").write_bytes(data[::-1])
    os.utime(place.root / "big", ns=(1, 1))
    place.fresh()
    return data


def digest(path) -> str:
    return subprocess.run(["sha256sum", path], check=True, capture_output=True,
                          text=True).stdout.split()[0]


def read_in_every_way(place, data):
    wanted = hashlib.sha256(data).hexdigest()
    assert digest(place.fs / "big") == wanted
    # Where what was read first is no longer here.
    with open(place.fs / "big", "rb", buffering=0) as file:
        chosen = random.Random(1)
        for _ in range(12):
            at = chosen.randrange(SIZE - 10000)
            assert os.pread(file.fileno(), 10000, at) == data[at:at + 10000]
    with open(place.fs / "big", "rb") as file, \
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for at in range(SIZE - BLOCK, 0, -9 * MIB):  # backwards
            assert mapped[at:at + BLOCK] == data[at:at + BLOCK]
    # Two at once, of two files and of one.
    readers = [subprocess.Popen(["sha256sum", place.fs / name], stdout=subprocess.PIPE, text=True)
               for name in ("big", "other", "big")]
    found = [reader.communicate()[0].split()[0] for reader in readers]
    assert found == [wanted, hashlib.sha256(data[::-1]).hexdigest(), wanted]


@pytest.fixture(params=["", "--range", "--no-exec"])
def backend(request):
    return [request.param] if request.param else []


@pytest.mark.root
def test_a_disk_smaller_than_the_file(start_place, small_disk, backend):
    place = start_place("gnu-host", [f"cache_dir={small_disk}"], backend)
    data = make(place)
    try:
        read_in_every_way(place, data)
    finally:
        place.mount.unmount()


@pytest.mark.root
def test_a_full_disk(start_place, small_disk):
    """Not a byte is left for the cache; later there is."""
    place = start_place("gnu-host", [f"cache_dir={small_disk}"])
    data = make(place)
    filler = small_disk / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], check=False,
                   capture_output=True)
    try:
        read_in_every_way(place, data)
        filler.unlink()
        (place.root / "small").write_bytes(data[:2 * MIB])
        os.utime(place.root / "small", ns=(1, 1))
        place.fresh()
        assert (place.fs / "small").read_bytes() == data[:2 * MIB]
        wait_for(lambda: used(small_disk) >= 2 * MIB, 5)
    finally:
        place.mount.unmount()


def test_the_bound_of_the_cache(start_place, backend):
    place = start_place("gnu-host", ["cache_size=8M"], backend)
    data = make(place)
    with Watch(place.mount.cache_dir) as watch:
        read_in_every_way(place, data)
    assert 0 < watch.most <= 12 * MIB, watch.most
