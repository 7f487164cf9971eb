"""A web service behind [deliver]: it charges each order once. Python's own library is all it needs.

    WEBHOOK_SECRET=whsec_… python3 orders.py PORT DATABASE

docs/guide/sidecar.md shows its parts.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


# snippet: verify
def is_signed(secret, headers, body):
    """Standard Webhooks, of the last five minutes; secret: as the relay has it, whsec_…"""
    id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    right = hmac.digest(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256)
    right = "v1," + base64.b64encode(right).decode()
    given = headers.get("webhook-signature", "").split(" ")  # two while the secret is changed
    return any(hmac.compare_digest(right.encode(), one.encode()) for one in given)
# end


# snippet: charge
def charge(path, id, order):
    """The status, and why: the charge and its id are in one transaction."""
    try:
        row = id, str(order["customer"]), float(order["amount"])
    except (KeyError, TypeError, ValueError):
        return 422, "an order has a customer and an amount"  # it never gets better: a dead letter
    try:
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("insert into charge (id, customer, amount) values (?, ?, ?)", row)
    except sqlite3.IntegrityError:
        return 409, "charged before"
    except sqlite3.OperationalError as error:  # locked, no disk: not the order's fault
        return 503, str(error)
    return 200, ""
# end


# snippet: answer
class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not is_signed(self.server.secret, self.headers, body):
            return self.say(401, b"the signature is wrong")
        try:
            given = json.loads(body)
        except ValueError:
            return self.say(400, b"no JSON")
        if self.headers["Content-Type"].startswith("application/cloudevents-batch+json"):
            return self.say(200, json.dumps([self.one(event) for event in given]).encode())
        # The id that is signed; the headers ce-… are not.
        status, why = charge(self.server.path, self.headers["webhook-id"], given)
        self.say(status, why.encode())

    def one(self, event):
        status, why = charge(self.server.path, event["id"], event.get("data"))
        answer = {"id": event["id"], "status": status, "reason": why}
        return {**answer, "retry_after": 1} if status == 503 else answer

    def say(self, status, body):
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
# end


def main(port, path):
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("create table if not exists charge"
                         " (id text primary key, customer text, amount real)")
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Orders)
    server.path, server.secret = path, os.environ["WEBHOOK_SECRET"]
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
