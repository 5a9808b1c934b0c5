"""Starting jobs through a mount and looking at them, as programs do."""

import os
import subprocess
import threading
import time

from sbxtest.mount import parse_status
from sbxtest.timing import scale, wait_for

# profile, arguments of sbxd
BACKENDS = {
    "host": ("host", []),
    "host-busybox": ("host", ["--tools", "busybox"]),
    "overlay": ("overlay", []),
    "overlay-busybox": ("overlay", ["--tools", "busybox"]),
}


def start(session, command) -> str:
    """Starts a job (shell text or JSON) and returns its id."""
    fd = os.open(session / "jobs/new", os.O_RDWR)
    try:
        os.write(fd, command if isinstance(command, bytes) else command.encode())
        line = os.read(fd, 4096)
        assert os.read(fd, 4096) == b""
    finally:
        os.close(fd)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    return line.decode().strip()


def status(job) -> dict:
    return parse_status((job / "status").read_text())


def ended(job, seconds: float = 20) -> dict:
    """Waits for the job's end and returns its status."""
    text = subprocess.run(["cat", job / "wait"], check=True, capture_output=True, text=True,
                          timeout=scale(seconds)).stdout
    return parse_status(text)


def running(job):
    wait_for(lambda: status(job)["state"] == "running", 10)


def ids(session) -> list:
    return sorted(name for name in os.listdir(session / "jobs") if name not in ("new", "latest"))


def workspace(server, session):
    """The session's workspace on this machine."""
    return server.session_dir(status(session)["id"])


def programs(records) -> dict:
    """How many requests ran which program in the sandbox; others by route."""
    count = {}
    for record in records:
        program = record.program or ""
        if "\n" in program:
            program = "sbxfs-jobrun"
        name = program or record.route
        count[name] = count.get(name, 0) + 1
    return count


class Reader(threading.Thread):
    """Reads what a program prints, and when each piece came."""

    def __init__(self, words):
        super().__init__()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.pieces = []  # (bytes so far, when)
        self.data = b""
        self.start()

    def run(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.data += piece
            self.pieces.append((len(self.data), time.monotonic()))

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.join()
        self.process.stdout.close()
