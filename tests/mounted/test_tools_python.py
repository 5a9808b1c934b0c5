"""What Python programs do with files: temporary ones, replaced ones, ones without a name."""

import fcntl
import mmap
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile

import pytest

from sbxtest.fixtures import quick_kinds


def test_write_temporary_and_replace(place):
    for index in range(5):
        fd, path = tempfile.mkstemp(dir=place.fs)
        with os.fdopen(fd, "w") as file:
            file.write(f"version {index}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(path, place.fs / "config")
        assert (place.fs / "config").read_text() == f"version {index}\n"
        assert (place.root / "config").read_text() == f"version {index}\n"
    assert os.listdir(place.fs) == ["config"]
    assert (place.root / "config").stat().st_mode & 0o777 == 0o600


def test_unlinked_and_renamed_while_open(place):
    with tempfile.TemporaryFile(dir=place.fs) as file:
        file.write(b"0123456789" * 1000)
        file.seek(5000)
        assert file.read(10) == b"0123456789"
    with tempfile.NamedTemporaryFile(dir=place.fs) as file:
        file.write(b"x")
        file.flush()
        os.rename(file.name, place.fs / "kept")
        file.write(b"y")
        file.flush()
        os.link(place.fs / "kept", file.name)  # so that its removal finds something
    assert (place.root / "kept").read_bytes() == b"xy"
    with open(place.fs / "kept", "rb") as file:
        os.unlink(place.fs / "kept")
        (place.fs / "kept").write_bytes(b"another")
        assert file.read() == b"xy"
    assert (place.root / "kept").read_bytes() == b"another"
    assert os.listdir(place.fs) == ["kept"]


@quick_kinds
def test_directories_that_come_and_go(place):
    with tempfile.TemporaryDirectory(dir=place.fs) as top:
        for index in range(5):
            os.makedirs(f"{top}/a/{index}/b")
            with open(f"{top}/a/{index}/b/f", "w", encoding="ascii") as file:
                file.write("x")
        os.rename(f"{top}/a", f"{top}/c")
        shutil.copytree(f"{top}/c", f"{top}/d")
        shutil.move(f"{top}/d", f"{top}/e")
        assert open(f"{top}/e/3/b/f", encoding="ascii").read() == "x"
    assert os.listdir(place.fs) == []
    assert [name for name in os.listdir(place.root) if name != ".sbxfs"] == []


def test_mmap(place):
    (place.fs / "f").write_bytes(b"a" * 10000)
    with open(place.fs / "f", "r+b") as file:
        view = mmap.mmap(file.fileno(), 0)
        private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        view[5000:5004] = b"bbbb"
        private[0:4] = b"cccc"
        view.flush()
        os.fsync(file.fileno())
        assert (place.root / "f").read_bytes() == b"a" * 5000 + b"bbbb" + b"a" * 4996
        view[9999:] = b"e"
        view.close()
        assert private[:4] == b"cccc"
    wanted = b"a" * 5000 + b"bbbb" + b"a" * 4995 + b"e"
    assert (place.fs / "f").read_bytes() == wanted
    assert place.inside("tail -c 1 f") == "e"


def test_seek_truncate_and_append(place):
    with open(place.fs / "f", "w+b") as file:
        file.write(b"0123456789")
        file.truncate(4)
        file.seek(8)
        file.write(b"end")
        file.seek(0)
        assert file.read() == b"0123\0\0\0\0end"
    with open(place.fs / "f", "ab") as file:
        assert file.tell() == 11
        file.write(b"!")
    with open(place.fs / "f", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    os.truncate(place.fs / "f", 20)
    assert (place.root / "f").read_bytes() == b"0123\0\0\0\0end?" + bytes(8)
    os.truncate(place.fs / "f", 3)
    assert (place.root / "f").read_bytes() == b"012"


@quick_kinds
def test_zip_and_compile(place):
    with zipfile.ZipFile(place.fs / "a.zip", "w") as archive:
        for index in range(20):
            archive.writestr(f"pkg/m{index}.py", f"value = {index}\n")
        archive.writestr("pkg/__init__.py", "")
    with zipfile.ZipFile(place.fs / "a.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(place.fs)
    place.run("/usr/bin/python3", "-m", "compileall", "-q", "pkg")
    script = "import pkg.m7; print(pkg.m7.value, pkg.m7.__cached__)"
    assert place.run("/usr/bin/python3", "-c", script).split()[0] == "7"
    # What was compiled here is believed there: the times in it are the sandbox's.
    before = (place.root / "pkg/__pycache__/m7.cpython-311.pyc").stat().st_mtime_ns
    assert place.inside("/usr/bin/python3 -c \"$1\"", script).split()[0] == "7"
    assert (place.root / "pkg/__pycache__/m7.cpython-311.pyc").stat().st_mtime_ns == before


def test_locks(place):
    """Programs of this machine lock each other out, with both kinds of lock."""
    (place.fs / "lock").write_bytes(b"")
    with open(place.fs / "lock", "r+b") as one, open(place.fs / "lock", "r+b") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = []

        def wait():
            fcntl.flock(other, fcntl.LOCK_EX)
            done.append(1)

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.3)
        assert not done
        fcntl.flock(one, fcntl.LOCK_UN)
        waiter.join(10)
        assert done
        fcntl.lockf(one, fcntl.LOCK_EX)
        script = ("import fcntl, sys\nf = open('lock', 'r+b')\n"
                  "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                  "except OSError: print('held')\nelse: print('free')\n")
        assert place.run("/usr/bin/python3", "-c", script) == "held\n"
        fcntl.lockf(one, fcntl.LOCK_UN)
        assert place.run("/usr/bin/python3", "-c", script) == "free\n"


def test_copying_inside_the_sandbox(place):
    """cp asks the kernel to copy: no content on the wire. A program that copies itself does not."""
    data = os.urandom(3 << 20)
    (place.root / "big").write_bytes(data)
    place.fresh()
    mark = place.log_mark()
    place.run("cp", "big", "copy")
    moved = sum((r.bytes_in or 0) + (r.bytes_out or 0) for r in place.server.log(mark))
    assert moved < 1 << 16
    assert (place.root / "copy").read_bytes() == data
    shutil.copyfile(place.fs / "big", place.fs / "copy2")
    assert (place.root / "copy2").read_bytes() == data
    subprocess.run(["cmp", place.fs / "copy", place.fs / "copy2"], check=True)
