"""A server between a client and sbxd that changes answers: what a hostile server may send."""

import base64
import gzip
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Relay:
    """Passes requests on to an endpoint; change(method, target, body, answer) gives the answer.

    Only bodies are changed, and only those of answers with status 200.
    """

    def __init__(self, endpoint: str, change):
        relay = self
        self.change = change
        self._target = urlsplit(endpoint)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, kind, answer = relay.ask(self.command, self.path, body, self.headers)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = _pass_on

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def ask(self, method, target, body, headers):
        fields = {name: value for name, value in headers.items()
                  if name.lower() in ("authorization", "content-type")}
        connection = http.client.HTTPConnection(self._target.hostname, self._target.port,
                                                timeout=60)
        try:
            connection.request(method, target, body, fields)
            reply = connection.getresponse()
            answer = reply.read()
        finally:
            connection.close()
        if reply.status == 200:
            answer = self.change(method, target, body, answer)
        return reply.status, reply.getheader("Content-Type", ""), answer


def change_listing(body: bytes, answer: bytes, change) -> bytes:
    """The answer to an exec with what it lists changed; others as they are.

    A listing is the last section of a scan's answer, or of a probe's. The frame stays whole:
    header, lengths and nonce fit what is sent.
    """
    if not {"sbxfs-scan", "sbxfs-probe"} & set(json.loads(body)["argv"]):
        return answer
    reply = json.loads(answer)
    head, *sections, end, last = reply["stdout"].split("\n")
    words = head.split(" ")
    data = base64.b64decode(sections[-1])
    data = change(gzip.decompress(data) if words[-2] == "z" else data)
    sections[-1] = base64.b64encode(gzip.compress(data) if words[-2] == "z" else data).decode()
    if words[-1] != ".":
        words[-1] = str(len(sections[-1]))
    reply["stdout"] = "\n".join([" ".join(words), *sections, end, last])
    return json.dumps(reply).encode()
