"""confluent-kafka of the registry, with the librdkafka that it brings along; the tests compare with Debian's older one."""

import base64
import json
import sys

from confluent_kafka import Consumer

given = json.load(sys.stdin)


def encode(value):
    return None if value is None else base64.b64encode(value).decode()


consumer = Consumer({"bootstrap.servers": given["bootstrap"], "group.id": given["group"],
                     "auto.offset.reset": "earliest"})
consumer.subscribe([given["topic"]])
count = 0
while count < given["count"]:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        sys.exit(str(message.error()))
    print(json.dumps({"partition": message.partition(), "offset": message.offset(), "key": encode(message.key()),
                      "value": encode(message.value()),
                      "headers": [[name, encode(value)] for name, value in message.headers() or []]}))
    count += 1
consumer.close()
