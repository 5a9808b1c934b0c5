"""Where the programs under test are."""

import os
from pathlib import Path


def tree_dir() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parents[3]


def build_dir() -> Path:
    """The build directory: SBX_BUILD (relative to the tree), else build/ of the tree."""
    return tree_dir() / os.environ.get("SBX_BUILD", "build")


def _program(path: str) -> Path:
    program = build_dir() / path
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"{program} is not built (SBX_BUILD names the build directory)")
    return program


def sbxd_path() -> Path:
    return _program("tests/sbxd/sbxd")


def sbxfs_path() -> Path:
    return _program("fusefs/sbxfs")
