"""Links of one file, changed by another client before the sandbox slept."""

import os
import time

import pytest

LONG_AGO = 10**18


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_what_another_client_saved_is_kept(start_place, kind):
    """Of two names that were one file and differ now, neither is replaced nor dated back."""
    place = start_place(kind, ["keepawake=none", "ttl=30"])
    for name, other in (("a", "b"), ("c", "d")):
        (place.fs / name).write_text("before")
        os.link(place.fs / name, place.fs / other)
        os.utime(place.fs / name, ns=(LONG_AGO,) * 2)
    assert sorted(os.listdir(place.fs)) == ["a", "b", "c", "d"]
    assert os.stat(place.fs / "b").st_nlink == 2
    (place.root / "new").write_text("after.")  # as long as it was
    os.rename(place.root / "new", place.root / "b")
    place.server.sleep(place.id)
    (place.fs / "wake").write_text("x")
    assert (place.root / "a").read_text() == "before"
    assert (place.root / "b").read_text() == "after."
    assert not os.path.samefile(place.root / "a", place.root / "b")
    assert os.path.samefile(place.root / "c", place.root / "d")
    assert os.stat(place.root / "c").st_mtime_ns == LONG_AGO
    for name in ("a", "b"):
        assert os.stat(place.root / name).st_mtime > time.time() - 60
    assert "of 2 files" in place.mount.status("dev1")["note"]
    assert sorted(os.listdir(place.root)) == [".sbxfs", "a", "b", "c", "d", "wake"]
