"""apply: whole contents, parts of files, appends and copies, byte for byte."""

import errno
import hashlib
import os
import random
import subprocess
import threading
import time

import pytest

from sandbox import AND, EXCL, IN_PLACE, DriverError, lstat, seen
from test_apply import check, content
from test_scan import path, write

EVERY_BYTE = bytes(range(256))
CONTENTS = {
    "empty": b"",
    "text": b"hello\nworld\n\n\n",
    "spaces": b" \t x \n",
    "colon": b":x\\0101\\n%s%b\\c",
    "dash": b"-n",
    "nul": b"\0\0a\0\n\0",
    "bytes": EVERY_BYTE,
    "ctl": b"\x81\x82\x83\x84\x85\x86\x87\x88\x81x\\\x81",
    "utf8": "äöü€\U0001f600\n".encode() * 50,
    "page": bytes(random.Random(1).randbytes(4096)),
    "64k": bytes(random.Random(2).randbytes(65537)),
    "text90k": b"0123456789abcde\n" * 5800,
    "300k": bytes(random.Random(3).randbytes(300_001)),
    "nulls200k": bytes(200_000),
}


def leftovers(box):
    return os.listdir(path(box, ".sbxfs/stage"))


def test_save_new_and_over(box):
    for name, data in CONTENTS.items():
        new, old = f"new-{name}", f"old-{name}"
        error, reply = box.do("save", new, data)
        assert error == 0, (name, reply.results)
        assert content(box, new) == data, name
        assert reply.paths[new.encode()].attr.mode == 0o100644
        check(box, reply, new, "")
        write(box, old, b"before")
        os.chmod(path(box, old), 0o751)
        error, reply = box.do("save", old, data)
        assert error == 0 and content(box, old) == data, name
        assert reply.paths[old.encode()].attr.mode == 0o100751 and not reply.results[0].in_place
        check(box, reply, old, "")
        assert leftovers(box) == [], name


def test_save_mode_and_times(box):
    when = 1_600_000_000 * 10**9
    for mode in ("644", "600", "755", "444", "0", "111", "777", "66"):
        write(box, f"old-{mode}", b"")
        for name in (f"new-{mode}", f"old-{mode}"):
            error, reply = box.do("save", name, b"x", mode=mode, atime=when + 10**9, mtime=when)
            assert error == 0, name
            st = os.lstat(path(box, name))
            assert st.st_mode == 0o100000 | int(mode, 8)
            assert (st.st_atime_ns, st.st_mtime_ns) == (when + 10**9, when), name
            check(box, reply, name)


def test_save_keeps_owner(box):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    write(box, "f", b"1")
    os.chown(path(box, "f"), 1234, 2345)
    os.chmod(path(box, "f"), 0o640)
    error, reply = box.do("save", "f", b"2")
    st = os.stat(path(box, "f"))
    assert error == 0 and content(box, "f") == b"2" and not reply.results[0].in_place
    assert (st.st_uid, st.st_gid, st.st_mode) == (1234, 2345, 0o100640)
    os.mkdir(path(box, "d"))
    os.chown(path(box, "d"), 0, 77)
    os.chmod(path(box, "d"), 0o2755)
    assert box.do("save", "d/new", b"x")[0] == 0
    assert os.stat(path(box, "d/new")).st_gid == 77


def test_save_of_linked_file(box):
    write(box, "f", b"1")
    os.link(path(box, "f"), path(box, "g"))
    ino = os.stat(path(box, "f")).st_ino
    error, reply = box.do("save", "f", b"second")
    assert error == 0 and reply.results[0].in_place
    assert content(box, "g") == b"second" and os.stat(path(box, "f")).st_ino == ino
    assert leftovers(box) == []


def test_save_in_place(box):
    write(box, "f", b"a longer one")
    os.chmod(path(box, "f"), 0o600)
    ino = os.stat(path(box, "f")).st_ino
    error, reply = box.do("save", "f", b"short", mode="640", mtime=10**9, flags=IN_PLACE)
    st = os.stat(path(box, "f"))
    assert error == 0 and reply.results[0].in_place and content(box, "f") == b"short"
    assert (st.st_ino, st.st_mode, st.st_mtime_ns) == (ino, 0o100640, 10**9)
    assert box.do("save", "new", b"x", flags=IN_PLACE)[0] == 0
    assert content(box, "new") == b"x"


