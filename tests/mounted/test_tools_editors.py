"""Editors and what edits in place: each saves once, keeps the mode, leaves nothing beside."""

import os
import pty
import select
import subprocess
import time

import pytest

from sbxtest.timing import scale, wait_for


def text(place, name="f"):
    """The file as the sandbox has it, with its mode."""
    path = place.root / name
    return path.read_text(), path.stat().st_mode & 0o7777


@pytest.fixture
def script(place):
    """An executable file in the sandbox, that the mount has not seen yet."""
    path = place.root / "f"
    path.write_text("#!/bin/sh\necho one\n")
    path.chmod(0o755)
    return place.fs / "f"


@pytest.mark.parametrize("backupcopy", ["yes", "no", "auto"])
def test_vim(place, script, backupcopy):
    place.run("vim", "-Nu", "NONE", "-n", "-es", "-c", f"set backupcopy={backupcopy}",
              "-c", "%s/one/two/", "-c", "wq", script, cwd=place.work)
    assert text(place) == ("#!/bin/sh\necho two\n", 0o755)
    assert os.listdir(place.fs) == ["f"]
    place.run("vim", "-Nu", "NONE", "-es", "-c", f"set backupcopy={backupcopy} directory=.",
              "-c", "$put ='echo three'", "-c", "w", "-c", "%s/three/four/", "-c", "wq", "f")
    assert text(place) == ("#!/bin/sh\necho two\necho four\n", 0o755)
    assert os.listdir(place.fs) == ["f"]
    assert place.run(script) == "two\nfour\n"


def test_nano(place, script):
    """Keys on a terminal: a line at the top, save, leave."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve("/usr/bin/nano", ["nano", "--ignorercfiles", str(script)],
                  place.env(TERM="xterm"))
    seen, sent = b"", False
    limit = time.monotonic() + scale(30)
    while time.monotonic() < limit:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 4096)
            except OSError:
                break
        elif not sent and b"echo one" in seen:
            os.write(terminal, b"\x1b[B# nano\r\x0f\r\x18")
            sent = True
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert text(place) == ("#!/bin/sh\n# nano\necho one\n", 0o755)
    assert os.listdir(place.fs) == ["f"]


def test_in_place(place, script):
    place.run("sed", "-i", "s/one/two/", script)
    assert text(place) == ("#!/bin/sh\necho two\n", 0o755)
    place.run("sed", "-i.bak", "s/two/three/", script)
    assert text(place, "f.bak") == ("#!/bin/sh\necho two\n", 0o755)
    place.run("perl", "-pi", "-e", "s/three/four/", script)
    assert text(place) == ("#!/bin/sh\necho four\n", 0o755)
    place.run("perl", "-pi.old", "-e", "s/four/five/", script)
    assert text(place, "f.old") == ("#!/bin/sh\necho four\n", 0o755)
    assert sorted(os.listdir(place.fs)) == ["f", "f.bak", "f.old"]
    assert place.run(script) == "five\n"
    assert place.inside("./f") == "five\n"


def test_mode_survives_a_save(place, script):
    """>>, a truncation, and cp over."""
    place.sh("echo 'echo end' >>f")
    assert text(place) == ("#!/bin/sh\necho one\necho end\n", 0o755)
    place.sh(": >f")
    assert script.stat().st_size == 0
    wait_for(lambda: text(place) == ("", 0o755), 2)  # the kernel tells of the close later
    place.sh("printf '#!/bin/sh\\necho new\\n' >other; chmod 600 other; cp other f")
    assert text(place) == ("#!/bin/sh\necho new\n", 0o755)
    assert text(place, "other")[1] == 0o600
    place.sh("dd if=other of=f bs=1 seek=15 skip=15 count=3 conv=notrunc status=none")
    assert text(place)[1] == 0o755
    with open(script, "r+", encoding="ascii") as file:
        file.truncate(10)
    assert text(place) == ("#!/bin/sh\n", 0o755)


def test_a_reader_sees_a_save_of_each_kind(place, script):
    """Who reads here reads what was saved here, at once, however it was saved."""
    for index in range(5):
        for save in (f"echo {index}a >f", f"echo {index}b >t; mv t f", f"sed -i 's/.*/{index}c/' f",
                     f"echo {index}d >>f"):
            place.sh(save)
            wanted = place.root.joinpath("f").read_text()
            assert script.read_text() == wanted
            assert script.stat().st_size == len(wanted)
    assert subprocess.run(["cat", script], capture_output=True, check=True).stdout == b"4c\n4d\n"
