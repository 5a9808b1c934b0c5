"""apply: names, attributes and errors, as the system calls would do them."""

import errno
import os
import stat
import subprocess
import threading

import pytest

from sandbox import AND, EXCL, NOREPLACE, DriverError, Sandbox, lstat, seen
from test_scan import NAMES, path, write

NOW, OMIT = "now", "omit"


def content(box, name):
    with open(path(box, name), "rb") as file:
        return file.read()


def check(box, reply, *names):
    """The attributes in the reply are what is there now."""
    for name in names:
        told = reply.paths[os.fsencode(name)]
        assert told.present == os.path.lexists(path(box, name)), name
        if told.present:
            assert seen(told.attr) == lstat(path(box, name)), name


def test_mkdir_rmdir(box):
    for mode in ("755", "700", "0", "123", "777"):
        error, reply = box.do("mkdir", f"d{mode}", mode)
        assert error == 0 and reply.paths[b"d" + mode.encode()].attr.mode == 0o40000 | int(mode, 8)
        check(box, reply, "d" + mode, "")
    assert box.do("mkdir", "d755", "755")[0] == errno.EEXIST
    assert box.do("mkdir", "no/d", "755")[0] == errno.ENOENT
    write(box, "f")
    assert box.do("mkdir", "f", "755")[0] == errno.EEXIST
    assert box.do("mkdir", "f/d", "755")[0] == errno.ENOTDIR
    os.symlink("nowhere", path(box, "l"))
    assert box.do("mkdir", "l", "755")[0] == errno.EEXIST
    error, reply = box.do("rmdir", "d755")
    assert error == 0 and not reply.paths[b"d755"].present
    check(box, reply, "")
    write(box, "d700/f")
    assert box.do("rmdir", "d700")[0] == errno.ENOTEMPTY
    assert box.do("rmdir", "d755")[0] == errno.ENOENT
    assert box.do("rmdir", "f")[0] == errno.ENOTDIR
    os.symlink("d777", path(box, "ld"))
    assert box.do("rmdir", "ld")[0] == errno.ENOTDIR


def test_setgid_directory(box):
    assert box.do("mkdir", "s", "2775")[1].paths[b"s"].attr.mode == 0o42775
    assert box.do("chmod", "s", "755")[1].paths[b"s"].attr.mode == 0o40755


def test_unlink(box):
    write(box, "f", b"1")
    os.link(path(box, "f"), path(box, "g"))
    os.symlink("g", path(box, "l"))
    os.mkdir(path(box, "d"))
    os.symlink("d", path(box, "ld"))
    os.mkfifo(path(box, "p"))
    for name in ("f", "l", "ld", "p"):
        error, reply = box.do("unlink", name)
        assert error == 0
        check(box, reply, name, "")
        assert not reply.paths[name.encode()].present
    assert content(box, "g") == b"1"
    assert box.do("unlink", "f")[0] == errno.ENOENT
    assert box.do("unlink", "g/x")[0] == errno.ENOTDIR
    assert box.do("unlink", "d")[0] == errno.EISDIR
    os.chmod(path(box, "g"), 0)
    assert box.do("unlink", "g")[0] == 0


def test_unlink_held(box):
    write(box, "f", b"held")
    ino = os.stat(path(box, "f")).st_ino
    error, reply = box.do("unlink", "f", held=".sbxfs/held/1")
    assert error == 0 and reply.results[0].set_aside
    held = reply.paths[b".sbxfs/held/1"]
    assert held.present and held.attr.ino == ino and held.attr.nlink == 1
    assert content(box, ".sbxfs/held/1") == b"held"
    # What can't be linked is gone all the same, and the answer says so.
    os.symlink("x", path(box, "l"))
    error, reply = box.do("unlink", "l", held=".sbxfs/held/2")
    assert error == 0 and not reply.results[0].set_aside
    assert not reply.paths[b".sbxfs/held/2"].present


