"""A server that answers Range with 206: only what is wanted of a big file moves."""

import os
import random

import pytest

MIB = 1 << 20


@pytest.fixture(params=[[], ["exec=no"]], ids=["exec", "no-exec"])
def place(request, start_place):
    place = start_place("gnu-host", request.param, ["--range"])
    with open(place.root / "big", "wb") as file:
        for _ in range(32):
            file.write(os.urandom(MIB))
    place.fresh()
    return place


def read(path, offset, size, part=128 << 10) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while size > 0:
            parts.append(os.pread(fd, min(size, part), offset))
            assert parts[-1], "it ends too early"
            offset += len(parts[-1])
            size -= len(parts[-1])
        return b"".join(parts)
    finally:
        os.close(fd)


def gets(place, mark):
    return [record for record in place.server.log(mark) if record.route == "fs"]


def test_the_end_of_a_big_file(place):
    mark = place.log_mark()
    wanted = read(place.root / "big", 20 * MIB, 12 * MIB)
    assert read(place.fs / "big", 20 * MIB, 12 * MIB) == wanted
    asked = gets(place, mark)
    assert asked and {record.status for record in asked} == {206}
    # What came before it stayed there.
    assert sum(r.bytes_in + r.bytes_out for r in place.server.log(mark)) < 15 * MIB


def test_parts_here_and_there(place):
    rand = random.Random(4)
    mark = place.log_mark()
    fd = os.open(place.fs / "big", os.O_RDONLY)
    try:
        for _ in range(20):
            offset = rand.randrange(32 * 256) * 4096
            assert os.pread(fd, 4096, offset) == read(place.root / "big", offset, 4096)
    finally:
        os.close(fd)
    assert {record.status for record in gets(place, mark)} <= {206}
    assert sum(r.bytes_in + r.bytes_out for r in place.server.log(mark)) < 20 * 256 * 1024


def test_all_of_it_after_a_part(place):
    wanted = (place.root / "big").read_bytes()
    assert read(place.fs / "big", 25 * MIB, 4096) == wanted[25 * MIB:25 * MIB + 4096]
    assert (place.fs / "big").read_bytes() == wanted
