"""One Apache Kafka until SIGTERM: python3 -m support.serve_kafka TOPIC:PARTITIONS…

Prints its bootstrap.servers when it answers and the topics are there.
"""

import signal
import sys

from .kafka import Kafka


def main():
    signals = {signal.SIGTERM, signal.SIGINT}
    with Kafka() as kafka:
        for argument in sys.argv[1:]:
            name, _, partitions = argument.partition(":")
            kafka.create_topic(name, int(partitions or 6))
        print(kafka.bootstrap, flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        signal.sigwait(signals)


main()
