"""Processes that tests start: found and ended by id only."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from .timing import wait_for


def is_running(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def find_by_argument(program: Path, argument: str) -> list[int]:
    """Processes running that very program, be it under valgrind, with that very argument.

    /proc/PID/exe can't be read of an undumpable process, which sbxfs is; its command line can.
    """
    wanted = os.fsencode(argument), os.fsencode(program)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if all(word in words for word in wanted) and is_running(int(entry)):
                found.append(int(entry))
        except OSError:
            continue
    return found


def end(pid: int, seconds: float = 10):
    """SIGTERM, then SIGKILL when it does not end in time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        try:
            wait_for(lambda: not is_running(pid), seconds)
            return
        except TimeoutError:
            continue
    raise TimeoutError(f"process {pid} does not end")


def what_it_does(pid: int) -> str:
    """Where its threads are, for the message about one that hangs; as far as we may see."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        lines = []
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                lines += (task / name).read_text().split("\n")[:6]
            except OSError as error:
                lines.append(f"{name}: {error.strerror}")
        found.append(f"thread {task.name}: " + "; ".join(filter(None, lines)))
    if shutil.which("gdb"):
        found.append(subprocess.run(
            ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"], check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout)
    return "\n".join(found)


def sanitizer_env(report: Path) -> dict:
    """Environment that sends sanitizer reports to files beginning with that path.

    GLib's slices pass from thread to thread unseen by the sanitizers: malloc does not.
    """
    env = {"G_SLICE": "always-malloc"}
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        given = os.environ.get(name)
        env[name] = f"{given + ':' if given else ''}log_path={report}"
    return env


def sanitizer_reports(report: Path) -> str:
    """The text of all reports written so."""
    return "\n".join(path.read_text(errors="replace")
                     for path in sorted(report.parent.glob(report.name + ".*"))).strip()


def valgrind(report: Path) -> list:
    """The words before a program that run it under valgrind, where the run asks for that.

    Errors and leaks go to files that sanitizer_reports finds.
    """
    if not os.environ.get("SBX_VALGRIND"):
        return []
    return ["valgrind", "-q", f"--log-file={report}.%p", "--leak-check=full",
            "--show-leak-kinds=definite,indirect,possible", "--num-callers=25", "--"]
