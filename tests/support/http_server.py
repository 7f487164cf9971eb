"""An HTTP server of a test, with a thread for each connection; what fails on one is no matter of the others.

    class Handler(QuietHandler): …
    class Service(QuietServer): …

    with Service(("127.0.0.1", 0), Handler) as service:
        … service.server_port
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_):
        pass  # a client that closed its connection, or a handshake that failed

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
