"""The recipes of README.md, run as they stand there."""

import os
import re
import subprocess

import pytest

from sbxtest import tree_dir
from sbxtest.timing import scale


def recipe(name: str) -> str:
    text = (tree_dir() / "README.md").read_text()
    found = re.search(rf"<!-- run by tests/mounted: {name} -->\n```sh\n(.*?)```\n", text, re.DOTALL)
    assert found, f"README.md has no recipe {name}"
    return found[1]


@pytest.fixture
def mount(server, start_mount, tmp_path):
    """A mount on ~/sbx, where the recipes expect it."""
    (tmp_path / "sbx").mkdir()
    return start_mount(server.url, mnt=tmp_path / "sbx")


def run(mount, text: str, **env):
    return subprocess.run(["bash", "-ec", text], check=True, timeout=scale(60), text=True,
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env={**os.environ, "HOME": str(mount.mnt.parent), **env}).stdout


def test_jobs(mount):
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/Makefile").write_text("all:\n\techo made; sleep 1; touch built\n")
    output = run(mount, recipe("jobs"))
    assert "state: exited" in output
    assert re.search(r"^made$", output, re.MULTILINE)
    assert (mount / "dev1/fs/built").exists()
    assert set(os.listdir(mount / "dev1/jobs")) - {"latest"} == {"new"}


def test_conversation(server, mount):
    def use():
        run(mount, recipe("conversation"), ID="c1")

    use()  # makes it
    (mount / "c1/fs/notes").write_text("kept")
    use()  # finds it
    assert (mount / "c1/fs/notes").read_text() == "kept"
    session = mount.status("c1")["id"]
    (mount / "c1/control").write_text("persist\n")
    with server.client() as client:
        client.delete(session)
    use()  # restores it
    assert mount.status("c1")["id"] != session
    assert (mount / "c1/fs/notes").read_text() == "kept"
