"""A mounted session seen from both sides: by programs of this machine and by the sandbox's."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from .mount import Mount
from .sbxd import Sbxd
from .timing import scale

FULL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Shown as the owner. To nobody but root, and the owner, the kernel gives leave to set modes.
OTHER_UID = 12345 if os.geteuid() == 0 else os.geteuid()

# What the sandbox and the mount may be like; name: (tools, profile, options of the mount).
KINDS = {
    "gnu-host-uid": ("gnu", "host", [f"uid={OTHER_UID}"]),
    "gnu-overlay": ("gnu", "overlay", []),
    "busybox-host": ("busybox", "host", []),
    "gnu-host": ("gnu", "host", []),
    "busybox-overlay": ("busybox", "overlay", []),
    "gnu-bare": ("gnu", "host", []),
    "busybox-bare": ("busybox", "host", []),
}

# As the backend that the reference server recommends: commands have no PATH and no HOME but the
# client's, of their output comes no more than the first part, and they must not be long.
BARE = ["--bare-env", "--exec-output-limit", "262144", "--exec-command-limit", "131072"]


class CommandError(Exception):
    """A program ended with another status than 0."""


class Place:
    """One server, one mount of it, one session.

    fs is the workspace through the mount, root the same on the server's disk. What run() and
    inside() start has a home directory of its own and a fixed environment.
    """

    def __init__(self, server: Sbxd, mount: Mount, name: str = "dev1", kind: str = "gnu-host"):
        self.kind = kind
        self.server = server
        self.mount = mount
        self.name = name
        if not (mount / name).exists():
            (mount / name).mkdir()
        self.id = mount.status(name)["id"]
        self.fs = mount / name / "fs"
        self.root = server.session_dir(self.id)
        self._work = tempfile.TemporaryDirectory(prefix="sbx-place-test.")
        self.work = Path(self._work.name)  # a directory of this machine, outside the mount
        self.work.chmod(0o755)
        self.home = self.work / "home"
        self.home.mkdir()
        self._env = {
            "PATH": FULL_PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC0",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true",
            "GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.com",
            "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@example.com",
        }
        # Owners shown may be another's.
        (self.home / ".gitconfig").write_text("[safe]\ndirectory = *\n"
                                              "[init]\ndefaultBranch = main\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._work.cleanup()

    def env(self, **more) -> dict:
        return {**self._env, "HOME": str(self.home), **more}

    def run(self, *words, cwd=None, seconds: float = 120, status=0) -> str:
        """Runs a program of this machine, in fs unless cwd says otherwise; its output."""
        with subprocess.Popen(
                [str(word) for word in words], cwd=cwd or self.fs, env=self.env(),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="surrogateescape", start_new_session=True) as process:
            try:
                output = process.communicate(timeout=scale(seconds))[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if status is not None and process.returncode != status:
            raise CommandError(f"{' '.join(map(str, words))}: {process.returncode}\n{output}\n"
                               f"errors: {self.errors()}")
        return output

    def sh(self, script: str, **fields) -> str:
        return self.run("bash", "-ec", script, **fields)

    def inside(self, script: str, *args, cwd: str = "", seconds: float = 120, status=0,
               check: bool = True) -> str:
        """Runs a script in the sandbox, with all of this machine's tools; its output.

        Only ASCII comes back as it is. A sandbox of BusyBox is left for it; where that has a jail
        too, which holds nothing else, the script runs beside the jail, in the same files.
        """
        if self.kind == "busybox-overlay":
            return self.run("/bin/sh", "-ec", script, "sh", *args, cwd=self.root / cwd,
                            seconds=seconds, status=status if check else None)
        with self.server.client(timeout=seconds) as client:
            reply = client.exec(
                self.id, ["/bin/sh", "-c", 'PATH=$1; shift; exec /bin/sh -ec "$@"', "sh",
                          FULL_PATH, script, "sh", *map(str, args)], cwd=cwd,
                env={**self._env, "HOME": "/tmp"}, timeoutMs=int(scale(seconds) * 1000))
        output = reply["stdout"] + reply["stderr"]
        if check and reply["exitCode"] != status:
            raise CommandError(f"in the sandbox: {script}: {reply['exitCode']} {output}\n"
                               f"errors: {self.errors()}")
        return output

    def errors(self) -> str:
        return self.mount.read(f"{self.name}/errors")

    def fresh(self):
        """What the sandbox did before shows here from now on."""
        with open(self.mount / self.name / "control", "w") as control:
            control.write("refresh\n")

    def log_mark(self) -> int:
        return len(self.server.log())


def leftovers(place: Place) -> list[str]:
    """Files that sbxfs keeps in the workspace beside its directories and their .gitignore."""
    ours = place.root / ".sbxfs"
    return sorted(os.path.relpath(os.path.join(top, name), ours)
                  for top, _, names in os.walk(ours) for name in names if name != ".gitignore")
