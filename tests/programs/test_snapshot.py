"""restore, digest, mktar: what snapshots need of the sandbox, with every set of tools."""

import hashlib
import io
import os
import stat
import tarfile

import pytest

from sandbox import unquote

ODD = [b"plain", b"with blank", b"-dash", b"quote'\"$`", b"new\nline", b"back\\slash",
       "é日".encode(), b"bad\xff", b"star*[?]", b":colon", b"n" * 255, b"trailing\n", b"%41"]


@pytest.fixture
def root(box):
    return os.fsencode(box.root)


def outcome(box, *words):
    """How many steps failed, and which of those that compare found that files differ."""
    [[_, section]] = box.ask("program", "restore", *words)
    failed, *unlike = unquote(section).removesuffix(b"\0").split(b"\0")
    return int(failed), [int(number) for number in unlike]


def restore(box, *words):
    """How many steps failed."""
    failed, unlike = outcome(box, *words)
    assert not unlike
    return failed


def make(root, name, data=b"x"):
    with open(os.path.join(root, name), "wb") as out:
        out.write(data)
    return os.path.join(root, name)


def path(name):
    return b"./" + name


def test_modes_and_times(box, root):
    words = [b"m", b"640", len(ODD)] + [path(name) for name in ODD]
    stamp = b"@1600000000.123456789" if box.has("t") else b"@1600000000"
    words += [b"t", stamp, len(ODD)] + [path(name) for name in ODD]
    for name in ODD:
        make(root, name)
    assert restore(box, *words) == 0
    for name in ODD:
        found = os.stat(os.path.join(root, name))
        assert stat.S_IMODE(found.st_mode) == 0o640
        assert found.st_mtime_ns == (1600000000123456789 if box.has("t") else 1600000000 * 10**9)
    assert restore(box, *words) == 0  # a lost answer is asked for again
    assert restore(box, b"m", b"4711", 1, path(b"plain"), b"m", b"0", 1, path(b"-dash")) == 0
    assert stat.S_IMODE(os.stat(os.path.join(root, b"plain")).st_mode) == 0o4711
    assert stat.S_IMODE(os.stat(os.path.join(root, b"-dash")).st_mode) == 0


def test_times_of_links(box, root):
    make(root, b"f")
    os.utime(os.path.join(root, b"f"), ns=(10**18, 10**18))
    os.symlink(b"f", os.path.join(root, b"l"))
    os.symlink(b"nowhere", os.path.join(root, b"dangling"))
    assert restore(box, b"t", b"@1500000000", 2, path(b"l"), path(b"dangling")) == 0
    for name in (b"l", b"dangling"):
        assert os.lstat(os.path.join(root, name)).st_mtime == 1500000000
    assert os.stat(os.path.join(root, b"f")).st_mtime_ns == 10**18
    assert restore(box, b"t", b"@-86400", 1, path(b"f")) == 0
    assert os.stat(os.path.join(root, b"f")).st_mtime == -86400
    # touch makes no file.
    restore(box, b"t", b"@1500000000", 1, path(b"not there"))
    assert not os.path.exists(os.path.join(root, b"not there"))


def test_structure(box, root):
    for name in ODD:
        words = [b"d", b"-", path(b"dir-" + name[:200]), b"n", path(b"from"),
                 path(b"dir-" + name[:200] + b"/" + name)]
        make(root, b"from", name)
        assert restore(box, *words) == 0
        with open(os.path.join(root, b"dir-" + name[:200], name), "rb") as file:
            assert file.read() == name
        assert not os.path.exists(os.path.join(root, b"from"))
        assert restore(box, *words) == 0  # nothing is left to be moved
        assert os.path.exists(os.path.join(root, b"dir-" + name[:200], name))


def test_links(box, root):
    make(root, b"first", b"one file")
    for name in ODD:
        text = name + b"/../-x" if len(name) < 200 else name
        words = [b"l", text, path(b"link-" + name[:200]),
                 b"h", path(b"first"), path(b"hard-" + name[:200])]
        assert restore(box, *words) == 0
        assert restore(box, *words) == 0
        assert os.readlink(os.path.join(root, b"link-" + name[:200])) == text
        assert os.path.samefile(os.path.join(root, b"first"),
                                os.path.join(root, b"hard-" + name[:200]))
    # A link is made in place of what is there, never in a directory that a link leads to.
    os.mkdir(os.path.join(root, b"d"))
    os.symlink(b"d", os.path.join(root, b"to-d"))
    assert restore(box, b"l", b"/usr", path(b"to-d"), b"l", b"x", path(b"first")) == 0
    assert os.readlink(os.path.join(root, b"to-d")) == b"/usr"
    assert os.readlink(os.path.join(root, b"first")) == b"x"
    assert os.listdir(os.path.join(root, b"d")) == []


