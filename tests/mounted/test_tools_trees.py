"""Programs that copy, walk and remove whole trees."""

import os
import subprocess
import threading

import pytest

from sbxtest.fixtures import quick_kinds

MAKE_TREE = r"""
    mkdir -p tree/sub/deep tree/empty
    i=0
    while [ $i -lt 12 ]; do
        i=$((i + 1))
        echo "content $i" >"tree/sub/f $i"
    done
    head -c 100000 /dev/urandom >tree/sub/deep/random
    : >tree/nothing
    printf 'new\nline' >"tree/new
line"
    printf '#!/bin/sh\necho run\n' >tree/run
    chmod 755 tree/run
    chmod 600 "tree/sub/f 1"
    chmod 444 "tree/sub/f 2"
    chmod 750 tree/sub/deep
    ln -s "sub/f 3" tree/link
    ln -s ../nothing tree/sub/up
    ln tree/run tree/hard
    find tree -depth -exec touch -hd '2019-09-19 19:19:19.191919191' {} +
    touch -d '2001-02-03 04:05:06.123456789' "tree/sub/f 4"
    touch -d '2020-01-01' tree/run tree/empty tree/sub/deep
    touch -hd '2011-11-11 11:11:11' tree/link
"""


def describe(top, times=1):
    """Each path below: type and mode, size, mtime (in that part of a second), content or target."""
    found = {}
    for directory, dirs, names in os.walk(top):
        for name in dirs + names:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            content = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, top)] = (
                oct(info.st_mode), info.st_mtime_ns // (10 ** 9 // times), content)
    return found


def whole_seconds(place):
    """BusyBox's touch sets no fractions."""
    return place.kind.startswith("busybox")


@pytest.fixture
def tree(place):
    """A tree of this machine, of the owner that the mount shows."""
    place.sh(MAKE_TREE, cwd=place.work)
    owner = os.stat(place.fs)
    subprocess.run(["chown", "-Rh", f"{owner.st_uid}:{owner.st_gid}", place.work / "tree"],
                   check=True)
    return place.work / "tree"


@pytest.fixture
def sandbox_tree(place):
    """A tree that the sandbox made."""
    subprocess.run(["bash", "-ec", MAKE_TREE], cwd=place.root, check=True)
    place.fresh()
    return place.fs / "tree"


@pytest.mark.long(10)
def test_rsync(place, tree):
    """Both ways; a second run finds nothing to do."""
    precision = 1 if whole_seconds(place) else 10 ** 9
    place.run("rsync", "-aH", f"{tree}/", f"{place.fs}/copy/")
    assert describe(place.root / "copy", precision) == describe(tree, precision)
    for options in ([], ["--checksum"]):
        assert place.run("rsync", "-aHi", *options, f"{tree}/", f"{place.fs}/copy/") == ""
    place.sh("echo more >>'sub/f 5'; rm 'sub/f 6'; chmod 700 run; touch -d 2021-01-01 sub",
             cwd=tree)
    changed = place.run("rsync", "-aHi", "--delete", f"{tree}/", f"{place.fs}/copy/")
    assert [line.split(" ", 1)[1] for line in changed.splitlines()
            if line.startswith((">f", "*del"))] == ["  sub/f 6", "sub/f 5"]
    place.run("rsync", "-aH", f"{place.fs}/copy/", f"{place.work}/back/")
    assert describe(place.work / "back", precision) == describe(tree, precision)
    assert place.run("rsync", "-aHi", f"{place.fs}/copy/", f"{place.work}/back/") == ""


def test_tar(place, tree, sandbox_tree):
    precision = 1 if whole_seconds(place) else 10 ** 9
    place.run("tar", "-cf", place.work / "in.tar", "-C", place.work, "--posix", "tree")
    place.sh(f"mkdir out && tar -xpf {place.work}/in.tar -C out")
    assert describe(place.root / "out/tree", precision) == describe(tree, precision)
    assert os.stat(place.fs / "out/tree/run").st_nlink == 2
    # And what the sandbox made comes out, read through the mount.
    place.run("tar", "-cf", place.work / "out.tar", "--posix", "-C", place.fs, "tree")
    os.mkdir(place.work / "there")
    place.run("tar", "-xpf", place.work / "out.tar", "-C", place.work / "there")
    assert describe(place.work / "there/tree", 10 ** 9) == describe(sandbox_tree, 10 ** 9)
    assert os.stat(place.work / "there/tree/run").st_nlink == 2


@pytest.mark.long(10)
def test_cp_and_find(place, sandbox_tree):
    precision = 1 if whole_seconds(place) else 10 ** 9
    place.run("cp", "-a", sandbox_tree, place.fs / "copy")
    place.run("diff", "-r", "--no-dereference", sandbox_tree, place.fs / "copy")
    assert describe(place.fs / "copy", precision) == describe(sandbox_tree, precision)
    assert describe(place.root / "copy", precision) == describe(place.root / "tree", precision)
    here = place.run("find", ".", "-printf", "%p %y %m %s %l %n\\n").splitlines()
    there = subprocess.run(["find", ".", "-path", "./.sbxfs", "-prune", "-o", "-printf",
                            "%p %y %m %s %l %n\\n"], cwd=place.root, capture_output=True,
                           text=True, check=True).stdout.splitlines()
    assert sorted(line for line in here if " d " not in line) == \
        sorted(line for line in there if " d " not in line)
    place.sh("touch new")
    # All of the tree is older than this one, and its copy is as old.
    place.sh("touch -d '2022-02-02' mark")
    assert place.run("find", ".", "-newer", "mark", "-type", "f") == "./new\n"
    place.sh("touch -d '+1 hour' later")
    assert place.run("find", ".", "-newer", "new", "-type", "f") == "./later\n"


def test_du_and_sparse_copies(place):
    place.inside("dd if=/dev/zero of=full bs=1024 count=200 2>/dev/null")
    subprocess.run(["truncate", "-s", "40M", "hole"], cwd=place.root, check=True)
    place.fresh()
    # What is used, not what it seems to be.
    assert place.run("du", "-k", "full").split()[0] == "200"
    assert int(place.run("du", "-k", "hole").split()[0]) < 100
    assert place.run("du", "-k", "--apparent-size", "hole").split()[0] == "40960"
    place.run("cp", "--sparse=always", "hole", "hole2")
    assert (place.root / "hole2").stat().st_size == 40 << 20
    assert (place.root / "hole2").stat().st_blocks < 1000
    place.run("cp", "--sparse=always", "full", "full2")
    assert (place.root / "full2").read_bytes() == bytes(200 * 1024)
    place.run("cp", "--sparse=never", "full", "full3")
    place.run("cmp", "full", "full3")


def test_install(place):
    place.sh("echo x >src; install -m 400 src a; install -D -m 755 src d/e/b; "
             "install -m 600 -p src c; install -m 444 src a; install -d -m 700 dir")
    modes = {name: (place.root / name).stat().st_mode & 0o7777
             for name in ("a", "d/e/b", "c", "dir")}
    assert modes == {"a": 0o444, "d/e/b": 0o755, "c": 0o600, "dir": 0o700}
    assert (place.root / "a").read_text() == "x\n"
    same = 1 if whole_seconds(place) else 10 ** 9
    assert (place.root / "c").stat().st_mtime_ns * same // 10 ** 9 == \
        (place.root / "src").stat().st_mtime_ns * same // 10 ** 9


@pytest.mark.long(12)
@quick_kinds
def test_removing_a_big_tree(place):
    """Files in 30 directories, made in the sandbox; 3,000 in a slow run."""
    count = 100 if os.environ.get("SBX_SLOW") == "1" else 20
    place.inside("for d in 0 1 2; do for e in 0 1 2 3 4 5 6 7 8 9; do mkdir -p big/$d$e; i=0; "
                 "while [ $i -lt $1 ]; do : >big/$d$e/$i; i=$((i+1)); done; done; done", count)
    place.fresh()
    assert len(place.run("find", "big", "-type", "f").splitlines()) == 30 * count
    place.run("rm", "-rf", "big", seconds=120)
    assert not (place.root / "big").exists()
    assert os.listdir(place.fs) == []


@quick_kinds
def test_removing_what_is_being_scanned(place):
    """Who lists a tree that goes away meets no error but that names are gone."""
    for index in range(6):
        (place.fs / f"d/{index}").mkdir(parents=True)
        for name in range(15):
            (place.fs / f"d/{index}/{name}").write_bytes(b"")
    ended = threading.Event()
    wrong = []

    def walk():
        while not ended.is_set():
            done = subprocess.run(["find", place.fs / "d"], capture_output=True, text=True,
                                  check=False)
            wrong.extend(line for line in done.stderr.splitlines()
                         if "No such file" not in line)

    walker = threading.Thread(target=walk)
    walker.start()
    try:
        place.run("rm", "-rf", "d")
    finally:
        ended.set()
        walker.join()
    assert not wrong
    assert not (place.root / "d").exists()
