"""The words of the table: rows, the requests that they make, and what each must bring.

A row is data. Values that differ between the two kinds of server are `Per(host=…, overlay=…)`;
`{id}` and `{root}` (and what a request keeps under another name) stand for the session's id and
the root that the server told.
"""

import json
import re
from dataclasses import dataclass, field, replace

from sbxtest import quote

BOTH = ("host", "overlay")
HOST = ("host",)
OVERLAY = ("overlay",)


@dataclass(frozen=True)
class Per:
    """A value by profile."""

    host: object
    overlay: object


@dataclass(frozen=True)
class Re:
    """Matches a text that the expression is found in; variables are inserted literally."""

    pattern: str


@dataclass(frozen=True)
class Has:
    """Matches a list that has these among its elements and none of those."""

    items: tuple = ()
    without: tuple = ()


@dataclass(frozen=True)
class NowMs:
    """Matches a number of milliseconds within some seconds before now."""

    seconds: float = 60


@dataclass(frozen=True)
class Damaged:
    """Matches a text with at least that many U+FFFD."""

    least: int = 1


ANY = Re("")


@dataclass(frozen=True)
class Want:
    """What a reply must be. None says nothing, but for status."""

    status: int = 200
    json: object = None
    body: object = None  # bytes, or Re over the body as Latin-1
    code: str = None
    message: object = None  # Re, or the whole text
    headers: dict = None  # by name in lower case; None: absent
    only: tuple = None  # all header names, as sent
    seconds: tuple = None  # at least, at most
    tar: tuple = None  # Entry patterns (member), in order; checks the rules of all headers too
    also: "Want" = None  # or this instead


def no(status: int, code: str, message, **fields) -> Want:
    """An error envelope."""
    return Want(status, code=code, message=Re(message) if isinstance(message, str) else message,
                **fields)


def errno(message: str, **fields) -> Want:
    """A 500 whose message begins so."""
    return no(500, "internal_error", "^" + message, **fields)


OK = Want(json={"ok": True})
GONE = no(404, "session_not_found", ANY)
DENIED = no(403, "path_denied", ANY)
NO_PATH = no(400, "bad_request", Re("^missing path$"))


def unknown_route(method: str, path: str) -> Want:
    return no(404, "not_found", "^unknown route " + re.escape(f"{method} ") + path + "$")


@dataclass(frozen=True)
class Zeros:
    """A body of so many zero bytes, sent piece by piece."""

    count: int


@dataclass(frozen=True)
class Stored:
    """A body that an earlier reply had."""

    name: str


@dataclass(frozen=True)
class Call:
    """One request and its reply. body: bytes as they are, str, Zeros, or dict/list sent as JSON."""

    method: str
    target: object
    body: object = None
    headers: tuple = ()
    want: object = Want()
    keep: tuple = ()  # of (variable, JSON key)
    store: str = ""  # keeps the reply's body for a Stored
    token: object = True  # the server's own, or None, or the header's whole value
    timeout: float = 60


@dataclass(frozen=True)
class Raw:
    """Bytes sent on a connection of this name, and one reply read from it."""

    send: object
    want: object = Want()
    conn: str = "a"
    method: str = "GET"
    chunked: bool = False
    to_eof: bool = False
    closes: bool = False  # the server closes at once after the reply
    version: str = "HTTP/1.1"


@dataclass(frozen=True)
class Fin:
    """The server closes that connection, silently, between so many seconds from now."""

    at_least: float
    at_most: float
    conn: str = "a"


@dataclass(frozen=True)
class NoAnswer:
    """The request gets no byte within so many seconds; the client then leaves."""

    call: Call
    seconds: float = 1.0


@dataclass(frozen=True)
class Begin:
    """Sends a request from a thread and goes on."""

    name: str
    call: Call


@dataclass(frozen=True)
class End:
    """Waits for the reply to that request."""

    name: str


@dataclass(frozen=True)
class Abandon:
    """Sends a request and closes the connection after some time, without reading."""

    call: Call
    seconds: float = 0.3


@dataclass(frozen=True)
class HalfUpload:
    """Sends the head and the first half of a request's body, then closes."""

    call: Call
    chunked: bool = False


