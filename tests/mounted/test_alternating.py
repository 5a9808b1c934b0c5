"""A writer in the sandbox that leaves nothing to be told by: one size, one mtime, every 5 ms.

A content that is kept for a version that it is not of shows when the writer has stopped: ttl later,
and from then on, every open must read the last one.
"""

import os
import random
import subprocess
import sys
import time

import pytest

from sbxtest.timing import scale

SLOW = os.environ.get("SBX_SLOW") == "1"
TTL_S = 1.0
LIMIT_S = TTL_S + 5 * scale(0.05)
MTIME_NS = 1_600_000_000 * 10**9

# Alternates two contents of argv[2] bytes in the file argv[1] until its input ends; then says how
# often, and which was the last one.
WRITER = """
import os, select, sys, time
path, size, how, mtime_ns = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
count = 0
print("ready", flush=True)
while not select.select([0], [], [], 0.005)[0]:
    count += 1
    content = (b"A", b"B")[count % 2] * size
    target = path if how == "write" else path + ".new"
    fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, content, 0)
    os.utime(fd, ns=(mtime_ns, mtime_ns))
    os.close(fd)
    if how == "rename":
        os.rename(target, path)
print(count, "AB"[count % 2])
"""


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    """With the tools of each kind."""
    return start_place(request.param)


class Writer:
    """Runs while the block does; then count and last say what it did."""

    def __init__(self, path, size, how):
        self._words = [sys.executable, "-c", WRITER, str(path), str(size), how,
                       str(MTIME_NS)]
        self.count = self.last = None

    def __enter__(self):
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        output = self._process.communicate("stop", timeout=scale(20))[0].split()
        self.count, self.last = int(output[0]), output[1]


# In place only a small content is written whole: of longer ones the sandbox itself sees parts.
@pytest.mark.long(9)
@pytest.mark.parametrize("how, size", [
    ("write", 64), ("rename", 3000),
    pytest.param("rename", 100_000, marks=pytest.mark.slow)])
def test_alternating_contents(place, how, size):
    rounds, opens = (20, 500) if SLOW else (3, 500)
    whole = {b"A" * size: "A", b"B" * size: "B"}
    rand = random.Random(3)
    wrong, seen, writes = [], {"A": 0, "B": 0}, 0
    (place.root / "f").write_bytes(b"A" * size)

    def read():
        with open(place.fs / "f", "rb", buffering=0) as file:
            data = file.read(size + 1)
        if data in whole:
            seen[whole[data]] += 1
        else:
            wrong.append(f"{len(data)} bytes, {data.count(b'A')} A, {data.count(b'B')} B")
        return whole.get(data)

    for _ in range(rounds):
        with Writer(place.root / "f", size, how) as writer:
            for _ in range(opens):
                read()
                time.sleep(rand.uniform(0, 0.004))
        stopped = time.monotonic()
        writes += writer.count
        late = 0
        while time.monotonic() < stopped + LIMIT_S + 0.3:
            begun = time.monotonic()
            found = read()
            if begun > stopped + LIMIT_S:
                late += 1
                if found != writer.last:
                    wrong.append(f"{found} after the end, not {writer.last}, "
                                 f"{begun - stopped:.2f} s late")
            time.sleep(0.01)
        assert late > 5
    print(f"{writes} writes, {seen}")
    assert not wrong, "\n".join(wrong)
    # A look a second: a few of them may all meet the same one.
    assert sum(seen.values()) >= rounds * opens and (min(seen.values()) > 0 or not SLOW)
    assert writes > 100 * rounds


def test_others_open_at_once_what_has_changed(place):
    """Whoever's answer comes first: nobody reads pages of the version before."""
    (place.root / "f").write_bytes(b"%064d" % 0)
    wrong = []
    with subprocess.Popen(["sh", "-c", "while [ ! -e \"$ENDS\" ]; do cat f; done >/dev/null"],
                          cwd=place.fs, env=place.env(ENDS=str(place.work / "ends"))) as other:
        for turn in range(1, 1000 if SLOW else 150):
            fd = os.open(place.root / "f", os.O_WRONLY)
            os.pwrite(fd, b"%064d" % turn, 0)
            os.utime(fd, ns=(MTIME_NS, MTIME_NS))
            os.close(fd)
            place.fresh()
            found = (place.fs / "f").read_bytes()
            if found != b"%064d" % turn:
                wrong.append((turn, found))
        (place.work / "ends").touch()
        assert other.wait(scale(20)) == 0
    assert not wrong, wrong
