"""Whole trees, big files and long listings, compared byte for byte on both sides."""

import hashlib
import os
import shutil
import subprocess

import pytest

from sbxtest import tree_dir
from sbxtest.timing import scale

MIB = 1 << 20


def digest(path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("kind", ["gnu-host-uid", "busybox-host",
                                  pytest.param("gnu-overlay", marks=pytest.mark.slow)])
def test_a_tree_copied_and_compared(start_place, tmp_path, kind):
    place = start_place(kind)
    source = tmp_path / "tests"
    shutil.copytree(tree_dir() / "tests", source)  # of which nobody changes a file meanwhile
    place.run("cp", "-r", source, place.fs)
    place.run("diff", "-r", source, place.fs / "tests")
    subprocess.run(["diff", "-r", source, place.root / "tests"], check=True)
    # And read anew by a mount that has nothing.
    place.mount.unmount()
    place.mount.start()
    place.run("diff", "-r", source, place.fs / "tests")


def test_a_tree_through_the_plain_routes(start_place, tmp_path):
    place = start_place("gnu-host", ["exec=no"])
    source = tmp_path / "tree"
    for directory in ("", "a", "a/b"):
        (source / directory).mkdir()
        for name in ("one", "two words"):
            (source / directory / name).write_bytes(os.urandom(5000))
    # Directories can't be made there, but files in them can.
    for path in ("", "a", "a/b"):
        (place.root / "tree" / path).mkdir()
    place.fresh()
    place.run("cp", "-r", f"{source}/.", place.fs / "tree")
    place.run("diff", "-r", source, place.fs / "tree")
    subprocess.run(["diff", "-r", source, place.root / "tree"], check=True)


@pytest.mark.parametrize("kind, options", [("gnu-host", []), ("busybox-host", []),
                                           ("gnu-host", ["exec=no"])])
def test_50_mib_both_ways(start_place, tmp_path, kind, options):
    place = start_place(kind, options)
    with open(tmp_path / "data", "wb") as file:
        for _ in range(50):
            file.write(os.urandom(MIB))
    wanted = digest(tmp_path / "data")
    place.run("cp", tmp_path / "data", place.fs / "up")
    assert digest(place.root / "up") == wanted
    assert digest(place.fs / "up") == wanted
    subprocess.run(["cp", tmp_path / "data", place.root / "down"], check=True)
    place.fresh()
    assert digest(place.fs / "down") == wanted
    assert os.stat(place.fs / "down").st_size == 50 * MIB


@pytest.mark.parametrize("kind, options", [("busybox-host", []), ("gnu-host", ["exec=no"])])
def test_20000_files_are_listed_once_each(start_place, kind, options):
    place = start_place(kind, options)
    wanted = {f"file number {index}" for index in range(20000)}
    os.mkdir(place.root / "many")
    for name in wanted:
        os.close(os.open(place.root / "many" / name, os.O_CREAT | os.O_WRONLY))
    place.fresh()
    listed = os.listdir(place.fs / "many")
    assert len(listed) == 20000
    assert set(listed) == wanted
    # ls asks for what it needs to sort and show; -f takes what readdir gives.
    words = ["ls", "-f"] if options else ["ls", "-lf"]
    lines = subprocess.run([*words, place.fs / "many"], check=True, capture_output=True, text=True,
                           timeout=scale(60)).stdout.splitlines()
    assert sum("file number" in line for line in lines) == 20000


@pytest.mark.core
def test_link_counts_of_all_names(start_place):
    """What was done to one name of a file shows on its others at once."""
    place = start_place("gnu-host", ["ttl=60"])
    (place.fs / "a").write_text("x")
    for name in ("b", "c"):
        os.link(place.fs / "a", place.fs / name)
    assert [os.stat(place.fs / name).st_nlink for name in "abc"] == [3, 3, 3]
    os.unlink(place.fs / "a")
    assert [os.stat(place.fs / name).st_nlink for name in "bc"] == [2, 2]
    (place.fs / "new").write_text("y")
    os.rename(place.fs / "new", place.fs / "b")
    assert os.stat(place.fs / "c").st_nlink == 1
    assert (place.fs / "c").read_text() == "x"
    os.link(place.fs / "c", place.fs / "d")
    os.chmod(place.fs / "d", 0o640)
    assert oct(os.stat(place.fs / "c").st_mode) == "0o100640"
    (place.fs / "d").write_text("longer")
    assert os.stat(place.fs / "c").st_size == 6
    assert (place.fs / "c").read_text() == "longer"
