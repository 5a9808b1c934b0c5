"""persist, hydrate, resume: whole, compared, interruptible, one at a time."""

import errno
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from sbxtest import scale, wait_for
from sbxtest.calls import order
from sbxtest.oddtree import OddTree, copy_tree, differences, remove_tree

KEPT = ["gnu-host", "gnu-overlay", "busybox-host"]


def last(mount, name="dev1"):
    return mount.status(name)["last"]


def snapshots(mount, name="dev1"):
    return sorted(entry for entry in os.listdir(mount / "snapshots" / name)
                  if entry.endswith(".tar"))


def state_files(mount, name="dev1"):
    top = next(mount.state_dir.iterdir()) / "snapshots" / name
    return sorted(os.listdir(top)) if top.exists() else []


@pytest.fixture
def gone(start_place):
    """A place whose session was persisted as `one` and deleted behind its back."""
    place = start_place()
    (place.fs / "d").mkdir()
    (place.fs / "d/f").write_text("kept\n")
    assert order(place.mount, "persist one") == 0
    with place.server.client() as client:
        client.delete(place.id)
    return place


def moved(place):
    """After a resume: where the workspace is now."""
    place.id = place.mount.status("dev1")["id"]
    place.root = place.server.session_dir(place.id)


@pytest.mark.long(25)
@pytest.mark.parametrize("kind", KEPT)
def test_all_of_a_workspace_comes_back(start_place, tmp_path, kind):
    place = start_place(kind)
    seconds = kind.startswith("busybox")
    before = tmp_path / "before"
    before.mkdir()
    OddTree(before, files=5000 if kind == "gnu-host" else 400, seconds=seconds)
    copy_tree(before, place.root)
    place.fresh()
    try:
        assert order(place.mount, "persist") == 0, place.errors()
        assert "by exec" in last(place.mount)  # names that are not UTF-8: the route can't
        with place.server.client() as client:
            client.delete(place.id)
        assert order(place.mount, "resume") == 0, place.errors()
        assert "verified" in last(place.mount) and "unstable: 0" in last(place.mount)
        moved(place)
        assert differences(before, place.root, 1 if seconds else 0) == []
        assert sorted(os.listdir(os.fsencode(place.fs))) == sorted(os.listdir(os.fsencode(before)))
    finally:
        remove_tree(before)


def test_by_the_route(start_place, tmp_path):
    """The same of a tree that the server's own archive can hold: it is what is used then."""
    place = start_place()
    before = tmp_path / "before"
    before.mkdir()
    OddTree(before, files=100, sparse_bytes=1 << 20, thawable=True)
    # Alone in its directory: cut to 99 bytes its name is nobody's else.
    copy_tree(before, place.root)
    place.fresh()
    try:
        assert order(place.mount, "persist") == 0, place.errors()
        assert "by route" in last(place.mount)
        with place.server.client() as client:
            client.delete(place.id)
        assert order(place.mount, "resume") == 0, place.errors()
        moved(place)
        assert differences(before, place.root) == []
    finally:
        remove_tree(before)


def test_what_is_no_file_is_left_out(start_place):
    place = start_place()
    os.mkfifo(place.root / "fifo")
    (place.root / os.fsdecode(b"\xff")).write_text("x")  # by exec: tar takes FIFOs
    place.fresh()
    assert order(place.mount, "persist") == 0, place.errors()
    assert "1 entries" in last(place.mount) and "by exec" in last(place.mount)
    (place.root / os.fsdecode(b"\xff")).unlink()
    place.fresh()
    assert order(place.mount, "hydrate") == 0, place.errors()
    assert (place.root / os.fsdecode(b"\xff")).read_text() == "x"


def test_unsent_bytes_are_in_it(start_place):
    place = start_place()
    with open(place.fs / "open", "w") as out:
        out.write("not closed")
        out.flush()
        assert order(place.mount, "persist one") == 0
    (place.root / "open").unlink()
    place.fresh()
    assert order(place.mount, "hydrate one") == 0
    assert (place.fs / "open").read_text() == "not closed"


