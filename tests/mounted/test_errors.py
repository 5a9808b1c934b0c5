"""`errors` tells what a local disk would not have said: of what, and why."""

import errno
import os
import stat

import pytest

from sbxtest.timing import wait_for


def refused(error, function, *args):
    with pytest.raises(OSError) as caught:
        function(*args)
    assert caught.value.errno == error


def test_refusals(place):
    uid = os.stat(place.fs).st_uid
    (place.fs / "f").touch()
    refused(errno.EPERM, os.mkdir, place.fs / ".sbxfs")
    refused(errno.EPERM, os.chmod, place.fs / "f", 0o4755)
    refused(errno.EINVAL, os.mkdir, place.mount / ".hidden")
    refused(errno.EINVAL, os.rename, place.mount / "dev1", place.mount / "no good")
    found = place.errors()
    assert "name .sbxfs EPERM" in found
    assert "chmod f EPERM" in found
    mount = place.mount.read("errors")
    assert "mkdir .hidden EINVAL" in mount
    assert "rename no good EINVAL" in mount
    if os.geteuid() == 0:
        refused(errno.EPERM, os.chown, place.fs / "f", uid + 1, -1)
        assert "chown f EPERM" in place.errors()
    assert stat.S_IMODE(os.stat(place.fs / "f").st_mode) & 0o7000 == 0


def test_what_failed(start_place):
    """The operation and the path, not the request that carried them."""
    place = start_place("gnu-host", ["timeout=1"])
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_text("x")
    place.fresh()
    os.listdir(place.fs / "d")
    place.server.set_faults("exec:*:blackhole")
    refused(errno.ETIMEDOUT, os.mkdir, place.fs / "d/new")
    place.server.set_faults()
    assert "mkdir d/new ETIMEDOUT" in place.errors()
    place.fresh()
    wait_for(lambda: os.path.isdir(place.fs / "d"), 10)  # it is found again a moment later
    (place.root / "d/g").write_bytes(b"g" * 300_000)
    place.fresh()
    place.server.set_faults("exec:*:blackhole")
    with pytest.raises(OSError):
        os.listdir(place.fs / "d")
    place.server.set_faults()
    assert any(line.split()[1] == "list" and "ETIMEDOUT" in line
               for line in place.errors().splitlines()), place.errors()
