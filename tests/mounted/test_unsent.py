"""Bytes that could not be sent: kept, shown, sent later, whoever was killed meanwhile."""

import errno
import os
import subprocess
import threading
import time

import pytest

from sbxtest.timing import scale, wait_for

MIB = 1 << 20


@pytest.fixture
def place(start_place):
    # With a long ttl nothing but the sending itself asks the server.
    place = start_place("gnu-host", ["timeout=3", "ttl=60"])
    os.listdir(place.fs)
    return place


def cut_off(place):
    place.server.set_faults("exec:*:status=500", "put:*:status=500")


def save(path, data: bytes, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    """The errno of close, 0 where it succeeded."""
    fd = os.open(path, flags, 0o644)
    try:
        os.write(fd, data)
    finally:
        try:
            os.close(fd)
            result = 0
        except OSError as error:
            result = error.errno
    return result


def test_a_writer_killed_in_a_slow_close(place):
    place.server.set_faults("put:*:delay=2500")
    data = os.urandom(3 * MIB)
    (place.work / "data").write_bytes(data)
    writer = subprocess.Popen(["cp", place.work / "data", place.fs / "f"])
    wait_for(lambda: place.mount.pending()[1] == len(data), 10)
    time.sleep(0.3)
    assert writer.poll() is None
    writer.kill()
    writer.wait(scale(3))
    assert (place.root / "f").read_bytes() == b""
    # cp has made it, empty, when it opened it.
    wait_for(lambda: (place.root / "f").read_bytes() == data, 15)
    wait_for(lambda: place.mount.pending() == (0, 0), 5)


@pytest.mark.core
def test_kill_after_failed_closes(place):
    """A new file, a save, a change in place, an append: all of it arrives after a remount."""
    for name in ("save", "change", "append"):
        (place.fs / name).write_bytes(b"0123456789")
    os.chmod(place.fs / "save", 0o755)
    cut_off(place)
    assert save(place.fs / "new \n name", b"new") == errno.EIO
    assert save(place.fs / "save", b"saved") == errno.EIO
    assert save(place.fs / "change", b"xyz", os.O_WRONLY) == errno.EIO
    assert save(place.fs / "append", b"more", os.O_WRONLY | os.O_APPEND) == errno.EIO
    assert place.mount.pending()[0] == 4
    # Here they are as they were written.
    assert (place.fs / "save").read_bytes() == b"saved"
    assert (place.fs / "append").read_bytes() == b"0123456789more"
    place.mount.kill()
    assert (place.root / "save").read_bytes() == b"0123456789"
    place.mount.start()
    assert place.mount.pending()[0] == 4
    assert place.mount.status()["pending_writes"].split()[0] == "4"
    place.server.set_faults()
    os.listdir(place.fs)
    wait_for(lambda: place.mount.pending() == (0, 0), 15)
    assert (place.root / "new \n name").read_bytes() == b"new"
    assert (place.root / "save").read_bytes() == b"saved"
    assert (place.root / "change").read_bytes() == b"xyz3456789"
    assert (place.root / "append").read_bytes() == b"0123456789more"
    assert os.stat(place.root / "save").st_mode & 0o777 == 0o755
    spools = [path for path in place.mount.state_dir.rglob("*") if "spool" in path.parts
              and path.is_file()]
    assert spools == []


def test_kill_of_a_mount_with_a_file_open(place):
    """From the first write on, bytes outlive the mount: 5 MiB, never closed, never sent."""
    fd = os.open(place.fs / "f", os.O_WRONLY | os.O_CREAT)
    data = os.urandom(5 * MIB)
    os.write(fd, data)
    # What was begun early does not count: the sandbox shows no half of it.
    assert not (place.root / "f").exists()
    place.mount.kill()
    with pytest.raises(OSError):
        os.close(fd)
    place.mount.start()
    assert place.mount.pending() == (1, 5 * MIB)
    os.listdir(place.fs)
    wait_for(lambda: (place.root / "f").exists(), 15)
    assert (place.root / "f").read_bytes() == data


def test_sent_without_anybody_asking(place):
    """By themselves, also by a mount on which nobody touched the session."""
    (place.fs / "f").write_bytes(b"old")
    cut_off(place)
    assert save(place.fs / "f", b"new") == errno.EIO
    place.server.set_faults()
    wait_for(lambda: (place.root / "f").read_bytes() == b"new", 10)
    wait_for(lambda: place.mount.pending() == (0, 0), 5)
    cut_off(place)
    assert save(place.fs / "f", b"newer") == errno.EIO
    place.mount.kill()
    place.server.set_faults()
    place.mount.start()
    wait_for(lambda: (place.root / "f").read_bytes() == b"newer", 10)


def test_sync_says_how_it_went(place):
    cut_off(place)
    assert save(place.fs / "f", b"kept") == errno.EIO
    fd = os.open(place.mount / "dev1/control", os.O_WRONLY)
    with pytest.raises(OSError):
        os.write(fd, b"sync\n")
    os.close(fd)
    assert place.mount.status("dev1")["last"].startswith("sync: E")
    place.server.set_faults()
    (place.mount / "dev1/control").write_text("sync\n")
    assert place.mount.pending() == (0, 0)
    assert (place.root / "f").read_bytes() == b"kept"


def test_a_session_with_unsent_bytes_is_kept(place):
    cut_off(place)
    assert save(place.fs / "f", b"kept") == errno.EIO
    with pytest.raises(OSError) as caught:
        (place.mount / "dev1").rmdir()
    assert caught.value.errno in (errno.EBUSY, errno.ENOTEMPTY)
    fd = os.open(place.mount / "control", os.O_WRONLY)
    with pytest.raises(OSError) as caught:
        os.write(fd, b"detach dev1\n")
    os.close(fd)
    assert caught.value.errno == errno.EBUSY
    assert (place.fs / "f").read_bytes() == b"kept"


def test_written_again_and_again(place):
    """The last save counts, also when a mount died between them."""
    (place.fs / "f").write_bytes(b"0")
    cut_off(place)
    for text in (b"first", b"second", b"third and last"):
        assert save(place.fs / "f", text) == errno.EIO
        place.mount.kill()
        place.mount.start()
        assert (place.fs / "f").read_bytes() == text
    place.server.set_faults()
    (place.mount / "dev1/control").write_text("sync\n")
    assert (place.root / "f").read_bytes() == b"third and last"


def test_removed_before_it_was_sent(place):
    (place.fs / "f").write_bytes(b"old")
    cut_off(place)
    assert save(place.fs / "f", b"new") == errno.EIO
    place.server.set_faults("put:*:status=500")
    os.unlink(place.fs / "f")
    place.server.set_faults()
    time.sleep(1.5)
    assert not (place.root / "f").exists()
    assert place.mount.pending() == (0, 0)


class Meanwhile:
    """with Meanwhile(place, change): …: what happens while the exec of a change is on its way."""

    def __init__(self, place, change, number=1):
        self.place, self.number = place, number
        self.thread = threading.Thread(target=change)

    def __enter__(self):
        self.place.server.set_faults(f"exec:{self.number}:delay=1500")
        self.thread.start()
        time.sleep(0.5)
        assert self.thread.is_alive()

    def __exit__(self, *_):
        self.thread.join()
        self.place.server.set_faults()


def leave_unsent(place):
    """A save of f whose bytes are still here. For a moment nothing but sync has it sent."""
    (place.fs / "f").write_bytes(b"old")
    cut_off(place)
    before = place.log_mark()
    assert save(place.fs / "f", b"new") == errno.EIO
    # By the timer and because of a use: the next of either is a second away.
    wait_for(lambda: os.stat(place.fs / "f") and len(place.server.log(before)) > 3, 5,
             "the third try", step=0.2)
    place.server.set_faults()
    os.stat(place.fs / "f")
    assert place.mount.pending() == (1, 3)


def sync(place):
    (place.mount / "dev1/control").write_text("sync\n")


def test_sent_again_while_it_is_removed(place):
    leave_unsent(place)
    with Meanwhile(place, lambda: os.unlink(place.fs / "f")):
        sync(place)
    sync(place)
    assert not (place.root / "f").exists()
    assert place.mount.pending() == (0, 0)


def test_sent_again_while_it_is_replaced(place):
    (place.fs / "g").write_bytes(b"what replaces it")
    leave_unsent(place)
    with Meanwhile(place, lambda: os.rename(place.fs / "g", place.fs / "f")):
        sync(place)
    sync(place)
    assert (place.root / "f").read_bytes() == b"what replaces it"
    assert (place.fs / "f").read_bytes() == b"what replaces it"
    assert place.mount.pending() == (0, 0)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_gone_while_its_bytes_go_up(place, how):
    """What is staged is put in place only where the name still means that file."""
    (place.fs / "g").write_bytes(b"what replaces it")
    place.server.set_faults("put:1:delay=4000")
    result = []
    data = os.urandom(3 * MIB)
    closing = threading.Thread(target=lambda: result.append(save(place.fs / "f", data)))
    closing.start()
    wait_for(lambda: "f" in os.listdir(place.fs), 5)  # a stat would wait for the bytes
    time.sleep(0.5)
    assert closing.is_alive()
    if how == "removed":
        os.unlink(place.fs / "f")
    else:
        os.rename(place.fs / "g", place.fs / "f")
    closing.join()
    assert result == [0]
    sync(place)
    names = set(os.listdir(place.root)) - {".sbxfs"}
    assert names == ({"g"} if how == "removed" else {"f"})
    assert how == "removed" or (place.root / "f").read_bytes() == b"what replaces it"
    assert place.mount.pending() == (0, 0)


@pytest.mark.parametrize("flags", [os.O_TRUNC, os.O_APPEND], ids=["save", "append"])
@pytest.mark.parametrize("what", ["file", "directory"])
def test_written_while_it_is_renamed(place, flags, what):
    """As a log is that is put away while a program writes it."""
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_bytes(b"old")
    moves = ("d/f", "d/g") if what == "file" else ("d", "e")
    fd = os.open(place.fs / "d/f", os.O_WRONLY | flags)
    try:
        with Meanwhile(place, lambda: os.rename(*(place.fs / name for name in moves))):
            os.write(fd, b" and new")
            os.fsync(fd)
    finally:
        os.close(fd)
    there = place.root / ("d/g" if what == "file" else "e/f")
    assert there.read_bytes() == (b"" if flags == os.O_TRUNC else b"old") + b" and new"
    assert not (place.root / "d/f").exists()
    assert place.mount.pending() == (0, 0)


@pytest.mark.parametrize("replaced", [True, False])
def test_the_token_changes(start_sbxd, start_mount, replaced):
    """Under a mount with an unsent file: with token_file replaced no program sees an error."""
    server = start_sbxd("overlay", token="first-token")
    mount = start_mount(server.url, ["timeout=8"], token="first-token")
    (mount / "dev1").mkdir()
    root = server.session_dir(mount.status("dev1")["id"])
    (mount / "dev1/fs/old").write_text("old")
    fd = os.open(mount / "dev1/fs/f", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"unsent")
    server.stop()
    server.set_token("second-token")
    server.start()

    def renew():
        fresh = mount.token_file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text("second-token\n")
        fresh.replace(mount.token_file)

    if replaced:
        renew()
        os.close(fd)
    else:
        begin = time.monotonic()
        with pytest.raises(OSError) as caught:
            os.close(fd)
        assert caught.value.errno == errno.EACCES
        assert time.monotonic() - begin < scale(3)
        status = mount.status("dev1")
        assert status["state"] == "denied"
        assert str(mount.token_file) in status["note"] or "token" in status["note"]
        assert status["pending_writes"].split()[0] == "1"
        with pytest.raises(OSError) as caught:
            os.mkdir(mount / "dev1/fs/d")
        assert caught.value.errno == errno.EACCES
        assert mount.status()["server"] == "denied"
        renew()
        os.listdir(mount / "dev1/fs")
        wait_for(lambda: (root / "f").exists(), 10)
    assert (root / "f").read_bytes() == b"unsent"
    assert (mount / "dev1/fs/old").read_text() == "old"
    os.mkdir(mount / "dev1/fs/d")
    assert mount.status("dev1")["state"] == "live"
    wait_for(lambda: mount.status("dev1")["pending_writes"].split()[0] == "0", 5)
