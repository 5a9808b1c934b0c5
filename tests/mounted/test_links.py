"""Symbolic links of the sandbox: none leads to a file of this machine, each leads where it should.

The jail of the overlay profile makes the difference seen: its /etc, /root and /tmp are its own.
"""

import errno
import os
import shutil
import stat
import subprocess
import threading
import time

import pytest

from sbxtest.fixtures import python_kinds

LOCAL = "a byte of this machine"
THERE = "what the sandbox has"

# What the sandbox makes: name, target. {secret} is a file that only this machine has.
HOSTILE = [
    ("passwd", "/etc/passwd"),
    ("up-passwd", "../../../etc/passwd"),
    ("far-up-passwd", "../../../../../../../../../../etc/passwd"),
    ("secret", "{secret}"),
    ("up-secret", "../../../../../../../../../..{secret}"),
    ("key", "/root/.ssh/id_rsa"),
    ("rooted-key", "/.ssh/id_rsa"),
    ("up-key", "../.ssh/id_rsa"),
    ("up-up-key", "../../.ssh/id_rsa"),
    ("up-up-root-key", "../../root/.ssh/id_rsa"),
    ("up", ".."),
    ("up-up", "../.."),
    ("up-up-up", "../../.."),
    ("root", "/"),
    ("dotted", "./../.././../../etc/passwd"),
    ("d/up-here", "../.."),
    ("d/deep/passwd", "../../../../../../etc/passwd"),
    ("through-up", "up/up/up/etc/passwd"),
    ("tangled", "d/../../../../etc/passwd"),
    ("tangled-up", "up/../../../etc/passwd"),
    ("via-proc", "/proc/self/root/etc/passwd"),
    ("via-fd", "/proc/self/cwd/../../../../etc/passwd"),
    ("dev", "/dev/fd/0"),
    ("other-mount", "../../status"),
    ("own-control", "../control"),
    ("hidden", "../.sbxfs-root/../../../../../etc/passwd"),
    ("loop", "loop"),
]

# Ways on from each of them.
TAILS = ["", "etc/passwd", "../etc/passwd", "root/.ssh/id_rsa", ".ssh/id_rsa",
         "../root/.ssh/id_rsa",
         "up/up/etc/passwd", "deep/../../../../etc/passwd", "up-here/../etc/passwd"]


def make_links(place, secret):
    script = "mkdir -p d/deep\n" + "".join(
        f"ln -s '{target.format(secret=secret)}' '{name}'\n" for name, target in HOSTILE)
    place.inside(script)
    place.fresh()


def all_paths():
    for name, _ in HOSTILE:
        for tail in TAILS:
            yield f"{name}/{tail}" if tail else name


def is_contained(text, depth):
    """Leading ..s that stay within the mount's own root, then plain names."""
    parts = text.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return ups <= depth and not any(part in ("", ".", "..") for part in parts[ups:])


@pytest.fixture
def secret(tmp_path):
    """A file of this machine that no jail holds."""
    path = tmp_path / "secret"
    path.write_text(LOCAL)
    return path


@pytest.fixture
def hostile(start_place, secret):
    place = start_place("gnu-overlay")
    place.inside(f"echo '{THERE}' >/etc/passwd; mkdir -p /root/.ssh; "
                 f"echo '{THERE}' >/root/.ssh/id_rsa")
    make_links(place, secret)
    return place


@pytest.mark.root
def test_hostile_links(hostile):
    """Read through the mount, by every way: the sandbox's bytes, or an error."""
    for name, _ in HOSTILE:
        try:
            text = os.readlink(hostile.fs / name)
        except PermissionError:
            continue
        assert is_contained(text, 2 + name.count("/")), (name, text)
    read = {}
    for path in all_paths():
        try:
            with open(hostile.fs / path, encoding="utf-8") as file:
                read[path] = file.read(1000)
        except (OSError, UnicodeDecodeError):
            continue
    assert [path for path, text in read.items() if LOCAL in text] == []
    for path in ("passwd", "up-passwd", "far-up-passwd", "key", "up-up-root-key", "dotted",
                 "d/deep/passwd"):
        assert read[path] == THERE + "\n", path
    local = open("/etc/passwd", encoding="utf-8").read()
    assert [path for path, text in read.items() if text == local[:1000]] == []


