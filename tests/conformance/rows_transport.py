"""B.1: the transport; the error envelope; the token.

Not asked: that no other server time-out exists, and that there is no cap on bodies at all (20 MB
stand for it). The whole-request deadline of 300 s and the 408s of 61 s and more are slow rows.
"""

import gzip
from dataclasses import replace

from .model import (ANY, DENIED, GONE, HOST, NEVER, NO_PATH, OK, OVERLAY, Call, Fin, Pause, Per,
                    Query, Raw, Re, Row, Want, Zeros, create, delete, done, errno, file_of, get, no,
                    put, run, sh, stat, unknown_route)

S = "B.1"

ALWAYS = ("content-type", "content-length", "Date", "Connection", "Keep-Alive")
KEPT = {"connection": "keep-alive", "keep-alive": "timeout=5"}
JSON = {**KEPT, "content-type": "application/json"}
BYTES = {**KEPT, "content-type": "application/octet-stream"}
BARE_400 = Want(400, body=Re("^$"), only=("Connection",), headers={"connection": "close"})
BARE_431 = Want(431, body=Re("^$"), only=("Connection",), headers={"connection": "close"})


def ask(target: str, *headers: str, method="GET", body="", version="1.1", host=True,
        auth=True) -> str:
    """A request's text; {auth} is the header line with the server's token, if it has one."""
    lines = [f"{method} {target} HTTP/{version}", *(["Host: {host}"] if host else []), *headers]
    return "\r\n".join(lines) + "\r\n" + ("{auth}" if auth else "") + "\r\n" + body


def stat_text(*headers: str, **fields) -> str:
    return ask("/sessions/{id}/stat?path=.", *headers, **fields)


LIVE = Want(headers=JSON, only=ALWAYS)


def route_rows():
    """A route or method that there is not."""
    for method, path in (
            ("GET", "/"), ("GET", "/nosuch"), ("POST", "/"), ("PUT", "/sessionsx"),
            ("GET", "/session/{id}/stat")):
        yield Row(S, f"unknown-route-{method}-{path.replace('/', '_')}",
                  (Call(method, path, want=unknown_route(method, path)),))
    for route, methods in (
            ("fs", ("HEAD", "OPTIONS", "POST", "PATCH", "DELETE")),
            ("stat", ("HEAD", "POST", "PUT", "DELETE")),
            ("readdir", ("POST", "PUT", "DELETE")),
            ("exec", ("GET", "PUT", "DELETE")),
            ("persist", ("GET", "PUT")),
            ("hydrate", ("GET", "PUT")),
            ("x", ("GET", "POST", "PUT", "DELETE"))):
        for method in methods:
            want = Want(404) if method == "HEAD" else unknown_route(
                method, "/sessions/{id}/" + route)
            query = "?path=." if route in ("fs", "stat", "readdir") else ""
            yield Row(S, f"unknown-method-{method}-{route}", (
                put("f", b"kept"), Call(method, f"/sessions/{{id}}/{route}{query}", want=want),
                get("f", b"kept")))
    for route in ("stat?path=.", "fs?path=f", "readdir?path=.", "x"):
        yield Row(S, f"no-session-before-{route.partition('?')[0]}",
                  (Call("GET", f"/sessions/{NEVER}/{route}", want=GONE),))
    for route in ("exec", "persist", "hydrate"):
        yield Row(S, f"no-session-before-{route}",
                  (Call("POST", f"/sessions/{NEVER}/{route}", b"{", want=GONE),))


def node_error_rows():
    """Errors below the routes: no JSON."""
    for name, target in (("non-ascii", b"/sessions/\xc3\xa9"), ("space", b"/sessions/a b"),
                         ("control-byte", b"/sessions/\x01")):
        yield Row(S, f"raw-{name}-in-request-line", (
            Raw(b"GET " + target + b" HTTP/1.1\r\nHost: {host}\r\n\r\n", BARE_400, to_eof=True),))
    yield Row(S, "garbage", (Raw(b"garbage\r\n\r\n", BARE_400, to_eof=True),))
    yield Row(S, "missing-host", (
        Raw(stat_text(host=False),
            Want(400, body=Re("^$"), only=("Connection", "Date", "Transfer-Encoding"),
                 headers={"connection": "close"}), chunked=True, closes=True),))
    yield Row(S, "unknown-expect", (
        Raw(stat_text("Expect: 200-maybe"),
            Want(417, body=Re("^$"), headers={"connection": "keep-alive"}), chunked=True),
        Raw(stat_text(), LIVE)))


def url_of(length: int) -> str:
    """A target of that many bytes."""
    start = "/sessions/" + NEVER + "/stat?path="
    return start + "a" * (length - len(start))


