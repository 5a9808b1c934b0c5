"""HTTP clients: a raw one that shows every byte of a reply, and one for ordinary calls."""

import http.client
import json
import socket
import urllib.parse
from dataclasses import dataclass

from .timing import scale

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def quote(path) -> str:
    """Percent-encodes a path (str or bytes): every byte but A-Za-z0-9-._~/ (wire.md A1)."""
    data = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else bytes(path)
    return "".join(chr(b) if b in _SAFE else f"%{b:02X}" for b in data)


def _split_endpoint(endpoint: str):
    url = urllib.parse.urlsplit(endpoint)
    return url.hostname, url.port or 80, url.path.rstrip("/")


@dataclass
class RawResponse:
    """One reply as it was on the connection."""

    status: int
    version: str
    reason: str
    headers: list  # of (name, value), as sent
    body: bytes
    chunked: bool = False
    to_eof: bool = False  # the body had neither length nor chunks

    def header(self, name: str):
        for key, value in self.headers:
            if key.lower() == name.lower():
                return value
        return None

    @property
    def json(self):
        return json.loads(self.body)


class RawConnection:
    """A TCP connection on which exactly the given bytes are sent."""

    def __init__(self, endpoint: str, timeout: float = 30):
        host, port, _ = _split_endpoint(endpoint)
        self.sock = socket.create_connection((host, port), timeout=scale(timeout))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data: bytes):
        self.sock.sendall(data)

    def _fill(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self._buffer += data
        return bool(data)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._fill():
                raise ConnectionError(f"closed after {self._buffer[:200]!r}")
        head, _, self._buffer = self._buffer.partition(mark)
        return head

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._fill():
                raise ConnectionError(f"closed {count - len(self._buffer)} bytes early")
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def response(self, method: str = "GET") -> RawResponse:
        """Reads one reply; an interim 100 counts as one, without a body."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, *reason = lines[0].split(" ", 2)
        headers = []
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        reply = RawResponse(int(status), version, reason[0] if reason else "", headers, b"")
        if method == "HEAD" or reply.status < 200 or reply.status in (204, 304):
            return reply
        if (reply.header("transfer-encoding") or "").lower() == "chunked":
            reply.chunked = True
            while size := int(self._until(b"\r\n").split(b";")[0], 16):
                reply.body += self._exactly(size)
                self._until(b"\r\n")
            self._until(b"\r\n")
        elif reply.header("content-length") is not None:
            reply.body = self._exactly(int(reply.header("content-length")))
        else:
            reply.to_eof = True
            while self._fill():
                pass
            reply.body, self._buffer = self._buffer, b""
        return reply

    def at_eof(self, seconds: float) -> bool:
        """Whether the server closes within that time without sending another byte."""
        self.sock.settimeout(seconds)
        try:
            return not self._buffer and not self._fill()
        except TimeoutError:
            return False


@dataclass
class Reply:
    """A whole reply."""

    status: int
    headers: dict  # names in lower case
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """One keep-alive connection to a server; for one thread. A stale one is opened again."""

    def __init__(self, endpoint: str, token: str = None, timeout: float = 60):
        self.endpoint = endpoint
        self.token = token
        host, port, self._prefix = _split_endpoint(endpoint)
        self._conn = http.client.HTTPConnection(host, port, timeout=scale(timeout))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._conn.close()

    def set_timeout(self, seconds: float):
        """For each wait of the calls that follow."""
        self._conn.timeout = scale(seconds)
        if self._conn.sock is not None:
            self._conn.sock.settimeout(self._conn.timeout)

    def call(self, method: str, target: str, body=None, headers=()) -> Reply:
        """Sends one request; target is sent as it is, after the endpoint's own path."""
        fields = list(headers)
        if self.token is not None and not any(k.lower() == "authorization" for k, _ in fields):
            fields.append(("Authorization", f"Bearer {self.token}"))
        fresh = self._conn.sock is None
        try:
            return self._once(method, target, body, fields)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._conn.close()
            if fresh:
                raise
            return self._once(method, target, body, fields)
        except BaseException:
            self._conn.close()
            raise

    def _once(self, method, target, body, fields) -> Reply:
        conn = self._conn
        conn.putrequest(method, self._prefix + target, skip_accept_encoding=True)
        for name, value in fields:
            conn.putheader(name, value)
        if body is not None or method in ("POST", "PUT", "PATCH"):
            conn.putheader("Content-Length", str(len(body or b"")))
        conn.endheaders(body)
        reply = conn.getresponse()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())

    # The nine routes, for tests that need a server's side of things and not its corners.

    def _ok(self, method, target, body=None) -> Reply:
        reply = self.call(method, target, body)
        if reply.status != 200:
            raise AssertionError(f"{method} {target}: {reply.status} {reply.body[:500]!r}")
        return reply

    def create(self, body: dict = None) -> dict:
        return self._ok("POST", "/sessions", json.dumps(body).encode() if body else None).json

    def delete(self, session: str):
        self._ok("DELETE", f"/sessions/{session}")

    def reattach(self, session: str) -> dict:
        return self._ok("POST", f"/sessions/{session}/reattach").json

    def get(self, session: str, path) -> bytes:
        return self._ok("GET", f"/sessions/{session}/fs?path={quote(path)}").body

    def put(self, session: str, path, data: bytes):
        self._ok("PUT", f"/sessions/{session}/fs?path={quote(path)}", data)

    def stat(self, session: str, path) -> dict:
        return self._ok("GET", f"/sessions/{session}/stat?path={quote(path)}").json

    def readdir(self, session: str, path=".") -> list:
        return self._ok("GET", f"/sessions/{session}/readdir?path={quote(path)}").json

    def exec(self, session: str, argv: list, **fields) -> dict:
        body = json.dumps({"argv": argv, **fields}).encode()
        return self._ok("POST", f"/sessions/{session}/exec", body).json

    def persist(self, session: str) -> bytes:
        return self._ok("POST", f"/sessions/{session}/persist").body

    def hydrate(self, session: str, tar: bytes):
        self._ok("POST", f"/sessions/{session}/hydrate", tar)
