"""A job's environment is what was asked for, and never the leader's own variables."""

import json

import pytest

from jobtools import BACKENDS, ended, running, start, status
from sbxtest.timing import wait_for


@pytest.fixture(params=BACKENDS)
def session(request, start_sbxd, start_mount):
    profile, more = BACKENDS[request.param]
    server = start_sbxd(profile, args=more)
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    return mount / "dev1"


def run(session, command, **spec):
    job = session / "jobs" / start(session, json.dumps({"command": command, **spec}))
    return job, ended(job)


# Names that a shell program is likely to use itself, and names that a shell keeps to itself.
NAMES = ("op", "d", "limit", "id", "root", "vars", "T", "N", "M", "D", "n", "p", "q", "s", "m", "c",
         "cwd", "top", "mask", "meta", "spare", "group", "command", "where", "code", "state", "end",
         "ask", "shell", "L", "A", "P", "S", "UID", "PPID", "IFS", "PS4", "OPTIND", "CDPATH",
         "SHELLOPTS_", "f", "past", "size", "left", "now")


def test_any_name_reaches_the_job_and_nothing_else(session):
    own = {name: f"my {name}" for name in NAMES if name not in ("OPTIND", "PPID")}
    own["OPTIND"] = "1"
    (session / "fs/sub").mkdir()
    job, of_job = run(session, "env | sort; pwd; exit 5", cwd="sub", env=own)
    assert (of_job["state"], of_job["exit"], of_job["left"]) == ("exited", "5", "0")
    lines = (job / "output.log").read_text().splitlines()
    assert lines[-1].endswith("/sub")
    seen = dict(line.split("=", 1) for line in lines[:-1] if "=" in line)
    # IFS is reset by every shell, UID and the like are set by some.
    for name in set(own) - {"IFS", "UID", "PPID", "OPTIND"}:
        assert seen.get(name) == own[name], name
    assert not set(seen) & {"QUOTING_STYLE"}
    assert json.loads((job / "meta.json").read_text())["jobId"] == job.name


def test_a_path_of_its_own(session):
    """What the leader runs is not looked for there."""
    job, of_job = run(session, "echo \"$PATH\"; exit 4", env={"PATH": "/opt/venv/bin"})
    assert (of_job["state"], of_job["exit"]) == ("exited", "4")
    assert (job / "output.log").read_text() == "/opt/venv/bin\n"


def test_a_cancel_reaches_no_other_job(session):
    """The mark that tells whose a process is can't be set by a job."""
    env = {"op": "prod", "SBXFS_JOB": "prod"}
    jobs = [session / "jobs" / start(session, json.dumps(
        {"command": "echo ready; (setsid sleep 60 &) ; exec sleep 60", "env": env}))
        for _ in range(2)]
    for job in jobs:
        running(job)
        wait_for(lambda job=job: (job / "output.log").read_text() == "ready\n", 10)
    (jobs[0] / "control").write_text("cancel\n")
    of_job = ended(jobs[0])
    assert (of_job["state"], of_job["exit"], of_job["left"]) == ("cancelled", "143", "0")
    assert status(jobs[1])["state"] == "running"
    (jobs[1] / "control").write_text("cancel\n")
    assert ended(jobs[1])["state"] == "cancelled"
