"""The server goes away and comes back: what is known stays, and works again."""

import errno
import os
import subprocess
import time

import pytest

from sbxtest.timing import scale, wait_for

# Seconds that the server is away; where time is no object, long enough for every time-out.
AWAY = 10 if os.environ.get("SBX_SLOW") == "1" else 3
AWAY_ERRNOS = (errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EIO, errno.EBUSY)


class Shell:
    """A shell that stands in a directory; each line gives its output and exit status."""

    def __init__(self, place, directory):
        self._process = subprocess.Popen(
            ["bash"], cwd=directory, env=place.env(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(scale(30))
        self._process.stdout.close()

    def __call__(self, line: str) -> tuple[int, list]:
        self._process.stdin.write(f"{line}; printf '\\n=%s\\n' $?\n")
        self._process.stdin.flush()
        lines = []
        while not (text := self._process.stdout.readline().rstrip("\n")).startswith("="):
            lines.append(text)
        return int(text[1:]), [text for text in lines if text]


@pytest.fixture
def overlay(start_place):
    """A sandbox that outlives a restart of its server, with a repository in d."""
    place = start_place("gnu-overlay", ["timeout=4"])
    place.sh("mkdir d && cd d && git init -q && echo one > f && git add f && git commit -qm one")
    return place


def test_a_shell_in_a_repository(overlay):
    place = overlay
    with Shell(place, place.fs / "d") as shell:
        assert shell("git status --porcelain") == (0, [])
        place.server.stop()
        gone = time.monotonic()
        failed = 0
        while time.monotonic() < gone + AWAY:
            status, _ = shell("git status --porcelain >/dev/null 2>&1")
            failed += status != 0
            time.sleep(0.3)
        assert failed
        place.server.start()
        wait_for(lambda: shell("cat f") == (0, ["one"]), 15)
        assert shell("pwd -P") == (0, [str(place.fs / "d")])
        assert shell("git status --porcelain") == (0, [])
        assert shell("echo two >> f && git commit -qam two && git log --format=%s") == \
            (0, ["two", "one"])


def test_a_mount_below_stays(overlay):
    """What is mounted on a directory of fs/ would go when its name were dropped."""
    if os.getuid() != 0:
        # Without root the same is seen of an open directory.
        fd = os.open(overlay.fs / "d", os.O_RDONLY)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "none", overlay.fs / "d/.git"], check=True)
        fd = os.open(overlay.fs / "d/.git", os.O_RDONLY)
    try:
        overlay.server.stop()
        for _ in range(5):
            for name in ("", "d", "d/f", "d/none"):
                try:
                    os.stat(overlay.fs / name)
                except OSError:
                    pass
            time.sleep(0.4)
        overlay.server.start()
        wait_for(lambda: os.path.exists(overlay.fs / "d/f"), 15)
        link = os.readlink(f"/proc/self/fd/{fd}")
        assert not link.endswith("(deleted)")
        if os.getuid() == 0:
            assert os.listdir(overlay.fs / "d/.git") == []
    finally:
        os.close(fd)
        if os.getuid() == 0:
            subprocess.run(["umount", overlay.fs / "d/.git"], check=True)


@pytest.mark.core
@pytest.mark.parametrize("fault", ["refuse", "blackhole", "status=500", "garbage",
                                   "wrongtype", "drop", "cut=3", "status=503"])
def test_known_names_are_still_found(start_place, fault):
    """An error answered to a LOOKUP drops the directory under who stands in it."""
    place = start_place("gnu-host", ["timeout=2"])
    (place.fs / "d/e").mkdir(parents=True)
    (place.fs / "d/e/f").write_text("x\n")
    with Shell(place, place.fs / "d/e") as shell:
        assert shell("cat f") == (0, ["x"])
        place.server.set_faults(f"*:*:{fault}")
        time.sleep(1.1)  # what is known is old then
        # A call that is not answered takes the timeout.
        limit = time.monotonic() + (3 if fault == "blackhole" else 1)
        while time.monotonic() < limit:
            for path in ("d", "d/e", "d/e/f"):
                try:
                    os.stat(place.fs / path)
                except OSError as error:
                    assert error.errno in AWAY_ERRNOS, (path, error)
            with pytest.raises(OSError) as caught:
                os.close(os.open(place.fs / "d/e/unknown", os.O_RDONLY))
            assert caught.value.errno in AWAY_ERRNOS
            time.sleep(0.2)
        place.server.set_faults()
        wait_for(lambda: shell("ls") == (0, ["f"]), 10)
        assert shell("pwd -P") == (0, [str(place.fs / "d/e")])
        assert shell("cat f; echo y > g; ls") == (0, ["x", "f", "g"])


def test_a_mkdir_that_failed_is_not_done_later(start_place):
    """Only content is kept: names whose change was answered with an error are left alone."""
    place = start_place("gnu-host", ["timeout=2"])
    (place.fs / "f").write_text("x")
    place.server.set_faults("exec:*:refuse")
    for act in (lambda: (place.fs / "new").mkdir(), lambda: (place.fs / "f").unlink(),
                lambda: (place.fs / "f").rename(place.fs / "g"),
                lambda: (place.fs / "f").chmod(0o600),
                lambda: (place.fs / "l").symlink_to("f")):
        with pytest.raises(OSError):
            act()
    mode = os.stat(place.root / "f").st_mode
    place.server.set_faults()
    (place.mount / "dev1/control").write_text("sync\n")
    time.sleep(1.5)
    assert set(os.listdir(place.root)) - {".sbxfs"} == {"f"}
    assert os.listdir(place.fs) == ["f"]
    assert os.stat(place.root / "f").st_mode == mode


def test_statuses_and_their_notes(start_place):
    """What status says of each kind of absence, and that reading it asks nothing."""
    place = start_place("gnu-host", ["timeout=2"])
    (place.fs / "f").write_text("x")
    assert place.mount.status("dev1")["state"] == "live"
    place.server.set_faults("*:*:refuse")
    with pytest.raises(OSError):
        os.stat(place.fs / "unknown")
    # A refused connection is no absence yet: a server that starts again refuses too.
    reading_asks_nothing(place, "live", "reachable")
    port = place.server.port
    place.server.stop()
    time.sleep(1.1)
    with pytest.raises(OSError) as caught:
        os.stat(place.fs / "unknown")
    assert caught.value.errno == errno.EHOSTUNREACH
    place.server.set_faults()
    place.server.start()
    reading_asks_nothing(place, "unreachable", "unreachable")
    assert "EHOSTUNREACH" in place.errors() and str(port) in place.errors()


def reading_asks_nothing(place, state, server):
    """Long enough that what is asked behind the reader's back would be in the log."""
    asked = place.log_mark()
    assert place.mount.status("dev1")["state"] == state
    assert place.mount.status()["server"] == server
    time.sleep(0.3)
    assert place.server.log(asked) == []
