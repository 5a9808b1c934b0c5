"""The command: what it refuses and how it says so, other ways to start it, how it ends."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from sbxtest import MountError, sbxfs_path
from sbxtest.mount import is_mounted
from sbxtest.process import find_by_argument, is_running
from sbxtest.timing import scale, wait_for
from sbxtest.tls import ConnectProxy, PrivateCa, TlsTerminator

USAGE, MOUNT, TOKEN, SERVER = 1, 2, 3, 4


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Command:
    """Runs sbxfs by hand; stop() looks that nothing is left."""

    def __init__(self, work: Path):
        self.work = work
        self.mnt = work / "mnt"
        self.mnt.mkdir()
        self.dirs = f"state_dir={work}/state,cache_dir={work}/cache"

    def __call__(self, endpoint, options="", *, mnt=None, args=(), env=None, wrapper=(),
                 cwd="/", **fields):
        words = [self.dirs, options] if options else [self.dirs]
        line = [*wrapper, sbxfs_path(), *args, "-o", ",".join(words),
                *([endpoint] if endpoint else []), mnt or self.mnt]
        clean = {name: value for name, value in os.environ.items()
                 if not name.lower().endswith("_proxy") and not name.startswith("SBX_")}
        return subprocess.run([str(word) for word in line], cwd=cwd, env={**clean, **(env or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=scale(30), check=False, **fields)

    def refused(self, status: int, *args, **fields) -> str:
        """The one line that it says; nothing is left."""
        done = self(*args, **fields)
        assert done.returncode == status, done
        assert done.stdout == ""
        assert re.fullmatch(r"sbxfs: [^\n]+\n", done.stderr), done.stderr
        assert not is_mounted(self.mnt)
        assert find_by_argument(sbxfs_path(), str(self.mnt)) == []
        return done.stderr

    def unmount(self):
        subprocess.run(["fusermount3", "-u", self.mnt], check=True)
        self.wait_gone()

    def wait_gone(self, seconds=15):
        wait_for(lambda: not find_by_argument(sbxfs_path(), str(self.mnt)), seconds)
        assert not is_mounted(self.mnt)


@pytest.fixture
def command(tmp_path):
    command = Command(tmp_path)
    yield command
    if is_mounted(command.mnt):
        command.unmount()


def test_help_and_version(command):
    done = command(None, args=["-h"])
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("token_file", "cacert", "cert", "key", "proxy", "noproxy", "insecure_http",
                 "timeout", "ttl", "attach", "noprobe", "exec", "subtree", "delay_connect",
                 "state_dir", "cache_dir", "uid", "gid", "umask", "allow_other", "ro", "max_conn",
                 "log_level"):
        assert re.search(rf"\b{word}\b", done.stdout), word
    done = command(None, args=["-V"])
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"sbxfs [0-9.]+", done.stdout)


@pytest.mark.parametrize("endpoint, options", [
    ("ftp://127.0.0.1", ""), ("127.0.0.1:80", ""), ("http://", ""), ("http://127.0.0.1:0", ""),
    ("http://127.0.0.1:99999", ""), ("http://127.0.0.1/a/../b", ""), ("http://a b/", ""),
    ("http://user:secret1@127.0.0.1", ""), ("http://secret1@127.0.0.1", ""),
    ("http://127.0.0.1/?token=secret1", ""), ("http://127.0.0.1/#secret1", ""),
    ("http://127.0.0.1", "token=secret1"), ("http://127.0.0.1", "password=secret1"),
    ("http://127.0.0.1", "nonsense"), ("http://127.0.0.1", "timeout=soon"),
    ("http://127.0.0.1", "uid=-1"), ("http://127.0.0.1", "umask=9"),
    ("http://127.0.0.1", "exec=perhaps"), ("http://127.0.0.1", "symlinks=some"),
    ("http://127.0.0.1", "log_level=loud"), ("http://127.0.0.1", "attach=bad/id"),
    (None, ""),
])
def test_usage(command, endpoint, options):
    line = command.refused(USAGE, endpoint, options)
    assert "secret1" not in line


def test_two_many_words(command):
    line = command.refused(USAGE, "http://127.0.0.1", args=["http://127.0.0.1"])
    assert "sbxfs" in line


@pytest.mark.core
def test_mount_point(command, start_sbxd, tmp_path):
    server = start_sbxd()
    line = command.refused(MOUNT, server.url, mnt=tmp_path / "missing")
    assert str(tmp_path / "missing") in line and "No such file" in line
    (tmp_path / "file").write_text("")
    assert "not a directory" in command.refused(MOUNT, server.url, mnt=tmp_path / "file")
    assert command(server.url).returncode == 0
    done = command(server.url)
    assert done.returncode == MOUNT and "mounted there already" in done.stderr
    assert os.listdir(command.mnt)


@pytest.mark.parametrize("how", ["missing", pytest.param("forbidden", marks=pytest.mark.root)])
def test_fuse_device(command, start_sbxd, how):
    server = start_sbxd()
    script = "mount -t tmpfs -o nodev none /dev"
    if how == "forbidden":
        script += "; mknod /dev/fuse c 10 229"
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    line = command.refused(MOUNT, server.url,
                           wrapper=[*unshare, "sh", "-ec", f"{script}; exec \"$@\"", "sh"])
    assert "/dev/fuse: " in line


def test_directories_that_can_not_be_made(command, start_sbxd, tmp_path):
    server = start_sbxd()
    (tmp_path / "file").write_text("")
    line = command.refused(MOUNT, server.url, f"state_dir={tmp_path}/file/state")
    assert f"{tmp_path}/file" in line


def test_token(command, start_sbxd, tmp_path):
    server = start_sbxd(token="the-right-token")
    wrong = tmp_path / "token"
    wrong.touch(mode=0o600)
    wrong.write_text("another-token\n")
    line = command.refused(TOKEN, server.url, f"token_file={wrong}")
    assert "refuses the token" in line and str(wrong) in line and "another-token" not in line
    line = command.refused(TOKEN, server.url, env={"SBX_TOKEN": "another-token"})
    assert "environment" in line and "another-token" not in line
    assert "refuses the token" in command.refused(TOKEN, server.url)
    line = command.refused(TOKEN, server.url, f"token_file={tmp_path}/missing")
    assert "No such file" in line
    for text in ("", "\n", "two words\n", "two\nlines\n", "x" * 5000):
        wrong.write_text(text)
        assert str(wrong) in command.refused(TOKEN, server.url, f"token_file={wrong}")
    done = command(server.url, env={"SBX_TOKEN": "the-right-token"})
    assert (done.returncode, done.stderr) == (0, "")
    command.unmount()
    wrong.write_text("the-right-token\n")
    os.chmod(wrong, 0o644)
    done = command(server.url, f"token_file={wrong}")
    assert done.returncode == 0 and "can be read by others" in done.stderr


def test_a_token_never_goes_over_plain_http(command):
    """To another host than this one; nothing is even connected to."""
    begin = time.monotonic()
    line = command.refused(TOKEN, "http://192.0.2.1", env={"SBX_TOKEN": "secret1"})
    assert "insecure_http" in line and "secret1" not in line
    with ConnectProxy() as proxy:
        line = command.refused(TOKEN, "http://192.0.2.1", f"insecure_http,proxy={proxy.url}",
                               env={"SBX_TOKEN": "secret1"})
        assert proxy.connections == 0
    assert time.monotonic() - begin < scale(5)


def test_unreachable(command):
    endpoint = f"http://127.0.0.1:{closed_port()}"
    line = command.refused(SERVER, endpoint)
    assert endpoint in line and "Connection refused" in line and "-o delay_connect" in line
    assert re.search(r"unsent files: 0$", line.strip())
    line = command.refused(SERVER, "https://no-such-host.invalid", "timeout=5")
    assert "no-such-host.invalid" in line and "-o delay_connect" in line


def test_no_server_of_ours(command, start_sbxd):
    """A listener that never answers, and one that speaks something else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin = time.monotonic()
        line = command.refused(SERVER, f"http://127.0.0.1:{listener.getsockname()[1]}",
                               "timeout=2")
        assert "delay_connect" in line
        assert time.monotonic() - begin < scale(4)
    server = start_sbxd()
    server.set_faults("reattach:*:garbage")
    assert "delay_connect" in command.refused(SERVER, server.url)


