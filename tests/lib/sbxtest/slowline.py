"""A line to a server that carries little: what is sent waits at the sender, unseen by who sent."""

import socket
import threading
import time

# So that what is on its way is on the client's side, and moves in small steps, as on a network.
RECEIVE_BUFFER = 8 * 1024
SEGMENT = 1448


class SlowLine:
    """Relays connections to a port of this machine; upwards with so many bytes a second.

    stop() stands still from then on, upwards.
    """

    def __init__(self, port: int, bytes_per_s: int):
        self._port, self._rate = port, bytes_per_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._free = 0  # when what was taken so far has gone
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def stop(self):
        self._stopped.set()

    def close(self):
        self.stop()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for source, sink, slow in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=(source, sink, slow),
                                 daemon=True).start()

    def _wait_turn(self, size: int):
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            until = self._free
        time.sleep(max(0, until - time.monotonic()))

    def _carry(self, source, sink, slow):
        step = max(1, self._rate // 20)
        try:
            while data := source.recv(step if slow else 65536):
                if slow:
                    self._wait_turn(len(data))
                while slow and self._stopped.is_set():
                    time.sleep(0.05)
                    if self._listener.fileno() < 0:
                        return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        finally:
            if not slow:
                source.close()
                sink.close()
