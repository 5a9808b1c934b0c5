"""Who writes control and jobs/new: whose close counts, and what is too much."""

import errno
import os
import subprocess
import sys
import tempfile
import time

import pytest

from jobtools import ended, ids
from sbxtest.calls import fails
from sbxtest.timing import scale, wait_for

pytestmark = pytest.mark.core

MIB = 1 << 20


@pytest.fixture
def mount(server, start_mount):
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    return mount


def acts(server) -> int:
    time.sleep(0.05)  # what happens behind the writer's back counts too
    return sum(record.route == "reattach" for record in server.log())


def requests_of_create(server) -> list:
    """How long the request was with which each session was made."""
    time.sleep(0.05)
    return [record.bytes_in for record in server.log() if record.route == "create"]


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("script", [
    "{ printf 'create dev2 '; printf '{\"runId\":\"%s\"}\\n' \"$(echo r-1)\"; } >",
    "{ printf 'create dev2 '; /bin/true; echo '{\"runId\":\"r-1\"}'; } >",
    "( printf 'create '; /bin/printf 'dev2 '; echo '{\"runId\":\"r-1\"}'; ) >",
    "{ printf 'create dev2 '; (:); cat \"$JSON\"; } >",
], ids=["substitution", "program", "subshell", "cat"])
def test_a_line_that_several_processes_write(mount, server, shell, script, tmp_path):
    """A child that ends with a copy of the descriptor ends no line."""
    (tmp_path / "json").write_text('{"runId":"r-1"}')
    before = len(requests_of_create(server))
    subprocess.run([shell, "-ec", f"{script} '{mount / 'control'}'"], check=True,
                   timeout=scale(20), env={**os.environ, "JSON": str(tmp_path / "json")})
    (mount / "control").write_text('create dev3 {"runId":"r-1"}\ncreate dev4\n')
    of_processes, of_one, bare = requests_of_create(server)[before:]
    assert of_processes == of_one > bare
    assert mount.status("dev2")["state"] == "live"
    assert mount.read("errors") == ""


CHILD = "import os, sys; os.write(int(sys.argv[1]), b'reattach'); sys.stdin.read(1)"


def write_in_child(fd):
    """A child that has written an unfinished line through @fd, and waits."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(fd)], pass_fds=[fd],
                             stdin=subprocess.PIPE)
    return child


def end(child):
    child.communicate(b"x", timeout=scale(10))
    assert child.returncode == 0


def test_a_line_is_ended_by_who_opened_it(mount, server):
    before = acts(server)
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    end(write_in_child(fd))
    assert acts(server) == before
    os.close(fd)
    assert acts(server) == before + 1


def test_a_line_is_ended_by_the_last_close(mount, server):
    """Who opened it lives, but has let go of it long ago."""
    before = acts(server)
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    child = write_in_child(fd)
    os.close(fd)
    time.sleep(0.3)
    end(child)
    wait_for(lambda: acts(server) == before + 1, 5)
    wait_for(lambda: mount.status("dev1")["last"].startswith("reattach: ok"), 5)


def test_a_line_is_ended_when_its_opener_is_dead(mount, server):
    before = acts(server)
    script = ("import os, subprocess, sys\n"
              "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
              "subprocess.Popen([sys.executable, '-c', 'import os, sys, time; time.sleep(0.7); '\n"
              "                  'os.write(int(sys.argv[1]), b\"reattach\")', str(fd)],\n"
              "                 pass_fds=[fd])\n")
    subprocess.run([sys.executable, "-c", script, mount / "dev1/control"], check=True)
    wait_for(lambda: acts(server) == before + 1, 5)


def write_all(fd, data) -> int:
    """Writes in pieces until one fails: its errno."""
    for start in range(0, len(data), 4096):
        try:
            os.write(fd, data[start:start + 4096])
        except OSError as error:
            return error.errno
    return 0


def test_a_line_that_is_too_long_is_none(mount, server):
    before = acts(server)
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    try:
        assert write_all(fd, b"reattach" + b" " * (MIB + 8192)) == errno.EFBIG
        # What goes on behind the gap is the rest of that line.
        os.write(fd, b"reattach\n")
        assert acts(server) == before
        os.write(fd, b"reattach\n")
        assert acts(server) == before + 1
        assert write_all(fd, b"reattach" + b" " * (MIB + 8192)) == errno.EFBIG
    finally:
        os.close(fd)
    time.sleep(0.3)
    assert acts(server) == before + 1


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR], ids=["write", "both"])
def test_a_script_that_is_too_long_is_none(mount, flags):
    """Its beginning is not started, nor what comes behind the gap."""
    session = mount / "dev1"
    script = b"echo ran > ran\n" + b"# filler that does nothing\n" * (MIB // 26)
    fd = os.open(session / "jobs/new", flags)
    try:
        assert write_all(fd, script) == errno.EFBIG
        assert fails(os.write, fd, b"echo ran > ran\n") == errno.EFBIG
        if flags == os.O_RDWR:
            assert fails(os.read, fd, 100) == errno.EFBIG
    finally:
        os.close(fd)
    time.sleep(0.5)
    assert ids(session) == []
    assert os.listdir(session / "fs") == []


def test_a_script_of_just_the_size_that_is_taken(mount):
    session = mount / "dev1"
    script = b"echo ran > ran\n"
    script += b"#" * (MIB - len(script) - 1) + b"\n"
    fd = os.open(session / "jobs/new", os.O_RDWR)
    try:
        assert write_all(fd, script) == 0
        job = session / "jobs" / os.read(fd, 100).decode().strip()
    finally:
        os.close(fd)
    assert ended(job)["exit"] == "0"
    assert (session / "fs/ran").read_text() == "ran\n"


@pytest.fixture
def waiting(mount):
    """A function: how many requests of the kernel the mount has not answered."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "fusectl", "none", directory], check=True)
        try:
            number = os.minor(os.stat(mount.mnt).st_dev)
            yield lambda: int(open(f"{directory}/{number}/waiting").read())
        finally:
            subprocess.run(["umount", directory], check=True)


@pytest.mark.root
def test_a_last_close_that_starts_a_job_holds_no_thread(mount, server, waiting):
    """The kernel waits for no answer to it, and nobody else's request is to wait for a thread."""
    session = mount / "dev1"
    os.listdir(session / "fs")
    wait_for(lambda: waiting() == 0, 5)
    server.set_faults("exec:*:delay=4000")
    fd = os.open(session / "jobs/new", os.O_WRONLY)
    child = subprocess.Popen(
        [sys.executable, "-c", "import os, sys; sys.stdin.read(1); "
         "os.write(int(sys.argv[1]), b'echo ran > ran')", str(fd)],
        pass_fds=[fd], stdin=subprocess.PIPE)
    os.close(fd)
    end(child)
    time.sleep(0.5)
    assert waiting() == 0
    server.set_faults()
    wait_for(lambda: (session / "fs/ran").exists(), 15)