def test_names_of_snapshots(start_place):
    mount = start_place().mount
    assert order(mount, "persist one") == 0
    assert order(mount, "persist one") == errno.EEXIST
    for name in (".hidden", "../up", "a/b", "x" * 65, "é"):
        assert order(mount, "persist " + name) == errno.EINVAL, name
        assert order(mount, "hydrate " + name) == errno.EINVAL, name
    assert order(mount, "hydrate none") == errno.ENOENT
    assert order(mount, "hydrate one wrong") == errno.EINVAL
    assert order(mount, "resume wrong") == errno.EINVAL
    assert snapshots(mount) == ["one.tar"]


def test_state_and_receipt(start_place):
    place = start_place()
    (place.fs / "f").write_text("content")
    assert order(place.mount, "persist") == 0
    name = snapshots(place.mount)[0]
    assert time.strftime("%Y%m%d") in name and name.endswith("Z.tar")
    state = json.loads(place.mount.read("dev1/state.json"))
    path = state["snapshot"]["ref"]
    assert state == {
        "backend": "remote", "ref": place.id,
        "snapshot": {"id": place.id, "backend": "remote-tar", "ref": path,
                     "createdAt": state["snapshot"]["createdAt"],
                     "metadata": {"remoteSessionId": place.id}}}
    assert os.stat(path).st_mode & 0o777 == 0o600
    with open(path, "rb") as kept, open(place.mount / "snapshots/dev1" / name, "rb") as shown:
        assert kept.read() == shown.read()
    receipt = json.loads(place.mount.read("dev1/snapshots/" + name[:-4] + ".json"))
    assert receipt["verified"] and receipt["unstable"] == 0
    assert [(entry["path"], entry["size"]) for entry in receipt["entries"]] == [("f", 7)]
    assert place.mount.status("dev1")["snapshot"].startswith(name[:-4])


def test_hydrate_refuses_what_would_be_lost(start_place):
    place = start_place()
    (place.fs / "f").write_text("old")
    (place.fs / "d").mkdir()
    assert order(place.mount, "persist one") == 0
    time.sleep(0.05)
    (place.fs / "f").write_text("newer")
    (place.fs / "other").write_text("stays")
    assert order(place.mount, "hydrate") == errno.EEXIST
    assert (place.root / "f").read_text() == "newer"
    assert order(place.mount, "hydrate over") == 0
    assert (place.fs / "f").read_text() == "old" and (place.fs / "other").read_text() == "stays"
    assert "extra: 1" in last(place.mount)
    (place.fs / "d").rmdir()
    (place.fs / "d").write_text("a file now")
    mark = place.log_mark()
    assert order(place.mount, "hydrate one over") == errno.ENOTDIR
    assert not any(record.route == "hydrate" for record in place.server.log(mark))
    assert "d is" in last(place.mount)


def test_hydrate_is_busy(start_place):
    place = start_place()
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist one") == 0
    with open(place.fs / "f", "a"):
        assert order(place.mount, "hydrate one") == errno.EBUSY
    (place.mount / "dev1/jobs/new").write_text("sleep 60\n")
    assert order(place.mount, "hydrate one") == errno.EBUSY
    job = os.readlink(place.mount / "dev1/jobs/latest")
    (place.mount / "dev1/jobs" / job / "control").write_text("cancel\n")
    place.mount.read(f"dev1/jobs/{job}/wait.20")
    assert order(place.mount, "hydrate one over") == 0, place.errors()