def test_delay_connect_tells_unsent_files(command, start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url, ["timeout=4"])
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    identity = mount.status("dev1")["id"]
    files = [os.open(mount / "dev1/fs" / name, os.O_WRONLY | os.O_CREAT) for name in ("f", "new")]
    server.set_faults("*:*:refuse")
    for file in files:
        os.write(file, b"kept")
        with pytest.raises(OSError):
            os.close(file)
    mount.unmount()
    done = subprocess.run([str(word) for word in mount.command], capture_output=True, text=True,
                          cwd="/", check=False, timeout=scale(30))
    assert done.returncode == SERVER
    assert "-o delay_connect" in done.stderr
    assert done.stderr.rstrip().endswith("unsent files: 2")
    at = mount.command.index("-o") + 1
    mount.command[at] += ",delay_connect"
    begin = time.monotonic()
    mount.start()
    assert time.monotonic() - begin < scale(3)
    assert os.listdir(mount / "dev1")
    assert mount.status("dev1")["pending_writes"].split()[0] == "2"
    server.set_faults()
    wait_for(lambda: mount.status("dev1")["pending_writes"].split()[0] == "0", 20)
    assert (server.session_dir(identity) / "f").read_text() == "kept"
    assert (server.session_dir(identity) / "new").read_text() == "kept"


