"""Life and death of jobs: cancels that reach all, mounts and servers that die, lost answers."""

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from jobtools import BACKENDS, ended, ids, running, start, status, workspace
from sbxtest.timing import scale, wait_for


def kill_mount(mount):
    """kill -9, then what a user does: unmount what is left and mount again."""
    mount.kill()
    subprocess.run(["fusermount3", "-uz", mount.mnt], check=True)
    mount.start()


def processes_with(text):
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            command = Path("/proc", name, "cmdline").read_bytes()
            state = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in command and state != b"Z":
            found.append(int(name))
    return found


def a_number():
    """Of seconds, which no other process sleeps."""
    return f"{70000 + os.getpid() % 1000}.{time.monotonic_ns() % 10**9:09d}"


def can_make_cgroups():
    return any(os.access(place + "/cgroup.procs", os.W_OK)
               for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))


CHILDREN = {
    "plain": "sleep {} & wait",
    "setsid": "setsid sleep {} & wait",
    "setsid-orphan": "(setsid sleep {} &) ; sleep 1000",
    "env-i": "env -i setsid sleep {} & wait",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_cancel_reaches_all(everywhere, child):
    server, _, session = everywhere
    mine = a_number()
    bystander = subprocess.Popen(["setsid", "sleep", mine + "1"])
    try:
        job = session / "jobs" / start(session, "echo begun; " + CHILDREN[child].format(mine))
        # As another process sees it: a sandbox's processes are this machine's.
        wait_for(lambda: len(processes_with(f"sleep\0{mine}\0")) == 1, 10)
        begun = time.monotonic()
        (job / "control").write_text("cancel\n")
        reachable = child != "env-i" or can_make_cgroups() or server.profile == "overlay"
        if reachable:
            wait_for(lambda: not processes_with(f"sleep\0{mine}\0"), 3)
            assert time.monotonic() - begun < scale(3)
        of_job = ended(job)
        assert (of_job["state"], of_job["exit"]) == ("cancelled", "143")
        assert (job / "output.log").read_text() == "begun\n"
        assert bystander.poll() is None
        if reachable:
            assert of_job["left"] == "0"
    finally:
        bystander.kill()
        bystander.wait()
        for pid in processes_with(f"sleep\0{mine}\0"):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("child", ["plain", "setsid"])
def test_time_out_reaches_all(make, child):
    _, _, session = make()
    mine = a_number()
    job = session / "jobs" / start(
        session, '{"command": "' + CHILDREN[child].format(mine) + '", "timeoutSeconds": 1}')
    assert ended(job)["state"] == "timedout"
    assert (job / "exit").read_text() == "124\n"
    wait_for(lambda: not processes_with(f"sleep\0{mine}\0"), 3)


def test_survivors_do_not_grow_the_log(make):
    """A job that has written exit has ended: its log is what it held then."""
    _, _, session = make()
    job = session / "jobs" / start(session, "echo job; (sleep 2; echo survivor) & exit 4")
    wait_for((job / "exit").exists, 10)
    with open(job / "output.log", "rb") as file:
        assert file.read() == b"job\n"
        time.sleep(2.5)
        assert file.read() == b""
    assert status(job)["bytes"] == "4"


def test_kill_of_the_mount_leaves_the_job(everywhere):
    server, mount, session = everywhere
    identity = start(session, "for i in 1 2 3 4 5 6; do echo line $i; sleep .3; done; "
                              "until [ -e ends ]; do sleep 0.1; done; exit 9")
    job = session / "jobs" / identity
    wait_for(lambda: (job / "output.log").read_bytes().startswith(b"line 1\n"), 10)
    early = (job / "output.log").read_bytes()
    kill_mount(mount)
    assert ids(session) == [identity]
    assert os.readlink(session / "jobs/latest") == identity
    assert (job / "output.log").read_bytes().startswith(early)
    assert status(job)["state"] == "running"
    (session / "fs/ends").touch()
    of_job = ended(job)
    assert (of_job["state"], of_job["exit"]) == ("exited", "9")
    assert (job / "output.log").read_text() == "".join(f"line {i}\n" for i in range(1, 7))
    assert (job / "exit").read_text() == "9\n"
    assert server.pid


def test_another_mount_sees_the_same(everywhere, start_mount):
    """Also with a state of its own, as from another machine."""
    server, mount, session = everywhere
    done = start(session, "printf done; exit 2")
    ended(session / "jobs" / done)
    going = start(session, "echo going; sleep 60")
    wait_for(lambda: (session / "jobs" / going / "output.log").read_bytes(), 10)
    other = start_mount(server.url, [f"attach={mount.status('dev1')['id']}:mine"]) / "mine"
    assert ids(other) == ids(session)
    assert os.readlink(other / "jobs/latest") == going
    assert (other / "jobs" / done / "output.log").read_bytes() == b"done"
    assert (other / "jobs" / done / "exit").read_text() == "2\n"
    assert status(other / "jobs" / done)["state"] == "exited"
    assert (other / "jobs" / going / "output.log").read_text() == "going\n"
    assert status(other / "jobs" / going)["state"] == "running"
    (other / "jobs" / going / "control").write_text("cancel\n")
    assert ended(session / "jobs" / going)["state"] == "cancelled"
    assert ended(other / "jobs" / going)["state"] == "cancelled"


@pytest.mark.parametrize("backend", ["host", "overlay"])
@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("how", ["drop", "cut=5", "garbage"])
def test_a_lost_answer_starts_once(make, backend, lost, how):
    server, _, session = make(backend)
    ended(session / "jobs" / start(session, "true"))
    server.set_faults(f"exec:{lost}:{how}")
    try:
        started = start(session, "echo ran >> runs; echo out")
    except OSError as error:
        # The foreign answer was the leader's: nothing was done, and nothing is shown.
        assert how == "garbage" and error.errno == errno.EIO
        time.sleep(1.2)
        assert len(ids(session)) == 1 and not (session / "fs/runs").exists()
        return
    finally:
        server.set_faults()
    assert len(ids(session)) == 2
    job = session / "jobs" / started
    assert ended(job)["exit"] == "0"
    assert (session / "fs/runs").read_text() == "ran\n"
    assert (job / "output.log").read_text() == "out\n"


@pytest.mark.parametrize("seconds", [6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_keeps_its_session_awake(make, backend, seconds):
    """Nobody reads, the mount is dead, the server puts idle sessions to sleep after 2 s."""
    server, mount, session = make(backend, idle_ttl_ms=2000, sweep_ms=200)
    identity = start(session, f"for i in $(seq {seconds}); do echo $i >> made; sleep 1; done; "
                              "echo whole; exit 6")
    root = workspace(server, session).resolve()
    time.sleep(1)
    mount.kill()
    subprocess.run(["fusermount3", "-uz", mount.mnt], check=True)
    time.sleep(seconds - 1)
    with server.client() as client:
        mount.start()
        job = session / "jobs" / identity
        of_job = ended(job)
        assert (of_job["state"], of_job["exit"]) == ("exited", "6")
        assert (job / "output.log").read_text() == "whole\n"
        assert (session / "fs/made").read_text() == "".join(
            f"{i}\n" for i in range(1, seconds + 1))
        assert workspace(server, session).resolve() == root
        assert client


def test_server_killed_under_a_job(make):
    """Its processes die with the server, so the job is crashed, and never shown as running."""
    server, mount, session = make("overlay")
    identity = start(session, "echo begun; sleep 100")
    job = session / "jobs" / identity
    wait_for(lambda: (job / "output.log").read_text() == "begun\n", 10)
    server.kill()
    server.start()
    (session / "control").write_text("reattach\n")
    begun = time.monotonic()
    wait_for(lambda: status(job)["state"] == "crashed", 5)
    assert time.monotonic() - begun < scale(5)
    assert not (job / "exit").exists()
    assert (job / "output.log").read_text() == "begun\n"
    fresh = session / "jobs" / start(session, "echo again")
    assert ended(fresh)["exit"] == "0"
    assert mount.pid


def test_logs_outlive_their_session(make):
    server, mount, session = make()
    job = session / "jobs" / start(session, "echo kept; exit 3")
    ended(job)
    assert (job / "output.log").read_text() == "kept\n"
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    time.sleep(1.2)
    assert (job / "output.log").read_text() == "kept\n"
    assert (job / "exit").read_text() == "3\n"
    assert status(job)["state"] == "exited"


def test_a_job_of_a_session_that_goes_is_lost(make):
    server, mount, session = make()
    job = session / "jobs" / start(session, "sleep 5; echo over")
    running(job)
    reader = subprocess.Popen(["cat", job / "wait"], stdout=subprocess.PIPE, text=True)
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    out, _ = reader.communicate(timeout=scale(20))
    assert out.startswith("state: lost\n")
    assert status(job)["state"] == "lost"
    assert not (job / "exit").exists()
    os.rmdir(session)


def test_unmounting_with_jobs(make):
    """Nothing waits for a job, and a following program sees an end."""
    _, mount, session = make()
    identity = start(session, "for i in $(seq 100); do echo $i; sleep .1; done")
    waits = subprocess.run(["timeout", "-s", "INT", "0.5", "cat",
                            session / "jobs" / identity / "wait.600"], check=False)
    assert waits.returncode
    begun = time.monotonic()
    mount.unmount()
    assert time.monotonic() - begun < scale(5)
    mount.start()
    assert status(session / "jobs" / identity)["state"] == "running"
    reader = subprocess.Popen(["cat", session / "jobs" / identity / "wait"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5)
    mount.signal(signal.SIGTERM)
    mount.wait_gone()
    assert reader.wait(scale(5)) != 0
    reader.stdout.close()
    reader.stderr.close()
    mount.start()
    (session / "jobs" / identity / "control").write_text("cancel\n")
    assert ended(session / "jobs" / identity)["state"] == "cancelled"


def test_a_workspace_that_holds_no_jobs(make):
    """Where the workspace can't be written, jobs lie elsewhere, and are listed all the same."""
    server, mount, session = make("overlay")
    with server.client() as client:
        client.exec(mount.status("dev1")["id"], ["sh", "-c", "rm -rf .sbxfs; touch .sbxfs"])
    identity = start(session, "echo elsewhere; sleep 1")
    assert ids(session) == [identity]
    assert ended(session / "jobs" / identity)["exit"] == "0"
    assert (session / "jobs" / identity / "output.log").read_text() == "elsewhere\n"
    meta = json.loads((session / "jobs" / identity / "meta.json").read_text())
    assert meta["dir"].startswith("/var/tmp/")
    kill_mount(mount)
    assert ids(session) == [identity]
    assert (session / "jobs" / identity / "output.log").read_text() == "elsewhere\n"
    subprocess.run(["rm", "-r", session / "jobs" / identity], check=True)
    assert ids(session) == []
