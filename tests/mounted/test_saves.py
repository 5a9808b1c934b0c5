"""What the sandbox sees of saves: whole versions only, and every appended line."""

import os
import re
import subprocess
import threading
import time

import pytest

from sbxtest import leftovers
from sbxtest.fixtures import quick_kinds
from sbxtest.timing import wait_for

# Reads the file over and over until `stop` is there; says how often, and what was not whole.
READER = """
import os, sys, time
reads = 0
while not os.path.exists('stop'):
    time.sleep(0.001)
    try:
        data = open('f', 'rb').read()
    except FileNotFoundError:
        print('missing')
        continue
    reads += 1
    if data not in (b'A' * int(sys.argv[1]), b'B' * int(sys.argv[1])):
        print('torn', len(data), data[:20])
print('reads', reads)
"""


class Reading:
    """A reader in the sandbox, while the block runs."""

    def __init__(self, place, length):
        self.place = place
        self.output = None
        self._thread = threading.Thread(target=self._run, args=(length,))

    def _run(self, length):
        self.output = self.place.inside("exec python3 -c \"$1\" $2", READER, length, seconds=120)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        (self.place.root / "stop").touch()
        self._thread.join()
        (self.place.root / "stop").unlink()

    def check(self):
        lines = self.output.split("\n")
        assert [line for line in lines if line.startswith(("torn", "missing"))] == []
        assert int(re.search(r"reads (\d+)", self.output)[1]) > 50


# How a program may save, in a shell that runs in fs.
SAVES = {
    "truncate": "printf %s {0} >f",
    "bash": "exec bash -c 'printf %s {0} >f'",
    "tee": "printf %s {0} | tee f >/dev/null",
    "cp": "printf %s {0} >$TMPDIR/f && cp $TMPDIR/f f",
}


@quick_kinds
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_truncating_saves_are_whole(place, shell):
    """300 saves of alternating contents by a shell's redirection, one request each."""
    count = 300 if shell == "bash" or os.environ.get("SBX_SLOW") == "1" else 50
    count = count if place.kind == "busybox-host" else min(count, 60)
    (place.fs / "f").write_text("A" * 20)
    (place.fs / "f").chmod(0o640)
    mark = place.log_mark()
    with Reading(place, 20) as reading:
        place.run(shell, "-ec", f"""
            i=0
            while [ $i -lt {count // 2} ]; do
                i=$((i + 1))
                printf {'B' * 20} >f
                printf {'A' * 20} >f
            done
        """, seconds=200)
    reading.check()
    programs = [r.program for r in place.server.log(mark) if r.program == "sbxfs-apply"]
    assert count <= len(programs) <= count + 5
    assert (place.root / "f").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("how", SAVES)
@pytest.mark.parametrize("length", [5000, 200000])
def test_saves_of_each_kind_are_whole(start_place, how, length):
    """Also of a size that goes up by a PUT."""
    place = start_place("gnu-host")
    for letter in "AB":
        (place.work / letter).write_text(letter * length)
    (place.fs / "f").write_text("A" * length)
    save = SAVES[how].replace("printf %s {0}", "cat {0}")
    with Reading(place, length) as reading:
        for index in range(12):
            place.sh(f"export TMPDIR={place.work}; " +
                     save.format(place.work / "BA"[index % 2]))
    reading.check()
    assert (place.root / "f").read_text() == "A" * length
    assert leftovers(place) == [] or all(name.startswith("ops/") for name in leftovers(place))


@quick_kinds
def test_children_of_a_shell_that_holds_a_file_open(place):
    """Each child's end is a FLUSH; that of the shell counts."""
    mark = place.log_mark()
    place.sh("{ for i in $(seq 200); do /bin/echo $i; done; } >out")
    assert (place.root / "out").read_text() == "".join(f"{i}\n" for i in range(1, 201))
    asked = [r for r in place.server.log(mark) if r.program == "sbxfs-apply" or r.route == "put"]
    assert len(asked) <= 4  # at most two uploads, the creation, and one more


