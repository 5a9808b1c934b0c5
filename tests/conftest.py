"""What all Python tests of the tree share: the fixtures of the package in tests/lib."""

import os
import sys

sys.dont_write_bytecode = True

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
