"""The workloads: what each prepares in the served directory, and what is timed on a mount of it.

A workload's directory is `bench` in the served directory. `run` gets that directory as the mount
shows it and as the server has it; work that writes has ended when the server has the bytes. A
`run` that returns a number gives the result itself instead of the time that it took.
"""

import os
import random
import shutil
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def _quiet(*command, **kwargs):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL,
                   **kwargs)


def _until(condition):
    while not condition():
        time.sleep(0.002)


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _head(path: Path, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)


def _files(top: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(top))


def _tree(top: Path, dirs: int, per_dir: int, size: int):
    source = random.Random(1)
    for i in range(dirs):
        (top / f"d{i:03}").mkdir(parents=True)
        for j in range(per_dir):
            (top / f"d{i:03}/f{j:03}").write_bytes(source.randbytes(size))


class Workload:
    name = ""
    what = ""
    warm = False  # timed a second time on the same mount
    moves_again = False  # as much as the first time: to be compared with curl as well

    def prepare(self, served: Path):
        """Fills the served directory."""

    def begin(self, mnt: Path):
        """What is done on the mount before the clock starts."""

    def run(self, mnt: Path, served: Path):
        raise NotImplementedError


class ListTree(Workload):
    name = "ls"
    what = "`ls -lR`, 2,000 files in 100 directories"
    warm = True

    def prepare(self, served):
        _tree(served, 100, 20, 10)

    def run(self, mnt, served):
        _quiet("ls", "-lR", mnt)


