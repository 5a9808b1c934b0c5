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
    busybox, work_dir, cut, statfs = box.facts["flags"]
    assert busybox == str(int(box.kind.startswith("busybox")))
    assert (work_dir, cut, statfs) == ("1", "0", "1")
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
    assert box.probe(long=True)["flags"][2] == "0"
    facts = box.probe(long=True, cut=256 * 1024)
    assert facts["flags"][2] == "1" and facts["tools"] == box.facts["tools"]
    for cut in (0, 1, 50, 300):
        with pytest.raises(DriverError) as caught:
            box.probe(long=True, cut=cut)
        assert caught.value.errno == errno.EBADMSG


def test_reply_limit(box):
    for i in range(2000):
        open(f"{box.root}/some-name-{i * 7919 % 10007}", "wb").close()
    box.limits(reply=3000)
    with pytest.raises(DriverError) as caught:
        box.scan("list", "")
    assert caught.value.errno == errno.EMSGSIZE
