"""scan: byte-exact listings with attributes, and what changed."""

import errno
import os
import stat
import time

from sandbox import FAILED, KNOWN, LISTED, UNCHANGED, lstat, seen

NAMES = [bytes([b]) * 3 for b in range(1, 256) if b != 0x2f] + [
    b"a b", b"-rf", b"--", b"'q'", b'"q"', b"$x", b"`x`", b"\\n", b"\\0101", b"*", b"?", b"[a]",
    b"%s", b"~", b"#", b":x", b":", b"end\n", b"\n", b"\n\n", b"..x", b".x", b"x" * 255,
    b"\xff" * 255, "e\u0301".encode(), "\u00e9".encode(), b"a' -> 'b", b"a -> b", b"{}", b"\\c",
]


def path(box, *names):
    return os.path.join(os.fsencode(box.root), *(os.fsencode(n) for n in names))


def write(box, name, data=b""):
    with open(path(box, name), "wb") as file:
        file.write(data)


def check_listing(box, place, directory):
    """The listing is what the directory holds, byte for byte."""
    where = path(box, directory)
    names = {n for n in os.listdir(where) if directory or n != b".sbxfs"}
    assert set(place.entries) == names
    for name, entry in place.entries.items():
        assert seen(entry.attr) == lstat(os.path.join(where, name)), name
        if stat.S_ISLNK(entry.attr.mode):
            assert entry.link == os.readlink(os.path.join(where, name))
        else:
            assert entry.link == b""


def test_names_and_links(box):
    os.mkdir(path(box, "d"))
    for name in NAMES:
        write(box, b"d/" + name, name)
    links = path(box, "links")
    os.mkdir(links)
    for i, name in enumerate(NAMES):
        os.symlink(name, os.path.join(links, b"%d" % i))
    for i, text in enumerate([b"/etc/passwd", b"../x//y//", b"x//\n", b"x'//\n", b"a\n'//\nb\n",
                              b"x" * 4000, b"//", b"'"]):
        os.symlink(text, os.path.join(links, b"t%d" % i))
    places = box.scan("list", "", "d", "links")
    for directory in ("", "d", "links"):
        place = places[directory.encode()]
        assert (place.state, place.error) == (LISTED, 0)
        assert seen(place.attr) == lstat(path(box, directory))
        check_listing(box, place, directory)
    os.mkdir(path(box, "e"))
    dirs = [b"e/" + name for name in NAMES]
    for directory in dirs:
        os.mkdir(path(box, directory))
        write(box, directory + b"/in", directory)
    places = box.scan("list", *dirs)
    assert list(places) == dirs
    for directory in dirs:
        assert set(places[directory].entries) == {b"in"}
        assert places[directory].entries[b"in"].attr.size == len(directory)


def test_kinds_and_attributes(box):
    write(box, "f", b"x" * 70000)
    os.chmod(path(box, "f"), 0o4751)
    os.mkfifo(path(box, "p"))
    os.mkdir(path(box, "d"), 0o700)
    os.chmod(path(box, "d"), 0o1777)
    os.link(path(box, "f"), path(box, "g"))
    os.utime(path(box, "d"), ns=(1, -5_500_000_001))
    os.utime(path(box, "p"), ns=(0, 2**33 * 10**9 + 999_999_999))
    with open(path(box, "sparse"), "wb") as file:
        file.truncate(5 << 30)
    place = box.scan("list", "")[b""]
    check_listing(box, place, "")
    assert stat.S_ISFIFO(place.entries[b"p"].attr.mode)
    assert place.entries[b"f"].attr.nlink == 2
    assert place.entries[b"f"].attr.blocks == os.stat(path(box, "f")).st_blocks
    assert place.entries[b"sparse"].attr.blocks == 0
    assert place.entries[b"f"].attr.has_ns


def test_lstat(box):
    write(box, "f", b"12")
    os.symlink("f", path(box, "l"))
    os.mkdir(path(box, "d"))
    places = box.scan("lstat", "f", "l", "d", "gone", "f/x", "d/gone", "", box.root, "/nosuch/x",
                      b"\xff\n")
    for name in ("f", "l", "d", ""):
        place = places[name.encode()]
        assert place.state == KNOWN and seen(place.attr) == lstat(path(box, name))
    assert places[b"l"].link == b"f"
    assert places[box.root.encode()].state == KNOWN
    for name, why in ((b"gone", errno.ENOENT), (b"f/x", errno.ENOTDIR), (b"d/gone", errno.ENOENT),
                      (b"/nosuch/x", errno.ENOENT), (b"\xff\n", errno.ENOENT)):
        assert (places[name].state, places[name].error) == (FAILED, why)


def test_list_of_what_is_none(box):
    write(box, "f")
    os.symlink(".", path(box, "l"))
    os.mkdir(path(box, "d"))
    places = box.scan("list", "f", "l", "gone", "d", "f/x")
    assert [(p.state, p.error) for p in places.values()] == [
        (FAILED, errno.ENOTDIR), (FAILED, errno.ENOTDIR), (FAILED, errno.ENOENT), (LISTED, 0),
        (FAILED, errno.ENOTDIR)]


