"""TLS and proxies for tests: a private CA, a TLS terminator, a CONNECT proxy."""

import base64
import select
import selectors
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path


class PrivateCa:
    """A CA made by the openssl command, with certificates for the names that are asked for."""

    def __init__(self, name: str = "sbxfs test CA"):
        self.work = Path(tempfile.mkdtemp(prefix="sbx-ca."))
        self.cert = self.work / "ca.pem"
        self._key = self.work / "ca.key"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", self._key, "-out", self.cert, "-days", "2", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    @staticmethod
    def _openssl(*words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"openssl {words[0]}: {done.stderr}")

    def issue(self, *names: str) -> tuple[Path, Path]:
        """(certificate, key) for host names and addresses; the first is the common name too."""
        base = self.work / f"leaf{len(list(self.work.glob('leaf*.pem')))}"
        cert, key, request, extra = (
            base.with_suffix(suffix) for suffix in (".pem", ".key", ".csr", ".ext"))
        alternatives = ",".join(
            f"{'IP' if name.replace('.', '').isdigit() or ':' in name else 'DNS'}:{name}"
            for name in names)
        extra.write_text(f"subjectAltName={alternatives}\nbasicConstraints=CA:FALSE\n"
                         "extendedKeyUsage=serverAuth,clientAuth\n")
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", key, "-out", request, "-subj", f"/CN={names[0]}")
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key,
            "-CAcreateserial", "-days", "2", "-extfile", extra, "-out", cert)
        return cert, key


def _shut(sock, how):
    try:
        sock.shutdown(how)
    except OSError:
        pass


def _pump(source, sink):
    """Copies until end of file, then passes the end on."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        _shut(sink, socket.SHUT_WR)


def _splice(one, other):
    """Copies both ways until both ends are done, then closes both."""
    back = threading.Thread(target=_pump, args=(other, one), daemon=True)
    back.start()
    _pump(one, other)
    back.join()
    one.close()
    other.close()


class _Listener:
    """A threaded server on 127.0.0.1; counts its connections."""

    def __init__(self):
        self._sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._sock.getsockname()[1]
        self._lock = threading.Lock()
        self._live = set()
        self._count = 0
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        with self._lock:
            return self._count

    def _accept(self):
        while True:
            try:
                client, _ = self._sock.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    client.close()
                    return
                self._count += 1
                self._live.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            self.serve(client)
        except OSError:
            pass
        finally:
            with self._lock:
                self._live.discard(client)
            client.close()

    def serve(self, client):
        raise NotImplementedError

    def drop(self):
        """Cuts every connection that is open now."""
        with self._lock:
            live = list(self._live)
        for client in live:
            _shut(client, socket.SHUT_RDWR)

    def close(self):
        with self._lock:
            self._closed = True
        _shut(self._sock, socket.SHUT_RDWR)
        self._sock.close()
        self.drop()


class TlsTerminator(_Listener):
    """https in front of a plain server.

    client_ca: certificates of clients are required and must come from that CA.
    """

    def __init__(self, target_port: int, cert: Path, key: Path, client_ca: Path = None):
        self._target = ("127.0.0.1", target_port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        if client_ca:
            self._context.load_verify_locations(client_ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        super().__init__()

    def url(self, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}"

    def serve(self, client):
        with _handshake(self._context, client) as inner:
            with socket.create_connection(self._target) as server:
                _relay_tls(inner, server)


def _handshake(context, client):
    client.settimeout(30)
    inner = context.wrap_socket(client, server_side=True)
    inner.settimeout(None)
    return inner


def _relay_tls(inner, server):
    """Between a TLS and a plain socket by one thread: an SSL object is no two threads' thing."""
    inner.setblocking(False)
    with selectors.DefaultSelector() as ready:
        ready.register(inner, selectors.EVENT_READ)
        ready.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is server:
                    data = server.recv(65536)
                    if not data:
                        return
                    _send_tls(inner, data)
                elif not _receive_tls(inner, server):
                    return


def _send_tls(inner, data):
    view = memoryview(data)
    while view:
        try:
            view = view[inner.send(view):]
        except ssl.SSLWantWriteError:
            select.select([], [inner], [])
        except ssl.SSLWantReadError:
            select.select([inner], [], [])


def _receive_tls(inner, server) -> bool:
    """Passes on all that is decrypted by now; False at the end."""
    while True:
        try:
            data = inner.recv(65536)
        except ssl.SSLWantReadError:
            return True
        if not data:
            return False
        server.sendall(data)


class ConnectProxy(_Listener):
    """An HTTP proxy: CONNECT, and plain requests in absolute form.

    hosts maps host names to ports on 127.0.0.1, so that names that exist nowhere can be reached
    through the proxy only. credentials ("user:password") are required when given. targets lists
    what was asked for, in order.
    """

    def __init__(self, hosts: dict = None, credentials: str = None):
        self._hosts = dict(hosts or {})
        self._credentials = credentials
        self.targets = []
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data or len(head) > 65536:
                return
            head += data
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ", 2)
        if self._credentials is not None and not self._authorised(rest):
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                           b"Proxy-Authenticate: Basic realm=\"t\"\r\nContent-Length: 0\r\n"
                           b"Connection: close\r\n\r\n")
            return
        if method == "CONNECT":
            authority, forward = target, head.partition(b"\r\n\r\n")[2]
        else:
            authority, _, path = target.partition("://")[2].partition("/")
            forward = f"{method} /{path} {version}\r\n".encode("latin-1") + rest
        with self._lock:
            self.targets.append(authority)
        try:
            server = self._connect(authority, 443 if method == "CONNECT" else 80)
        except OSError:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with server:
            if forward:
                server.sendall(forward)
            _splice(client, server)

    def _authorised(self, headers: bytes) -> bool:
        wanted = b"basic " + base64.b64encode(self._credentials.encode())
        for line in headers.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"proxy-authorization":
                scheme, _, word = value.strip().partition(b" ")
                return scheme.lower() + b" " + word == wanted
        return False

    def _connect(self, authority: str, default_port: int):
        host, _, port = authority.rpartition(":") if ":" in authority else (authority, "", "")
        if host in self._hosts:
            return socket.create_connection(("127.0.0.1", self._hosts[host]), timeout=10)
        return socket.create_connection((host, int(port or default_port)), timeout=10)
