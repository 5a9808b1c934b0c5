"""Which version of a file an open file reads."""

import os
import time
from contextlib import ExitStack

import pytest

from sbxtest.timing import wait_for

pytestmark = pytest.mark.core


@pytest.fixture
def place(start_sbxd, start_mount):
    """The workspace as the mount shows it and as the server has it."""
    server = start_sbxd()
    with server.client() as client:
        session = client.create()["sessionId"]
    mount = start_mount(server.url, [f"attach={session}:a"])
    return mount / "a/fs", server.session_dir(session)


def append(path, text):
    with open(path, "ab") as file:
        file.write(text)


def replace(path, text):
    path.with_suffix(".new").write_bytes(text)
    os.rename(path.with_suffix(".new"), path)


def overwrite(path, text):
    path.write_bytes(text)


def test_an_open_sees_the_new_version_beside_an_older_reader(place):
    fs, served = place
    changes = {"appended": append, "replaced": replace, "overwritten": overwrite}
    for name in changes:
        (served / name).write_bytes(b"0\n")
    with ExitStack() as stack:
        for name in changes:
            older = stack.enter_context(open(fs / name, "rb", buffering=0))
            assert older.read(100) == b"0\n"
        for turn in range(1, 5):
            text = b"%d\n" % turn * (turn + 1)
            for name, change in changes.items():
                change(served / name, text)
            time.sleep(1.05)  # ttl
            for name in changes:
                expected = (served / name).read_bytes()
                assert expected.endswith(text)
                assert (fs / name).read_bytes() == expected, name
                assert os.stat(fs / name).st_size == len(expected), name


def test_a_reader_keeps_the_version_that_was_replaced(place):
    fs, served = place
    (served / "f").write_bytes(b"old")
    with open(fs / "f", "rb", buffering=0) as older:
        (served / "new").write_bytes(b"newer")
        os.rename(served / "new", served / "f")
        wait_for(lambda: (fs / "f").read_bytes() == b"newer", 5)
        assert older.read(100) == b"old"