def head_of(length: int) -> str:
    """A request with a head of that many bytes, most of them a header field."""
    start = f"GET /sessions/{NEVER}/stat?path=f HTTP/1.1\r\nHost: x\r\nX: "
    return start + "a" * (length - len(start) - 4) + "\r\n\r\n"


def limits_rows():
    yield Row(S, "url-of-16378-passes", (
        Raw(f"GET {url_of(16378)} HTTP/1.1\r\nHost: x\r\n\r\n", GONE),), needs=("no-token",))
    yield Row(S, "url-of-16379-is-431", (
        Raw(f"GET {url_of(16379)} HTTP/1.1\r\nHost: x\r\n\r\n", BARE_431, to_eof=True),))
    yield Row(S, "head-of-16000-passes", (Raw(head_of(16000), GONE),), needs=("no-token",))
    yield Row(S, "head-of-17000-is-431", (Raw(head_of(17000), BARE_431, to_eof=True),))
    long_path = "/".join(["é" * 100] * 19)
    yield Row(S, "path-of-3818-non-ascii-bytes", (put(long_path, b"far"), get(long_path, b"far")))
    yield Row(S, "path-of-4095-encoded-bytes-fits", (
        stat(Query("path=" + "%61" * 4095), errno("ENAMETOOLONG: ")),))
    yield Row(S, "no-cap-on-a-body", (
        put("big", Zeros(20_000_000)), stat("big", file_of(20_000_000)), delete()))


def early_refusal_rows():
    """Refused at once, the body is drained, the connection goes on."""
    size = 5_000_000
    for name, target, want in (
            ("404", f"/sessions/{NEVER}/fs?path=f", GONE),
            ("404-route", "/nosuch", no(404, "not_found", "^unknown route PUT /nosuch$")),
            ("403", "/sessions/{id}/fs?path=..%2Fx", DENIED),
            ("400", "/sessions/{id}/fs", NO_PATH)):
        yield Row(S, f"early-refusal-{name}", (
            Raw(ask(target, f"Content-Length: {size}", method="PUT"), want),
            Raw(b"x" * size + stat_text().encode(), LIVE)))
    yield Row(S, "early-refusal-401", (
        Raw(ask("/sessions", f"Content-Length: {size}", method="POST", auth=False),
            no(401, "unauthorized", ANY)),
        Raw(b" " * size + ask("/sessions", method="POST", auth=False).encode(),
            no(401, "unauthorized", ANY))), server="token", session=False)


