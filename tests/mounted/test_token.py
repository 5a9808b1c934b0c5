"""The token is nowhere but in the file, or the variable, that it came from."""

import os
import re
import resource
import secrets
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sbxtest import sbxfs_path
from sbxtest.mount import is_mounted
from sbxtest.process import find_by_argument, is_running
from sbxtest.timing import scale, wait_for

SHOWN = ["README.md", "control", "status", "errors", "stats", "dev1/control", "dev1/status",
         "dev1/errors", "dev1/state.json"]


def holding(top: Path, token: str) -> list:
    """Files below that hold the token."""
    return [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()
            and token.encode() in path.read_bytes()]


def use(mnt: Path, server):
    """A bit of everything, with answers that hold what the request's Authorization said."""
    (mnt / "dev1").mkdir()
    fs = mnt / "dev1/fs"
    (fs / "f").write_text("content\n")
    assert (fs / "f").read_text() == "content\n"
    (fs / "big").write_bytes(os.urandom(2 << 20))
    (fs / "d").mkdir()
    (mnt / "dev1/control").write_text("persist\n")
    fd = os.open(mnt / "dev1/jobs/new", os.O_RDWR)
    os.write(fd, b"env; cat /proc/self/cmdline; echo done")
    job = mnt / "dev1/jobs" / os.read(fd, 100).decode().strip()
    os.close(fd)
    wait_for(lambda: (job / "exit").exists(), 20)
    log = (job / "output.log").read_text()
    assert "done" in log
    server.set_faults("*:*:echo-auth")
    for act in (lambda: (fs / "g").write_text("kept"), lambda: os.listdir(fs / "d"),
                lambda: (fs / "e").mkdir(), lambda: (mnt / "dev2").mkdir(),
                lambda: (mnt / "dev1/control").write_text("reattach\n"),
                lambda: (mnt / "dev1/control").write_text("persist again\n"),
                lambda: os.stat(mnt / "00000000-0000-4000-8000-000000000000")):
        time.sleep(0.2)
        with pytest.raises(OSError):
            act()
    server.set_faults()
    return log


@pytest.mark.parametrize("source", ["file", "environment"])
def test_it_is_nowhere(start_sbxd, tmp_path, source):
    token = "sbx." + secrets.token_hex(20)
    server = start_sbxd(token=token)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    state, cache = tmp_path / "state", tmp_path / "cache"
    options = f"state_dir={state},cache_dir={cache},log_level=debug,timeout=4"
    env = {name: value for name, value in os.environ.items() if not name.startswith("SBX_")}
    if source == "file":
        (tmp_path / "token").touch(mode=0o600)
        (tmp_path / "token").write_text(token + "\n")
        options += f",token_file={tmp_path}/token"
    else:
        env["SBX_TOKEN"] = token
    with open(tmp_path / "output", "wb") as output:
        # In the foreground with libfuse's debugging, which is as loud as it gets.
        process = subprocess.Popen([str(word) for word in (
            sbxfs_path(), "-d", "-o", options, server.url, mnt)], stdout=output, stderr=output,
            env=env)
    try:
        wait_for(lambda: is_mounted(mnt), 10)
        log = use(mnt, server)
        assert token not in log
        texts = {name: (mnt / name).read_text() for name in SHOWN}
        assert not [name for name, text in texts.items() if token in text]
        assert "[token]" in texts["errors"] + texts["dev1/errors"]
        for name in ("cmdline", "environ", "limits", "status"):
            assert token.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes(), name
        assert re.search(r"Max core file size +0 ", Path(f"/proc/{process.pid}/limits").read_text())
        subprocess.run(["fusermount3", "-u", mnt], check=True)
        process.wait(scale(15))
    finally:
        process.kill()
        process.wait()
        if is_mounted(mnt):
            subprocess.run(["fusermount3", "-uz", mnt], check=False)
    assert holding(state, token) == [] and holding(cache, token) == []
    assert len((tmp_path / "output").read_bytes()) > 1000
    assert holding(tmp_path, token) == ([tmp_path / "token"] if source == "file" else [])
    # Nor in what it left in the sandbox.
    assert holding(server.root, token) == []


def test_in_the_background(start_sbxd, tmp_path):
    """The process that stays has nothing of the environment's token."""
    token = "sbx." + secrets.token_hex(20)
    server = start_sbxd(token=token)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    words = [str(word) for word in (sbxfs_path(), "-o", f"state_dir={tmp_path}/state,cache_dir="
                                    f"{tmp_path}/cache", server.url, mnt)]
    subprocess.run(words, check=True, env={**os.environ, "SBX_TOKEN": token}, timeout=scale(15))
    try:
        (pid,) = find_by_argument(sbxfs_path(), str(mnt))
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert (mnt / "status").read_text().splitlines()[1] == "token: environment"
        (mnt / "dev1").mkdir()
    finally:
        subprocess.run(["fusermount3", "-u", mnt], check=True)
    wait_for(lambda: not is_running(pid), 15)


def test_no_core_is_dumped(start_sbxd, start_mount, tmp_path):
    """Also where the shell allows cores."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    hard = before[1]
    mount = start_mount(start_sbxd(token="t1").url, token="t1",
                        wrapper=["sh", "-c", f"ulimit -c {'unlimited' if hard < 0 else hard}; "
                                 "exec \"$@\"", "sh"])
    limits = Path(f"/proc/{mount.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 +0 ", limits)
    os.kill(mount.pid, signal.SIGSEGV)
    mount.wait_gone()
    subprocess.run(["fusermount3", "-uz", mount.mnt], check=False)
    assert not list(Path("/").glob("core*"))


def test_two_tokens_of_one_file(start_sbxd, start_mount):
    """The one before the change is told to nobody either."""
    old, new = "sbx." + secrets.token_hex(20), "sbx." + secrets.token_hex(20)
    server = start_sbxd("overlay", token=old)
    mount = start_mount(server.url, ["timeout=3"], token=old)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    server.stop()
    server.set_token(new)
    server.start()
    mount.token_file.write_text(new + "\n")
    (mount / "dev1/fs/f").write_text("y")
    server.set_faults(f"*:*:reply={old}")
    with pytest.raises(OSError):
        (mount / "dev1/fs/g").write_text("z")
    server.set_faults()
    for name in SHOWN:
        text = mount.read(name)
        assert old not in text and new not in text, name
    mount.unmount()
    assert holding(mount.state_dir, old) == [] and holding(mount.state_dir, new) == []


def test_wrong_at_run_time(start_sbxd, start_mount):
    """Refused while mounted: EACCES at once, asked again only when the file has another token."""
    server = start_sbxd("overlay", token="first")
    mount = start_mount(server.url, ["timeout=8"], token="first")
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    server.stop()
    server.set_token("second")
    server.start()
    time.sleep(1.1)
    for _ in range(5):
        begin = time.monotonic()
        with pytest.raises(PermissionError):
            os.listdir(mount / "dev1/fs/nowhere")
        assert time.monotonic() - begin < scale(3)
    assert mount.status("dev1")["state"] == "denied"
    assert mount.status()["denied"].strip() == "1"
    assert "EACCES" in mount.read("dev1/errors")
    with pytest.raises(OSError):
        (mount / "dev2").mkdir()
    mount.token_file.write_text("second\n")
    (mount / "dev1/fs/g").write_text("y")
    assert sorted(os.listdir(mount / "dev1/fs")) == ["f", "g"]
    assert (mount / "dev1/fs/f").read_text() == "x"
    assert mount.status("dev1")["state"] == "live"
