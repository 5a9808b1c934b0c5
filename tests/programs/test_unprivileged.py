"""What the sandbox's user may not do: programs that run as nobody where the tests run as root."""

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox import FAILED, LISTED, Sandbox
from sbxtest import build
from test_apply import content
from test_scan import path, write

NOBODY = 65534


class Nobodys(Sandbox):
    """A workspace of nobody's, in which nobody runs the programs; without root, the user's own."""

    def __init__(self, driver, tool_path, root):
        self.root = root
        fields = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self.process = subprocess.Popen([driver, tool_path, root], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, **fields)


def own(box, *names):
    """Hands them to the user whose programs run; what a test makes is root's else."""
    if os.getuid() == 0:
        for name in names:
            os.chown(path(box, name), NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture(params=["gnu", "busybox"])
def box(request):
    # Where nobody may go, which pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="sbx-nobody-test.") as work:
        work = Path(work)
        work.chmod(0o755)
        driver = shutil.copy(build.build_dir() / "tests/programs/program_driver", work)
        tool_path = "/usr/bin:/bin"
        if request.param == "busybox":
            tools = work / "tools"
            tools.mkdir()
            busybox = shutil.which("busybox")
            for applet in subprocess.check_output([busybox, "--list"], text=True).split():
                os.symlink(busybox, tools / applet)
            tool_path = str(tools)
        (work / "root").mkdir()
        sandbox = Nobodys(driver, tool_path, str(work / "root"))
        try:
            own(sandbox, "")
            sandbox.use(sandbox.probe()["tools"][0])
            yield sandbox
        finally:
            for top, _, _ in os.walk(work / "root"):
                os.chmod(top, 0o700)
            sandbox.close()


def leftovers(box):
    return os.listdir(path(box, ".sbxfs/stage"))


def test_it_is_nobody(box):
    assert box.do("create", "mine", "644")[0] == 0
    assert os.stat(path(box, "mine")).st_uid == (NOBODY if os.getuid() == 0 else os.getuid())


def test_unreadable_directories(box):
    for name, mode in (("no", 0), ("names", 0o400), ("search", 0o100)):
        os.mkdir(path(box, name))
        write(box, name + "/f")
        os.chmod(path(box, name), mode)
        own(box, name)
    places = box.scan("list", "", "no", "names", "search")
    assert places[b""].state == LISTED
    assert set(places[b""].entries) == {b"no", b"names", b"search"}
    for name in (b"no", b"names", b"search"):
        assert (places[name].state, places[name].error) == (FAILED, errno.EACCES), name
    places = box.scan("lstat", "no/f", "search/f")
    assert places[b"no/f"].error == errno.EACCES
    assert places[b"search/f"].error == 0
    tree = box.scan("tree", "")
    assert set(tree[b""].entries) == {b"no", b"names", b"search"}
    assert tree[b"no"].error == errno.EACCES


def test_unreadable_files(box):
    for name, mode in (("f", 0o644), ("no", 0), ("written", 0o200)):
        write(box, name, b"content")
        os.chmod(path(box, name), mode)
        own(box, name)
    items = box.pack(("f", 0, "whole"), ("no", 0, "whole"), ("written", 0, "whole"))
    assert [item.error for item in items] == [0, errno.EACCES, errno.EACCES]
    assert items[0].data == b"content"
    items = box.pack(("no", 2, 3))
    assert items[0].error == errno.EACCES and not items[0].data


def test_save_where_names_are_fixed(box):
    """A directory that can't be written to: the file itself can."""
    os.mkdir(path(box, "d"))
    write(box, "d/f", b"old")
    own(box, "d", "d/f")
    os.chmod(path(box, "d"), 0o555)
    error, reply = box.do("save", "d/f", b"new")
    assert error == 0 and reply.results[0].in_place and content(box, "d/f") == b"new"
    assert box.do("save", "d/g", b"new")[0] == errno.EACCES
    assert leftovers(box) == []


# verb: words, in the directory d that nobody may write, with d/f and d/e in it; g is beside it.
NAMES = {
    "create": [("create", "d/new", "644")],
    "mkdir": [("mkdir", "d/new", "755")],
    "unlink": [("unlink", "d/f")],
    "rmdir": [("rmdir", "d/e")],
    "rename": [("rename", "d/f", "d/g"), ("rename", "d/f", "new"), ("rename", "g", "d/new"),
               ("rename", "g", "d/f")],
    "link": [("link", "g", "d/new")],
    "symlink": [("symlink", "d/new", "text")],
}


@pytest.mark.parametrize("verb", NAMES)
def test_names_in_a_directory_that_is_fixed(box, verb):
    os.makedirs(path(box, "d/e"))
    write(box, "d/f", b"kept")
    write(box, "g", b"beside")
    own(box, "d", "d/e", "d/f", "g")
    os.chmod(path(box, "d"), 0o555)
    for verb_, *words in NAMES[verb]:
        error, reply = box.do(verb_, *words)
        assert error == errno.EACCES, words
        assert reply.results[0].text
    assert sorted(os.listdir(path(box, "d"))) == [b"e", b"f"]
    assert content(box, "d/f") == b"kept" and content(box, "g") == b"beside"
    # Where one may not even look.
    os.chmod(path(box, "d"), 0o600)
    for verb_, *words in NAMES[verb]:
        assert box.do(verb_, *words)[0] == errno.EACCES, words
    os.chmod(path(box, "d"), 0o700)
    assert sorted(os.listdir(path(box, "d"))) == [b"e", b"f"]


def test_own_files_without_write_permission(box):
    """Who opened one before it lost that may write on: so may its owner here, and it stays so."""
    write(box, "f", b"content")
    own(box, "f")
    os.chmod(path(box, "f"), 0o444)
    assert box.do("patch", "f", ("write", 0, b"X"), ("append", 0, b"!"))[0] == 0
    assert box.do("truncate", "f", 4)[0] == 0
    assert content(box, "f") == b"Xont"
    assert os.stat(path(box, "f")).st_mode & 0o777 == 0o444
    # Or replace it, as an editor does.
    assert box.do("save", "f", b"new")[0] == 0
    assert content(box, "f") == b"new" and os.stat(path(box, "f")).st_mode & 0o777 == 0o444
    assert leftovers(box) == []


@pytest.mark.root
def test_files_of_another_user(box):
    """Attributes are their owner's; in a sticky directory names are, too."""
    write(box, "theirs", b"x")
    os.chmod(path(box, "theirs"), 0o644)
    os.mkdir(path(box, "sticky"))
    write(box, "sticky/theirs", b"x")
    os.chmod(path(box, "sticky"), 0o1777)
    assert box.do("chmod", "theirs", "600")[0] == errno.EPERM
    assert box.do("utimens", "theirs", 10**9, 10**9)[0] in (errno.EPERM, errno.EACCES)
    assert box.do("patch", "theirs", ("write", 0, b"X"))[0] == errno.EACCES
    assert box.do("patch", "theirs", ("append", 0, b"X"))[0] == errno.EACCES
    assert box.do("truncate", "theirs", 0)[0] == errno.EACCES
    assert box.do("extend", "theirs", 30)[0] == errno.EACCES
    assert content(box, "theirs") == b"x"
    assert box.do("unlink", "sticky/theirs")[0] == errno.EPERM
    assert box.do("rename", "sticky/theirs", "sticky/mine")[0] == errno.EPERM
    assert box.do("create", "sticky/mine", "644")[0] == 0
    assert content(box, "sticky/theirs") == b"x"
    assert os.stat(path(box, "theirs")).st_mode & 0o777 == 0o644
