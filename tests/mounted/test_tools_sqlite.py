"""sqlite3 on the mount: several writers, killed writers, and another in the sandbox."""

import os
import signal
import subprocess
import threading
import time

import pytest

from sbxtest.fixtures import quick_kinds
from sbxtest.timing import wait_for

WRITERS = 4
ROWS = 12

WRITER = """
import sqlite3, sys
path, who, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=50, isolation_level=None)
for row in range(rows):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO t VALUES (?, ?, ?)", (who, row, "x" * 500))
    db.execute("UPDATE total SET n = n + 1")
    db.execute("COMMIT")
db.close()
"""

# Says a line for each commit, for ever.
ENDLESS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=50, isolation_level=None)
db.execute("PRAGMA journal_mode=" + sys.argv[2]).fetchall()
row = 0
while True:
    db.execute("BEGIN IMMEDIATE")
    for part in range(20):
        db.execute("INSERT INTO t VALUES ('endless', ?, ?)", (row, "y" * 2000))
    db.execute("UPDATE total SET n = n + 20")
    db.execute("COMMIT")
    print(row, flush=True)
    row += 1
"""

SCHEMA = ("PRAGMA journal_mode={}; CREATE TABLE t(who, row, filler); CREATE TABLE total(n);"
          "INSERT INTO total VALUES (0);")


def query(place, sql, path=None):
    return place.run("sqlite3", "-cmd", ".timeout 50000", path or "db", sql).strip()


def check(place, path=None):
    assert query(place, "PRAGMA integrity_check", path) == "ok"
    assert query(place, "SELECT n = (SELECT count(*) FROM t) FROM total", path) == "1"


@pytest.mark.long(10)
@quick_kinds
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_writers(place, mode):
    query(place, SCHEMA.format(mode))
    writers = [subprocess.Popen(["/usr/bin/python3", "-c", WRITER, place.fs / "db", str(index),
                                 str(ROWS)], env=place.env(), stderr=subprocess.PIPE, text=True)
               for index in range(WRITERS)]
    failed = [error for error in (writer.communicate()[1] for writer in writers) if error]
    assert not failed, place.errors()
    check(place)
    assert query(place, "SELECT count(*) FROM t") == str(WRITERS * ROWS)
    assert query(place, "SELECT count(DISTINCT who || '.' || row) FROM t") == str(WRITERS * ROWS)
    # And so it is in the sandbox.
    query(place, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert place.inside("sqlite3 db 'PRAGMA integrity_check; SELECT n FROM total'").split() == [
        "ok", str(WRITERS * ROWS)]


@quick_kinds
@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
def test_a_killed_writer(place, mode):
    """What it had said to be committed is there, what it had not is there whole or not at all."""
    query(place, SCHEMA.format(mode))
    for delay in (0.03, 0.11):
        writer = subprocess.Popen(["/usr/bin/python3", "-c", ENDLESS, place.fs / "db", mode],
                                  env=place.env(), stdout=subprocess.PIPE, text=True)
        first = int(writer.stdout.readline())
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        said = [first, *map(int, writer.communicate()[0].split())]
        check(place)
        rows = int(query(place, "SELECT count(*) FROM t WHERE who = 'endless'"))
        assert rows % 20 == 0
        # One more than was said may have been committed.
        assert len(said) <= rows // 20 <= len(said) + 1
        query(place, "DELETE FROM t; UPDATE total SET n = 0")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_while_the_sandbox_has_it_open(place, mode):
    """Writers here do their work while a connection in the sandbox stays open, between two looks.

    Locks of the two sides do not know of each other, so it looks only while nobody writes. With a
    write-ahead log it may only read, and looks anew: sqlite shares its index by shared memory,
    which two machines don't have.
    """
    query(place, SCHEMA.format(mode))
    script = """
import os, sqlite3, sys, time
def connect():
    return sqlite3.connect('file:db?mode=' + sys.argv[1], timeout=50, uri=True)
db = connect()
print(*db.execute('SELECT n FROM total').fetchone())
open('looked', 'w').close()
end = time.monotonic() + 60
while not os.path.exists('written') and time.monotonic() < end:
    time.sleep(0.02)
if sys.argv[1] == 'ro':
    db.close()
    db = connect()
print(*db.execute('PRAGMA integrity_check').fetchone())
print(*db.execute('SELECT n, (SELECT count(*) FROM t) FROM total').fetchone())
"""
    seen = []
    reader = threading.Thread(target=lambda: seen.append(
        place.inside("exec python3 -c \"$1\" $2", script, "ro" if mode == "WAL" else "rw")))
    reader.start()
    try:
        wait_for(lambda: (place.root / "looked").exists(), 20)
        writers = [subprocess.Popen(["/usr/bin/python3", "-c", WRITER, place.fs / "db", str(index),
                                     "6"], env=place.env(), stderr=subprocess.PIPE, text=True)
                   for index in range(2)]
        failed = [error for error in (writer.communicate()[1] for writer in writers) if error]
        (place.fs / "written").write_text("x")
    finally:
        (place.root / "written").touch()
        reader.join()
    assert not failed
    assert seen == ["0\nok\n12 12\n"]
    check(place)
    assert query(place, "SELECT n FROM total") == "12"
