"""Following logs: every byte once, whole characters, one poll for all readers."""

import hashlib
import os
import pty
import signal
import subprocess
import threading
import time

import pytest

from jobtools import BACKENDS, Reader, ended, programs, running, start, status, workspace
from sbxtest.timing import scale, wait_for


def polls(records):
    return [record for record in records if record.program == "sbxfs-jobpoll"]


class Sizes(threading.Thread):
    """How big a file was when."""

    def __init__(self, path):
        super().__init__()
        self.path, self.seen, self.ends = path, [], False
        self.start()

    def run(self):
        while not self.ends:
            try:
                self.seen.append((os.stat(self.path).st_size, time.monotonic()))
            except FileNotFoundError:
                pass
            time.sleep(0.02)

    def written(self, size):
        """When the file was seen to be that big."""
        return next((when for found, when in self.seen if found >= size), None)


NODE = """
const fs = require("fs");
const fd = fs.openSync(process.argv[1], "r");
const buffer = Buffer.alloc(65536);
setInterval(() => {
    let n;
    while ((n = fs.readSync(fd, buffer)) > 0)
        fs.writeSync(1, buffer.subarray(0, n));
}, 100);
"""
PYTHON = """
import sys, time
with open(sys.argv[1], "rb") as file:
    while True:
        data = file.read()
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            time.sleep(.1)
"""
FOLLOWERS = {
    "tail-f": ["tail", "-c", "+1", "-f"],
    "tail-F": ["tail", "-c", "+1", "-F"],
    "python": ["python3", "-c", PYTHON],
    "node": ["node", "-e", NODE],
    "sbxfs-logs": None,
}


# How late lines are is told by the one that is alone on its machine.
@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend, limit", [
    pytest.param(name, 2 if name == "host" else 5,
                 marks=[pytest.mark.serial] if name == "host" else []) for name in BACKENDS])
def test_twenty_lines_a_second(make, backend, limit, seconds):
    """Every line once, in order, without NUL, less than 2 s late; few bytes for it on the wire."""
    server, _, session = make(backend)
    count = 20 * seconds
    text = "lorem ipsum dolor sit amet " * 3
    before = len(server.log())
    job = session / "jobs" / start(
        session, f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo \"$i {text}\"; "
                 "sleep 0.05; done")
    sizes = Sizes(workspace(server, session) / ".sbxfs/jobs" / job.name / "output.log")
    reader = Reader([*FOLLOWERS["tail-f"], job / "output.log"])
    begun = time.monotonic()
    try:
        assert ended(job, seconds * 4 + 20)["exit"] == "0"
        expected = "".join(f"{i} {text}\n" for i in range(1, count + 1)).encode()
        wait_for(lambda: len(reader.data) >= len(expected), 5)
        took = time.monotonic() - begun
    finally:
        reader.stop()
        sizes.ends = True
        sizes.join()
    assert reader.data == expected
    late = [when - sizes.written(size) for size, when in reader.pieces if sizes.written(size)]
    assert len(late) > seconds / 2
    assert max(late) < scale(limit)
    asked = polls(server.log(before))
    wire = sum(record.bytes_in + record.bytes_out for record in asked)
    assert wire <= 1.6 * len(expected) + 1024 * len(asked), (wire, len(expected), len(asked))
    # 250 ms while bytes come, and nothing after the end.
    assert len(asked) <= took * 4 + 4, took
    after = len(server.log())
    time.sleep(1.5)
    (job / "output.log").read_bytes()
    status(job)
    assert polls(server.log(after)) == []


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_followers(make, follower):
    from sbxtest import sbxfs_path
    _, _, session = make()
    job = session / "jobs" / start(session, "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep .25; "
                                            "done; printf end")
    words = FOLLOWERS[follower] or [sbxfs_path(), "logs", "-f"]
    reader = Reader([*words, job / "output.log" if FOLLOWERS[follower] else job])
    expected = "".join(f"line {i}\n" for i in range(1, 9)).encode() + b"end"
    try:
        wait_for(lambda: reader.data.startswith(b"line 1\n"), 4)
        assert len(reader.data) < len(expected)
        wait_for(lambda: reader.data == expected, 10)
        if follower == "sbxfs-logs":
            assert reader.process.wait(scale(5)) == 0
    finally:
        reader.stop()
    assert reader.data == expected