def test_save_over_other_kinds(box):
    os.mkdir(path(box, "d"))
    assert box.do("save", "d", b"x")[0] == errno.EISDIR
    write(box, "target", b"t")
    os.symlink("target", path(box, "l"))
    os.symlink("d", path(box, "ld"))
    os.mkfifo(path(box, "p"))
    for name in ("l", "ld", "p"):
        assert box.do("save", name, b"x")[0] == 0
        assert not os.path.islink(path(box, name)) and content(box, name) == b"x"
    assert content(box, "target") == b"t" and os.listdir(path(box, "d")) == []
    assert box.do("save", "no/x", b"x")[0] == errno.ENOENT
    assert box.do("save", "target/x", b"x")[0] == errno.ENOTDIR
    assert leftovers(box) == []


def test_save_excl(box):
    error, reply = box.do("save", "f", b"1", flags=EXCL)
    assert error == 0 and content(box, "f") == b"1"
    check(box, reply, "f", "")
    assert reply.paths[b"f"].attr.nlink == 1
    assert box.do("save", "f", b"2", flags=EXCL)[0] == errno.EEXIST
    assert content(box, "f") == b"1" and leftovers(box) == []


def test_save_held(box):
    write(box, "f", b"old")
    error, reply = box.do("save", "f", b"new", held=".sbxfs/held/x")
    assert error == 0 and reply.results[0].set_aside
    assert (content(box, "f"), content(box, ".sbxfs/held/x")) == (b"new", b"old")
    assert box.do("save", "fresh", b"new", held=".sbxfs/held/y")[1].results[0].set_aside is False


def test_save_staged(box):
    data = random.Random(4).randbytes(3_000_000)
    write(box, ".sbxfs/stage/s1", data)
    os.chmod(path(box, ".sbxfs/stage/s1"), 0o600)
    error, reply = box.do("save", "f", stage=(".sbxfs/stage/s1", len(data)))
    assert error == 0 and content(box, "f") == data
    assert reply.paths[b"f"].attr.mode == 0o100644 and leftovers(box) == []
    assert b".sbxfs/stage/s1" not in reply.paths
    write(box, ".sbxfs/stage/s2", data[:-1])
    assert box.do("save", "f", stage=(".sbxfs/stage/s2", len(data)))[0] == errno.EIO
    assert content(box, "f") == data
    assert box.do("save", "f", stage=(".sbxfs/stage/no", 5))[0] == errno.ENOENT
    os.link(path(box, "f"), path(box, "g"))
    write(box, ".sbxfs/stage/s3", b"three")
    error, reply = box.do("save", "f", stage=(".sbxfs/stage/s3", 5), mode="700")
    assert error == 0 and reply.results[0].in_place and content(box, "g") == b"three"
    assert os.listdir(path(box, ".sbxfs/stage")) == [b"s2"]


