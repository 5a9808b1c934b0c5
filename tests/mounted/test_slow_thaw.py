"""A thaw that takes longer than a call may wait, or whose answer is lost: it is the only one."""

import errno
import os
import socket
import subprocess
import threading
import time

import pytest

from sbxtest import scale, wait_for
from sbxtest.calls import fails

LONG_AGO = 10**18


class Cutter:
    """Passes bytes between a client and a server; cut() resets all connections there are."""

    def __init__(self, port: int):
        self._target = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._pairs = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            with self._lock:
                self._pairs.append((client, server))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    @staticmethod
    def _pass_on(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for client, server in pairs:
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self._listener.close()
        self.cut()


@pytest.fixture
def cutter():
    cutters = []

    def start(port):
        cutters.append(Cutter(port))
        return cutters[-1]

    yield start
    for one in cutters:
        one.close()


class Session:
    """A session of a mount, with a file f of long ago; thaws(): requests to wake it."""

    def __init__(self, server, mount):
        self.server, self.mount = server, mount
        (mount / "dev1").mkdir()
        self.fs = mount / "dev1/fs"
        (self.fs / "f").write_text("x")
        os.utime(self.fs / "f", ns=(LONG_AGO,) * 2)
        self.id = mount.status("dev1")["id"]
        self.root = server.session_dir(self.id)

    def sleep(self):
        self.server.sleep(self.id)
        self.mark = len(self.server.log())

    def thaws(self):
        return [record for record in self.server.log(self.mark) if record.route == "reattach"]

    def is_mended(self):
        return os.stat(self.root / "f").st_mtime_ns == LONG_AGO


@pytest.fixture
def start_session(start_mount):
    def start(server, url=None, timeout=2):
        return Session(server, start_mount(url or server.url,
                                           ["keepawake=none", f"timeout={timeout}"]))

    return start


def test_longer_than_a_call_may_wait(start_sbxd, start_session):
    """Each caller waits for its time; there is one thaw, and when it has ended all is mended."""
    server = start_sbxd()
    session = start_session(server)
    server.set_faults("reattach:1:delay=7000")
    session.sleep()
    begin = time.monotonic()
    assert fails((session.fs / "a").write_text, "a") == errno.ETIMEDOUT
    assert time.monotonic() - begin < scale(4)
    wait_for(lambda: "still waking" in session.mount.read("dev1/errors"), 5)
    while time.monotonic() < begin + 5:
        assert fails(os.mkdir, session.fs / "early") == errno.ETIMEDOUT
    wait_for(lambda: fails((session.fs / "b").write_text, "b") == 0, 20, step=0.2)
    assert len(session.thaws()) == 1
    assert session.is_mended()
    assert (session.root / "b").read_text() == "b"
    wait_for(lambda: session.mount.status("dev1")["pending_writes"].startswith("0 "), 10)
    assert (session.root / "a").read_text() == "a"
    assert session.mount.status("dev1")["root"] == os.path.realpath(session.root)


def test_answer_is_lost(start_sbxd, start_session):
    """It was thawed and the answer did not come: the new root is learnt, nobody notices."""
    server = start_sbxd()
    session = start_session(server)
    server.set_faults("reattach:1:drop")
    session.sleep()
    (session.fs / "a").write_text("a")
    assert session.is_mended()
    assert session.mount.status("dev1")["root"] == os.path.realpath(session.root)


def test_connection_is_cut_while_it_goes_on(start_sbxd, start_session, cutter):
    """The server goes on with it: no second one is asked for until it has ended."""
    server = start_sbxd()
    relay = cutter(server.port)
    session = start_session(server, relay.url, timeout=20)
    server.set_faults("reattach:1:delay=4000")
    session.sleep()
    with subprocess.Popen(["sh", "-c", "echo a > a"], cwd=session.fs) as writer:
        time.sleep(1)
        relay.cut()
        assert writer.wait(scale(20)) == 0
    first, second = session.thaws()
    assert second.time >= first.time + 4000
    assert session.is_mended()
    assert (session.root / "a").read_text() == "a\n"


def test_no_answer_comes_and_it_is_awake(start_sbxd, start_session):
    """A connection that died without a word: found by those who waited in vain."""
    server = start_sbxd()
    session = start_session(server)
    server.set_faults("reattach:1:blackhole")
    session.sleep()
    assert fails((session.fs / "a").write_text, "a") == errno.ETIMEDOUT
    with server.client() as client:
        assert client.reattach(session.id)["alive"]
    wait_for(lambda: fails((session.fs / "b").write_text, "b") == 0, 20, step=0.2)
    assert session.is_mended()


def test_attach_again_waits_for_the_same(start_sbxd, start_session):
    server = start_sbxd()
    session = start_session(server, timeout=20)
    mount = session.mount
    (mount / "control").write_text("detach dev1\n")
    session.sleep()
    server.set_faults("reattach:1:delay=3000")
    words = ["dash", "-c", f"echo attach {session.id} dev2 > {mount / 'control'}"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as first:
        time.sleep(0.7)
        first.kill()
    begin = time.monotonic()
    other = f"attach {session.id} dev3\n"
    assert fails((mount / "control").write_text, other) == errno.EEXIST
    assert fails(os.mkdir, mount / "dev2") == errno.EEXIST
    subprocess.run(words, check=True, timeout=scale(20))
    assert time.monotonic() - begin > 1
    assert len(session.thaws()) == 1
    assert (mount / "dev2/fs/f").read_text() == "x"
    assert mount.status("dev2")["root"] == os.path.realpath(session.root)


def test_lookup_again_waits_for_the_same(start_sbxd, start_session):
    server = start_sbxd()
    session = start_session(server, timeout=20)
    mount = session.mount
    (mount / "control").write_text("detach dev1\n")
    session.sleep()
    server.set_faults("reattach:1:delay=3000")
    words = ["cat", mount / session.id / "fs/f"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as first:
        time.sleep(0.7)
        first.kill()
    assert subprocess.run(words, check=True, capture_output=True,
                          timeout=scale(20)).stdout == b"x"
    assert len(session.thaws()) == 1


def test_attach_outlasts_the_wait(start_sbxd, start_session):
    server = start_sbxd()
    session = start_session(server)
    mount = session.mount
    (mount / "control").write_text("detach dev1\n")
    session.sleep()
    server.set_faults("reattach:1:delay=4000")
    line = f"attach {session.id} dev2\n"
    assert fails((mount / "control").write_text, line) == errno.ETIMEDOUT
    wait_for((mount / "dev2").exists, 20)
    assert (mount / "dev2/fs/f").read_text() == "x"
    assert len(session.thaws()) == 1
