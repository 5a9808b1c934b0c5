"""How long is waited: for changes, for what goes on slowly, over connections that were closed."""

import errno
import os
import subprocess
import threading
import time
from functools import partial

import pytest

from sbxtest.slowline import SlowLine
from sbxtest.timing import scale, wait_for

MIB = 1 << 20


def at_once(functions) -> float:
    """Runs each in a thread of its own; how long all took."""
    threads = [threading.Thread(target=function) for function in functions]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def test_changes_end_after_ten_seconds(start_place):
    """Though the time-out, which is the default, lets other calls wait for thirty."""
    place = start_place("gnu-host")
    (place.fs / "f").write_text("x")
    (place.fs / "d").mkdir()
    place.server.set_faults("*:*:blackhole")
    changes = {
        "mkdir": lambda: os.mkdir(place.fs / "new"),
        "unlink": lambda: os.unlink(place.fs / "f"),
        "rename": lambda: os.rename(place.fs / "d", place.fs / "e"),
        "session": lambda: os.mkdir(place.mount / "dev2"),
    }
    found = {}

    def run(name):
        begun = time.monotonic()
        try:
            changes[name]()
            result = 0
        except OSError as error:
            result = error.errno
        found[name] = result, time.monotonic() - begun

    at_once([partial(run, name) for name in changes])
    place.server.set_faults()
    for name, (result, took) in found.items():
        wanted = {errno.EIO} if name == "session" else {errno.ETIMEDOUT, errno.EHOSTUNREACH}
        assert result in wanted, (name, result)
        # The kernel lets changes of one directory go one after the other: the first one's time-out
        # has the others fail at once.
        assert took < scale(13), (name, took)
    assert min(took for _, took in found.values()) > 8
    wait_for(lambda: (place.root / "f").exists(), 1)
    assert not (place.root / "new").exists()


@pytest.mark.parametrize("options", [[], ["exec=no"]], ids=["exec", "no-exec"])
def test_what_comes_slowly_is_waited_for(start_place, options):
    """A read that takes several times the time-out, but never stands still."""
    place = start_place("gnu-host", ["timeout=1", *options])
    data = os.urandom(2 * MIB)
    (place.root / "big").write_bytes(data)
    place.fresh()
    place.server.set_faults("get:*:trickle=500000", "exec:*:trickle=500000")
    begun = time.monotonic()
    assert (place.fs / "big").read_bytes() == data
    assert time.monotonic() - begun > 3
    assert place.errors() == ""


@pytest.mark.parametrize("options", [[], ["exec=no"]], ids=["exec", "no-exec"])
def test_what_goes_slowly_is_waited_for(start_sbxd, start_mount, options):
    """A line takes several times the time-out for what the kernel has taken over long before."""
    server = start_sbxd()
    data = os.urandom(2 * MIB)
    with SlowLine(server.port, 400_000) as line:
        mount = start_mount(line.url, ["timeout=1", *options])
        (mount / "dev1").mkdir()
        begun = time.monotonic()
        (mount / "dev1/fs/big").write_bytes(data)
        took = time.monotonic() - begun
        root = server.session_dir(mount.status("dev1")["id"])
        assert (root / "big").read_bytes() == data
        assert took > 4
        assert (mount / "dev1/errors").read_text() == ""
        # Once: nothing was sent anew.
        puts = [record for record in server.log() if record.route == "fs"
                and record.method == "PUT"]
        assert len(puts) == 1 and puts[0].bytes_in < 2.1 * MIB


def test_small_files_that_go_slowly(start_sbxd, start_mount):
    """In a request that carries several, each of whose writers waits."""
    server = start_sbxd()
    data = {f"f{index}": os.urandom(40_000) for index in range(4)}
    with SlowLine(server.port, 50_000) as line:
        mount = start_mount(line.url, ["timeout=2"])
        (mount / "dev1").mkdir()
        assert os.listdir(mount / "dev1/fs") == []
        assert at_once([partial((mount / "dev1/fs" / name).write_bytes, text)
                        for name, text in data.items()]) > 4
        root = server.session_dir(mount.status("dev1")["id"])
        assert {name: (root / name).read_bytes() for name in data} == data
        assert (mount / "dev1/errors").read_text() == ""
        assert mount.status("dev1")["pending_writes"].startswith("0 ")


def test_more_than_there_are_connections_for(start_sbxd, start_mount):
    """Who waits for one of them sees that the others get on."""
    server = start_sbxd()
    data = {f"f{index}": os.urandom(120_000) for index in range(4)}
    with SlowLine(server.port, 60_000) as line:
        mount = start_mount(line.url, ["timeout=2", "max_conn=2"])
        (mount / "dev1").mkdir()
        assert os.listdir(mount / "dev1/fs") == []
        assert at_once([partial((mount / "dev1/fs" / name).write_bytes, text)
                        for name, text in data.items()]) > 6
        root = server.session_dir(mount.status("dev1")["id"])
        assert {name: (root / name).read_bytes() for name in data} == data
        assert (mount / "dev1/errors").read_text() == ""
        assert mount.status("dev1")["pending_writes"].startswith("0 ")