@dataclass(frozen=True)
class Together:
    """Requests at one time, each on a connection of its own; each reply as its want says."""

    calls: tuple


@dataclass(frozen=True)
class Race:
    """Groups of requests at one time; each reply is one of the kinds, each kind is seen."""

    calls: tuple
    rounds: int
    kinds: tuple


@dataclass(frozen=True)
class During:
    """Repeats the watching request while the others run; kinds as in Race."""

    calls: tuple
    watch: Call
    kinds: tuple


@dataclass(frozen=True)
class Until:
    """Repeats a request until it brings what it must, at most so many seconds."""

    call: Call
    seconds: float = 10


@dataclass(frozen=True)
class Pause:
    seconds: object  # by profile where it is a Per


@dataclass(frozen=True)
class Idle:
    """Has the server put the session away, at once or by the idle limit it was started with."""

    by_itself: bool = False


@dataclass(frozen=True)
class Sweep:
    """Has the server put away what it can: the session is in use, or can't be."""


@dataclass(frozen=True)
class Forget:
    """Stops the server (politely or not) and starts it again on the same directories."""

    kill: bool = False


@dataclass(frozen=True)
class Dies:
    """The request ends the server: no reply, and the process is gone."""

    call: Call


@dataclass(frozen=True)
class Disk:
    """Looks at the workspace itself, where its directory is known (SBX_ENDPOINT_ROOT)."""

    path: object
    content: bytes = None
    mode: int = None
    absent: bool = False
    names: tuple = None  # of a directory: its names in bytes, in any order


@dataclass(frozen=True)
class Row:
    """One line of the table: what part B says in this section, and how it is seen.

    server says what kind of server it takes: "plain" or "token" can be any endpoint; "sleepy"
    (it puts sessions away when it is told to), "idle" (a short --idle-ttl-ms) and "own" (one of its
    own, which the row blocks, stops or crashes) can't be asked of a given endpoint. needs: "root"
    where the server's commands must be able to mount or make devices, "no-token" where no token may
    be asked for. slow says why an ordinary run leaves it out.
    """

    section: str
    name: str
    steps: tuple
    profiles: tuple = BOTH
    server: str = "plain"
    session: bool = True
    needs: tuple = ()
    slow: str = ""
    seconds: float = 0  # that it must take, so that it starts early
    after: tuple = ()  # steps that put things right, also when one failed

    @property
    def id(self) -> str:
        return f"{self.section}-{self.name}"


# Requests by route. The path is a str or bytes that is percent-encoded, or Query(text) as it is.


@dataclass(frozen=True)
class Query:
    text: str


def each(value, convert) -> object:
    """convert(value), by profile where the value is."""
    if isinstance(value, Per):
        return Per(each(value.host, convert), each(value.overlay, convert))
    return convert(value)


def _target(route: str, path) -> object:
    def one(value):
        if value is None:
            return f"/sessions/{{id}}/{route}"
        if isinstance(value, Query):
            return f"/sessions/{{id}}/{route}?{value.text}"
        return f"/sessions/{{id}}/{route}?path={quote_with_variables(value)}"

    return each(path, one)


def quote_with_variables(path) -> str:
    if isinstance(path, str) and path.startswith("{"):
        name, _, rest = path.partition("}")
        return name + "}" + quote(rest)
    return quote(path)


def get(path, want=None, **fields) -> Call:
    """want: the bytes, or a Want."""
    if want is None or isinstance(want, (bytes, Re)):
        want = Want(body=want)
    return Call("GET", _target("fs", path), want=want, **fields)


def put(path, data=b"", want=OK, **fields) -> Call:
    return Call("PUT", _target("fs", path), data, want=want, **fields)


def stat(path, want=Want(), **fields) -> Call:
    """want: a Want, or the fields that the reply must have."""
    if isinstance(want, dict):
        want = Want(json={"size": want.get("size", ANY), "mtimeMs": want.get("mtimeMs", ANY),
                          "isFile": want.get("isFile", ANY),
                          "isDirectory": want.get("isDirectory", ANY),
                          "mode": want.get("mode", ANY)})
    return Call("GET", _target("stat", path), want=want, **fields)


