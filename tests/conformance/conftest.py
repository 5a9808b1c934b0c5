"""Makes one test of each row and profile that can be asked, and the servers for them."""

import collections

import pytest
from sbxtest import sbxd_path

from . import servers
from .model import BOTH
from .table import TABLE


def select():
    """(cases, how often each reason left one out)."""
    endpoint, cases, reasons = servers.given(), [], collections.Counter()
    for row in TABLE:
        for profile in BOTH:
            reason = servers.left_out(row, profile, endpoint)
            if not reason:
                cases.append((row, profile))
            elif profile in row.profiles:
                reasons[reason] += 1
    return cases, reasons


def pytest_terminal_summary(terminalreporter):
    cases, reasons = select()
    terminalreporter.write_line(f"conformance: {len(TABLE)} rows, {len(cases)} cases")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"  left out: {count} cases, as each {reason}")


def pytest_generate_tests(metafunc):
    if "row" in metafunc.fixturenames:
        if not servers.given():
            try:
                sbxd_path()
            except FileNotFoundError as error:
                raise pytest.UsageError(str(error)) from None
        cases, _ = select()
        metafunc.parametrize("row, profile", [
            pytest.param(row, profile, id=f"{profile}-{row.id}",
                         marks=[pytest.mark.long(row.seconds)] if row.seconds else [])
            for row, profile in cases])


@pytest.fixture(scope="session")
def wire_servers():
    started = servers.Servers()
    yield started
    started.close()
