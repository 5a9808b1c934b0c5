"""Programs that want a terminal."""

import os
import pty
import subprocess
import time

from .timing import scale


def run_in_terminal(words, env=None) -> int:
    """Runs it on a terminal of its own, which nobody looks at. Returns the exit status."""
    parent, child = pty.openpty()
    try:
        process = subprocess.Popen(words, stdin=child, stdout=child, stderr=child,
                                   env={**os.environ, "TERM": "xterm", **(env or {})})
        os.close(child)
        child = -1
        os.set_blocking(parent, False)
        limit = time.monotonic() + scale(20)
        while process.poll() is None:
            try:
                os.read(parent, 65536)
            except OSError:
                pass
            if time.monotonic() > limit:
                process.kill()
                process.wait()
                raise TimeoutError(words)
            time.sleep(0.02)
        return process.returncode
    finally:
        os.close(parent)
        if child >= 0:
            os.close(child)
