"""Programs that wait for a server that does not answer: they get free, and others don't notice."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from sbxtest.process import is_running
from sbxtest.timing import scale, wait_for

TIMEOUT = 8
HERD_TIMEOUT = 20  # starting 300 programs takes a while


@pytest.fixture
def mount(server, start_mount):
    mount = start_mount(server.url, [f"timeout={TIMEOUT}"])
    for name in ("stuck", "other"):
        (mount / name).mkdir()
    return mount


def blackhole(server, mount, *names, route="*"):
    """From now on nothing that is asked of these sessions, or of `stuck`, is answered."""
    prefixes = [mount.status(name)["id"][:13] for name in names or ("stuck",)]
    server.set_faults(*(f"{route}@{prefix}:*:blackhole" for prefix in prefixes))
    time.sleep(1.2)  # what is known is old then


def start(words, count=1):
    return [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) for _ in range(count)]


def wait_all(processes, seconds):
    limit = time.monotonic() + scale(seconds)
    for process in processes:
        process.wait(max(limit - time.monotonic(), 0.01))


def wait_until_stuck(processes):
    """None of them computes any more: all that are left wait."""

    def is_computing(process):
        with open(f"/proc/{process.pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"R"

    quiet = 0
    while quiet < 3:
        waiting = [process for process in processes if process.poll() is None]
        quiet = 0 if any(is_computing(process) for process in waiting) else quiet + 1
        time.sleep(0.2)
    return waiting


MMAP = "import mmap, sys; print(mmap.mmap(open(sys.argv[1], 'rb').fileno(), 0, prot=1)[5])"


def herd(fs, size):
    """So many programs that want something of one session, of each kind some."""
    some = size // 6
    processes = [start(["cat", fs / f"f{index}"])[0] for index in range(size - 4 * some)]
    processes += start(["cat", fs / "f100"], some)
    processes += [start([sys.executable, "-c", MMAP, fs / f"f{100 + index}"])[0]
                  for index in range(some)]
    processes += start(["ls", fs], some)
    processes += [start(["dash", "-c", f": >> {fs}/f{index}"])[0] for index in range(some)]
    return processes


@pytest.mark.serial
def test_herds_of_stuck_programs(server, start_mount):
    """300 in two sessions: a third one answers within a second, and so long it takes those of one
    to die of SIGKILL; those of the other end with the time-out.
    """
    mount = start_mount(server.url, [f"timeout={HERD_TIMEOUT}"])
    roots = {}
    for name in ("stuck", "left", "other"):
        (mount / name).mkdir()
        roots[name] = server.session_dir(mount.status(name)["id"])
    for name in ("stuck", "left"):
        for index in range(150):
            (roots[name] / f"f{index}").write_bytes(os.urandom(100))
    big = os.urandom(10 << 20)
    (roots["other"] / "big").write_bytes(big)
    blackhole(server, mount, "stuck", "left")
    left, processes = [], []
    try:
        left = herd(mount / "left/fs", 100)
        processes = herd(mount / "stuck/fs", 200)
        waiting = wait_until_stuck([*left, *processes])
        assert len(waiting) > 250
        begin = time.monotonic()
        assert hashlib.sha256((mount / "other/fs/big").read_bytes()).digest() \
            == hashlib.sha256(big).digest()
        assert os.listdir(mount / "other/fs") == ["big"]
        mount.read("stats")
        mount.read("stuck/status")
        assert time.monotonic() - begin < scale(1)
        doomed = [process for process in processes if process.poll() is None]
        assert len(doomed) > 150
        for process in doomed:
            process.kill()
        wait_all(doomed, 1)
        assert any(process.poll() is None for process in left)
        wait_all(left, HERD_TIMEOUT + 1)
        assert all(process.returncode for process in left)
    finally:
        for process in [*left, *processes]:
            process.kill()
            process.wait()


@pytest.mark.serial
def test_one_directory_full_of_creators(server, start_mount):
    mount = start_mount(server.url, ["timeout=4"])
    (mount / "stuck").mkdir()
    blackhole(server, mount)
    processes = [start(["dash", "-c", f"echo x > {mount.mnt}/stuck/fs/new{index}"])[0]
                 for index in range(32)]
    wait_all(processes, 4 + 2)
    assert all(process.returncode for process in processes)


def test_ctrl_c_frees_what_does_not_catch_it(server, mount):
    (mount / "stuck/fs/f").write_text("x")
    blackhole(server, mount)
    [process] = start(["stat", mount / "stuck/fs/f"])
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    wait_all([process], 3)


def test_a_signal_that_is_caught_ends_nothing_and_hides_no_later_one(server, mount):
    (mount / "stuck/fs/f").write_text("x")
    blackhole(server, mount)
    script = ("import os, signal, sys\n"
              "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
              "print(flush=True)\n"
              "os.stat(sys.argv[1])")
    process = subprocess.Popen([sys.executable, "-c", script, mount / "stuck/fs/f"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.7)
    assert process.poll() is None
    process.kill()
    wait_all([process], 3)
    process.stdout.close()


@pytest.mark.long(11)
@pytest.mark.parametrize("route", ["*", "exec"])
def test_calls_end_within_the_timeout_and_then_fail_fast(server, mount, route):
    """Also where the plain routes answer meanwhile, and only commands do not."""
    (mount / "stuck/fs/known").write_bytes(b"x" * 100)
    blackhole(server, mount, route=route)
    begin = time.monotonic()
    with pytest.raises(OSError) as caught:
        os.listdir(mount / "stuck/fs/none")
    assert caught.value.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
    assert time.monotonic() - begin < scale(TIMEOUT + 2)  # one for each of two lookups
    for call in (lambda: os.stat(mount / "stuck/fs/other"),
                 lambda: (mount / "stuck/fs/known").read_bytes(),
                 lambda: os.mkdir(mount / "stuck/fs/new"),
                 lambda: (mount / "stuck/jobs/new").write_text("true\n")):
        begin = time.monotonic()
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EHOSTUNREACH
        assert time.monotonic() - begin < scale(3)
    assert mount.status("stuck")["state"] == "unreachable"
    os.mkdir(mount / "other/fs/new")
    server.set_faults()
    wait_for(lambda: os.path.isdir(mount / "stuck/fs"), 10)
    (mount / "stuck/fs/f").write_text("back")
    assert mount.status("stuck")["state"] == "live"


@pytest.mark.core
def test_a_shell_keeps_its_directory(server, mount):
    """An error answered to a LOOKUP would unhash the directory that it stands in."""
    directory = mount / "stuck/fs/d/e"
    directory.mkdir(parents=True)
    (directory / "f").write_text("x")
    shell = subprocess.Popen(["bash"], cwd=directory, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(line):
        shell.stdin.write(line + "; echo end\n")
        shell.stdin.flush()
        answer = []
        while (text := shell.stdout.readline().rstrip("\n")) != "end":
            answer.append(text)
        return answer

    try:
        assert ask("pwd -P") == [str(directory)]
        port = server.port
        server.stop()
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            for path in (directory, directory.parent, mount / "stuck/fs", mount / "stuck"):
                try:
                    os.stat(path)
                except OSError as error:
                    assert error.errno in (errno.EHOSTUNREACH, errno.ETIMEDOUT)
            time.sleep(0.2)
        server.start()
        assert server.port == port
        # The stand-in keeps no session over a restart on the host profile; standing still counts.
        assert ask("pwd -P") == [str(directory)]
    finally:
        shell.stdin.close()
        shell.wait(scale(5))
        shell.stdout.close()


@pytest.mark.core
def test_a_shell_keeps_its_directory_over_an_outage(server, mount):
    directory = mount / "stuck/fs/d"
    directory.mkdir()
    (directory / "f").write_text("x")
    fd = os.open(directory, os.O_RDONLY)
    try:
        prefix = mount.status("stuck")["id"][:13]
        server.set_faults(f"*@{prefix}:*:refuse")
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            try:
                os.stat(directory / "f")
                os.stat(directory)
            except OSError:
                pass
            time.sleep(0.1)
        server.set_faults()
        wait_for(lambda: os.path.exists(f"/proc/self/fd/{fd}/f"), 15)
        assert os.readlink(f"/proc/self/fd/{fd}") == str(directory)
        assert os.listdir(fd) == ["f"]
    finally:
        os.close(fd)


def test_sigterm_with_a_server_that_hangs(server, mount):
    (mount / "stuck/fs/f").write_text("x")
    blackhole(server, mount)
    processes = start(["cat", mount / "stuck/fs/f"], 20) + start(["ls", mount / "stuck/fs"], 20)
    time.sleep(0.5)
    pid = mount.pid
    mount.signal(signal.SIGTERM)
    wait_all(processes, 3)
    wait_for(lambda: not is_running(pid), TIMEOUT + 2)
    mount.check_reports()


def test_threads_of_one_session_are_bounded(server, start_mount):
    """More programs than threads: the other session still answers."""
    mount = start_mount(server.url, ["timeout=15"])
    for name in ("stuck", "other"):
        (mount / name).mkdir()
    (mount / "other/fs/f").write_text("here")
    blackhole(server, mount)
    path = str(mount / "stuck/fs/none")
    results = []

    def stuck(index):
        try:
            os.stat(f"{path}{index}")
        except OSError as error:
            results.append(error.errno)

    threads = [threading.Thread(target=stuck, args=(index,)) for index in range(1000)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    begin = time.monotonic()
    assert (mount / "other/fs/f").read_text() == "here"
    mount.read("stats")
    assert time.monotonic() - begin < scale(3)
    for thread in threads:
        thread.join()
    assert len(results) == 1000


def test_what_hangs_in_the_sandboxes_root_hangs_nobody_else(start_sbxd, start_mount):
    """A mount there that does not answer, as one over a network may: here another of ours."""
    other_server = start_sbxd()
    other = start_mount(other_server.url, ["timeout=10"])
    (other / "far").mkdir()
    (other / "far/fs/f").write_text("x")
    server = start_sbxd()
    mount = start_mount(server.url, ["timeout=8"])
    (mount / "dev1").mkdir()
    for name in ("d", "e"):
        (mount / "dev1/fs" / name).mkdir()
        (mount / f"dev1/fs/{name}/f").write_text(name)
    far = mount / "dev1/.sbxfs-root" / str(other / "far/fs").lstrip("/")
    assert os.listdir(far) == ["f"]
    other_server.set_faults("*:*:blackhole")
    time.sleep(1.2)
    hanging = [start(["ls", far / name])[0] for name in (".", "none", "f") * 4]
    try:
        time.sleep(0.3)
        assert any(process.poll() is None for process in hanging)
        longest, end = 0, time.monotonic() + 4
        while time.monotonic() < end:
            begin = time.monotonic()
            assert (mount / "dev1/fs/d/f").read_text() == "d"
            assert os.listdir(mount / "dev1/fs/e") == ["f"]
            (mount / "dev1/fs/new").write_text("new")
            assert not (mount / "dev1/fs/none").exists()
            longest = max(longest, time.monotonic() - begin)
            time.sleep(0.3)
        assert longest < scale(3)
    finally:
        other_server.set_faults()
        for process in hanging:
            process.kill()
            process.wait()
    # The sandbox's own programs, which stood in it, end now that they are answered.
    wait_for(lambda: subprocess.run(["fusermount3", "-u", other.mnt], check=False,
                                    capture_output=True).returncode == 0, 15)
    other.wait_gone()
