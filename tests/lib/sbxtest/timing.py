"""Waiting, with slack for slow builds."""

import os
import time


def scale(seconds: float) -> float:
    """An upper bound in seconds, multiplied by SBX_SLACK (sanitizer and valgrind runs set it).

    For limits only: never for a duration that is itself part of what a test does.
    """
    return seconds * float(os.environ.get("SBX_SLACK", "1"))


def wait_for(condition, seconds: float, what: str = "", step: float = 0.02):
    """Calls condition until it returns something true, and returns that; at most scale(seconds)."""
    limit = time.monotonic() + scale(seconds)
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {scale(seconds):.1f} s: {what or condition}")
        time.sleep(step)