def test_appends_from_both_sides(place):
    """1,000 lines from each, while a program in the sandbox holds the file open: none lost."""
    count = 1000
    (place.fs / "log").write_text("first\n")
    script = f"i=0; while [ $i -lt {count} ]; do i=$((i + 1)); echo there $i; done >>log"
    thread = threading.Thread(target=place.inside, args=(script,))
    thread.start()
    with open(place.fs / "log", "a", encoding="ascii") as file:
        for index in range(1, count + 1):
            file.write(f"here {index}\n")
            if index % 100 == 0:
                file.flush()
                os.fsync(file.fileno())
    thread.join()
    # And by programs that open it for each line.
    place.sh("for i in $(seq 10); do echo again $i >>log; done")
    lines = (place.root / "log").read_text().splitlines()
    assert lines[0] == "first"
    assert len(lines) == 2 * count + 11
    assert [line for line in lines if line.startswith("here")] == [
        f"here {i}" for i in range(1, count + 1)]
    assert [line for line in lines if line.startswith("there")] == [
        f"there {i}" for i in range(1, count + 1)]
    assert lines[-10:] == [f"again {i}" for i in range(1, 11)]
    place.fresh()
    assert (place.fs / "log").read_text().splitlines() == lines


def test_appends_of_a_file_that_stays_open(place):
    """They are sent every few seconds; what is not an append is not."""
    with open(place.fs / "log", "a", encoding="ascii") as log, \
            open(place.fs / "whole", "w", encoding="ascii") as whole:
        whole.write("half")
        whole.flush()
        log.write("one\n")
        log.flush()
        wait_for(lambda: (place.root / "log").exists() and
                 (place.root / "log").read_text() == "one\n", 6)
        log.write("two\n")
        log.flush()
        wait_for(lambda: (place.root / "log").read_text() == "one\ntwo\n", 6)
        assert not (place.root / "whole").exists()
        whole.write(" and half")
    assert (place.root / "whole").read_text() == "half and half"


@quick_kinds
def test_a_new_file_that_is_held_open(place):
    """dd that takes long: nothing of the file is seen before it is whole."""
    seconds = 20 if os.environ.get("SBX_SLOW") == "1" else 4
    feeder = subprocess.Popen(["sh", "-c", f"echo begin; sleep {seconds}; echo end"],
                              stdout=subprocess.PIPE)
    writer = subprocess.Popen(["dd", f"of={place.fs}/new", "bs=1", "status=none"],
                              stdin=feeder.stdout)
    feeder.stdout.close()
    seen = set()
    while writer.poll() is None:
        seen.add(place.inside("cat new 2>/dev/null", check=False))
        time.sleep(0.05)
    feeder.wait()
    assert writer.returncode == 0
    assert seen <= {"", "begin\nend\n"}
    assert place.inside("cat new") == "begin\nend\n"


def test_a_failed_save_is_whole_later(start_place):
    """Nobody in the sandbox sees a part of what could not be sent, and nothing is lost."""
    place = start_place("gnu-host", ["timeout=2"])
    (place.fs / "f").write_text("old")
    place.server.set_faults("exec:*:refuse", "put:*:refuse")
    with pytest.raises(OSError):
        with open(place.fs / "f", "w", encoding="ascii") as file:
            file.write("new" * 10000)
    assert (place.root / "f").read_text() == "old"
    assert (place.fs / "f").read_text() == "new" * 10000
    place.server.set_faults()
    wait_for(lambda: (place.root / "f").read_text() != "old", 30, step=0.001)
    assert (place.root / "f").read_text() == "new" * 10000
    wait_for(lambda: place.mount.status("dev1")["pending_writes"].startswith("0"), 10)


@pytest.mark.parametrize("written", [False, True])
def test_mode_of_a_file_just_made(place, written):
    """What the sandbox writes into a file that was made here and given a mode stays, but for the
    bytes that this side writes too."""
    fd = os.open(place.fs / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(fd, 0o640)
    (place.root / "new").write_text("from there")
    if written:
        os.write(fd, b"from here")
    os.close(fd)
    wait_for(lambda: (place.root / "new").stat().st_mode & 0o777 == 0o640, 5)
    assert (place.root / "new").read_text() == ("from heree" if written else "from there")