@pytest.mark.parametrize("new", (False, True))
def test_rename_table(box, new):
    """Every kind over every kind, beside what rename(2) says."""
    kinds = {
        "file": lambda p: open(p, "wb").close(),
        "dir": os.mkdir,
        "full": lambda p: (os.mkdir(p), open(os.path.join(p, "in"), "wb").close()),
        "link": lambda p: os.symlink("nowhere", p),
        "linkdir": lambda p: os.symlink(".", p),
        "fifo": os.mkfifo,
        "none": lambda p: None,
    }
    request = box.apply()
    cases = []
    for a, make_a in kinds.items():
        for b, make_b in kinds.items():
            for place in ("ours", "theirs"):
                os.makedirs(path(box, place), exist_ok=True)
                make_a(os.path.join(box.root, place, f"{a}-{b}-1"))
                make_b(os.path.join(box.root, place, f"{a}-{b}-2"))
            old, name = (os.path.join(box.root, "theirs", f"{a}-{b}-{i}") for i in (1, 2))
            want = 0
            if new and os.path.lexists(name) and os.path.lexists(old):
                want = errno.EEXIST
            else:
                try:
                    os.rename(old, name)
                except OSError as error:
                    want = error.errno
            if new and a in ("dir", "full") and want == 0 and not box.has("N"):
                want = errno.EINVAL
                os.rename(name, old)
            cases.append((a, b, want))
            request.rename(f"ours/{a}-{b}-1", f"ours/{a}-{b}-2", flags=NOREPLACE if new else 0)
    reply = request.send()
    for (a, b, want), result in zip(cases, reply.results):
        assert result.error == want, (a, b, result)
    assert tree(path(box, "ours")) == tree(path(box, "theirs"))
    check(box, reply, *[f"ours/{a}-{b}-{i}" for a, b, _ in cases for i in (1, 2)], "ours")


def tree(top):
    return sorted((os.path.relpath(os.path.join(where, name), top),
                   stat.S_IFMT(os.lstat(os.path.join(where, name)).st_mode))
                  for where, dirs, files in os.walk(top) for name in dirs + files)


def test_rename_corners(box):
    os.makedirs(path(box, "d/e"))
    write(box, "f", b"f")
    os.link(path(box, "f"), path(box, "g"))
    assert box.do("rename", "d", "d/e/x")[0] == errno.EINVAL
    assert box.do("rename", "d", "d/x")[0] == errno.EINVAL
    assert box.do("rename", "d/e", "d")[0] == errno.ENOTEMPTY
    assert box.do("rename", "f", "f/x")[0] == errno.ENOTDIR
    assert box.do("rename", "f", "no/x")[0] == errno.ENOENT
    assert box.do("rename", "d", "d")[0] == 0
    # Two names of one file: nothing is done.
    assert box.do("rename", "f", "g")[0] == 0
    assert os.path.exists(path(box, "f")) and os.path.exists(path(box, "g"))
    write(box, "h", b"new")
    write(box, "old", b"old")
    error, reply = box.do("rename", "h", "old", held=".sbxfs/held/a")
    assert error == 0 and reply.results[0].set_aside
    assert (content(box, "old"), content(box, ".sbxfs/held/a")) == (b"new", b"old")
    check(box, reply, "h", "old", "", ".sbxfs/held/a")
    # A directory is never entered by accident.
    os.mkdir(path(box, "empty"))
    assert box.do("rename", "d", "empty")[0] == 0
    assert os.listdir(path(box, "empty")) == [b"e"]


def test_rename_to_another_device(box):
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(box.root).st_dev:
        pytest.skip("no second filesystem")
    write(box, "f", b"f")
    there = f"/dev/shm/programs-{os.getpid()}-{box.kind}"
    assert box.do("rename", "f", there)[0] == errno.EXDEV
    assert not os.path.exists(there) and content(box, "f") == b"f"


