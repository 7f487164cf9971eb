"""kafka-python, without the packages that it needs for lz4, snappy and zstd."""

import base64
import itertools
import json
import sys

from kafka import KafkaConsumer

given = json.load(sys.stdin)


def encode(value):
    return None if value is None else base64.b64encode(value).decode()


consumer = KafkaConsumer(given["topic"], bootstrap_servers=given["bootstrap"], group_id=given["group"],
                         auto_offset_reset="earliest")
for record in itertools.islice(consumer, given["count"]):
    print(json.dumps({"partition": record.partition, "offset": record.offset, "key": encode(record.key),
                      "value": encode(record.value),
                      "headers": [[name, encode(value)] for name, value in record.headers]}))
consumer.close()