def make_tree(box):
    for i in range(4):
        for j in range(5):
            os.makedirs(path(box, f"a{i}/b{j}/c"))
            for k in range(3):
                write(box, f"a{i}/b{j}/f{k}")
                write(box, f"a{i}/b{j}/c/g{k}")


def test_tree_whole_and_bounded(box):
    make_tree(box)
    places = box.scan("tree", "")
    assert box.complete and len(places) == 1 + 4 + 20 + 20
    for name, place in places.items():
        assert place.state == LISTED
        check_listing(box, place, name)
    # One level has 4 entries, two 24, three 104, four 164.
    for limit, levels in ((1, 1), (10, 1), (30, 2), (110, 3), (1000, 9)):
        places = box.scan("tree", "", limit=limit)
        assert box.complete == (levels == 9)
        assert set(places) == {os.fsencode("" if d == "." else d) for d in tree_dirs(box)
                               if d == "." or d.count("/") + 1 < levels}
        for name, place in places.items():
            check_listing(box, place, name)


def tree_dirs(box):
    for where, _, _ in os.walk(box.root):
        if ".sbxfs" not in where:
            yield os.path.relpath(where, box.root)


def test_tree_exceeding_the_reply(box):
    for i in range(30):
        os.mkdir(path(box, f"d{i}"))
        for j in range(60):
            write(box, f"d{i}/some-name-{i * 7919 % 1000}-{j}")
    box.limits(reply=9000)
    places = box.scan("tree", "")
    assert not box.complete and list(places) == [b""] and box.reply_bytes <= 9000
    check_listing(box, places[b""], "")


def test_work_directory_is_hidden(box):
    assert os.path.isdir(path(box, ".sbxfs/stage"))
    assert not box.scan("list", "")[b""].entries
    assert set(box.scan("tree", "")) == {b""}
    os.mkdir(path(box, "d"))
    os.mkdir(path(box, "d/.sbxfs"))
    assert set(box.scan("list", "d")[b"d"].entries) == {b".sbxfs"}


def test_since(box):
    for name in ("same", "grown", "sub", "sub/in"):
        os.mkdir(path(box, name))
        write(box, name + "/old", b"1")
        write(box, name + "/touched", b"1")
    write(box, "file")
    time.sleep(1.1)
    places = box.scan("list", "same", "grown", "sub", "sub/in", "file", "gone")
    since = box.clock
    time.sleep(1.1)
    write(box, "grown/new", b"123")
    write(box, "same/touched", b"12")
    places = box.scan("since", "same", "grown", "sub", "sub/in", "file", "gone", since=since)
    assert places[b"file"].error == errno.ENOTDIR and places[b"gone"].error == errno.ENOENT
    assert places[b"grown"].state == LISTED
    check_listing(box, places[b"grown"], "grown")
    if box.has("f"):
        assert [places[d].state for d in (b"same", b"sub", b"sub/in")] == [UNCHANGED] * 3
        assert set(places[b"same"].entries) == {b"touched"}
        assert places[b"same"].entries[b"touched"].attr.size == 2
        assert not places[b"sub"].entries and not places[b"sub/in"].entries
        assert seen(places[b"same"].attr) == lstat(path(box, "same"))
        places = box.scan("since", "same", "grown", since=since, dirs_only=True)
        assert places[b"same"].state == UNCHANGED and not places[b"same"].entries
        assert places[b"grown"].state == LISTED
    else:
        # Whole minutes only: everything is younger than those.
        for name in ("same", "sub", "sub/in"):
            check_listing(box, places[name.encode()], name)


def test_since_of_nested_directories(box):
    """The parent changed, the child did not, and both are asked for."""
    os.makedirs(path(box, "p/c"))
    write(box, "p/c/f")
    time.sleep(1.1)
    box.scan("list", "p")
    since = box.clock
    time.sleep(0.1)
    write(box, "p/new")
    for order in (("p", "p/c"), ("p/c", "p")):
        places = box.scan("since", *order, since=since)
        check_listing(box, places[b"p"], "p")
        assert places[b"p/c"].state in ((UNCHANGED,) if box.has("f") else (LISTED,))


def test_clock(box):
    before = time.time_ns()
    box.scan("list", "")
    if box.has("c"):
        assert before <= box.clock <= time.time_ns()
    else:
        assert before - 10**9 <= box.clock <= time.time_ns()


def test_absolute_paths(box, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"xy")
    place = box.scan("list", str(outside))[os.fsencode(outside)]
    assert place.state == LISTED and place.entries[b"f"].attr.size == 2


def test_while_it_is_removed(box):
    """A listing of what is being removed shows what was there, and never fails."""
    for i in range(40):
        os.mkdir(path(box, f"d{i}"))
        for j in range(20):
            write(box, f"d{i}/{j}")
    remover = os.fork()
    if remover == 0:
        for i in range(40):
            for j in range(20):
                os.unlink(path(box, f"d{i}/{j}"))
            os.rmdir(path(box, f"d{i}"))
        os._exit(0)
    for _ in range(8):
        places = box.scan("tree", "")
        assert places[b""].state == LISTED
    os.waitpid(remover, 0)
    assert not box.scan("tree", "")[b""].entries
