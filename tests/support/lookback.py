"""An application of the look-back: sends prepare, commit and rollback as records."""

import base64
import json
import os

from confluent_kafka import Producer

from .process import temporary_folder


def message(op, biz_type, biz_id, **fields):
    """The JSON form of a record: (key, value, headers)."""
    body = {"version": 1, "op": op, "biz_type": biz_type, "biz_id": biz_id, **fields}
    return f"{biz_type}:{biz_id}".encode(), json.dumps(body).encode(), []


def in_headers(op, biz_type, biz_id, value=None, headers=(), **fields):
    """The header form; fields as the JSON form spells them."""
    said = {"version": 1, "op": op, "biz_type": biz_type, "biz_id": biz_id, **fields}
    return (f"{biz_type}:{biz_id}".encode(), value,
            [*((f"lookback-{name.replace('_', '-')}", str(text).encode())
               for name, text in said.items()), *headers])


class Application:
    """Sends to one look-back topic, as one biz_type."""

    def __init__(self, bootstrap, topic, biz_type, business_topic):
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0,
                                  "enable.idempotence": True, "partitioner": "murmur2_random"})
        self.topic, self.biz_type, self.business_topic = topic, biz_type, business_topic

    def send(self, *records, partition=None):
        """All of them acknowledged; returns their places in order."""
        places = []

        def acknowledged(error, record):
            assert error is None, error
            places.append((record.partition(), record.offset()))

        where = {} if partition is None else {"partition": partition}
        for key, value, headers in records:
            self.producer.produce(self.topic, key=key, value=value, headers=headers,
                                  on_delivery=acknowledged, **where)
        assert self.producer.flush(60) == 0
        return places

    def prepared(self, biz_id, **fields):
        said = {"topic": self.business_topic, "key": biz_id, "payload": {"id": biz_id}, **fields}
        return message("prepare", self.biz_type, biz_id, **said)

    def decided(self, biz_id, op, **fields):
        return message(op, self.biz_type, biz_id, **fields)

    def prepare(self, *biz_ids, **fields):
        return self.send(*(self.prepared(biz_id, **fields) for biz_id in biz_ids))

    def commit(self, *biz_ids):
        return self.send(*(self.decided(biz_id, "commit") for biz_id in biz_ids))

    def rollback(self, *biz_ids):
        return self.send(*(self.decided(biz_id, "rollback") for biz_id in biz_ids))


def base64_text(data):
    return base64.b64encode(data).decode()


def configuration(*sections):
    """A file of these sections, each a pair of its heading and a dict; returns its path."""
    path = os.path.join(temporary_folder("lookback"), "relay.ini")
    with open(path, "w", encoding="utf-8") as file:
        for heading, values in sections:
            file.write(f"[{heading}]\n")
            file.writelines(f"{name} = {value}\n" for name, value in values.items())
    return path
