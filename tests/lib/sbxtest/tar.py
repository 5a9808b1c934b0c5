"""Raw tar archives: built and read header by header, so that every field is the test's own."""

from dataclasses import dataclass, field

BLOCK = 512


def _bytes(text) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def pax_records(pairs: dict) -> bytes:
    """The body of an `x` or `g` member."""
    body = b""
    for key, value in pairs.items():
        record = b" " + _bytes(key) + b"=" + _bytes(value) + b"\n"
        length = len(record)
        while len(str(length)) + len(record) != length:
            length = len(str(length)) + len(record)
        body += str(length).encode() + record
    return body


def header(name, kind="0", size=0, mode=0o644, link="", uid=0, gid=0, mtime=0, uname="", gname="",
           prefix="", magic=b"ustar\x0000", checksum=None) -> bytes:
    """One header block; names are cut at their fields' lengths; checksum replaces the right one."""
    head = bytearray(BLOCK)

    def put(offset, length, value):
        value = _bytes(value)[:length]
        head[offset:offset + len(value)] = value

    put(0, 100, name)
    put(100, 8, b"%07o\0" % mode)
    put(108, 8, b"%07o\0" % uid)
    put(116, 8, b"%07o\0" % gid)
    put(124, 12, b"%011o\0" % size)
    put(136, 12, b"%011o\0" % mtime)
    put(148, 8, b" " * 8)
    put(156, 1, kind)
    put(157, 100, link)
    put(257, 8, magic)
    put(265, 32, uname)
    put(297, 32, gname)
    put(345, 155, prefix)
    put(148, 8, b"%06o\0 " % (sum(head) if checksum is None else checksum))
    return bytes(head)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % BLOCK)


def member(name, kind="0", data=b"", pax: dict = None, size=None, **fields) -> bytes:
    """A member, after its PAX record when pax is given."""
    data = _bytes(data)
    head = b""
    if pax is not None:
        records = pax_records(pax)
        head = header("PaxHeader", "x", len(records)) + padded(records)
    return head + header(name, kind, len(data) if size is None else size, **fields) + padded(data)


def directory(name, **fields) -> bytes:
    return member(name, "5", **{"mode": 0o755, **fields})


def symlink(name, target, **fields) -> bytes:
    return member(name, "2", link=target, **{"mode": 0o777, **fields})


def archive(*members: bytes, end: bool = True) -> bytes:
    return b"".join(members) + (b"\0" * (2 * BLOCK) if end else b"")


@dataclass(frozen=True)
class Entry:
    """One member as its header says it; name and link are the header's bytes, not PAX's."""

    name: bytes
    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime: int
    link: bytes
    magic: bytes
    uname: bytes
    gname: bytes
    prefix: bytes
    pax: dict = field(default_factory=dict)
    data: bytes = b""


def _text(head: bytes, offset: int, length: int) -> bytes:
    return head[offset:offset + length].partition(b"\0")[0]


def _octal(head: bytes, offset: int, length: int) -> int:
    return int(_text(head, offset, length).strip() or b"0", 8)


def _parse_pax(data: bytes) -> dict:
    pairs = {}
    while data:
        length = int(data.partition(b" ")[0])
        record = data[:length]
        if len(record) != length or not record.endswith(b"\n"):
            raise ValueError(f"bad PAX record {record!r}")
        key, _, value = record.partition(b" ")[2][:-1].partition(b"=")
        pairs[key.decode()] = value
        data = data[length:]
    return pairs


def parse(data: bytes) -> list[Entry]:
    """All members of an archive that ends in exactly two zero blocks; ValueError otherwise."""
    entries, offset, pax = [], 0, {}
    while True:
        head = data[offset:offset + BLOCK]
        if len(head) != BLOCK:
            raise ValueError("the archive ends without two zero blocks")
        if not any(head):
            break
        blank = head[:148] + b" " * 8 + head[156:]
        if sum(blank) != _octal(head, 148, 8):
            raise ValueError(f"bad checksum of {head[:100]!r}")
        size = _octal(head, 124, 12)
        body = data[offset + BLOCK:offset + BLOCK + size]
        if len(body) != size:
            raise ValueError("cut data")
        offset += BLOCK + size + -size % BLOCK
        kind = chr(head[156])
        if kind == "x":
            pax = _parse_pax(body)
            continue
        entries.append(Entry(
            _text(head, 0, 100), kind, _octal(head, 100, 8), _octal(head, 108, 8),
            _octal(head, 116, 8), size, _octal(head, 136, 12), _text(head, 157, 100),
            head[257:265], _text(head, 265, 32), _text(head, 297, 32), _text(head, 345, 155), pax,
            body))
        pax = {}
    if data[offset:] != b"\0" * (2 * BLOCK):
        raise ValueError(f"{len(data) - offset} bytes at the end, not two zero blocks")
    return entries
