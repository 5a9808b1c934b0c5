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


@pytest.fixture(params=KINDS)
def box(request, tool_paths, tmp_path):
    driver = build.build_dir() / "tests/programs/program_driver"
    root = tmp_path / "root"
    root.mkdir()
    sandbox = Sandbox(driver, tool_paths[request.param], str(root), KINDS[request.param][2])
    sandbox.kind = request.param
    yield sandbox
    sandbox.close()
