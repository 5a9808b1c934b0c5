"""The subcommands exec, logs, ctl, ls and help, and the lines on jobs that README shows."""

import os
import re
import signal
import subprocess
import time

import pytest

from jobtools import BACKENDS, ended, ids, start, status
from sbxtest import sbxfs_path, tree_dir
from sbxtest.timing import scale, wait_for


@pytest.fixture(params=["host", "overlay-busybox"])
def place(request, start_sbxd, start_mount):
    profile, args = BACKENDS[request.param]
    server = start_sbxd(profile, args=args)
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    return mount, mount / "dev1"


@pytest.fixture
def host(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    (mount / "dev1").mkdir()
    return mount, mount / "dev1"


def sbxfs(*words, cwd="/", **fields):
    return subprocess.run([sbxfs_path(), *words], cwd=cwd, capture_output=True,
                          timeout=scale(60), check=False, **fields)


ALONE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(None, b"/", None, 0x44000, None):
    sys.exit(os.strerror(ctypes.get_errno()))
for line in list(open("/proc/self/mounts")):
    source, place, kind = line.split()[:3]
    if kind == "fuse.sbxfs" and place != sys.argv[1]:
        libc.umount2(place.encode(), 2 | 8)
os.execv(sys.argv[2], sys.argv[2:])
"""


def alone(mount, *words):
    """The same where that mount is the only one: others may be of tests of stuck mounts."""
    return subprocess.run(["/usr/bin/python3", "-c", ALONE, mount.mnt, sbxfs_path(), *words],
                          capture_output=True, timeout=scale(20), check=False)


def test_exit_codes(place):
    _, session = place
    for code in (0, 3, 124, 130, 143):
        done = sbxfs("exec", "--", "sh", "-c", f"echo out {code}; exit {code}", cwd=session / "fs")
        assert (done.returncode, done.stdout) == (code, f"out {code}\n".encode()), done.stderr
        assert done.stderr == b""
    assert sbxfs("exec", session, "--", "no-such-command").returncode == 127


def test_output_is_the_log(place):
    _, session = place
    script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); printf '%d \\303\\251\\000\\377' $i; " \
             "[ $((i % 60)) != 0 ] || sleep .2; done; head -c 300000 /dev/urandom; echo err >&2"
    done = sbxfs("exec", session / "fs", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert done.stdout == (session / "jobs/latest/output.log").read_bytes()
    assert len(done.stdout) > 300000 and done.stdout.endswith(b"err\n")


def test_arguments_arrive_exactly(place):
    _, session = place
    words = ["a b", "it's", "", "$HOME", "`x`", "line\nbreak", "\\n", "*", "~", "#", "é", "-e",
             "\""]
    done = sbxfs("exec", session, "--", "printf", "<%s>", *words)
    assert done.stdout.decode() == "".join(f"<{word}>" for word in words)
    done = sbxfs("exec", session, "--", "printf", "<%s>", os.fsdecode(b"raw\xff\xe9"))
    assert done.stdout == b"<raw\xff\xe9>"


def test_path_is_the_directory(place):
    mount, session = place
    inside = session / "fs/a dir"
    inside.mkdir()
    (inside / "file").write_text("x")
    os.mkdir(os.fsencode(inside) + b"/b\xff")
    top = sbxfs("exec", session / "fs", "--", "pwd").stdout.decode().strip()
    for path, expected in ((inside, top + "/a dir"), (inside / "file", top + "/a dir"),
                           (session, top), (session / "jobs", top), (session / "status", top),
                           (session / ".sbxfs-root/usr", "/usr")):
        done = sbxfs("exec", path, "--", "pwd")
        assert done.stdout.decode() == expected + "\n", (path, done.stderr)
    assert sbxfs("exec", "--", "pwd", cwd=inside).stdout.decode() == top + "/a dir\n"
    assert sbxfs("exec", "-d", "--", "pwd", cwd=inside).returncode == 0
    done = sbxfs("exec", os.fsencode(inside) + b"/b\xff", "--", "pwd")
    assert done.stdout == top.encode() + b"/a dir/b\xff\n"
    for path in ("/", mount.mnt, mount / "snapshots"):
        done = sbxfs("exec", path, "--", "true")
        assert done.returncode == 125 and b"not in a session" in done.stderr
    assert sbxfs("exec", session / "nowhere", "--", "true").returncode == 125
    assert sbxfs("exec", session).returncode == 125
    assert sbxfs("exec", "--bad", session, "--", "true").returncode == 125


def test_the_sandboxs_own_root_is_a_directory_as_well(place):
    _, session = place
    for path, inside in ((".sbxfs-root", "/"), (".sbxfs-root/usr", "/usr")):
        done = sbxfs("exec", "--", "sh", "-c", "cd -P . && pwd", cwd=session / path)
        assert (done.returncode, done.stdout.decode()) == (0, inside + "\n"), done.stderr


def test_detached(place):
    _, session = place
    begun = time.monotonic()
    done = sbxfs("exec", "-d", session, "--", "sh", "-c", "sleep 2; echo later")
    assert done.returncode == 0 and time.monotonic() - begun < scale(2)
    (identity,) = ids(session)
    assert done.stdout.decode() == identity + "\n"
    job = session / "jobs" / identity
    assert sbxfs("logs", job).stdout == b""
    assert sbxfs("logs", "-f", job).stdout == b"later\n"
    assert status(job)["state"] == "exited"
    assert sbxfs("logs", session / "jobs/latest").stdout == b"later\n"
    assert sbxfs("logs", session / "jobs").returncode == 125
    assert sbxfs("logs").returncode == 125


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_signals(host, number):
    _, session = host
    process = subprocess.Popen([sbxfs_path(), "exec", session, "--", "sh", "-c",
                                "echo begun; sleep 30"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    (identity,) = ids(session)
    job = session / "jobs" / identity
    process.send_signal(number)
    out, err = process.communicate(timeout=scale(10))
    assert out == b""
    if number == signal.SIGINT:
        assert process.returncode == 143
        assert status(job)["state"] == "cancelled"
        return
    assert status(job)["state"] == "running"
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert str(job).encode() in err
    (job / "control").write_text("cancel\n")
    ended(job)


def test_ctrl_c_while_the_output_is_faster_than_its_reader(host):
    """There is no pause between two pieces of the log, and the signal counts all the same."""
    _, session = host
    script = "while :; do head -c 500000 /dev/zero; sleep 0.05; done"
    process = subprocess.Popen([sbxfs_path(), "exec", session, "--", "sh", "-c", script],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        os.read(process.stdout.fileno(), 4096)
        time.sleep(2)  # much is there then
        process.send_signal(signal.SIGINT)
        (identity,) = ids(session)
        job = session / "jobs" / identity
        wait_for(lambda: os.read(process.stdout.fileno(), 4096) and
                 status(job)["state"] == "cancelled", 10)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nobody_reads_the_output(host):
    _, session = host
    done = subprocess.run(
        ["bash", "-c", '"$1" exec "$2" -- sh -c "yes | head -c 500000; sleep 2" | head -c 2; '
                       'echo ${PIPESTATUS[0]}', "bash", sbxfs_path(), session],
        capture_output=True, text=True, timeout=scale(20), check=True)
    assert done.stdout == "y\n141\n"
    assert "jobs/" in done.stderr
    assert ended(session / "jobs/latest")["exit"] == "0"


def test_crashed_is_told(host):
    """The leader of the job is killed: 125, and a line that says so."""
    _, session = host
    script = "p=$PPID; until grep -q sbxfs-jobru[n] /proc/$p/cmdline; do " \
             "p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status); done; echo out; kill -9 $p"
    done = sbxfs("exec", session, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (125, b"out\n")
    assert b"crashed" in done.stderr
    assert not (session / "jobs/latest/exit").exists()


@pytest.mark.root
def test_ctl(place):
    mount, session = place
    assert sbxfs("ctl", session, "refresh").returncode == 0
    assert sbxfs("ctl", session / "fs", "refresh").returncode == 0
    assert status(session)["last"].startswith("refresh: ok")
    (session / "fs/control").write_text("mine")
    assert sbxfs("ctl", session / "fs", "refresh").returncode == 0
    assert (session / "fs/control").read_text() == "mine"
    done = sbxfs("ctl", session, "nonsense")
    assert done.returncode == 125 and b"Invalid argument" in done.stderr
    assert sbxfs("ctl", mount.mnt, "create", "dev2").returncode == 0
    assert (mount / "dev2").is_dir()
    job = session / "jobs" / start(session, "sleep 60")
    assert sbxfs("ctl", job, "signal", "TERM").returncode == 0
    assert ended(job)["signal"] == "TERM"
    assert sbxfs("ctl", job, "remove").returncode == 0
    assert ids(session) == []
    assert sbxfs("ctl", session).returncode == 125
    assert alone(mount, "ctl", "dev3", "sync").returncode == 125
    assert alone(mount, "ctl", "dev2", "refresh").returncode == 0
    assert status(mount / "dev2")["last"].startswith("refresh: ok")


@pytest.mark.root
def test_ls(place):
    mount, _ = place
    (mount / "dev2").mkdir()
    lines = sbxfs("ls", mount.mnt).stdout.decode().splitlines()
    assert [line.split("\t")[:3] for line in sorted(lines)] == [
        [str(mount / name), "live", status(mount / name)["id"]] for name in ("dev1", "dev2")]
    assert alone(mount, "ls").stdout.decode().splitlines() == lines
    assert sbxfs("ls", "/nowhere").returncode == 125


def test_help():
    done = sbxfs("help")
    assert done.returncode == 0
    for word in ("exec", "logs", "ctl", "ls", "help"):
        assert f"sbxfs {word}".encode() in done.stdout
        assert f"sbxfs {word}".encode() in sbxfs(word, "-h").stdout


def test_a_mount_point_named_like_one(start_sbxd, tmp_path):
    """./ls is a mount point."""
    server = start_sbxd()
    (tmp_path / "ls").mkdir()
    done = sbxfs("-o", f"state_dir={tmp_path}/state,cache_dir={tmp_path}/cache", server.url, "./ls",
                 cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    try:
        assert "README.md" in os.listdir(tmp_path / "ls")
    finally:
        subprocess.run(["fusermount3", "-u", tmp_path / "ls"], check=True)
    wait_for(lambda: not os.listdir(tmp_path / "ls"), 10)


def test_readme_lines(host, tmp_path):
    """The five lines run as they stand there."""
    mount, session = host
    text = (tree_dir() / "README.md").read_text()
    (script,) = re.findall(r"<!-- run by tests/mounted: jobs -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(script.splitlines()) == 5
    home = tmp_path / "home"
    home.mkdir()
    (home / "sbx").symlink_to(mount.mnt)
    (session / "fs/Makefile").write_text("all:\n\t@echo built; sleep 1\n")
    done = subprocess.run(["bash", "-c", "set -e\n" + script],
                          env={**os.environ, "HOME": str(home)}, capture_output=True, text=True,
                          timeout=scale(30), check=True)
    assert "built\n" in done.stdout
    assert "state: exited\n" in done.stdout
    assert ids(session) == []
