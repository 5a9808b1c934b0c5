"""Jobs as files: starting them, what their directory shows, ending and removing them."""

import errno
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from jobtools import BACKENDS, ended, ids, programs, running, start, status, workspace
from sbxtest.calls import fails
from sbxtest.terminal import run_in_terminal
from sbxtest.timing import scale, wait_for


def refused(session, text):
    """The errno that starting it gives to read()."""
    fd = os.open(session / "jobs/new", os.O_RDWR)
    try:
        os.write(fd, text.encode() if isinstance(text, str) else text)
        return fails(os.read, fd, 4096)
    finally:
        os.close(fd)


def test_a_job_from_start_to_end(everywhere):
    _, _, session = everywhere
    assert set(os.listdir(session / "jobs")) == {"new"}
    identity = start(session, "echo out; echo err >&2; until [ -e ends ]; do sleep 0.1; done; "
                              "printf last; exit 3")
    job = session / "jobs" / identity
    assert os.readlink(session / "jobs/latest") == identity
    assert set(os.listdir(session / "jobs")) == {"new", "latest", identity}
    assert set(os.listdir(job)) == {"meta.json", "output.log", "status", "control"}
    assert not (job / "exit").exists()
    (session / "fs/ends").touch()
    of_job = ended(job)
    assert list(of_job)[:8] == ["state", "exit", "signal", "started", "ended", "seconds", "bytes",
                                "command"]
    assert (of_job["state"], of_job["exit"], of_job["bytes"]) == ("exited", "3", "12")
    assert of_job == status(job)
    for key in ("started", "ended"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", of_job[key])
    assert (job / "exit").read_text() == "3\n"
    assert (job / "output.log").read_bytes() == b"out\nerr\nlast"
    assert os.stat(job / "output.log").st_size == 12
    assert set(os.listdir(job)) == {"meta.json", "output.log", "status", "control", "exit"}
    meta = json.loads((job / "meta.json").read_text())
    assert meta["jobId"] == identity and meta["version"] == 1 and meta["pgid"] > 0
    assert meta["outputFile"] == meta["dir"] + "/output.log"
    assert meta["exitFile"] == meta["dir"] + "/exit"
    assert meta["session"] == status(session)["id"]


def test_modes_and_numbers(host):
    _, _, session = host
    jobs = [session / "jobs" / start(session, "true") for _ in range(2)]
    for job in jobs:
        ended(job)
    seen = set()
    for path, mode in [(session / "jobs", 0o40700), (session / "jobs/new", 0o100600)] + [
            (job / name, mode) for job in jobs for name, mode in
            {"": 0o40700, "meta.json": 0o100400, "output.log": 0o100400, "exit": 0o100400,
             "status": 0o100400, "control": 0o100600, "wait": 0o100400}.items()]:
        found = os.stat(path)
        assert oct(found.st_mode) == oct(mode), path
        assert found.st_ino not in seen, path
        seen.add(found.st_ino)
    listed = {entry.name: entry.inode() for entry in os.scandir(session / "jobs")}
    for job in jobs:
        assert listed[job.name] == os.stat(job).st_ino
        for entry in os.scandir(job):
            assert entry.inode() == os.stat(entry.path).st_ino, entry.name


@pytest.mark.parametrize("backend", BACKENDS)
def test_environment_and_streams(make, monkeypatch, backend):
    """Its own variables and the backend's, nothing of this machine's; no stdin, no terminal."""
    monkeypatch.setenv("SBX_TEST_MARKER", "of this machine")
    _, _, session = make(backend)
    (session / "fs/d").mkdir()
    job = session / "jobs" / start(session, json.dumps({
        "command": "pwd; cat; tty; umask; env -0 | tr '\\n\\0' '~\\n' | sort",
        "cwd": "d", "env": {"A": "x y='z'", "B": "1\n2"}}))
    assert ended(job)["state"] == "exited"
    directory, tty, umask, *lines = (job / "output.log").read_text().splitlines()
    assert directory.endswith("/d")
    assert (tty, umask) == ("not a tty", "0022")
    env = dict(line.split("=", 1) for line in lines)
    # The shell's own, and the mark by which a job's processes are found.
    shells = {"PWD", "OLDPWD"} | ({"SHLVL"} if "busybox" in backend else set())
    assert set(env) == {"A", "B", "HOME", "PATH", "LANG", "SBXFS_JOB", *shells}
    assert (env["A"], env["B"]) == ("x y='z'", "1~2")
    assert env["LANG"] == "C.UTF-8"
    assert env["HOME"] == "/root" and env["PATH"]
    assert env["PWD"] == directory


def test_text_is_utf8(everywhere):
    _, _, session = everywhere
    command = 'printf "é日本\\n"'
    if subprocess.run(["test", "-x", session / ".sbxfs-root/usr/bin/python3"],
                      check=False).returncode == 0 and "busybox" not in status(
                          session)["capabilities"].lower():
        command = "python3 -c 'print(\"é日本\")'"
    job = session / "jobs" / start(session, command)
    ended(job)
    assert (job / "output.log").read_bytes() == "é日本\n".encode()


def test_where_it_runs(host):
    server, mount, session = host
    (session / "fs/a/b").mkdir(parents=True)
    root = str(workspace(server, session).resolve())
    for cwd, expected in ((None, root), ("", root), ("a", root + "/a"), ("a/b", root + "/a/b"),
                          ("./a/../a", root + "/a"), ("/usr", "/usr"),
                          (str(session / "fs"), root), (str(session / "fs/a/b"), root + "/a/b"),
                          (f"{mount.mnt}/dev1/./fs//a", root + "/a")):
        job = session / "jobs" / start(session, json.dumps({"command": "pwd -P", "cwd": cwd}))
        assert ended(job)["state"] == "exited"
        assert (job / "output.log").read_text() == expected + "\n", cwd


def test_what_is_refused(host):
    server, _, session = host
    (session / "fs/file").write_text("x")
    for text, expected in (
            ('{"command": "true", "cwd": "nowhere"}', errno.ENOENT),
            ('{"command": "true", "cwd": "/no/where"}', errno.ENOENT),
            ('{"command": "true"', errno.EINVAL),
            ('{"command": ""}', errno.EINVAL),
            ('{"cmd": "true"}', errno.EINVAL),
            ('{"command": "true", "id": "../x"}', errno.EINVAL),
            ('{"command": "true", "id": ".x"}', errno.EINVAL),
            ('{"command": "true", "id": "new"}', errno.EINVAL),
            ('{"command": "true", "id": "' + "x" * 65 + '"}', errno.EINVAL),
            ('{"command": "true", "timeoutSeconds": -1}', errno.EINVAL),
            ('{"command": "true", "env": {"A B": "1"}}', errno.EINVAL),
            ("a\0b", errno.EINVAL)):
        assert refused(session, text) == expected, text
    assert ids(session) == []
    assert "jobs/new" in (session / "errors").read_text()
    # An id is taken once, be it from this mount or not.
    start(session, '{"command": "true", "id": "one"}')
    assert refused(session, '{"command": "echo again", "id": "one"}') == errno.EEXIST
    assert ids(session) == ["one"]
    assert (session / "jobs/one/output.log").read_bytes() == b""
    # The error is the close's, too.
    fd = os.open(session / "jobs/new", os.O_WRONLY)
    os.write(fd, b'{"command": "true", "id": "one"}')
    assert fails(os.close, fd) == errno.EEXIST
    assert len(ids(session)) == 1
    assert server.pid


def test_without_exec(make):
    _, _, session = make(options=["exec=no"])
    assert os.listdir(session / "jobs") == ["new"]
    fd = os.open(session / "jobs/new", os.O_WRONLY)
    try:
        assert fails(os.write, fd, b"true\n") == errno.EOPNOTSUPP
    finally:
        os.close(fd)


def test_server_without_exec(make):
    _, _, session = make(args=["--no-exec"])
    assert os.listdir(session / "jobs") == ["new"]
    assert refused(session, "true") == errno.EOPNOTSUPP


TEXTS = {
    "three-lines": ("echo one\necho two\necho three\n", "one\ntwo\nthree\n"),
    "big": (": '\n" + "".join("y" * 4095 + "\n" for _ in range(50)) + "'; echo done\n", "done\n"),
    "json": (json.dumps({"command": "echo a\necho b", "env": {"X": "1"}}, indent=2) + "\n",
             "a\nb\n"),
}
PYTHON_OS = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
text = sys.stdin.buffer.read()
while text:
    text = text[os.write(fd, text):]
print(os.read(fd, 100).decode(), end="")
"""
PYTHON_OPEN = """
import sys
with open(sys.argv[1], "r+") as file:
    file.write(sys.stdin.read())
    file.flush()
    print(file.readline(), end="")
"""
NODE = """
const fs = require("fs");
const fd = fs.openSync(process.argv[1], "r+");
fs.writeSync(fd, fs.readFileSync(0));
const buffer = Buffer.alloc(100);
process.stdout.write(buffer.subarray(0, fs.readSync(fd, buffer)));
"""
SHELL = 'text=$(cat; echo x); text=${text%x}; exec 3<>"$1"; printf %s "$text" >&3; ' \
        'read -r id <&3; echo "$id"'
WRITERS = {
    "bash": ["bash", "-c", SHELL, "bash"],
    "dash": ["dash", "-c", SHELL, "dash"],
    "cat": ["bash", "-c", 'exec 3<>"$1"; cat >&3; read -r id <&3; echo "$id"', "bash"],
    "python-os": ["python3", "-c", PYTHON_OS],
    "python-open": ["python3", "-c", PYTHON_OPEN],
    "node": ["node", "-e", NODE],
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_each_text_starts_one_job(host, writer, text):
    _, _, session = host
    command, expected = TEXTS[text]
    got = subprocess.run([*WRITERS[writer], session / "jobs/new"], input=command, check=True,
                         capture_output=True, text=True, timeout=scale(30)).stdout
    assert ids(session) == [got.strip()] and got.endswith("\n")
    job = session / "jobs" / got.strip()
    assert ended(job)["state"] == "exited"
    assert (job / "output.log").read_text() == expected
    if text != "big":
        assert json.loads((job / "meta.json").read_text())["command"] + "\n" == \
            (command if text != "json" else "echo a\necho b\n")


REPLACE = """
import os, sys, tempfile
new = sys.argv[1]
fd, path = tempfile.mkstemp(dir=os.path.dirname(new))
os.write(fd, sys.stdin.buffer.read())
os.fsync(fd)
os.close(fd)
os.replace(path, new)
"""
# name: words, where {} is jobs/new and the text comes from standard input
TOOLS = {
    "redirect-bash": ["bash", "-c", 'text=$(cat); echo "$text" > {}'],
    "redirect-dash": ["dash", "-c", 'text=$(cat); echo "$text" > {}'],
    "append": ["bash", "-c", "cat >> {}"],
    "group": ["bash", "-c", '{ head -c 5; cat; } > {}'],
    "tee": ["tee", "{}"],
    "cp": ["bash", "-c", "cat > $TMP/text && cp $TMP/text {}"],
    "install-over": ["bash", "-c", "cat > $TMP/text && cp --remove-destination $TMP/text {} "
                                   "|| cp $TMP/text {}"],
    "replace": ["python3", "-c", REPLACE, "{}"],
    "node": ["node", "-e", "const fs = require('fs');"
                           "fs.writeFileSync(process.argv[1], fs.readFileSync(0))", "{}"],
    "sed-i": ["bash", "-c", "sed -i \"\\$a $(cat)\" {}"],
    "python": ["python3", "-c",
               "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", "{}"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_start_one_job(host, tool, tmp_path):
    _, _, session = host
    words = [word.replace("{}", str(session / "jobs/new")) for word in TOOLS[tool]]
    if tool == "group":
        words[2] = TOOLS[tool][2].replace("{}", str(session / "jobs/new"))
    subprocess.run(words, input='{"command": "echo ran", "id": "mine"}', text=True, check=True,
                   env={**os.environ, "TMP": str(tmp_path)}, timeout=scale(20),
                   capture_output=True)
    wait_for(lambda: ids(session) == ["mine"], 5)
    assert os.readlink(session / "jobs/latest") == "mine"
    assert ended(session / "jobs/mine")["exit"] == "0"
    assert (session / "jobs/mine/output.log").read_text() == "ran\n"


@pytest.mark.parametrize("backupcopy", ["yes", "no", "auto"])
def test_vim_starts_one_job(host, backupcopy):
    _, _, session = host
    assert run_in_terminal([
        "vim", "-u", "NONE", "-N", "-i", "NONE", "-c", f"set backupcopy={backupcopy} backup",
        "-c", "normal Goecho from vim", "-c", "wq", session / "jobs/new"]) == 0
    (identity,) = (name for name in ids(session) if name[0].isdigit())
    assert ended(session / "jobs" / identity)["command"] == "echo from vim"
    assert (session / "jobs" / identity / "output.log").read_text() == "from vim\n"


def test_help_may_be_saved_back(host):
    _, _, session = host
    new = session / "jobs/new"
    text = new.read_text()
    assert all(line.startswith("#") for line in text.splitlines())
    new.write_text(text)
    assert ids(session) == []
    new.write_text(text + "echo saved\r\n")
    (identity,) = ids(session)
    job = session / "jobs" / identity
    assert ended(job)["command"] == "echo saved"
    assert (job / "output.log").read_text() == "saved\n"
    for change in (lambda: os.chmod(new, 0o644), lambda: os.utime(new, (1, 1)),
                   lambda: os.truncate(new, 0)):
        change()
    assert fails(os.unlink, new) == errno.EPERM


def test_children_of_a_writer_do_not_start_half(host):
    """Each child of a shell flushes the shell's open file when it ends."""
    _, _, session = host
    new = session / "jobs/new"
    subprocess.run(["bash", "-c", "{ /bin/echo echo one; sleep .2; /bin/echo echo two; } > " +
                    str(new)], check=True, timeout=scale(20))
    (identity,) = ids(session)
    ended(session / "jobs" / identity)
    assert (session / "jobs" / identity / "output.log").read_text() == "one\ntwo\n"


def test_one_command_an_open_file(host):
    _, _, session = host
    fd = os.open(session / "jobs/new", os.O_RDWR)
    try:
        assert os.read(fd, 10) == b"# Write a "
        os.write(fd, b"echo on")
        os.write(fd, b"e\n")
        first = os.read(fd, 3)
        rest = os.read(fd, 100)
        assert os.read(fd, 100) == b""
        os.write(fd, b"\n")
        assert fails(os.write, fd, b"echo two\n") == errno.EBUSY
    finally:
        os.close(fd)
    assert ids(session) == [(first + rest).decode().strip()]
    fd = os.open(session / "jobs/new", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            for _ in range(300):
                os.write(fd, b"#" * 4096)
        assert caught.value.errno == errno.EFBIG
    finally:
        os.close(fd)


def test_unsent_bytes_are_there_before_it_runs(host):
    _, _, session = host
    with open(session / "fs/input", "wb") as file:
        file.write(b"written before")
        file.flush()
        job = session / "jobs" / start(session, "cat input; echo made > output")
        assert ended(job)["state"] == "exited"
    assert (job / "output.log").read_bytes() == b"written before"
    # And what it made is there when its end is.
    assert (session / "fs/output").read_text() == "made\n"


def test_end_makes_caches_stale(host):
    _, _, session = host
    for i in range(5):
        assert not (session / f"fs/made{i}").exists()
        (session / "fs/changed").write_text("before")
        assert (session / "fs/changed").read_text() == "before"
        job = session / "jobs" / start(session, f"sleep .3; touch made{i}; echo after > changed")
        running(job)
        assert not (session / f"fs/made{i}").exists()
        wait_for((job / "exit").exists, 10)
        assert (session / f"fs/made{i}").exists()
        assert (session / "fs/changed").read_text() == "after\n"


def test_wait(everywhere):
    _, _, session = everywhere
    job = session / "jobs" / start(session, "until [ -e ends ]; do sleep 0.1; done; sleep 1")
    begun = time.monotonic()
    assert "state: running" in (job / "wait.0").read_text()
    assert time.monotonic() - begun < scale(3)
    begun = time.monotonic()
    assert "state: running" in (job / "wait.1").read_text()
    assert 0.9 < time.monotonic() - begun < 1 + scale(3)
    (session / "fs/ends").touch()
    begun = time.monotonic()
    assert "state: exited" in (job / "wait").read_text()
    assert 0.9 < time.monotonic() - begun < 1 + scale(4)
    assert "state: exited" in (job / "wait.100").read_text()
    for name in ("wait.", "wait.x", "wait.-1", "wait.1.5", "wait.9999999999", "waits"):
        assert not (job / name).exists(), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_the_wait_not_the_job(host, number):
    _, _, session = host
    job = session / "jobs" / start(session, "sleep 30")
    reader = subprocess.Popen(["cat", job / "wait"], stdout=subprocess.PIPE)
    time.sleep(0.5)
    assert reader.poll() is None
    reader.send_signal(number)
    reader.wait(scale(3))
    reader.stdout.close()
    assert status(job)["state"] == "running"
    (job / "control").write_text("cancel\n")
    assert ended(job)["state"] == "cancelled"


def test_cancel_signal_timeout(everywhere):
    _, _, session = everywhere
    jobs = session / "jobs"
    long = jobs / start(session, "sleep 60")
    (long / "control").write_text("cancel\n")
    of_job = ended(long)
    assert (of_job["state"], of_job["exit"]) == ("cancelled", "143")
    assert (long / "exit").read_text() == "143\n"
    assert fails(lambda: (long / "control").write_text("cancel\n")) == errno.ESRCH

    trapping = jobs / start(session, "trap 'echo got; exit 7' USR1; echo ready; "
                                     "while :; do sleep .1; done")
    wait_for(lambda: (trapping / "output.log").read_text() == "ready\n", 10)
    (trapping / "control").write_text("signal USR1\n")
    assert ended(trapping)["exit"] == "7"
    # The whole group gets it; a shell may say what became of its child.
    assert (trapping / "output.log").read_text().endswith("\ngot\n")

    stubborn = jobs / start(session, "trap '' TERM; echo ready; while :; do sleep .1; done")
    wait_for(lambda: (stubborn / "output.log").read_text() == "ready\n", 10)
    assert fails(lambda: (stubborn / "control").write_text("nonsense\n")) == errno.EINVAL
    assert fails(lambda: (stubborn / "control").write_text("signal no;such\n")) == errno.EINVAL
    (stubborn / "control").write_text("cancel\n")
    assert ended(stubborn)["state"] == "cancelled"

    bounded = jobs / start(session, '{"command": "sleep 60", "timeoutSeconds": 1}')
    of_job = ended(bounded)
    assert (of_job["state"], of_job["exit"]) == ("timedout", "124")
    killed = jobs / start(session, "kill -9 $$")
    of_job = ended(killed)
    assert (of_job["state"], of_job["exit"], of_job["signal"]) == ("exited", "137", "KILL")


def test_control_through_tools(host):
    _, _, session = host
    job = session / "jobs" / start(session, "sleep 60")
    control = job / "control"
    assert "# cancel" in control.read_text()
    control.write_text(control.read_text())
    assert status(job)["state"] == "running"
    subprocess.run(["sed", "-i", "$a cancel", control], check=True, timeout=scale(20))
    assert ended(job)["state"] == "cancelled"


def test_killed_inside_is_crashed(everywhere):
    _, _, session = everywhere
    job = session / "jobs" / start(session, "echo begun; sleep 1; kill -9 $PPID")
    of_job = ended(job)
    assert (of_job["state"], of_job["exit"]) == ("crashed", "")
    assert not (job / "exit").exists()
    assert (job / "output.log").read_text() == "begun\n"
    assert "exit" not in os.listdir(job)
    subprocess.run(["rm", "-r", job], check=True)
    assert ids(session) == []


def test_files_are_hidden_and_jobs_removed(everywhere):
    _, _, session = everywhere
    job = session / "jobs" / start(session, "until [ -e ends ]; do sleep 0.1; done; echo out")
    running(job)
    assert fails(os.unlink, job / "output.log") == errno.EBUSY
    assert fails(os.rmdir, job) == errno.EBUSY
    assert fails(lambda: (job / "control").write_text("remove\n")) == errno.EBUSY
    assert fails(os.rmdir, session) == errno.EBUSY
    (session / "fs/ends").touch()
    ended(job)
    (session / "fs/ends").unlink()
    os.unlink(job / "output.log")
    assert not (job / "output.log").exists()
    assert "output.log" not in os.listdir(job)
    assert (job / "status").exists()
    subprocess.run(["rm", "-rf", job], check=True)
    assert not job.exists() and ids(session) == []
    assert not os.path.lexists(session / "jobs/latest")
    second = session / "jobs" / start(session, "true")
    ended(second)
    os.rmdir(second)
    third = session / "jobs" / start(session, "true")
    ended(third)
    (third / "control").write_text("remove\n")
    assert not third.exists()
    assert ids(session) == []
    os.rmdir(session)


def test_an_id_can_be_used_again(host):
    _, _, session = host
    for text in ("first", "second"):
        job = session / "jobs" / start(session, f'{{"command": "echo {text}", "id": "again"}}')
        ended(job)
        assert (job / "output.log").read_text() == text + "\n"
        subprocess.run(["rm", "-r", job], check=True)
        assert not job.exists()


def test_only_so_many_are_kept(make):
    _, _, session = make(options=["jobs_keep=3"])
    started = []
    for _ in range(6):
        started.append(start(session, "true"))
        ended(session / "jobs" / started[-1])
    wait_for(lambda: len(ids(session)) <= 4, 10)
    assert set(ids(session)) >= set(started[-3:])


def test_two_sessions(host):
    _, mount, session = host
    (mount / "dev2").mkdir()
    other = mount / "dev2"
    one = start(session, "sleep 30")
    two = start(other, "echo two")
    assert ids(session) == [one] and ids(other) == [two]
    assert not (other / "jobs" / one).exists()
    assert fails(lambda: (other / "jobs" / one / "control").write_text("cancel\n")) == errno.ENOENT
    ended(other / "jobs" / two)
    assert status(session / "jobs" / one)["state"] == "running"
    (session / "jobs" / one / "control").write_text("cancel\n")
    ended(session / "jobs" / one)


@pytest.mark.long(15)
def test_exit_never_comes_before_the_log_is_whole(everywhere):
    _, _, session = everywhere
    short = []

    def many(count):
        for _ in range(count):
            job = session / "jobs" / start(session, "printf abc")
            wait_for((job / "exit").exists, 20, step=0.005)
            found = (job / "output.log").read_bytes(), (job / "exit").read_text()
            if found != (b"abc", "0\n"):
                short.append(found)

    workers = [threading.Thread(target=many, args=(25,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert short == []
    assert len(ids(session)) == 100


def test_a_shell_waits_for_exit(everywhere):
    server, _, session = everywhere
    job = session / "jobs" / start(session, "sleep 2")
    before = len(server.log())
    subprocess.run(["bash", "-c", 'until [ -e "$1/exit" ]; do sleep .1; done', "bash", job],
                   check=True, timeout=scale(20))
    end = os.stat(workspace(server, session) / ".sbxfs/jobs" / job.name / "exit").st_mtime
    assert time.time() - end < scale(2)
    assert programs(server.log(before)).get("sbxfs-jobpoll", 0) < 12


def test_nothing_else_is_asked_by_those_who_read_all(host):
    server, mount, session = host
    (session / "fs/d").mkdir()
    (session / "fs/d/f").write_text("needle\n")
    job = session / "jobs" / start(session, "echo needle; sleep 60")
    wait_for(lambda: (job / "output.log").read_text() == "needle\n", 10)
    before = len(server.log())
    for words in (["grep", "-r", "needle", mount.mnt], ["rg", "needle", mount.mnt],
                  ["tar", "cf", "/dev/null", "-C", mount.mnt, "."], ["find", mount.mnt],
                  ["du", "-s", mount.mnt], ["ls", "-lR", mount.mnt]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=scale(20), check=False)
        assert done.returncode == 0 or words[0] in ("tar", "grep"), (words, done.stderr)
        if words[0] in ("grep", "rg"):
            assert str(job / "output.log") in done.stdout
            assert str(session / "fs/d/f") in done.stdout
    asked = programs(server.log(before))
    assert set(asked) <= {"sbxfs-scan", "sbxfs-pack", "get", "sbxfs-joblook",
                          "sbxfs-jobpoll"}, asked
    assert asked.get("sbxfs-joblook", 0) <= 6
    (job / "control").write_text("cancel\n")
    ended(job)


def lay(directory, **files):
    """A job as the layout's own package writes one."""
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text)


def test_jobs_in_the_layouts_own_form(host):
    server, _, session = host
    root = workspace(server, session) / ".sbxfs/jobs"
    start(session, '{"command": "true", "id": "ours"}')

    def meta(name, pgid):
        where = root / name
        return json.dumps({"jobId": name, "pgid": pgid, "outputFile": f"{where}/output.log",
                           "exitFile": f"{where}/exit", "dir": str(where),
                           "createdAt": "2026-11-30T08:30:00.000Z", "version": 1})

    runs = subprocess.Popen(["setsid", "sleep", "60"])
    ends = subprocess.Popen(["setsid", "sleep", "60"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        lay(root / "1-running", meta_json=meta("1-running", runs.pid), output_log="a\nlast")
        lay(root / "2-exited", meta_json=meta("2-exited", gone.pid), output_log="b\n", exit="5\n")
        lay(root / "3-crashed", meta_json=meta("3-crashed", gone.pid), output_log="c\n")
        lay(root / "4-empty-exit", meta_json=meta("4-empty-exit", ends.pid), output_log="",
            exit="")
        time.sleep(1.1)
        jobs = session / "jobs"
        assert set(ids(session)) == {"1-running", "2-exited", "3-crashed", "4-empty-exit", "ours"}
        assert status(jobs / "1-running")["state"] == "running"
        assert (jobs / "1-running/output.log").read_bytes() == b"a\nlast"
        of_job = status(jobs / "2-exited")
        assert (of_job["state"], of_job["exit"]) == ("exited", "5")
        assert of_job["started"] == "2026-11-30T08:30:00Z"
        assert (jobs / "2-exited/output.log").read_text() == "b\n"
        assert (jobs / "2-exited/exit").read_text() == "5\n"
        assert status(jobs / "3-crashed")["state"] == "crashed"
        assert not (jobs / "3-crashed/exit").exists()
        assert status(jobs / "4-empty-exit")["state"] == "running"
        with open(root / "1-running/output.log", "a") as log:
            log.write(" more\n")
        wait_for(lambda: (jobs / "1-running/output.log").read_bytes() == b"a\nlast more\n", 10)
        (jobs / "1-running/control").write_text("cancel\n")
        runs.wait(scale(5))
        wait_for(lambda: status(jobs / "1-running")["state"] in ("exited", "cancelled"), 10)
        assert (jobs / "1-running/exit").read_text() == "143\n"
        ends.kill()
        ends.wait()
        wait_for(lambda: status(jobs / "4-empty-exit")["state"] == "crashed", 15)
    finally:
        for process in (runs, ends):
            process.kill()
            process.wait()


def test_another_root_is_read_where_it_is_named(make, tmp_path):
    root = tmp_path / "their jobs"
    lay(root / "1700000000000-abc", meta_json='{"jobId": "1700000000000-abc", "pgid": 999999, '
        '"createdAt": "2023-11-14T22:13:20.000Z", "version": 1}', output_log="theirs", exit="0\n")
    _, _, session = make(options=[f"jobs_root={root}"])
    assert ids(session) == ["1700000000000-abc"]
    job = session / "jobs/1700000000000-abc"
    assert (job / "output.log").read_text() == "theirs"
    assert status(job)["state"] == "exited"
    _, _, without = make()
    assert ids(without) == []


@pytest.mark.slow
def test_a_start_without_a_sign_has_crashed(host):
    server, _, session = host
    start(session, '{"command": "true", "id": "ours"}')
    (workspace(server, session) / ".sbxfs/jobs/silent").mkdir()
    time.sleep(1.1)
    job = session / "jobs/silent"
    assert status(job)["state"] == "starting"
    assert fails(os.rmdir, job) == errno.EBUSY
    wait_for(lambda: status(job)["state"] == "crashed", 20)
    assert not (job / "exit").exists()
    os.rmdir(job)
    assert ids(session) == ["ours"]
