"""A real OAuth 2 server, node-oidc-provider, whose clients a test changes.

    with TokenServer(authority, folder, {"relay": "secret"}, life_s=2) as server:
        server.token_url
        server.is_valid("eyJ…")
        server.set_clients({"relay": "other"})
"""

import base64
import json
import os
import shutil
import ssl
import subprocess
import urllib.request

from drivers.harness import CACHE, build_once, locked, npm_install

from .files import replace
from .process import Process, free_port, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "oidc-provider@8"
JUDGE = "judge"  # the client that asks whether a token is valid


def _installed():
    """The folder with the program and its packages."""
    folder = os.path.join(CACHE, "oidc")
    with locked(folder):
        build_once(os.path.join(folder, "made-from"), PACKAGE, lambda: subprocess.run(
            npm_install(folder, PACKAGE), check=True, capture_output=True, timeout=600))
        shutil.copy(os.path.join(HERE, "oidc.mjs"), folder)
    return folder


class TokenServer:
    def __init__(self, authority, folder, clients, life_s):
        self.authority = authority
        self.clients = os.path.join(str(folder), "clients.json")
        self.set_clients(clients)
        self.log = os.path.join(str(folder), "oidc.log")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.token_url = f"{self.url}/token"
        certificate, key = authority.issue("tokens")
        self.command = ["node", os.path.join(_installed(), "oidc.mjs"), str(self.port), key, certificate, self.clients,
                        str(life_s)]
        self.context = ssl.create_default_context(cafile=authority.certificate)

    def set_clients(self, clients):
        replace(self.clients, json.dumps({**clients, JUDGE: "asks"}))

    def is_valid(self, token):
        pair = base64.b64encode(f"{JUDGE}:asks".encode()).decode()
        request = urllib.request.Request(f"{self.token_url}/introspection", f"token={token}".encode(), {
            "Authorization": f"Basic {pair}", "Content-Type": "application/x-www-form-urlencoded"})
        with urllib.request.urlopen(request, context=self.context, timeout=30) as response:
            return json.load(response)["active"]

    def __enter__(self):
        self.process = Process(self.command, self.log)
        wait_for(lambda: "ready" in self.process.output(), 60, "the token server")
        return self

    def __exit__(self, *_):
        self.process.kill()
