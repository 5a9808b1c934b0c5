"""Jobs whose files are taken away or cut in the sandbox, and a cache that can't hold their logs."""

import errno
import os
import subprocess
import threading
import time

import pytest

from jobtools import BACKENDS, ended, ids, programs, running, start, status
from sbxtest.timing import scale, wait_for

WHOLE = b"".join(b"%d\n" % i for i in range(1, 1200001))


def theirs(server, mount, job):
    return server.session_dir(mount.status("dev1")["id"]) / ".sbxfs/jobs" / job.name


def polls(server, after):
    return programs(server.log(after)).get("sbxfs-jobpoll", 0)


@pytest.mark.root
@pytest.mark.parametrize("backend", ["host", "host-busybox"])
def test_a_cache_that_is_full(make, small_disk, backend):
    """The log is read from the sandbox then, and asked for no more often than any other."""
    server, mount, session = make(backend, mount={"cache_dir": small_disk})
    job = session / "jobs" / start(session, "seq 1 1200000; sleep 3; printf 'e\\303'; sleep 1; "
                                            "printf '\\251'; exit 6")
    got = []
    follower = subprocess.Popen(["tail", "-c", "+1", "-f", job / "output.log"],
                                stdout=subprocess.PIPE)
    reader = threading.Thread(target=lambda: got.append(follower.stdout.read()))
    reader.start()
    wait_for(lambda: (job / "output.log").stat().st_size >= len(WHOLE), 30)
    before = len(server.log())
    time.sleep(2)
    assert polls(server, before) <= 12
    of_job = ended(job, 30)
    assert (of_job["state"], of_job["exit"]) == ("exited", "6")
    assert of_job["bytes"] == str(len(WHOLE) + 3)
    expected = WHOLE + "eé".encode()
    assert (job / "output.log").read_bytes() == expected
    time.sleep(scale(2))
    follower.terminate()
    reader.join()
    assert got == [expected]
    assert "log" in mount.read("dev1/errors")
    assert (session / "jobs" / start(session, "true")).exists()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["cut", "removed"])
def test_a_log_that_was_cut(make, start_mount, backend, how):
    """It had ended before this mount came: what is there is all there is."""
    server, mount, session = make(backend)
    job = session / "jobs" / start(session, "seq 1 1000")
    assert ended(job)["bytes"] == "3893"
    other = start_mount(server.url, [f"attach={mount.status('dev1')['id']}:mine"]) / "mine"
    seen = other / "jobs" / job.name
    assert status(seen)["bytes"] == "3893"
    log = theirs(server, mount, job) / "output.log"
    if how == "cut":
        os.truncate(log, 10)
    else:
        log.unlink()
    before = len(server.log())
    got = subprocess.run(["cat", seen / "output.log"], check=False, capture_output=True,
                         timeout=scale(20))
    assert got.stdout == (b"1\n2\n3\n4\n5\n" if how == "cut" else b"")
    assert (seen / "output.log").stat().st_size == len(got.stdout)
    time.sleep(1)
    assert polls(server, before) <= 3
    assert ended(seen)["exit"] == "0"


@pytest.mark.parametrize("backend", ["host", "overlay"])
def test_a_running_log_that_was_cut(make, backend):
    """What was shown stays, and nobody asks faster for it."""
    server, mount, session = make(backend)
    job = session / "jobs" / start(session, "seq 1 1000; sleep 3; exit 3")
    wait_for(lambda: (job / "output.log").stat().st_size == 3893, 10)
    whole = (job / "output.log").read_bytes()
    os.truncate(theirs(server, mount, job) / "output.log", 0)
    before = len(server.log())
    time.sleep(1)
    assert (job / "output.log").read_bytes() == whole
    assert polls(server, before) <= 6
    assert ended(job)["exit"] == "3"
    assert (job / "output.log").read_bytes() == whole


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("listed", [False, True])
def test_waiting_for_a_job_that_is_taken_away(make, backend, listed):
    """rm -rf in the sandbox, of a job that nobody has seen end: nobody waits for ever."""
    server, mount, session = make(backend)
    job = session / "jobs" / start(session, "echo out; sleep 60")
    running(job)
    waits = [subprocess.Popen(["cat", job / name], stdout=subprocess.PIPE, text=True)
             for name in ("wait", "wait.50")]
    log = os.open(job / "output.log", os.O_RDONLY)
    time.sleep(0.5)
    subprocess.run(["rm", "-rf", theirs(server, mount, job)], check=True)
    if listed:
        time.sleep(1.1)
        assert ids(session) == []
    for wait in waits:
        out, _ = wait.communicate(timeout=scale(10))
        assert out.startswith("state: lost\n")
    wait_for(lambda: ids(session) == [], 5)
    assert os.read(log, 100) == b"out\n"
    assert os.read(log, 100) == b""
    os.close(log)
    wait_for(lambda: not (job / "status").exists(), 5)
    before = len(server.log())
    time.sleep(2)
    assert polls(server, before) == 0


def test_another_job_under_the_same_id(make):
    """Who waits for the one that was replaced is told."""
    server, mount, session = make()
    start(session, '{"command": "sleep 60", "id": "same"}')
    job = session / "jobs/same"
    running(job)
    wait = subprocess.Popen(["cat", job / "wait"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    place = theirs(server, mount, job)
    op = (place / "op").read_text()
    # Both at once, as another mount does it between two looks of this one.
    (place / "op").write_text(op[::-1])
    time.sleep(1.1)
    os.listdir(session / "jobs")
    out, _ = wait.communicate(timeout=scale(10))
    assert out.startswith("state: lost\n")
    assert status(job)["state"] == "running"
    (job / "control").write_text("cancel\n")
    assert ended(job)["state"] == "cancelled"


def test_a_removed_job_is_no_file_any_more(make):
    """An open log of a job that was removed: what is here is read, the rest is stale."""
    server, mount, session = make()
    job = session / "jobs" / start(session, "head -c 6000000 /dev/zero | tr '\\0' x")
    ended(job)
    other_state = mount.status("dev1")["id"]
    assert other_state
    log = os.open(job / "output.log", os.O_RDONLY)
    os.rmdir(job)
    begun = time.monotonic()
    try:
        assert set(os.pread(log, 100, 0)) <= {ord("x")}
    except OSError as error:
        assert error.errno == errno.ESTALE
    assert time.monotonic() - begun < scale(3)
    os.close(log)


def test_removed_the_moment_it_has_ended(make):
    """Its end is seen before its leader is done."""
    _, _, session = make()
    for _ in range(30):
        job = session / "jobs" / start(session, "true")
        ended(job)
        os.rmdir(job)
    assert ids(session) == []