def test_link(box):
    write(box, "f", b"f")
    os.mkdir(path(box, "d"))
    os.symlink("f", path(box, "l"))
    error, reply = box.do("link", "f", "g")
    assert error == 0 and reply.paths[b"g"].attr.nlink == 2
    check(box, reply, "f", "g", "")
    assert box.do("link", "f", "d")[0] == errno.EEXIST
    assert box.do("link", "f", "l")[0] == errno.EEXIST
    assert box.do("link", "no", "x")[0] == errno.ENOENT
    assert box.do("link", "f", "no/x")[0] == errno.ENOENT
    assert box.do("link", "d", "x")[0] == errno.EPERM
    assert os.listdir(path(box, "d")) == []
    assert box.do("link", "l", "m")[0] == 0
    assert os.readlink(path(box, "m")) == b"f"


def test_symlink(box):
    texts = NAMES + [b"/etc/passwd", b"x" * 4095, b"//", b"a/", b" "]
    request = box.apply()
    for i, text in enumerate(texts):
        request.symlink(f"l{i}", text)
    reply = request.send()
    for i, text in enumerate(texts):
        assert reply.results[i].error == 0, text
        assert os.readlink(path(box, f"l{i}")) == text
        assert reply.paths[b"l%d" % i].link == text
    os.mkdir(path(box, "d"))
    os.symlink("d", path(box, "ld"))
    for name in ("d", "ld", "l0"):
        assert box.do("symlink", name, "x")[0] == errno.EEXIST
    assert os.listdir(path(box, "d")) == []
    assert box.do("symlink", "x", b"")[0] == errno.ENOENT
    assert box.do("symlink", "no/x", b"y")[0] == errno.ENOENT


def test_chmod(box):
    write(box, "f")
    for mode in ("600", "755", "0", "7777", "4711", "644"):
        error, reply = box.do("chmod", "f", mode)
        assert error == 0 and reply.paths[b"f"].attr.mode == 0o100000 | int(mode, 8)
    os.symlink("f", path(box, "l"))
    assert box.do("chmod", "l", "600")[0] == errno.EOPNOTSUPP
    assert box.do("chmod", "no", "600")[0] == errno.ENOENT
    assert box.do("chmod", "f/x", "600")[0] == errno.ENOTDIR


TIMES = (
    (1_600_000_000_123456789, 1_500_000_000_987654321), (10**9, 10**9), (0, 0), (1, 999999999),
    (-5_500_000_000, -1_000_000_001), (2**32 * 10**9 + 7, 2**33 * 10**9), (OMIT, 77 * 10**9),
    (77 * 10**9, OMIT), (OMIT, OMIT), (NOW, NOW), (NOW, 5 * 10**9), (5 * 10**9, NOW))


def test_utimens(box):
    write(box, "f")
    os.mkdir(path(box, "d"))
    os.symlink("nowhere", path(box, "l"))
    for atime, mtime in TIMES:
        for name in ("f", "d", "l"):
            os.utime(path(box, name), ns=(10**18, 10**18), follow_symlinks=False)
            error, reply = box.do("utimens", name, atime, mtime)
            assert error == 0, (name, atime, mtime)
            st = os.lstat(path(box, name))
            # The attributes of a link come with its text, and reading that sets its atime.
            times = ((atime, st.st_atime_ns), (mtime, st.st_mtime_ns))
            for want, found in times[name == "l":]:
                if want == OMIT:
                    want = 10**18
                elif want == NOW:
                    assert abs(found - st.st_ctime_ns) < 10**9, (name, atime, mtime)
                    continue
                elif not box.has("t"):
                    want = want // 10**9 * 10**9
                assert found == want, (name, atime, mtime)
            check(box, reply, name)
    assert box.do("utimens", "no", NOW, NOW)[0] == errno.ENOENT
    assert not os.path.exists(path(box, "no"))
    assert box.do("utimens", "f/x", 1, 1)[0] == errno.ENOTDIR


