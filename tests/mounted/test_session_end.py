"""How a session goes with rmdir: never with what is in it, and never slowly."""

import errno
import os
import threading
import time

import pytest

from sbxtest.calls import fails
from sbxtest.timing import scale, wait_for


@pytest.fixture
def mount(server, start_mount):
    mount = start_mount(server.url, ["ttl=60"])
    (mount / "dev1").mkdir()
    return mount


def test_what_another_client_wrote_is_not_deleted(server, mount):
    """However lately the directory was seen empty."""
    assert os.listdir(mount / "dev1/fs") == []
    identity = mount.status("dev1")["id"]
    with server.client() as client:
        client.put(identity, "result", b"theirs")
    assert fails(os.rmdir, mount / "dev1") == errno.ENOTEMPTY
    assert (mount / "dev1/fs/result").read_bytes() == b"theirs"
    os.unlink(mount / "dev1/fs/result")
    os.rmdir(mount / "dev1")
    assert not os.path.exists(mount / "dev1")


def test_a_job_that_another_mount_started_is_not_ended(server, mount, start_mount):
    assert os.listdir(mount / "dev1/fs") == []
    assert sorted(os.listdir(mount / "dev1/jobs")) == ["new"]
    other = start_mount(server.url, [f"attach={mount.status('dev1')['id']}:dev1"])
    (other / "dev1/jobs/new").write_text("sleep 60\n")
    (job,) = (name for name in os.listdir(other / "dev1/jobs") if name not in ("new", "latest"))
    assert fails(os.rmdir, mount / "dev1") == errno.EBUSY
    (other / f"dev1/jobs/{job}/control").write_text("cancel\n")
    (other / f"dev1/jobs/{job}/wait.20").read_text()
    os.rmdir(mount / "dev1")


@pytest.mark.parametrize("what", ["rmdir", "rename", "link"])
def test_a_directory_is_locked_for_10_seconds_at_most(server, mount, what):
    """While a change hangs nobody else can use its directory: it ends before other calls do."""
    identity = mount.status("dev1")["id"]
    fs = mount / "dev1/fs"
    if what == "rmdir":
        assert os.listdir(fs) == []
        server.set_faults(f"delete@{identity[:13]}:*:blackhole")
        calls = [lambda: os.rmdir(mount / "dev1")]
    else:
        # Unsent bytes are on their way, and the change waits for them first.
        (fs / "old").write_text("x")
        file = os.open(fs / "old", os.O_WRONLY | os.O_TRUNC)
        os.write(file, os.urandom(4 << 20))
        server.set_faults(f"*@{identity[:13]}:*:blackhole")
        calls = [lambda: os.close(file), lambda: os.rename(fs / "old", fs / "new")
                 if what == "rename" else os.link(fs / "old", fs / "new")]
    took = []

    def run(call):
        begin = time.monotonic()
        try:
            call()
        except OSError:
            pass
        took.append(time.monotonic() - begin)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    threads[-1].join(scale(15))
    ended = not threads[-1].is_alive()
    server.set_faults()
    for thread in threads:
        thread.join(scale(60))
    assert ended, took
    wait_for(lambda: mount.status("dev1")["state"] == "live" if what != "rmdir" else True, 40)
