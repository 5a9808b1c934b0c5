"""access(2) says what open and exec would: shells, which(1) and git go by it."""

import os
import shutil
import subprocess
import time

import pytest

from sbxtest.timing import scale

ROOT = os.geteuid() == 0


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    return start_place(request.param)


def make(place, name, mode, text="#!/bin/sh\necho ran\n"):
    path = place.fs / name
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode, may", [(0o644, False), (0o755, True), (0o600, False),
                                       (0o700, True), (0o654, True)])
def test_what_may_be_executed(place, mode, may):
    path = make(place, "tool", mode)
    assert os.access(path, os.F_OK)
    assert os.access(path, os.X_OK) == may
    assert place.run("bash", "-c", "[ -x tool ] && echo yes || echo no") == (
        "yes\n" if may else "no\n")
    assert (shutil.which("tool", path=str(place.fs)) is not None) == may
    if may:
        assert subprocess.run([path], capture_output=True, text=True,
                              check=True).stdout == "ran\n"
    else:
        with pytest.raises(PermissionError):
            subprocess.run([path], check=False)


def test_the_sandbox_changes_the_mode(place):
    """As old as any other attribute."""
    path = make(place, "tool", 0o644)
    assert not os.access(path, os.X_OK)
    place.inside("chmod 755 tool")
    time.sleep(1.1)
    assert os.access(path, os.X_OK)
    place.inside("chmod 644 tool")
    time.sleep(1.1)
    assert not os.access(path, os.X_OK)


def test_a_hook_that_is_not_executable(place):
    """git looks, and tells of it instead of failing to run it."""
    place.run("git", "init", "-q", ".")
    hook = make(place, ".git/hooks/pre-commit", 0o644, "#!/bin/sh\nexit 1\n")
    output = place.run("git", "commit", "--allow-empty", "-m", "one")
    assert "hook was ignored" in output
    hook.chmod(0o755)
    place.run("git", "commit", "--allow-empty", "-m", "two", status=1)


def test_what_may_be_written(place):
    make(place, "f", 0o644)
    assert os.access(place.fs / "f", os.R_OK | os.W_OK)
    make(place, "locked", 0o444)
    # Root's sandbox writes it, and so it opens.
    assert os.access(place.fs / "locked", os.W_OK) == ROOT
    if ROOT:
        os.close(os.open(place.fs / "locked", os.O_WRONLY))
    else:
        with pytest.raises(PermissionError):
            os.open(place.fs / "locked", os.O_WRONLY)
    assert os.access(place.fs, os.R_OK | os.W_OK | os.X_OK)
    assert not os.access(place.fs / "missing", os.F_OK)


def test_the_sandboxes_own_root(place):
    root = place.mount / "dev1/.sbxfs-root"
    for name in ("usr", "etc", "etc/passwd", "tmp"):
        assert os.access(root / name, os.R_OK), name
        assert not os.access(root / name, os.W_OK), name
    assert os.access(root / "bin/sh", os.X_OK)
    assert not os.access(root / "etc/passwd", os.X_OK)
    # It is entered, and can't be listed.
    assert os.access(root, os.X_OK)
    assert not os.access(root, os.R_OK)


def test_what_is_ours(place):
    session = place.mount / "dev1"
    for path, may in ((session / "status", os.R_OK), (session / "control", os.R_OK | os.W_OK),
                      (session / "jobs/new", os.R_OK | os.W_OK),
                      (place.mount / "README.md", os.R_OK),
                      (place.mount / "control", os.R_OK | os.W_OK)):
        for how in (os.R_OK, os.W_OK, os.X_OK):
            assert os.access(path, how) == bool(may & how), (path, how)
    for directory in (place.mount.mnt, session, session / "jobs", place.mount / "snapshots"):
        assert os.access(directory, os.R_OK | os.W_OK | os.X_OK), directory


def test_a_mount_that_is_read_only(start_sbxd, start_mount):
    server = start_sbxd()
    first = start_mount(server.url)
    (first / "dev1").mkdir()
    (first / "dev1/fs/f").write_text("x")
    first.unmount()
    mount = start_mount(server.url, ["ro"], state_dir=first.state_dir)
    assert os.access(mount / "dev1/fs/f", os.R_OK)
    assert not os.access(mount / "dev1/fs/f", os.W_OK)
    assert not os.access(mount / "dev1/fs", os.W_OK)


def test_modes_are_those_that_are_shown(start_place):
    place = start_place("gnu-host", ["umask=0111"])
    path = make(place, "tool", 0o755)
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert not os.access(path, os.X_OK)


@pytest.mark.parametrize("how", [os.F_OK, os.R_OK, os.W_OK, os.X_OK], ids="FRWX")
def test_costs_no_more_than_a_stat(place, how):
    """Within ttl nothing; in a loop, one look a second."""
    (place.root / "d").mkdir()
    for number in range(20):
        (place.root / f"d/f{number}").touch(0o755)
    place.run("ls", "-l", "d")
    before = place.log_mark()
    start = time.monotonic()
    while time.monotonic() - start < 2.5:
        for number in range(20):
            assert os.access(place.fs / f"d/f{number}", how)
            assert not os.access(place.fs / f"d/missing{number}", how)
        assert os.access(place.fs / "d", how)
    seconds = time.monotonic() - start
    time.sleep(0.05)
    assert place.log_mark() - before <= seconds + 2


def test_a_known_directory_is_entered_while_the_server_is_away(place):
    (place.fs / "d/e").mkdir(parents=True)
    os.listdir(place.fs / "d/e")
    place.server.stop()
    time.sleep(1.1)
    start = time.monotonic()
    assert place.run("bash", "-c", "cd d && cd e && pwd").strip() == str(place.fs / "d/e")
    assert time.monotonic() - start < scale(5)
    place.server.start()


def test_an_open_file_without_a_name(place):
    path = make(place, "tool", 0o755)
    fd = os.open(path, os.O_RDONLY)
    os.mkdir(place.fs / "d")
    directory = os.open(place.fs / "d", os.O_RDONLY)
    path.unlink()
    os.rmdir(place.fs / "d")
    assert os.access(f"/proc/self/fd/{fd}", os.X_OK)
    assert os.access(f"/proc/self/fd/{directory}", os.X_OK)
    os.close(fd)
    os.close(directory)
