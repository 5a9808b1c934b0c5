"""What all Python tests of the tree share: the fixtures of the package in tests/lib."""

import itertools
import os
import signal
import sys

import pytest

sys.dont_write_bytecode = True
# What was started in the background of a script ignores Ctrl-C, and so would all its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["sbxtest.fixtures"]


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked slow, unless SBX_SLOW=1, and what needs root where we are not."""
    unwanted = set()
    if os.environ.get("SBX_SLOW") != "1":
        unwanted.add("slow")
    if os.getuid() != 0:
        unwanted.add("root")
    out = [item for item in items if any(map(item.get_closest_marker, unwanted))]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    items[:] = longest_first(items)


def longest_first(items):
    """What is marked long first, each beside one that is not: so several workers start with one."""
    lasts = {item: max((mark.args[0] for mark in item.iter_markers("long")), default=0)
             for item in items}
    long = sorted((item for item in items if lasts[item]), key=lasts.get, reverse=True)
    pairs = itertools.zip_longest(long, (item for item in items if not lasts[item]))
    return [item for pair in pairs for item in pair if item is not None]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers take one test after another, not a share of all in advance."""
    from xdist.scheduler.load import LoadScheduling

    class OneByOne(LoadScheduling):
        def _send_tests(self, node, num):
            # A worker has to know the next one before it ends the one it is at.
            super()._send_tests(node, min(num, max(1, 2 - len(self.node2pending[node]))))

    return OneByOne(config, log)
