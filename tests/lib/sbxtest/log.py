"""Reads the request log of sbxd (--log): one JSON object a line."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class LogRecord:
    """One request as sbxd saw it. Fields a record lacks are None."""

    time: object = None
    method: object = None
    route: object = None
    session: object = None
    path: object = None
    status: object = None
    bytes_in: object = None
    bytes_out: object = None
    ms: object = None
    conn: object = None
    program: object = None
    raw: dict = field(default_factory=dict, compare=False)


def read_log(path, after: int = 0) -> list[LogRecord]:
    """All complete records of the log, but for the first `after`."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    records = []
    for line in data[: data.rfind(b"\n") + 1].splitlines()[after:]:
        raw = json.loads(line.decode("utf-8", "replace"))
        records.append(LogRecord(
            raw.get("time"), raw.get("method"), raw.get("route"), raw.get("session"),
            raw.get("path"), raw.get("status"), raw.get("in"), raw.get("out"), raw.get("ms"),
            raw.get("conn"), raw.get("program"), raw))
    return records
