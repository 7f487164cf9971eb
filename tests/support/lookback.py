"""An application of the look-back: sends prepare, commit and rollback as records."""

import base64
import json
import os

from confluent_kafka import Producer

from .auditor import read_topics
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


ASK = {"url": "http://127.0.0.1:9/"}


class Case:
    """A relay with one section, its application, and the topics."""

    def __init__(self, database, kafka, make_relay, name, **settings):
        self.database, self.kafka, self.make_relay = database, kafka, make_relay
        self.name = name
        self.topics = {word: kafka.create_topic(f"{name}_{word}", 3)
                       for word in ("said", "orders", "dead")}
        self.application = Application(kafka.bootstrap, self.topics["said"], "order",
                                       self.topics["orders"])
        self.check = dict(ASK)
        self.options = {}  # of make_relay
        self.settings = {"types": "order", "topic": self.topics["said"], "group": name,
                         "dead_letter": self.topics["dead"], "check": "shop",
                         "check_after": "1h", **settings}

    def relay(self, database_url=None, **more):
        path = configuration(("check \"shop\"", self.check), ("lookback \"shop\"", {**self.settings, **more}))
        options = {**self.options, **({"database_url": database_url} if database_url else {})}
        return self.make_relay(arguments=("run", "--config", path), **options)

    def records(self, word="orders"):
        return list(read_topics(self.kafka.bootstrap, [self.topics[word]]))

    def ids(self):
        """Of the committed ones, sorted: one that came twice is there twice."""
        return sorted(record.key.decode() for record in self.records())

    def conflicts(self):
        return sorted(self.database.execute(
            "SELECT biz_id, kept, refused, source FROM outbox.lookback_conflict"))

    def decided(self):
        return dict(self.database.execute(
            "SELECT biz_id, decision FROM outbox.lookback WHERE kind = 'decision'"))

    def overdue(self):
        return sorted(biz_id for biz_id, in self.database.execute(
            "SELECT biz_id FROM outbox.lookback_overdue"))

    def read_up(self, relay, count):
        """Until the reader has stored so many records."""
        relay.wait_for(lambda: sum(next_offset for next_offset, in self.database.execute(
            "SELECT max(next_offset) FROM outbox.lookback_log GROUP BY partition")) >= count,
            what=f"{count} records of the look-back topic to be read")
