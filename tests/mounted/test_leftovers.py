"""What sbxfs keeps in the workspace is seen by nobody, and goes away."""

import os
import subprocess
import threading

import pytest

from sbxtest import leftovers
from sbxtest.fixtures import quick_kinds
from sbxtest.timing import wait_for


def kept(place):
    """What lies in .sbxfs beside outcomes of operations, which stay for ten minutes."""
    return [name for name in leftovers(place) if not name.startswith("ops/")]


@quick_kinds
def test_git_in_the_sandbox_sees_nothing_of_ours(place):
    """git status there, over and over, while files are saved here in every way."""
    place.inside("git init -q; echo 1 >f; head -c 300000 /dev/urandom >big; git add f big; "
                 "git commit -qm one")
    place.fresh()
    script = "until [ -e .git/stop ]; do git status --porcelain -uall; done | sort -u"
    seen = []
    thread = threading.Thread(target=lambda: seen.append(place.inside(script, seconds=120)))
    thread.start()
    try:
        for index in range(15):
            (place.fs / "f").write_text(f"{index}\n" * 100)
            with open(place.fs / "big", "r+b") as file:
                file.seek(1000 * index)
                file.write(os.urandom(2000))
            with open(place.fs / "big", "ab") as file:
                file.write(b"x" * 100)
            if index % 5 == 0:
                (place.fs / "big").write_bytes(os.urandom(300000))
            (place.fs / "f.new").write_text("new")
            os.replace(place.fs / "f.new", place.fs / "f")
    finally:
        (place.root / ".git/stop").touch()
        thread.join()
    assert set(seen[0].splitlines()) <= {" M f", " M big", "?? f.new"}
    assert ".sbxfs" not in os.listdir(place.fs)
    assert kept(place) == []


def test_our_directory_is_not_shown(place):
    (place.fs / "f").write_text("x")
    assert (place.root / ".sbxfs/.gitignore").read_text() == "*\n"
    assert (place.root / ".sbxfs").stat().st_mode & 0o777 == 0o700
    assert os.listdir(place.fs) == ["f"]
    for act in (lambda p: os.stat(p), lambda p: os.listdir(p)):
        with pytest.raises(FileNotFoundError):
            act(place.fs / ".sbxfs")
    with pytest.raises(OSError):
        os.mkdir(place.fs / ".sbxfs")
    with pytest.raises(OSError):
        os.rename(place.fs / "f", place.fs / ".sbxfs")
    assert place.run("find", ".").split() == [".", "./f"]
    # It does not count for rmdir either.
    (place.fs / "f").unlink()
    os.rmdir(place.mount / "dev1")
    assert not place.root.exists()


def test_after_kill_and_remount(place):
    """Killed between an upload and its being put in place, and with a removed file open.

    After the next mount's first use all is sent and nothing is left.
    """
    (place.root / "removed").write_bytes(os.urandom(1 << 20))
    place.fresh()
    held = open(place.fs / "removed", "rb")  # pylint: disable=consider-using-with
    os.unlink(place.fs / "removed")
    data = os.urandom(3 << 20)
    writers = [subprocess.Popen(["dd", f"of={place.fs}/f{index}", "bs=64k", "status=none"],
                                stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
               for index in range(3)]
    wait_for(lambda: all(os.readlink(f"/proc/{writer.pid}/fd/1") == f"{place.fs}/f{index}"
                         for index, writer in enumerate(writers)), 20, "open files")
    place.server.set_faults("exec:*:blackhole")
    for writer in writers:
        writer.stdin.write(data)
        writer.stdin.close()
    wait_for(lambda: [name.split("/")[0] for name in kept(place)] == ["held"] + 3 * ["stage"], 20,
             "staged files")
    place.mount.kill()
    place.mount.start()
    for writer in writers:
        writer.wait()
    try:
        held.close()
    except OSError:
        pass
    place.server.set_faults()
    os.listdir(place.fs)
    wait_for(lambda: all((place.root / f"f{index}").exists() and
                         (place.root / f"f{index}").read_bytes() == data for index in range(3)),
             20, "unsent files")
    wait_for(lambda: kept(place) == [], 10, "what the dead mount left")
    with open(place.mount / "dev1/control", "w", encoding="ascii") as control:
        control.write("sync\n")
    assert sorted(os.listdir(place.fs)) == ["f0", "f1", "f2"]
    assert place.mount.status("dev1")["pending_writes"].split()[0] == "0"
    wait_for(lambda: not list(place.mount.state_dir.rglob("*.spool")), 5, "spools")
    # And the mount's own end leaves nothing on this machine to look for next time.
    place.mount.unmount()
    assert not list(place.mount.state_dir.rglob("*.client"))
