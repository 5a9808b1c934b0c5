"""Which version of a file an open file reads."""

import os
import time

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


@pytest.mark.parametrize("change", ["append", "replace", "overwrite"])
def test_an_open_sees_the_new_version_beside_an_older_reader(place, change):
    fs, served = place
    (served / "f").write_bytes(b"0\n")
    with open(fs / "f", "rb", buffering=0) as older:
        assert older.read(100) == b"0\n"
        for turn in range(1, 5):
            text = b"%d\n" % turn * (turn + 1)
            if change == "append":
                text = (served / "f").read_bytes() + text
                with open(served / "f", "ab") as file:
                    file.write(b"%d\n" % turn * (turn + 1))
            elif change == "replace":
                (served / "new").write_bytes(text)
                os.rename(served / "new", served / "f")
            else:
                (served / "f").write_bytes(text)
            time.sleep(1.05)  # ttl
            assert (fs / "f").read_bytes() == text
            assert os.stat(fs / "f").st_size == len(text)


def test_a_reader_keeps_the_version_that_was_replaced(place):
    fs, served = place
    (served / "f").write_bytes(b"old")
    with open(fs / "f", "rb", buffering=0) as older:
        (served / "new").write_bytes(b"newer")
        os.rename(served / "new", served / "f")
        wait_for(lambda: (fs / "f").read_bytes() == b"newer", 5)
        assert older.read(100) == b"old"
