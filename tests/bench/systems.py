"""What is measured: a mount of each kind over one directory, behind the delaying proxy."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

from sbxtest import Mount, build_dir, quote, wait_for


class DelayProxy:
    """tests/bench/delayproxy in front of a port of this machine."""

    mbit = 0  # bandwidth each way, of all that is measured; 0: as much as there is

    def __init__(self, rtt_ms: int, port: int, work: Path):
        self._stats = Path(tempfile.mktemp(prefix="proxy.", dir=work))
        self._process = subprocess.Popen(
            [build_dir() / "tests/bench/delayproxy", str(rtt_ms), str(port), self._stats,
             str(self.mbit)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        line = self._process.stdout.readline().decode()
        self.port = int(line.rpartition(":")[2])

    def bytes(self) -> int:
        """Bytes that crossed it, both ways."""
        up, down, _ = struct.unpack("=QQQ", self._stats.read_bytes())
        return up + down

    def close(self):
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._stats.unlink(missing_ok=True)


class Local:
    """A directory of this machine's disk: how fast it could be."""

    name = "local"

    def __init__(self, served: Path, work: Path):
        self.served = served
        self.work = work

    def mount(self) -> Path:
        return self.served

    def unmount(self):
        pass

    def requests(self):
        return None

    def bytes(self):
        return None

    def close(self):
        pass


class Sbxfs(Local):
    name = "sbxfs"

    def __init__(self, served, work, sbxd, session, rtt_ms):
        super().__init__(served, work)
        self._sbxd = sbxd
        self._session = session
        self._proxy = DelayProxy(rtt_ms, sbxd.port, work)
        self._mount = None

    def mount(self) -> Path:
        self._mount = Mount(f"http://127.0.0.1:{self._proxy.port}",
                            [f"attach={self._session}:dev1"], token=self._sbxd.token)
        return self._mount / "dev1/fs"

    def unmount(self):
        if self._mount:
            self._mount.close()
            self._mount = None

    def requests(self):
        return len(self._sbxd.log())

    def bytes(self):
        return self._proxy.bytes()

    def close(self):
        self.unmount()
        self._proxy.close()

    def curl(self, *words, path: str) -> list:
        """A curl command for the file route, through the same proxy."""
        return ["curl", "-sSf", "--noproxy", "*", *words,
                f"http://127.0.0.1:{self._proxy.port}/sessions/{self._session}/fs?path="
                f"{quote(path)}"]


class _Peer(Local):
    """A server of its own, the proxy, and a mount through FUSE."""

    def __init__(self, served, work, rtt_ms):
        super().__init__(served, work)
        self._dir = Path(tempfile.mkdtemp(prefix=f"{self.name}.", dir=work))
        self._mnt = self._dir / "mnt"
        self._mnt.mkdir()
        self._process = None
        self._server, port = self._start_server()
        self._proxy = DelayProxy(rtt_ms, port, work)

    def mount(self) -> Path:
        self._process = subprocess.Popen(self._mount_command(), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         cwd=self._dir)
        wait_for(lambda: os.path.ismount(self._mnt), 30, f"{self.name} did not mount")
        return self._mnt

    def unmount(self):
        if self._process is None:
            return
        process, self._process = self._process, None
        unmounted = subprocess.run(["fusermount3", "-u", self._mnt], check=False,
                                   stderr=subprocess.DEVNULL)
        if unmounted.returncode:
            subprocess.run(["fusermount3", "-uz", self._mnt], check=False)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(self._dir / "cache", ignore_errors=True)

    def bytes(self):
        return self._proxy.bytes()

    def close(self):
        self.unmount()
        self._proxy.close()
        self._server.send_signal(signal.SIGTERM)
        self._server.wait()
        shutil.rmtree(self._dir, ignore_errors=True)

    def _spawn(self, command, port) -> subprocess.Popen:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=open(self._dir / "log", "wb"))
        wait_for(lambda: _listens(port), 20, f"the server of {self.name} did not start")
        return server


class Sshfs(_Peer):
    name = "sshfs"

    @staticmethod
    def installed() -> bool:
        return bool(shutil.which("sshfs")) and os.path.exists("/usr/sbin/sshd")

    def _start_server(self):
        port = _free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._dir / name],
                           check=True)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        config = self._dir / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {self._dir}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self._dir}/user.pub\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n")
        return self._spawn(["/usr/sbin/sshd", "-D", "-e", "-f", config], port), port

    def _mount_command(self):
        return ["sshfs", "-f", "-p", str(self._proxy.port), f"127.0.0.1:{self.served}", self._mnt,
                "-o", f"IdentityFile={self._dir}/user,StrictHostKeyChecking=no,"
                      f"UserKnownHostsFile={self._dir}/known,LogLevel=ERROR"]


class Rclone(_Peer):
    name = "rclone"

    @staticmethod
    def installed() -> bool:
        return bool(shutil.which("rclone"))

    def _start_server(self):
        port = _free_port()
        command = ["rclone", "serve", "webdav", self.served, "--addr", f"127.0.0.1:{port}",
                   "--config", "/dev/null", "--dir-cache-time", "0s"]
        return self._spawn(command, port), port

    def _mount_command(self):
        return ["rclone", "mount", ":webdav:", self._mnt, "--config", "/dev/null",
                "--webdav-url", f"http://127.0.0.1:{self._proxy.port}",
                "--vfs-cache-mode", "full", "--vfs-write-back", "0s",
                "--cache-dir", self._dir / "cache"]


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
