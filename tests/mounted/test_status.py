"""`status` and its like while their numbers grow: never cut, never mixed (kernel.md: fstat)."""

import os
import subprocess
import threading

import pytest

from sbxtest.timing import scale

# As often as it takes to be sure, where time is no object.
ROUNDS = 10000 if os.environ.get("SBX_SLOW") == "1" else 400

NODE = """
const fs = require('fs');
const [path, rounds] = [process.argv[1], Number(process.argv[2])];
for (let i = 0; i < rounds; i++) {
    const text = fs.readFileSync(path, 'utf8');
    if (!/^name: dev1\\n/.test(text) || !/\\nnote:[^\\n]*\\n$/.test(text))
        throw new Error(JSON.stringify(text));
}
"""


def whole(text: str):
    """Every key once, in order, to the end of the last line."""
    lines = text.split("\n")
    assert lines[-1] == "", text
    keys = [line.partition(":")[0] for line in lines[:-1]]
    assert keys == ["name", "id", "root", "state", "seen", "capabilities", "missing",
                    "pending_writes", "verb", "progress", "last", "snapshot", "thaw",
                    "note"], text


@pytest.fixture
def growing(start_sbxd, start_mount):
    """A session whose status never stays the same: unsent bytes and verbs."""
    mount = start_mount(start_sbxd().url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    ended = threading.Event()

    def grow():
        length = 1
        with open(mount / "dev1/fs/growing", "wb", buffering=0) as file:
            while not ended.is_set():
                file.write(b"x" * length)
                length = length % 5000 + 7
        (mount / "dev1/fs/growing").unlink()

    def turn():
        while not ended.is_set():
            (mount / "dev1/control").write_text("refresh\n")
            ended.wait(0.01)

    threads = [threading.Thread(target=grow), threading.Thread(target=turn)]
    for thread in threads:
        thread.start()
    yield mount / "dev1/status"
    ended.set()
    for thread in threads:
        thread.join()


def test_read_text(growing):
    seen = set()
    for _ in range(ROUNDS):
        text = growing.read_text()
        whole(text)
        seen.add(text)
    assert len(seen) > ROUNDS / 20


def test_stat_then_read(growing):
    for _ in range(ROUNDS):
        fd = os.open(growing, os.O_RDONLY)
        try:
            text = os.read(fd, os.fstat(fd).st_size)
            assert os.read(fd, 4096) == b""
        finally:
            os.close(fd)
        whole(text.decode())


def test_read_in_pieces(growing):
    """One rendering an open file, also when it is read byte by byte."""
    for _ in range(max(ROUNDS // 40, 10)):
        with open(growing, "rb", buffering=0) as file:
            text = b""
            while piece := file.read(17):
                text += piece
        whole(text.decode())


def test_node(growing):
    subprocess.run(["node", "-e", NODE, growing, str(ROUNDS)], check=True, timeout=scale(120))


def test_cat(growing):
    count = max(ROUNDS // 10, 40)
    done = subprocess.run(["sh", "-ec", "i=0; while [ $i -lt $2 ]; do i=$((i + 1)); cat \"$1\"; "
                           "printf '\\0'; done", "sh", growing, str(count)], check=True,
                          capture_output=True, text=True, timeout=scale(120))
    texts = done.stdout.split("\0")[:-1]
    assert len(texts) == count
    for text in texts:
        whole(text)


def test_several_readers_at_once(growing):
    """Each has its own rendering, and its own size."""
    wrong = []

    def read():
        try:
            for _ in range(ROUNDS // 4):
                whole(growing.read_text())
        except AssertionError as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong
