"""Each test of the programs runs with every set of tools that sandboxes are known to have."""

import os
import shutil
import subprocess

import pytest

from sandbox import Sandbox
from sbxtest import build

# name: (who is sh, whose tools, letters of the tools word that are taken away)
KINDS = {
    "gnu": ("dash", "gnu", ""),
    "gnu-bash": ("bash", "gnu", ""),
    "gnu-bare": ("dash", "gnu", "fztTNkcCRlr"),
    "busybox": ("busybox", "busybox", ""),
    "busybox-dash": ("dash", "busybox", ""),
    "busybox-bare": ("busybox", "busybox", "zTkcr"),
}


@pytest.fixture(scope="session")
def tool_paths(tmp_path_factory):
    """PATH of each kind: a directory of applets, or one with another sh before the system's."""
    paths = {}
    for kind, (shell, tools, _) in KINDS.items():
        place = tmp_path_factory.mktemp(f"tools-{kind}")
        if tools == "busybox":
            busybox = shutil.which("busybox")
            for applet in subprocess.check_output([busybox, "--list"], text=True).split():
                os.symlink(busybox, place / applet)
            if shell != "busybox":
                os.unlink(place / "sh")
                os.symlink(shutil.which(shell), place / "sh")
            paths[kind] = str(place)
        else:
            os.symlink(shutil.which(shell), place / "sh")
            paths[kind] = f"{place}:/usr/bin:/bin"
    return paths


@pytest.fixture(scope="session")
def probed():
    """What a probe says of the tools of each kind that was met, and the directory that it makes."""
    return {}


@pytest.fixture(params=KINDS)
def box(request, tool_paths, probed, tmp_path, tmp_path_factory):
    """A workspace with the directory and the tools word that a probe brings.

    The first of a kind asks for them. test_probe asks each time, which box.facts are from.
    """
    kind = request.param
    driver = build.build_dir() / "tests/programs/program_driver"
    root = tmp_path / "root"
    root.mkdir()
    sandbox = Sandbox(driver, tool_paths[kind], str(root))
    sandbox.kind = kind
    try:
        if kind not in probed or request.module.__name__ == "test_probe":
            sandbox.facts = sandbox.probe()
            made = tmp_path_factory.mktemp(f"work-{kind}") / ".sbxfs"
            shutil.copytree(root / ".sbxfs", made)
            probed.setdefault(kind, (sandbox.facts["tools"][0], made))
        else:
            shutil.copytree(probed[kind][1], root / ".sbxfs")
        sandbox.use(probed[kind][0], KINDS[kind][2])
        yield sandbox
    finally:
        sandbox.close()
