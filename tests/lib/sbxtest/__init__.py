"""Shared parts of the Python tests: servers, mounts, HTTP clients, TLS.

Only the standard library is used. What a test starts is stopped by the object that started it,
by process id, and every temporary file lives in a directory that the same object removes.
"""

from .build import build_dir, sbxd_path, sbxfs_path, tree_dir
from .http import Client, RawConnection, RawResponse, Reply, quote
from .log import LogRecord, read_log
from .mount import Mount, MountError
from .place import CommandError, Place, leftovers
from .sbxd import Sbxd
from .timing import scale, wait_for

__all__ = [
    "Client", "CommandError", "LogRecord", "Mount", "MountError", "Place", "RawConnection",
    "RawResponse", "Reply", "Sbxd", "build_dir", "leftovers", "quote", "read_log", "sbxd_path",
    "sbxfs_path", "scale", "tree_dir", "wait_for",
]
