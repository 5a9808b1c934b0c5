"""Archives that are cut, garbled or hostile; a mount that is killed while it writes one."""

import errno
import json
import os
import random
import subprocess
import time

import pytest

from sbxtest import scale, tar, wait_for
from sbxtest.calls import order
from sbxtest.process import is_running

BLOCK = 512


def kept(mount):
    """The directory on this machine that holds the snapshots of dev1."""
    return next(mount.state_dir.iterdir()) / "snapshots/dev1"


def files(mount):
    return sorted(os.listdir(kept(mount))) if kept(mount).exists() else []


def copy_in(mount, data: bytes, name="bad.tar"):
    """As cp does it; 0 or the errno of the close."""
    out = os.open(mount / "snapshots/dev1" / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(out, view):]
    except BaseException:
        os.close(out)
        raise
    try:
        os.close(out)
    except OSError as error:
        return error.errno
    return 0


GOOD = [tar.directory("d/"), tar.member("d/f", data=b"content" * 100),
        tar.symlink("l", "d/f"), tar.member("g", data=b"x" * 3000)]

HOSTILE = {
    "leads out": [tar.member("../x", data=b"x")],
    "leads out in the middle": [tar.member("a/../../x", data=b"x")],
    "leads out by PAX": [tar.member("x", data=b"x", pax={"path": "../x"})],
    "absolute": [tar.member("/etc/x", data=b"x")],
    "absolute by PAX": [tar.member("x", data=b"x", pax={"path": "/x"})],
    "double slash": [tar.member("a//b", data=b"x")],
    "dot": [tar.member("a/./b", data=b"x")],
    "empty name": [tar.member("", data=b"x")],
    "name of 256": [tar.member("x", data=b"x", pax={"path": "n" * 256})],
    "path of 4096": [tar.member("x", data=b"x", pax={"path": "d/" * 2047 + "xx"})],
    "through its own link": [tar.symlink("l", "/tmp"), tar.member("l/x", data=b"x")],
    "through its own file": [tar.member("f", data=b"x"), tar.member("f/x", data=b"x")],
    "through its own link, later": [tar.member("l/x", data=b"x"), tar.symlink("l", "/tmp"),
                                    tar.member("l/y", data=b"y")],
    "file over its directory": [tar.directory("d/"), tar.member("d", data=b"x")],
    "character device": [tar.member("x", "3")],
    "block device": [tar.member("x", "4")],
    "FIFO": [tar.member("x", "6")],
    "hard link to nothing": [tar.member("x", "1", link="nowhere")],
    "hard link out": [tar.member("x", "1", link="../../etc/passwd")],
    "hard link to an absolute path": [tar.member("x", "1", link="/etc/passwd")],
    "hard link to a link": [tar.symlink("l", "/etc/passwd"), tar.member("x", "1", link="l")],
    "empty link": [tar.member("l", "2", link="")],
    "100 GB declared": [tar.member("x", size=100 << 30)],
    "100 GB declared by PAX": [tar.member("x", size=0, pax={"size": str(100 << 30)})],
    "sparse bomb": [tar.member("GNUSparseFile.0/x", data=b"0\n", pax={
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x",
        "GNU.sparse.realsize": str(90 << 30)})],
    "wrong checksum": [tar.member("x", data=b"x", checksum=1)],
}


@pytest.fixture
def place(start_place):
    place = start_place()
    (place.fs / "mine").write_text("mine")
    return place


@pytest.fixture(params=["import", "hydrate"])
def refuses(request, place):
    """Has an archive copied in, or hydrated after it was put where snapshots are kept."""
    def by_import(data):
        assert copy_in(place.mount, data) == errno.EINVAL
        line = place.mount.read("errors").splitlines()[-1]
        assert "import snapshots/dev1/bad.tar EINVAL" in line and len(line) < 500
        assert files(place.mount) == []

    def by_hydrate(data):
        kept(place.mount).mkdir(mode=0o700, parents=True, exist_ok=True)
        (kept(place.mount) / "bad.tar").write_bytes(data)
        assert order(place.mount, "hydrate bad over") in (errno.EINVAL, errno.E2BIG)
        (kept(place.mount) / "bad.tar").unlink()

    def check(data):
        mark = place.log_mark()
        begun = time.monotonic()
        (by_import if request.param == "import" else by_hydrate)(data)
        assert time.monotonic() - begun < scale(30)
        assert not any(record.route in ("hydrate", "put", "create")
                       for record in place.server.log(mark))
        assert os.listdir(place.fs) == ["mine"]
    return check


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(refuses, what):
    refuses(tar.archive(GOOD[-1], *HOSTILE[what]))


def test_good(place):
    """The good members alone are taken: what is refused above is refused for its reason."""
    assert copy_in(place.mount, tar.archive(*GOOD), "good.tar") == 0
    assert order(place.mount, "hydrate good") == 0, place.errors()
    assert (place.fs / "d/f").read_bytes() == b"content" * 100


def test_cut_anywhere(refuses):
    whole = tar.archive(*GOOD)
    for size in (1, 511, 512, 1024, 1500, 2048, 3072, len(whole) - 1024, len(whole) - 512,
                 len(whole) - 1):
        refuses(whole[:size])


