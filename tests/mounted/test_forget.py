"""A session that is deleted or detached is the one that was meant; nothing else goes with it."""

import errno
import os
import subprocess
import time

import pytest

from sbxtest import scale, wait_for


def test_renamed_while_it_is_deleted(server, mount):
    (mount / "a").mkdir()
    server.set_faults("delete:1:delay=2000")
    with subprocess.Popen(["dash", "-c", f"echo delete a > {mount / 'control'}"]) as deleter:
        time.sleep(0.5)
        os.rename(mount / "a", mount / "b")
        (mount / "a").mkdir()
        identity = mount.status("a")["id"]
        (mount / "a/fs/f").write_text("x")
        assert deleter.wait(scale(20)) == 0
    assert "b" not in os.listdir(mount.mnt)
    assert mount.status("a")["id"] == identity
    assert (mount / "a/fs/f").read_text() == "x"
    mount.kill()
    mount.start()
    assert mount.status("a")["id"] == identity
    assert not (mount / "b").exists()


def test_detached_after_a_big_file(server, mount):
    """What tells whose staged files are whose is no unsent file."""
    (mount / "a").mkdir()
    (mount / "a/fs/big").write_bytes(b"x" * (2 << 20))
    wait_for(lambda: mount.status("a")["pending_writes"].startswith("0 "), 20)
    (mount / "control").write_text("detach a\n")
    assert "a" not in os.listdir(mount.mnt)


def test_unsent_bytes_keep_it(server, mount):
    (mount / "a").mkdir()
    (mount / "a/fs/f").write_text("x")
    with open(mount / "a/fs/f", "w") as file:
        file.write("unsent")
        file.flush()
        fd = os.open(mount / "control", os.O_WRONLY)
        try:
            with pytest.raises(OSError) as caught:
                os.write(fd, b"detach a\n")
            assert caught.value.errno == errno.EBUSY
        finally:
            os.close(fd)
    assert (mount / "a/fs/f").read_text() == "unsent"
