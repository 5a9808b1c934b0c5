"""Signals that are sent through `control`: each once, in order, to the job and nobody else."""

import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest

from jobtools import BACKENDS, ended, running, start, status
from sbxtest.timing import scale, wait_for


@pytest.fixture(params=[*BACKENDS, "host-without-setsid"])
def session(request, make):
    if request.param != "host-without-setsid":
        return make(request.param)[2]
    server, _, session = make("host-busybox")
    (tools,) = server.root.glob("**/.busybox")
    # A shell that has no applets of its own.
    (tools / "setsid").unlink()
    (tools / "sh").unlink()
    (tools / "sh").symlink_to("/usr/bin/dash")
    return session


def ask(job, words):
    """With one write: Python's own files write again what could not be written."""
    fd = os.open(job / "control", os.O_WRONLY)
    try:
        os.write(fd, words.encode() + b"\n")
    finally:
        os.close(fd)


def refused(job, words):
    with pytest.raises(OSError) as caught:
        ask(job, words)
    return caught.value.errno


def log(job):
    return (job / "output.log").read_text()


def begin(session, command):
    job = session / "jobs" / start(session, command)
    wait_for(lambda: log(job).startswith("ready\n"), 10)
    return job


TICKING = "echo ready; while :; do echo tick; sleep .1; done"


def test_stopped_and_continued(session):
    job = begin(session, TICKING)
    ask(job, "signal STOP")
    time.sleep(scale(1))
    before = log(job)
    time.sleep(scale(1))
    assert log(job) == before
    assert status(job)["state"] == "running"
    ask(job, "signal CONT")
    wait_for(lambda: len(log(job)) > len(before), 5)
    ask(job, "signal STOP")
    begun = time.monotonic()
    ask(job, "cancel")
    of_job = ended(job)
    assert (of_job["state"], of_job["exit"], of_job["left"]) == ("cancelled", "143", "0")
    assert time.monotonic() - begun < scale(5)


@pytest.mark.parametrize("name", ["KILL", "ALRM", "SIGTERM", "INT", "QUIT", "10"])
def test_what_ends_the_job_is_its_end(session, name):
    """Not the end of who looks after it."""
    job = begin(session, "echo ready; exec sleep 60")
    ask(job, "signal " + name)
    of_job = ended(job, 10)
    number = int(name) if name.isdigit() else getattr(signal, "SIG" + name.removeprefix("SIG"))
    assert (of_job["state"], of_job["exit"]) == ("exited", str(128 + number))
    assert of_job["signal"] == signal.Signals(number).name.removeprefix("SIG")
    assert refused(job, "signal TERM") == errno.ESRCH


COUNTING = """
for s in HUP USR1 USR2 INT; do trap "echo $s" $s; done
echo ready; while :; do sleep .05; done
"""


def test_each_signal_arrives_once_and_in_order(session):
    job = begin(session, COUNTING)
    expected = ""
    for name in ("HUP", "USR1", "USR2", "INT") * 2:
        ask(job, "signal " + name)
        expected += name + "\n"
        if name == "INT":
            # What is pending twice is delivered once.
            wait_for(lambda: log(job).count("INT\n") == expected.count("INT\n"), 5)
    time.sleep(scale(0.6))
    # A shell also says what its children ended of. Signals that are pending together are delivered
    # in the order of their numbers.
    seen = [line for line in log(job).splitlines() if line in expected.split()]
    assert sorted(seen) == sorted(expected.split())
    ask(job, "cancel")
    assert ended(job)["state"] == "cancelled"


@pytest.mark.parametrize("how", ["drop", "cut=5"])
def test_a_lost_answer_signals_once(make, how):
    server, _, session = make()
    job = begin(session, COUNTING)
    lost = 0
    for _ in range(4):
        server.set_faults(f"exec:1:{how}")
        try:
            ask(job, "signal USR1")
        except OSError as error:
            assert error.errno == errno.EIO
            lost += 1
        finally:
            server.set_faults()
        time.sleep(scale(0.6))
    wait_for(lambda: log(job).count("USR1\n") >= 4 - lost, 5)
    assert log(job).count("USR1\n") <= 4
    ask(job, "cancel")
    assert ended(job)["state"] == "cancelled"


def test_many_signals_are_all_done(make):
    """What was done is remembered for a while only; the directory does not fill up."""
    server, mount, session = make()
    job = begin(session, "n=0; trap 'n=$((n+1)); echo $n' USR1; echo ready; "
                         "while :; do sleep .02; done")
    for i in range(1, 41):
        ask(job, "signal USR1")
        wait_for(lambda i=i: f"\n{i}\n" in log(job), 5)
    theirs = server.session_dir(mount.status("dev1")["id"]) / ".sbxfs/jobs" / job.name
    assert len(list(theirs.glob("ask.*"))) <= 33
    ask(job, "cancel")
    assert ended(job)["state"] == "cancelled"


def test_no_such_signal(session):
    job = begin(session, TICKING)
    for words in ("signal FOO", "signal 99", "signal 0", "signal TERM1"):
        assert refused(job, words) == errno.EINVAL, words
    assert status(job)["state"] == "running"
    for words in ("signal WINCH", "signal SIGCONT"):
        ask(job, words)
    ask(job, "cancel")
    assert ended(job)["state"] == "cancelled"


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("backend", ["host", "host-busybox"])
def test_a_group_of_its_own(make, backend):
    """pgid of meta.json is the job's group, which is not its leader's."""
    _, _, session = make(backend)
    job = begin(session, TICKING)
    pgid = json.loads((job / "meta.json").read_text())["pgid"]
    assert os.getpgid(pgid) == pgid
    assert os.getpgid(parent(pgid)) != pgid
    os.killpg(pgid, signal.SIGKILL)
    assert ended(job)["exit"] == "137"


def test_nobody_is_left_to_ask(make):
    """The leader was killed, its files are there: nothing is promised."""
    _, _, session = make()
    job = begin(session, TICKING)
    running(job)
    pgid = json.loads((job / "meta.json").read_text())["pgid"]
    leader = parent(pgid)
    os.kill(leader, signal.SIGKILL)
    wait_for(lambda: parent(pgid) != leader, 10)
    try:
        assert refused(job, "signal TERM") == errno.ESRCH
        assert refused(job, "cancel") == errno.ESRCH
        assert ended(job)["state"] == "crashed"
    finally:
        os.killpg(pgid, signal.SIGKILL)