@pytest.mark.root
def test_a_link_that_is_swapped(hostile, secret):
    """Between readlink and what follows it becomes another link, or a directory, and back."""
    hostile.inside("mkdir sub; echo good >sub/secret; echo good >good")
    hostile.fresh()
    (hostile.root / "stop").unlink(missing_ok=True)
    script = (f"ln -s good a; ln -s {secret} b; ln -s sub c; ln -s {secret.parent} e; "
              "i=0; until [ -e stop ]; do cp -P a x; mv -T x l; cp -P b x; mv -T x l; "
              "cp -P c x; mv -T x m; cp -P e x; mv -T x m; done")
    thread = threading.Thread(target=hostile.inside, args=(script,))
    thread.start()
    seen = set()
    try:
        begun = time.monotonic()
        while (took := time.monotonic() - begun) < 3 or ("good\n" not in seen and took < 30):
            for path in ("l", "m/secret"):
                try:
                    seen.add((hostile.fs / path).read_text())
                except OSError as error:
                    seen.add(error.errno)
    finally:
        (hostile.root / "stop").touch()
        thread.join()
    assert LOCAL not in seen
    assert "good\n" in seen
    assert seen <= {"good\n", errno.ENOENT, errno.EPERM, errno.ESTALE, errno.ELOOP}


def in_another_root(fs, secret, script):
    """Runs a BusyBox script where / holds secrets and fs is /work; its output."""
    root = secret.parent / "root"
    for name in ("work", "root/.ssh", ".ssh", "etc", "bin"):
        os.makedirs(root / name)
    for name in ("root/.ssh/id_rsa", ".ssh/id_rsa", "etc/passwd", "status", "control"):
        (root / name).write_text(LOCAL)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-ec",
         'mount --bind "$1" "$2/work"; exec chroot "$2" /bin/busybox sh -c "$3"', "sh", str(fs),
         str(root), script], capture_output=True, text=True, check=False, errors="replace")
    assert done.stdout.startswith("start"), done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="binding mounts and chroot are root's")
@pytest.mark.parametrize("subtree", [False, True])
def test_hostile_links_in_another_root(hostile, secret, start_mount, subtree):
    """fs/ bound to /work of a root with keys in it, and so a mount of fs/ alone."""
    fs = hostile.fs
    if subtree:
        hostile.mount.unmount()
        alone = start_mount(hostile.server.url, ["subtree=dev1/fs"],
                            state_dir=hostile.mount.state_dir)
        fs = alone.mnt
        for name, target in HOSTILE:
            try:
                text = os.readlink(fs / name)
            except PermissionError:
                continue
            assert is_contained(text, name.count("/")), (name, target, text)
    words = " ".join(f"'{path}'" for path in all_paths())
    output = in_another_root(fs, secret, "/bin/busybox echo start; cd /work && for p in " + words +
                             "; do /bin/busybox head -c 1000 \"$p\"; done")
    assert LOCAL not in output


@pytest.mark.root
def test_links_lead_where_they_lead_there(hostile):
    """Made on either side: within the workspace as they are, outside of it mapped and back."""
    fs, root = hostile.fs, hostile.root
    cases = {"f": "f", "d/../f": None, "../elsewhere": None, "/usr/bin/env": None,
             "d/deep": "d/deep"}
    for index, (target, shown) in enumerate(cases.items()):
        os.symlink(target, fs / f"l{index}")
        assert os.readlink(root / f"l{index}") == target
        if shown:
            assert os.readlink(fs / f"l{index}") == shown
    # What is shown, copied to another directory by cp -a, means the same there.
    hostile.run("cp", "-a", "l3", "l3-copy")
    assert os.readlink(root / "l3-copy") == "/usr/bin/env"
    assert hostile.inside("readlink l3-copy; ./l3-copy echo runs") == "/usr/bin/env\nruns\n"
    assert os.stat(fs / "l3").st_size == os.stat("/usr/bin/env").st_size
    hostile.run("mv", "l3", "d/moved")
    assert hostile.inside("./d/moved echo runs") == "runs\n"
    assert subprocess.run([fs / "d/moved", "echo", "here"], capture_output=True, text=True,
                          check=True).stdout == "here\n"


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_what_is_behind_a_link(start_place, tmp_path, kind):
    """A ".." leaves the place that a link leads to, not the one where it stands."""
    place = start_place(kind)
    top = os.path.realpath(place.root)
    out = tmp_path / "out"
    (out / "in").mkdir(parents=True)
    (tmp_path / "file").write_text("up")
    (out / "file").write_text("out")
    (out / "back").symlink_to(f"{top}/g")
    place.inside("mkdir -p d/e/f g/h; echo here >g/file")
    cases = {
        "far": f"{out}/in", "near": "d/e", "again": "near", "whole": f"{top}/g/h",
        "l0": "far/../file", "l1": "far/../../file", "l2": "near/../../g/file",
        "l3": "again/f/../../../g/file", "l4": "whole/../file", "l5": "far/../back/file",
        "l6": "far/../back/h/../file", "d/l7": "../near/../e/../../g/./file",
        "l8": "d/e/../../far/../file", "l9": "far/..", "l10": "near/../../far/../back/../g/file",
        "l11": f"{out}/back/../g/file",
    }
    lost = {"nowhere": "none/../file", "file": "g/file/../file", "round": "round/../file",
            "proc": "/proc/self/../file"}
    for name, target in (cases | lost).items():
        (place.root / name).symlink_to(target)
    place.fresh()
    for name in lost:
        with pytest.raises(PermissionError):
            os.readlink(place.fs / name)
    outside = str(place.mount / place.name / ".sbxfs-root")
    for name in cases:
        text = os.readlink(place.fs / name)
        assert is_contained(text, 2 + name.count("/")), (name, text)
        there = os.path.realpath(place.root / name)
        # The workspace is in the sandbox's root as well, for who comes from there.
        found = os.path.realpath(place.fs / name).replace(str(place.fs), outside + top, 1)
        assert found == outside + there, (name, text)
        if os.path.isfile(there):
            assert (place.fs / name).read_bytes() == (place.root / name).read_bytes()


