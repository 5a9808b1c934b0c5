"""Logs of all sessions share a part of cache_size, and are readable whole beyond it."""

import os

import pytest

from jobtools import Reader, ended, start, status
from sbxtest.timing import wait_for

KIB = 1024
# A quarter of it is for logs: half of that for those that are open.
OPTIONS = ["cache_size=4M"]
BOUND = 1024 * KIB
# What is not a whole block of a file.
ROUNDING = 8 * KIB
# 100 KiB in lines that tell where they are.
LUMP = ("i=0; while [ $i -lt {count} ]; do seq $((i * 100000 + 1000000)) $((i * 100000 + 1012799));"
        " i=$((i + 1)); sleep {pause}; done")


def lumps(count) -> bytes:
    return b"".join(b"%d\n" % line for i in range(count)
                    for line in range(i * 100000 + 1000000, i * 100000 + 1012800))


def kept(mount) -> int:
    """What logs take on the disk, those included that have no name any more."""
    jobs = [os.path.join(top, name) for top, _, names in os.walk(mount.cache_dir)
            for name in names if "/jobs/" in top + "/"]
    fds = f"/proc/{mount.pid}/fd"
    found = {}
    for path in [*jobs, *(os.path.join(fds, name) for name in os.listdir(fds))]:
        try:
            info = os.stat(path)
            if path.startswith(fds) and "/jobs/" not in os.readlink(path):
                continue
        except OSError:
            continue
        found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(found.values())


def test_a_running_log(make):
    """Who follows it is given every byte, once, and so is who reads it again."""
    _, mount, session = make(options=OPTIONS)
    job = session / "jobs" / start(session, LUMP.format(count=40, pause=0.1))
    expected = lumps(40)
    assert len(expected) > 3 * BOUND
    reader = Reader(["tail", "-c", "+1", "-f", job / "output.log"])
    try:
        assert ended(job)["exit"] == "0"
        wait_for(lambda: len(reader.data) >= len(expected), 10)
        wait_for(lambda: kept(mount) <= BOUND + ROUNDING, 5, f"{kept(mount)} bytes are kept")
        # It is still read: what is kept is not nothing.
        assert kept(mount) > BOUND // 4
        assert (job / "output.log").read_bytes() == expected
        with open(job / "output.log", "rb", buffering=0) as log:
            for offset in (0, 1, len(expected) - BOUND - 5000, len(expected) // 2,
                           len(expected) - 70_000, len(expected) - 1):
                assert os.pread(log.fileno(), 60_000, offset) == expected[offset:offset + 60_000]
    finally:
        reader.stop()
    assert reader.data == expected


def test_an_ended_log_makes_room(make):
    """Also that of another session, which then gives of its own."""
    _, mount, _ = make(options=OPTIONS)
    (mount / "dev2").mkdir()
    logs = []
    for name in ("dev1", "dev2", "dev1", "dev2", "dev1"):
        job = mount / name / "jobs" / start(mount / name, LUMP.format(count=7, pause=0))
        assert ended(job)["exit"] == "0"
        assert (job / "output.log").read_bytes() == lumps(7)
        logs.append(job / "output.log")
    wait_for(lambda: kept(mount) <= BOUND + ROUNDING, 5, f"{kept(mount)} bytes are kept")
    for log in logs:
        assert log.read_bytes() == lumps(7)
    assert status(logs[0].parent)["bytes"] == str(len(lumps(7)))
    wait_for(lambda: kept(mount) <= BOUND + ROUNDING, 5, f"{kept(mount)} bytes are kept")


def test_what_earlier_mounts_left(make, start_mount, tmp_path):
    """The oldest goes, and is read from the sandbox again."""
    dirs = {"state_dir": tmp_path / "state", "cache_dir": tmp_path / "cache"}
    server, mount, session = make(mount=dirs)
    names = []
    for _ in range(3):
        job = session / "jobs" / start(session, LUMP.format(count=4, pause=0))
        assert ended(job)["exit"] == "0"
        assert (job / "output.log").read_bytes() == lumps(4)
        names.append(job.name)
    assert kept(mount) > BOUND
    mount.unmount()
    mount = start_mount(server.url, OPTIONS, **dirs)
    logs = [mount / "dev1/jobs" / name / "output.log" for name in names]
    assert logs[0].stat().st_size == len(lumps(4))
    assert 0 < kept(mount) <= BOUND + ROUNDING
    for log in logs:
        assert log.read_bytes() == lumps(4)
    wait_for(lambda: kept(mount) <= BOUND + ROUNDING, 5, f"{kept(mount)} bytes are kept")


def test_two_mounts_follow_one_log(make, start_mount, tmp_path):
    """What the one gives of what it keeps, the other still has."""
    dirs = {"state_dir": tmp_path / "state", "cache_dir": tmp_path / "cache"}
    server, mount, session = make(options=OPTIONS, mount=dirs)
    other = start_mount(server.url, **dirs)
    job = session / "jobs" / start(session, LUMP.format(count=30, pause=0.1))
    expected = lumps(30)
    readers = [Reader(["tail", "-c", "+1", "-f", m / "dev1/jobs" / job.name / "output.log"])
               for m in (mount, other)]
    try:
        assert ended(job)["exit"] == "0"
        for reader in readers:
            wait_for(lambda r=reader: len(r.data) >= len(expected), 10)
        wait_for(lambda: kept(mount) <= BOUND + ROUNDING, 5, f"{kept(mount)} bytes are kept")
        assert (other / "dev1/jobs" / job.name / "output.log").read_bytes() == expected
        assert (job / "output.log").read_bytes() == expected
    finally:
        for reader in readers:
            reader.stop()
    assert [reader.data == expected for reader in readers] == [True, True]


@pytest.mark.long(20)
def test_jobs_that_are_not_kept(make):
    """Whose log was read: nothing of them stays open when nobody has read it for a while."""
    _, mount, session = make(options=["jobs_keep=2"])
    for index in range(8):
        job = session / "jobs" / start(session, f"echo {index}")
        assert ended(job)["exit"] == "0"
        assert (job / "output.log").read_text() == f"{index}\n"

    def logs():
        fds = f"/proc/{mount.pid}/fd"
        return [path for path in map(os.readlink, (os.path.join(fds, name)
                                                   for name in os.listdir(fds)))
                if "/jobs/" in path and ".log" in path]

    wait_for(lambda: len(logs()) <= 3, 30, f"{logs()}")
