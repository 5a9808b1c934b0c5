"""Carries out a row: its steps in their order, each reply compared with what the row wants."""

import os
import threading
import time
from pathlib import Path

from . import model
from .match import fail, match, reply_fits
from .model import Stored, Zeros, encode, resolve
from sbxtest import Client, RawConnection, Reply, scale, wait_for

PIECE = 1 << 20


class Target:
    """A server that rows are run against."""

    def __init__(self, endpoint: str, profile: str, token: str = None, root: Path = None,
                 server=None):
        self.endpoint = endpoint
        self.profile = profile
        self.token = token
        self.root = root
        self.server = server  # the Sbxd, when it is ours

    def directory(self, session: str, told_root: str):
        """The workspace on this machine, or None."""
        places = [Path(told_root)] if self.profile == "host" and self.root else []
        if self.root:
            places = [self.root / "by-id" / session, self.root / session / "workspace", *places]
        return next((place for place in places if place.is_dir()), None)


class _Thread(threading.Thread):
    """A thread whose error is raised where it is waited for."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self._work = work
        self._error = None
        self.result = None

    def run(self):
        try:
            self.result = self._work()
        except BaseException as error:  # raised again by outcome()
            self._error = error

    def outcome(self, seconds: float):
        self.join(seconds)
        if self.is_alive():
            raise AssertionError(f"no reply within {seconds:.1f} s")
        if self._error:
            raise self._error
        return self.result


def run_row(row, target: Target):
    runner = Runner(target)
    try:
        if row.session:
            runner.step(model.create())
        for number, step in enumerate(row.steps):
            try:
                runner.step(step)
            except (AssertionError, OSError, ValueError) as error:
                raise AssertionError(f"step {number + 1} of {row.id}: {error}") from error
    finally:
        runner.finish(row.after)


class Runner:
    def __init__(self, target: Target):
        self.target = target
        token = target.token
        self.variables = {
            "host": target.endpoint.partition("//")[2],
            "auth": f"Authorization: Bearer {token}\r\n" if token else ""}
        if target.server:
            self.variables |= {"allowed": str(target.server.work / "allowed"),
                               "outside": str(target.server.work)}
        if token:
            self.variables |= {"secret": token, "short": token[:-1]}
        self._created = []
        self._connections = {}
        self._threads = {}
        self._bodies = {}
        self._client = self._new_client()

    def _new_client(self, timeout: float = 60) -> Client:
        return Client(self.target.endpoint, timeout=timeout)

    def _resolve(self, value):
        return resolve(value, self.target.profile, self.variables)

    def step(self, step):
        getattr(self, "_" + type(step).__name__.lower())(step)

    def finish(self, after):
        for step in after:
            self.step(step)
        for connection in self._connections.values():
            connection.close()
        self._client.close()
        if self.target.server is None or self.target.server.pid:
            with self._new_client() as client:
                for session in self._created:
                    client.call("DELETE", f"/sessions/{session}", headers=self._authorization(True))
        for thread in self._threads.values():
            thread.join(scale(10))

    # Requests.

    def _authorization(self, token) -> list:
        if token is True:
            return [("Authorization", f"Bearer {self.target.token}")] if self.target.token else []
        return [("Authorization", self._resolve(token))] if token is not None else []

    def _send(self, call, client=None) -> tuple[Reply, float]:
        target = self._resolve(call.target)
        headers = [*self._authorization(call.token), *self._resolve(call.headers)]
        body = encode(self._resolve(call.body))
        if isinstance(body, Stored):
            body = self._bodies[body.name]
        elif isinstance(body, Zeros):
            body = Pieces(body.count)
        start = time.monotonic()
        if client is None:
            client = self._client
        client.set_timeout(call.timeout)
        reply = client.call(call.method, target, body, headers)
        took = time.monotonic() - start
        if call.target == "/sessions" and call.method == "POST" and reply.status == 200:
            self._created.append(reply.json.get("sessionId"))
        return reply, took

    def _check(self, call, reply, took):
        try:
            reply_fits(reply, self._resolve(call.want), took)
        except AssertionError as error:
            raise AssertionError(
                f"{call.method} {_short(self._resolve(call.target))}: {error}") from None
        for variable, key in call.keep:
            if reply.status == 200:
                self.variables[variable] = reply.json[key]
        if call.store:
            self._bodies[call.store] = reply.body
        if "id" in self.variables:
            session = self.variables["id"]
            self.variables["encoded_id"] = f"%{ord(session[0]):02X}{session[1:]}"
            if self.target.server:
                place = self.target.server.session_dir(session)
                self.variables["backing"] = os.path.realpath(place)

    def _call(self, call):
        self._check(call, *self._send(call))

    def _alone(self, call) -> tuple[Reply, float]:
        with self._new_client() as client:
            return self._send(call, client)

    def _at_once(self, calls) -> list:
        barrier = threading.Barrier(len(calls))

        def one(call):
            with self._new_client() as client:
                barrier.wait()
                return self._send(call, client)

        threads = [_Thread(lambda call=call: one(call)) for call in calls]
        for thread in threads:
            thread.start()
        return [thread.outcome(scale(60)) for thread in threads]

    def _together(self, step):
        for call, outcome in zip(step.calls, self._at_once(step.calls)):
            self._check(call, *outcome)

    def _race(self, step):
        seen = set()
        for _ in range(step.rounds):
            for reply, took in self._at_once(step.calls):
                seen.add(self._kind_of(reply, took, step.kinds))
        self._all_seen(seen, step.kinds)

    def _all_seen(self, seen, kinds):
        if len(seen) != len(kinds):
            fail("the kinds of replies seen", seen, f"all of {len(kinds)}")

    def _kind_of(self, reply, took, kinds) -> int:
        for index, kind in enumerate(kinds):
            try:
                reply_fits(reply, self._resolve(kind), took)
                return index
            except AssertionError:
                continue
        fail("a reply", (reply.status, reply.body[:300]), kinds)

    def _during(self, step):
        worker = _Thread(lambda: [self._alone(call) for call in step.calls])
        seen = set()
        worker.start()
        with self._new_client() as client:
            while worker.is_alive():
                seen.add(self._kind_of(*self._send(step.watch, client), step.kinds))
        for call, outcome in zip(step.calls, worker.outcome(scale(60))):
            self._check(call, *outcome)
        self._all_seen(seen, step.kinds)

    def _begin(self, step):
        thread = _Thread(lambda: self._alone(step.call))
        thread.call = step.call
        self._threads[step.name] = thread
        thread.start()

    def _end(self, step):
        thread = self._threads.pop(step.name)
        self._check(thread.call, *thread.outcome(scale(60)))

    def _until(self, step):
        limit = time.monotonic() + scale(step.seconds)
        while True:
            reply, took = self._send(step.call)
            try:
                self._check(step.call, reply, took)
                return
            except AssertionError:
                if time.monotonic() > limit:
                    raise
            time.sleep(0.1)

    # Raw connections.

    def _connection(self, name: str) -> RawConnection:
        if name not in self._connections:
            self._connections[name] = RawConnection(self.target.endpoint, timeout=400)
        return self._connections[name]

    def _head(self, call, *more) -> bytes:
        headers = [("Host", self.variables["host"]), *self._authorization(call.token),
                   *self._resolve(call.headers), *more]
        lines = [f"{call.method} {self._resolve(call.target)} HTTP/1.1",
                 *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def _raw(self, step):
        connection = self._connection(step.conn)
        start = time.monotonic()
        connection.send(encode(self._resolve(step.send)))
        raw = connection.response(step.method)
        took = time.monotonic() - start
        for name, value in (("chunked", step.chunked), ("to_eof", step.to_eof),
                            ("version", step.version)):
            if getattr(raw, name) != value:
                fail(name, getattr(raw, name), value)
        want = self._resolve(step.want)
        if want.only is not None and sorted(n for n, _ in raw.headers) != sorted(want.only):
            fail("the headers", raw.headers, want.only)
        reply_fits(Reply(raw.status, {n.lower(): v for n, v in raw.headers}, raw.body), want, took)
        if (step.closes or step.to_eof) and not connection.at_eof(scale(2)):
            raise AssertionError("the server keeps the connection open")

    def _fin(self, step):
        connection = self._connection(step.conn)
        start = time.monotonic()
        if not connection.at_eof(scale(step.at_most)):
            raise AssertionError(f"open after {scale(step.at_most):.1f} s, or more bytes came")
        took = time.monotonic() - start
        if took < step.at_least:
            fail("the time of the end", took, f"at least {step.at_least}")

    def _noanswer(self, step):
        with RawConnection(self.target.endpoint) as connection:
            connection.send(self._whole(step.call))
            connection.sock.settimeout(step.seconds)
            try:
                data = connection.sock.recv(200)
            except TimeoutError:
                return
        fail("the answer", data, "none")

    def _abandon(self, step):
        with RawConnection(self.target.endpoint) as connection:
            connection.send(self._whole(step.call))
            time.sleep(step.seconds)

    def _whole(self, call) -> bytes:
        body = encode(self._resolve(call.body)) or b""
        return self._head(call, ("Content-Length", len(body))) + body

    def _halfupload(self, step):
        body = encode(self._resolve(step.call.body))
        half = body[:len(body) // 2]
        with RawConnection(self.target.endpoint) as connection:
            if step.chunked:
                connection.send(self._head(step.call, ("Transfer-Encoding", "chunked")))
                connection.send(b"%x\r\n" % len(half) + half + b"\r\n")
            else:
                connection.send(self._head(step.call, ("Content-Length", len(body))) + half)
            time.sleep(0.2)

    # Time and the server.

    def _pause(self, step):
        time.sleep(self._resolve(step.seconds))

    def _idle(self, step):
        server, session = self.target.server, self.variables["id"]
        if step.by_itself:
            wait_for(lambda: not os.path.lexists(server.session_dir(session)), 20, "put away")
        else:
            server.sleep(session)
        reply, _ = self._send(model.stat("."))
        if reply.status != 404:
            fail("the status after it was put away", reply.status, 404)

    def _sweep(self, _):
        # More than once: a request that was answered just now may still hold the session.
        for _ in range(3):
            self.target.server.sweep()
            time.sleep(0.05)

    def _forget(self, step):
        server = self.target.server
        if step.kill:
            server.kill()
        else:
            status = server.stop()
            if status:
                fail("the server's exit status", status, 0)
        self._client.close()
        server.start()

    def _dies(self, step):
        try:
            reply, _ = self._alone(step.call)
        except OSError:
            pass
        else:
            fail("the reply", (reply.status, reply.body[:200]), "none")
        self.target.server.wait_end(10)

    def _disk(self, step):
        session, told_root = self.variables["id"], self.variables["root"]
        top = self.target.directory(session, told_root)
        if top is None:
            if self.target.root:
                raise AssertionError(f"no directory of {session} under {self.target.root}")
            return
        path = os.path.join(os.fsencode(top), _bytes(self._resolve(step.path)))
        if step.absent:
            if os.path.lexists(path):
                raise AssertionError(f"{path!r} is there")
            return
        if step.content is not None:
            with open(path, "rb") as stream:
                data = stream.read()
            if data != step.content:
                fail(f"{path!r}", data, step.content)
        if step.mode is not None:
            match("the mode", oct(os.lstat(path).st_mode & 0o7777), oct(step.mode))
        if step.names is not None:
            match("the names", sorted(os.listdir(path)), sorted(map(_bytes, step.names)))


def _short(text, limit=200) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _bytes(text) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


class Pieces:
    """A body that is made while it is sent."""

    def __init__(self, count: int):
        self._count = count

    def __len__(self):
        return self._count

    def __iter__(self):
        left = self._count
        while left:
            size = min(left, PIECE)
            yield bytes(size)
            left -= size
