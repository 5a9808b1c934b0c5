"""What all Python tests of the tree share: the fixtures of the package in tests/lib."""

import sys

sys.dont_write_bytecode = True

pytest_plugins = ["sbxtest.fixtures"]
