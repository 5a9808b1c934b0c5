"""What all Python tests of the tree share: the fixtures of the package in tests/lib."""

import os
import signal
import sys

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
