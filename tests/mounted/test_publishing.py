"""When what a program wrote becomes the sandbox's (kernel.md: FLUSH is not close)."""

import mmap
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from sbxtest.timing import scale, wait_for

pytestmark = pytest.mark.core


@pytest.fixture
def mount(server, start_mount):
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/first").write_text("x")  # the sandbox's tools are known from here on
    return mount


@pytest.fixture
def fs(mount):
    return mount / "dev1/fs"


@pytest.fixture
def sandbox(server, mount):
    """The workspace as the sandbox sees it."""
    return server.session_dir(mount.status("dev1")["id"])


def requests(server):
    """All requests but those that revalidate what is known."""
    time.sleep(0.05)  # what is sent behind the writer's back counts too
    return [record for record in server.log()
            if record.program not in ("sbxfs-scan", "sbxfs-probe")]


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_reader_never_sees_an_empty_file(server, mount, fs, sandbox, shell):
    rounds = 300 if os.environ.get("SBX_SLOW") == "1" else 100
    (fs / "f").write_text("B\n")
    ended, seen = threading.Event(), set()

    def read():
        while not ended.is_set():
            try:
                seen.add((sandbox / "f").read_bytes())
            except FileNotFoundError:
                seen.add(None)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        before = len(requests(server))
        subprocess.run([shell, "-c", f"i=0; while [ $i -lt {rounds} ]; do echo B > f; "
                        "i=$((i + 1)); done"], cwd=fs, check=True)
    finally:
        ended.set()
        reader.join()
    assert seen == {b"B\n"}
    assert len(requests(server)) - before == rounds


def test_children_of_a_shell_do_not_publish(server, mount, fs, sandbox):
    """200 children write to one shell's output: each one's exit is a FLUSH."""
    before = len(requests(server))
    subprocess.run(["bash", "-c", "for i in $(seq 200); do /bin/echo $i; done > out"], cwd=fs,
                   check=True, timeout=scale(60))
    assert (sandbox / "out").read_text() == "".join(f"{i}\n" for i in range(1, 201))
    assert len(requests(server)) - before <= 2


def test_several_writers_of_one_open_file(fs, sandbox):
    subprocess.run(["bash", "-c", "{ echo a; /bin/echo b; (echo c); } > out"], cwd=fs, check=True)
    assert (sandbox / "out").read_text() == "a\nb\nc\n"


def test_fstat_before_close_shows_what_stays(server, fs, sandbox):
    """git puts what fstat said before close into its index."""
    before = len(requests(server))
    fd = os.open(fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, b"content\n")
    inside = os.fstat(fd)
    os.close(fd)
    used = len(requests(server)) - before
    after, real = os.stat(fs / "new"), os.stat(sandbox / "new")
    for name in ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_nlink"):
        assert getattr(inside, name) == getattr(after, name), name
    assert inside.st_mtime_ns == real.st_mtime_ns
    assert inside.st_ctime_ns == real.st_ctime_ns
    assert inside.st_ino & 0xffffffff == real.st_ino & 0xffffffff
    assert used == 2


