"""pack: bytes of several files with what they looked like before and after."""

import errno
import os
import random
import threading

from sandbox import lstat, seen
from test_scan import NAMES, path, write


def test_whole_files(box):
    chance = random.Random(1)
    names = [b"x" + n[1:] for n in NAMES]
    for name in names:
        write(box, name, chance.randbytes(chance.choice((0, 1, 10, 4096))))
    for compress in (False, True):
        items = box.pack(*[(name, 0, "whole") for name in names], compress=compress)
        for name, item in zip(names, items):
            assert item.stable and item.error == 0
            with open(path(box, name), "rb") as file:
                assert item.data == file.read()
            assert seen(item.attr) == lstat(path(box, name))


def test_ranges(box):
    data = random.Random(2).randbytes(200_000)
    write(box, "f", data)
    write(box, "g", b"short")
    ranges = [(0, 10), (5, 1), (4095, 2), (4096, 4096), (199_990, 100), (200_000, 5), (300_000, 5),
              (0, 200_000), (123, 70_000), (7, 0)]
    items = box.pack(*[("f", *r) for r in ranges], ("g", 0, "whole"), ("f", 3, 4), ("g", 1, 2))
    for (offset, length), item in zip(ranges, items):
        assert item.stable and item.data == data[offset:offset + length], (offset, length)
    assert [item.data for item in items[-3:]] == [b"short", data[3:7], b"ho"]


def test_what_is_not_read(box):
    write(box, "f", b"data")
    os.symlink("f", path(box, "l"))
    os.mkdir(path(box, "d"))
    os.mkfifo(path(box, "p"))
    os.symlink("/dev/zero", path(box, "z"))
    wants = {"l": errno.ELOOP, "d": errno.EISDIR, "p": errno.EINVAL, "no": errno.ENOENT,
             "f/x": errno.ENOTDIR, "z": errno.ELOOP}
    items = box.pack(*[(name, 0, "whole") for name in wants], ("f", 0, "whole"),
                     *[(name, 0, 5) for name in wants], ("f", 1, 2))
    assert [item.error for item in items] == [*wants.values(), 0] * 2
    assert items[len(wants)].data == b"data" and items[-1].data == b"at"
    items = box.pack(("l", 0, "whole"), ("z", 0, 5), ("d", 0, 5), follow=True)
    assert items[0].stable and items[0].data == b"data"
    assert seen(items[0].attr) == lstat(path(box, "f"))
    assert items[1].error == errno.EINVAL and items[2].error == errno.EISDIR


def test_bound(box):
    for name in "abc":
        write(box, name, b"x" * 1000)
    items = box.pack(*[(name, 0, "whole") for name in "abc"], limit=3000)
    assert [item.stable for item in items] == [True] * 3
    items = box.pack(*[(name, 0, "whole") for name in "abc"], limit=2999)
    assert [item.stable for item in items] == [False] * 3 and items[0].attr.size == 1000


def test_while_files_change(box):
    """What is called stable was one version of the file, also beside files that change."""
    versions = {name: {bytes([65 + i]) * n for n in (10, 2000, 70_000)}
                for i, name in enumerate(("a", "b", "c", "d"))}
    for name, contents in versions.items():
        write(box, name, sorted(contents)[0])
    stop = threading.Event()

    def change():
        chance = random.Random(3)
        while not stop.wait(0.002):
            name = chance.choice("bc")
            data = chance.choice(sorted(versions[name]))
            if chance.random() < 0.5:
                write(box, name, data)
            else:
                write(box, "temp", data)
                os.rename(path(box, "temp"), path(box, name))

    changer = threading.Thread(target=change)
    changer.start()
    stable = 0
    for _ in range(30):
        for name, item in zip("abcd", box.pack(*[(n, 0, "whole") for n in "abcd"])):
            if item.stable:
                stable += 1
                assert len(item.data) == item.attr.size
                if name in "ad":
                    assert item.data in versions[name]
                assert set(item.data) <= {ord(name.upper())}
    stop.set()
    changer.join()
    assert stable > 30


def test_many_small_files(box):
    for i in range(500):
        write(box, f"f{i}", b"%d\n" % i * (i % 50))
    items = box.pack(*[(f"f{i}", 0, "whole") for i in range(500)], compress=True)
    assert all(item.stable and item.data == b"%d\n" % i * (i % 50) for i, item in enumerate(items))
