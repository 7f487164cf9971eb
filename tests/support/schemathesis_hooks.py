"""Loaded by schemathesis."""
import itertools
from urllib.parse import quote

import requests
import schemathesis
from urllib3.connection import HTTPConnection

numbers = itertools.count()
connect = HTTPConnection.connect


def connect_from_another_address(self):
    """Each connection comes from an address of its own: the relay delays its answers to one that has sent wrong tokens, by
    up to 5 seconds, and schemathesis sends many."""
    number = next(numbers)
    self.source_address = (f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0)
    connect(self)


HTTPConnection.connect = connect_from_another_address


@schemathesis.hook
def after_call(context, case, response):
    """Drops a publisher that was created: each report is about all publishers, and hundreds with 64 shards make it slow."""
    if (case.operation.method.upper(), case.operation.path, response.status_code) != ("POST", "/v1/publishers", 200):
        return
    name = response.json()["publisher"]
    dropped = requests.post(f"{response.request.url.partition('?')[0]}/{quote(name, safe='')}/drop", timeout=30,
                            headers={"Authorization": response.request.headers["Authorization"], "Connection": "close"},
                            json={"reason": "it was created by a test", "confirm": f"Drop publisher {name}?"})
    assert dropped.status_code == 200, dropped.text
