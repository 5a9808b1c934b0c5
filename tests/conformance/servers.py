"""The servers that rows run against: the endpoint that is given, else sbxd, started as needed.

Environment: SBX_ENDPOINT, SBX_ENDPOINT_TOKEN_FILE, SBX_ENDPOINT_PROFILE (host or overlay),
SBX_ENDPOINT_ROOT (where the workspaces are on this machine: ROOT/by-id/ID, ROOT/ID/workspace, or
where the server says). SBX_SLOW=1 takes the slow rows too.
"""

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .runner import Target
from sbxtest import Sbxd, scale

TOKEN = "conformance-0123456789abcdef"
SWEEP_MS = 100
IDLE_MS = int(3000 * scale(1))

# What each kind of server takes beyond the defaults; {work} is a directory of its own.
KINDS = {
    "plain": {},
    "own": {},
    "token": {"token": TOKEN},
    "sleepy": {},
    "idle": {"idle_ttl_ms": IDLE_MS, "sweep_ms": SWEEP_MS},
    "expiry": {"args": ("--archive-ttl-ms", 800)},
    "dirs": {"args": ("--root-dir-prefix", "{work}/allowed")},
    "dirs-sleepy": {"args": ("--root-dir-prefix", "{work}/allowed")},
    "quick": {"args": ("--head-deadline-ms", 1200, "--request-deadline-ms", 2000)},
    "noexec": {"args": ("--no-exec",)},
    "joined": {"args": ("--exec-command-limit", 4096)},
    "cut": {"args": ("--exec-output-limit", 262144)},
}
PRIVATE = ("own",)


class Given:
    """The endpoint named by the environment."""

    def __init__(self):
        self.endpoint = os.environ["SBX_ENDPOINT"].rstrip("/")
        self.profile = os.environ.get("SBX_ENDPOINT_PROFILE", "host")
        token_file = os.environ.get("SBX_ENDPOINT_TOKEN_FILE")
        self.token = Path(token_file).read_text().strip() if token_file else None
        root = os.environ.get("SBX_ENDPOINT_ROOT")
        self.root = Path(root) if root else None

    def target(self) -> Target:
        return Target(self.endpoint, self.profile, self.token, self.root)


def given():
    return Given() if os.environ.get("SBX_ENDPOINT") else None


def left_out(row, profile: str, endpoint) -> str:
    """Why the row is not asked in this run, or nothing."""
    if profile not in row.profiles:
        return "is of the other profile"
    if row.slow and os.environ.get("SBX_SLOW") != "1":
        return "is slow, SBX_SLOW=1 takes it"
    if endpoint is None:
        return "needs root" if "root" in row.needs and os.geteuid() else ""
    if profile != endpoint.profile:
        return "is of the other profile"
    if row.server not in ("plain", "token") or (row.server == "token" and not endpoint.token):
        return f"needs a server of kind {row.server}"
    if "no-token" in row.needs and endpoint.token:
        return "needs a server without a token"
    return ""


class Servers:
    """Starts each kind once a profile, on the first use; private ones for each use."""

    def __init__(self):
        self._stack = ExitStack()
        self._targets = {}

    def close(self):
        self._stack.close()

    @contextmanager
    def target(self, row, profile: str):
        endpoint = given()
        if endpoint:
            yield endpoint.target()
        elif row.server in PRIVATE:
            with start(row.server, profile) as target:
                yield target
        else:
            key = (row.server, profile)
            if key not in self._targets:
                self._targets[key] = self._stack.enter_context(start(*key))
            yield self._targets[key]


@contextmanager
def start(kind: str, profile: str):
    with Sbxd(profile=profile, **KINDS[kind]) as server:
        yield Target(server.url, profile, server.token, server.root, server)