def test_truncate_extend(box):
    write(box, "f", b"0123456789")
    for size in (4, 0, 5000, 5 << 30, 3):
        error, reply = box.do("truncate", "f", size)
        assert error == 0 and reply.paths[b"f"].attr.size == size
        check(box, reply, "f")
    for size, want in ((2, 3), (10, 10), (6 << 30, 6 << 30)):
        error, reply = box.do("extend", "f", size)
        assert error == 0 and reply.paths[b"f"].attr.size == want
    os.symlink("f", path(box, "l"))
    os.mkdir(path(box, "d"))
    os.mkfifo(path(box, "p"))
    for verb in ("truncate", "extend"):
        for name, why in (("l", errno.ELOOP), ("d", errno.EISDIR), ("p", errno.EINVAL),
                          ("no", errno.ENOENT), ("f/x", errno.ENOTDIR)):
            assert box.do(verb, name, 7)[0] == why
    assert os.stat(path(box, "f")).st_size == 6 << 30
    assert not os.path.exists(path(box, "no"))


def test_create(box):
    for mode in ("644", "600", "755", "0", "666", "511"):
        error, reply = box.do("create", "f" + mode, mode)
        told = reply.paths[b"f" + mode.encode()].attr
        assert error == 0 and told.mode == 0o100000 | int(mode, 8) and told.size == 0
        check(box, reply, "f" + mode, "")
    os.mkdir(path(box, "d"))
    os.symlink("nowhere", path(box, "l"))
    os.mkfifo(path(box, "p"))
    write(box, "full", b"x")
    for name in ("f644", "d", "l", "p", "full"):
        assert box.do("create", name, "644")[0] == errno.EEXIST
    assert content(box, "full") == b"x"
    assert not os.path.lexists(path(box, "nowhere"))
    assert box.do("create", "no/f", "644")[0] == errno.ENOENT
    assert box.do("create", "full/f", "644")[0] == errno.ENOTDIR


