"""Names: awkward ones from either side, and what a hostile server calls its files."""

import json
import os
import re
import subprocess

import pytest

from sbxtest.relay import Relay, change_listing

AWKWARD = [
    "with space", " leading", "trailing ", "#?%&+=", "%41", "%2e%2e", "a+b", "line\nbreak",
    "cr\r\nX-Header: yes\r\n", "-rf", "--", "\u00e9 composed", "e\u0301 decomposed", "n" * 255,
    "\u00fc" * 127 + "x", "*", "[a-z]?", "$HOME", "`id`", "'single'", '"double"', "back\\slash",
    "\\n", "tab\there", "\x01\x7f", "...", "..two", ".hidden", "C:x", "a;b|c&d>e", "{}", "~",
    "\u65e5\u672c\u8a9e", "\U0001f600", "=x", ":100", "!ENOENT", "@file",
]
RAW = [b"\xff\xfe", b"latin-\xe9", b"cut \xe2\x82", b"\xc0\xaf"]


def spelled(name) -> bytes:
    return name if isinstance(name, bytes) else name.encode()


def listed(path) -> set:
    return set(os.listdir(os.fsencode(path)))


def inside(path, *names) -> bytes:
    return os.path.join(os.fsencode(path), *names)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read(path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def both_ways(place, names, not_in_the_root=()):
    names = [spelled(name) for name in names]
    in_root = [name for name in names if name not in not_in_the_root]
    for name in in_root:
        write(inside(place.fs, name), b"here " + name)
    assert listed(place.root) - {b".sbxfs"} == set(in_root)
    for name in in_root:
        assert read(inside(place.root, name)) == b"here " + name
        assert read(inside(place.fs, name)) == b"here " + name
        os.unlink(inside(place.root, name))
    os.mkdir(inside(place.root, b"made"))
    for name in names:
        os.mkdir(inside(place.root, b"made", name))
        write(inside(place.root, b"made", name, name), b"there " + name)
    place.fresh()
    assert listed(place.fs) == {b"made"}
    assert listed(inside(place.fs, b"made")) == set(names)
    for name in names:
        assert listed(inside(place.fs, b"made", name)) == {name}
        assert read(inside(place.fs, b"made", name, name)) == b"there " + name
        assert os.stat(inside(place.fs, b"made", name, name)).st_size == 6 + len(name)


@pytest.mark.parametrize("kind", ["gnu-host-uid", "gnu-overlay", "busybox-host"])
def test_both_ways(start_place, kind):
    both_ways(start_place(kind), AWKWARD + RAW)


@pytest.mark.parametrize("kind", ["gnu-host", "gnu-overlay"])
def test_through_the_plain_routes(start_place, kind):
    """Without exec: what a route carries; in the root none that begins with two dots."""
    place = start_place(kind, ["exec=no"])
    dotted = [spelled(name) for name in AWKWARD if name.startswith("..")]
    both_ways(place, AWKWARD, dotted)
    for name in RAW + dotted:
        before = listed(place.root)
        with pytest.raises(OSError):
            write(inside(place.fs, name), b"x")
        assert listed(place.root) == before


@pytest.mark.long(10)
@pytest.mark.core
def test_operations_on_them(start_place):
    """Renamed from one to the next, linked, removed: under exactly that name."""
    place = start_place()
    names = [spelled(name) for name in AWKWARD + RAW]
    write(inside(place.fs, names[0]), b"x")
    for old, new in zip(names, names[1:]):
        os.rename(inside(place.fs, old), inside(place.fs, new))
        assert listed(place.root) - {b".sbxfs"} == {new}
    last = names[-1]
    for name in names[:-1]:
        os.mkdir(inside(place.fs, name))
        os.symlink(last, inside(place.fs, name, b"link"))
        os.chmod(inside(place.fs, name), 0o750)
        assert os.readlink(inside(place.root, name, b"link")) == last
        assert os.stat(inside(place.root, name)).st_mode & 0o777 == 0o750
    os.unlink(inside(place.fs, last))
    subprocess.run(["rm", "-rf", "--", *(inside(place.fs, name) for name in names[:-1])],
                   check=True)
    assert listed(place.root) - {b".sbxfs"} == set()


def test_two_forms_of_one_letter_are_two_files(start_place):
    place = start_place()
    (place.fs / "\u00e9").write_text("composed")
    (place.fs / "e\u0301").write_text("decomposed")
    assert (place.root / "\u00e9").read_text() == "composed"
    assert (place.root / "e\u0301").read_text() == "decomposed"


def hostile_line(errors: str, op: str, name: str) -> bool:
    """errors has a line of that operation that holds the name."""
    return any(re.match(rf"\S+ {op} ", line) and name in line for line in errors.splitlines())


LISTING = [
    ("../../etc/passwd", "../../etc/passwd"), ("a/b", "a/b"), ("/abs", "/abs"), ("..", ".."),
    (".", None), ("", None), ("nul\0byte", "nul\\x00byte"), ("x" * 256, "x" * 256),
    ("\x1b[2J", None), ("good", None),
]


def test_hostile_listing(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url, ["exec=no"])
    (mount / "dev1").mkdir()
    for name in ("good", "\x1b[2J"):
        (mount / "dev1/fs" / name).write_text("good")
    answer = json.dumps([{"name": name, "isDirectory": False} for name, _ in LISTING])
    server.set_faults(f"readdir:*:reply={answer}")
    (mount / "dev1/control").write_text("refresh\n")
    names = os.listdir(mount / "dev1/fs")
    assert sorted(names) == ["\x1b[2J", "good"]
    assert (mount / "dev1/fs/good").read_text() == "good"
    errors = mount.read("dev1/errors")
    for _, shown in LISTING:
        if shown:
            assert hostile_line(errors, "readdir", shown), (shown, errors)
    assert all(line.isprintable() for line in errors.splitlines())


@pytest.mark.parametrize("answer", ["garbage", "wrongtype", "reply={\"entries\":[]}", "reply=null",
                                    "reply=[1,2]", "reply=[{\"name\":5,\"isDirectory\":true}]"])
def test_listing_that_is_none(start_sbxd, start_mount, answer):
    server = start_sbxd()
    mount = start_mount(server.url, ["exec=no"])
    (mount / "dev1").mkdir()
    server.set_faults(f"readdir:*:{answer}")
    with pytest.raises(OSError) as caught:
        os.listdir(mount / "dev1/fs")
    assert caught.value.errno == 5
    assert hostile_line(mount.read("dev1/errors"), "readdir", "EIO")


def test_hostile_scan(start_sbxd, start_mount):
    """A sandbox whose own tools lie about names."""
    server = start_sbxd()
    bad = [b"..", b"../evil", b"x" * 256, b"d/..", b"d/" + b"y" * 256, b"../../../etc/passwd"]

    def lie(data: bytes) -> bytes:
        found = re.search(rb"(af f [^\0]* )\./good\0", data)
        if not found:
            return data
        # Last, when all directories are known.
        return data[:-2] + b"".join(found[1] + b"./" + name + b"\0\0" for name in bad) + data[-2:]

    def change(method, target, body, answer):
        if target.endswith("/exec"):
            return change_listing(body, answer, lie)
        return answer

    with server.client() as client:
        identity = client.create()["sessionId"]
    (server.session_dir(identity) / "d").mkdir()
    (server.session_dir(identity) / "good").write_text("good")
    with Relay(server.url, change) as relay:
        mount = start_mount(relay.url, [f"attach={identity}:dev1"])
        (mount / "dev1/control").write_text("refresh\n")
        assert sorted(os.listdir(mount / "dev1/fs")) == ["d", "good"]
        assert os.listdir(mount / "dev1/fs/d") == []
        assert (mount / "dev1/fs/good").read_text() == "good"
        errors = mount.read("dev1/errors")
        for name in ("..", "x" * 256, "d/..", "d/" + "y" * 256):
            assert hostile_line(errors, "scan", name), (name, errors)
        mount.unmount()


@pytest.mark.parametrize("identity", ["../../x", "", "a/b", "x" * 65, "a b", "x\n", "\u00e9", "a?b",
                                      5, None])
def test_hostile_session_id(start_sbxd, start_mount, identity):
    server = start_sbxd()
    mount = start_mount(server.url)
    answer = json.dumps({"sessionId": identity, "root": "/x"})
    server.set_faults(f"create:*:reply={answer}")
    with pytest.raises(OSError) as caught:
        (mount / "dev1").mkdir()
    assert caught.value.errno == 5
    assert os.listdir(mount.mnt).count("dev1") == 0
    errors = mount.read("errors")
    assert re.search(r"create .*EIO", errors), errors
    if isinstance(identity, str) and identity.isascii() and identity.isprintable() and identity:
        assert identity in errors
    assert sorted(path.name for path in mount.state_dir.rglob("*") if path.name in ("x", "dev1")) \
        == []


def test_hostile_root(start_sbxd, start_mount):
    """root is the server's word: what it says is shown on one line and used for nothing here."""
    server = start_sbxd()
    mount = start_mount(server.url)
    answer = json.dumps({"sessionId": "abc-1", "root": "/x\nstate: live\x1b[2J"})
    server.set_faults(f"create:1:reply={answer}")
    (mount / "dev1").mkdir()
    status = mount.read("dev1/status")
    assert status.count("\nstate:") == 1 and "\x1b" not in status