@pytest.mark.long(8)
def test_while_files_change(start_place):
    """A job that makes, changes and removes 50 files a second: what comes back is compared."""
    place = start_place()
    # Big enough that some files change while the archive is made, on a quick machine too.
    (place.root / "big").write_bytes(os.urandom(128 << 20))
    (place.mount / "dev1/jobs/new").write_text(
        "mkdir -p w; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); date >w/$((i % 200)); "
        "rm -f w/$(((i + 77) % 200)); sleep 0.02; done\n")
    wait_for(lambda: len(list((place.root / "w").glob("*"))) > 20, 20)
    assert order(place.mount, "persist busy") == 0, place.errors()
    job = os.readlink(place.mount / "dev1/jobs/latest")
    (place.mount / "dev1/jobs" / job / "control").write_text("cancel\n")
    place.mount.read(f"dev1/jobs/{job}/wait.20")
    (place.mount / "dev2").mkdir()
    for kind in ("tar", "json"):
        subprocess.run(["cp", place.mount / f"snapshots/dev1/busy.{kind}",
                        place.mount / "snapshots/dev2/"], check=True)
    assert order(place.mount, "hydrate busy", "dev2") == 0, place.mount.read("dev2/errors")
    assert "verified" in last(place.mount, "dev2")
    unstable = int(last(place.mount, "dev2").rpartition("unstable: ")[2])
    assert 0 < unstable < 400
    assert not (place.mount / "dev2/fs/.sbxfs").exists()


def test_resume_of_a_live_session_does_nothing(start_place):
    place = start_place()
    (place.fs / "f").write_text("x")
    assert order(place.mount, "persist") == 0
    (place.fs / "f").unlink()
    mark = place.log_mark()
    assert order(place.mount, "resume") == 0
    assert [record.route for record in place.server.log(mark)] == ["reattach"]
    assert not (place.fs / "f").exists()
    assert place.mount.status("dev1")["id"] == place.id


def test_resume_without_a_snapshot(start_place):
    place = start_place()
    with place.server.client() as client:
        client.delete(place.id)
    mark = place.log_mark()
    assert order(place.mount, "resume") == errno.ENODATA
    assert not any(record.route == "create" for record in place.server.log(mark))
    assert order(place.mount, "resume empty") == 0
    moved(place)
    assert os.listdir(place.fs) == []


def test_resume_from_a_damaged_snapshot(gone):
    place = gone
    path = json.loads(place.mount.read("dev1/state.json"))["snapshot"]["ref"]
    with open(path, "r+b") as archive:
        archive.seek(600)
        byte = archive.read(1)
        archive.seek(600)
        archive.write(bytes([byte[0] ^ 1]))
    mark = place.log_mark()
    assert order(place.mount, "resume") == errno.ENODATA
    assert not any(record.route == "create" for record in place.server.log(mark))
    assert "damaged" in last(place.mount) or "match" in last(place.mount), last(place.mount)


def test_resume_that_fails_leaves_no_session(gone):
    place = gone
    for fault in ("hydrate:*:status=500", "hydrate:*:drop", "exec:*:status=500"):
        place.server.set_faults(fault)
        mark = place.log_mark()
        assert order(place.mount, "resume") == errno.EIO, fault
        asked = [record.route for record in place.server.log(mark)]
        assert asked.count("create") == 1 and asked.count("delete") == 1, fault
        assert place.mount.status("dev1")["id"] == place.id, fault
    place.server.set_faults()
    assert order(place.mount, "resume") == 0, place.errors()
    assert (place.fs / "d/f").read_text() == "kept\n"


def test_what_was_unsent_comes_to_the_new_session(gone):
    place = gone
    place.server.set_faults("exec:*:status=500", "put:*:status=500")
    with pytest.raises(OSError):
        (place.fs / "unsent").write_text("kept here\n")
    with pytest.raises(OSError):
        (place.fs / "d/f").write_text("newer than the snapshot\n")
    place.server.set_faults()
    assert place.mount.status("dev1")["pending_writes"].split()[0] != "0"
    wait_for(lambda: order(place.mount, "resume") == 0, 10)
    moved(place)
    wait_for(lambda: place.mount.status("dev1")["pending_writes"].split()[0] == "0", 20)
    assert (place.root / "unsent").read_text() == "kept here\n"
    assert (place.root / "d/f").read_text() == "newer than the snapshot\n"


