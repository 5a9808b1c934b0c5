"""A mount that did a bit of everything ends with nothing left: no leak, no error."""

import os
import shutil

import pytest

from sbxtest.timing import scale, wait_for

pytestmark = [pytest.mark.core, pytest.mark.valgrind]


def test_a_bit_of_everything(start_sbxd, start_mount):
    server = start_sbxd(token="secret")
    mount = start_mount(server.url, token="secret", seconds=120)
    fs = mount / "a/fs"
    (mount / "a").mkdir()
    (fs / "d/e").mkdir(parents=True)
    for index in range(20):
        (fs / f"d/f{index}").write_text(f"{index}\n" * 100)
    (fs / "big").write_bytes(os.urandom(3 << 20))
    shutil.copy(fs / "big", fs / "copy")
    assert (fs / "copy").read_bytes() == (fs / "big").read_bytes()
    os.rename(fs / "d/f0", fs / "d/moved")
    os.symlink("moved", fs / "d/link")
    os.link(fs / "d/moved", fs / "d/second")
    with open(fs / "d/moved", "r+b") as file:
        file.seek(10)
        file.write(b"patched")
    assert (fs / "d/link").read_bytes()[10:17] == b"patched"
    shutil.rmtree(fs / "d/e")
    with pytest.raises(FileNotFoundError):
        (fs / "absent").read_text()
    (mount / "a/jobs/new").write_text("echo out; exit 3\n")
    exit_file = mount / "a/jobs/latest/exit"
    wait_for(exit_file.exists, 60)
    assert exit_file.read_text() == "3\n"
    assert (mount / "a/jobs/latest/output.log").read_text() == "out\n"
    (mount / "a/control").write_text("persist\n")
    (mount / "a/control").write_text("hydrate over\n")
    for name in ("README.md", "status", "errors", "stats", "a/status", "a/errors", "a/state.json"):
        mount.read(name)
    mount.unmount(scale(30))
