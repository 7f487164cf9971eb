"""The Kafka clients of which run-tests tries each by turns.

A program is a folder in readers/. It reads a JSON object from its standard input:

    {"bootstrap": …, "topic": …, "group": …, "count": …}

subscribes to the topic in this consumer group, from the first offsets on, with the defaults of the client, and prints a
line of JSON for each of the first count records:

    {"partition": …, "offset": …, "key": base64 or null, "value": base64 or null,
     "headers": [[name, base64 or null], …]}
"""

from drivers.drivers import python
from drivers.harness import go, java, node, rust

KAFKAJS = "kafkajs@2.2.4"
READERS = [
    python("confluent", "confluent-kafka==2.6.1", folder="readers/confluent"),
    go("franz-go", "readers/go"),
    java("kafka-clients", folder="readers/kafka-clients"),
    node("kafkajs", KAFKAJS, folder="readers/kafkajs"),
    python("kafka-python", "kafka-python==2.2.15", folder="readers/kafka-python"),
    rust("rdkafka", folder="readers/rdkafka"),
    go("sarama", "readers/go"),
]
