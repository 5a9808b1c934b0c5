"""A backend that gives commands no environment, cuts what they print, and takes short ones only."""

import json
import os
import shutil
import subprocess

import pytest

from jobtools import ended, running, start, status
from sbxtest import leftovers, tree_dir
from sbxtest.timing import wait_for

MIB = 1 << 20


@pytest.fixture(params=["gnu-bare", "busybox-bare"])
def place(request, start_place):
    return start_place(request.param)


def test_it_gives_nothing(place):
    """What the rest of these tests rests on."""
    with place.server.client() as client:
        reply = client.exec(place.id, ["/usr/bin/env"])
        assert reply["stdout"] == ""
        reply = client.exec(place.id, ["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"],
                            env={"PATH": "/usr/bin:/bin"})
        assert len(reply["stdout"]) == 262144
        answer = client.call("POST", f"/sessions/{place.id}/exec",
                             json.dumps({"argv": ["/bin/true", "x" * 131072]}).encode())
        assert answer.status == 500 and "E2BIG" in answer.json["message"]


@pytest.mark.core
def test_a_tree(place, tmp_path):
    source = tmp_path / "tests"
    shutil.copytree(tree_dir() / "tests/unit", source)
    place.run("cp", "-r", source, place.fs)
    subprocess.run(["diff", "-r", source, place.root / "tests"], check=True)
    place.mount.unmount()
    place.mount.start()
    place.run("diff", "-r", source, place.fs / "tests")
    place.run("rm", "-rf", "tests")
    assert os.listdir(place.fs) == []


def test_many_names(start_place):
    """More than one answer may hold."""
    place = start_place("gnu-bare")
    wanted = {f"a file whose name is rather long, number {index}" for index in range(6000)}
    (place.root / "many").mkdir()
    for name in wanted:
        (place.root / "many" / name).touch()
    place.fresh()
    assert set(os.listdir(place.fs / "many")) == wanted
    (place.root / "many/one more").touch()
    place.fresh()
    assert set(os.listdir(place.fs / "many")) == wanted | {"one more"}


def test_sizes(place):
    """Around what one command carries, and one answer."""
    for size in (1, 60_000, 100_000, 131_072, 200_000, 262_144, 400_000, 3 * MIB):
        data = os.urandom(size)
        (place.fs / "here").write_bytes(data)
        assert (place.root / "here").read_bytes() == data, size
        (place.root / "there").write_bytes(data)
        place.fresh()
        assert (place.fs / "there").read_bytes() == data, size
        with open(place.fs / "here", "ab") as file:
            file.write(data[:70_000])
        assert (place.root / "here").read_bytes() == data + data[:70_000], size
    for index in range(40):
        (place.root / f"f{index}").write_bytes(os.urandom(50_000))
    place.fresh()
    for index in range(40):
        assert (place.fs / f"f{index}").read_bytes() == (place.root / f"f{index}").read_bytes()
    assert all(name.startswith("ops/") for name in leftovers(place))


def test_git(place):
    place.sh("git init -q r && cd r && for i in $(seq 50); do echo $i >f$i; done && git add . && "
             "git commit -qm all && git status --porcelain && echo x >>f1 && git commit -qam more")
    assert place.run("git", "status", "--porcelain", cwd=place.fs / "r") == ""
    assert place.run("git", "log", "--format=%s", cwd=place.fs / "r") == "more\nall\n"
    subprocess.run(["git", "-c", "safe.directory=*", "fsck", "--strict"], cwd=place.root / "r",
                   check=True, capture_output=True)


@pytest.mark.core
def test_jobs(place):
    session = place.mount / "dev1"
    job = session / "jobs" / start(session, json.dumps({
        "command": "echo $MINE; command -v ls >/dev/null && echo found; [ -n \"$HOME\" ] && "
                   "cd && echo home; echo $LANG; exit 3", "env": {"MINE": "here"}}))
    assert ended(job)["exit"] == "3"
    assert (job / "output.log").read_text() == "here\nfound\nhome\nC.UTF-8\n"
    # A log that no answer can hold, and a script that is longer than a command may be.
    job = session / "jobs" / start(session, "seq 200000")
    assert ended(job)["exit"] == "0"
    assert (job / "output.log").read_text() == "".join(f"{i}\n" for i in range(1, 200001))
    job = session / "jobs" / start(session, "sleep 60")
    running(job)
    (job / "control").write_text("cancel\n")
    assert ended(job)["state"] == "cancelled"
    wait_for(lambda: status(job)["exit"] == "143", 5)
    job = session / "jobs" / start(session, json.dumps({"command": "sleep 60",
                                                        "timeoutSeconds": 1}))
    assert ended(job)["state"] == "timedout"


def test_snapshots(place):
    (place.fs / "d").mkdir()
    for index in range(30):
        (place.fs / f"d/f{index}").write_bytes(os.urandom(20_000))
    (place.root / os.fsdecode(b"\xff")).write_text("by exec")
    place.fresh()
    (place.mount / "dev1/control").write_text("persist one\n")
    with place.server.client() as client:
        client.delete(place.id)
    before = {path.name: path.read_bytes() for path in (place.fs / "d").iterdir()}
    (place.mount / "dev1/control").write_text("resume\n")
    assert "verified" in place.mount.status("dev1")["last"]
    place.fresh()
    assert {path.name: path.read_bytes() for path in (place.fs / "d").iterdir()} == before
    assert (place.fs / os.fsdecode(b"\xff")).read_text() == "by exec"
