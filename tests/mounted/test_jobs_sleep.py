"""Starting a job in a session that the server has put to sleep."""

import errno
import time

import pytest

from jobtools import BACKENDS, ended, ids, start
from sbxtest.timing import scale


@pytest.fixture(params=BACKENDS)
def place(request, start_sbxd, start_mount):
    profile, more = BACKENDS[request.param]
    server = start_sbxd(profile, args=more)
    mount = start_mount(server.url, ["keepawake=none"])
    (mount / "dev1").mkdir()
    return server, mount, mount / "dev1"


def test_a_start_wakes_its_session(place):
    """Nothing is asked before the leader is sent: it is the first to find the session asleep."""
    server, mount, session = place
    identity = mount.status("dev1")["id"]
    first = start(session, "echo one >> runs")
    ended(session / "jobs" / first)
    server.sleep(identity)
    begun = time.monotonic()
    second = start(session, "echo two >> runs; echo out")
    assert time.monotonic() - begun < scale(2)
    job = session / "jobs" / second
    assert ended(job)["exit"] == "0"
    assert (job / "output.log").read_text() == "out\n"
    assert (session / "fs/runs").read_text() == "one\ntwo\n"
    assert ids(session) == sorted([first, second])
    assert mount.read("dev1/errors") == ""


def test_a_start_in_a_session_that_is_gone(place):
    server, mount, session = place
    ended(session / "jobs" / start(session, "true"))
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    with pytest.raises(OSError) as caught:
        start(session, "true")
    assert caught.value.errno == errno.ESTALE
