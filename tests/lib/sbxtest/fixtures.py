"""pytest fixtures: factories whose products are taken away when the test ends."""

import subprocess
from contextlib import ExitStack

import pytest

from .mount import Mount
from .place import BARE, KINDS, Place
from .sbxd import Sbxd


@pytest.fixture
def small_disk(tmp_path):
    """A directory of 4 MiB on a disk of its own. Takes root."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def start_sbxd():
    """start_sbxd(...) is Sbxd(...), stopped at the end."""
    with ExitStack() as stack:
        yield lambda *args, **fields: stack.enter_context(Sbxd(*args, **fields))


@pytest.fixture
def start_mount(start_sbxd):
    """start_mount(...) is Mount(...), unmounted at the end, before any server of start_sbxd."""
    with ExitStack() as stack:
        yield lambda *args, **fields: stack.enter_context(Mount(*args, **fields))


@pytest.fixture
def start_place(start_sbxd, start_mount):
    """start_place(kind, options, args) is a Place with a server and a mount of its own."""
    with ExitStack() as stack:
        def start(kind: str = "gnu-host", options=(), args=()):
            tools, profile, own = KINDS[kind]
            bare = BARE if kind.endswith("-bare") else []
            server = start_sbxd(profile, args=["--tools", tools, *bare, *args])
            mount = start_mount(server.url, [*own, *options])
            return stack.enter_context(Place(server, mount, kind=kind))
        yield start


def _kinds(*ordinary: str, without=()):
    # All of them in a slow run.
    return [pytest.param(name, marks=[] if name in ordinary else [pytest.mark.slow])
            for name in KINDS if name not in without]


@pytest.fixture(params=_kinds("gnu-host-uid", "gnu-overlay", "busybox-host"))
def place(request, start_place):
    """A Place of each kind, so that every tool set and profile is met."""
    return start_place(request.param)


# For tests of many requests: in a jail, where a command takes long to start, in a slow run only.
quick_kinds = pytest.mark.parametrize("place", _kinds("gnu-host-uid", "busybox-host"),
                                      indirect=True)
# For tests that want Python inside the sandbox: a jail of BusyBox has none in its /usr/bin.
python_kinds = pytest.mark.parametrize(
    "place", _kinds("gnu-host-uid", "gnu-overlay", "busybox-host", without=["busybox-overlay"]),
    indirect=True)
