"""What all Python tests of the tree share: the fixtures of the package in tests/lib."""

import os
import sys

sys.dont_write_bytecode = True

pytest_plugins = ["sbxtest.fixtures"]


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked slow, unless SBX_SLOW=1."""
    if os.environ.get("SBX_SLOW") == "1":
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
