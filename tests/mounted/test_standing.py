"""Programs that stand in a directory, mounts below one, open files: names that are asked for anew
lead to what they led to before, and nobody loses his place."""

import os
import subprocess
import time

import pytest

from jobtools import ended, start

pytestmark = pytest.mark.core


@pytest.fixture
def session(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    (mount / "dev1").mkdir()
    return mount / "dev1"


def standing(directory, script: str) -> str:
    """What a shell says that stands there, goes through the script, and asks where it is."""
    return subprocess.run(
        ["bash", "-c", f"cd -- \"$1\" && {{ {script}; }} >/dev/null; readlink /proc/self/cwd; "
         "exec /bin/pwd", "sh", directory], capture_output=True, text=True, cwd="/",
        check=False, env={"PATH": os.environ["PATH"]}).stdout


def test_a_shell_stands_in_the_directory_of_a_job(session):
    job = session / "jobs" / start(session, "echo out")
    ended(job)
    for script in ("sleep 1.2; stat \"$1\"", "ls -l \"$1/..\"; sleep 1.2; cat \"$1/status\"",
                   "echo refresh > \"$1/../../control\"; stat \"$1\""):
        assert standing(job, script) == f"{job}\n" * 2, script
    number = os.stat(job).st_ino
    file = os.open(job, os.O_RDONLY)
    time.sleep(1.2)
    os.stat(job)
    assert os.fstat(file).st_ino == number
    assert sorted(os.listdir(file)) == sorted(os.listdir(job))
    os.close(file)


def test_another_job_of_the_same_id_is_another_directory(session):
    command = '{"command": "echo %s", "id": "mine"}\n'
    job = session / "jobs" / start(session, command % "one")
    ended(job)
    file = os.open(job, os.O_RDONLY)
    os.rmdir(job)
    assert start(session, command % "two") == "mine"
    ended(job)
    assert os.stat(job).st_ino != os.fstat(file).st_ino
    assert (job / "output.log").read_text() == "two\n"
    os.close(file)
