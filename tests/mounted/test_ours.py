"""Names of ours: what they can't be made into, and the numbers that a listing tells of them."""

import ctypes
import errno
import os
import subprocess
import time

import pytest

from jobtools import ended, start
from sbxtest.timing import scale
from sbxtest.calls import fails

RENAME_EXCHANGE = 2
AT_FDCWD = -100


@pytest.fixture
def mount(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    for name in ("dev1", "dev2"):
        (mount / name).mkdir()
    return mount


def test_a_job_keeps_its_id(mount):
    jobs = mount / "dev1/jobs"
    job = jobs / start(mount / "dev1", "echo out")
    ended(job)
    assert fails(os.rename, job, jobs / "another") == errno.EPERM
    assert fails(os.rename, jobs / "nobody", jobs / "another") == errno.ENOENT
    assert (job / "output.log").read_text() == "out\n"


def test_listed_numbers_are_those_of_stat(mount):
    """Of files in memory beside control and jobs/new, too."""
    job = mount / "dev1/jobs" / start(mount / "dev1", "true")
    for directory in (mount.mnt, mount / "dev1", mount / "dev1/jobs", job):
        for name in (".a.swp", "b~"):
            (directory / name).write_text("x")
        # fs is like a mount point: the sandbox's directory has a number of its own.
        listed = {entry.name: entry.inode() for entry in os.scandir(directory)
                  if entry.name != "fs"}
        assert {".a.swp", "b~", "control" if directory.name != "jobs" else "new"} <= set(listed)
        assert listed == {name: os.lstat(directory / name).st_ino for name in listed}
        assert len(set(listed.values())) == len(listed)


def test_what_can_not_be_exchanged_is_not_copied(mount):
    """EXDEV would have mv copy."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("dev1/fs/f", "dev2/fs/g"):
        (mount / name).write_text(name)
    for one, two in (("dev1/fs/f", "dev2/fs/g"), ("dev1", "dev1/fs/f")):
        assert libc.renameat2(AT_FDCWD, os.fsencode(mount / one), AT_FDCWD,
                              os.fsencode(mount / two), RENAME_EXCHANGE) == -1
        assert ctypes.get_errno() == errno.EINVAL
    assert (mount / "dev1/fs/f").read_text() == "dev1/fs/f"


def test_commands_that_hang_at_the_root_leave_threads_for_sessions(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    server.set_faults("reattach:*:delay=6000")
    script = ("for i in $(seq 100); do { echo \"attach 00000000-0000-4000-8000-$(printf %012d $i)\""
              " > control; } 2>&1 & done; wait")
    writers = subprocess.Popen(["bash", "-c", script], cwd=mount.mnt, stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "LC_ALL": "C"})
    time.sleep(2)
    begin = time.monotonic()
    assert (mount / "dev1/fs/f").read_text() == "x"
    assert time.monotonic() - begin < scale(1)
    assert "too many commands are running" in mount.read("errors")
    out = writers.communicate(timeout=scale(60))[0]
    server.set_faults()
    assert out.count("Device or resource busy") == 36
    (mount / "control").write_text("create dev3\n")