@pytest.fixture(scope="module")
def authority():
    with PrivateCa() as ca:
        yield ca


def test_private_ca(command, start_sbxd, authority):
    server = start_sbxd(token="t1")
    env = {"SBX_TOKEN": "t1"}
    cert, key = authority.issue("localhost")
    with TlsTerminator(server.port, cert, key) as tls, PrivateCa("another CA") as other:
        for options in ("", f"cacert={other.cert}", "cacert=/missing.pem"):
            before = len(server.log())
            line = command.refused(SERVER, tls.url(), options, env=env)
            assert re.search("certificate|cacert|TLS|SSL", line), line
            assert len(server.log()) == before
        line = command.refused(SERVER, tls.url("127.0.0.1"), f"cacert={authority.cert}", env=env)
        assert re.search("certificate|127.0.0.1", line)
        done = command(tls.url(), f"cacert={authority.cert}", env=env)
        assert (done.returncode, done.stderr) == (0, "")
        (command.mnt / "dev1").mkdir()
        (command.mnt / "dev1/fs/f").write_text("over TLS")
        assert (command.mnt / "dev1/fs/f").read_text() == "over TLS"
        command.unmount()


def test_client_certificate(command, start_sbxd, authority):
    server = start_sbxd()
    cert, key = authority.issue("localhost")
    own_cert, own_key = authority.issue("client")
    with TlsTerminator(server.port, cert, key, client_ca=authority.cert) as tls:
        command.refused(SERVER, tls.url(), f"cacert={authority.cert}")
        done = command(tls.url(), f"cacert={authority.cert},cert={own_cert},key={own_key}")
        assert (done.returncode, done.stderr) == (0, "")
        (command.mnt / "dev1").mkdir()
        command.unmount()


@pytest.mark.core
def test_proxies_of_the_environment_are_not_for_loopback(start_sbxd, start_mount):
    server = start_sbxd()
    with ConnectProxy() as proxy:
        names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        mount = start_mount(server.url, [f"proxy={proxy.url}"],
                            env={name: proxy.url for name in names})
        (mount / "dev1").mkdir()
        (mount / "dev1/fs/f").write_text("x" * 100000)
        mount.unmount()
        mount.start()
        assert (mount / "dev1/fs/f").read_text() == "x" * 100000
        assert proxy.connections == 0
        mount.unmount()


def test_connect_proxy_and_private_ca(start_sbxd, start_mount, authority):
    server = start_sbxd(token="over-the-proxy")
    cert, key = authority.issue("sbx.test")
    with TlsTerminator(server.port, cert, key) as tls, \
            ConnectProxy(hosts={"sbx.test": tls.port}) as proxy:
        for refused, status in ((proxy.url.replace("://", "://me:secret1@"), USAGE),
                                (f"http://127.0.0.1:{closed_port()}", SERVER)):
            with pytest.raises(MountError) as caught:
                start_mount("https://sbx.test", [f"proxy={refused}", f"cacert={authority.cert}"],
                            token=server.token)
            assert caught.value.status == status
            assert "secret1" not in caught.value.output
        mount = start_mount("https://sbx.test", [f"proxy={proxy.url}", f"cacert={authority.cert}"],
                            token=server.token)
        (mount / "dev1").mkdir()
        (mount / "dev1/fs/f").write_text("through")
        assert (mount / "dev1/fs/f").read_text() == "through"
        assert set(proxy.targets) == {"sbx.test:443"}
        mount.unmount()


