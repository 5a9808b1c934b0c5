"""Other users of a mount: allow_other, gid and umask."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="takes other users' parts")

GROUP = 51000
MEMBER = 51001
STRANGER = 51002


def run_as(user, group, script, *args):
    """The errno of a Python script's OSError, 0 when it ran."""
    text = ("import os, sys\n"
            "try:\n" + "".join(f"    {line}\n" for line in script.splitlines()) +
            "except OSError as error:\n"
            "    sys.exit(error.errno)\n")
    return subprocess.run([sys.executable, "-c", text, *map(str, args)], user=user, group=group,
                          extra_groups=[], cwd="/", check=False).returncode


@pytest.fixture
def mount(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url, ["allow_other", f"gid={GROUP}", "umask=007"])
    # The way there is the test's own directory.
    os.chmod(mount.work, 0o711)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs").chmod(0o777)
    return mount


def test_a_member_saves_and_a_stranger_sees_nothing(mount):
    fs = mount / "dev1/fs"
    (fs / "f").write_text("ours")
    (fs / "f").chmod(0o666)
    (fs / "d").mkdir()
    (fs / "d").chmod(0o777)
    assert oct(os.stat(fs / "f").st_mode) == "0o100660"
    save = ("open(sys.argv[1] + '/f', 'w').write('theirs')\n"
            "open(sys.argv[1] + '/d/new', 'w').write('new')\n"
            "open(sys.argv[1] + '/f.tmp', 'w').write('replaced')\n"
            "os.rename(sys.argv[1] + '/f.tmp', sys.argv[1] + '/g')\n"
            "assert sorted(os.listdir(sys.argv[1])) == ['d', 'f', 'g']")
    assert run_as(MEMBER, GROUP, save, fs) == 0
    assert (fs / "f").read_text() == "theirs"
    assert (fs / "g").read_text() == "replaced"
    for script in ("os.listdir(sys.argv[1])", "open(sys.argv[1] + '/f')",
                   "open(sys.argv[1] + '/new', 'w')", "os.stat(sys.argv[1] + '/f')"):
        assert run_as(STRANGER, STRANGER, script, fs) == 13, script


def test_what_is_ours_is_the_owners(mount):
    for script in ("open(sys.argv[1] + '/status')", "open(sys.argv[1] + '/control', 'w')",
                   "os.mkdir(sys.argv[1] + '/dev2')", "os.listdir(sys.argv[1])",
                   "open(sys.argv[1] + '/dev1/status')", "os.listdir(sys.argv[1] + '/dev1')",
                   "os.listdir(sys.argv[1] + '/snapshots')"):
        assert run_as(MEMBER, GROUP, script, mount.mnt) == 13, script


def test_without_allow_other_nobody_else_comes_in(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    os.chmod(mount.work, 0o711)
    assert run_as(MEMBER, MEMBER, "os.stat(sys.argv[1])", mount.mnt) == 13


def test_umask_hides_bits_and_changes_none(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url, ["umask=077"])
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    (mount / "dev1/fs/f").chmod(0o755)
    assert oct(os.stat(mount / "dev1/fs/f").st_mode) == "0o100700"
    identity = mount.status("dev1")["id"]
    assert oct(os.stat(server.session_dir(identity) / "f").st_mode) == "0o100755"
