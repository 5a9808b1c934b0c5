"""A file that a program in the sandbox appends to, followed here by tail -f."""

import subprocess

import pytest

from sbxtest import wait_for


@pytest.fixture
def tail(place):
    """tail(path) is a `tail -n +1 -f` of it and the file that it writes to; ended at the end."""
    started = []

    def start(path):
        shown = place.work / f"shown{len(started)}"
        with open(shown, "wb") as output:
            # Polling, as on a filesystem that tells of no changes.
            started.append(subprocess.Popen(
                ["tail", "-n", "+1", "-f", "-s", "0.2", str(path)], stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, env=place.env()))
        return shown
    yield start
    for process in started:
        process.kill()
        process.wait()


def append(place, name, text: str):
    with open(place.root / name, "a") as log:
        log.write(text)


def test_follow_shows_what_the_sandbox_appends(place, tail):
    append(place, "log", "first\n")
    shown = tail(place.fs / "log")
    expected = "first\n"
    wait_for(lambda: shown.read_text() == expected, 5, "tail did not show the first line")
    for number in range(4):
        append(place, "log", f"line {number}\n")
        expected += f"line {number}\n"
        wait_for(lambda: shown.read_text() == expected, 5,
                 f"tail does not follow: {shown.read_text()!r}")


def test_follow_of_a_big_file_reads_only_what_is_new(place, tail):
    start = "".join(f"{number:015}\n" for number in range(1 << 18))  # 4 MiB
    append(place, "log", start)
    shown = tail(place.fs / "log")
    wait_for(lambda: shown.stat().st_size == len(start), 20, "tail did not show the file")
    before = place.log_mark()
    append(place, "log", "the end\n")
    wait_for(lambda: shown.read_text() == start + "the end\n", 5, "tail does not follow")
    assert sum(record.bytes_out for record in place.server.log(before)) < 1 << 20


def test_open_file_follows_growth(place):
    append(place, "log", "one")
    with open(place.fs / "log", "rb", buffering=0) as log:
        assert log.read() == b"one"
        append(place, "log", "two")
        got = []
        wait_for(lambda: got.append(log.read()) or any(got), 5, "no growth seen")
        assert b"".join(got) == b"two"