def test_less_follows(make):
    _, _, session = make()
    job = session / "jobs" / start(session, "for i in 1 2 3 4; do echo line $i; sleep .5; done")
    parent, child = pty.openpty()
    process = subprocess.Popen(["less", "+F", job / "output.log"], stdin=child, stdout=child,
                               stderr=child, env={**os.environ, "TERM": "xterm", "LESS": ""})
    os.close(child)
    os.set_blocking(parent, False)
    shown = b""

    def shows():
        nonlocal shown
        try:
            shown += os.read(parent, 65536)
        except BlockingIOError:
            pass
        return b"line 4" in shown
    try:
        wait_for(shows, 15)
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    lines = [shown.index(f"line {i}".encode()) for i in range(1, 5)]
    assert lines == sorted(lines) and b"^@" not in shown


def test_many_readers_share_one_poll(make):
    server, _, session = make()
    jobs = [session / "jobs" / start(session, "for i in $(seq 20); do echo $i; sleep .25; done")
            for _ in range(20)]
    before, begun = len(server.log()), time.monotonic()
    readers = [Reader([*FOLLOWERS["tail-f"], job / "output.log"]) for job in jobs for _ in range(3)]
    expected = "".join(f"{i}\n" for i in range(1, 21)).encode()
    try:
        wait_for(lambda: all(reader.data == expected for reader in readers), 30)
    finally:
        for reader in readers:
            reader.stop()
    took = time.monotonic() - begun
    asked = polls(server.log(before))
    # Each interval one, and at the beginning at once for a new reader.
    assert len(asked) <= took * 4 + 20 + 5, (len(asked), took)
    # Each byte once: armoured, with what each poll costs.
    assert sum(record.bytes_out for record in asked) < \
        20 * len(expected) * 1.6 + sum(20 * 60 + 400 for _ in asked)


@pytest.mark.serial
def test_two_hundred_wait(make):
    server, _, session = make()
    (session / "fs/d").mkdir()
    for i in range(50):
        (session / f"fs/d/{i}").touch()
    job = session / "jobs" / start(session, "sleep 60")
    running(job)

    def list_time():
        begun = time.monotonic()
        subprocess.run(["ls", "-l", session / "fs/d", session], check=True, capture_output=True)
        return time.monotonic() - begun
    alone = min(list_time() for _ in range(5))
    readers = [subprocess.Popen(["cat", job / "wait"], stdout=subprocess.PIPE, text=True)
               for _ in range(200)]
    time.sleep(0.5)
    before, begun = len(server.log()), time.monotonic()
    time.sleep(2)
    assert len(polls(server.log(before))) <= (time.monotonic() - begun) * 2 + 2
    assert all(reader.poll() is None for reader in readers)
    assert min(list_time() for _ in range(5)) < alone * 3 + scale(0.05)
    for reader in readers[:100]:
        reader.send_signal(signal.SIGINT)
    limit = time.monotonic() + scale(3)
    for reader in readers[:100]:
        assert reader.wait(max(0.01, limit - time.monotonic())) != 0
    (job / "control").write_text("cancel\n")
    for reader in readers[100:]:
        out, _ = reader.communicate(timeout=scale(20))
        assert out.startswith("state: cancelled\n") and reader.returncode == 0
    for reader in readers[:100]:
        reader.stdout.close()


@pytest.mark.long(22)
def test_nobody_reads_nobody_asks(make):
    server, _, session = make()
    job = session / "jobs" / start(session, "sleep 60")
    running(job)
    time.sleep(16)
    before = len(server.log())
    time.sleep(6)
    assert server.log(before) == []
    (job / "control").write_text("cancel\n")
    ended(job)


