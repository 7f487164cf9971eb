"""A business on an address of its own, as a process that can be killed and paused.

    with GrpcShop(folder, "127.0.0.2") as shop:
        shop.port, shop.answered()          # [(biz_id, word), …]

An id that ends with an even digit is committed, any other is rolled back: truth(biz_id).
"""

import os
import pathlib
import sys
import tempfile
import threading

import grpc

from .grpc_service import ROOT, GrpcService, messages
from .process import Process, wait_for


def truth(biz_id):
    return "rollback" if int(biz_id[-1]) % 2 else "commit"


def serve(host, port, *files):
    credentials = None
    if files:
        certificate, key = (pathlib.Path(file).read_bytes() for file in files)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
    with tempfile.TemporaryDirectory() as folder:
        pb = messages(folder)

    def answer(request, _):
        words = {one.biz_id: truth(one.biz_id) for one in request.ids}
        os.write(1, "".join(f"{biz_id} {word}\n" for biz_id, word in words.items()).encode())
        return pb.CheckResponse(answers=[
            pb.CheckAnswer(biz_id=biz_id, decision=pb.Decision.Value(f"DECISION_{word.upper()}"))
            for biz_id, word in words.items()])

    with GrpcService(answer, pb.CheckRequest.FromString, credentials, host, port) as service:
        os.write(1, f"port {service.port}\n".encode())
        threading.Event().wait()


class GrpcShop(Process):
    def __init__(self, folder, host="127.0.0.1", port=0, certificate=()):
        """certificate: its file and that of its key; without it there is no TLS."""
        log = tempfile.NamedTemporaryFile(dir=folder, prefix=f"shop-{host}-", delete=False).name
        super().__init__([sys.executable, "-m", "support.grpc_shop", host, port, *certificate], log,
                         folder=os.path.join(ROOT, "tests"))
        wait_for(lambda: self._lines(first="port") or not self.running, what="a port")
        self.host = host
        self.port = int(self._lines(first="port")[0][1])
        self.address = f"{host}:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.running:
            self.kill()

    def _lines(self, *seconds, first=None):
        lines = [tuple(line.split()) for line in self.output().splitlines()]
        return [line for line in lines if len(line) == 2 and (line[0] == first or line[1] in seconds)]

    def answered(self):
        return self._lines("commit", "rollback")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
