"""A workspace with everything that an archive may lose, and how to tell that nothing was lost."""

import os
import shutil
import subprocess
from pathlib import Path

FIRST_NS = 1_600_000_000_123_456_789
STEP_NS = 1_234_567_891_011


def name_of(length: int, head: bytes = b"") -> bytes:
    """A name of exactly that many bytes."""
    return (head + b"n" * length)[:length]


class OddTree:
    """Makes the tree below a directory, by bytes: its names need not be UTF-8.

    thawable leaves out what the server's own archive and thaw can't hold: absolute and climbing
    links, and names that are not UTF-8.
    """

    def __init__(self, top, files: int = 5000, sparse_bytes: int = 100 << 20,
                 thawable: bool = False, seconds: bool = False):
        self.top = os.fsencode(top)
        self.count = 0
        self.seconds = seconds
        self.stamps = {}
        self.modes = {}
        self._many(files)
        self._names(thawable)
        self._links(thawable)
        self._directories()
        self._sparse(sparse_bytes)
        self._finish()

    def _path(self, *names) -> bytes:
        return os.path.join(self.top, *(os.fsencode(name) for name in names))

    def _stamp(self, path):
        self.count += 1
        stamp = FIRST_NS + self.count * STEP_NS
        self.stamps[path] = stamp // 10**9 * 10**9 if self.seconds else stamp

    def file(self, *names, data: bytes = None, mode: int = None) -> bytes:
        path = self._path(*names)
        with open(path, "wb") as out:
            out.write(b"%d\n" % self.count if data is None else data)
        self._stamp(path)
        if mode is not None:
            self.modes[path] = mode
        return path

    def directory(self, *names, mode: int = 0o755) -> bytes:
        path = self._path(*names)
        os.mkdir(path)
        self._stamp(path)
        self.modes[path] = mode
        return path

    def link(self, text, *names):
        path = self._path(*names)
        os.symlink(text, path)
        self._stamp(path)

    def _many(self, files):
        for i in range((files + 99) // 100):
            self.directory(f"many{i:03d}")
            for k in range(min(100, files - i * 100)):
                self.file(f"many{i:03d}", f"f{k:02d}", mode=0o755 if k % 10 == 0 else 0o644)

    def _names(self, thawable):
        self.directory("names")
        names = [b"line\nbreak", b"tab\ttab", b" blank ", b"-dash", b"quote'\"$`", b"star*?[x]",
                 "é".encode(), "日本".encode(), "e\u0301".encode(), name_of(100),
                 name_of(101, b"b"), name_of(255, b"c"), ("é" * 40 + "x" * 20).encode(),
                 b"trailing.", b"%41", b"..double", b"...", b"co:lon"]
        if not thawable:
            names += [b"bad\xff\xfeutf8", b"\xc3", b"back\\slash"]
        for name in names:
            self.file("names", name)
        # A path of exactly 100 bytes in all, and one of 99 and 101.
        for length in (99, 100, 101):
            self.directory(f"p{length}")
            self.file(f"p{length}", b"p" * (length - len(f"p{length}") - 1))
        for name in ("été", "日本語"):
            self.directory(name)
            self.file(name, "ñ", data=name.encode())
            self.directory(name, "empty")
            self.file(name, "long" + "l" * 120)
        if not thawable:
            self.directory(b"dir\xff")
            self.file(b"dir\xff", b"in\xfe")
            self.directory(b"dir\xff", b"empty\xfd")
            self.file(b"..root", data=b"begins with two dots")
            self.file(b"C:drive")

    def _links(self, thawable):
        self.directory("links")
        self.link(b"../names/-dash", "links", "relative")
        self.link(b"nowhere", "links", "dangling")
        self.link("../été/ñ".encode(), "links", "to-é")
        self.link(b"t" * 100, "links", "text100")
        self.link(b"t" * 101, "links", "text101")
        self.link(b"x" * 99, "links", "日本")
        if not thawable:
            self.link(b"/usr/bin/env", "links", "absolute")
            self.link(b"../../../etc", "links", "escaping")
            self.link(b"bad\xfftext", "links", "badtext")
            self.link(b"nowhere", "links", b"bad\xffname")
        first = self.file("links", "hard-1", data=b"one file, three names\n", mode=0o600)
        self.directory("links", "deep")
        for name in (("links", "hard-2"), ("links", "deep", "hard-3")):
            os.link(first, self._path(*name))

    def _directories(self):
        for mode in self._possible(0o700, (0o000, 0o100, 0o500, 0o555, 0o700, 0o711, 0o750, 0o777)):
            self.directory(f"dir{mode:03o}", mode=mode)
            self.file(f"dir{mode:03o}", "inside")
            self.directory(f"dir{mode:03o}", "empty", mode=mode)
        self.directory("modes")
        for mode in self._possible(0o400, (0o000, 0o001, 0o200, 0o400, 0o444, 0o640, 0o755, 0o777)):
            self.file("modes", f"{mode:03o}", mode=mode)
        self.directory("a", mode=0o700)
        deep = ["a"]
        for _ in range(30):
            deep.append("d")
            self.directory(*deep, mode=0o700)

    @staticmethod
    def _possible(needed: int, modes) -> list[int]:
        """What forbids its owner to read or fill it is for root, who is forbidden nothing."""
        return [mode for mode in modes if os.geteuid() == 0 or mode & needed == needed]

    def _sparse(self, size):
        path = self._path("sparse")
        with open(path, "wb") as out:
            out.truncate(size)
            out.seek(size // 2)
            out.write(b"in the middle")
        self._stamp(path)

    def _finish(self):
        """Times and modes, what lies deep first."""
        for path in sorted(self.stamps, reverse=True):
            os.utime(path, ns=(self.stamps[path],) * 2, follow_symlinks=False)
            if path in self.modes:
                os.chmod(path, self.modes[path])


def copy_tree(top, to):
    """A true copy of a workspace, without what sbxfs keeps in it."""
    subprocess.run(["rsync", "-aHS", "--exclude=/.sbxfs", f"{top}/", f"{to}/"], check=True)


def differences(before, after, window: int = 0) -> list[str]:
    """What rsync would do to make `after` like `before`; the roots themselves left aside."""
    words = ["rsync", "-anHci", "--delete", "--exclude=/.sbxfs"]
    if window:
        words.append(f"--modify-window={window}")
    done = subprocess.run([*words, f"{before}/", f"{after}/"], check=True, capture_output=True,
                          text=True, errors="surrogateescape")
    return [line for line in done.stdout.splitlines() if not line.endswith(" ./")]


def remove_tree(top):
    """Also where modes forbid it."""
    for directory, names, _ in os.walk(top):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(top)
