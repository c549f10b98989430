"""A server that receives webhooks, checks their signatures, and answers as it is told."""

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    """Takes messages; ``answers`` are the statuses of the next requests, then 204."""

    def __init__(self):
        self.got = []
        self.answers = []
        self.headers = {}
        self.hold = threading.Event()
        self.hold.set()
        """Cleared: requests are taken, and not answered."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(dict(self.headers.items()), body)
                receiver.hold.wait(60)
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?from=trails"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, headers, body):
        """Check a message as the libraries of Standard Webhooks do."""
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mine = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
        assert mine in headers["webhook-signature"].split()
        assert headers["content-type"] == "application/json"
        self.got.append((headers["webhook-id"], json.loads(body)))

    @property
    def commits(self):
        """The commits of the messages, in order."""
        return [body["data"]["commit"] for _, body in self.got]

    def close(self):
        """End."""
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