@pytest.mark.long(15)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_big_log_is_exact(make, backend):
    server, _, session = make(backend)
    job = session / "jobs" / start(session, "head -c 52428800 /dev/urandom")
    theirs = workspace(server, session) / ".sbxfs/jobs" / job.name / "output.log"
    with subprocess.Popen(["tail", "-c", "+1", "-f", job / "output.log"],
                          stdout=subprocess.PIPE) as follower:
        follower_hash, left = hashlib.sha256(), 52428800
        while left:
            data = follower.stdout.read(min(left, 1 << 20))
            assert data
            follower_hash.update(data)
            left -= len(data)
        follower.terminate()
    assert ended(job, 60)["bytes"] == "52428800"
    expected = hashlib.sha256(theirs.read_bytes()).hexdigest()
    assert follower_hash.hexdigest() == expected
    assert hashlib.sha256((job / "output.log").read_bytes()).hexdigest() == expected
    got = subprocess.run(["sha256sum", job / "output.log"], check=True, capture_output=True,
                         text=True).stdout.split()[0]
    assert got == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_characters_are_whole(make, backend):
    """`é` and 4-byte characters, byte by byte with pauses: no decoder sees a part of one."""
    _, _, session = make(backend)
    job = session / "jobs" / start(
        session, "i=0; while [ $i -lt 5 ]; do i=$((i+1)); printf '\\303'; sleep .4; "
                 "printf '\\251'; sleep .2; for b in 360 237 230 200; do printf \"\\\\$b\"; "
                 "sleep .3; done; done")
    seen, text = b"", ""
    with open(job / "output.log", "rb", buffering=0) as file:
        while True:
            final = status(job)["state"] == "exited"
            size = os.fstat(file.fileno()).st_size
            piece = file.read(65536)
            assert len(seen) + len(piece) >= size
            text += piece.decode("utf-8", "replace")
            seen += piece
            if final and not piece:
                break
            time.sleep(0.05)
    assert seen == ("é" + "\U0001f600").encode() * 5
    assert "�" not in text


def test_bytes_that_are_no_text_are_shown(make):
    _, _, session = make()
    job = session / "jobs" / start(session, "printf 'a\\303'; sleep 3; printf '\\377\\200b\\0c'")
    wait_for(lambda: (job / "output.log").read_bytes() == b"a", 3)
    ended(job)
    assert (job / "output.log").read_bytes() == b"a\xc3\xff\x80b\0c"


@pytest.mark.parametrize("backend", ["host", "overlay"])
def test_no_reader_sees_less_than_a_size(make, backend):
    """Read and stat at once while the log grows: never short of a size shown, never a NUL."""
    _, _, session = make(backend)
    job = session / "jobs" / start(
        session, "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo \"line $i of it\"; done; "
                 "sleep 1; while [ $i -lt 8000 ]; do i=$((i+1)); echo \"line $i of it\"; "
                 "[ $((i % 40)) != 0 ] || sleep .05; done")
    expected = "".join(f"line {i} of it\n" for i in range(1, 8001)).encode()
    wrong = []

    def look():
        with open(job / "output.log", "rb", buffering=0) as file:
            while True:
                final = (job / "exit").exists()
                size = max(os.fstat(file.fileno()).st_size, os.stat(job / "output.log").st_size)
                data = os.pread(file.fileno(), len(expected) + 1, 0)
                if len(data) < size or not expected.startswith(data):
                    wrong.append((size, len(data)))
                if final:
                    if data != expected:
                        wrong.append("end")
                    return
    workers = [threading.Thread(target=look) for _ in range(4)]
    for worker in workers:
        worker.start()
    script = """
        const fs = require("fs");
        for (;;) {
            const done = fs.existsSync(process.argv[1] + "/exit");
            const size = fs.statSync(process.argv[1] + "/output.log").size;
            const data = fs.readFileSync(process.argv[1] + "/output.log");
            if (data.length < size || data.includes(0))
                throw new Error(size + " " + data.length);
            if (done)
                break;
        }
    """
    subprocess.run(["node", "-e", script, job], check=True, timeout=scale(90))
    for worker in workers:
        worker.join()
    assert wrong == []


def test_mapped_log_of_an_ended_job(make):
    _, _, session = make()
    job = session / "jobs" / start(session, "echo needle in it")
    ended(job)
    script = "import mmap, sys; f = open(sys.argv[1], 'rb'); " \
             "print(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ).find(b'in'))"
    got = subprocess.run(["python3", "-c", script, job / "output.log"], check=True,
                         capture_output=True, text=True).stdout
    assert got == "7\n"


def test_following_costs_what_is_new(make):
    """A start is two requests beside the first probe; then one a poll."""
    server, _, session = make()
    ended(session / "jobs" / start(session, "true"))
    before = len(server.log())
    start(session, "echo x")
    # The leader's own request is logged when it ends, which nobody asks for here.
    wait_for(lambda: "sbxfs-jobrun" in programs(server.log(before)), 10)
    assert programs(server.log(before)) == {"sbxfs-jobrun": 1, "sbxfs-joblook": 1}
