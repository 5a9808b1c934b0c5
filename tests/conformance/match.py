"""Compares replies with what a row wants; every difference is an AssertionError that shows both."""

import json
import re
import time

from .model import Damaged, Has, NowMs, Re
from sbxtest import scale
from sbxtest.tar import parse


def _show(value, limit=600) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def fail(where: str, found, wanted):
    raise AssertionError(f"{where} is {_show(found)}, not {_show(wanted)}")


def match(where: str, found, wanted):
    """found, of JSON's types, is as wanted."""
    if isinstance(wanted, Re):
        # An empty expression takes any value of any type.
        if wanted.pattern and not (isinstance(found, str) and re.search(wanted.pattern, found)):
            fail(where, found, wanted)
    elif isinstance(wanted, Damaged):
        if not isinstance(found, str) or found.count("\ufffd") < wanted.least:
            fail(where, found, wanted)
    elif isinstance(wanted, NowMs):
        age = time.time() * 1000 - found if is_number(found) else None
        if age is None or not -2000 <= age <= scale(wanted.seconds) * 1000:
            fail(where, found, wanted)
    elif isinstance(wanted, Has):
        _match_has(where, found, wanted)
    elif isinstance(wanted, dict):
        if not isinstance(found, dict) or set(found) != set(wanted):
            fail(where, found, wanted)
        for key, value in wanted.items():
            match(f"{where}.{key}", found[key], value)
    elif isinstance(wanted, (list, tuple)):
        if not isinstance(found, list) or len(found) != len(wanted):
            fail(where, found, wanted)
        for index, value in enumerate(wanted):
            match(f"{where}[{index}]", found[index], value)
    elif type(found) is not type(wanted) or found != wanted:
        fail(where, found, wanted)


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _match_has(where, found, wanted):
    if not isinstance(found, list):
        fail(where, found, wanted)
    for item in wanted.items:
        if item not in found:
            fail(where, found, wanted)
    for item in wanted.without:
        if item in found:
            fail(where, found, wanted)


def match_tar(data: bytes, wanted: tuple):
    """The members are these, in this order, and every header keeps the rules of persist."""
    entries = parse(data)
    if len(data) % 512:
        fail("the archive's size", len(data), "a multiple of 512")
    for entry in entries:
        rules = {"uid": 0, "gid": 0, "mtime": 0, "magic": b"ustar\x0000", "uname": b"",
                 "gname": b"", "prefix": b""}
        for name, value in rules.items():
            if getattr(entry, name) != value:
                fail(f"{name} of {entry.name!r}", getattr(entry, name), value)

    def bare(kind, name, mode, link, pax, data):
        return (kind, name if name is None else _bytes(name), oct(mode),
                link if link is None else _bytes(link), pax, data)

    pattern = [bare(t.kind, t.name, t.mode, t.link,
                    {key: _bytes(value) for key, value in t.pax.items()}, t.data) for t in wanted]
    found = [bare(e.kind, e.name, e.mode, e.link, e.pax, e.data) for e in entries]
    for index in range(min(len(found), len(pattern))):
        # None in the pattern takes what was found.
        found[index] = tuple(None if p is None else f for p, f in zip(pattern[index], found[index]))
    if found != pattern:
        fail("the archive", found, pattern)


def _bytes(text) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def reply_fits(reply, want, took: float):
    """One reply, whole: envelope, headers, body, time."""
    if want.also is not None:
        try:
            reply_fits_one(reply, want, took)
            return
        except AssertionError:
            want = want.also
    reply_fits_one(reply, want, took)


def reply_fits_one(reply, want, took: float):
    if reply.status != want.status:
        fail("the status", (reply.status, reply.body[:300]), want.status)
    if want.seconds:
        least, most = want.seconds
        if not least <= took <= scale(most):
            fail("the time", took, want.seconds)
    if want.code is not None:
        _envelope_fits(reply, want)
    kind = reply.headers.get("content-type")
    if want.json is not None:
        if kind != "application/json":
            fail("content-type", kind, "application/json")
        match("the reply", json.loads(reply.body), want.json)
    if isinstance(want.body, bytes):
        if kind != "application/octet-stream":
            fail("content-type", kind, "application/octet-stream")
        if reply.body != want.body:
            fail("the body", reply.body, want.body)
    elif isinstance(want.body, Re):
        match("the body", reply.body.decode("latin-1"), want.body)
    for name, value in (want.headers or {}).items():
        if reply.headers.get(name) != value:
            fail(f"header {name}", reply.headers.get(name), value)
    if want.tar is not None:
        if kind != "application/octet-stream":
            fail("content-type", kind, "application/octet-stream")
        match_tar(reply.body, want.tar)


def _envelope_fits(reply, want):
    if reply.headers.get("content-type") != "application/json":
        fail("content-type", reply.headers.get("content-type"), "application/json")
    envelope = json.loads(reply.body)
    match("the envelope", envelope, {
        "code": want.code, "message": want.message,
        "retryable": None if want.code == "internal_error" else False})
    if not isinstance(envelope["message"], str):
        fail("the message", envelope["message"], "a text")
