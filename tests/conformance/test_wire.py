"""The protocol, row by row. See model.py for what a row is, servers.py for against what."""

import collections

from .runner import run_row
from .table import TABLE


def test_row(row, profile, wire_servers):
    with wire_servers.target(row, profile) as target:
        run_row(row, target)


def test_ids_are_unique():
    counts = collections.Counter(row.id for row in TABLE)
    assert [name for name, count in counts.items() if count > 1] == []
