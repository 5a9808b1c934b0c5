"""make and compilers: times decide what is built, and what is built runs."""

import os
import time

import pytest

MAKEFILE = """
prog: main.o part.o
\tcc -o $@ $^
\techo linked >>log
%.o: %.c part.h
\tcc -c -o $@ $<
\techo $< >>log
"""

SOURCES = {
    "Makefile": MAKEFILE,
    "part.h": "int part(void);\n",
    "part.c": '#include "part.h"\nint part(void) { return 42; }\n',
    "main.c": '#include <stdio.h>\n#include "part.h"\n'
              'int main(void) { printf("%d\\n", part()); return 0; }\n',
}


def write_sources(place):
    for name, content in SOURCES.items():
        (place.fs / name).write_text(content)


def built(place):
    """What was made since the last call."""
    if not (place.fs / "log").exists():
        return []
    lines = (place.fs / "log").read_text().split()
    (place.fs / "log").unlink()
    return lines


def check_make(place):
    """Builds, sees that nothing is left to do, touches one, then another source."""
    write_sources(place)
    place.run("make", "-s")
    assert sorted(built(place)) == ["linked", "main.c", "part.c"]
    assert place.run("./prog") == "42\n"
    assert "up to date" in place.run("make")
    assert built(place) == []
    place.run("touch", "part.c")
    place.run("make", "-s")
    assert built(place) == ["part.c", "linked"]
    (place.fs / "part.c").write_text(SOURCES["part.c"].replace("42", "43"))
    place.run("make", "-s")
    assert built(place) == ["part.c", "linked"]
    assert place.run("./prog") == "43\n"
    assert "up to date" in place.run("make")


def test_make(place):
    check_make(place)
    # The same tree is up to date for the sandbox's make, and what is changed there is built here.
    assert "up to date" in place.inside("make")
    assert place.inside("./prog") == "43\n"
    place.inside("sed -i s/43/44/ part.c")
    place.fresh()
    place.run("make", "-s")
    assert built(place) == ["part.c", "linked"]
    assert place.run("./prog") == "44\n"
    assert "up to date" in place.inside("make")


@pytest.mark.parametrize("skew", [5000, -5000])
def test_make_where_clocks_differ(start_place, skew):
    place = start_place("gnu-host", args=["--clock-skew-ms", str(skew)])
    check_make(place)
    (place.fs / "stamp").write_text("")
    place.run("touch", "now")
    there = int(place.inside("date +%s"))
    assert abs(os.stat(place.fs / "stamp").st_mtime - there) < 4
    assert abs(os.stat(place.fs / "now").st_mtime - there) < 4
    assert abs(abs(there - time.time()) - 5) < 4


def test_parallel_make(place):
    write_sources(place)
    rules = "".join(f"out{i}: part.c\n\tcc -c -o out{i}.o part.c\n\tmv out{i}.o out{i}\n"
                    for i in range(6))
    (place.fs / "Makefile").write_text(f"all: {' '.join(f'out{i}' for i in range(6))}\n{rules}")
    place.run("make", "-sj4", "all")
    assert "Nothing to be done" in place.run("make", "all")
    sizes = {os.stat(place.root / f"out{i}").st_size for i in range(6)}
    assert len(sizes) == 1 and sizes != {0}


def test_gcc(place):
    """A library, a program linked to it by a map of the file, both run on each side."""
    write_sources(place)
    place.sh("""
        gcc -g -O1 -shared -fPIC -o libpart.so part.c
        ar rc libpart.a "$(gcc -c -fPIC part.c -o part.o && echo part.o)"
        gcc -g -o dynamic main.c -L. -l:libpart.so -Wl,-rpath,'$ORIGIN'
        gcc -g -o static main.c libpart.a
        strip -o stripped static
        test "$(./dynamic)" = 42
        test "$(./static)" = 42
        test "$(./stripped)" = 42
    """)
    assert place.inside("./dynamic; ./static; ./stripped") == "42\n42\n42\n"
    place.inside("gcc -o there main.c part.c")
    place.fresh()
    assert place.run("./there") == "42\n"
