"""The leader of a job and what is asked of it, in every shell and with every set of tools."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from base64 import b64decode
from pathlib import Path

import pytest

from sbxtest.build import tree_dir
from sbxtest.timing import scale, wait_for

PROGRAMS = tree_dir() / "client/programs"
NONCE = "0123456789abcdef01234567"


def text(name):
    sys.path.insert(0, str(PROGRAMS))
    try:
        from embed import strip
    finally:
        sys.path.pop(0)
    return strip(PROGRAMS / "prelude.sh") + strip(PROGRAMS / f"{name}.sh")


class Jobs:
    """Runs the programs in the workspace of a box, as one exec each."""

    def __init__(self, box, path):
        self.box = box
        self.root = box.root
        self.env = {"PATH": path, "LC_ALL": "C"}
        self.leaders = []
        self.op = uuid.uuid4().hex  # the mark of its processes, which are this machine's

    def _argv(self, name, *words):
        return [shutil.which("sh", path=self.env["PATH"]), "-c", text(name), f"sbxfs-{name}", NONCE,
                self.box.tools, "0", *map(str, words)]

    def start(self, command, identity="job", limit=0, variables=(), env=None):
        words = [identity, self.op, limit, self.root + "/spare", ".", '"version":1',
                 len(variables), *variables, command]
        self.leaders.append(subprocess.Popen(
            self._argv("jobrun", *words), cwd=self.root, stdin=subprocess.DEVNULL,
            env={**self.env, **(env or {})}, start_new_session=True))
        self.dir = f"{self.root}/.sbxfs/jobs/{identity}"
        wait_for(lambda: os.path.exists(self.dir + "/meta.json"), 10)
        return self.leaders[-1]

    def look(self, *words):
        """The records of the answer, NUL-terminated fields of all of them."""
        out = subprocess.run(self._argv("joblook", *words), cwd=self.root, env=self.env,
                             check=True, capture_output=True, text=True).stdout
        head, section, foot = out.splitlines()
        assert head == f"SBXFS1 {NONCE} - {len(section)}" and foot == f"END {NONCE}"
        return b64decode(section).decode().split("\0")[:-1]

    def ask(self, words, identity="id-1"):
        return self.look("ask", self.dir, identity, words)

    def read(self, name):
        with open(f"{self.dir}/{name}", encoding="utf-8") as file:
            return file.read()

    def end(self):
        self.leaders[-1].wait(scale(15))
        return self.read("end").split()[:2]

    def close(self):
        for leader in self.leaders:
            if leader.poll() is None:
                os.killpg(json.loads(self.read("meta.json"))["pgid"], signal.SIGKILL)
                leader.wait(scale(10))
        # A job whose leader was killed is nobody's, and a test that failed leaves it.
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"SBXFS_JOB={self.op}\0".encode() in environ.read_bytes():
                    os.kill(int(environ.parent.name), signal.SIGKILL)
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                pass


@pytest.fixture
def jobs(box, tool_paths):
    jobs = Jobs(box, tool_paths[box.kind])
    yield jobs
    jobs.close()


def test_none_of_its_names_reaches_the_job(jobs):
    """A name that the sandbox has set is as it was, or is not there; never with our value."""
    program = text("jobrun")
    names = set(re.findall(r"\b([A-Za-z_]\w*)=", program))
    names |= set(re.findall(r"\b(?:for|read -r) ([A-Za-z_]\w*)", program))
    names -= {"PATH", "HOME", "LANG", "IFS", "SBXFS_JOB", "_"}
    assert {"op", "id", "N", "D", "command", "p"} <= names
    jobs.start("env", env={name: "theirs" for name in names})
    assert jobs.end() == ["exited", "0"]
    seen = dict(line.split("=", 1) for line in jobs.read("output.log").splitlines() if "=" in line)
    assert {name: seen[name] for name in names & set(seen) if seen[name] != "theirs"} == {}
    assert seen["SBXFS_JOB"] == jobs.op


def test_its_variables(jobs):
    jobs.start("echo \"$op|$d|$PATH\"; printf '%s.' \"$A\"",
               variables=["op=prod", "d=/", "PATH=/nowhere", ":A=x\\ny\\0303\\n",
                          "SBXFS_JOB=other"])
    assert jobs.end() == ["exited", "0"]
    with open(jobs.dir + "/output.log", "rb") as log:
        assert log.read() == b"prod|/|/nowhere\nx\ny\xc3\n."


@pytest.mark.parametrize("name, code", [("KILL", 137), ("INT", 130), ("ALRM", 142), ("15", 143)])
def test_signals(jobs, name, code):
    jobs.start("echo ready; exec sleep 60")
    wait_for(lambda: jobs.read("output.log") == "ready\n", 5)
    assert jobs.ask("signal " + name) == []
    assert jobs.end() == ["exited", str(code)]
    assert jobs.read("exit") == f"{code}\n"
    assert jobs.ask("signal " + name) == ["r!ESRCH"]


def test_what_comes_twice_is_done_once(jobs):
    jobs.start("n=0; trap 'n=$((n+1)); echo $n' USR1; echo ready; while :; do sleep .05; done")
    wait_for(lambda: jobs.read("output.log") == "ready\n", 5)
    for identity in ("a", "a", "b", "a", "b"):
        assert jobs.ask("signal USR1", identity) == []
        time.sleep(scale(0.4))
    assert [line for line in jobs.read("output.log").splitlines() if line.isdigit()] == ["1", "2"]
    assert jobs.ask("signal FOO") == ["r!EINVAL"] and jobs.ask("signal 0") == ["r!EINVAL"]
    assert jobs.ask("cancel", "c") == []
    assert jobs.end() == ["cancelled", "143"]


def test_stopped_then_cancelled(jobs):
    jobs.start("echo ready; (setsid sleep 60 || sleep 60) & exec sleep 60")
    wait_for(lambda: jobs.read("output.log") == "ready\n", 5)
    jobs.ask("signal STOP", "a")
    time.sleep(scale(0.6))
    begun = time.monotonic()
    assert jobs.ask("cancel", "b") == []
    assert jobs.end() == ["cancelled", "143"]
    assert time.monotonic() - begun < scale(3)
    assert jobs.read("end").split()[4] == "0"


def test_a_time_limit(jobs):
    jobs.start("trap '' TERM; echo ready; while :; do sleep .1; done", limit=1)
    assert jobs.end() == ["timedout", "124"]


def test_nobody_there(jobs):
    assert jobs.look("ask", jobs.root + "/none", "id", "cancel") == ["r!ENOENT"]
    leader = jobs.start("sleep 60")
    leader.kill()
    leader.wait()
    if jobs.box.has("l"):
        assert jobs.ask("cancel") == ["r!ESRCH"]
    pgid = json.loads(jobs.read("meta.json"))["pgid"]
    # It says its id just before it gets its group.
    wait_for(lambda: os.getpgid(pgid) == pgid, 5)
    os.killpg(pgid, signal.SIGKILL)