def test_endpoint_of_the_environment(command, start_sbxd):
    server = start_sbxd()
    done = command(None, env={"SBX_ENDPOINT": server.url})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"endpoint: {server.url}\n" in (command.mnt / "status").read_text()


def test_slashes_at_the_end_of_the_endpoint(command, start_sbxd):
    server = start_sbxd()
    assert command(server.url + "//").returncode == 0
    (command.mnt / "dev1").mkdir()
    (command.mnt / "dev1/fs/f").write_text("x")


@pytest.mark.core
def test_a_dead_mount_is_replaced(start_sbxd, start_mount):
    mount = start_mount(start_sbxd().url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/f").write_text("x")
    mount.kill()
    with pytest.raises(OSError):
        os.listdir(mount.mnt)
    mount.start()
    assert (mount / "dev1/fs/f").read_text() == "x"
    with open("/proc/self/mountinfo") as table:
        assert sum(f" {mount.mnt} " in line for line in table) == 1


# In a namespace of its own, where sbxfs is in the path that mount(8) looks in.
MOUNT_8 = """
sbxfs=$1 url=$2 mnt=$3 options=$4 fstab=$5
mount -t tmpfs none /usr/local/bin
ln -s "$sbxfs" /usr/local/bin/sbxfs
mount -t fuse.sbxfs -o "$options" "$url" "$mnt"
mkdir "$mnt/dev1"
grep -q "^$url $mnt fuse.sbxfs " /proc/self/mounts
umount "$mnt"
echo "$url $mnt fuse.sbxfs $options 0 0" >"$fstab"
mount -T "$fstab" "$mnt"
ls "$mnt"
umount "$mnt"
mount -t fuse.sbxfs -o "${options%%token*}noauto" "$url" "$mnt" || echo refused
"""


@pytest.mark.root
def test_mount_8_and_fstab(command, start_sbxd, tmp_path):
    server = start_sbxd(token="t1")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("t1\n")
    options = f"{command.dirs},_netdev,nofail,noauto,token_file={token}"
    done = subprocess.run(["unshare", "-m", "sh", "-ec", MOUNT_8, "sh", sbxfs_path(), server.url,
                           command.mnt, options, tmp_path / "fstab"], check=True, text=True,
                          capture_output=True, timeout=scale(30))
    assert "dev1\n" in done.stdout and done.stdout.endswith("refused\n")
    assert re.fullmatch(r"sbxfs: .*refuses the token[^\n]*\n", done.stderr)
    command.wait_gone()


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_publish_what_is_unsent(start_sbxd, start_mount, number):
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    sandbox = server.session_dir(mount.status("dev1")["id"])
    file = os.open(mount / "dev1/fs/f", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"not closed")
    assert not (sandbox / "f").exists()
    mount.signal(number)
    mount.wait_gone(10)
    assert not is_mounted(mount.mnt)
    with pytest.raises(OSError):
        os.close(file)
    assert (sandbox / "f").read_bytes() == b"not closed"
    mount.check_reports()


@pytest.mark.parametrize("fault", ["refuse", "blackhole"])
def test_ending_without_a_server(command, start_sbxd, fault):
    """It ends within the timeout and says what is kept; the next mount sends it."""
    server = start_sbxd()
    words = [str(word) for word in (sbxfs_path(), "-f", "-o", command.dirs + ",timeout=3",
                                    server.url, command.mnt)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: is_mounted(command.mnt), 10)
        (command.mnt / "dev1").mkdir()
        (command.mnt / "dev1/fs/f").write_text("old")
        status = (command.mnt / "dev1/status").read_text()
        sandbox = server.session_dir(re.search(r"\nid: (\S+)", status)[1])
        server.set_faults(f"*:*:{fault}")
        with pytest.raises(OSError):
            (command.mnt / "dev1/fs/f").write_text("new")
        subprocess.run(["fusermount3", "-u", command.mnt], check=True)
        begin = time.monotonic()
        _, said = process.communicate(timeout=scale(8))
        assert time.monotonic() - begin < scale(3 + 1.5)
    finally:
        process.kill()
        process.wait()
    assert re.search(rf"1 files? .*{command.work}/state", said), said
    server.set_faults()
    assert command(server.url).returncode == 0
    os.listdir(command.mnt / "dev1/fs")
    wait_for(lambda: (sandbox / "f").read_text() == "new", 10)


def test_unmounting_sends_what_a_close_could_not(start_sbxd, start_mount):
    server = start_sbxd()
    mount = start_mount(server.url)
    (mount / "dev1").mkdir()
    (mount / "dev1/fs/first").write_text("x")
    sandbox = server.session_dir(mount.status("dev1")["id"])
    server.set_faults("exec:*:status=500", "put:*:status=500")
    with pytest.raises(OSError):
        (mount / "dev1/fs/f").write_text("kept")
    server.set_faults()
    mount.unmount()
    assert (sandbox / "f").read_text() == "kept"


def test_a_second_mount_works_beside(start_sbxd, start_mount):
    """Of the same endpoint with the same state directory."""
    server = start_sbxd()
    one = start_mount(server.url)
    (one / "dev1").mkdir()
    two = start_mount(server.url, state_dir=one.state_dir, cache_dir=one.cache_dir)
    (one / "dev1/fs/f").write_text("one")
    assert (two / "dev1/fs/f").read_text() == "one"
    (two / "dev1/fs/g").write_text("two")
    wait_for(lambda: (one / "dev1/fs/g").exists(), 5)
    pid = one.pid
    one.unmount()
    assert not is_running(pid)
    (two / "dev1/fs/g").write_text("still")
    assert (two / "dev1/fs/g").read_text() == "still"


@pytest.mark.core
@pytest.mark.parametrize("spelled", ["{mnt}/", "{work}//mnt", "{work}/./mnt", "{work}/link",
                                     "{work}/up/mnt", "{work}/deep/../mnt"])
def test_a_mount_point_by_another_name(command, start_sbxd, spelled):
    """It is known what is mounted there, alive or dead."""
    server = start_sbxd()
    (command.work / "link").symlink_to("mnt")
    (command.work / "up").symlink_to(".")
    (command.work / "deep").mkdir()
    given = spelled.format(mnt=command.mnt, work=command.work)
    try:
        assert command(server.url, mnt=given).returncode == 0
        done = command(server.url, mnt=given)
        assert done.returncode == MOUNT and "mounted there already" in done.stderr, done
        (command.mnt / "dev1").mkdir()
        (pid,) = find_by_argument(sbxfs_path(), given)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_running(pid), 10)
        done = command(server.url, mnt=given)
        assert (done.returncode, done.stderr) == (0, "")
        assert "dev1" in os.listdir(command.mnt)
        with open("/proc/self/mountinfo") as table:
            assert sum(f" {command.mnt} " in line for line in table) == 1
    finally:
        while is_mounted(command.mnt):
            subprocess.run(["fusermount3", "-uz", command.mnt], check=True)
        wait_for(lambda: not find_by_argument(sbxfs_path(), given), 15)