def test_links_have_times_of_their_own(place):
    (place.fs / "f").write_text("x")
    os.symlink("f", place.fs / "l")
    before = (place.root / "f").stat().st_mtime_ns
    os.utime(place.fs / "l", ns=(10 ** 18, 10 ** 18), follow_symlinks=False)
    assert os.lstat(place.fs / "l").st_mtime == 10 ** 9
    assert os.lstat(place.root / "l").st_mtime == 10 ** 9
    assert (place.root / "f").stat().st_mtime_ns == before
    assert os.lstat(place.fs / "l").st_size == 1


@pytest.mark.long(9)
@python_kinds
def test_a_copied_venv_runs(place):
    place.run("/usr/bin/python3", "-m", "venv", "--without-pip", "venv")
    place.run("cp", "-a", "venv", "venv2")
    script = "import sys, os; print(os.path.basename(sys.prefix), sys.prefix != sys.base_prefix)"
    assert place.inside("venv2/bin/python -c \"$1\"", script) == "venv2 True\n"
    assert place.run("venv2/bin/python", "-c", script) == "venv2 True\n"
    assert os.readlink(place.root / "venv2/bin/python3") == "/usr/bin/python3"
    assert os.readlink(place.root / "venv2/bin/python") == "python3"


def test_what_is_no_file_is_inert(place):
    """FIFOs and sockets are listed and can't be opened; no special bit is shown or set."""
    place.inside("mkfifo fifo; cp /bin/true suid 2>/dev/null || echo >suid; chmod 6755 suid; "
                 "mkdir sticky; chmod 1777 sticky")
    os.mknod(place.root / "socket", stat.S_IFSOCK | 0o600)
    place.fresh()
    assert sorted(os.listdir(place.fs)) == ["fifo", "socket", "sticky", "suid"]
    for name in ("fifo", "socket"):
        # Of both the kernel says ENXIO by itself; a FIFO that shows as one it would open.
        assert stat.S_ISSOCK(os.lstat(place.fs / name).st_mode)
        for flags in (os.O_RDONLY, os.O_RDONLY | os.O_NONBLOCK, os.O_RDWR):
            with pytest.raises(OSError) as caught:
                os.close(os.open(place.fs / name, flags))
            assert caught.value.errno == errno.ENXIO
        (place.fs / name).unlink()
        assert not os.path.lexists(place.root / name)
    assert os.stat(place.fs / "suid").st_mode & 0o7777 == 0o755
    assert os.stat(place.fs / "sticky").st_mode & 0o7777 == 0o777
    for mode in (0o4755, 0o2755):
        with pytest.raises(PermissionError):
            os.chmod(place.fs / "suid", mode)
    # On a directory, as tar, cp -a and git init --shared do it.
    for mode in (0o2775, 0o1777, 0o3750, 0o755):
        os.chmod(place.fs / "sticky", mode)
        assert os.stat(place.fs / "sticky").st_mode & 0o7777 == mode & 0o777
        assert os.stat(place.root / "sticky").st_mode & 0o7777 == mode
    with pytest.raises(PermissionError):
        os.mknod(place.fs / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