def test_save_is_whole_for_readers(box):
    """A reader of the name sees one of the two contents, never a part."""
    versions = (b"a" * 50_000, b"b" * 70_000)
    write(box, "f", versions[0])
    stop, bad, seen_of = threading.Event(), [], dict.fromkeys(versions, 0)

    def read():
        while not stop.is_set():
            data = content(box, "f")
            if data in versions:
                seen_of[data] += 1
            else:
                bad.append(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(20):
        assert box.do("save", "f", versions[(i + 1) % 2])[0] == 0
    stop.set()
    reader.join()
    assert not bad
    assert min(seen_of.values()) > 20


def test_create_write_and_set(box):
    """All that belongs to a new file, in one request."""
    request = box.apply()
    request.mkdir("d", "755")
    request.save("d/f", b"#!/bin/sh\n", mode="755", mtime=10**9, flags=AND)
    request.chmod("d/f", "500", flags=AND)
    reply = request.send()
    assert reply.errors == [0, 0, 0]
    check(box, reply, "d", "d/f", "")
    assert reply.paths[b"d/f"].attr.mode == 0o100500


class Model:
    def __init__(self, data):
        self.data = bytearray(data)

    def write(self, offset, data):
        self.data.extend(bytes(max(0, offset + len(data) - len(self.data))))
        self.data[offset:offset + len(data)] = data

    def truncate(self, size):
        self.data = self.data[:size] + bytes(max(0, size - len(self.data)))


@pytest.mark.parametrize("seed", range(4))
def test_patch_against_a_model(box, seed):
    chance = random.Random(seed)
    start = chance.randbytes(20_000)
    write(box, "f", start)
    os.link(path(box, "f"), path(box, "same"))
    stage = chance.randbytes(30_000)
    write(box, ".sbxfs/stage/s", stage)
    model, pieces = Model(start), []
    for _ in range(chance.randrange(1, 12)):
        kind = chance.choice(("write", "write", "write", "append", "truncate"))
        offset = chance.randrange(30_000)
        length = chance.choice((1, 10, 4096, 5000, 9999))
        data = chance.randbytes(length) if chance.random() < 0.5 else b"text\n" * (length // 5 + 1)
        what = data
        if chance.random() < 0.3:
            at = chance.randrange(20_000)
            data = stage[at:at + length]
            what = (".sbxfs/stage/s", at, length)
        if kind == "write":
            model.write(offset, data)
        elif kind == "append":
            model.write(len(model.data), data)
        else:
            model.truncate(offset)
            what = b""
        pieces.append((kind, offset, what))
    request = box.apply()
    request.patch("f", *pieces)
    request.unlink(".sbxfs/stage/s")
    reply = request.send()
    assert reply.errors == [0, 0], reply.results
    assert content(box, "f") == bytes(model.data)
    assert content(box, "same") == bytes(model.data)
    check(box, reply, "f")
    assert leftovers(box) == []


def test_patch_refusals(box):
    write(box, "f", b"123")
    os.symlink("f", path(box, "l"))
    os.mkdir(path(box, "d"))
    os.mkfifo(path(box, "p"))
    for name, why in (("l", errno.ELOOP), ("d", errno.EISDIR), ("p", errno.EINVAL),
                      ("no", errno.ENOENT), ("f/x", errno.ENOTDIR)):
        for kind in ("write", "append"):
            request = box.apply()
            request.patch(name, (kind, 1, b"x"))
            assert request.send().errors == [why]
    assert content(box, "f") == b"123" and not os.path.exists(path(box, "no"))
    request = box.apply()
    request.patch("f", ("write", 0, (".sbxfs/stage/no", 0, 3)))
    assert request.send().errors == [errno.ENOENT]


def test_far_offsets(box):
    """Past 2 and 4 GiB, on a sparse file."""
    with open(path(box, "f"), "wb") as file:
        file.truncate(6 << 30)
    places = [(2 << 30) - 3, (4 << 30) - 2, (5 << 30) + 123, (6 << 30) - 1]
    request = box.apply()
    request.patch("f", *[("write", at, b"here!") for at in places])
    reply = request.send()
    assert reply.errors == [0]
    assert reply.paths[b"f"].attr.size == (6 << 30) + 4
    assert reply.paths[b"f"].attr.blocks < 1000
    items = box.pack(*[("f", at - 2, 9) for at in places])
    for item in items:
        assert item.stable and item.data[2:7] == b"here!"


def test_appends_of_two(box):
    """Lines appended through the program and by a process that holds the file open."""
    write(box, "log")
    process = subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo there-$i; "
                                "i=$((i+1)); done >>\"$1\"", "sh", path(box, "log")])
    ours = [b"here-%d\n" % i for i in range(30)]
    for i, line in enumerate(ours):
        request = box.apply()
        request.patch("log", ("append", 0, line), ("append", 0, line.upper()))
        if i % 3 == 0:
            request.patch("log", ("append", 0, b"\0" * 9 + line))
        assert set(request.send().errors) == {0}
    assert process.wait() == 0
    data = content(box, "log").replace(b"\0", b"")
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert [x for x in lines if x.startswith(b"there")] == [b"there-%d" % i for i in range(2000)]
    want = []
    for i, line in enumerate(ours):
        want += [line, line.upper()] + ([line] if i % 3 == 0 else [])
    assert [x + b"\n" for x in lines if not x.startswith(b"there")] == want


