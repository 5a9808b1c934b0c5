"""Mounts sbxfs and takes it away again."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from .build import sbxfs_path
from .process import (end, find_by_argument, is_running, sanitizer_env, sanitizer_reports,
                      valgrind, what_it_does)
from .timing import scale, wait_for


class MountError(Exception):
    """sbxfs did not mount: its exit status and what it said."""

    def __init__(self, status: int, output: str):
        super().__init__(f"sbxfs ended with {status}: {output}")
        self.status = status
        self.output = output


def is_mounted(path) -> bool:
    wanted = os.fsencode(str(path)).replace(b"\\", b"\\134").replace(b" ", b"\\040")
    with open("/proc/self/mountinfo", "rb") as table:
        return any(line.split()[4] == wanted for line in table)


def parse_status(text: str) -> dict:
    """The `key: value` lines of a status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


class Mount:
    """A mount of an endpoint, with a mount point, a state and a cache directory of its own.

    options are words of -o. The command returns when the mount is ready, and so does the
    constructor. Directories that are given are used and kept; others are removed by close().
    default_dirs: the command is told of neither, and takes what it takes then.
    """

    def __init__(self, endpoint: str, options=(), token: str = None, mnt=None, state_dir=None,
                 cache_dir=None, env: dict = None, args=(), wrapper=(), seconds: float = 30,
                 default_dirs: bool = False):
        self.endpoint = endpoint
        self.work = Path(tempfile.mkdtemp(prefix="sbxfs-test."))
        self.mnt = Path(mnt) if mnt else self.work / "mnt"
        self.state_dir = Path(state_dir) if state_dir else self.work / "state"
        self.cache_dir = Path(cache_dir) if cache_dir else self.work / "cache"
        self._report = self.work / "sanitizer"
        for directory in (self.mnt, self.state_dir, self.cache_dir):
            directory.mkdir(mode=0o700, exist_ok=True)
        common = os.environ.get("SBX_MOUNT_OPTIONS")  # of a whole run, as scripts/test makes it
        words = [] if default_dirs else [f"state_dir={self.state_dir}",
                                         f"cache_dir={self.cache_dir}"]
        words += [*([common] if common else []), *options]
        self._env = {**os.environ, **sanitizer_env(self._report)}
        for name in ("SBX_TOKEN", "SBX_ENDPOINT", "http_proxy", "https_proxy", "all_proxy",
                     "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "no_proxy", "NO_PROXY"):
            self._env.pop(name, None)
        if token is not None:
            self.token_file = self.work / "token"
            self.token_file.touch(mode=0o600)
            self.token_file.write_text(token + "\n")
            words.append(f"token_file={self.token_file}")
        self._env.update(env or {})
        self.command = [*wrapper, *valgrind(self._report), sbxfs_path(), *args,
                        *(["-o", ",".join(words)] if words else []), endpoint, self.mnt]
        self.pid = None
        try:
            self.start(seconds)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __truediv__(self, name) -> Path:
        return self.mnt / name

    @property
    def output(self) -> str:
        """What the command said, also after it went to the background."""
        path = self.work / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, seconds: float = 30):
        """Mounts; MountError when the command does not end with 0."""
        before = len(self.output)
        with open(self.work / "output", "ab") as output:
            process = subprocess.Popen(
                [str(word) for word in self.command], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, env=self._env, cwd="/")
            try:
                status = process.wait(scale(seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise TimeoutError(f"sbxfs did not get ready: {self.output[before:]}") from None
        if status:
            raise MountError(status, self.output[before:])
        if not is_mounted(self.mnt):
            raise AssertionError(f"sbxfs ended with 0 without a mount: {self.output[before:]}")
        found = self._processes()
        if len(found) != 1:
            raise AssertionError(f"{len(found)} processes serve {self.mnt}")
        self.pid = found[0]

    def _processes(self) -> list[int]:
        return find_by_argument(sbxfs_path(), str(self.mnt))

    def unmount(self, seconds: float = 30):
        """fusermount3 -u, then the process must be gone, without a sanitizer's report."""
        subprocess.run(["fusermount3", "-u", str(self.mnt)], check=True, capture_output=True,
                       text=True)
        self.wait_gone(seconds)
        self.check_reports()

    def wait_gone(self, seconds: float = 30):
        pid = self.pid
        try:
            wait_for(lambda: not is_running(pid), seconds, f"sbxfs {pid} did not end")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{what_it_does(pid)}") from None
        self.pid = None

    def check_reports(self):
        reports = sanitizer_reports(self._report)
        if reports:
            raise AssertionError(f"sbxfs: {reports}")

    def signal(self, number: int):
        os.kill(self.pid, number)

    def kill(self):
        """SIGKILL, as after a crash; start() mounts again."""
        self.signal(signal.SIGKILL)
        self.wait_gone()

    def close(self):
        """Takes away whatever is left: the mount, the process, the directories."""
        try:
            if is_mounted(self.mnt):
                if self.pid is not None and is_running(self.pid):
                    self.unmount()
        finally:
            if is_mounted(self.mnt):
                subprocess.run(["fusermount3", "-uz", str(self.mnt)], check=False,
                               capture_output=True)
            for pid in self._processes():
                end(pid)
            if not is_mounted(self.mnt):
                shutil.rmtree(self.work, ignore_errors=True)
        self.check_reports()

    def read(self, name) -> str:
        return (self.mnt / name).read_text()

    def status(self, name: str = ".") -> dict:
        """What a status file says."""
        return parse_status(self.read(f"{name}/status"))

    def pending(self, name: str = "dev1") -> tuple[int, int]:
        """The files that are not sent yet, and the bytes."""
        words = self.status(name)["pending_writes"].split()
        return int(words[0]), int(words[2])