def test_no_archive_at_all(refuses):
    refuses(random.Random(5).randbytes(20480))
    refuses(b"\x1f\x8b" + bytes(20478))
    refuses(b"x" * 9216 + bytes(1024))


def test_a_million_tiny_members(refuses):
    one = tar.header("n0000000", size=0)
    rest = sum(one) - sum(one[1:8]) - sum(one[148:156]) + 8 * ord(" ")
    blocks = []
    for i in range(1_000_000):
        digits = b"%07d" % i
        blocks += [one[:1], digits, one[8:148], b"%06o\0 " % (rest + sum(digits)), one[156:]]
    refuses(b"".join(blocks) + bytes(1024))


def test_bits_flipped(place):
    """Wherever a snapshot was damaged on this machine: nothing is sent, nothing changed."""
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_bytes(os.urandom(5000))
    assert order(place.mount, "persist one") == 0
    path = kept(place.mount) / "one.tar"
    whole = path.read_bytes()
    mark = place.log_mark()
    rng = random.Random(7)
    for _ in range(40):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        assert order(place.mount, "hydrate one over") == errno.EIO
    path.write_bytes(whole[:-512])
    assert order(place.mount, "hydrate one over") == errno.EIO
    assert not any(record.route == "hydrate" for record in place.server.log(mark))
    path.write_bytes(whole)
    assert order(place.mount, "hydrate one over") == 0


@pytest.mark.parametrize("fault", ["drop", "status=500", "cut=5", "garbage"])
def test_hydrate_that_fails(place, fault):
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist one") == 0
    place.server.set_faults(f"hydrate:*:{fault}")
    (place.fs / "f").unlink()
    assert order(place.mount, "hydrate one") == errno.EIO
    place.server.set_faults()
    assert order(place.mount, "hydrate one over") == 0
    assert (place.fs / "f").read_text() == "x"


def test_a_200_that_did_nothing(place):
    """The server says that it has laid the archive, and has not."""
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist one") == 0
    (place.fs / "f").unlink()
    place.server.set_faults('hydrate:*:reply={"ok":true}')
    assert order(place.mount, "hydrate one") == errno.EIO
    assert "f: is not there" in place.mount.status("dev1")["last"]


@pytest.mark.root
def test_full_disk_here(start_place, tmp_path):
    """No room for the archive: ENOSPC, and nothing of it stays."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", small], check=True)
    try:
        place = start_place(options=[f"state_dir={small}"])
        (place.root / "big").write_bytes(os.urandom(8 << 20))
        place.fresh()
        assert order(place.mount, "persist one") == errno.ENOSPC
        assert os.listdir(place.mount / "snapshots/dev1") == []
        (place.root / "big").unlink()
        place.fresh()
        assert order(place.mount, "persist one") == 0
        place.mount.unmount()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_killed_at_random(start_place):
    """kill -9 at twenty moments of persist: archives and state are whole, a resume is verified."""
    place = start_place()
    mount = place.mount
    for i in range(50):
        (place.root / f"f{i}").write_bytes(os.urandom(20000))
    place.fresh()
    begun = time.monotonic()
    assert order(mount, "persist first") == 0
    took = time.monotonic() - begun
    rng = random.Random(11)
    cut_short = 0
    for round_ in range(20):
        (place.root / "changes").write_text(str(round_))
        control = os.open(mount / "dev1/control", os.O_WRONLY)
        writer = subprocess.Popen(["bash", "-c", f"echo persist s{round_} >&3"],
                                  pass_fds=(), preexec_fn=lambda fd=control: os.dup2(fd, 3),
                                  stderr=subprocess.DEVNULL, close_fds=False)
        os.close(control)
        time.sleep(rng.uniform(0, took * 1.2))
        os.kill(mount.pid, 9)
        wait_for(lambda: not is_running(mount.pid), 10)
        subprocess.run(["fusermount3", "-uz", mount.mnt], check=True)
        writer.wait(scale(10))
        names = files(mount)
        cut_short += f"s{round_}.tar" not in names
        for name in names:
            if name.endswith(".tar") and not name.startswith("."):
                tar.parse((kept(mount) / name).read_bytes())
            elif name.endswith(".json") and not name.startswith("."):
                assert json.loads((kept(mount) / name).read_text())["verified"]
        state = json.loads((kept(mount).parent.parent / "sessions/dev1/state.json").read_text())
        assert os.path.exists(state["snapshot"]["ref"])
        mount.start()
    assert cut_short > 0
    assert order(mount, "persist last") == 0
    # What the killed ones left is swept.
    assert [name for name in files(mount)
            if name.startswith(".") and not name.endswith(".tmp")] == []
    for name in files(mount):
        if name.endswith(".tmp"):
            os.utime(kept(mount) / name, (0, 0))
    assert order(mount, "persist swept") == 0
    assert [name for name in files(mount) if name.startswith(".")] == []
    with place.server.client() as client:
        client.delete(place.id)
    assert order(mount, "resume") == 0
    assert "verified" in mount.status("dev1")["last"]
    for name in files(mount):
        if name.endswith(".tar"):
            assert order(mount, f"hydrate {name[:-4]} over") == 0, name