def test_big_append_is_one_write(box):
    data = random.Random(5).randbytes(700_000)
    write(box, "log", b"x")
    request = box.apply()
    request.patch("log", ("append", 0, data))
    assert request.send().errors == [0]
    assert content(box, "log") == b"x" + data


def test_copy(box):
    data = random.Random(6).randbytes(1_000_003)
    write(box, "a", data)
    os.chmod(path(box, "a"), 0o750)
    write(box, "b", b"0123456789")
    ino = os.stat(path(box, "b")).st_ino
    assert box.do("copy", "a", 0, "b", 0, "whole")[0] == 0
    assert content(box, "b") == data and os.stat(path(box, "b")).st_ino == ino
    error, reply = box.do("copy", "a", 0, "new", 0, "whole")
    assert error == 0 and content(box, "new") == data
    check(box, reply, "a", "new", "")
    model = Model(data)
    for source, target, length in ((5, 7, 100), (4096, 8192, 70_000), (999_999, 1_000_100, 50),
                                   (2_000_000, 0, 10)):
        error, reply = box.do("copy", "a", source, "b", target, length)
        assert error == 0
        piece = data[source:source + length]
        if piece:
            model.write(target, piece)
        assert content(box, "b") == bytes(model.data)
    for source, target, length in ((0, 5, 6), (5, 0, 6), (0, 0, 1), (0, 0, "whole")):
        with pytest.raises(DriverError) as caught:
            box.apply().copy("b", source, "b", target, length)
        assert caught.value.errno == errno.EINVAL
    assert box.do("copy", "b", 0, "b", 5000, 5000)[0] == 0
    assert content(box, "b")[5000:10_000] == bytes(model.data)[:5000]
    os.mkdir(path(box, "d"))
    assert box.do("copy", "no", 0, "b", 0, 5)[0] == errno.ENOENT
    assert box.do("copy", "a", 0, "no", 0, 5)[0] == errno.ENOENT
    assert box.do("copy", "d", 0, "b", 0, 5)[0] == errno.EISDIR
    assert box.do("copy", "a", 0, "d", 0, "whole")[0] == errno.EISDIR


def test_hundred_saves(box):
    request = box.apply()
    for i in range(100):
        request.save(f"f{i}", b"content %d\n" % i * 10)
    reply = request.send()
    assert set(reply.errors) == {0}
    for i in range(100):
        assert content(box, f"f{i}") == b"content %d\n" % i * 10
    check(box, reply, *[f"f{i}" for i in range(100)], "")


def test_save_exactly_once(box):
    request = box.apply()
    request.patch("f", ("append", 0, b"x"))
    write(box, "f", b"")
    request.send()
    assert request.send().repeated and request.send().repeated
    assert content(box, "f") == b"x"


def test_content_that_does_not_fit(box):
    box.limits(command=100 * 1024)
    with pytest.raises(DriverError) as caught:
        box.apply().save("f", random.Random(7).randbytes(90_000))
    assert caught.value.errno == errno.E2BIG


def test_full_disk(box):
    """ENOSPC is told, the old content stays, and names can still be removed."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.mkdir(path(box, "disk"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=40", "tmpfs",
                              path(box, "disk")], check=False)
    if mounted.returncode != 0:
        pytest.skip("no mounts here")
    try:
        full = type(box)(box.process.args[0], box.process.args[1], box.root + "/disk")
        full.ask("tools", box.tools)
        try:
            assert full.do("save", "f", b"old" * 100)[0] == 0
            before = os.stat(path(box, "disk/f")).st_ino
            for data in (random.Random(8).randbytes(70_000), b"text" * 17_000):
                assert full.do("save", "f", data)[0] == errno.ENOSPC
                assert content(box, "disk/f") == b"old" * 100
                assert os.stat(path(box, "disk/f")).st_ino == before
            request = full.apply()
            request.patch("f", ("write", 0, random.Random(8).randbytes(70_000)))
            assert request.send().errors == [errno.ENOSPC]
            write(box, "disk/fill", b"")
            with open(path(box, "disk/fill"), "wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 4096):
                        pass
                except OSError:
                    pass
            assert full.do("unlink", "fill")[0] == 0
        finally:
            full.close()
    finally:
        subprocess.run(["umount", path(box, "disk")], check=True)
