"""A sandbox whose clock is set while it is in use, by hours forward and back."""

import os
import time

import pytest

from sbxtest.timing import scale

HOUR = 3_600_000


def set_clock(place, skew_ms):
    """What the sandbox's programs see, and the times that they see of files. The mount hears of
    nothing: when it asks next, the session is there."""
    place.server.restart(["--clock-skew-ms", skew_ms])
    with place.server.client() as client:
        assert client.reattach(place.id)["alive"]


def look(place) -> dict:
    """All that is there, and what it holds, as the mount has it."""
    return {path.relative_to(place.fs).as_posix(): path.read_text() if path.is_file() else None
            for path in sorted(place.fs.rglob("*"))}


def change(place, turn):
    """The same size, another name, one name less; returns what is there then."""
    (place.root / "d/f").write_text(f"{turn:4}\n")
    (place.root / f"d/new{turn}").write_text("n")
    (place.root / f"d/new{turn - 1}").unlink(missing_ok=True)
    (place.root / f"e/sub{turn}").mkdir()
    return {"d": None, "d/f": f"{turn:4}\n", f"d/new{turn}": "n", "e": None,
            **{f"e/sub{i}": None for i in range(1, turn + 1)}}


@pytest.mark.parametrize("steps", [[HOUR, 0, -HOUR, 0], [3000, -3000, 0]], ids=["hours", "seconds"])
def test_changes_are_seen(start_place, steps):
    """Within ttl: "changed since" means nothing over a step, the more so when it went back."""
    place = start_place("gnu-overlay", args=["--clock-skew-ms", "0"])
    for name in ("d", "e"):
        (place.root / name).mkdir()
    turn = 0
    for step in steps:
        # Known, and validated again and again.
        for _ in range(2):
            turn += 1
            wanted = change(place, turn)
            time.sleep(1 + scale(0.3))
            assert look(place) == wanted, (step, turn)
        set_clock(place, step)
        there = int(place.inside("date +%s"))
        assert abs(there - time.time() - step / 1000) < scale(2)
    turn += 1
    wanted = change(place, turn)
    time.sleep(1 + scale(0.3))
    assert look(place) == wanted


def test_saves_and_times(start_place):
    """What is made and saved here has the sandbox's times, whatever its clock says by now."""
    place = start_place("gnu-overlay", args=["--clock-skew-ms", str(HOUR)])
    for skew in (HOUR, -HOUR, 0):
        set_clock(place, skew)
        for name in ("old", f"new{skew}"):
            (place.fs / name).write_text(f"{skew}\n")
            shown = os.stat(place.fs / name).st_mtime_ns
            assert abs(shown / 1e9 - time.time() - skew / 1000) < scale(3)
            there = int(place.inside("stat -c %Y " + name))
            assert there == shown // 10 ** 9
            assert (place.root / name).read_text() == f"{skew}\n"
            assert (place.fs / name).read_text() == f"{skew}\n"
