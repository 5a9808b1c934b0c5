"""The end of a mount whose session could not be thawed again: it is persisted, not for ever."""

import os
import signal
import time

import pytest

from sbxtest.process import is_running
from sbxtest.timing import scale, wait_for


@pytest.fixture
def at_risk(start_place):
    """A mount whose session holds what the server can't thaw, changed since it was persisted."""
    place = start_place(options=["timeout=60"])
    os.symlink("/usr/bin/env", place.root / "l")
    (place.fs / "user").write_text("x")
    place.fresh()
    os.listdir(place.fs)
    assert place.mount.status("dev1")["thaw"].startswith("at risk: ")
    return place


def snapshots(mount):
    # beside state.json of the mount's own directory of state
    return sorted(path.name for path in mount.state_dir.rglob("*.tar"))


def test_what_is_at_risk_is_persisted_at_the_end(at_risk):
    at_risk.mount.unmount()
    assert len(snapshots(at_risk.mount)) == 1


@pytest.mark.parametrize("first", [signal.SIGTERM, "unmount"])
def test_a_signal_ends_the_persisting_at_the_end(at_risk, first):
    """A server that does not answer holds the end up; who asks again is not kept waiting."""
    mount = at_risk.mount
    at_risk.server.set_faults("persist:*:blackhole")
    mark = at_risk.log_mark()
    if first == "unmount":
        os.system(f"fusermount3 -u {mount.mnt}")
    else:
        mount.signal(first)
    wait_for(lambda: not os.path.ismount(mount.mnt), 10)
    time.sleep(1)  # it asks for the archive
    assert is_running(mount.pid), at_risk.server.log(mark)
    begin = time.monotonic()
    mount.signal(signal.SIGTERM)
    mount.wait_gone(20)
    assert time.monotonic() - begin < scale(3)
    mount.check_reports()