def message_rows():
    packed = gzip.compress(b"packed", mtime=0)
    yield Row(S, "headers-of-json", (Raw(stat_text(), LIVE),))
    yield Row(S, "headers-of-bytes", (
        put("f", b"12345"), Raw(ask("/sessions/{id}/fs?path=f"),
                                Want(headers={**BYTES, "content-length": "5"}, only=ALWAYS))))
    yield Row(S, "headers-of-an-archive", (
        Raw(ask("/sessions/{id}/persist", method="POST"),
            Want(headers={**BYTES, "content-length": "1024"}, only=ALWAYS)),))
    yield Row(S, "headers-of-an-error", (
        Raw(ask("/nosuch"), Want(404, headers=JSON, only=ALWAYS)), Raw(stat_text(), LIVE)))
    yield Row(S, "headers-of-a-500", (
        Raw(ask("/sessions/{id}/fs?path=nosuch"), Want(500, headers=JSON, only=ALWAYS)),
        Raw(stat_text(), LIVE)))
    yield Row(S, "no-compression", (Raw(stat_text("Accept-Encoding: gzip, deflate, br"), LIVE),))
    yield Row(S, "no-cors", (Raw(stat_text("Origin: http://elsewhere.example"), LIVE),))
    yield Row(S, "h2c-upgrade-ignored", (
        Raw(stat_text("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                      "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"), LIVE),))
    for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        yield Row(S, f"content-type-ignored-{kind.partition('/')[0]}", (
            put("f", b'{"a":1}', headers=(("Content-Type", kind),)), get("f", b'{"a":1}'),
            Call("POST", "/sessions/{id}/exec", {"argv": ["true"]},
                 headers=(("Content-Type", kind),), want=done())))
    yield Row(S, "content-encoding-ignored-by-put", (
        put("f", packed, headers=(("Content-Encoding", "gzip"),)), get("f", packed)))
    yield Row(S, "content-encoding-ignored-by-exec", (
        Call("POST", "/sessions/{id}/exec", gzip.compress(b'{"argv":["true"]}', mtime=0),
             headers=(("Content-Encoding", "gzip"),),
             want=no(400, "bad_request", "^invalid JSON body$")),))
    yield Row(S, "http-1.0-closes", (
        Raw(stat_text(version="1.0"), Want(headers={"connection": "close"}), closes=True),))
    yield Row(S, "connection-close", (
        Raw(stat_text("Connection: close"), Want(headers={"connection": "close"}), closes=True),))
    yield Row(S, "continue-before-a-put", (
        Raw(ask("/sessions/{id}/fs?path=f", "Expect: 100-continue", "Content-Length: 5",
                method="PUT"), Want(100)),
        Raw("hello", OK), get("f", b"hello")))
    yield Row(S, "continue-before-any-check", (
        Raw(ask(f"/sessions/{NEVER}/fs?path=f", "Expect: 100-continue", "Content-Length: 5",
                method="PUT"), Want(100)),
        Raw("hello", GONE)))
    yield Row(S, "continue-before-the-token", (
        Raw(ask("/sessions", "Expect: 100-continue", "Content-Length: 2", method="POST",
                auth=False), Want(100)),
        Raw("{}", no(401, "unauthorized", ANY))), server="token", session=False)
    yield Row(S, "pipelining", (
        put("f", b"first"),
        Raw(ask("/sessions/{id}/fs?path=f") + stat_text() + ask("/nosuch"),
            Want(body=b"first")),
        Raw("", LIVE), Raw("", no(404, "not_found", "^unknown route GET /nosuch$"))))
    yield Row(S, "get-with-a-body", (
        Raw(stat_text("Content-Length: 7", body="dropped"), LIVE), Raw(stat_text(), LIVE)))
    yield Row(S, "absolute-form", (
        Raw(ask("http://{host}/sessions/{id}/stat?path=."), LIVE),
        Raw(ask("http://other.example/sessions/{id}/stat?path=."), LIVE)))
    yield Row(S, "put-chunked", (
        Raw(ask("/sessions/{id}/fs?path=f", "Transfer-Encoding: chunked", method="PUT",
                body="3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), OK), get("f", b"abcde")))
    yield Row(S, "preconditions-ignored", (
        put("f", b"x"),
        get("f", b"x", headers=(("If-None-Match", "*"),
                                ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"))),
        put("f", b"y", headers=(("If-Match", '"none"'), ("If-Unmodified-Since",
                                                         "Thu, 01 Jan 1970 00:00:00 GMT"))),
        get("f", Want(body=b"y", headers={"etag": None, "last-modified": None}))))


def url_rows():
    unknown = no(404, "not_found", "^unknown route ")
    yield Row(S, "double-slash-is-a-host", (Call("POST", "//sessions", want=unknown),
                                            Call("GET", "//sessions/{id}/stat?path=.",
                                                 want=unknown)))
    yield Row(S, "double-slash-alone", (
        Call("GET", "//", want=no(500, "internal_error", "^Invalid URL$")),))
    yield Row(S, "slash-at-the-end", (create(), Call("POST", "/sessions/", want=Want(
        json={"sessionId": ANY, "root": ANY}), keep=(("second", "sessionId"),)),
        delete("{second}")), session=False)
    yield Row(S, "segments-after-the-third", (
        put("f", b"x"), Call("GET", "/sessions/{id}/fs/extra?path=f", want=Want(body=b"x")),
        Call("GET", "/sessions/{id}/stat/a/b/c?path=f", want=Want()),
        Call("POST", "/sessions/{id}/reattach/more", want=Want(json={"alive": True, "root": ANY}))))
    yield Row(S, "id-is-not-decoded", (
        Call("GET", "/sessions/%30" + NEVER[1:] + "/stat?path=.", want=GONE),
        Call("GET", "/sessions/{encoded_id}/stat?path=.", want=GONE),
        Call("GET", "/sessions/{id}%20/stat?path=.", want=GONE)))
    yield Row(S, "dot-segments-go-first", (
        Call("GET", "/sessions/./{id}/stat?path=.", want=Want()),
        Call("GET", "/nosuch/../sessions/{id}/stat?path=.", want=Want()),
        Call("GET", "/sessions/{id}/fs/%2e%2e/stat?path=.", want=Want()),
        Call("GET", "/sessions/{id}/%2E%2E/{id}/%2e/stat?path=.", want=Want())))


def slow_connection_rows():
    yield Row(S, "keep-alive-ends-after-6-s", (Raw(stat_text(), LIVE), Fin(5.0, 7.5)),
              profiles=HOST, seconds=6)
    yield Row(S, "keep-alive-holds-for-4.5-s", (
        Raw(stat_text(), LIVE), Pause(4.5), Raw(stat_text(), LIVE)), profiles=OVERLAY, seconds=5)
    yield Row(S, "keep-alive-after-an-error-ends-too", (
        Raw(ask("/nosuch"), Want(404)), Fin(5.0, 7.5)), profiles=OVERLAY, seconds=6)
    wait = Want(408, body=Re("^$"), headers={"connection": "close"}, seconds=(55, 95))
    yield Row(S, "silent-connection-408-quick", (
        Raw("", replace(wait, seconds=(1.0, 6)), to_eof=True),), profiles=HOST, server="quick",
        seconds=1)
    yield Row(S, "half-a-head-408-quick", (
        Raw("GET /sessions HTTP/1.1\r\nHo", replace(wait, seconds=(1.0, 6)), to_eof=True),),
        profiles=HOST, server="quick", seconds=1)
    yield Row(S, "request-deadline-408-quick", (
        put("f", b"old"),
        Raw(ask("/sessions/{id}/fs?path=f", "Content-Length: 10", method="PUT", body="x"),
            replace(wait, seconds=(1.8, 8)), to_eof=True), get("f", b"old"),
        sh("sleep 2.5; echo x", "x\n")), profiles=HOST, server="quick", seconds=5)
    yield Row(S, "silent-connection-408", (Raw("", wait, to_eof=True),), profiles=HOST,
              slow="61 s")
    yield Row(S, "half-a-head-408", (Raw("GET /sessions HTTP/1.1\r\nHo", wait, to_eof=True),),
              profiles=HOST, slow="60 to 90 s")
    yield Row(S, "request-deadline-408", (
        Raw(ask("/sessions/{id}/fs?path=f", "Content-Length: 10", method="PUT", body="x"),
            Want(408, body=Re("^$"), headers={"connection": "close"}, seconds=(295, 345)),
            to_eof=True),), profiles=HOST, slow="300 to 330 s")
    yield Row(S, "deadline-covers-receiving-only", (
        run(["sleep", "330"], done(seconds=(329, 340)), timeout=400),), profiles=HOST, slow="330 s")


def token_rows():
    """The header's value, whole, and what it brings."""
    refused = no(401, "unauthorized", ANY)
    for name, value in (
            ("none", None), ("wrong", "Bearer wrong"), ("longer", "Bearer {secret}x"),
            ("shorter", "Bearer {short}"), ("lower-case-scheme", "bearer {secret}"),
            ("upper-case-scheme", "BEARER {secret}"), ("two-spaces", "Bearer  {secret}"),
            ("bare", "{secret}"), ("basic", "Basic {secret}"), ("empty", "Bearer ")):
        yield Row("B.1-token", name, (
            Call("POST", "/sessions", token=value, want=refused),
            Call("GET", "/nosuch", token=value, want=refused),
            Call("GET", f"/sessions/{NEVER}/stat", token=value, want=refused)),
            server="token", session=False)
    yield Row("B.1-token", "right", (stat(".", Want()),), server="token")
    yield Row("B.1-token", "space-at-the-end-passes", (
        Call("GET", "/sessions/{id}/stat?path=.", token="Bearer {secret} \t"),), server="token")
    yield Row("B.1-token", "unknown-route-with-the-token", (
        Call("GET", "/nosuch", want=unknown_route("GET", "/nosuch")),), server="token")
    yield Row("B.1-token", "connection-goes-on-after-401", (
        Raw(ask("/nosuch", auth=False), Want(401, headers=JSON, only=ALWAYS)),
        Raw(ask("/nosuch", auth=False), refused)), server="token", session=False)
    yield Row("B.1-token", "any-header-without-a-token", (
        stat(".", Want(), headers=(("Authorization", "Basic eDp5"),)),
        stat(".", Want(), headers=(("Authorization", "Bearer x"),))), needs=("no-token",))


def envelope_rows():
    e = "B.1-errors"
    bad = no(400, "bad_request", "^invalid JSON body$")
    for name, body in (("cut", '{"argv":["true"]'), ("garbage", "garbage"),
                       ("two", "{}{}"), ("single-quotes", "{'argv':['true']}")):
        yield Row(e, f"invalid-json-{name}", (run(None, bad, body=body),
                                              create(body, want=bad)))
    for route in ("fs", "stat", "readdir"):
        yield Row(e, f"missing-path-{route}", (
            Call("GET", f"/sessions/{{id}}/{route}", want=NO_PATH),
            Call("GET", f"/sessions/{{id}}/{route}?path=", want=NO_PATH),
            Call("GET", f"/sessions/{{id}}/{route}?other=f", want=NO_PATH)))
    yield Row(e, "missing-path-put", (
        Call("PUT", "/sessions/{id}/fs", b"x", want=NO_PATH),))
    yield Row(e, "messages-name-the-server's-path", (
        get("nosuch", Per(
            errno("ENOENT: no such file or directory, open '{root}/nosuch'$"),
            errno("ENOENT: no such file or directory, open '/.*/nosuch'$"))),))


ROWS = tuple(row for part in (
    route_rows, node_error_rows, limits_rows, early_refusal_rows, message_rows, url_rows,
    slow_connection_rows, token_rows, envelope_rows) for row in part())