def test_times_do_not_change_by_themselves(fs, sandbox):
    (fs / "f").write_text("one")
    found = os.stat(fs / "f")
    for _ in range(3):
        time.sleep(0.7)
        again = os.stat(fs / "f")
        assert (again.st_mtime_ns, again.st_ctime_ns, again.st_ino) == (
            found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    assert found.st_mtime_ns == os.stat(sandbox / "f").st_mtime_ns


def test_writes_through_a_mapping_after_close(fs, sandbox):
    (fs / "f").write_bytes(b"a" * 10000)
    fd = os.open(fs / "f", os.O_RDWR)
    mapping = mmap.mmap(fd, 10000)
    os.close(fd)
    mapping[5000:5005] = b"later"
    mapping.close()
    wanted = b"a" * 5000 + b"later" + b"a" * 4995
    wait_for(lambda: (sandbox / "f").read_bytes() == wanted, 10)
    assert (fs / "f").read_bytes() == wanted


def test_a_mapping_that_is_synced(fs, sandbox):
    (fs / "f").write_bytes(b"a" * 8192)
    with open(fs / "f", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
        mapping[0:4] = b"head"
        mapping.flush()
        os.fsync(file.fileno())
        assert (sandbox / "f").read_bytes() == b"head" + b"a" * 8188


def test_a_killed_writer_loses_nothing_that_it_wrote(server, fs, sandbox):
    script = ("import os, sys, time\n"
              "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
              "for part in range(64):\n"
              "    os.write(fd, b'x' * 65536)\n"
              "print(flush=True)\n"
              "time.sleep(60)\n")
    server.set_faults("put:*:delay=500", "exec:*:delay=200")
    process = subprocess.Popen([sys.executable, "-c", script, fs / "big"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait(scale(5))
    process.stdout.close()
    wait_for(lambda: (sandbox / "big").exists() and (sandbox / "big").stat().st_size == 64 << 16,
             15)
    server.set_faults()


def test_closing_when_nothing_was_written_sends_nothing(server, fs):
    (fs / "f").write_text("x")
    before = len(requests(server))
    subprocess.run(["bash", "-c", "for i in 1 2 3; do exec 3<>f; /bin/true; exec 3>&-; done"],
                   cwd=fs, check=True)
    assert len(requests(server)) == before


def test_touching_and_truncating_act_at_close(fs, sandbox):
    (fs / "f").write_text("content")
    subprocess.run(["bash", "-c", ": > f; : > new"], cwd=fs, check=True)
    wait_for(lambda: (sandbox / "f").read_bytes() == b"", 5)
    wait_for(lambda: (sandbox / "new").exists(), 5)


def test_owed_truncation_goes_before_another_look(server, mount, fs):
    """What is owed at RELEASE is waited for by any other request of the session."""
    (fs / "f").write_text("content")
    identity = mount.status("dev1")["id"]
    fd = os.open(fs / "f", os.O_WRONLY | os.O_TRUNC)
    os.close(fd)
    os.rename(fs / "f", fs / "g")
    with server.client() as client:
        assert client.get(identity, "g") == b""


def test_an_append_beside_a_publish_is_sent_too(start_place):
    """One whose publish began before it, and has not ended when its time has come."""
    place = start_place("gnu-host", ["ttl=60"])
    (place.fs / "log").write_bytes(b"")
    fd = os.open(place.fs / "log", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"first\n")
    begun = time.monotonic()
    time.sleep(1.5)
    place.server.set_faults("exec:*:delay=1200")
    asking = threading.Thread(target=lambda: os.stat(place.fs / "log"))
    asking.start()
    time.sleep(0.2)
    os.write(fd, b"second\n")
    assert time.monotonic() - begun < 2
    asking.join()
    place.server.set_faults()
    wait_for(lambda: (place.root / "log").read_bytes() == b"first\nsecond\n", 6)
    os.close(fd)


def test_appends_of_an_open_file_are_sent(fs, sandbox):
    with open(fs / "log", "a", buffering=1) as file:
        file.write("one\n")
        wait_for(lambda: (sandbox / "log").exists()
                 and (sandbox / "log").read_text() == "one\n", 8)
        file.write("two\n")
        wait_for(lambda: (sandbox / "log").read_text() == "one\ntwo\n", 8)


def unsent(place) -> int:
    """How many files have bytes that are not sent."""
    return int(re.search(r"^pending_writes: +(\d+)", place.mount.read("dev1/status"), re.M)[1])


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
@pytest.mark.parametrize("flags, data", [
    (os.O_APPEND, b"new\n"), (os.O_APPEND, b"0123456789abcdef" * 10000), (0, b"long enough")],
    ids=["append", "append-much", "write"])
def test_a_file_that_went_is_made_anew(start_place, kind, flags, data):
    """Known here, removed there: what was meant for it is no worse off than at a local disk."""
    place = start_place(kind)
    (place.root / "f").write_text("old\n")
    assert (place.fs / "f").read_text() == "old\n"
    time.sleep(1.1)
    os.stat(place.fs / "f")
    (place.root / "f").unlink()
    fd = os.open(place.fs / "f", os.O_CREAT | os.O_WRONLY | flags)
    os.write(fd, data)
    os.close(fd)
    assert (place.root / "f").read_bytes() == data
    assert (place.fs / "f").read_bytes() == data
    assert unsent(place) == 0
    assert set(os.listdir(place.root)) == {".sbxfs", "f"}
    assert os.listdir(place.root / ".sbxfs/stage") == []


def test_a_part_of_a_file_that_went_is_kept(start_place):
    """A part is no file: close says so, and the bytes stay until somebody removes the file here."""
    place = start_place("gnu-host")
    (place.root / "f").write_bytes(b"x" * 10000)
    assert len((place.fs / "f").read_bytes()) == 10000
    time.sleep(1.1)
    os.stat(place.fs / "f")
    (place.root / "f").unlink()
    fd = os.open(place.fs / "f", os.O_WRONLY)
    os.pwrite(fd, b"y", 5000)
    with pytest.raises(FileNotFoundError):
        os.close(fd)
    assert not (place.root / "f").exists()
    assert unsent(place) == 1
    (place.fs / "f").unlink()
    assert unsent(place) == 0


def test_fsync(fs, sandbox):
    with open(fs / "f", "wb") as file:
        file.write(b"durable")
        file.flush()
        os.fsync(file.fileno())
        assert (sandbox / "f").read_bytes() == b"durable"
        file.write(b" more")
    assert (sandbox / "f").read_bytes() == b"durable more"


def test_ctrl_c_during_a_slow_close(server, mount, fs, sandbox):
    """The program is let go, the bytes go on."""
    server.set_faults("exec:*:delay=4000")
    process = subprocess.Popen(["dash", "-c", "echo late > f"], cwd=fs,
                               stderr=subprocess.DEVNULL)
    wait_for(lambda: not re.match("0 files", mount.status("dev1")["pending_writes"]), 10)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait(scale(3))
    assert not (sandbox / "f").exists()
    wait_for(lambda: (sandbox / "f").exists() and (sandbox / "f").read_bytes() == b"late\n", 10)
    server.set_faults()
    wait_for(lambda: re.match("0 files", mount.status("dev1")["pending_writes"]), 5)


def test_a_file_that_nobody_may_write(start_place):
    """As at a local disk: who made it writes on, whatever its mode; nobody else opens it so."""
    place = start_place("gnu-host")
    fd = os.open(place.fs / "f", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444)
    os.write(fd, b"abc")
    os.fsync(fd)
    os.write(fd, b"def")
    os.pwrite(fd, b"X", 1)
    os.fsync(fd)
    os.ftruncate(fd, 5)
    os.close(fd)
    assert (place.root / "f").read_bytes() == b"aXcde"
    assert (place.root / "f").stat().st_mode & 0o777 == 0o444
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
        if os.geteuid() == 0:
            os.close(os.open(place.fs / "f", flags & ~os.O_TRUNC))
        else:
            with pytest.raises(PermissionError):
                os.open(place.fs / "f", flags)
    assert (place.fs / "f").read_bytes() == b"aXcde"
