"""probe: what it says of tools that are known."""

import errno
import os
import time

import pytest

from sandbox import DriverError


def test_facts(box):
    letters, ids = box.facts["tools"][0].split(",")
    assert ids == f"{os.geteuid()}:{os.getegid()}"
    if box.kind.startswith("gnu"):
        assert set("fzntTNkcRr") <= set(letters)
    else:
        assert set("znkr") <= set(letters) and not set("ftNcCR") & set(letters)
    busybox, work_dir, statfs = box.facts["flags"]
    assert busybox == str(int(box.kind.startswith("busybox")))
    assert (work_dir, statfs) == ("1", "1")
    assert box.facts["cwd"] == [box.root]
    st = os.statvfs(box.root)
    assert box.facts["statfs"] == [str(st.f_bsize), str(st.f_blocks), "255"]
    assert abs(int(box.facts["clock"][0]) - time.time_ns()) < 60 * 10**9
    assert {line[0]: line[1:] for line in box.ask("statfs")}["statfs"] == box.facts["statfs"]


def test_makes_the_work_directory_or_not(box):
    os.system(f"rm -rf {box.root}/.sbxfs")
    facts = box.probe(make=False)
    assert facts["flags"][1] == "0" and os.listdir(box.root) == []
    # What needs files is tried elsewhere.
    assert facts["tools"] == box.facts["tools"]
    assert box.probe()["flags"][1] == "1"
    made = sorted(os.listdir(box.root + "/.sbxfs"))
    assert made == [".gitignore", "held", "jobs", "ops", "stage"]
    assert os.listdir(box.root + "/.sbxfs/stage") == []


def test_cut_answers(box):
    for cut in (0, 1, 50, 300):
        with pytest.raises(DriverError) as caught:
            box.probe(cut=cut)
        assert caught.value.errno == errno.EBADMSG


def test_takes_a_first_look_along(box):
    os.makedirs(f"{box.root}/a/b c")
    for name in ("one", "a/two", "a/b c/three\n"):
        open(f"{box.root}/{name}", "wb").close()
    box.survey("tree", "")
    facts = box.probe()
    assert facts["tools"] == box.facts["tools"]
    seen = box.surveyed
    # A clock of its own, later than the probe's.
    assert box.clock >= int(facts["clock"][0]) and box.complete
    expected = box.scan("tree", "")
    assert seen.keys() == expected.keys() == {b"", b"a", b"a/b c"}
    for name, place in expected.items():
        assert seen[name] == place
    box.probe()
    assert box.surveyed is None


def test_facts_come_where_the_look_does_not_fit(box):
    for i in range(500):
        open(f"{box.root}/{i * 7919 % 10007:0200}", "wb").close()
    # A random name a file can't be packed so well.
    for i in range(300):
        open(f"{box.root}/{os.urandom(60).hex()}", "wb").close()
    box.limits(reply=3000)
    box.survey("list", "")
    assert box.probe()["tools"] == box.facts["tools"]
    assert box.surveyed is None


def test_reply_limit(box):
    for i in range(2000):
        open(f"{box.root}/some-name-{i * 7919 % 10007}", "wb").close()
    box.limits(reply=3000)
    with pytest.raises(DriverError) as caught:
        box.scan("list", "")
    assert caught.value.errno == errno.EMSGSIZE
