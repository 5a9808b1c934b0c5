"""What the tests of jobs share: a server of each kind, a mount of it, and a session."""

import pytest

from jobtools import BACKENDS


@pytest.fixture
def server(start_sbxd):
    """For tests of a mount of their own kind; some have a `mount` of theirs for it."""
    return start_sbxd()


@pytest.fixture
def mount(server, start_mount):
    return start_mount(server.url)


@pytest.fixture
def make(start_sbxd, start_mount):
    """make(backend) is a server, a mount of it, and the directory of a session.

    options and mount are the mount's, args and other fields the server's.
    """
    def made(backend="host", options=(), args=(), mount=None, **fields):
        profile, more = BACKENDS[backend]
        server = start_sbxd(profile, args=[*more, *args], **fields)
        mounted = start_mount(server.url, options, **(mount or {}))
        (mounted / "dev1").mkdir()
        return server, mounted, mounted / "dev1"
    return made


@pytest.fixture(params=BACKENDS)
def everywhere(request, make):
    return make(request.param)


@pytest.fixture
def host(make):
    return make()
