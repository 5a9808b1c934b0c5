"""Programs that stand in a directory, mounts below one, open files: names that are asked for anew
lead to what they led to before, and nobody loses his place."""

import errno
import os
import subprocess
import threading
import time

import pytest

from jobtools import ended, start
from sbxtest.mount import is_mounted
from sbxtest.timing import scale, wait_for

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


def removed(job) -> bool:
    """Its leader ends a moment after it has told of the end."""
    try:
        os.rmdir(job)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def test_another_job_of_the_same_id_is_another_directory(session):
    command = '{"command": "echo %s", "id": "mine"}\n'
    job = session / "jobs" / start(session, command % "one")
    ended(job)
    file = os.open(job, os.O_RDONLY)
    wait_for(lambda: removed(job), 10)
    assert start(session, command % "two") == "mine"
    ended(job)
    assert os.stat(job).st_ino != os.fstat(file).st_ino
    assert (job / "output.log").read_text() == "two\n"
    os.close(file)


def run_job(session, script):
    job = session / "jobs" / start(session, script)
    assert ended(job)["state"] == "exited"


def refresh(session, _):
    (session / "control").write_text("refresh\n")


@pytest.fixture
def lazy(start_sbxd, start_mount):
    """A session whose names the kernel believes for long."""
    mount = start_mount(start_sbxd().url, ["ttl=60"])
    (mount / "dev1").mkdir()
    return mount / "dev1"


@pytest.mark.root
@pytest.mark.parametrize("drop", [run_job, refresh])
def test_what_is_mounted_below_stays(lazy, tmp_path, drop):
    """And so does the place of a shell, and the name of an open file."""
    fs = lazy / "fs"
    (fs / "d/below").mkdir(parents=True)
    (fs / "d/f").write_text("x")
    (fs / "d/absent").exists()
    (tmp_path / "inside").write_text("mounted")
    subprocess.run(["mount", "--bind", tmp_path, fs / "d/below"], check=True)
    shell = subprocess.Popen(["bash"], cwd=fs / "d", stdin=subprocess.PIPE, text=True,
                             stdout=subprocess.PIPE)
    try:
        with open(fs / "d/f") as file:
            drop(lazy, "true")
            os.stat(fs / "d/f")
            os.stat(fs / "d")
            assert os.readlink(f"/proc/self/fd/{file.fileno()}") == str(fs / "d/f")
        assert is_mounted(fs / "d/below")
        assert (fs / "d/below/inside").read_text() == "mounted"
        out = shell.communicate("readlink /proc/$$/cwd; /bin/pwd; cat below/inside\n")[0]
        assert out == f"{fs}/d\n{fs}/d\nmounted"
    finally:
        shell.kill()
        shell.wait()
        subprocess.run(["umount", fs / "d/below"], check=False)


@pytest.mark.parametrize("how", ["path", "directory"])
def test_what_a_job_did_to_names_is_seen_right_after_it(lazy, how):
    """However long they would be believed."""
    fs = lazy / "fs"
    (fs / "d").mkdir()
    for name in ("gone", "changed", "other", "moved"):
        (fs / "d" / name).write_text("old")
    os.rename(fs / "d/moved", fs / "d/renamed")
    directory = os.open(fs / "d", os.O_RDONLY)
    at = {"dir_fd": directory} if how == "directory" else {}

    def look():
        found = {}
        for name in ("gone", "changed", "other", "new", "newdir", "newdir/below", "renamed"):
            try:
                found[name] = os.stat(name if at else fs / "d" / name, **at).st_size
            except OSError:
                found[name] = None
        return found

    before = {"gone": 3, "changed": 3, "other": 3, "new": None, "newdir": None,
              "newdir/below": None, "renamed": 3}
    assert look() == before
    with open(fs / "d/changed") as file:
        os.fstat(file.fileno())
        run_job(lazy, "cd d && rm gone renamed && echo longer > changed && echo 1 > new && "
                "mkdir newdir && echo 22 > newdir/below && mv other old && mkdir other")
        found = look()
        assert found.pop("newdir") is not None and found.pop("other") is not None
        assert found == {"gone": None, "changed": 7, "new": 2, "newdir/below": 3, "renamed": None}
    assert os.path.isdir(fs / "d/other")
    os.close(directory)


def removed_by_verb(job) -> bool:
    try:
        (job / "control").write_text("remove\n")
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def test_removed_jobs_and_sessions_are_gone_at_once(lazy):
    job = lazy / "jobs" / start(lazy, "true")
    ended(job)
    assert job.is_dir()
    wait_for(lambda: removed_by_verb(job), 10)
    assert not job.exists()
    mount = lazy.parent
    assert lazy.is_dir()
    (mount / "control").write_text("delete dev1\n")
    assert not lazy.exists()


def test_a_directory_that_is_locked_does_not_hide_a_job_s_end(start_sbxd, start_mount):
    """A change that hangs there holds the news up for a second at most."""
    server = start_sbxd()
    mount = start_mount(server.url, ["ttl=60"])
    (mount / "dev1").mkdir()
    session = mount / "dev1"
    (session / "fs/d").mkdir()
    (session / "fs/d/f").write_text("x")
    job = session / "jobs" / start(session, "sleep 3")
    os.stat(session / "fs/d/f")
    server.set_faults(f"put@{mount.status('dev1')['id'][:13]}:*:delay=8000")
    file = os.open(session / "fs/d/new", os.O_WRONLY | os.O_CREAT)
    os.write(file, os.urandom(4 << 20))
    moving = threading.Thread(target=os.rename, args=(session / "fs/d/new", session / "fs/d/g"))
    moving.start()
    begin = time.monotonic()
    assert ended(job)["state"] == "exited"
    took = time.monotonic() - begin
    assert moving.is_alive() and took < scale(6)
    server.set_faults()
    moving.join(scale(60))
    assert not moving.is_alive()
    os.close(file)
    assert sorted(os.listdir(session / "fs/d")) == ["f", "g"]
