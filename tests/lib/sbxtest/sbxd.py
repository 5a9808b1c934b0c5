"""Starts and stops tests/sbxd, the stand-in server."""

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .build import sbxd_path
from .http import Client
from .log import LogRecord, read_log
from .process import sanitizer_env, sanitizer_reports
from .timing import scale, wait_for


class Sbxd:
    """A running sbxd on 127.0.0.1, with a directory of its own for everything.

    profile, token, idle_ttl_ms, sweep_ms, faults and args (further arguments; {work} in one is that
    directory) say how it is started. restart() starts it again on the same port, root and archives.
    """

    def __init__(self, profile: str = "host", token: str = None, idle_ttl_ms: int = None,
                 sweep_ms: int = None, faults=(), args=(), port: int = 0, env: dict = None):
        self.profile = profile
        self.token = token
        self.work = Path(tempfile.mkdtemp(prefix="sbxd-test."))
        self.root = self.work / "root"
        self.archive_dir = self.work / "archives"
        self.log_path = self.work / "log"
        self.fault_file = self.work / "faults"
        self.token_file = self.work / "token"
        self._report = self.work / "sanitizer"
        for directory in (self.root, self.archive_dir):
            directory.mkdir(mode=0o700)
        self.fault_file.write_text("")
        self._options = [
            "--root", self.root, "--archive-dir", self.archive_dir, "--log", self.log_path,
            "--profile", profile, "--fault-file", self.fault_file]
        if token is not None:
            self.token_file.touch(mode=0o600)
            self.token_file.write_text(token + "\n")
            self._options += ["--token-file", self.token_file]
        if idle_ttl_ms is not None:
            self._options += ["--idle-ttl-ms", idle_ttl_ms]
        if sweep_ms is not None:
            self._options += ["--sweep-ms", sweep_ms]
        for rule in faults:
            self._options += ["--fault", rule]
        self._options += [str(word).replace("{work}", str(self.work)) for word in args]
        self._env = {**os.environ, **sanitizer_env(self._report), **(env or {})}
        self._process = None
        self._stderr = None
        self.port = port
        self.url = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def pid(self):
        return self._process.pid if self._process else None

    @property
    def stderr(self) -> str:
        """What the server said so far."""
        path = self.work / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self):
        """Starts it and waits for its first line."""
        command = [sbxd_path(), "--listen", f"127.0.0.1:{self.port}", *self._options]
        self._stderr = open(self.work / "stderr", "ab")
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self._stderr, env=self._env, cwd=self.work, umask=0o022)
        line = self._line(scale(10))
        match = re.fullmatch(rb"listening on (http://127\.0\.0\.1:(\d+))\n", line)
        if not match:
            raise AssertionError(f"sbxd began with {line!r}; {self.stderr}")
        self.url, self.port = match[1].decode(), int(match[2])

    def _line(self, seconds: float) -> bytes:
        stream, line, limit = self._process.stdout, b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            left = limit - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                break
            byte = os.read(stream.fileno(), 1)
            if not byte:
                break
            line += byte
        return line

    def stop(self, seconds: float = 15) -> int:
        """SIGTERM; returns the exit status. A sanitizer's report is an error."""
        return self._end(self._process.terminate, seconds)

    def kill(self):
        """SIGKILL, as after a crash."""
        self._end(self._process.kill, 10)

    def wait_end(self, seconds: float) -> int:
        """Waits for it to end by itself; returns the exit status (negative: a signal's number)."""
        return self._end(lambda: None, seconds)

    def _end(self, signal_it, seconds: float):
        process, self._process = self._process, None
        signal_it()
        try:
            status = process.wait(scale(seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("sbxd did not end on SIGTERM") from None
        finally:
            process.stdout.close()
            self._stderr.close()
        reports = sanitizer_reports(self._report)
        if reports:
            raise AssertionError(f"sbxd: {reports}")
        return status

    def sweep(self):
        """Has it archive all sessions that no request is using, and can be; they are then."""
        self._process.send_signal(signal.SIGUSR1)
        line = self._line(scale(60))
        if line != b"swept\n":
            raise AssertionError(f"sbxd said {line!r} to SIGUSR1")

    def sleep(self, session: str):
        """Has it archive that session, and all others that no request is using."""
        def asleep():
            if not os.path.lexists(self.session_dir(session)):
                return True
            self.sweep()
            return False  # a request that was answered just now may still hold it

        wait_for(asleep, 20, f"{session} is archived")

    def restart(self, args=()):
        """args are added to those it had; of an option that is there twice the last counts."""
        if self._process:
            self.stop()
        self._options += [str(word) for word in args]
        self.start()

    def close(self):
        """Stops it when it runs and removes its directory."""
        try:
            if self._process:
                self.stop()
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def client(self, timeout: float = 60) -> Client:
        return Client(self.url, self.token, timeout)

    def session_dir(self, session: str) -> Path:
        """The workspace of a live session on this machine."""
        return self.root / "by-id" / session

    def set_faults(self, *rules: str):
        """Replaces the rules of the fault file (`ROUTE[@SESSIONPREFIX]:N|N-M|*:ACTION[=ARG]`)."""
        fresh = self.fault_file.with_suffix(".new")
        fresh.write_text("".join(rule + "\n" for rule in rules))
        fresh.replace(self.fault_file)

    def log(self, after: int = 0) -> list[LogRecord]:
        """The requests served so far, but for the first `after`."""
        return read_log(self.log_path, after)

    def set_token(self, token: str):
        """Writes another token into the token file (the server reads it at its start)."""
        self.token = token
        self.token_file.write_text(token + "\n")
