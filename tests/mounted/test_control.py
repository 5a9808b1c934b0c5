"""Writing into control, as shells, editors and agents' tools do: each acts exactly once."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from sbxtest.terminal import run_in_terminal
from sbxtest.timing import scale, wait_for

pytestmark = pytest.mark.core

REPLACE = """
import os, sys, tempfile
control = sys.argv[1]
text = open(control).read()
fd, path = tempfile.mkstemp(dir=os.path.dirname(control))
os.write(fd, (text + sys.argv[2]).encode())
os.fsync(fd)
os.close(fd)
os.replace(path, control)
"""

# name: words; {} is the control file. Each has `reattach` act once.
WRITERS = {
    "bash": ["bash", "-c", "echo reattach > {}"],
    "dash": ["dash", "-c", "echo reattach > {}"],
    "no-newline": ["bash", "-c", "printf reattach > {}"],
    "cr": ["bash", "-c", "printf 'reattach\\r\\n' > {}"],
    "append": ["bash", "-c", "echo reattach >> {}"],
    "tee": ["bash", "-c", "echo reattach | tee {}"],
    "tee-no-newline": ["bash", "-c", "printf reattach | tee {}"],
    "cp": ["bash", "-c", "echo reattach > $TMP/f && cp $TMP/f {}"],
    "sed-i": ["sed", "-i", "$a reattach", "{}"],
    "sed-i-replace": ["sed", "-i", "s/^# reattach.*/reattach/", "{}"],
    "perl-i": ["perl", "-i", "-pe", "s/^# reattach.*/reattach/", "{}"],
    "python": [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write('reattach')", "{}"],
    "python-replace": [sys.executable, "-c", REPLACE, "{}", "reattach"],
    "python-replace-newline": [sys.executable, "-c", REPLACE, "{}", "reattach\n"],
    "node": ["node", "-e", "require('fs').writeFileSync(process.argv[1], 'reattach')", "{}"],
    "node-newline": ["node", "-e", "require('fs').writeFileSync(process.argv[1], 'reattach\\n')",
                     "{}"],
    "vim-yes": ["vim", "-u", "NONE", "-N", "-i", "NONE", "-c", "set backupcopy=yes backup",
                "-c", "normal Goreattach", "-c", "wq", "{}"],
    "vim-no": ["vim", "-u", "NONE", "-N", "-i", "NONE", "-c", "set backupcopy=no backup",
               "-c", "normal Goreattach", "-c", "wq", "{}"],
    "vim-auto": ["vim", "-u", "NONE", "-N", "-i", "NONE", "-c", "set backupcopy=auto",
                 "-c", "normal Goreattach", "-c", "wq", "{}"],
}


@pytest.fixture
def session(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    return server, mount


def acts(server) -> int:
    """How often `reattach` acted."""
    time.sleep(0.05)  # what happens behind the writer's back counts too
    return sum(record.route == "reattach" for record in server.log())


@pytest.mark.parametrize("writer", WRITERS)
def test_acts_once(session, writer, tmp_path):
    server, mount = session
    control = mount / "dev1/control"
    words = [word.replace("{}", str(control)) for word in WRITERS[writer]]
    if not shutil.which(words[0]):
        pytest.fail(f"{words[0]} is not installed: scripts/setup installs what tests need")
    before = acts(server)
    env = {**os.environ, "TMP": str(tmp_path)}
    if words[0] == "vim":
        assert run_in_terminal(words, env) == 0
    else:
        subprocess.run(words, check=True, env=env, timeout=scale(20), capture_output=True)
    assert acts(server) - before == 1
    # What the tool left beside it may be a backup, but the control is as it was.
    assert "# reattach" in control.read_text()
    assert mount.status("dev1")["last"].startswith("reattach: ok")


def test_text_may_be_written_back(session):
    server, mount = session
    control = mount / "dev1/control"
    before = acts(server)
    control.write_text(control.read_text())
    assert acts(server) == before


def test_lines_of_one_write_are_parsed_before_any_acts(session):
    server, mount = session
    before = acts(server)
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            os.write(fd, b"reattach\nreattache\nreattach\n")
        assert caught.value.errno == errno.EINVAL
        assert acts(server) == before
        os.write(fd, b"# nothing\n\nreattach\nreattach\n")
        assert acts(server) == before + 2
        os.write(fd, b"reat")
        os.write(fd, b"tach")
        assert acts(server) == before + 2
    finally:
        os.close(fd)
    assert acts(server) == before + 3
    assert "reattache" in mount.read("dev1/errors")


def test_refused_write_does_not_act_at_close(session):
    server, mount = session
    before = acts(server)
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    with pytest.raises(OSError):
        os.write(fd, b"nonsense\nreattach")
    os.close(fd)
    assert acts(server) == before


def test_read_goes_on_behind_a_write(session):
    _, mount = session
    fd = os.open(mount / "dev1/control", os.O_RDWR)
    try:
        os.write(fd, b"refresh\n")
        assert os.read(fd, 65536).startswith(b"#")
        assert os.read(fd, 65536) == b""
    finally:
        os.close(fd)


def test_too_much(session):
    _, mount = session
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            for _ in range(1100):
                os.write(fd, b"#" * 1024)
        assert caught.value.errno == errno.EFBIG
    finally:
        os.close(fd)


def test_what_saving_tools_do_first(session):
    """chmod, utimens, truncate and fsync do nothing and succeed on what may be written only."""
    _, mount = session
    control = mount / "dev1/control"
    os.chmod(control, 0o644)
    os.utime(control, (1, 1))
    os.truncate(control, 0)
    fd = os.open(control, os.O_WRONLY | os.O_TRUNC)
    os.fsync(fd)
    os.close(fd)
    assert os.stat(control).st_mode & 0o777 == 0o600
    assert os.stat(control).st_blksize == 1 << 20
    for change in (lambda path: os.chmod(path, 0o644), lambda path: os.utime(path, (1, 1)),
                   lambda path: open(path, "w"), os.unlink):
        with pytest.raises(PermissionError):
            change(mount / "dev1/status")
    with pytest.raises(PermissionError):
        os.unlink(control)
    with pytest.raises(PermissionError):
        os.mkdir(mount / "dev1/directory")


def test_scratch_files(session):
    _, mount = session
    path = mount / "dev1/scratch"
    path.write_text("one")
    assert path.read_text() == "one"
    assert "scratch" in os.listdir(mount / "dev1")
    with pytest.raises(FileExistsError):
        os.open(path, os.O_CREAT | os.O_EXCL)
    path.rename(mount / "dev1/other")
    assert not path.exists()
    with open(mount / "dev1/other", "r+b") as file:
        (mount / "dev1/other").unlink()
        file.seek(1)
        file.write(b"xy")
        file.flush()
        file.seek(0)
        assert file.read() == b"oxy"
    assert "other" not in os.listdir(mount / "dev1")
    with pytest.raises(OSError) as caught, open(mount / "dev1/big", "wb") as file:
        file.write(b"x" * (1 << 20) + b"x")
    assert caught.value.errno == errno.EFBIG


def test_error_of_a_verb_is_the_writers(session):
    server, mount = session
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    fd = os.open(mount / "dev1/control", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            os.write(fd, b"reattach\n")
        assert caught.value.errno == errno.ESTALE
    finally:
        os.close(fd)
    assert mount.status("dev1")["last"].startswith("reattach: ESTALE")


def test_started_and_not_waited_for(session):
    server, mount = session
    server.set_faults("reattach:*:delay=3000")
    before = acts(server)
    (mount / "dev1/control").write_text("reattach &\n")
    assert mount.status("dev1")["verb"].startswith("reattach &,")
    with pytest.raises(OSError) as caught:
        fd = os.open(mount / "dev1/control", os.O_WRONLY)
        try:
            os.write(fd, b"refresh\n")
        finally:
            os.close(fd)
    assert caught.value.errno == errno.EBUSY
    wait_for(lambda: mount.status("dev1")["verb"] == "none", 10)
    assert acts(server) == before + 1


def test_a_waiting_writer_blocks_no_other_and_dies_on_a_fatal_signal(session):
    server, mount = session
    server.set_faults("reattach:*:blackhole")
    writer = subprocess.Popen(["dash", "-c", f"echo reattach > {mount / 'dev1/control'}"],
                              stderr=subprocess.DEVNULL)
    wait_for(lambda: mount.status("dev1")["verb"].startswith("reattach,"), 5)
    start = time.monotonic()
    with pytest.raises(OSError):
        fd = os.open(mount / "dev1/control", os.O_WRONLY)
        try:
            os.write(fd, b"refresh\n")
        finally:
            os.close(fd)
    assert time.monotonic() - start < scale(3)
    writer.kill()
    writer.wait(scale(3))
    wait_for(lambda: mount.status("dev1")["verb"] == "none", 3)


def test_root_verbs(session):
    server, mount = session
    control = mount / "control"
    control.write_text('create dev2 {"runId": "r 1"}\n')
    identity = mount.status("dev2")["id"]
    control.write_text("detach dev2\n")
    assert not (mount / "dev2").exists()
    control.write_text(f"attach {identity} again\n")
    assert mount.status("again")["id"] == identity
    control.write_text("delete again\n")
    assert not (mount / "again").exists()
    with server.client() as client:
        assert client.reattach(identity) == {"alive": False}
    for line, expected in (("create dev1", errno.EEXIST), ("create bad/name", errno.EINVAL),
                           ("create dev3 5", errno.EINVAL), ("delete nobody", errno.ENOENT),
                           ("attach 00000000-0000-4000-8000-000000000000", errno.ENOENT)):
        fd = os.open(control, os.O_WRONLY)
        try:
            with pytest.raises(OSError) as caught:
                os.write(fd, line.encode() + b"\n")
            assert caught.value.errno == expected, line
        finally:
            os.close(fd)


def test_temporary_names_beside_control_do_not_stay(session):
    """mkstemp, a write and no rename: the file is there until somebody removes it."""
    _, mount = session
    with tempfile.NamedTemporaryFile(dir=mount / "dev1") as file:
        assert os.path.basename(file.name) in os.listdir(mount / "dev1")
    assert os.path.basename(file.name) not in os.listdir(mount / "dev1")
