"""Sessions that the server archived or deleted, and sessions over a remount."""

import errno
import os
import subprocess
import time

import pytest

from sbxtest.timing import scale, wait_for


def describe(fs):
    """Names, modes and contents."""
    found = {}
    for top, dirs, names in os.walk(fs):
        for name in dirs + names:
            path = os.path.join(top, name)
            mode = oct(os.lstat(path).st_mode)
            content = None
            if name in names and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, fs)] = (mode, content)
    return found


@pytest.mark.core
def test_used_again_unnoticed(server, start_mount):
    """Names, contents and modes are as they were, whatever the first use is."""
    mount = start_mount(server.url, ["keepawake=none"])
    fs = mount / "dev1/fs"
    (mount / "dev1").mkdir()
    subprocess.run(["sh", "-ec", "mkdir -p a/b 'a/with space'; echo one >a/one; echo two >a/b/two; "
                    "chmod 600 a/one; chmod 755 a/b/two; ln -s b/two a/link; : >a/empty"],
                   cwd=fs, check=True)
    before = describe(fs)
    identity = mount.status("dev1")["id"]
    uses = [
        lambda: describe(fs) == before,
        lambda: (fs / "a/one").read_text() == "one\n",
        lambda: (fs / "new").write_text("new") == 3,
        lambda: os.listdir(fs / "a/with space") == [],
        lambda: subprocess.run(["sh", "-c", "echo more >>a/b/two"], cwd=fs).returncode == 0,
        lambda: (fs / "a/b/two").read_text() == "two\nmore\n" and os.unlink(fs / "new") is None,
    ]
    for use in uses:
        server.sleep(identity)
        assert use()
    (fs / "a/b/two").write_text("two\n")
    assert describe(fs) == before
    assert mount.status("dev1")["id"] == identity
    assert mount.read("dev1/errors") == ""


def test_looking_does_not_wake(server, start_mount):
    mount = start_mount(server.url, ["keepawake=none", "ttl=1"])
    (mount / "dev1").mkdir()
    fs = mount / "dev1/fs"
    for index in range(5):
        (fs / f"f{index}").write_text(f"{index}\n")
    assert len([path.read_text() for path in sorted(fs.iterdir())]) == 5
    fd = os.open(mount / "dev1/jobs/new", os.O_RDWR)
    os.write(fd, b"echo out")
    job = mount / "dev1/jobs" / os.read(fd, 100).decode().strip()
    os.close(fd)
    wait_for(lambda: (job / "exit").exists(), 10)
    assert (job / "output.log").read_text() == "out\n"
    assert os.listdir(mount / "dev1/jobs")
    identity = mount.status("dev1")["id"]
    server.sleep(identity)
    time.sleep(1.2)
    assert sorted(os.listdir(fs)) == [f"f{index}" for index in range(5)]
    assert os.stat(fs / "f1").st_size == 2
    assert [path.read_text() for path in sorted(fs.iterdir())] == [f"{i}\n" for i in range(5)]
    subprocess.run(["ls", "-lR", mount.mnt], check=True, capture_output=True)
    assert (job / "output.log").read_text() == "out\n"
    assert (job / "exit").read_text() == "0\n"
    assert not server.session_dir(identity).exists()
    assert mount.status("dev1")["state"] == "asleep"
    (fs / "new").write_text("wakes")
    assert (server.session_dir(identity) / "new").read_text() == "wakes"
    assert mount.status("dev1")["state"] == "live"


@pytest.mark.core
def test_deleted_by_another_client(start_sbxd, start_mount):
    """ESTALE, `gone`, and what to do; other sessions don't care."""
    server = start_sbxd()
    mount = start_mount(server.url)
    for name in ("dev1", "dev2"):
        (mount / name).mkdir()
        (mount / name / "fs/f").write_text(name)
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    time.sleep(1.1)
    for act in (lambda: (mount / "dev1/fs/new").write_text("x"),
                lambda: os.listdir(mount / "dev1/fs/none"),
                lambda: (mount / "dev1/fs/d").mkdir()):
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.ESTALE
    status = mount.status("dev1")
    assert status["state"] == "gone"
    assert "resume" in status["note"]
    assert "ESTALE" in mount.read("dev1/errors")
    assert (mount / "dev2/fs/f").read_text() == "dev2"
    (mount / "control").write_text("delete dev1\n")
    assert not (mount / "dev1").exists()


@pytest.mark.core
def test_a_remount_shows_the_same_without_a_request_each(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url)
    names = [f"session-{index}" for index in range(12)]
    for name in names:
        (mount / name).mkdir()
    ids = {name: mount.status(name)["id"] for name in names}
    (mount / "session-3/fs/f").write_text("x")
    os.rename(mount / "session-5", mount / "renamed")
    (mount / "session-7").rmdir()
    mount.unmount()
    before = len(server.log())
    mount.start()
    shown = [name for name in os.listdir(mount.mnt)
             if name.startswith("session-") or name == "renamed"]
    assert sorted(shown) == sorted({*names, "renamed"} - {"session-5", "session-7"})
    for name in shown:
        status = mount.status(name)
        assert status["id"] == ids["session-5" if name == "renamed" else name]
        assert status["state"] == "unknown"
        assert "fs" in os.listdir(mount / name)
    time.sleep(0.2)
    # The one that looked whether the server is there.
    assert len(server.log()) - before <= 1
    assert (mount / "session-3/fs/f").read_text() == "x"
    assert mount.status("session-3")["state"] == "live"


def test_killed_and_remounted(start_sbxd, start_mount):
    """What was known of sessions was on disk when it was answered."""
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    identity = mount.status("dev1")["id"]
    mount.kill()
    mount.start()
    assert mount.status("dev1")["id"] == identity
    os.rename(mount / "dev1", mount / "dev2")
    mount.kill()
    mount.start()
    assert mount.status("dev2")["id"] == identity
    assert not (mount / "dev1").exists()
    (mount / "dev2").rmdir()
    mount.kill()
    mount.start()
    assert not (mount / "dev2").exists()


def test_many_programs_wake_one_session_once(server, start_mount):
    """One reattach at a time, whoever else waits (parallel ones would lose writes)."""
    mount = start_mount(server.url, ["keepawake=none"])
    (mount / "dev1").mkdir()
    fs = mount / "dev1/fs"
    (fs / "f").write_text("x")
    identity = mount.status("dev1")["id"]
    server.sleep(identity)
    server.set_faults("reattach:*:delay=400")
    before = len(server.log())
    writers = [subprocess.Popen(["sh", "-c", f"echo {index} > w{index}"], cwd=fs)
               for index in range(20)]
    assert all(writer.wait(scale(20)) == 0 for writer in writers)
    reattached = sum(record.route == "reattach" for record in server.log(before))
    assert reattached == 1
    server.set_faults()
    assert sorted(os.listdir(server.session_dir(identity))) == sorted(
        [".sbxfs", "f", *(f"w{index}" for index in range(20))])
