"""persist where the server's own archive can't be had: by the sandbox's tar, in pieces."""

import os
import signal
import subprocess
import tarfile
import time

import pytest

from sbxtest import wait_for
from sbxtest.calls import order

from test_snapshots import last

BAD_NAME = os.fsdecode(b"\xff")  # the route refuses such a tree


def archived(mount, name):
    top = next(mount.state_dir.iterdir()) / "snapshots/dev1"
    with tarfile.open(top / f"{name}.tar", errors="surrogateescape") as archive:
        return {entry.name.removeprefix("./"): entry for entry in archive.getmembers()}


def staged(place):
    return os.listdir(place.root / ".sbxfs/stage")


def test_answers_that_are_cut(start_place):
    """A backend that cuts its answers, not met before: learnt on the way."""
    place = start_place(args=["--exec-output-limit", 256 << 10])
    data = os.urandom(3 << 20)
    (place.root / "big").write_bytes(data)
    (place.root / BAD_NAME).write_text("x")
    assert order(place.mount, "persist one") == 0, place.errors()
    assert "by exec" in last(place.mount)
    assert archived(place.mount, "one")["big"].size == len(data)
    assert staged(place) == []


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_interrupted_it_leaves_nothing(start_place, kind):
    """Who interrupts it leaves no archive in the sandbox."""
    place = start_place(kind)
    (place.root / "big").write_bytes(os.urandom(40 << 20))
    (place.root / BAD_NAME).write_text("x")
    os.listdir(place.fs)
    control = place.mount / "dev1/control"
    with subprocess.Popen(["dash", "-c", f"echo persist one > {control}"],
                          stderr=subprocess.DEVNULL) as writer:
        wait_for(lambda: "receiving" in place.mount.status("dev1")["progress"], 30)
        writer.send_signal(signal.SIGKILL)
    wait_for(lambda: place.mount.status("dev1")["verb"] == "none", 10)
    assert "EINTR" in last(place.mount)
    wait_for(lambda: staged(place) == [], 5)


def test_nothing_old_of_ours_goes_along(start_place):
    """What dead clients staged long ago is no part of an archive, nor left in the sandbox."""
    place = start_place()
    (place.fs / "f").write_text("x")
    old, fresh = time.time() - 7200, time.time() - 60
    stage, ops = place.root / ".sbxfs/stage", place.root / ".sbxfs/ops"
    for path, when in ((stage / "persist-old", old), (stage / "fresh", fresh),
                       (ops / "old", old), (ops / "fresh", fresh)):
        path.write_text("left")
        os.utime(path, (when, when))
    assert order(place.mount, "persist one") == 0, place.errors()
    assert not {".sbxfs/stage/persist-old", ".sbxfs/ops/old"} & set(archived(place.mount, "one"))
    # Of those another client may be at work on.
    assert (stage / "fresh").exists() and (ops / "fresh").exists()
    assert not (stage / "persist-old").exists() and not (ops / "old").exists()