def test_links_of_what_is_the_same(box, root):
    for name in (b"first", b"same", b"already"):
        make(root, name, b"one file")
    os.unlink(os.path.join(root, b"already"))
    os.link(os.path.join(root, b"first"), os.path.join(root, b"already"))
    make(root, b"other", b"ano file")
    make(root, b"shorter", b"one fil")
    os.symlink(b"first", os.path.join(root, b"l"))
    os.mkdir(os.path.join(root, b"d"))
    before = {name: os.lstat(os.path.join(root, name)) for name in os.listdir(root)}
    names = [b"same", b"other", b"already", b"shorter", b"l", b"d", b"missing"]
    words = [word for name in names for word in (b"s", path(b"first"), path(name))]
    for _ in range(2):  # a lost answer is asked for again
        assert outcome(box, *words, b"s", path(b"missing"), path(b"same")) == \
            (0, [1, 3, 4, 5, 6, 7])
    assert os.path.samefile(os.path.join(root, b"first"), os.path.join(root, b"same"))
    for name in (b"other", b"shorter", b"l", b"d", b"already"):
        after = os.lstat(os.path.join(root, name))
        assert (after.st_ino, after.st_mtime_ns) == (before[name].st_ino, before[name].st_mtime_ns)
    assert set(os.listdir(root)) == {*before, b".sbxfs"}


def test_what_can_not_be_replaced_is_kept(box, root):
    make(root, b"f", b"kept")
    os.mkdir(os.path.join(root, b"d"))
    words = [b"h", path(b"missing"), path(b"f"), b"l", b"n" * 5000, path(b"f"),
             b"h", path(b"f"), path(b"d"), b"l", b"x", path(b"d"), b"n", path(b"f"), path(b"d")]
    assert restore(box, *words) == 5
    with open(os.path.join(root, b"f"), "rb") as file:
        assert file.read() == b"kept"
    assert os.listdir(os.path.join(root, b"d")) == []
    assert set(os.listdir(root)) == {b"f", b"d", b".sbxfs"}


def test_removal(box, root):
    for name in ODD:
        make(root, name)
        os.mkdir(os.path.join(root, b"d-" + name[:200]))
    make(root, b"d-plain/kept")
    assert restore(box, b"u", len(ODD), *map(path, ODD)) == 0
    assert restore(box, b"r", len(ODD), *[path(b"d-" + name[:200]) for name in ODD]) == 1
    assert set(os.listdir(root)) == {b"d-plain", b".sbxfs"}


def test_failures_are_counted(box, root):
    make(root, b"f")
    words = [b"m", b"600", 1, path(b"missing"), b"d", b"-", path(b"f/below"),
             b"h", path(b"missing"), path(b"x"), b"m", b"600", 1, path(b"f")]
    assert restore(box, *words) == 3
    assert stat.S_IMODE(os.stat(os.path.join(root, b"f")).st_mode) == 0o600


def digest(box, plain, odd):
    """The sums of the plain names by name, of the others in their order."""
    [[_, section]] = box.ask("program", "digest", len(plain), *map(path, plain), *map(path, odd))
    first, _, rest = unquote(section).partition(b"\0")
    sums = {line[66:]: line[:64].decode() for line in first.splitlines()}
    return sums, rest.splitlines()


def test_digests(box, root):
    odd = [name for name in ODD if set(name) & set(b"\n\\\r")]
    plain = [name for name in ODD if name not in odd]
    for name in ODD:
        make(root, name, name * 1000)
    os.symlink(b"plain", os.path.join(root, b"link"))
    os.mkdir(os.path.join(root, b"dir"))
    sums, rest = digest(box, plain, odd)
    assert sums == {path(name): hashlib.sha256(name * 1000).hexdigest() for name in plain}
    assert [line[:64].decode() for line in rest] == \
        [hashlib.sha256(name * 1000).hexdigest() for name in odd]
    sums, rest = digest(box, [b"plain", b"missing", b"dir"], [b"link", b"missing", b"dir"])
    assert list(sums) == [b"./plain"]
    assert rest == [b"?", b"?", b"?"]
    assert digest(box, [], []) == ({}, [])


def mktar(box):
    [[_, section]] = box.ask("program", "mktar", b".sbxfs/stage/x.tar")
    answer = unquote(section).rstrip(b"\0")
    assert answer.isdigit(), answer
    with open(os.path.join(os.fsencode(box.root), b".sbxfs/stage/x.tar"), "rb") as file:
        data = file.read()
    assert len(data) == int(answer)
    assert stat.S_IMODE(os.stat(os.path.join(box.root, ".sbxfs/stage/x.tar")).st_mode) == 0o600
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        return {os.fsencode(entry.name): entry for entry in archive.getmembers()}


def test_archive(box, root):
    for name in ODD:
        make(root, name, name)
    os.mkdir(os.path.join(root, b"d"))
    os.mkdir(os.path.join(root, b".hidden"))
    os.mkdir(os.path.join(root, b"..two"))
    make(root, b"d/f")
    make(root, b"d/.sbxfs")
    os.symlink(b"/absolute", os.path.join(root, b"l"))
    os.link(os.path.join(root, b"plain"), os.path.join(root, b"d/hard"))
    found = mktar(box)
    names = {name[2:] if name.startswith(b"./") else name for name in found} - {b"."}
    assert names == {*ODD, b"d", b".hidden", b"..two", b"d/f", b"d/.sbxfs", b"d/hard", b"l"}
    assert found[b"./l"].linkname == "/absolute"
    assert {found[b"./plain"].islnk(), found[b"./d/hard"].islnk()} == {True, False}


def test_archive_of_nothing(box):
    assert set(mktar(box)) <= {b"."}