def test_names_that_come_slowly(start_place):
    """All who wait for one listing, and for the bytes of small files, see that they come."""
    place = start_place("gnu-host", ["timeout=1"])
    text = os.urandom(100_000)
    for index in range(200):
        (place.root / f"{os.urandom(20).hex()}-{index}").touch()
    (place.root / "small").write_bytes(text)
    place.fresh()
    place.server.set_faults("exec:*:trickle=5000")
    found = []
    assert at_once([lambda: found.append(len(os.listdir(place.fs)))] * 3) > 1.5
    assert found == [201] * 3
    place.server.set_faults("exec:*:trickle=60000", "get:*:trickle=60000")
    assert at_once([lambda: found.append((place.fs / "small").read_bytes())] * 3) > 1.2
    assert found[3:] == [text] * 3
    assert place.errors() == ""


def test_an_upload_that_stands_still_ends(start_sbxd, start_mount):
    server = start_sbxd()
    with SlowLine(server.port, 400_000) as line:
        mount = start_mount(line.url, ["timeout=2"])
        (mount / "dev1").mkdir()
        threading.Timer(1.5, line.stop).start()
        begun = time.monotonic()
        with pytest.raises(OSError) as caught:
            (mount / "dev1/fs/big").write_bytes(os.urandom(2 * MIB))
        assert caught.value.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
        assert 3 < time.monotonic() - begun < scale(10)
        assert mount.status("dev1")["pending_writes"].startswith("1 ")


def test_a_snapshot_that_comes_slowly(start_place):
    place = start_place("gnu-host", ["timeout=1"])
    (place.root / "big").write_bytes(os.urandom(MIB))
    place.fresh()
    place.server.set_faults("persist:*:trickle=300000")
    begun = time.monotonic()
    (place.mount / "dev1/control").write_text("persist one\n")
    assert time.monotonic() - begun > 3
    assert os.listdir(place.mount / "snapshots/dev1") == ["one.json", "one.tar"]


@pytest.mark.parametrize("options", [[], ["exec=no"]], ids=["exec", "no-exec"])
def test_a_read_that_stands_still_ends(start_place, options):
    place = start_place("gnu-host", ["timeout=2", *options])
    (place.root / "big").write_bytes(os.urandom(2 * MIB))
    place.fresh()
    place.server.set_faults("get:*:blackhole", "exec:*:blackhole")
    begun = time.monotonic()
    with pytest.raises(OSError) as caught:
        (place.fs / "big").read_bytes()
    assert caught.value.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
    assert 1.5 < time.monotonic() - begun < scale(6)


@pytest.mark.parametrize("options", [[], ["exec=no"]], ids=["exec", "no-exec"])
def test_a_server_that_closes_each_connection(start_place, options):
    """Whatever is asked meets a connection that is closed by then: no program sees it."""
    place = start_place("gnu-host", ["ttl=0", *options])
    place.server.set_faults("*:*:close-idle=20")
    for turn in range(5):
        time.sleep(0.1)
        (place.fs / f"f{turn}").write_text(f"{turn}\n")
        time.sleep(0.1)
        assert (place.fs / f"f{turn}").read_text() == f"{turn}\n"
        time.sleep(0.1)
        if not options:
            with open(place.fs / "log", "a", encoding="ascii") as log:
                log.write(f"{turn}\n")
            time.sleep(0.1)
            os.mkdir(place.fs / f"d{turn}")
            time.sleep(0.1)
            os.rename(place.fs / f"f{turn}", place.fs / f"d{turn}/f")
        time.sleep(0.1)
        assert len(os.listdir(place.fs)) == (turn + 1 if options else turn + 2)
    if not options:
        assert (place.root / "log").read_text() == "0\n1\n2\n3\n4\n"
        subprocess.run(["bash", "-c", "exec 3<>new; echo 'echo ran >>ran' >&3; read -r id <&3; "
                        "cat $id/wait.20"], cwd=place.mount / "dev1/jobs", check=True,
                       capture_output=True, timeout=scale(30))
        assert (place.root / "ran").read_text() == "ran\n"
    time.sleep(0.1)
    (place.mount / "dev2").mkdir()
    assert place.errors() == "" and place.mount.read("errors") == ""


def test_what_the_sandbox_has_to_move(start_place):
    """Nothing crosses the wire while it does; a close waits as long as that may take."""
    place = start_place("gnu-host", ["timeout=2", "ttl=60"])
    data = os.urandom(80 << 20)
    (place.fs / "big").write_bytes(b"old")
    place.server.set_faults("exec:*:delay=4000")
    (place.fs / "big").write_bytes(data)
    place.server.set_faults()
    assert place.mount.pending() == (0, 0)
    assert (place.root / "big").read_bytes() == data
