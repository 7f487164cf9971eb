"""Partitions read to their end (outbox/kafka/tail.h) on a real Kafka, by tail_reader.c."""

import os
import queue
import signal
import subprocess
import threading
import time

import pytest
from confluent_kafka import Producer

from support.kafka import Kafka
from support.process import wait_for
from support.relay import beside

WAIT = 30.0
FROM_END = -1
REJECT, DENIED, RETRY = 1, 3, 0  # enum err_kind


class Reader:
    def __init__(self, bootstrap, isolation="read_uncommitted", idle_ms=3000):
        self.child = subprocess.Popen(
            [beside("tests/integration/tail_reader"), bootstrap, isolation, str(idle_ms)],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        self.longest = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            if line.startswith("longest"):
                self.longest = int(line.split()[1])
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def ask(self, topic, partition, offset):
        self.command(f"ask {topic} {partition} {offset}")

    def command(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def next(self, *wanted):
        """The next line that begins with one of the words, within WAIT; none of the others."""
        deadline = time.monotonic() + WAIT
        while True:
            try:
                line = self.lines.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"waited in vain for {wanted}") from None
            assert line is not None, "the reader ended"
            if line.startswith(wanted):
                return line
            # What only tells, and the coming and going of the client, is passed over.
            assert line.startswith((f"failed {RETRY} ", "open", "closed")), line

    def read(self, topic, partition, offset):
        """Asks, and returns ([(offset, value)…], the last line)."""
        self.ask(topic, partition, offset)
        return self.answer(topic, partition)

    def answer(self, topic, partition):
        records = []
        while True:
            line = self.next("record", "end", "beyond", "failed 1", "failed 3")
            words = line.split(" ")
            if words[0] != "record":
                return records, line
            assert words[1:3] == [topic, str(partition)], line
            records.append((int(words[3]), words[4]))

    def close(self):
        self.child.stdin.close()
        assert self.child.wait(WAIT) == 0


@pytest.fixture
def make_reader():
    readers = []

    def make(*arguments, **options):
        readers.append(Reader(*arguments, **options))
        return readers[-1]

    yield make
    try:
        for reader in readers:
            if reader.child.poll() is None:
                reader.child.send_signal(signal.SIGCONT)
                reader.close()
    finally:
        for reader in readers:
            reader.child.kill()


@pytest.fixture
def reader(make_reader, kafka):
    return make_reader(kafka.bootstrap)


def fill(bootstrap, topic, count, partitions=1, first=0):
    """count records to each partition, all acknowledged; values are numbers from first on."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True,
                         "log_level": 0})
    failed = []
    for number in range(first, first + count):
        for partition in range(partitions):
            producer.produce(topic, value=str(number), partition=partition,
                             on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(WAIT) == 0 and not failed


def numbered(first, end):
    return [(number, str(number)) for number in range(first, end)]


class Transactions:
    """Of one producer, on partition 0; its first one may find the coordinator still loading."""

    def __init__(self, bootstrap, name):
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name,
                                  "log_level": 0})
        self.producer.init_transactions(WAIT)

    def write(self, topic, values):
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(topic, value=value, partition=0)
        assert self.producer.flush(WAIT) == 0

    def commit(self):
        self.producer.commit_transaction(WAIT)

    def abort(self):
        self.producer.abort_transaction(WAIT)


def wait_for_end(reader, topic, end):
    """A commit or an abort returns before its markers are written."""
    wait_for(lambda: reader.read(topic, 0, FROM_END) == ([], f"end {topic} 0 {end} {end}"), WAIT,
             f"the end {end}")


def test_records_come_from_the_offset_to_the_end(kafka, topic, reader):
    fill(kafka.bootstrap, topic, 1000)
    assert reader.read(topic, 0, 990) == (numbered(990, 1000), f"end {topic} 0 990 1000")
    assert reader.read(topic, 0, 0) == (numbered(0, 1000), f"end {topic} 0 0 1000")
    assert reader.read(topic, 0, 1000) == ([], f"end {topic} 0 1000 1000")
    assert reader.read(topic, 1, 0) == ([], f"end {topic} 1 0 0")


def test_from_the_end_only_the_end_is_told(kafka, topic, reader):
    fill(kafka.bootstrap, topic, 10)
    assert reader.read(topic, 0, FROM_END) == ([], f"end {topic} 0 10 10")
    assert reader.read(topic, 1, FROM_END) == ([], f"end {topic} 1 0 0")
    fill(kafka.bootstrap, topic, 5, first=10)
    assert reader.read(topic, 0, FROM_END) == ([], f"end {topic} 0 15 15")


def test_an_offset_beyond_the_end_is_told(kafka, topic, reader):
    fill(kafka.bootstrap, topic, 10)
    assert reader.read(topic, 0, 11) == ([], f"beyond {topic} 0 0 10")
    assert reader.read(topic, 1, 1) == ([], f"beyond {topic} 1 0 0")


def test_many_partitions_are_read_at_once(kafka, make_reader):
    topic = kafka.create_topic(f"tail_many_{os.getpid()}", partitions=48)
    fill(kafka.bootstrap, topic, 100, partitions=48)
    reader = make_reader(kafka.bootstrap)
    for partition in range(48):
        reader.ask(topic, partition, 0)
    records, ended = {}, set()
    while len(ended) < 48:
        line = reader.next("record", "end")
        words = line.split(" ")
        partition = int(words[2])
        assert partition not in ended, line
        if words[0] == "end":
            assert words[3:] == ["0", "100"]
            ended.add(partition)
        else:
            records.setdefault(partition, []).append((int(words[3]), words[4]))
    for partition in range(48):
        assert records[partition] == numbered(0, 100), partition
    kafka.delete_topic(topic)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_deleted_records_are_told_by_a_later_begin(kafka, topic, make_reader, isolation):
    reader = make_reader(kafka.bootstrap, isolation)
    fill(kafka.bootstrap, topic, 100)
    kafka.delete_records({(topic, 0): 60})
    assert reader.read(topic, 0, 20) == (numbered(60, 100), f"end {topic} 0 60 100")
    assert reader.read(topic, 0, 60) == (numbered(60, 100), f"end {topic} 0 60 100")
    assert reader.read(topic, 0, 101) == ([], f"beyond {topic} 0 60 100")
    kafka.delete_records({(topic, 0): 100})
    assert reader.read(topic, 0, 20) == ([], f"end {topic} 0 100 100")
    assert reader.read(topic, 0, FROM_END) == ([], f"end {topic} 0 100 100")


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_commit_marker_does_not_hide_the_end(kafka, topic, make_reader, isolation):
    transactions = Transactions(kafka.bootstrap, topic)
    transactions.write(topic, ["a", "b"])
    transactions.commit()
    reader = make_reader(kafka.bootstrap, isolation)
    wait_for_end(reader, topic, 3)
    # Offset 2 is the marker.
    assert reader.read(topic, 0, 0) == ([(0, "a"), (1, "b")], f"end {topic} 0 0 3")
    assert reader.read(topic, 0, 2) == ([], f"end {topic} 0 2 3")
    assert reader.read(topic, 0, 3) == ([], f"end {topic} 0 3 3")
    assert reader.read(topic, 0, 4) == ([], f"beyond {topic} 0 0 3")


def test_aborted_records_are_read_only_uncommitted(kafka, topic, make_reader):
    transactions = Transactions(kafka.bootstrap, topic)
    transactions.write(topic, ["a", "b"])
    transactions.abort()
    committed = make_reader(kafka.bootstrap, "read_committed")
    wait_for_end(committed, topic, 3)
    assert committed.read(topic, 0, 0) == ([], f"end {topic} 0 0 3")
    uncommitted = make_reader(kafka.bootstrap)
    assert uncommitted.read(topic, 0, 0) == ([(0, "a"), (1, "b")], f"end {topic} 0 0 3")


def test_an_open_transaction_is_waited_for_by_the_committed(kafka, topic, make_reader):
    fill(kafka.bootstrap, topic, 5)
    transactions = Transactions(kafka.bootstrap, topic)
    transactions.write(topic, ["a", "b"])
    committed = make_reader(kafka.bootstrap, "read_committed")
    assert committed.read(topic, 0, FROM_END) == ([], f"end {topic} 0 5 5")
    assert committed.read(topic, 0, 8) == ([], f"beyond {topic} 0 0 5")
    committed.ask(topic, 0, 4)
    assert "open" in committed.next(f"failed {RETRY} "), "told after a while"
    uncommitted = make_reader(kafka.bootstrap)
    assert uncommitted.read(topic, 0, 4) == ([(4, "4"), (5, "a"), (6, "b")],
                                             f"end {topic} 0 4 7")
    transactions.commit()
    assert committed.answer(topic, 0) == ([(4, "4"), (5, "a"), (6, "b")], f"end {topic} 0 4 8")


def test_what_was_acknowledged_before_the_question_comes_before_the_end(kafka, topic, reader):
    """Under writes that do not stop: the end that is told lies at or behind the last answer."""
    ended, acknowledged = threading.Event(), [0]

    def write():
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        while not ended.is_set():
            producer.produce(topic, value=str(acknowledged[0]), partition=0)
            producer.flush(WAIT)
            acknowledged[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        position = 0
        for _ in range(20):
            wait_for(lambda: acknowledged[0] > position, WAIT, "another record")
            before = acknowledged[0]
            records, line = reader.read(topic, 0, position)
            end = int(line.split(" ")[-1])
            assert line == f"end {topic} 0 {position} {end}" and end >= before
            assert records == numbered(position, end)
            position = end
    finally:
        ended.set()
        writer.join()


def test_a_missing_topic_is_given_up_and_read_when_it_is_there(kafka, reader):
    topic = f"tail_missing_{os.getpid()}"
    records, line = reader.read(topic, 0, 0)
    assert records == [] and line.startswith(f"failed {REJECT} {topic} 0 "), line
    kafka.create_topic(topic, partitions=1)
    fill(kafka.bootstrap, topic, 3)

    def answered():
        return reader.read(topic, 0, 0) == (numbered(0, 3), f"end {topic} 0 0 3")

    wait_for(answered, WAIT, "the topic's records")
    kafka.delete_topic(topic)
    wait_for(lambda: reader.read(topic, 0, 0)[1].startswith(f"failed {REJECT} "), WAIT,
             "the end of the topic")


def test_a_topic_made_anew_ends_before_the_offset(kafka, reader):
    topic = kafka.create_topic(f"tail_anew_{os.getpid()}", partitions=4)
    fill(kafka.bootstrap, topic, 50, partitions=4)
    assert reader.read(topic, 0, 50) == ([], f"end {topic} 0 50 50")
    kafka.delete_topic(topic)
    kafka.create_topic(topic, partitions=2)
    fill(kafka.bootstrap, topic, 10)
    assert reader.read(topic, 0, 50) == ([], f"beyond {topic} 0 0 10")
    assert reader.read(topic, 1, 50) == ([], f"beyond {topic} 1 0 0")
    records, line = reader.read(topic, 3, 50)
    assert records == [] and line.startswith(f"failed {REJECT} {topic} 3 "), line
    kafka.delete_topic(topic)


def test_the_client_ends_when_nothing_is_asked_for_a_while(kafka, topic, make_reader):
    reader = make_reader(kafka.bootstrap, idle_ms=300)
    fill(kafka.bootstrap, topic, 2)
    for _ in range(2):
        assert reader.read(topic, 0, 0) == (numbered(0, 2), f"end {topic} 0 0 2")
        assert reader.next("closed") == "closed"
    threads = f"/proc/{reader.child.pid}/task"
    wait_for(lambda: len(os.listdir(threads)) == 1, WAIT, "the end of librdkafka's threads")


def test_a_frozen_broker_blocks_nothing_and_is_read_when_it_goes_on(make_reader):
    with Kafka(nodes=1) as cluster:
        topic = cluster.create_topic("frozen", partitions=12)
        fill(cluster.bootstrap, topic, 10, partitions=12)
        reader = make_reader(cluster.bootstrap)
        assert reader.read(topic, 0, 0)[1] == f"end {topic} 0 0 10"
        cluster.pause()
        for partition in range(12):
            reader.ask(topic, partition, 5)
        assert "no answer" in reader.next(f"failed {RETRY}")
        reader.command("forget")
        reader.ask(topic, 3, 7)
        assert "no answer" in reader.next(f"failed {RETRY}")
        cluster.resume()
        assert reader.answer(topic, 3) == (numbered(7, 10), f"end {topic} 3 7 10")
        cluster.kill()
        reader.ask(topic, 4, 7)
        assert reader.next(f"failed {RETRY}")
        cluster.start_node(1)
        assert reader.answer(topic, 4) == (numbered(7, 10), f"end {topic} 4 7 10")
        cluster.kill()
        reader.ask(topic, 4, 7)
        reader.close()
        # Sanitizers and other work may delay a call; a wait for the network takes seconds.
        assert reader.longest <= 1500


@pytest.mark.rotated("brokers")
def test_a_new_leader_tells_all_that_the_former_one_acknowledged(kafka3, make_reader, scale):
    topic = kafka3.create_topic(f"tail_leader_{os.getpid()}", partitions=1)
    reader = make_reader(kafka3.bootstrap)
    count = 0
    for _ in range(scale(10)):
        fill(kafka3.bootstrap, topic, 200, first=count)
        count += 200
        leader = kafka3.leader(topic, 0)
        kafka3.kill(leader)
        records, line = reader.read(topic, 0, count - 200)
        assert records == numbered(count - 200, count)
        assert line == f"end {topic} 0 {count - 200} {count}"
        kafka3.start_node(leader)
        wait_for(lambda: len(kafka3.in_sync(topic, 0)) == 3, 60, "three replicas in sync")
    kafka3.delete_topic(topic)


@pytest.mark.rotated("brokers")
def test_who_may_not_read_is_told_so(make_reader):
    rights = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "allow_everyone_if_no_acl_found": "true"}
    with Kafka(nodes=1, **rights) as cluster:
        topic = cluster.create_topic("secret", partitions=1)
        cluster.tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.bootstrap, "--add",
                     "--allow-principal", "User:ANONYMOUS", "--operation", "write", "--topic",
                     topic)
        fill(cluster.bootstrap, topic, 3)
        reader = make_reader(cluster.bootstrap)
        records, line = reader.read(topic, 0, 0)
        assert records == [] and line.startswith(f"failed {DENIED} {topic} 0 "), line
        records, line = reader.read(topic, 0, FROM_END)
        assert records == [] and line.startswith(f"failed {DENIED} {topic} 0 "), line