def file_of(size, mode=0o600, **fields) -> dict:
    return {"size": size, "isFile": True, "isDirectory": False, "mode": mode, **fields}


def dir_of(mode=0o755) -> dict:
    return {"isFile": False, "isDirectory": True, "mode": mode}


def other_of(size, mode) -> dict:
    return {"size": size, "isFile": False, "isDirectory": False, "mode": mode}


def missing(path: str) -> Call:
    return stat(path, no(404, "not_found", "^no such path: " + re.escape(path) + "$"))


def readdir(path, want=Want(), **fields) -> Call:
    """want: a Want, or the names, a directory's with a slash at its end."""
    def one(value):
        if not isinstance(value, (list, tuple)):
            return value
        return Want(json=[{"name": n.rstrip("/"), "isDirectory": n.endswith("/")} for n in value])

    return Call("GET", _target("readdir", path), want=each(want, one), **fields)


def done(stdout="", stderr="", code=0, signal=None, timed_out=False, **fields) -> Want:
    """The outcome of a command."""
    outcome = {"exitCode": code, "signal": signal, "stdout": stdout, "stderr": stderr}
    if timed_out:
        outcome["timedOut"] = True
    return Want(json=outcome, **fields)


def run(argv, want=done(), body=None, timeout=60, **request) -> Call:
    """exec with these argv and fields; body instead sends that."""
    return Call("POST", "/sessions/{id}/exec", {"argv": argv, **request} if body is None else body,
                want=want, timeout=timeout)


def sh(script: str, want=done(), *args, **request) -> Call:
    """A shell program; want is a Want or what it prints."""
    want = each(want, lambda value: done(value) if isinstance(value, (str, Re)) else value)
    return run(["sh", "-c", script, "sh", *args], want, **request)


def create(body=None, want=None, **fields) -> Call:
    if want is None:
        want = CREATED
    return Call("POST", "/sessions", body, want=want,
                keep=(("id", "sessionId"), ("root", "root")), **fields)


def delete(session="{id}", want=OK) -> Call:
    return Call("DELETE", f"/sessions/{session}", want=want)


def reattach(want=None, **fields) -> Call:
    return Call("POST", "/sessions/{id}/reattach",
                want=want or Want(json={"alive": True, "root": ANY}), **fields)


NOT_ALIVE = Want(json={"alive": False})


def persist(*entries, want=None, store="") -> Call:
    return Call("POST", "/sessions/{id}/persist", want=want or Want(tar=entries), store=store)


def hydrate(data, want=OK) -> Call:
    return Call("POST", "/sessions/{id}/hydrate", data, want=want)


UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
CREATED = Want(json={"sessionId": Re(UUID4), "root": Per(Re("^/."), "/home/agent")})
NEVER = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Tar:
    """What one member of a persist reply must be; a name or link of None is not looked at."""

    name: object
    kind: str = "0"
    mode: int = 0o644
    data: bytes = b""
    link: object = b""
    pax: dict = field(default_factory=dict)


def resolve(value, profile: str, variables: dict):
    """The value for a profile, with the variables put in."""
    if isinstance(value, Per):
        return resolve(getattr(value, profile), profile, variables)
    if isinstance(value, Re):
        pattern = value.pattern
        for name, text in variables.items():
            pattern = pattern.replace("{" + name + "}", re.escape(text))
        return Re(pattern)
    if isinstance(value, str):
        for name, text in variables.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, bytes):
        for name, text in variables.items():
            value = value.replace(b"{" + name.encode() + b"}", text.encode())
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(resolve(one, profile, variables) for one in value)
    if isinstance(value, dict):
        return {key: resolve(one, profile, variables) for key, one in value.items()}
    if isinstance(value, (Want, Has)):
        return replace(value, **{
            name: resolve(getattr(value, name), profile, variables)
            for name in value.__dataclass_fields__})
    return value


def encode(body):
    """The bytes of a request's body."""
    if body is None or isinstance(body, (bytes, Zeros, Stored)):
        return body
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body).encode()