class GitStatus(Workload):
    name = "git"
    what = "`git status`, clean repository of 1,000 files"
    warm = True

    def prepare(self, served):
        _tree(served, 50, 20, 2000)
        _quiet("git", "init", "-q", cwd=served)
        _quiet("git", "add", ".", cwd=served)
        _quiet("git", "-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "b", cwd=served)
        time.sleep(1.1)  # an index as old as its files is not believed
        _quiet("git", "status", cwd=served)

    def run(self, mnt, served):
        _quiet("git", "-c", "safe.directory=*", "status", "--porcelain", cwd=mnt)


class Grep(Workload):
    name = "grep"
    what = "`grep -r` over 1,000 files of 4 KiB"
    warm = True

    def prepare(self, served):
        _tree(served, 20, 50, 4096)

    def run(self, mnt, served):
        subprocess.run(["grep", "-r", "no such words", mnt], check=False)


class ReadSmall(Workload):
    name = "read500"
    what = "500 files of 4 KiB by 8 readers"

    def prepare(self, served):
        _tree(served, 5, 100, 4096)

    def run(self, mnt, served):
        names = [mnt / f"d{i:03}/f{j:03}" for i in range(5) for j in range(100)]
        with ThreadPoolExecutor(8) as pool:
            if sum(map(len, pool.map(Path.read_bytes, names))) != 500 * 4096:
                raise AssertionError("short")


class _Big(Workload):
    size = 128 << 20

    def prepare(self, served):
        served.mkdir()
        source = random.Random(2)
        with open(served / "big", "wb") as file:
            for _ in range(self.size >> 20):
                file.write(source.randbytes(1 << 20))


class ReadBig(_Big):
    name = "read"
    what = "128 MiB in sequence"
    warm = True

    def run(self, mnt, served):
        _quiet("dd", f"if={mnt}/big", "of=/dev/null", "bs=1M", "status=none")

    def curl(self, system):
        return system.curl("-o", "/dev/null", path="bench/big")


class ReadBigKnown(ReadBig):
    name = "readknown"
    what = "128 MiB in sequence, its name known"
    warm = False

    def begin(self, mnt):
        os.stat(mnt / "big")


class ReadRandom(_Big):
    name = "random"
    what = "200 reads of 4 KiB at random in 128 MiB"

    def run(self, mnt, served):
        source = random.Random(3)
        fd = os.open(mnt / "big", os.O_RDONLY)
        try:
            for _ in range(200):
                if len(os.pread(fd, 4096, source.randrange(self.size // 4096) * 4096)) != 4096:
                    raise AssertionError("short")
        finally:
            os.close(fd)


class WriteBig(Workload):
    name = "write"
    what = "64 MiB written and closed"
    size = 64 << 20
    warm = moves_again = True

    def prepare(self, served):
        served.mkdir()

    def run(self, mnt, served):
        block = os.urandom(1 << 20)
        with open(mnt / "new", "wb", buffering=0) as file:
            for _ in range(self.size >> 20):
                file.write(block)
        _until(lambda: _has(served / "new", self.size) and
               _head(served / "new", len(block)) == block)

    def curl(self, system):
        source = system.work / "upload"
        if not source.exists():
            source.write_bytes(os.urandom(1 << 20) * (self.size >> 20))
        return system.curl("-T", source, path="bench/new")


class Untar(Workload):
    name = "untar"
    what = "untar of 300 small files"

    def prepare(self, served):
        staging = served.with_name("bench-source")
        _tree(staging, 10, 30, 3000)
        served.mkdir()
        self.tar = Path(served.parent / "bench.tar")
        _quiet("tar", "-cf", self.tar, "-C", staging, ".")
        shutil.rmtree(staging)
        # Read before the clock starts, so that the archive itself is no part of what is timed.
        self.data = self.tar.read_bytes()
        self.tar.unlink()

    def run(self, mnt, served):
        _quiet("tar", "-xf", "-", "-C", mnt, input=self.data)
        _until(lambda: sum(_has(served / f"d{i:03}/f{j:03}", 3000)
                           for i in range(10) for j in range(30)) == 300)


class Appends(Workload):
    name = "append"
    what = "50 appends of 100 bytes to a 16 MiB file"

    def prepare(self, served):
        served.mkdir()
        (served / "log").write_bytes(os.urandom(16 << 20))

    def run(self, mnt, served):
        for _ in range(50):
            with open(mnt / "log", "ab", buffering=0) as file:
                file.write(b"x" * 100)
        _until(lambda: _has(served / "log", (16 << 20) + 5000))


class Saves(Workload):
    name = "saves"
    what = "20 saves of a 20 KiB file, as vim does"

    def prepare(self, served):
        served.mkdir()
        (served / "text").write_bytes(b"-" * 20000)

    def run(self, mnt, served):
        for i in range(20):
            data = b"%d\n" % i * 5000
            os.rename(mnt / "text", mnt / "text~")
            with open(mnt / "text", "wb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
            os.unlink(mnt / "text~")
        _until(lambda: _has(served / "text", len(data)) and
               (served / "text").read_bytes() == data and not (served / "text~").exists())


class Tail(Workload):
    name = "tail"
    what = "`tail -f`: how late a line is seen (median)"

    def prepare(self, served):
        served.mkdir()
        (served / "log").write_text("begin\n")

    def run(self, mnt, served):
        lines, written, late = 12, {}, []
        tail = subprocess.Popen(["tail", "-n", "+1", "-f", mnt / "log"], stdout=subprocess.PIPE)

        def write():
            for i in range(lines):
                time.sleep(0.4)
                written[i] = time.monotonic()
                with open(served / "log", "ab", buffering=0) as file:
                    file.write(b"%d\n" % i)
        try:
            if tail.stdout.readline() != b"begin\n":
                raise AssertionError("foreign bytes")
            writer = threading.Thread(target=write)
            writer.start()
            for i in range(lines):
                if tail.stdout.readline() != b"%d\n" % i:
                    raise AssertionError("foreign bytes")
                late.append(time.monotonic() - written[i])
            writer.join()
        finally:
            tail.kill()
            tail.wait()
            tail.stdout.close()
        return statistics.median(late)


class CopyWithin(_Big):
    name = "cp"
    what = "`cp` of 100 MiB within the mount"
    size = 100 << 20

    def run(self, mnt, served):
        _quiet("cp", mnt / "big", mnt / "copy")
        _until(lambda: _has(served / "copy", self.size))


class Remove(Workload):
    name = "rm"
    what = "`rm -rf` of 300 files"

    def prepare(self, served):
        _tree(served / "tree", 10, 30, 100)

    def run(self, mnt, served):
        _quiet("rm", "-rf", mnt / "tree")
        _until(lambda: not (served / "tree").exists())


class Install(Workload):
    name = "install"
    what = "2,000 files in 200 directories by 4 writers, as npm does"

    def prepare(self, served):
        served.mkdir()
        self.source = served.with_name("bench-source")
        _tree(self.source, 200, 10, 3000)

    def run(self, mnt, served):
        """Each is opened, written, given its times and closed, as node-tar does it."""
        def copy(source):
            with open(mnt / "node_modules" / source.relative_to(self.source), "wb",
                      buffering=0) as file:
                file.write(source.read_bytes())
                os.utime(file.fileno(), (10**9, 10**9))

        files = [Path(top) / name for top, _, names in os.walk(self.source) for name in names]
        for top in sorted({path.parent for path in files}):
            (mnt / "node_modules" / top.relative_to(self.source)).mkdir(parents=True)
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(copy, files):
                pass
        _until(lambda: _files(served / "node_modules") == 2000)
        shutil.rmtree(self.source)


class Make(Workload):
    name = "make"
    what = "`make -j4` of 100 C files"

    def prepare(self, served):
        served.mkdir()
        (served / "all.h").write_text("int f(int);\n")
        for i in range(100):
            (served / f"f{i}.c").write_text(f'#include "all.h"\nint f{i}(int x) {{ return x; }}\n')
        (served / "main.c").write_text("int main(void) { return 0; }\n")
        (served / "Makefile").write_text(
            "SRC := $(wildcard *.c)\nprog: $(SRC:.c=.o)\n\tcc -o $@ $^\n"
            "%.o: %.c all.h\n\tcc -c -o $@ $<\n")

    def run(self, mnt, served):
        _quiet("make", "-j4", cwd=mnt)
        _until((served / "prog").exists)


WORKLOADS = [each() for each in (ListTree, GitStatus, Grep, ReadSmall, ReadBig, ReadBigKnown,
                                 ReadRandom, WriteBig, Untar, Appends, Saves, Tail, CopyWithin,
                                 Remove, Install, Make)]
