"""Trees that the sandbox puts in the place of others, whose directories did not change since."""

import os
import time

import pytest

from sbxtest.timing import scale, wait_for


def make(top, word):
    (top / "sub/deep").mkdir(parents=True)
    for place in (top, top / "sub", top / "sub/deep"):
        (place / "f").write_text(word)
        (place / f"only-{word}").write_text(word)


def seen(top):
    return {os.path.relpath(os.path.join(at, name), top): open(os.path.join(at, name)).read()
            for at, _, names in os.walk(top) for name in names}


@pytest.mark.parametrize("how", ["replaced", "swapped", "below"])
def test_swapped(place, how):
    """Names and bytes are the new ones within ttl, at every depth."""
    make(place.root / "d", "old")
    make(place.root / "e", "new")
    # Older than what "changed since" looks back for.
    time.sleep(scale(2.5))
    place.fresh()
    assert seen(place.fs / "d")["sub/deep/f"] == "old"
    assert seen(place.fs / "e")["sub/deep/f"] == "new"
    if how == "replaced":
        place.inside("rm -r d && mv e d")
    elif how == "swapped":
        place.inside("mv d t && mv e d && mv t e")
    else:
        place.inside("mv d/sub t && mv e/sub d/sub && mv t e/sub")
    time.sleep(scale(1.2))
    for name in os.listdir(place.root):
        if not name.startswith("."):
            wanted = seen(place.root / name)
            wait_for(lambda n=name, w=wanted: seen(place.fs / n) == w, 1, name)
