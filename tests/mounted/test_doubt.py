"""An append whose answer was lost, and whose outcome the sandbox has forgotten by now."""

import glob
import os
import shutil
import signal
import struct
import time
import zlib

import pytest

from sbxtest.timing import wait_for

# struct spool_slot of client/workspace/spool.c, without its text; two of them begin a spool.
SLOT = struct.Struct("=8sIIQQ6Iqq5Qq40sQqQ")
SLOT_SIZE = SLOT.size + 256 + 4096
SLOTS = (0, 8192)
CHECKSUM, ATTEMPT_NS = 2, -2
HOUR_NS = 3600 * 10**9


@pytest.fixture(params=["gnu-host", "busybox-host"])
def place(request, start_place):
    place = start_place(request.param, ["timeout=2", "ttl=60"])
    (place.fs / "f").write_bytes(b"first\n")
    os.listdir(place.fs)
    return place


def append(place, name, data):
    fd = os.open(place.fs / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, data)
    with pytest.raises(OSError):
        os.close(fd)


def age(path):
    """The attempt that the spool tells of was made an hour ago."""
    with open(path, "r+b") as file:
        for at in SLOTS:
            file.seek(at)
            text = file.read(SLOT_SIZE)
            fields = list(SLOT.unpack(text[:SLOT.size]))
            if not fields[0].rstrip(b"\0"):
                continue
            checksum, fields[CHECKSUM] = fields[CHECKSUM], 0
            assert zlib.crc32(SLOT.pack(*fields) + text[SLOT.size:]) == checksum
            fields[ATTEMPT_NS] -= HOUR_NS
            fields[CHECKSUM] = zlib.crc32(SLOT.pack(*fields) + text[SLOT.size:])
            file.seek(at)
            file.write(SLOT.pack(*fields))


def is_at_work(place) -> bool:
    """Some program of the sandbox runs: the answer to who asked for it was dropped before."""
    for cwd in glob.glob("/proc/[0-9]*/cwd"):
        try:
            if os.readlink(cwd).startswith(str(place.root.resolve())):
                return True
        except OSError:
            pass
    return False


def after_an_hour(place, name, theirs=b""):
    """The mount was killed, and another client's requests have swept what it left."""
    place.mount.signal(signal.SIGKILL)
    place.mount.wait_gone()
    place.server.set_faults()
    time.sleep(0.3)
    wait_for(lambda: not is_at_work(place), 15)
    shutil.rmtree(place.root / ".sbxfs/ops")
    (place.root / ".sbxfs/ops").mkdir()
    with open(place.root / name, "ab") as file:
        file.write(theirs)
    spools = list(place.mount.state_dir.rglob("*.spool"))
    assert len(spools) == 1
    age(spools[0])
    place.mount.start()
    os.listdir(place.fs)
    wait_for(lambda: place.mount.status("dev1")["pending_writes"].split()[0] == "0", 15)


@pytest.mark.parametrize("text", [b"ours\n", b"\377ours" * 40_000], ids=["small", "big"])
@pytest.mark.parametrize("name", ["f", "new"])
def test_done_is_not_done_again(place, name, text):
    before = (place.root / name).read_bytes() if name == "f" else b""
    place.server.set_faults("exec:*:drop")
    append(place, name, text)
    assert (place.root / name).read_bytes() == before + text
    after_an_hour(place, name, b"theirs\n")
    assert (place.root / name).read_bytes() == before + text + b"theirs\n"


def test_not_done_is_done(place):
    place.server.set_faults("exec:*:refuse")
    append(place, "f", b"ours\n")
    after_an_hour(place, "f", b"theirs\n")
    assert (place.root / "f").read_bytes() == b"first\ntheirs\nours\n"


def test_others_have_appended_before_it(place):
    place.inside("echo theirs >>f")
    place.server.set_faults("exec:*:drop")
    append(place, "f", b"ours\n")
    after_an_hour(place, "f")
    assert (place.root / "f").read_bytes() == b"first\ntheirs\nours\n"
