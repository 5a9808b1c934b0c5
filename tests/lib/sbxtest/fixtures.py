"""pytest fixtures: factories whose products are taken away when the test ends."""

from contextlib import ExitStack

import pytest

from .mount import Mount
from .sbxd import Sbxd


@pytest.fixture
def start_sbxd():
    """start_sbxd(...) is Sbxd(...), stopped at the end."""
    with ExitStack() as stack:
        yield lambda *args, **fields: stack.enter_context(Sbxd(*args, **fields))


@pytest.fixture
def start_mount(start_sbxd):
    """start_mount(...) is Mount(...), unmounted at the end, before any server of start_sbxd."""
    with ExitStack() as stack:
        yield lambda *args, **fields: stack.enter_context(Mount(*args, **fields))