def test_files_named_in_options_may_be_relative(command, start_sbxd, authority):
    """Also for a mount in the background, which stands in another directory."""
    server = start_sbxd(token="t1")
    cert, key = authority.issue("localhost")
    own_cert, own_key = authority.issue("client")
    token = command.work / "token"
    token.touch(mode=0o600)
    token.write_text("t1\n")
    for name, file in (("ca.pem", authority.cert), ("c.pem", own_cert), ("k.pem", own_key)):
        (command.work / name).write_bytes(file.read_bytes())
    options = "cacert=ca.pem,cert=./c.pem,key=k.pem,token_file=token"
    with TlsTerminator(server.port, cert, key, client_ca=authority.cert) as tls:
        done = command(tls.url(), options, mnt="mnt", cwd=command.work)
        assert (done.returncode, done.stderr) == (0, "")
        (command.mnt / "dev1").mkdir()
        assert "dev1" in os.listdir(command.mnt)
        subprocess.run(["fusermount3", "-u", command.mnt], check=True)
        wait_for(lambda: not find_by_argument(sbxfs_path(), "mnt"), 15)


@pytest.mark.root
def test_a_mount_that_the_kernel_does_not_take(command, start_sbxd):
    """The first exchange with the kernel fails: that is no success."""
    line = command.refused(MOUNT, start_sbxd().url, wrapper=[
        "strace", "-f", "-o", "/dev/null", "-P", "/dev/fuse", "-e", "trace=read",
        "-e", "inject=read:error=ENODEV"])
    assert str(command.mnt) in line and "No such device" in line
