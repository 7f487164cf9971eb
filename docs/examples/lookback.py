"""The look-back from an application's side: confluent-kafka, psycopg2 and Python's own library.

docs/guide/lookback.md shows its parts, and ./quickstart lookback runs it.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import time
from http.server import BaseHTTPRequestHandler

import psycopg2
from confluent_kafka import Producer


# snippet: send
class Lookback:
    def __init__(self, servers, biz_type, topic="look_back_msg"):
        self.biz_type, self.topic = biz_type, topic
        self.producer = Producer({
            "bootstrap.servers": servers, "acks": "all", "enable.idempotence": True,
            "partitioner": "murmur2_random"})  # as Java does: an id has one partition

    def prepare(self, biz_id, topic, key, payload, **fields):
        self._send("prepare", biz_id, payload, topic=topic, key=key, **fields)

    def commit(self, biz_id):
        self._send("commit", biz_id)

    def rollback(self, biz_id):
        self._send("rollback", biz_id)

    def _send(self, op, biz_id, value=None, **fields):
        """Returns after Kafka's acknowledgement."""
        said = {"version": "1", "op": op, "biz_type": self.biz_type, "biz_id": biz_id, **fields}
        headers = [(f"lookback-{name.replace('_', '-')}", text.encode())
                   for name, text in said.items()]
        errors = []
        self.producer.produce(self.topic, key=f"{self.biz_type}:{biz_id}", value=value,
                              headers=headers, on_delivery=lambda error, _: errors.append(error))
        self.producer.flush()
        if errors != [None]:
            raise RuntimeError(f"{op} of {biz_id}: {errors}")
# end


# snippet: work
def in_transaction(lookback, connection, biz_id, work):
    """Call it after the prepare. work(cursor) refuses by raising any exception but psycopg2.Error."""
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("select lookback_begin(%s, %s)", (lookback.biz_type, biz_id))
            work(cursor)
    except psycopg2.Error as error:  # it may have committed: the relay asks
        if error.pgcode == "LB002":  # committed before
            lookback.commit(biz_id)
        raise
    except Exception:
        lookback.rollback(biz_id)
        raise
    lookback.commit(biz_id)
# end


# snippet: verify
def is_signed(secret, headers, body, tolerance=300):
    """Standard Webhooks: the request is recent, and one signature is of our secret (whsec_…)."""
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(time.time() - int(sent)) > tolerance:
        return False
    signed = f"{headers.get('webhook-id')}.{sent}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    ours = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    return any(hmac.compare_digest(ours, one.encode())
               for one in headers.get("webhook-signature", "").split())
# end


# snippet: answer
class Checks(BaseHTTPRequestHandler):
    """Its server has `secret`, and `connect()`, which returns a connection of psycopg2."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not is_signed(self.server.secret, self.headers, body):
            return self.send_error(401)
        asked = json.loads(body)
        ids = [one["biz_id"] for one in asked.get("ids", [asked])]  # one id or several
        with contextlib.closing(self.server.connect()) as connection:
            with connection, connection.cursor() as cursor:  # committed before the answer is sent
                cursor.execute("select biz_id, decision from lookback_check(%s, %s)",
                               (asked["biz_type"], ids))
                answers = [{"biz_id": biz_id, "decision": what} for biz_id, what in cursor]
        self._say({"answers": answers} if "ids" in asked else answers[0])

    def _say(self, answer):
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
# end