def test_programs_go_on_after_resume(gone):
    """A shell stands in a directory, a file that was read is read on, an editor saves."""
    place = gone
    with place.server.client() as client:
        lost = client.create()["sessionId"]
        client.delete(lost)
    shell = subprocess.Popen(["bash"], cwd=place.fs / "d", stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        with pytest.raises(OSError) as caught:
            (place.fs / "d/new").write_text("x")
        assert caught.value.errno == errno.ESTALE
        assert place.mount.status("dev1")["state"] == "gone"
        assert "resume" in place.mount.status("dev1")["note"]
        assert order(place.mount, "resume") == 0, place.errors()
        output, _ = shell.communicate("cat f; echo saved > g; cat g; pwd -P\n",
                                      timeout=scale(20))
        assert output.splitlines()[:2] == ["kept", "saved"]
        (place.fs / "d/f").write_text("edited\n")
        moved(place)
        assert (place.root / "d/f").read_text() == "edited\n"
        assert (place.root / "d/g").read_text() == "saved\n"
    finally:
        shell.kill()
        shell.wait()


def test_what_was_fetched_is_read_without_a_session(start_place):
    place = start_place()
    (place.root / "here").write_bytes(b"h" * 20000)
    (place.root / "there").write_bytes(b"t" * (8 << 20))
    place.fresh()
    assert len((place.fs / "here").read_bytes()) == 20000
    with open(place.fs / "here", "rb") as held:
        with place.server.client() as client:
            client.delete(place.id)
        wait_for(lambda: order(place.mount, "reattach") == errno.ESTALE, 10)
        assert held.read() == b"h" * 20000
        with pytest.raises(OSError) as caught:
            (place.fs / "there").read_bytes()
        assert caught.value.errno == errno.ESTALE


def test_forgotten_sessions_come_back(start_place):
    """rm -rf, delete, detach and a remount leave the snapshots; the same name gets them back."""
    place = start_place()
    (place.fs / "f").write_text("kept")
    assert order(place.mount, "persist one") == 0
    subprocess.run(["rm", "-rf", place.mount / "dev1"], check=False, capture_output=True)
    assert os.listdir(place.fs) == []
    for verb in ("delete", "detach"):
        assert order(place.mount, f"{verb} dev1", "") == 0
        assert not (place.mount / "dev1").exists()
        assert snapshots(place.mount) == ["one.tar"]
        place.mount.unmount()
        place.mount.start()
        assert snapshots(place.mount) == ["one.tar"]
        (place.mount / "dev1").mkdir()
        assert order(place.mount, "resume") == 0, place.errors()
        assert "verified" in last(place.mount)
        assert (place.fs / "f").read_text() == "kept"


def test_create_body_is_sent_again(start_place, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    (given / "there").write_text("x")
    place = start_place(args=["--root-dir-prefix", tmp_path])
    body = json.dumps({"runId": "r 1", "manifest": {"a": [1, None]}, "rootDir": str(given)})
    assert order(place.mount, f"create given {body}", "") == 0
    assert (place.mount / "given/fs/there").read_text() == "x"
    with place.server.client() as client:
        client.delete(place.mount.status("given")["id"])
    assert order(place.mount, "persist", "given") == errno.ESTALE
    assert order(place.mount, "resume", "given") == 0  # made again, there is nothing to hydrate
    assert place.mount.status("given")["root"] == str(given)
    assert (place.mount / "given/fs/there").read_text() == "x"


class Slow:
    """A persist that takes long, by a shell in a process group of its own."""

    def __init__(self, place, fault="persist:1:delay=20000", command="echo persist slow > control"):
        place.server.set_faults(fault)
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=place.mount / "dev1", start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(lambda: "persist" in place.mount.status("dev1")["verb"], 10)

    def end(self, number):
        begun = time.monotonic()
        os.killpg(self.process.pid, number)
        try:
            self.process.wait(scale(10))
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        return time.monotonic() - begun


def test_one_verb_at_a_time(start_place):
    place = start_place()
    mount = place.mount
    (place.fs / "f").write_text("x")
    slow = Slow(place)
    begun = time.monotonic()
    for how in (">", ">>"):
        done = subprocess.run(["bash", "-c", f"echo persist {how} control"], capture_output=True,
                              text=True, cwd=mount / "dev1")
        assert done.returncode == 1 and "busy" in done.stderr.lower()
    assert "persist" in mount.read("dev1/control")
    assert order(mount, "refresh") == errno.EBUSY
    assert time.monotonic() - begun < scale(3)
    seen = set()
    limit = time.monotonic() + 3.2
    while time.monotonic() < limit:
        seen.add(mount.read("dev1/status").partition("verb:")[2])
        time.sleep(0.1)
    assert len(seen) >= 3  # it moves each second
    assert slow.end(signal.SIGINT) < scale(3)
    wait_for(lambda: mount.status("dev1")["verb"] == "none", 3)
    assert state_files(mount) == []
    assert "EINTR" in last(mount)
    slow = Slow(place)
    assert slow.end(signal.SIGKILL) < scale(3)
    wait_for(lambda: mount.status("dev1")["verb"] == "none", 3)
    assert state_files(mount) == []
    place.server.set_faults()
    assert order(mount, "persist slow") == 0


def test_not_waited_for(start_place):
    place = start_place()
    (place.fs / "f").write_text("x")
    place.server.set_faults("persist:1:delay=3000")
    assert order(place.mount, "persist later &") == 0
    assert order(place.mount, "persist now") == errno.EBUSY
    wait_for(lambda: place.mount.status("dev1")["verb"] == "none", 20)
    assert last(place.mount).startswith("persist later &: ok")
    assert snapshots(place.mount) == ["later.tar"]


def test_cut_bodies(start_place):
    """The snapshot that was there stays, and nothing else."""
    place = start_place()
    (place.fs / "f").write_bytes(os.urandom(200000))
    assert order(place.mount, "persist good") == 0
    before = state_files(place.mount)
    state = place.mount.read("dev1/state.json")
    for fault in ("cut=512", "cut=100000", "cut=201000", "garbage", "drop"):
        place.server.set_faults(f"persist:*:{fault}")
        assert order(place.mount, "persist bad") == errno.EIO, fault
        assert state_files(place.mount) == before, fault
        assert place.mount.read("dev1/state.json") == state, fault
    place.server.set_faults()
    assert order(place.mount, "hydrate good") == 0


def test_token_is_nowhere(start_sbxd, start_mount):
    secret = "s3cr3t-token-of-this-test"
    server = start_sbxd(token=secret)
    mount = start_mount(server.url, token=secret)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    assert order(mount, "persist one") == 0
    with server.client() as client:
        client.delete(mount.status("dev1")["id"])
    assert order(mount, "resume") == 0
    server.set_faults("persist:*:echo-auth")
    # The route fails, and what its answer echoes is told without the token; exec serves as well.
    assert order(mount, "persist two") == 0
    assert "by exec" in last(mount) and "Authorization: [token]" in mount.read("dev1/errors")
    for top, _, names in os.walk(mount.state_dir):
        for name in names:
            with open(os.path.join(top, name), "rb") as file:
                assert secret.encode() not in file.read(), name
    assert secret not in mount.read("dev1/errors") + mount.read("dev1/status")


def test_eight_hydrates_and_a_reader(start_place):
    """Verbs of several sessions at once are each other's strangers."""
    place = start_place()
    mount = place.mount
    (place.fs / "f").write_bytes(os.urandom(1 << 20))
    assert order(mount, "persist one") == 0
    results = {}

    def run(name):
        (mount / name).mkdir()
        for kind in ("json", "tar"):
            subprocess.run(["cp", mount / f"snapshots/dev1/one.{kind}",
                            mount / f"snapshots/{name}/"], check=True)
        results[name] = order(mount, "hydrate one", name)

    threads = [threading.Thread(target=run, args=(f"s{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scale(60))
    assert results == {f"s{i}": 0 for i in range(8)}