def test_race_for_a_name(box):
    """Of two requests at one time that make the same new name, one succeeds."""
    other = Sandbox(box.process.args[0], box.process.args[1], box.root)
    try:
        other.use(box.tools)
        for turn, (verb, *words) in enumerate([
                ("create", "644"), ("mkdir", "755"), ("create", "644"), ("symlink", "x")] * 3):
            barrier, errors = threading.Barrier(2), []

            def make(sandbox):
                request = sandbox.apply()
                getattr(request, verb)(f"one{turn}", *words)
                barrier.wait()
                errors.extend(request.send().errors)

            threads = [threading.Thread(target=make, args=(each,)) for each in (box, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(errors) == [0, errno.EEXIST], (verb, turn)
    finally:
        other.close()


def test_expect(box):
    write(box, "f", b"1")
    st = os.stat(path(box, "f"))
    assert box.do("expect", "f", st.st_dev, st.st_ino)[0] == 0
    assert box.do("expect", "f", st.st_dev, st.st_ino + 1)[0] == errno.ESTALE
    assert box.do("expect", "no", st.st_dev, st.st_ino)[0] == errno.ENOENT


def test_sequence_and_dependence(box):
    request = box.apply()
    request.mkdir("d", "755")
    request.create("d/f", "644", flags=AND)
    request.mkdir("d", "755")
    request.unlink("d/f", flags=AND)
    request.rmdir("d", flags=AND)
    request.mkdir("e", "755")
    request.rename("d/f", "e/g", flags=AND)
    reply = request.send()
    assert reply.errors == [0, 0, errno.EEXIST, errno.ECANCELED, errno.ECANCELED, 0, 0]
    assert os.listdir(path(box, "e")) == [b"g"]
    check(box, reply, "d", "d/f", "e", "e/g", "")


def test_names(box):
    request = box.apply()
    for name in NAMES:
        request.mkdir(b"a" + name[1:] if len(name) > 254 else b"a" + name, "755")
        request.create(name, "644")
    reply = request.send()
    assert set(reply.errors) == {0}
    assert set(NAMES) <= set(os.listdir(os.fsencode(box.root)))
    check(box, reply, *NAMES)
    request = box.apply()
    for name in NAMES:
        request.rename(name, b"z" + name[1:])
    assert set(request.send().errors) == {0}
    names = os.listdir(os.fsencode(box.root))
    request = box.apply()
    for name in names:
        if name != b".sbxfs":
            request.rmdir(name) if os.path.isdir(path(box, name)) else request.unlink(name)
    assert set(request.send().errors) == {0}
    assert os.listdir(box.root) == [".sbxfs"]


def test_refused_paths(box):
    request = box.apply()
    for name, why in ((b"../x", errno.EINVAL), (b"a/../b", errno.EINVAL),
                      (b"a//b", errno.EINVAL), (b"a/", errno.EINVAL), (b"./a", errno.EINVAL),
                      (b"a", 0), (b"a/./b", errno.EINVAL),
                      (b"x" * 256, errno.ENAMETOOLONG), (b"x/" * 2100 + b"y", errno.ENAMETOOLONG)):
        try:
            request.create(name, "644")
            assert why == 0
        except DriverError as error:
            assert error.errno == why, name
    assert request.send().errors == [0]


def test_exactly_once(box):
    request = box.apply("id-1")
    request.mkdir("d", "755")
    request.rmdir("no")
    first = request.send()
    os.rmdir(path(box, "d"))
    again = request.send()
    assert not first.repeated and again.repeated
    assert first.errors == again.errors == [0, errno.ENOENT]
    assert first.paths == again.paths
    assert not os.path.exists(path(box, "d"))
    assert os.listdir(path(box, ".sbxfs/ops")) == [b"id-1"]


@pytest.mark.long(9)
def test_once_while_it_runs(box):
    """The same id while the first is under way, and after its owner died."""
    write(box, ".sbxfs/ops/id-2")
    request = box.apply("id-2")
    request.mkdir("d", "755")
    if box.kind in ("gnu", "busybox"):  # it is waited for, 8 s
        waiter = subprocess.Popen(["sh", "-c", 'sleep 1; printf %s "$1" >"$2"', "sh",
                                   "not yet", path(box, ".sbxfs/ops/id-2")])
        with pytest.raises(DriverError) as caught:
            request.send()
        assert waiter.wait() == 0
        assert caught.value.errno == errno.EINPROGRESS
    os.utime(path(box, ".sbxfs/ops/id-2"), (1, 1))
    with pytest.raises(DriverError) as caught:
        request.send()
    assert caught.value.errno == errno.EUCLEAN
    assert not os.path.exists(path(box, "d"))


def test_what_is_voided_is_not_done(box):
    request = box.apply()
    request.void("held")
    request.create("f", "644")
    assert request.send().errors == [0, 0]
    held = box.apply("held")
    held.mkdir("d", "755")
    with pytest.raises(DriverError) as caught:
        held.send()
    assert caught.value.errno == errno.ECANCELED
    assert not os.path.exists(path(box, "d"))
    # Twice is once, and what was done is over.
    for late in ("held", "held", "done"):
        done = box.apply("done")
        done.mkdir("e", "755")
        assert done.send().errors == [0]
        request = box.apply()
        request.void(late)
        assert request.send().errors == [0]
    assert os.path.isdir(path(box, "e"))
    request = box.apply()
    with pytest.raises(DriverError) as caught:
        request.void("../held")
    assert caught.value.errno == errno.EINVAL


@pytest.mark.long(9)
def test_what_has_begun_is_waited_for(box):
    """It can't be taken back: what is asked for since comes after it, if it ends in time."""
    write(box, ".sbxfs/ops/begun")
    ends = subprocess.Popen(["sh", "-c", 'sleep 1; printf "t x." >"$1"; : >"$2"', "sh",
                             path(box, ".sbxfs/ops/begun"), path(box, "by-the-first")])
    request = box.apply()
    request.void("begun")
    request.unlink("by-the-first")
    errors = request.send().errors
    assert ends.wait() == 0
    assert errors == [0, 0]
    if box.kind in ("gnu", "busybox"):  # 8 s
        write(box, ".sbxfs/ops/stuck")
        request = box.apply()
        request.void("stuck")
        request.create("f", "644")
        assert request.send().errors == [errno.EBUSY, 0]
    write(box, ".sbxfs/ops/dead")
    os.utime(path(box, ".sbxfs/ops/dead"), (1, 1))
    request = box.apply()
    request.void("dead")
    assert request.send().errors == [0]


def test_work_directory_is_made(box):
    subprocess.run(["rm", "-rf", path(box, ".sbxfs")], check=True)
    error, reply = box.do("create", "f", "644")
    assert error == 0 and not reply.not_kept
    assert content(box, ".sbxfs/.gitignore") == b"*\n"
    for name in ("", "/stage", "/ops", "/held", "/jobs"):
        assert os.stat(path(box, ".sbxfs" + name)).st_mode & 0o7777 == 0o700


def test_without_work_directory(box):
    """Names can be removed although nothing can be kept."""
    subprocess.run(["rm", "-rf", path(box, ".sbxfs")], check=True)
    write(box, ".sbxfs")
    write(box, "f")
    error, reply = box.do("unlink", "f")
    assert error == 0 and reply.not_kept


def test_sweep(box):
    for name in ("stage/a", "held/b", "ops/c"):
        write(box, ".sbxfs/" + name)
    os.utime(path(box, ".sbxfs/stage/a"), (1, 1))
    write(box, ".sbxfs/stage/new")
    request = box.apply("mine")
    request.sweep("stage", 10, "none")
    request.sweep("held", 0, "none")
    request.sweep("ops", 0, "none")
    assert request.send().errors == [0, 0, 0]
    assert os.listdir(path(box, ".sbxfs/stage")) == [b"new"]
    assert os.listdir(path(box, ".sbxfs/held")) == []
    assert os.listdir(path(box, ".sbxfs/ops")) == [b"mine"]


def test_sweep_of_a_client(box):
    for name in ("stage/aa1-x", "stage/aa1-y", "stage/aa-z", "held/aa1-v"):
        write(box, ".sbxfs/" + name)
    request = box.apply("mine")
    request.sweep("stage", 0, "aa1")
    assert request.send().errors == [0]
    assert os.listdir(path(box, ".sbxfs/stage")) == [b"aa-z"]
    assert os.listdir(path(box, ".sbxfs/held")) == [b"aa1-v"]
    with pytest.raises(DriverError):
        box.apply("other").sweep("stage", 0, "*")


def test_limits(box):
    box.limits(command=24 * 1024)
    request = box.apply()
    added = 0
    with pytest.raises(DriverError) as caught:
        for i in range(1000):
            request.create(f"some-file-{i}", "644")
            added += 1
    assert caught.value.errno == errno.E2BIG and added > 50
    reply = request.send()
    assert reply.errors == [0] * added
    with pytest.raises(DriverError) as caught:
        box.limits(arg=4096)
        box.do("create", "x", "644")
    assert caught.value.errno == errno.E2BIG


def test_takes_a_look_along(box):
    os.mkdir(path(box, "d d"))
    write(box, "d d/old")
    now = box.scan("list", "") and box.clock
    os.utime(path(box, "d d"), (1, 1))
    request = box.apply("id-3")
    request.create("d d/new", "644")
    request.unlink("no")
    box.survey("since", "d d", "", since=now - 10**9)
    reply = request.send()
    assert reply.errors == [0, errno.ENOENT] and not reply.repeated
    check(box, reply, "d d/new", "d d")
    seen_then, clock = box.surveyed, box.clock
    assert seen_then.keys() == {b"d d", b""} and clock >= now
    expected = box.scan("list", "d d")
    assert seen_then[b"d d"] == expected[b"d d"]
    assert seen_then[b"d d"].entries.keys() == {b"old", b"new"}
    # What was done is told once more; what there is to see is not.
    again = request.send()
    assert again.repeated and again.errors == reply.errors and box.surveyed is None


def test_the_outcome_comes_where_the_look_does_not_fit(box):
    for i in range(300):
        write(box, os.urandom(60).hex())
    box.limits(reply=3000)
    request = box.apply()
    request.create("new", "644")
    box.survey("list", "")
    reply = request.send()
    assert reply.errors == [0] and box.surveyed is None
    box.limits(command=24 * 1024)
    request = box.apply()
    request.create("newer", "644")
    box.survey("list", *(f"{i:0200}" for i in range(60)))
    assert request.send().errors == [0] and box.surveyed is None


def proven(reply):
    return [result.proven for result in reply.results]


def test_what_the_attributes_of_a_save_prove(box):
    """The last of a request, and one whose time was asked for; never without nanoseconds."""
    has_ns = box.do("save", "probe", b"x")[1].paths[b"probe"].attr.has_ns
    request = box.apply()
    request.save("a", b"first")
    request.save("b", b"second", mtime=1_600_000_000_000_000_000)
    request.save("c", b"third")
    assert proven(request.send()) == [False, has_ns, has_ns]
    os.link(box.root + "/c", box.root + "/d")
    error, reply = box.do("save", "c", b"in place")
    assert error == 0 and proven(reply) == [False]


@pytest.mark.parametrize("change, same", [("printf DATA 1<>f", False), (":", True)])
def test_a_file_that_changes_before_it_is_looked_at(box, tmp_path, change, same):
    if box.kind in ("busybox", "busybox-bare"):
        return  # its sh runs the applets, whatever PATH says
    tools = tmp_path / "tools"
    tools.mkdir()
    driver, path, root = box.process.args
    for name in ("find", "stat"):
        (tools / name).write_text("#!/bin/sh\n"
                                  f'[ "$(cat f)" != data ] || {{ sleep 0.05; {change}; }}\n'
                                  f'PATH={path}\nexec {name} "$@"\n')
        (tools / name).chmod(0o755)
    other = Sandbox(driver, f"{tools}:{path}", root)
    try:
        other.use(box.tools)
        error, reply = other.do("save", "f", b"data")
    finally:
        other.close()
    assert error == 0
    assert proven(reply) == [same]


@pytest.mark.parametrize("says, status", [("mv: not replacing 'new'", 1), ("", 0)])
def test_another_makes_the_name_first(box, tmp_path, says, status):
    """Between the look and the rename. From coreutils 9.2 on mv -n calls that a failure."""
    if not box.has("N") or box.kind in ("busybox", "busybox-bare"):
        return  # another way, or a sh that runs the applets whatever PATH says
    tools = tmp_path / "tools"
    tools.mkdir()
    driver, path, root = box.process.args
    (tools / "mv").write_text("#!/bin/sh\necho theirs >new\n"
                              f'[ -z "{says}" ] || echo "{says}" >&2\nexit {status}\n')
    (tools / "mv").chmod(0o755)
    other = Sandbox(driver, f"{tools}:{path}", root)
    try:
        other.use(box.tools)
        box.do("save", "old", b"ours")
        assert other.do("rename", "old", "new", flags=NOREPLACE)[0] == errno.EEXIST
        os.unlink(root + "/new")
        assert other.do("save", "new", b"ours", flags=EXCL)[0] == errno.EEXIST
    finally:
        other.close()
    with open(root + "/new", encoding="ascii") as file:
        assert file.read() == "theirs\n"
